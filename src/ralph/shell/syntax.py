"""Words, redirects and here-documents of a syntax tree, expanded as a shell would."""

from __future__ import annotations

from ralph.shell import expansion
from ralph.shell.parser import text_of
from ralph.shell.programs import outputs
from ralph.shell.state import Streams
from ralph.shell.words import (
    EXPANDED,
    HERE,
    LITERAL,
    QUOTED,
    UNKNOWN,
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

    from ralph.shell.reader import ShellReader

REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")


def words(reader: ShellReader, node: Node) -> list[Word]:
    return split(reader, pieces(reader, node))


def split(reader: ShellReader, pieces: list[Piece]) -> list[Word]:
    separators = reader.state.variables.get("IFS", " \t\n")
    if UNKNOWN in separators:
        separators = " \t\n"
    return (
        fields(pieces, reader.context.home, reader.state.directory or UNKNOWN, separators) if pieces else []
    )


def pieces(reader: ShellReader, node: Node) -> list[Piece]:
    kind = node.type
    if kind in ("word", "number", "extglob_pattern", "regex", "variable_name", "test_operator"):
        if not node.named_child_count:
            return literal(text_of(node))
        return [piece for child in node.children for piece in pieces(reader, child)]
    if kind == "raw_string":
        return [(text_of(node)[1:-1], QUOTED)]
    if kind == "ansi_c_string":
        return [(ansi_c(text_of(node)[2:-1]), QUOTED)]
    if kind in ("string", "translated_string"):
        return _string(reader, node)
    if kind in ("concatenation", "array", "command_name"):
        return [piece for child in node.children for piece in pieces(reader, child)]
    if kind in ("simple_expansion", "expansion"):
        return expansion.expand(reader, text_of(node))
    if kind == "command_substitution":
        return [(_substituted(reader, node).rstrip("\n"), EXPANDED)]
    if kind == "process_substitution":
        return [(_process(reader, node), QUOTED)]
    if kind == "arithmetic_expansion":
        return [(_arithmetic(reader, node), EXPANDED)]
    if kind == "brace_expression":
        return [(text_of(node), LITERAL)]
    if kind in reader.handlers or kind in ("list", "compound_statement", "do_group"):
        return [(reader.statement(node, Streams()), EXPANDED)]
    if node.named_child_count:
        return [piece for child in node.named_children for piece in pieces(reader, child)]
    return [(text_of(node), LITERAL)]


def _string(reader: ShellReader, node: Node) -> list[Piece]:
    """Between double quotes. `"$@"` is as many words as there are."""
    inside = _inside(reader, node, in_double_quotes)
    if len(inside) == 3 and inside[1][1] == EXPANDED and not inside[0][0] + inside[2][0]:
        return (
            [inside[1]]
            if text_of(node)[1:3] in ("$@", "${") and "@" in text_of(node)
            else [(inside[1][0], QUOTED)]
        )
    return [("".join(text for text, _ in inside), QUOTED)]


def _inside(reader: ShellReader, node: Node, unquote: Callable[[str], str]) -> list[Piece]:
    """Text with expansions in it: whatever stands between them is literal."""
    data, start = node.text or b"", node.start_byte
    quotes = 1 if node.type in ("string", "translated_string") else 0
    at = 2 if node.type == "translated_string" else quotes
    found: list[Piece] = []
    parts = _expansions(node)
    for child in parts:
        found.append((unquote(data[at : child.start_byte - start].decode("utf-8", "replace")), QUOTED))
        text = "".join(part for part, _ in pieces(reader, child))
        found.append((text, EXPANDED))
        at = child.end_byte - start
    found.append((unquote(data[at : len(data) - quotes].decode("utf-8", "replace")), QUOTED))
    return found


def _substituted(reader: ShellReader, node: Node) -> str:
    state, reader.state = reader.state, reader.state.copy()
    try:
        redirects = [child for child in node.children if child.type in REDIRECTS]
        if redirects:
            return redirects_of(reader, redirects)[1]
        return reader.sequence(node, Streams().but(piped=True, stdin=reader.stdin))
    finally:
        reader.state = state


def _process(reader: ShellReader, node: Node) -> str:
    """`<(…)`: a file with what it prints; `>(…)`: what reads, of which nothing is known."""
    is_input = text_of(node).startswith("<")
    state, reader.state = reader.state, reader.state.copy()
    try:
        streams = Streams().but(piped=is_input, stdin="" if is_input else UNKNOWN)
        out = reader.sequence(node, streams)
    finally:
        reader.state = state
    path = f"/dev/fd/{63 + len(reader.state.files)}"
    reader.state.files[path] = out
    if not is_input:
        reader.sinks[path] = node
    return path


def _arithmetic(reader: ShellReader, node: Node) -> str:
    for child in node.named_children:
        pieces(reader, child)
    text = text_of(node).strip("$()[] ")
    return text if text.isdigit() else UNKNOWN


def _expansions(node: Node) -> list[Node]:
    kinds = words_of(
        "simple_expansion expansion command_substitution arithmetic_expansion process_substitution"
    )
    return [child for child in node.named_children if child.type in kinds]


# ---- redirects ----


def redirects_of(
    reader: ShellReader, nodes: list[Node]
) -> tuple[list[tuple[str, Word]], str, list[Word], list[Node]]:
    """Targets of redirects; what is read; words behind a target; the rest of a here-document's line."""
    redirects: list[tuple[str, Word]] = []
    stdin, extra, rest = "", [], []
    for node in nodes:
        if node.type == "herestring_redirect":
            stdin = "".join("".join(words(reader, child)) for child in node.named_children) + "\n"
        elif node.type == "heredoc_redirect":
            here, more, behind, tail = _here_document(reader, node)
            stdin = here or stdin
            redirects += more
            extra += behind
            rest += tail
        else:
            operator = next((child.type for child in node.children if not child.is_named), ">")
            number = text_of(node.children[0]) if node.children[0].type == "file_descriptor" else ""
            operator = operator if number in ("", "0", "1") else number + operator
            targets = [child for child in node.named_children if child.type != "file_descriptor"]
            found = [word for child in targets for word in words(reader, child)]
            if found and found[0].startswith(HERE):
                stdin = found[0][1:] + "\n"
            elif found:
                redirects.append((operator, found[0]))
                if "<" in operator and "&" not in operator:
                    stdin = outputs.content(reader, found[0])
            extra += [word for word in found[1:] if not (operator == ">&" and word.isdigit())]
    return redirects, stdin, extra, rest


def _here_document(
    reader: ShellReader, node: Node
) -> tuple[str, list[tuple[str, Word]], list[Word], list[Node]]:
    start = next((text_of(child) for child in node.children if child.type == "heredoc_start"), "")
    text, redirects, behind, rest = "", [], [], []
    tail = False
    for child in node.children:
        kind = child.type
        if kind == "heredoc_body":
            text = text_of(child)
            if not any(each in start for each in "'\"\\"):
                _backticks(reader, text)
                text = "".join(part for part, _ in _inside(reader, child, in_double_quotes))
        elif kind in REDIRECTS:
            more, _, extra, _ = redirects_of(reader, [child])
            redirects += more
            behind += extra
        elif kind in ("heredoc_start", "heredoc_end", "<<", "<<-"):
            continue
        elif kind in ("|", "||", "&&", ";", "&"):
            tail = True
        elif kind in reader.handlers or tail or kind == "list":
            rest.append(child)
        elif child.is_named:
            behind += words(reader, child)
    return text, redirects, behind, rest


def _backticks(reader: ShellReader, text: str) -> None:
    """The grammar does not see them in a here-document."""
    parts = text.replace("\\`", "").split("`")
    for part in parts[1:-1:2] if len(parts) % 2 else []:
        reader.read_apart(part)
