"""Parses Python code in a command line and finds what its calls delete, write, read, run and fetch.

Each call becomes the shell command that would do the same. A string that reaches no call is only mentioned. Code that
hides its calls is not handled here: `strings` judges it by its strings.
"""

from __future__ import annotations

import re

from ralph.shell.code.python_values import Values, kind_of, walk
from ralph.shell.words import NET, SECRET, UNKNOWN, Word, globbing, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Did = tuple[str, list[Word], str]
    """A program, its arguments and its directory ("" for that of the code)."""

TEXT = "\0text"
"""Pseudo-program for a text that is passed to a shell."""
WRITE = "\0write"
"""Pseudo-program that writes a known text to a file. Its arguments are the file and the text."""

_HIDING_NAMES = frozenset(
    words_of("getattr setattr exec eval compile chr ord __import__ __builtins__ __loader__")
)
_HIDING_FIELDS = frozenset(
    words_of("__subclasses__ __builtins__ __dict__ __getattribute__ fromhex import_module decompress")
)
_HIDING_MODULES = frozenset(
    words_of("base64 binascii builtins codecs ctypes importlib marshal pickle runpy zlib gzip bz2 lzma")
)
"""Names that can create code or text that is not visible in the source."""
_RUNS = re.compile(
    r"subprocess|os\.(?:system|popen|exec|spawn|posix_spawn)|\bpty\b|\bsh\b|pexpect|import.*\b(?:system|popen)\b|plumbum|fabric|invoke|paramiko"
)
_RUNNING = ("subprocess", "os.", "pty.", "sh.", "asyncio.", "pexpect.", "plumbum.", "commands.")
_SOUNDS_RUNNING = re.compile(
    r"run|exec|system|shell|popen|spawn|call|cmd|command|sudo|output|^sh$|^$", re.IGNORECASE
)
"""Names of functions that might run their arguments. The program's own functions are followed instead."""
_DELETES = frozenset(
    words_of("rmtree remove_tree removedirs rmdir unlink rm rm_rf rm_r delete_tree rimraf send2trash")
)
_FILLS = frozenset(words_of("write_text write_bytes touch truncate symlink_to hardlink_to mkdir"))
_COPIES = frozenset(words_of("copy copy2 copyfile copytree move rename replace symlink link renames"))
_MOVES = frozenset(words_of("move rename replace renames"))
_QUERIES = frozenset(words_of("execute executescript executemany exec_driver_sql query raw text command"))
_CLOUDS = re.compile(r"\b(?:boto3|botocore|google\.cloud|azure|kubernetes|digitalocean|hcloud|openstack)\b")
_MENTIONS = frozenset(
    words_of(
        "print write writelines write_text write_bytes replace sub subn search match fullmatch findall finditer format join"
        " split rsplit splitlines startswith endswith removeprefix removesuffix dumps loads dump load append extend add"
        " insert index count find rfind get setdefault pop update info debug warning error exception critical log raises"
        " input len str repr sorted set list tuple dict isinstance compile escape strip lstrip rstrip encode partition"
        " rpartition Path PurePath open read_text assertEqual assertIn assertNotIn assertTrue assertRaises parametrize"
        " ArgumentParser add_argument exit SystemExit ValueError RuntimeError AssertionError Exception translate counter"
        " Counter dedent indent wrap fill zip enumerate map filter any all max min literal_eval parse"
    )
)
_ONLY_TREE = 0x400
MAX_NODES = 6000


def commands(text: str, home: str) -> list[Did] | None:
    """Return the commands equivalent to a program, or None if it cannot be analysed."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree: Any = compile(text, "code", "exec", _ONLY_TREE)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
    nodes = list(walk(tree))
    if len(nodes) > MAX_NODES or any(map(_hides, nodes)):
        return None
    return list({(each[0], *each[1], each[2]): each for each in _Program(nodes, text, home).did()}.values())


def _hides(node: Any) -> bool:
    kind = kind_of(node)
    if kind == "Name":
        return node.id in _HIDING_NAMES
    if kind in ("Import", "ImportFrom"):
        names = [getattr(node, "module", None) or "", *(each.name for each in node.names)]
        return any(name.partition(".")[0] in _HIDING_MODULES for name in names)
    if kind == "Attribute" and node.attr in _HIDING_FIELDS:
        return True
    if kind == "Slice":  # backwards
        return kind_of(node.step) == "UnaryOp"
    made: Any = getattr(node, "value", None) if kind in ("Attribute", "Subscript") else None
    return kind_of(made) == "Call" and getattr(made.func, "id", "") in ("globals", "locals", "vars")


class _Program(Values):
    def __init__(self, nodes: list[Any], text: str, home: str) -> None:
        super().__init__(nodes, home)
        self.runs = bool(_RUNS.search(text))
        self.clouds = bool(_CLOUDS.search(text))

    def did(self) -> Iterator[Did]:
        where = ""
        temporary = self._is_temporary_database()
        judged: set[int] = set()
        for node in self.nodes:
            kind = kind_of(node)
            if kind == "Call":
                name = self.dotted(node.func)
                last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
                if last == "chdir" and node.args:
                    where = self.values(node.args[0])[0]
                is_mention = last in _MENTIONS and not name.startswith("subprocess.")
                judged |= {id(each) for part in node.args for each in (walk(part) if is_mention else [part])}
                if not (last in _QUERIES and temporary):
                    yield from (
                        (program, words, directory or where)
                        for program, words, directory in self._does(node, name, last)
                    )
            elif kind in ("List", "Tuple") and self.runs and id(node) not in judged and len(node.elts) > 1:
                yield _argv(self._words(node), where)

    def _words(self, node: Any) -> list[str]:
        """Return the items of a list as the words of a command."""
        return [
            each
            for part in node.elts
            for each in (self.items(part) if kind_of(part) == "Starred" else self.values(part)[:1])
        ]

    def _with_rest(self, node: Any) -> Iterator[Did]:
        """Return what a call of a function with `*args` runs, as in `def git(*args): run(["git", *args])`."""
        function = self.functions.get(getattr(node.func, "id", ""))
        if function is None or function.args.vararg is None or not self.runs:
            return
        name = function.args.vararg.arg
        before = self.names.get(name)
        self.names[name] = [each for part in node.args for each in self.values(part)[:1]]
        body = function.body if isinstance(function.body, list) else [function.body]
        for part in body:
            for each in walk(part):
                if kind_of(each) in ("List", "Tuple") and len(each.elts) > 1:
                    yield _argv(self._words(each), "")
        self.names[name] = before or []

    def _is_temporary_database(self) -> bool:
        """Whether all databases are SQLite in memory or in a temporary file."""
        found = [
            each
            for node in self.nodes
            if self.last(node) in ("connect", "create_engine", "Connection") and node.args
            for each in self.values(node.args[0])
        ]
        return bool(found) and all(
            ":memory:" in each or each.startswith(("/tmp/", "sqlite:////tmp/")) for each in found
        )

    def _does(self, node: Any, name: str, last: str) -> Iterator[Did]:
        is_method = kind_of(node.func) == "Attribute" and not self.is_module(node.func)
        target = [node.func.value] if is_method else node.args[:1]
        named = {each.arg: each.value for each in node.keywords}
        if not target:
            target = [named[key] for key in ("path", "src", "name", "file") if key in named][:1]
        directory = self.values(named["cwd"])[0] if "cwd" in named else ""
        if last in _DELETES or name == "os.remove":
            yield from self._each("rm", target, "-rf")
        elif last in _FILLS:
            yield from self._each("tee", target)
            if last == "write_text" and node.args:
                yield WRITE, [Word(self.values(target[0])[0]), Word(self.values(node.args[0])[0])], ""
        elif last == "write" and is_method and node.args:
            yield WRITE, [Word(self.values(target[0])[0]), Word(self.values(node.args[0])[0])], ""
        elif last in ("read_text", "read_bytes"):
            yield from self._each("cat", target)
        elif last == "print":
            yield from self._each(
                "echo", [each for each in node.args if SECRET in "".join(self.values(each))]
            )
        elif last == "open":
            mode = [
                *(node.args[0:1] if is_method else node.args[1:2]),
                *(named[k] for k in ("mode",) if k in named),
            ]
            writes = any(letter in each for part in mode for each in self.values(part) for letter in "wax+")
            yield from self._each("tee" if writes else "cat", target)
        elif last in _COPIES and (
            not is_method or (last in ("rename", "replace", "copy") and len(node.args) == 1)
        ):
            paths = [*([node.func.value] if is_method else []), *node.args]
            yield from self._each(
                "rm" if last in _MOVES else "cat", paths[:1], *(["-rf"] if last in _MOVES else [])
            )
            yield from self._each("tee", paths[1:2])
        elif last in ("chmod", "lchmod", "chown"):
            mode = node.args[0 if is_method else 1 :][:1]
            bits = [
                each.value for each in mode if kind_of(each) == "Constant" and isinstance(each.value, int)
            ]
            yield from self._each(
                "chmod" if last != "chown" else "chown", target, f"{bits[0]:o}" if bits else "x"
            )
        elif last in ("kill", "killpg") and name.startswith("os."):
            yield from self._each("kill", target, "-9", "--")
        elif last in _QUERIES and not name.startswith("sqlalchemy."):
            yield from self._each("psql", node.args[:1], "-c")
        elif self.clouds and re.match(r"(?:delete|terminate|destroy|purge|drop|stop)_", last):
            yield "aws", [Word("x"), Word(last.replace("_", "-"))], ""
        elif last in ("dup2", "spawn") and any(each.startswith("socket") for each in self.modules.values()):
            yield "nc", [Word("-e"), Word("/bin/sh"), Word("x")], ""
        yield from self._with_rest(node)
        if last not in _MENTIONS or name.startswith("subprocess."):
            yield from self._hands_over(node, name, last, named, directory)

    def _each(self, program: str, nodes: list[Any], *before: str) -> Iterator[Did]:
        for node in nodes:
            for each in self.values(node):
                word = globbing(each) if "*" in each else Word(each)
                yield program, [*map(Word, before), word], ""

    def _hands_over(
        self, node: Any, name: str, last: str, named: dict[str, Any], directory: str
    ) -> Iterator[Did]:
        """Yield commands for arguments that might be a command or a file to read."""
        given = [*node.args, *(named[key] for key in ("args", "cmd", "command", "input") if key in named)]
        texts = [
            each for part in given if kind_of(part) not in ("List", "Tuple") for each in self.values(part)
        ]
        is_method = kind_of(node.func) == "Attribute" and not self.is_module(node.func)
        if self.runs and (is_method or name.startswith(_RUNNING) or _SOUNDS_RUNNING.search(last)):
            if name.startswith("sh."):
                yield last, [Word(each) for each in texts], directory
            elif len(texts) > 1:
                yield _argv(texts, directory)
            for each in texts:
                if NET in each:
                    yield "sh", [Word("-c"), Word(NET)], directory
                elif each != UNKNOWN:
                    yield TEXT, [Word(each)], directory
            for part in given:
                if kind_of(part) in ("List", "Tuple") and part.elts:
                    yield _argv(self._words(part), directory)
                elif len(self.values(part)) > 1:
                    yield _argv(self.values(part), directory)
        for each in texts:
            if each[:1] in ("/", "~", ".") and " " not in each and len(each) < 300:
                yield "cat", [Word(each)], ""


def _argv(words: list[str], directory: str) -> Did:
    return words[0] if words else "", [Word(each) for each in words[1:]], directory
