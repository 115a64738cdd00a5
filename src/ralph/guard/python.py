"""Python that a command line carries, read as a tree: what its calls delete, write, read, run and fetch.

Each such call becomes the shell command that would do the same. A string that reaches none of them is only
mentioned. Code that hides what it calls is not read here: `code` looks at its strings.
"""

from __future__ import annotations

import re

from ralph.guard.expansion import is_secret_name
from ralph.guard.words import NET, SECRET, UNKNOWN, Word, globbing, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Did = tuple[str, list[Word], str]
    """A program, its words, and where it runs, "" for where the code does."""

TEXT = "\0text"
"""The program of a text that is handed to a shell."""
WRITE = "\0write"
"""The program of a known text that goes into a file: the file, the text."""

_HIDES = re.compile(
    r"\b(?:getattr|setattr|exec|eval|__import__|__builtins__|__subclasses__|importlib|runpy|ctypes|chr|ord"
    r"|marshal|pickle|codecs|base64|b64decode|binascii|fromhex|unhexlify|decompress|zlib)\b|\[::-1\]|\b(?:globals|locals|vars)\(\)[.\[]"
    r"|(?<!re\.)\bcompile\(|\bfork\b|\bsetsid\b|daemon\("
)
_RUNS = re.compile(
    r"subprocess|os\.(?:system|popen|exec|spawn|posix_spawn)|\bpty\b|\bsh\b|pexpect|import.*\b(?:system|popen)\b|plumbum|fabric|invoke|paramiko"
)
_DELETES = frozenset(
    words_of("rmtree remove_tree removedirs rmdir unlink rm rm_rf rm_r delete_tree rimraf send2trash")
)
_FILLS = frozenset(words_of("write_text write_bytes touch truncate symlink_to hardlink_to mkdir"))
_COPIES = frozenset(words_of("copy copy2 copyfile copytree move rename replace symlink link renames"))
_MOVES = frozenset(words_of("move rename replace renames"))
_QUERIES = frozenset(words_of("execute executescript executemany exec_driver_sql query raw text command"))
_SAME = frozenset(
    words_of(
        "str abspath realpath expanduser expandvars normpath fspath resolve absolute as_posix strip rstrip lstrip encode"
        " decode quote dict list sorted set tuple reversed iter open bytes read text json content dedent normcase"
    )
)
_TEMPORARY = frozenset(words_of("mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile TemporaryFile mktemp"))
_FETCHES = frozenset(words_of("urlopen urlretrieve recv recvfrom makefile get post request"))
_CLIENTS = ("urllib", "requests", "httpx", "aiohttp", "socket", "http")
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
_KNOWN = {"os.sep": "/", "os.curdir": ".", "os.pardir": "..", "sys.executable": "python3"}
_LOCAL = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
_ONLY_TREE = 0x400
MOST_NODES = 6000
MOST_VALUES = 16
MOST_TEXT = 60_000


def commands(text: str, home: str) -> list[Did] | None:
    """What it would do, None if its text does not say."""
    if _HIDES.search(text):
        return None
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree: Any = compile(text, "code", "exec", _ONLY_TREE)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
    nodes = list(_walk(tree))
    return None if len(nodes) > MOST_NODES else list(_Program(nodes, text, home).did())


def _walk(tree: Any) -> Iterator[Any]:
    """The nodes in the order of the text."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        for name in reversed(node._fields):
            value = getattr(node, name, None)
            found = value if isinstance(value, list) else [value]
            stack += [each for each in reversed(found) if hasattr(each, "_fields")]


def _kind(node: Any) -> str:
    return type(node).__name__


def _joined(first: str, second: str) -> str:
    return second if second.startswith("/") or first in ("", ".") else f"{first.rstrip('/')}/{second}"


class _Program:
    def __init__(self, nodes: list[Any], text: str, home: str) -> None:
        self.nodes = nodes
        self.home = home
        self.runs = bool(_RUNS.search(text))
        self.clouds = bool(_CLOUDS.search(text))
        self.modules: dict[str, str] = {}
        """Names that stand for something of a module, with its whole name."""
        self.names: dict[str, list[str]] = {}
        """Variables, with all that they may hold."""
        self.functions = {
            node.name: node for node in nodes if _kind(node) in ("FunctionDef", "AsyncFunctionDef")
        }
        for _ in range(2):  # what is bound below may be used above
            for node in nodes:
                self._bind(node)

    # ---- names ----

    def _bind(self, node: Any) -> None:
        kind = _kind(node)
        if kind in ("Import", "ImportFrom"):
            base = f"{node.module}." if kind == "ImportFrom" else ""
            for each in node.names:
                name = each.asname or (each.name if base else each.name.partition(".")[0])
                self.modules[name] = base + (each.name if base or each.asname else name)
        elif kind == "Assign":
            for target in node.targets:
                self._set(target, node.value)
        elif kind in ("AnnAssign", "NamedExpr") and node.value is not None:
            self._set(node.target, node.value)
        elif kind == "AugAssign" and _kind(node.target) == "Name":
            is_more = _kind(node.value) in ("List", "Tuple")
            old = [""] if is_more else self.names.get(node.target.id, [""])
            more = [a + b for a in old for b in self.values(node.value)]
            self._hold(node.target.id, [each for each in more if len(each) < MOST_TEXT])
        elif kind in ("For", "AsyncFor", "comprehension"):
            self._hold_items(node.target, node.iter)
        elif kind == "withitem" and node.optional_vars is not None:
            self._set(node.optional_vars, node.context_expr)
        elif kind == "Call" and _kind(node.func) == "Name" and node.func.id in self.functions:
            named = [each.arg for each in self.functions[node.func.id].args.args]
            for name, value in [
                *zip(named, node.args, strict=False),
                *((k.arg, k.value) for k in node.keywords),
            ]:
                if name:
                    self._hold(name, self.values(value))

    def _set(self, target: Any, value: Any) -> None:
        if _kind(target) == "Name":
            if _kind(value) == "Lambda":
                self.functions[target.id] = value
            elif _kind(value) in ("Name", "Attribute") and self._module(value):
                self.modules[target.id] = self._dotted(value)
            self._hold(target.id, self.values(value))
        elif _kind(target) == "Attribute":
            self._hold(target.attr, self.values(value))
        elif _kind(target) in ("Tuple", "List"):
            values = value.elts if _kind(value) in ("Tuple", "List") else [value] * len(target.elts)
            for each, one in zip(target.elts, values, strict=False):
                self._set(each, one)

    def _hold_items(self, target: Any, source: Any) -> None:
        if _kind(target) == "Name":
            self._hold(target.id, self.items(source))
        elif _kind(target) == "Tuple":
            first, *others = target.elts
            self._hold_items(first, source)
            for each in others:
                self._hold_items(each, source) if self._last(source) not in ("walk", "enumerate") else None
            if self._last(source) == "enumerate" and others:
                self._hold_items(others[0], source)

    def _hold(self, name: str, values: list[str]) -> None:
        held = self.names.setdefault(name, [])
        held += [each for each in values if each not in held][: MOST_VALUES - len(held)]

    def _dotted(self, node: Any) -> str:
        if _kind(node) == "Name":
            return self.modules.get(node.id, str(node.id))
        return f"{self._dotted(node.value)}.{node.attr}" if _kind(node) == "Attribute" else ""

    def _module(self, node: Any) -> bool:
        """Is it something of a module, by its name?"""
        while _kind(node) == "Attribute":
            node = node.value
        return _kind(node) == "Name" and node.id in self.modules

    def _last(self, node: Any) -> str:
        return self._dotted(node.func).rpartition(".")[2] if _kind(node) == "Call" else ""

    # ---- values ----

    def values(self, node: Any) -> list[str]:
        """What an expression may be, as text; of a list, its items."""
        kind = _kind(node)
        found = [UNKNOWN]
        if kind == "Constant":
            value = node.value
            found = [value.decode("latin-1") if isinstance(value, bytes) else str(value)]
        elif kind == "UnaryOp":
            found = ["-" + each for each in self.values(node.operand)]
        elif kind == "Name":
            found = self.names.get(node.id) or [UNKNOWN]
        elif kind in ("JoinedStr", "FormattedValue"):
            parts = node.values if kind == "JoinedStr" else [node.value]
            found = self._product(parts, "".join)
        elif kind == "BinOp":
            found = self._operation(node)
        elif kind == "IfExp":
            found = self.values(node.body) + self.values(node.orelse)
        elif kind == "BoolOp":
            found = [each for part in node.values for each in self.values(part)]
        elif kind in ("List", "Tuple", "Set", "Dict", "ListComp", "GeneratorExp", "SetComp", "Starred"):
            found = self.items(node)
        elif kind == "Subscript":
            found = self._subscript(node)
        elif kind == "Attribute":
            found = self._attribute(node)
        elif kind == "Await":
            found = self.values(node.value)
        elif kind == "Call":
            found = self._call(node)
        return found[:MOST_VALUES] or [UNKNOWN]

    def _product(self, nodes: list[Any], join: Callable[[list[str]], str]) -> list[str]:
        """The parts joined, for all that they may be; too much of it is not known."""
        rows: list[list[str]] = [[]]
        for node in nodes:
            rows = [[*row, each] for row in rows for each in self.values(node)][:MOST_VALUES]
        return [join(row) if sum(map(len, row)) < MOST_TEXT else UNKNOWN for row in rows]

    def _operation(self, node: Any) -> list[str]:
        kind = _kind(node.op)
        if kind == "Add":
            return self._product([node.left, node.right], "".join)
        if kind == "Div":
            return self._product([node.left, node.right], lambda row: _joined(*row))
        if kind == "Mod":
            given = node.right.elts if _kind(node.right) == "Tuple" else [node.right]
            return self._product([node.left, *given], lambda row: _filled(r"%[-\d.]*[a-z]", row))
        return [UNKNOWN]

    def _subscript(self, node: Any) -> list[str]:
        if self._dotted(node.value).endswith("os.environ"):
            return self._environment(node.slice)
        if _kind(node.value) == "Attribute" and node.value.attr == "parents":
            return [f"{each}/.." for each in self.values(node.value.value)]
        return self.items(node.value)

    def _environment(self, name: Any) -> list[str]:
        known = {"HOME": self.home}
        return [SECRET if is_secret_name(each) else known.get(each, UNKNOWN) for each in self.values(name)]

    def _attribute(self, node: Any) -> list[str]:
        name = self._dotted(node)
        if name in _KNOWN:
            return [_KNOWN[name]]
        if node.attr == "parent":
            return [f"{each}/.." for each in self.values(node.value)]
        if name == "os.environ":
            return [SECRET]
        if node.attr in ("text", "content", "stdout", "path"):
            return self.values(node.value)
        return self.names.get(node.attr) or [UNKNOWN]

    def _call(self, node: Any) -> list[str]:
        name = self._dotted(node.func)
        last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
        receiver = [] if _kind(node.func) != "Attribute" or self._module(node.func) else [node.func.value]
        given = [*receiver, *node.args]
        if last == "home" or (last == "expanduser" and not given):
            return [self.home]
        if last in ("getcwd", "cwd"):
            return ["."]
        if last == "getppid":
            return [f"{UNKNOWN}PPID"]
        if last in ("getenv", "get") and ("environ" in name or last == "getenv"):
            return self._environment(node.args[0]) if node.args else [UNKNOWN]
        if last in _TEMPORARY:
            return [f"/tmp/tmp.{UNKNOWN}"]
        if last == "gettempdir":
            return ["/tmp"]
        if last in ("bytes", "bytearray") and node.args and _kind(node.args[0]) == "List":
            return [
                "".join(
                    chr(int(each)) for each in self.items(node.args[0]) if each.isdigit() and len(each) < 4
                )
            ]
        if last in _FETCHES and self._talks(node, name):
            return [NET]
        if last == "join" and receiver:
            row = self._row(node.args)
            between = self.values(receiver[0])[0]
            is_short = sum(map(len, row)) + len(row) * len(between) < MOST_TEXT
            return [between.join(row) if is_short else UNKNOWN]
        if last in ("join", "joinpath", "Path", "PurePath", "PosixPath"):
            return self._product(given, _joined_all) if given else ["."]
        if last == "dirname":
            return [f"{each}/.." for part in given[:1] for each in self.values(part)]
        if last in ("with_name", "with_suffix", "with_stem"):
            return [f"{each}/../{UNKNOWN}" for each in self.values(given[0])]
        if last == "format" and receiver:
            return self._product(given, lambda row: _filled(r"\{[^{}]*\}", row))
        if last == "replace" and len(given) == 3:
            return self._product(given, _replaced)
        if last in _SAME and given:
            return [
                each.replace("~", self.home, 1) if last == "expanduser" else each
                for each in self.values(given[0])
            ]
        return self.items(node)

    def _row(self, nodes: list[Any]) -> list[str]:
        return [each for node in nodes for each in self.items(node)]

    def items(self, node: Any) -> list[str]:
        """What an expression gives one by one."""
        kind = _kind(node)
        if kind in ("List", "Tuple", "Set"):
            return [each for part in node.elts for each in self.values(part)]
        if kind == "Dict":
            return [each for part in node.values for each in self.values(part)]
        if kind in ("ListComp", "GeneratorExp", "SetComp"):
            return self.values(node.elt)
        if kind == "Starred":
            return self.items(node.value)
        if kind == "Name":
            return self.names.get(node.id) or [UNKNOWN]
        if kind != "Call":
            return [UNKNOWN]
        last = self._last(node) or getattr(node.func, "attr", "")
        is_method = _kind(node.func) == "Attribute" and not self._module(node.func)
        given = [*([node.func.value] if is_method else []), *node.args]
        if last in ("iterdir", "scandir", "listdir"):
            return [f"{each}/{UNKNOWN}" for part in given[:1] for each in self.values(part)] or [UNKNOWN]
        if last in ("glob", "iglob", "rglob"):
            return self._product(given, _joined_all)
        if last == "walk" and given:
            return [f"{each}{end}" for each in self.values(given[0]) for end in ("", f"/{UNKNOWN}")]
        if last == "split" and given:
            return [each for text in self.values(given[0]) for each in text.split()]
        if last in (
            "list",
            "sorted",
            "set",
            "tuple",
            "reversed",
            "iter",
            "enumerate",
            "values",
            "items",
            "filter",
        ):
            return self._row(given[-1:])
        return [UNKNOWN]

    def _talks(self, node: Any, name: str) -> bool:
        """Does it bring text from another machine?"""
        last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
        if last in ("get", "post", "request", "makefile") and not name.startswith(_CLIENTS):
            return False
        asked = [each for part in node.args for each in self.values(part)]
        return not any(host in each for each in asked for host in _LOCAL)

    # ---- calls ----

    def did(self) -> Iterator[Did]:
        where = ""
        temporary = self._is_temporary_database()
        judged: set[int] = set()
        for node in self.nodes:
            kind = _kind(node)
            if kind == "Call":
                name = self._dotted(node.func)
                last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
                if last == "chdir" and node.args:
                    where = self.values(node.args[0])[0]
                is_mention = last in _MENTIONS and not name.startswith("subprocess.")
                judged |= {id(each) for part in node.args for each in (_walk(part) if is_mention else [part])}
                if not (last in _QUERIES and temporary):
                    yield from (
                        (program, words, place or where)
                        for program, words, place in self._does(node, name, last)
                    )
            elif kind in ("List", "Tuple") and self.runs and id(node) not in judged and len(node.elts) > 1:
                yield _argv(self._words(node), where)

    def _words(self, node: Any) -> list[str]:
        """A list as the words of a command."""
        return [
            each
            for part in node.elts
            for each in (self.items(part) if _kind(part) == "Starred" else self.values(part)[:1])
        ]

    def _with_rest(self, node: Any) -> Iterator[Did]:
        """`def git(*args): run(["git", *args])`: what a call of it runs."""
        function = self.functions.get(getattr(node.func, "id", ""))
        if function is None or function.args.vararg is None or not self.runs:
            return
        name = function.args.vararg.arg
        before = self.names.get(name)
        self.names[name] = [each for part in node.args for each in self.values(part)[:1]]
        body = function.body if isinstance(function.body, list) else [function.body]
        for part in body:
            for each in _walk(part):
                if _kind(each) in ("List", "Tuple") and len(each.elts) > 1:
                    yield _argv(self._words(each), "")
        self.names[name] = before or []

    def _is_temporary_database(self) -> bool:
        """SQLite in memory or in a file for the moment."""
        found = [
            each
            for node in self.nodes
            if self._last(node) in ("connect", "create_engine", "Connection") and node.args
            for each in self.values(node.args[0])
        ]
        return bool(found) and all(
            ":memory:" in each or each.startswith(("/tmp/", "sqlite:////tmp/")) for each in found
        )

    def _does(self, node: Any, name: str, last: str) -> Iterator[Did]:
        is_method = _kind(node.func) == "Attribute" and not self._module(node.func)
        target = [node.func.value] if is_method else node.args[:1]
        named = {each.arg: each.value for each in node.keywords}
        place = self.values(named["cwd"])[0] if "cwd" in named else ""
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
            bits = [each.value for each in mode if _kind(each) == "Constant" and isinstance(each.value, int)]
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
            yield from self._hands_over(node, name, last, named, place)

    def _each(self, program: str, nodes: list[Any], *before: str) -> Iterator[Did]:
        for node in nodes:
            for each in self.values(node):
                word = globbing(each) if "*" in each else Word(each)
                yield program, [*map(Word, before), word], ""

    def _hands_over(
        self, node: Any, name: str, last: str, named: dict[str, Any], place: str
    ) -> Iterator[Did]:
        """What it is given may be a command, or a file to read."""
        given = [*node.args, *(named[key] for key in ("args", "cmd", "command", "input") if key in named)]
        texts = [each for part in given if _kind(part) not in ("List", "Tuple") for each in self.values(part)]
        if self.runs:
            if name.startswith("sh."):
                yield last, [Word(each) for each in texts], place
            elif len(texts) > 1:
                yield _argv(texts, place)
            for each in texts:
                if NET in each:
                    yield "sh", [Word("-c"), Word(NET)], place
                elif each != UNKNOWN:
                    yield TEXT, [Word(each)], place
            for part in given:
                if _kind(part) in ("List", "Tuple") and part.elts:
                    yield _argv(self._words(part), place)
                elif len(self.values(part)) > 1:
                    yield _argv(self.values(part), place)
        for each in texts:
            if each[:1] in ("/", "~", ".") and " " not in each and len(each) < 300:
                yield "cat", [Word(each)], ""


def _argv(words: list[str], place: str) -> Did:
    return words[0] if words else "", [Word(each) for each in words[1:]], place


def _joined_all(row: list[str]) -> str:
    path = row[0]
    for each in row[1:]:
        path = _joined(path, each)
    return path


def _filled(pattern: str, row: list[str]) -> str:
    """A pattern with its values, in their order."""
    values = iter(row[1:])
    return re.sub(pattern, lambda found: next(values, UNKNOWN), row[0])


def _replaced(row: list[str]) -> str:
    text, old, new = row
    return text.replace(old, new) if text.count(old) * len(new) < MOST_TEXT else UNKNOWN
