"""Parses bash into a syntax tree.

The packages of the bindings import `typing` and `importlib.resources`, which takes longer than the whole guard, so only
their compiled modules are loaded.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

from ralph.shell.words import HERE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 131_071
"""The longest single argument on Linux: `bash -c` cannot take more."""


class Unreadable(Exception):
    """The text is not a shell command that can be judged."""


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


_PARSER: list[Parser] = []


def parse(text: str) -> Node:
    """Return the syntax tree of a command, or raise Unreadable if bash could not read it either."""
    data = _safe(text).encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise Unreadable("the command is too long")
    if b"\0" in data:
        raise Unreadable("the command contains control characters")
    root = _parser().parse(data).root_node
    if not root.has_error:
        return root
    for repaired in (_simpler(text), _simpler(_without_here_documents(text))):
        root = _parser().parse(_safe(repaired).encode("utf-8", "surrogatepass")).root_node
        if not root.has_error:
            return root
    raise Unreadable("it is not valid bash")


def _safe(text: str) -> str:
    """Work around an out-of-bounds read if a non-Latin-1 character follows `{` (tree-sitter-bash issue 337)."""
    if text.isascii():
        return text
    import re

    return re.sub(r"(\{[0-9]*(?:\.\.[0-9]*)?)(?=[^\x00-\xff])", "\\1\\\\\n", text)  # a line continuation


def _parser() -> Parser:
    if not _PARSER:
        binding = _compiled("tree_sitter")
        _PARSER.append(binding.Parser(binding.Language(_compiled("tree_sitter_bash").language())))
    return _PARSER[0]


def _compiled(package: str):  # type: ignore[no-untyped-def]
    """Load the compiled module of a package without running its `__init__`."""
    name = f"{package}._binding"
    if name not in sys.modules:
        if package not in sys.modules:
            found = PathFinder.find_spec(package)
            if found is None:
                raise ImportError(f"{package} is not installed")
            bare = type(sys)(package)
            bare.__path__ = list(found.submodule_search_locations or ())
            bare.__spec__ = found
            sys.modules[package] = bare
            try:
                __import__(name)
            finally:
                del sys.modules[package]
        else:
            __import__(name)
    return sys.modules[name]


# ---- valid for bash, but not for the grammar ----


def _simpler(text: str) -> str:
    """Rewrite here-strings, `<>`, `a#b` and a leading brace list into a form that the grammar accepts."""
    import re

    text = re.sub(r"(\[\[? (?:! )?-\w )([^\s\"']+)( \]\]?)", r'\1"\2"\3', text)  # [ -d / ]
    text = re.sub(r"<<<\s*", f"< {HERE}", text)
    text = re.sub(r"<>\s*", "> ", text)
    text = re.sub(r"(^|[;&|(\n]\s*)(\w+)(?=#)", r"\1\2\\", text)  # a#b
    return re.sub(r"(^|[;&|(\n]\s*)(?=\{[^\s{}]*,[^\s{}]*\})", r'\1""', text)


def _without_here_documents(text: str) -> str:
    """Rewrite here-documents as here-strings, because the grammar accepts at most one per line."""
    import re

    start = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|(\\?)([A-Za-z_][\w.-]*))")
    lines = iter(text.split("\n"))

    def quoted(match: re.Match[str]) -> str:
        end = match[2] or match[3] or match[5]
        body = ""
        for line in lines:
            if (line.lstrip("\t") if match[1] else line) == end:
                break
            body += line + "\n"
        is_plain = match[5] is not None and not match[4]
        if is_plain:
            return '<<< "' + body.replace('"', '\\"') + '"'
        return "<<< '" + body.replace("'", "'\\''") + "'"

    return "\n".join(start.sub(quoted, line) for line in lines)
