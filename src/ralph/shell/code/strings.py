"""Code in another language that a command line carries: `python -c`, `perl -e`, `awk '…'`.

It is not parsed. Its strings are, in the light of the functions that it names: what looks like a command line,
a path to delete, to write or to read is judged as the shell command that would do the same.
"""

from __future__ import annotations

import re

from ralph.shell.code.assembled import is_undone, others, written_out
from ralph.shell.code.languages import AWKS, LANGUAGES, language
from ralph.shell.parser import Unreadable
from ralph.shell.words import DECODED, NET, UNKNOWN, Word, ansi_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.code.python import Did
    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader

_MAX_CODE = 20_000
_MAX_TREE = 60_000
_MAX_STRINGS = 60


def run(reader: ShellReader, command: SimpleCommand) -> str:
    name = language(command.program)
    text, module = _code(reader, command, name)
    command.code = text + DECODED if is_undone(text[:_MAX_CODE]) else text
    did = _read_as_tree(reader, name, text)
    command.is_read = did is not None
    reader.record(command)
    if module:
        return reader.run(command.derived(module[0], module[1:], command.program))
    if text and NET not in text and DECODED not in text:
        if did is None:
            _judge(reader, command, text[:_MAX_CODE])
        for program, words, directory in did or ():
            _do(reader, command, program, words, directory)
        if name in ("pwsh", "powershell", "tclsh", "expect"):
            _read(reader, text)
    return _printed(command, name, written_out(text[:_MAX_CODE], reader.context.home))


def _read_as_tree(reader: ShellReader, name: str, text: str) -> list[Did] | None:
    if name not in ("python", "pypy", "ipython") or not text.strip() or len(text) > _MAX_TREE:
        return None
    from ralph.shell.code import python

    return python.commands(text, reader.context.home)


def _do(reader: ShellReader, command: SimpleCommand, program: str, words: list[Word], directory: str) -> None:
    """What one call would do, in the directory that it names."""
    from ralph.shell.code.python import TEXT, WRITE

    if program == WRITE:
        if path := reader.path(words[0]):
            reader.state.files[path] = words[1]
        return
    state, reader.state = reader.state, reader.state.copy()
    before = command.directory
    if directory:
        command.directory = reader.state.directory = reader.path(directory)
    try:
        if program == TEXT:
            _read(reader, words[0])
        else:
            _try(reader, command, program, words)
    finally:
        reader.state, command.directory = state, before


def _printed(command: SimpleCommand, name: str, text: str) -> str:
    """Marks of what it reads; of a list of processes, awk may take some; `printf` of awk alone is worked out."""
    from ralph.shell.programs.outputs import formatted, kept
    from ralph.shell.programs.processes import filtered

    printed = re.fullmatch(rf"\s*(?:{_PRINTS})\s*\(?\s*({_STRING.pattern})\s*\)?\s*;?\s*", text, re.DOTALL)
    if printed and name not in AWKS:
        return _strings(printed[1])[0][0]
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


def _code(reader: ShellReader, command: SimpleCommand, name: str) -> tuple[str, list[Word]]:
    """The code, or the module with its arguments that `-m` names."""
    from ralph.shell.programs.outputs import content

    codes, valued = (options.split() for options in LANGUAGES[name])
    found: list[str] = []
    words = command.args
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-m" and name in ("python", "pypy"):
            return "", words[at + 1 :]
        if word in codes or (
            word[:1] == "-" and word[1:2] != "-" and name != "osascript" and word[-2:] in _short(codes)
        ):
            found.append(words[at + 1] if at + 1 < len(words) else "")
            at += 2
        elif (
            word.startswith("-")
            and word[:2] in codes
            and len(word) > 2
            and name in ("python", "ruby", "perl", "php")
        ):
            found.append(word[2:])
            at += 1
        elif word in valued:
            at += 2
        elif word.startswith("-") and word != "-":
            at += 1
        else:
            break
    if found:
        return "\n".join(found), []
    if name in AWKS:
        return (words[at] if at < len(words) and "-f" not in words else ""), []
    if at < len(words) and words[at] not in ("-", "/dev/stdin"):
        text = content(reader, words[at])
        return ("" if text == UNKNOWN else text), []
    return command.stdin, []


def _short(codes: list[str]) -> list[str]:
    """`-ne`, `-pe`, `-lane`: the last letter of a cluster."""
    return [letter + code[1] for code in codes if len(code) == 2 for letter in "nplaiws0EB"]


# ---- what it would do ----

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
_STRING = re.compile(
    r"'''(.*?)'''|\"\"\"(.*?)\"\"\"|\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`]*)`|(?:%x|qx|%q|q)[({\[|/]([^)}\]|/]*)[)}\]|/]",
    re.DOTALL,
)
_PRINTS = r"print|puts|say|echo|console\.log|process\.stdout\.write|io\.write"
_GLUE = re.compile(r"[\s)]*(?:\+|\.\.?|/)[\s(]*|[ \t]*")
_COMMA = re.compile(r"[\s,\[\]()]*,[\s,\[\]()]*|\s*=>\s*")
_WORDS = re.compile(r"(?:%w|qw)\s*(?:\[([^\]]*)\]|\(([^)]*)\)|\{([^}]*)\}|/([^/]*)/)")
_ENCODED = re.compile(r"b64decode|base64|atob|unpack|frombase64|FromBase64String|decode64", re.IGNORECASE)
_SQL = re.compile(r"execute|query|\.exec\(|command\(", re.IGNORECASE)
_KILLS = re.compile(r"(?:os\.|process\.|Process\.)?kill\(([^)]*)\)")
_EVALUATES = re.compile(
    r"(?<!\.)\b(?:exec|compile|load)\b|builtins\.exec|\w*eval\b|\bFunction\b|loadstring|runIn\w+Context"
)
"""A string may be code again."""
_CHMODS = re.compile(r"chmod|chown")


def _judge(reader: ShellReader, command: SimpleCommand, text: str) -> None:
    text = written_out(text, reader.context.home)
    text = _WORDS.sub(
        lambda match: ", ".join(f'"{word}"' for group in match.groups() for word in (group or "").split()),
        text,
    )
    strings = _strings(text)
    for made in [made for words in strings for made in others(words, text)]:
        strings.append([made])
        _judge_hidden(reader, command, made)
    if _EVALUATES.search(text):
        for code in [word for words in strings for word in words if any(char in word for char in "('\"")]:
            _judge(reader, command, code)
    if _RUNS.search(text) or any(_RUNS.search(word) for words in strings for word in words):
        for words in strings:
            _run_words(reader, command, words)
    if _ENCODED.search(text):
        _run_encoded(reader, command, strings)
    paths = [word for words in strings for word in words]
    for path in _paths(paths):
        word = Word(path)
        word.glob = "*" in path
        if _DELETES.search(text):
            _try(reader, command, "rm", [Word("-rf"), word])
        if _WRITES.search(text):
            _try(reader, command, "tee", [word])
        if _CHMODS.search(text):
            _try(reader, command, "chmod", [Word("-R"), Word("777"), word])
        _try(reader, command, "cat", [word])
    if _SQL.search(text):
        for each in paths:
            if " " in each:
                _try(reader, command, "psql", [Word("-c"), Word(each)])
    for match in _KILLS.finditer(text):
        _kill(reader, command, match[1])


def _strings(text: str) -> list[list[str]]:
    """The strings of a program: those that are glued as one, those with only commas between as a list."""
    found: list[list[str]] = []
    end = -1
    for match in _STRING.finditer(text):
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


def _run_words(reader: ShellReader, command: SimpleCommand, words: list[str]) -> None:
    if len(words) > 1 and words[0]:
        _try(reader, command, words[0], [Word(word) for word in words[1:]])
    for word in words:
        if " " in word or "/" in word or len(words) == 1:
            _read(reader, word.strip("| "))


def _run_encoded(reader: ShellReader, command: SimpleCommand, strings: list[list[str]]) -> None:
    from ralph.shell.programs.outputs import decoded

    for words in strings:
        for word in words:
            made = decoded(word) if len(word) > 3 else DECODED
            if DECODED not in made and made.isprintable():
                _judge_hidden(reader, command, made)


def _judge_hidden(reader: ShellReader, command: SimpleCommand, text: str) -> None:
    """A command, or code again."""
    _read(reader, text)
    if any(char in text for char in "('\""):
        _judge(reader, command, text)


def _read(reader: ShellReader, text: str) -> None:
    try:
        reader.read_apart(text)
    except Unreadable:
        pass  # a string that is no command


def _try(reader: ShellReader, command: SimpleCommand, program: str, words: list[Word]) -> None:
    made = command.derived(program, words, command.program)
    made.stdin, made.redirects = "", []
    try:
        reader.run(made)
    except Unreadable:
        pass


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


def _kill(reader: ShellReader, command: SimpleCommand, arguments: str) -> None:
    first = arguments.split(",")[0].strip()
    if first in ("-1", "1", "0"):
        _try(reader, command, "kill", [Word("-9"), Word("--"), Word(first)])
    elif "ppid" in first.lower():
        _try(reader, command, "kill", [Word("-9"), Word(UNKNOWN + "PPID")])
