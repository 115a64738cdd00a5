"""Runs the statements of a syntax tree in order: pipelines, loops, functions, assignments."""

from __future__ import annotations

from ralph.shell.command import ASSIGNMENT, FORK_BOMB, SimpleCommand, Streams
from ralph.shell.expansion import REDIRECTS, RedirectionResult, WordExpander
from ralph.shell.fork_bombs import is_bomb, is_endless_start
from ralph.shell.parameters import name_of
from ralph.shell.parser import Unreadable, text_of
from ralph.shell.state import ShellState
from ralph.shell.variables import COMMAND_VARIABLES
from ralph.shell.words import LITERAL, QUOTED, SECRET, UNKNOWN, UNSET, Piece, Word, fields, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from ralph.shell.context import ShellContext

MAX_DEPTH = 24
MAX_STEPS = 20_000
MAX_ROUNDS = 24
_EXPRESSIONS = frozenset(
    words_of(
        "simple_expansion expansion string raw_string word number concatenation command_substitution"
        " arithmetic_expansion binary_expression unary_expression postfix_expression ternary_expression"
        " parenthesized_expression process_substitution variable_name special_variable_name ansi_c_string"
        " extglob_pattern brace_expression regex"
    )
)


class StatementReader(WordExpander):
    """Finds the simple commands of a tree. The reader, a subclass, decides what to do with them."""

    def __init__(self, context: ShellContext, visit: Callable[[SimpleCommand], None]) -> None:
        super().__init__(ShellState(context))
        self._visit = visit
        self._ran: list[SimpleCommand] = []
        self._steps = 0
        self._depth = 0
        self._defined: dict[str, Node] = {}
        """All functions, including those defined in a subshell."""
        self._handlers: dict[str, Callable[[Node, Streams], str]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "subshell": self.subshell,
            "variable_assignment": self._assignment,
            "declaration_command": self._declaration,
            "unset_command": self._unset,
            "function_definition": self._function,
            "for_statement": self._for,
            "test_command": self._expressions,
            "while_statement": self._while,
            "case_statement": self._case,
            "comment": lambda node, streams: "",
        }

    def run(self, command: SimpleCommand) -> str:
        """Run one simple command and return its output."""
        raise NotImplementedError

    def _descend(self, limit: int = MAX_DEPTH * 6) -> None:
        self._steps += 1
        self._depth += 1
        if self._steps > MAX_STEPS:
            raise Unreadable("the command is too long")
        if self._depth > limit:
            raise Unreadable("the command is nested too deeply")

    def _apart(self, act: Callable[[], str]) -> str:
        """Run `act` with a copy of the state, as in a subshell."""
        state, self.state = self.state, self.state.copy()
        try:
            return act()
        finally:
            self.state = state

    # ---- statements ----

    def statement(self, node: Node, streams: Streams) -> str:
        try:
            self._descend()
            return self._handlers.get(node.type, self.sequence)(node, streams)
        finally:
            self._depth -= 1

    def sequence(self, node: Node, streams: Streams) -> str:
        """Run statements in order. Each can read the stdin of the whole sequence."""
        out = ""
        children = node.children
        for number, child in enumerate(children):
            if not child.is_named or child.type in REDIRECTS:
                continue
            behind = children[number + 1].type if number + 1 < len(children) else ""
            if child.type in _EXPRESSIONS:
                self.pieces(child)
                continue
            is_before = node.type == "list" and number < len(children) - 1
            redirects = [] if is_before else streams.redirects
            is_background = streams.background or behind == "&"
            out += self.statement(child, streams.but(background=is_background, redirects=redirects))
        return out

    def subshell(self, node: Node, streams: Streams) -> str:
        return self._apart(lambda: self.sequence(node, streams))

    def _pipeline(self, node: Node, streams: Streams) -> str:
        stdin, upstream = streams.stdin, streams.upstream
        stages = [child for child in node.children if child.is_named and child.type not in REDIRECTS]
        for number, child in enumerate(stages):
            is_last = number == len(stages) - 1
            start = len(self._ran)
            redirects = streams.redirects if is_last else []
            is_piped = streams.piped or not is_last
            stage = streams.but(stdin=stdin, upstream=upstream, piped=is_piped, redirects=redirects)
            stdin = self._apart(lambda child=child, stage=stage: self.statement(child, stage))  # type: ignore[misc]
            upstream = (*upstream, *self._ran[start:][-8:])
        return stdin

    def _redirected(self, node: Node, streams: Streams) -> str:
        body = node.child_by_field_name("body")
        before = ""
        while body is not None and body.type == "list":  # `a && b < x`: only the last one has the redirect
            before += self.statement(body.children[0], streams.but(redirects=[]))
            body = body.children[-1]
        nodes = [child for child in node.children if child.type in REDIRECTS]
        result = self.redirected(nodes)
        if body is not None and nodes:
            gap = (node.text or b"")[body.end_byte - node.start_byte : nodes[0].start_byte - node.start_byte]
            result.words[:0] = [Word("-")] * (gap.strip() == b"-")  # the grammar drops it
        inner = _with(streams, result)
        if any(child.type in ("pipeline", "|") for child in result.rest):
            inner = inner.but(piped=True)
        start = len(self._ran)
        if body is not None and body.type == "command":
            out = self._command(body, inner, result.words)
        else:
            out = self.statement(body, inner) if body is not None else ""
            if result.words or body is None:
                out += self._run_words(result.words, {}, inner, text_of(node))
        upstream = (*streams.upstream, *self._ran[start:][-8:])
        for child in result.rest:
            if child.type == "pipeline":
                out = self._pipeline(child, streams.but(stdin=out, upstream=upstream))
            elif child.is_named:
                out += self.statement(child, streams)
        return before + out

    # ---- simple commands ----

    def _command(self, node: Node, streams: Streams, extra: list[Word] | None = None) -> str:
        assigns: dict[str, str] = {}
        words: list[Word] = []
        redirects = []
        data = node.text or b""
        outer, self.stdin = self.stdin, streams.stdin
        before: list[Piece] = []
        count = end = 0
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self._value(child)
                assigns[name] = value
            elif child.type in REDIRECTS:
                redirects.append(child)
            elif child.is_named:
                pieces = self.pieces(child.children[0] if child.type == "command_name" else child)
                gap = data[end : child.start_byte - node.start_byte].decode("utf-8", "replace")
                if before and not gap.replace("\\\n", "") and (gap or before[-1] == ("$", LITERAL)):
                    words = words[:count]
                    pieces = self._glued(before, pieces)
                before, count, end = pieces, len(words), child.end_byte - node.start_byte
                words += self.split(pieces)
        self.stdin = outer
        if redirects:
            result = self.redirected(redirects)
            streams = _with(streams, result)
            words += result.words
        return self._run_words(words + (extra or []), assigns, streams, text_of(node))

    def _glued(self, before: list[Piece], pieces: list[Piece]) -> list[Piece]:
        """Join two words that are one: split by a line continuation, or a `$` that the grammar split from its name."""
        if before[-1] != ("$", LITERAL) or not pieces:
            return before + pieces
        name, rest = name_of(pieces[0][0])
        return [*before[:-1], *self.expand(f"${name}"), (rest, LITERAL), *pieces[1:]]

    def _run_words(self, words: list[Word], assigns: dict[str, str], streams: Streams, text: str) -> str:
        while words and UNSET in words[0]:  # as the first word, an unset variable vanishes
            bare = words[0].replace(UNSET, "")
            words = [Word(bare), *words[1:]] if bare else words[1:]
        if not words:
            for name, value in assigns.items():
                self.assign(name, value)
            if not (assigns or streams.redirects):
                return ""
            words = [Word(":")]
        for name, value in assigns.items():
            self._run_later(name, value)
        command = SimpleCommand(words[0], words[1:], text, self.state.directory)
        command.connect(streams)
        command.assigns = assigns
        command.mounts = self.state.mounts
        return self.run(command)

    def _record(self, command: SimpleCommand) -> None:
        self._ran.append(command)
        self._visit(command)

    # ---- variables and functions ----

    def assign(self, name: str, value: str) -> None:
        self.state.variables[name] = value
        command = SimpleCommand(ASSIGNMENT, [Word(name), Word(value)], f"{name}=…", self.state.directory)
        self._visit(command)
        self._run_later(name, value)

    def _run_later(self, name: str, value: str) -> None:
        """Run the value of a variable that holds a command for other programs."""
        if name in COMMAND_VARIABLES and value.strip():
            self.read_aside(value)

    def _value(self, node: Node) -> tuple[str, str]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        key, _, index = text_of(name).rstrip("]").partition("[") if name is not None else ("", "", "")
        is_more = "+=" in text_of(node)[: len(text_of(name)) + 2] if name is not None else False
        if value is None:
            return key, ""
        if value.type == "array":
            found = [word for child in value.named_children for word in self.words(child)]
            self.state.arrays[key] = [*self.state.arrays.get(key, []), *found] if is_more else found
            return key, " ".join(self.state.arrays[key])
        pieces = self.pieces(value)
        if pieces and pieces[0][1] == LITERAL and pieces[0][0].startswith("~"):
            text = "".join(fields(pieces[:1], self.state.context.home, self.state.directory or UNKNOWN))
            pieces = [(text, QUOTED), *pieces[1:]]
        text = "".join(part for part, _ in pieces)
        if index.isdecimal() and int(index) < MAX_ROUNDS:
            items = [*self.state.arrays.get(key, []), *[Word("")] * MAX_ROUNDS][:MAX_ROUNDS]
            items[int(index)] = Word(text)
            self.state.arrays[key] = [item for item in items if item]
            return key, " ".join(self.state.arrays[key])
        return key, self.state.variable(key) + text if is_more else text

    def _assignment(self, node: Node, streams: Streams) -> str:
        name, value = self._value(node)
        self.assign(name, value)
        return ""

    def _declaration(self, node: Node, streams: Streams) -> str:
        """Handle `export`, `declare` and similar. Without a variable, they print all variables."""
        names = [Word(text_of(child)) for child in node.named_children if child.type == "variable_name"]
        keyword = text_of(node.children[0])
        if names and "-n" in (text_of(child) for child in node.named_children):
            keyword = "unset"
        flags = [Word(text_of(child)) for child in node.named_children if child.type == "word"]
        shown = SimpleCommand(keyword, [*flags, *names], text_of(node), self.state.directory)
        shown.piped = streams.piped
        self._record(shown)
        if not names and all(child.type == "word" for child in node.named_children):
            return SECRET
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assignment(child, streams)
            elif child.type not in ("variable_name", "word"):
                for word in self.words(child):
                    name, equals, value = word.partition("=")
                    if equals:
                        self.assign(name, value)
        return ""

    def _unset(self, node: Node, streams: Streams) -> str:
        for child in node.named_children:
            name = text_of(child)
            self.state.variables.pop(name, None)
            self._visit(SimpleCommand("unset", [Word(name)], text_of(node), self.state.directory))
        return ""

    def _function(self, node: Node, streams: Streams) -> str:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            title = text_of(name)
            self.state.functions[title] = self._defined[title] = body
            if is_bomb(title, body):
                self._visit(SimpleCommand(FORK_BOMB, [], text_of(node), self.state.directory))
        return ""

    # ---- compound statements ----

    def _for(self, node: Node, streams: Streams) -> str:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        values = [
            word
            for child in node.named_children
            if child not in (name, body) and child.type != "comment"
            for word in self.words(child)
        ]
        key = text_of(name) if name is not None else ""
        if not any(child.type == "in" for child in node.children):
            values = self.state.positional or [Word(UNKNOWN)]
        out = ""
        for value in values[:MAX_ROUNDS] or [Word(UNKNOWN)]:
            self.state.variables[key] = value
            if body is not None:
                out += self.statement(body, streams)
        return out

    def _while(self, node: Node, streams: Streams) -> str:
        """Run one round of a loop."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if condition is not None and body is not None and is_endless_start(condition, body):
            self._visit(SimpleCommand(FORK_BOMB, [], text_of(node), self.state.directory))
        return self.sequence(node, streams)

    def _case(self, node: Node, streams: Streams) -> str:
        out = ""
        for child in node.named_children:
            if child.type == "case_item":
                for part in child.named_children:
                    if part.type not in words_of(
                        "word extglob_pattern string raw_string concatenation number"
                    ):
                        out += self.statement(part, streams)
            else:
                self.pieces(child)
        return out

    def _expressions(self, node: Node, streams: Streams) -> str:
        for child in node.named_children:
            self.pieces(child)
        return ""


def _with(streams: Streams, result: RedirectionResult) -> Streams:
    redirects = [*streams.redirects, *result.redirects]
    return streams.but(redirects=redirects, stdin=result.stdin or streams.stdin)
