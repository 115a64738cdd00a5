"""Bash text as a syntax tree.

The bindings' packages import `typing` and `importlib.resources`, which costs more than all of the guard:
only their compiled halves are loaded.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

from ralph.shell.words import HERE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 131_071
"""What Linux passes as one argument: `bash -c` could not be given more."""


class Unreadable(Exception):
    """The text is no shell command that could be judged."""


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


_PARSER: list[Parser] = []


def parse(text: str) -> Node:
    """The tree of a command; what bash itself could not read is refused."""
    data = _safe(text).encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise Unreadable("the command is too long to be judged")
    if b"\0" in data:
        raise Unreadable("the command has characters that no command needs")
    root = _parser().parse(data).root_node
    if not root.has_error:
        return root
    for repaired in (_simpler(text), _simpler(_without_here_documents(text))):
        root = _parser().parse(_safe(repaired).encode("utf-8", "surrogatepass")).root_node
        if not root.has_error:
            return root
    raise Unreadable("the command cannot be parsed as bash")


def _safe(text: str) -> str:
    """Its scanner reads beyond a table where `{` is followed by such a character (tree-sitter-bash, issue 337)."""
    if text.isascii():
        return text
    import re

    return re.sub(r"(\{[0-9]*(?:\.\.[0-9]*)?)(?=[^\x00-\xff])", "\\1\\\\\n", text)  # the line goes on


def _parser() -> Parser:
    if not _PARSER:
        binding = _compiled("tree_sitter")
        _PARSER.append(binding.Parser(binding.Language(_compiled("tree_sitter_bash").language())))
    return _PARSER[0]


def _compiled(package: str):  # type: ignore[no-untyped-def]
    """A package's compiled half, without what its `__init__` imports."""
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


# ---- what is valid for bash, but not for the grammar ----


def _simpler(text: str) -> str:
    """The same with here-strings, `<>`, `a#b` and a leading brace list in a form that the grammar knows."""
    import re

    text = re.sub(r"(\[\[? (?:! )?-\w )([^\s\"']+)( \]\]?)", r'\1"\2"\3', text)  # [ -d / ]
    text = re.sub(r"<<<\s*", f"< {HERE}", text)
    text = re.sub(r"<>\s*", "> ", text)
    text = re.sub(r"(^|[;&|(\n]\s*)(\w+)(?=#)", r"\1\2\\", text)  # a#b
    return re.sub(r"(^|[;&|(\n]\s*)(?=\{[^\s{}]*,[^\s{}]*\})", r'\1""', text)


def _without_here_documents(text: str) -> str:
    """Here-documents as here-strings, for the grammar knows one in a line at most."""
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
