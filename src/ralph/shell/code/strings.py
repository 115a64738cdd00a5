"""Judges code in other languages by its strings, without parsing it.

Depending on the functions that the code names, a string that looks like a command line or like a path to delete, write
or read becomes the shell command that would do the same.
"""

from __future__ import annotations

import re

from ralph.shell.code.assembled import others, written_out
from ralph.shell.steps import Guess, ShellText
from ralph.shell.texts import decoded
from ralph.shell.words import DECODED, UNKNOWN, Word, ansi_c, globbing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph.shell.command import SimpleCommand

_MAX_STRINGS = 60

_RUNS = re.compile(
    r"system|popen|exec|spawn|subprocess|child_process|check_output|check_call|getoutput|run\(|call\(|`|%x|qx|"
    r"shell-command|call-process|shell_exec|passthru|proc_open|do (?:shell )?script|System\.cmd|run-program|\.!|['\"]\s*\||Process|getline|Invoke-Expression|iex|sh\(|\|\s*\""
)
_DELETES = re.compile(
    r"rmtree|removeItem|file delete|delete-(?:directory|file)|unlink|(?:File|Dir)\.(?:delete|unlink)|rmdir|removedirs|os\.remove|\.remove\(|rmSync|\brm\(|rm_rf|rm_r\b|remove_tree|remove_entry|"
    r"emptyDir|rimraf|removeSync|RemoveAll|FileUtils\.rm|Remove-Item|remove_dir_all|delete_tree|file\.remove|unlink\("
)
_WRITES = re.compile(
    r"open\([^\n;]{0,200}?,\s*(?:mode\s*=\s*)?['\"][wax+]|write_text|write_bytes|writeFile|appendFile|File\.write|"
    r"File\.open|file_put_contents|copyfile|shutil\.(?:copy|move)|os\.rename|os\.replace|renameSync|\.touch\(|"
    r"symlink|open\s*\(?\s*\w*\s*,?\s*['\"]>|createWriteStream|truncate"
)
STRING = re.compile(
    r"'''(.*?)'''|\"\"\"(.*?)\"\"\"|\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`]*)`|(?:%x|qx|%q|q)[({\[|/]([^)}\]|/]*)[)}\]|/]",
    re.DOTALL,
)
_GLUE = re.compile(r"[\s)]*(?:\+|\.\.?|/)[\s(]*|[ \t]*")
_COMMA = re.compile(r"[\s,\[\]()]*,[\s,\[\]()]*|\s*=>\s*")
_WORDS = re.compile(r"(?:%w|qw)\s*(?:\[([^\]]*)\]|\(([^)]*)\)|\{([^}]*)\}|/([^/]*)/)")
_ENCODED = re.compile(r"b64decode|base64|atob|unpack|frombase64|FromBase64String|decode64", re.IGNORECASE)
_SQL = re.compile(r"execute|query|\.exec\(|command\(", re.IGNORECASE)
_KILLS = re.compile(r"(?:os\.|process\.|Process\.)?kill\(([^)]*)\)")
_EVALUATES = re.compile(
    r"(?<!\.)\b(?:exec|compile|load)\b|builtins\.exec|\w*eval\b|\bFunction\b|loadstring|runIn\w+Context"
)
"""Functions that run a string as code."""
_CHMODS = re.compile(r"chmod|chown")


def guesses(command: SimpleCommand, text: str, home: str) -> Iterator[Guess]:
    """Yield the commands that the code of a command might run."""
    text = written_out(text, home)
    text = _WORDS.sub(
        lambda match: ", ".join(f'"{word}"' for group in match.groups() for word in (group or "").split()),
        text,
    )
    strings = string_lists(text)
    for made in [made for words in strings for made in others(words, text)]:
        strings.append([made])
        yield from _hidden(command, made, home)
    every = [word for words in strings for word in words]
    if _EVALUATES.search(text):
        for code in [word for word in every if any(char in word for char in "('\"")]:
            yield from guesses(command, code, home)
    if _RUNS.search(text) or any(_RUNS.search(word) for word in every):
        for words in strings:
            yield from _run_words(command, words)
    if _ENCODED.search(text):
        for made in [decoded(word) for word in every if len(word) > 3]:
            if DECODED not in made and made.isprintable():
                yield from _hidden(command, made, home)
    programs = [("rm", "-rf")] if _DELETES.search(text) else []
    programs += [("tee", "")] if _WRITES.search(text) else []
    programs += [("chmod", "-R 777")] if _CHMODS.search(text) else []
    programs.append(("cat", ""))
    for path in _paths(every):
        for program, options in programs:
            yield try_command(
                command, program, [*map(Word, options.split()), globbing(path) if "*" in path else Word(path)]
            )
    if _SQL.search(text):
        for each in every:
            if " " in each:
                yield try_command(command, "psql", [Word("-c"), Word(each)])
    for match in _KILLS.finditer(text):
        yield from _kill(command, match[1])


def string_lists(text: str) -> list[list[str]]:
    """Return the strings of a program. Concatenated strings become one, strings separated by commas form a list."""
    found: list[list[str]] = []
    end = -1
    for match in STRING.finditer(text):
        if len(found) > _MAX_STRINGS:
            break
        value = next((group for group in match.groups() if group is not None), "")
        value = ansi_c(value) if "\\" in value else value
        between = text[end : match.start()] if end >= 0 else None
        between = between.rstrip("brfu") if between else between
        if between is not None and found and _GLUE.fullmatch(between):
            found[-1][-1] += f"/{value}" if "/" in between else value
        elif between is not None and found and _COMMA.fullmatch(between):
            found[-1].append(value)
        else:
            found.append([value])
        end = match.end()
    return found


def _run_words(command: SimpleCommand, words: list[str]) -> Iterator[Guess]:
    if len(words) > 1 and words[0]:
        yield try_command(command, words[0], [Word(word) for word in words[1:]])
    for word in words:
        if " " in word or "/" in word or len(words) == 1:
            yield Guess(ShellText(word.strip("| ")))


def _hidden(command: SimpleCommand, text: str, home: str) -> Iterator[Guess]:
    """Treat a hidden text as a command, and as code if it looks like it."""
    yield Guess(ShellText(text))
    if any(char in text for char in "('\""):
        yield from guesses(command, text, home)


def try_command(command: SimpleCommand, program: str, words: list[Word], directory: str | None = "") -> Guess:
    """Return a command that the code might run, in the interpreter's directory ("") or elsewhere."""
    made = command.derived(program, words, command.program)
    made.stdin, made.redirects = "", []
    made.directory = made.directory if directory == "" else directory
    return Guess(made)


def _paths(strings: list[str]) -> list[str]:
    return [
        each
        for each in strings
        if each[:1] in ("/", "~", ".") and " " not in each.strip() and len(each) < 300
    ] + [
        each
        for each in strings
        if each in ("*", ".git", ".ralph") or each.startswith((".git/", ".ralph/", ".claude/"))
    ]


def _kill(command: SimpleCommand, arguments: str) -> Iterator[Guess]:
    first = arguments.split(",")[0].strip()
    if first in ("-1", "1", "0"):
        yield try_command(command, "kill", [Word("-9"), Word("--"), Word(first)])
    elif "ppid" in first.lower():
        yield try_command(command, "kill", [Word("-9"), Word(UNKNOWN + "PPID")])
