"""Expands words, redirects and here-documents of a syntax tree as a shell would."""

from __future__ import annotations

from ralph.shell.command import Streams
from ralph.shell.parameters import changed, name_of
from ralph.shell.parser import parse, text_of
from ralph.shell.words import (
    EXPANDED,
    HERE,
    LITERAL,
    QUOTED,
    SECRET,
    UNKNOWN,
    UNSET,
    Piece,
    Word,
    ansi_c,
    fields,
    in_double_quotes,
    literal,
    words_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from ralph.shell.state import ShellState

REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
STATEMENTS = frozenset(
    words_of(
        "command redirected_statement pipeline subshell variable_assignment variable_assignments declaration_command"
        " unset_command function_definition for_statement test_command while_statement case_statement comment list"
        " compound_statement do_group"
    )
)
_PLAIN = words_of("word number extglob_pattern regex variable_name test_operator")
_EXPANSIONS = words_of(
    "simple_expansion expansion command_substitution arithmetic_expansion process_substitution"
)


class RedirectionResult:
    """The effect of redirects. `words` are words of the command that follow a redirect target."""

    __slots__ = ("redirects", "rest", "stdin", "words")

    def __init__(self) -> None:
        self.redirects: list[tuple[str, Word]] = []
        self.stdin = ""
        self.words: list[Word] = []
        self.rest: list[Node] = []
        """The rest of a here-document's line."""


class WordExpander:
    """Expands words using the state of the shell. The reader, a subclass, decides how to run substitutions."""

    def __init__(self, state: ShellState) -> None:
        self.state = state
        self.stdin = ""
        """The stdin of substitutions in the next command's words."""
        self.sinks: dict[str, Node] = {}
        """By path: the process substitution `>(…)` that reads from it."""

    def statement(self, node: Node, streams: Streams) -> str:
        """Run a statement and return its output."""
        raise NotImplementedError

    def subshell(self, node: Node, streams: Streams) -> str:
        """Run all statements of a node in a subshell and return their output."""
        raise NotImplementedError

    def read_aside(self, text: str) -> None:
        """Run a text in a subshell."""
        raise NotImplementedError

    def assign(self, name: str, value: str) -> None:
        raise NotImplementedError

    # ---- words ----

    def words(self, node: Node) -> list[Word]:
        return self.split(self.pieces(node))

    def split(self, pieces: list[Piece]) -> list[Word]:
        separators = self.state.variables.get("IFS", " \t\n")
        if UNKNOWN in separators:
            separators = " \t\n"
        home, directory = self.state.context.home, self.state.directory or UNKNOWN
        return fields(pieces, home, directory, separators) if pieces else []

    def pieces(self, node: Node) -> list[Piece]:
        kind = node.type
        if kind in _PLAIN and not node.named_child_count:
            return literal(text_of(node))
        if kind in _PLAIN or kind in ("concatenation", "array", "command_name"):
            return [piece for child in node.children for piece in self.pieces(child)]
        if kind == "raw_string":
            return [(text_of(node)[1:-1], QUOTED)]
        if kind == "ansi_c_string":
            return [(ansi_c(text_of(node)[2:-1]), QUOTED)]
        if kind in ("string", "translated_string"):
            return self._string(node)
        if kind in ("simple_expansion", "expansion"):
            return self.expand(text_of(node))
        if kind == "command_substitution":
            return [(self._substituted(node).rstrip("\n"), EXPANDED)]
        if kind == "process_substitution":
            return [(self._process(node), QUOTED)]
        if kind == "arithmetic_expansion":
            return [(self._arithmetic(node), EXPANDED)]
        if kind in STATEMENTS:
            return [(self.statement(node, Streams()), EXPANDED)]
        if node.named_child_count and kind != "brace_expression":
            return [piece for child in node.named_children for piece in self.pieces(child)]
        return [(text_of(node), LITERAL)]

    def _string(self, node: Node) -> list[Piece]:
        """Expand a double-quoted string. `"$@"` becomes as many words as there are arguments."""
        inside = self._inside(node, in_double_quotes)
        if len(inside) == 3 and inside[1][1] == EXPANDED and not inside[0][0] + inside[2][0]:
            is_many = text_of(node)[1:3] in ("$@", "${") and "@" in text_of(node)
            return [inside[1] if is_many else (inside[1][0], QUOTED)]
        return [("".join(text for text, _ in inside), QUOTED)]

    def _inside(self, node: Node, unquote: Callable[[str], str]) -> list[Piece]:
        """Expand a text that contains expansions. Everything between them is literal."""
        data, start = node.text or b"", node.start_byte
        quotes = 1 if node.type in ("string", "translated_string") else 0
        at = 2 if node.type == "translated_string" else quotes
        found: list[Piece] = []
        for child in node.named_children:
            if child.type in _EXPANSIONS:
                found.append(
                    (unquote(data[at : child.start_byte - start].decode("utf-8", "replace")), QUOTED)
                )
                found.append(("".join(part for part, _ in self.pieces(child)), EXPANDED))
                at = child.end_byte - start
        found.append((unquote(data[at : len(data) - quotes].decode("utf-8", "replace")), QUOTED))
        return found

    def _substituted(self, node: Node) -> str:
        redirects = [child for child in node.children if child.type in REDIRECTS]
        if redirects:  # $(< file)
            return self.redirected(redirects).stdin
        return self.subshell(node, Streams().but(piped=True, stdin=self.stdin))

    def _process(self, node: Node) -> str:
        """Return the path of a process substitution: `<(…)` is its output, `>(…)` reads unknown input."""
        is_input = text_of(node).startswith("<")
        out = self.subshell(node, Streams().but(piped=is_input, stdin="" if is_input else UNKNOWN))
        path = f"/dev/fd/{63 + len(self.state.files)}"
        self.state.files[path] = out
        if not is_input:
            self.sinks[path] = node
        return path

    def _arithmetic(self, node: Node) -> str:
        for child in node.named_children:
            self.pieces(child)
        text = text_of(node).strip("$()[] ")
        return text if text.isdecimal() else UNKNOWN

    # ---- parameters ----

    def expand(self, text: str) -> list[Piece]:
        """Expand `$name`, `${name}` and most operators inside braces."""
        if not text.startswith("${"):
            return [(self._parameter(text[1:]), EXPANDED)]
        inner = text[2:-1]
        if inner.startswith("#") and len(inner) > 1:
            return [(UNKNOWN, EXPANDED)]
        is_indirect = inner.startswith("!")
        name, change = name_of(inner[is_indirect:])
        if is_indirect:
            target = self.state.variable(name)
            value, change = UNKNOWN if UNKNOWN in target else self.state.variable(target), ""
        elif change.startswith("["):
            index, _, change = change[1:].partition("]")
            value = self._item(name, index)
        else:
            value = self._parameter(name)
        return [(self._changed(name, value, change) if change else value, EXPANDED)]

    def _item(self, name: str, index: str) -> str:
        if index in ("@", "*"):
            return " ".join(self.state.arrays.get(name, [Word(self.state.variable(name))]))
        items = self.state.arrays.get(name, [])
        return items[int(index)] if index.isdecimal() and int(index) < len(items) else UNKNOWN

    def _parameter(self, name: str) -> str:
        positional = self.state.positional
        if name in ("@", "*"):
            return " ".join(positional) if positional is not None else UNKNOWN
        if name.isdecimal() and name != "0":
            if positional is None:
                return UNKNOWN
            number = int(name) if len(name) < 5 else 9999
            return positional[number - 1] if 0 < number <= len(positional) else ""
        return self.state.variable(name)

    def _changed(self, name: str, value: str, change: str) -> str:
        """Apply an operator: `:-`, `:=`, `:+` and `:?` test whether there is a value, the others change it."""
        is_there = bool(value) and value != UNSET
        operator, word = change.lstrip(":")[:1], change.lstrip(":")[1:]
        if change[:2] not in (":-", ":=", ":+", ":?") and change[0] not in "-=+?":
            return changed(value, change, self._text)
        if operator == "+":
            return self._text(word) if is_there and value != SECRET else ""
        if is_there or operator == "?":
            return value if is_there else UNKNOWN
        default = self._text(word)
        if operator == "=":
            self.assign(name, default)
        return default

    def _text(self, text: str) -> str:
        """Expand the word after an operator."""
        if not text or not any(char in text for char in "$`\"'\\~"):
            return text
        is_quoted = text[:1] in ("'", '"', "~")
        quoted = text if is_quoted else '"' + text.replace('"', '\\"') + '"'
        nodes = [child for node in parse(f": {quoted}").named_children for child in node.named_children[1:]]
        return " ".join(word for node in nodes for word in self.words(node))

    # ---- redirects ----

    def redirected(self, nodes: list[Node]) -> RedirectionResult:
        result = RedirectionResult()
        for node in nodes:
            if node.type == "herestring_redirect":
                result.stdin = (
                    "".join(word for child in node.named_children for word in self.words(child)) + "\n"
                )
            elif node.type == "heredoc_redirect":
                self._here_document(node, result)
            else:
                self._file_redirect(node, result)
        return result

    def _file_redirect(self, node: Node, result: RedirectionResult) -> None:
        operator = next((child.type for child in node.children if not child.is_named), ">")
        number = text_of(node.children[0]) if node.children[0].type == "file_descriptor" else ""
        operator = operator if number in ("", "0", "1") else number + operator
        targets = [child for child in node.named_children if child.type != "file_descriptor"]
        found = [word for child in targets for word in self.words(child)]
        if found and found[0].startswith(HERE):
            result.stdin = found[0][1:] + "\n"
        elif found:
            result.redirects.append((operator, found[0]))
            if "<" in operator and "&" not in operator:
                result.stdin = self.state.content(found[0])
        result.words += [word for word in found[1:] if not (operator == ">&" and word.isdecimal())]

    def _here_document(self, node: Node, result: RedirectionResult) -> None:
        start = next((text_of(child) for child in node.children if child.type == "heredoc_start"), "")
        is_tail = False
        for child in node.children:
            kind = child.type
            if kind == "heredoc_body":
                text = text_of(child)
                if not any(each in start for each in "'\"\\"):
                    self._backticks(text)
                    text = "".join(part for part, _ in self._inside(child, in_double_quotes))
                result.stdin = text or result.stdin
            elif kind in REDIRECTS:
                more = self.redirected([child])
                result.redirects += more.redirects
                result.words += more.words
            elif kind in ("|", "||", "&&", ";", "&"):
                is_tail = True
            elif kind in ("heredoc_start", "heredoc_end"):
                continue
            elif kind in STATEMENTS or is_tail:
                result.rest.append(child)
            elif child.is_named:
                result.words += self.words(child)

    def _backticks(self, text: str) -> None:
        """Run command substitutions in backticks, which the grammar does not recognise in a here-document."""
        parts = text.replace("\\`", "").split("`")
        for part in parts[1:-1:2] if len(parts) % 2 else []:
            self.read_aside(part)
