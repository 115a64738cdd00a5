"""Interpreters of other languages: `python -c`, `perl -e`, `awk '…'`, a script, a module."""

from __future__ import annotations

import re

from ralph.shell.arguments import takes_next
from ralph.shell.code.assembled import is_undone, written_out
from ralph.shell.code.languages import AWKS, LANGUAGES, language
from ralph.shell.code.strings import STRING, guesses, string_lists, try_command
from ralph.shell.processes import filtered
from ralph.shell.steps import Guess, ShellText, WriteFile, inner
from ralph.shell.texts import formatted, kept
from ralph.shell.words import DECODED, NET, UNKNOWN, Word, ansi_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Step, Steps

_MAX_CODE = 20_000
_MAX_TREE = 60_000
_PYTHONS = ("python", "pypy", "ipython")
_GLUED = ("python", "ruby", "perl", "php")
"""Interpreters that accept code in the same word: `-ccode`."""
_PRINTS = r"print|puts|say|echo|console\.log|process\.stdout\.write|io\.write"


def interpret(shell: ShellState, command: SimpleCommand) -> Steps:
    name = language(command.program)
    text, module = _code(shell, command, name)
    if module:
        command.module = module[0]
        return inner(command, module)
    command.code = text + DECODED if is_undone(text[:_MAX_CODE]) else text
    steps: list[Step] = []
    called = _calls(shell, command, name, text)
    command.is_read = called is not None
    if text and NET not in text and DECODED not in text:
        steps += guesses(command, text[:_MAX_CODE], shell.context.home) if called is None else called
        if name in ("pwsh", "powershell", "tclsh", "expect"):
            steps.append(Guess(ShellText(text)))
    return [*steps, _printed(command, name, written_out(text[:_MAX_CODE], shell.context.home))]


def _calls(shell: ShellState, command: SimpleCommand, name: str, text: str) -> list[Step] | None:
    """Return the steps of a Python program's calls, or None if it cannot be parsed."""
    if name not in _PYTHONS or not text.strip() or len(text) > _MAX_TREE:
        return None
    from ralph.shell.code import python

    found = python.commands(text, shell.context.home)
    if found is None:
        return None
    steps: list[Step] = []
    for program, words, directory in found:
        where = shell.path(directory) if directory else command.directory
        if program == python.WRITE:
            steps.append(WriteFile(words[0], words[1]))
        elif program == python.TEXT:
            steps.append(Guess(ShellText(words[0], where)))
        else:
            steps.append(try_command(command, program, words, where))
    return steps


def _code(shell: ShellState, command: SimpleCommand, name: str) -> tuple[str, list[Word]]:
    """Return the code, or the module that `-m` names with its arguments."""
    options = LANGUAGES[name]
    words = command.args
    found: list[str] = []
    is_dry = False
    at = 1 if words[:1] and words[0] in options.verbs else 0
    while at < len(words):
        word = words[at]
        behind = words[at + 1] if at + 1 < len(words) else Word()
        is_short = word[:1] == "-" and word[1:2] != "-" and len(word) > 1
        if is_short and word[-1] == "m" and name in ("python", "pypy") and word[:2] not in options.valued:
            return "", words[at + 1 :]
        if word in options.code or (is_short and _is_cluster(word, name)):
            found.append(behind)
            at += 2
        elif is_short and word[:2] in options.code and name in _GLUED:
            found.append(word[2:])
            at += 1
        elif word in options.script:
            command.script = behind
            at += 2
        elif is_short or word.startswith("--"):
            is_dry = is_dry or word in options.dry
            at += 2 if takes_next(word, options.valued) else 1
        else:
            break
    if found:
        return "\n".join(found), []
    if not command.script and at < len(words) and words[at] not in ("-", "/dev/stdin"):
        if name in AWKS:
            return words[at], []
        is_file = not options.verbs or words[0] in options.verbs or "." in words[at]
        command.script = words[at] if is_file else Word()
    elif not command.script:
        command.script = command.read_from
        return command.stdin, []
    if is_dry:
        command.script = Word()
    text = shell.content(command.script) if command.script else ""
    return ("" if text == UNKNOWN else text), []


def _is_cluster(word: str, name: str) -> bool:
    """Whether a bundle of short options ends with one for code: `-ne`, `-pe`, `-lane`."""
    options = LANGUAGES[name]
    return (
        name not in ("osascript", "pwsh", "powershell")
        and word[1:].isalnum()
        and word[:2] not in (*options.valued, *options.code)
        and f"-{word[-1]}" in options.code
    )


def _printed(command: SimpleCommand, name: str, text: str) -> str:
    """Return the output: a printed constant, the result of awk's `printf`, otherwise the marks of stdin."""
    printed = re.fullmatch(rf"\s*(?:{_PRINTS})\s*\(?\s*({STRING.pattern})\s*\)?\s*;?\s*", text, re.DOTALL)
    if printed and name not in AWKS:
        return string_lists(printed[1])[0][0]
    if name not in AWKS:
        return kept(command.stdin) or UNKNOWN
    if found := re.search(r"BEGIN\s*\{\s*printf?\s*\(?\s*\"((?:[^\"\\]|\\.)*)\"\s*,?([^;})]*)", text):
        return formatted(ansi_c(found[1]), [Word(each.strip(' "')) for each in found[2].split(",")])
    stdin = command.stdin
    condition = re.sub(
        r"NR\s*[<>!=]+\s*\d+|BEGIN\s*\{[^}]*\}|[&|\s]",
        "",
        text.partition("{print")[0].partition("{ print")[0],
    )
    if pattern := re.search(r"/((?:[^/\\]|\\.)+)/", text) or re.search(r"[~=]=?\s*\"([^\"]+)\"", text):
        stdin = filtered(stdin, pattern[1])
    elif condition:
        stdin = filtered(stdin, condition)
    return kept(stdin) or UNKNOWN
