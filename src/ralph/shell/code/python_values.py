"""Possible values of names and expressions in a Python program, as text, without running it."""

from __future__ import annotations

import re

from ralph.shell.variables import is_secret_name
from ralph.shell.words import NET, SECRET, UNKNOWN, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_SAME = frozenset(
    words_of(
        "str abspath realpath expanduser expandvars normpath fspath resolve absolute as_posix strip rstrip lstrip encode"
        " decode quote dict list sorted set tuple reversed iter open bytes read text json content dedent normcase"
    )
)
_GIVES_ITEMS = words_of("list sorted set tuple reversed iter enumerate values items filter")
_TEMPORARY = frozenset(words_of("mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile TemporaryFile mktemp"))
_FETCHES = frozenset(words_of("urlopen urlretrieve recv recvfrom makefile get post request"))
_CLIENTS = ("urllib", "requests", "httpx", "aiohttp", "socket", "http")
_KNOWN = {"os.sep": "/", "os.curdir": ".", "os.pardir": "..", "sys.executable": "python3"}
_LOCAL = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
MAX_VALUES = 16
MAX_TEXT = 60_000


def walk(tree: Any) -> Iterator[Any]:
    """Yield the nodes in source order."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        for name in reversed(node._fields):
            value = getattr(node, name, None)
            found = value if isinstance(value, list) else [value]
            stack += [each for each in reversed(found) if hasattr(each, "_fields")]


def kind_of(node: Any) -> str:
    return type(node).__name__


def _joined(first: str, second: str) -> str:
    return second if second.startswith("/") or first in ("", ".") else f"{first.rstrip('/')}/{second}"


class Values:
    """The values in one program. A name that is bound several times can have any of the values."""

    def __init__(self, nodes: list[Any], home: str) -> None:
        self.nodes = nodes
        self.home = home
        self.modules: dict[str, str] = {}
        """Names that refer to a module or its members, with the full name."""
        self.names: dict[str, list[str]] = {}
        """Variables with all their possible values."""
        self.functions = {
            node.name: node for node in nodes if kind_of(node) in ("FunctionDef", "AsyncFunctionDef")
        }
        for _ in range(2):  # a name bound further down can be used above
            for node in nodes:
                self._bind(node)

    # ---- names ----

    def _bind(self, node: Any) -> None:
        kind = kind_of(node)
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
        elif kind == "AugAssign" and kind_of(node.target) == "Name":
            is_more = kind_of(node.value) in ("List", "Tuple")
            old = [""] if is_more else self.names.get(node.target.id, [""])
            more = [a + b for a in old for b in self.values(node.value)]
            self._hold(node.target.id, [each for each in more if len(each) < MAX_TEXT])
        elif kind in ("For", "AsyncFor", "comprehension"):
            self._hold_items(node.target, node.iter)
        elif kind == "withitem" and node.optional_vars is not None:
            self._set(node.optional_vars, node.context_expr)
        elif kind == "Call":
            self._bind_call(node)
        elif kind in ("FunctionDef", "AsyncFunctionDef"):
            self._bind_function(node)

    def _bind_call(self, node: Any) -> None:
        """Bind the arguments passed to the program's own functions, and items added to lists."""
        name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        if name in ("append", "extend", "insert") and kind_of(getattr(node.func, "value", None)) == "Name":
            self._hold(node.func.value.id, [each for part in node.args[-1:] for each in self.values(part)])
        if name not in self.functions:
            return
        named = [each.arg for each in self.functions[name].args.args]
        named = named[1:] if named[:1] in (["self"], ["cls"]) else named
        given = [*zip(named, node.args, strict=False), *((each.arg, each.value) for each in node.keywords)]
        for key, value in given:
            if key:
                self._hold(key, self.values(value))

    def _bind_function(self, node: Any) -> None:
        """Bind the default values of parameters, and the return value of `f` under the name `f()`."""
        named = [each.arg for each in node.args.args]
        for key, value in zip(reversed(named), reversed(node.args.defaults), strict=False):
            self._hold(key, self.values(value))
        for each in walk(node):
            if kind_of(each) in ("Return", "Yield") and each.value is not None:
                self._hold(f"{node.name}()", self.values(each.value))

    def _set(self, target: Any, value: Any) -> None:
        if kind_of(target) == "Name":
            if kind_of(value) == "Lambda":
                self.functions[target.id] = value
            elif kind_of(value) in ("Name", "Attribute") and self.is_module(value):
                self.modules[target.id] = self.dotted(value)
            self._hold(target.id, self.values(value))
        elif kind_of(target) == "Attribute":
            self._hold(target.attr, self.values(value))
        elif kind_of(target) in ("Tuple", "List"):
            values = value.elts if kind_of(value) in ("Tuple", "List") else [value] * len(target.elts)
            for each, one in zip(target.elts, values, strict=False):
                self._set(each, one)

    def _hold_items(self, target: Any, source: Any) -> None:
        if kind_of(target) == "Name":
            self._hold(target.id, self.items(source))
        elif kind_of(target) == "Tuple":
            first, *others = target.elts
            self._hold_items(first, source)
            for each in others:
                self._hold_items(each, source) if self.last(source) not in ("walk", "enumerate") else None
            if self.last(source) == "enumerate" and others:
                self._hold_items(others[0], source)

    def _hold(self, name: str, values: list[str]) -> None:
        held = self.names.setdefault(name, [])
        held += [each for each in values if each not in held][: MAX_VALUES - len(held)]

    def dotted(self, node: Any) -> str:
        if kind_of(node) == "Name":
            return self.modules.get(node.id, str(node.id))
        return f"{self.dotted(node.value)}.{node.attr}" if kind_of(node) == "Attribute" else ""

    def is_module(self, node: Any) -> bool:
        """Whether an expression refers to a module or one of its members."""
        while kind_of(node) == "Attribute":
            node = node.value
        return kind_of(node) == "Name" and node.id in self.modules

    def last(self, node: Any) -> str:
        return self.dotted(node.func).rpartition(".")[2] if kind_of(node) == "Call" else ""

    # ---- values ----

    def values(self, node: Any) -> list[str]:
        """Return the possible values of an expression as text. For a list, these are its items."""
        kind = kind_of(node)
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
        return found[:MAX_VALUES] or [UNKNOWN]

    def _product(self, nodes: list[Any], join: Callable[[list[str]], str]) -> list[str]:
        """Join the parts in all combinations of their possible values. Overlong results are unknown."""
        rows: list[list[str]] = [[]]
        for node in nodes:
            rows = [[*row, each] for row in rows for each in self.values(node)][:MAX_VALUES]
        return [join(row) if sum(map(len, row)) < MAX_TEXT else UNKNOWN for row in rows]

    def _operation(self, node: Any) -> list[str]:
        kind = kind_of(node.op)
        if kind == "Add":
            return self._product([node.left, node.right], "".join)
        if kind == "Div":
            return self._product([node.left, node.right], lambda row: _joined(*row))
        if kind == "Mod":
            given = node.right.elts if kind_of(node.right) == "Tuple" else [node.right]
            return self._product([node.left, *given], lambda row: _filled(r"%[-\d.]*[a-z]", row))
        return [UNKNOWN]

    def _subscript(self, node: Any) -> list[str]:
        if self.dotted(node.value).endswith("os.environ"):
            return self._environment(node.slice)
        if kind_of(node.value) == "Attribute" and node.value.attr == "parents":
            return [f"{each}/.." for each in self.values(node.value.value)]
        return self.items(node.value)

    def _environment(self, name: Any) -> list[str]:
        known = {"HOME": self.home}
        return [SECRET if is_secret_name(each) else known.get(each, UNKNOWN) for each in self.values(name)]

    def _attribute(self, node: Any) -> list[str]:
        name = self.dotted(node)
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
        name = self.dotted(node.func)
        last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
        receiver = [] if kind_of(node.func) != "Attribute" or self.is_module(node.func) else [node.func.value]
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
        if last in ("bytes", "bytearray") and node.args and kind_of(node.args[0]) == "List":
            return [
                "".join(
                    chr(int(each)) for each in self.items(node.args[0]) if each.isdecimal() and len(each) < 4
                )
            ]
        if last in _FETCHES and self._talks(node, name):
            return [NET]
        if last == "join" and receiver:
            row = self._row(node.args)
            between = self.values(receiver[0])[0]
            is_short = sum(map(len, row)) + len(row) * len(between) < MAX_TEXT
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
        """Return the possible items of an iterable expression."""
        kind = kind_of(node)
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
        last = self.last(node) or getattr(node.func, "attr", "")
        if last in self.functions:
            return self.names.get(f"{last}()") or [UNKNOWN]
        is_method = kind_of(node.func) == "Attribute" and not self.is_module(node.func)
        given = [*([node.func.value] if is_method else []), *node.args]
        if last in ("iterdir", "scandir", "listdir"):
            return [f"{each}/{UNKNOWN}" for part in given[:1] for each in self.values(part)] or [UNKNOWN]
        if last in ("glob", "iglob", "rglob"):
            return self._product(given, _joined_all)
        if last == "walk" and given:
            return [f"{each}{end}" for each in self.values(given[0]) for end in ("", f"/{UNKNOWN}")]
        if last == "split" and given:
            return [each for text in self.values(given[0]) for each in text.split()]
        if last in _GIVES_ITEMS:
            return self._row(given[-1:])
        return [UNKNOWN]

    def _talks(self, node: Any, name: str) -> bool:
        """Whether a call fetches text from another machine."""
        last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
        if last in ("get", "post", "request", "makefile") and not name.startswith(_CLIENTS):
            return False
        asked = [each for part in node.args for each in self.values(part)]
        return not any(host in each for each in asked for host in _LOCAL)


def _joined_all(row: list[str]) -> str:
    path = row[0]
    for each in row[1:]:
        path = _joined(path, each)
    return path


def _filled(pattern: str, row: list[str]) -> str:
    """Fill the placeholders of a format string with its values, in order."""
    values = iter(row[1:])
    return re.sub(pattern, lambda found: next(values, UNKNOWN), row[0])


def _replaced(row: list[str]) -> str:
    text, old, new = row
    return text.replace(old, new) if text.count(old) * len(new) < MAX_TEXT else UNKNOWN
