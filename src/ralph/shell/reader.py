"""Which simple commands would run: a shell that runs nothing, over a syntax tree.

It keeps variables, functions, aliases, the working directory and the files that the command itself writes, as
far as they are known, and hands every simple command to its judge before it goes on.
"""

from __future__ import annotations

from ralph.shell import expansion, syntax
from ralph.shell.command import ASSIGNMENT, FORK_BOMB, SimpleCommand
from ralph.shell.parser import Unreadable, parse, text_of
from ralph.shell.paths import normal
from ralph.shell.programs import builtins, outputs, tools, wrappers
from ralph.shell.state import ShellContext, ShellState, Streams
from ralph.shell.words import (
    LITERAL,
    QUOTED,
    SECRET,
    UNKNOWN,
    UNSET,
    Piece,
    Word,
    fields,
    words_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

MAX_DEPTH = 24
MAX_STEPS = 20_000
MAX_ROUNDS = 24


class ShellReader:
    def __init__(self, context: ShellContext, judge: Callable[[SimpleCommand], None]) -> None:
        self.context = context
        self.state = ShellState(context)
        self.ran: list[SimpleCommand] = []
        self.mounts: tuple[tuple[str, str], ...] | None = None
        """Of the container that runs what is read now, see `SimpleCommand`."""
        self.sinks: dict[str, Node] = {}
        self.stdin = ""
        """What a substitution in the words of the next command can read."""
        self._judge = judge
        self._steps = 0
        self._depth = 0
        self._called: set[str] = set()
        self._defined: dict[str, Node] = {}
        self.handlers: dict[str, Callable[[Node, Streams], str]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "subshell": self._subshell,
            "variable_assignment": self._assignment,
            "variable_assignments": self.sequence,
            "declaration_command": self._declaration,
            "unset_command": self._unset,
            "function_definition": self._function,
            "for_statement": self._for,
            "test_command": self._expressions,
            "while_statement": self._while,
            "case_statement": self._case,
            "comment": self._nothing,
        }

    # ---- texts ----

    def read(self, text: str, streams: Streams | None = None) -> str:
        """Run a text; returns what it would print."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise Unreadable("commands are nested too deeply to be judged")
            return self.sequence(parse(text), streams or Streams())
        finally:
            self._depth -= 1

    def finish(self) -> None:
        """Functions that nobody has called, and what a called one leaves to others."""
        for name, body in self._defined.items():
            if name not in self._called:
                self._called.add(name)
                self.state.positional = None
                self.statement(body, Streams())

    def read_apart(self, text: str, streams: Streams | None = None) -> str:
        """The same in a shell of its own."""
        state, self.state = self.state, self.state.copy()
        try:
            return self.read(text, streams)
        finally:
            self.state = state

    # ---- statements ----

    def statement(self, node: Node, streams: Streams) -> str:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Unreadable("the command is too long to be judged")
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH * 6:
                raise Unreadable("the command is nested too deeply to be judged")
            return self.handlers.get(node.type, self.sequence)(node, streams)
        finally:
            self._depth -= 1

    def _nothing(self, node: Node, streams: Streams) -> str:
        return ""

    def sequence(self, node: Node, streams: Streams) -> str:
        """Statements one after the other; of those, the first reads what the whole reads."""
        out = ""
        children = node.children
        nodes = [each for each in children if each.type in syntax.REDIRECTS]
        if nodes:
            redirects, stdin, _, _ = syntax.redirects_of(self, nodes)
            streams = streams.but(redirects=[*streams.redirects, *redirects], stdin=stdin or streams.stdin)
        for number, child in enumerate(children):
            if not child.is_named or child.type in syntax.REDIRECTS:
                continue
            behind = children[number + 1].type if number + 1 < len(children) else ""
            if child.type in _EXPRESSIONS:
                syntax.pieces(self, child)
                continue
            is_before = node.type == "list" and number < len(children) - 1
            redirects = [] if is_before else streams.redirects
            out += self.statement(
                child, streams.but(background=streams.background or behind == "&", redirects=redirects)
            )
        return out

    def _pipeline(self, node: Node, streams: Streams) -> str:
        stdin, upstream = streams.stdin, streams.upstream
        stages = [child for child in node.children if child.is_named and child.type not in syntax.REDIRECTS]
        for number, child in enumerate(stages):
            is_last = number == len(stages) - 1
            start = len(self.ran)
            state, self.state = self.state, self.state.copy()
            try:
                redirects = streams.redirects if is_last else []
                stage = streams.but(
                    stdin=stdin, upstream=upstream, piped=streams.piped or not is_last, redirects=redirects
                )
                stdin = self.statement(child, stage)
            finally:
                self.state = state
            upstream = (*upstream, *self.ran[start:][-8:])
        return stdin

    def _subshell(self, node: Node, streams: Streams) -> str:
        state, self.state = self.state, self.state.copy()
        try:
            return self.sequence(node, streams)
        finally:
            self.state = state

    def _redirected(self, node: Node, streams: Streams) -> str:
        body = node.child_by_field_name("body")
        before = ""
        while body is not None and body.type == "list":  # `a && b < x`: only the last one has the redirect
            before += self.statement(body.children[0], streams.but(redirects=[]))
            body = body.children[-1]
        nodes = [child for child in node.children if child.type in syntax.REDIRECTS]
        redirects, stdin, extra, rest = syntax.redirects_of(self, nodes)
        if body is not None and nodes:
            gap = (node.text or b"")[body.end_byte - node.start_byte : nodes[0].start_byte - node.start_byte]
            extra = [Word("-")] * (gap.strip() == b"-") + extra  # the grammar loses it
        inner = streams.but(redirects=[*streams.redirects, *redirects], stdin=stdin or streams.stdin)
        if any(child.type == "pipeline" or child.type == "|" for child in rest):
            inner = inner.but(piped=True)
        start = len(self.ran)
        if body is None:
            out = ""
            for _, _target in redirects:
                self._run([Word(":")], {}, inner, text_of(node))
                break
        elif body.type == "command":
            out = self._command(body, inner, extra)
        else:
            out = self.statement(body, inner)
        if extra and (body is None or body.type != "command"):
            out += self._run(extra, {}, inner, text_of(node))
        upstream = (*streams.upstream, *self.ran[start:][-8:])
        for child in rest:
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
            elif child.type in syntax.REDIRECTS:
                redirects.append(child)
            elif child.is_named:
                pieces = syntax.pieces(self, child.children[0] if child.type == "command_name" else child)
                gap = data[end : child.start_byte - node.start_byte].decode("utf-8", "replace")
                if before and not gap.replace("\\\n", "") and (gap or before[-1] == ("$", LITERAL)):
                    words = words[:count]
                    pieces = self._glued(before, pieces)
                before, count, end = pieces, len(words), child.end_byte - node.start_byte
                words += syntax.split(self, pieces)
            elif child.type in ("==", "=~", "="):
                words.append(Word(child.type))
        self.stdin = outer
        if redirects:
            more, stdin, behind, _ = syntax.redirects_of(self, redirects)
            streams = streams.but(redirects=[*streams.redirects, *more], stdin=stdin or streams.stdin)
            words += behind
        return self._run(words + (extra or []), assigns, streams, text_of(node))

    def _glued(self, before: list[Piece], pieces: list[Piece]) -> list[Piece]:
        """One word of two: a line that goes on in its middle, or a `$` that the grammar has torn off its name."""
        if before[-1] != ("$", LITERAL) or not pieces:
            return before + pieces
        name, rest = expansion.name_of(pieces[0][0])
        return [*before[:-1], *expansion.expand(self, f"${name}"), (rest, LITERAL), *pieces[1:]]

    def _run(self, words: list[Word], assigns: dict[str, str], streams: Streams, text: str) -> str:
        while words and UNSET in words[0]:  # in front of all others, nothing is left of it
            bare = words[0].replace(UNSET, "")
            words = [Word(bare), *words[1:]] if bare else words[1:]
        if not words:
            for name, value in assigns.items():
                self.assign(name, value)
            if not (assigns or streams.redirects):
                return ""
            words = [Word(":")]
        for name, value in assigns.items():
            self.run_later(name, value)
        command = SimpleCommand(words[0], words[1:], text, self.state.directory)
        command.assigns = assigns
        command.redirects = streams.redirects
        command.stdin, command.piped, command.background = streams.stdin, streams.piped, streams.background
        command.upstream = streams.upstream
        command.mounts = self.mounts
        return self.run(command)

    def run(self, command: SimpleCommand) -> str:
        """One simple command, seen through whatever runs another one. Returns what it would print."""
        self._steps += 1
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH * 6 or self._steps > MAX_STEPS:
                raise Unreadable("the command is nested too deeply to be judged")
            return self._written(command, self._dispatch(command))
        finally:
            self._depth -= 1

    def _dispatch(self, command: SimpleCommand) -> str:
        name = command.program
        if name in self.state.aliases and "alias" not in command.wrappers:
            return self._alias(command)
        if name in self.state.functions and not {"command", "builtin"} & set(command.wrappers):
            return self._call(command)
        command.program = program_of(name)
        if name.startswith("/etc/init.d/"):
            command.program, command.args = "service", [Word(command.program), *command.args]
        builtin = builtins.TABLE.get(command.program)
        if builtin is not None:
            if command.program not in builtins.RECORD_THEMSELVES:
                self.record(command)
            return builtin(self, command)
        wrapper = wrappers.find(command.program)
        if wrapper is not None:
            return wrapper(self, command)
        script = self.script(command, name)
        if script:
            return wrappers.shell_text(self, command, script, [Word(name), *command.args])
        self.record(command)
        return outputs.of(self, command)

    def record(self, command: SimpleCommand) -> None:
        self.ran.append(command)
        self._judge(command)

    def script(self, command: SimpleCommand, name: str) -> str:
        """The content of a program that the command itself has written."""
        if "/" not in name:
            return ""
        return self.state.files.get(self.path(name) or "", "")

    def path(self, name: str) -> str | None:
        """An absolute path, None if nobody knows it."""
        if name.startswith("/"):
            return normal(name)
        return None if self.state.directory is None else normal(f"{self.state.directory}/{name}")

    def _written(self, command: SimpleCommand, out: str) -> str:
        """What a redirect takes is not printed; the file has it from now on. Errors (`2>`) are not known."""
        taken = False
        for operator, target in command.redirects:
            if operator in (">", ">>", ">|", "&>", "&>>") and target != "/dev/stdout":
                taken = True
                path = self.path(target)
                if path and out:
                    self.pour(path, out)
                    old = self.state.files.get(path, "") if ">>" in operator else ""
                    self.state.files[path] = old + out
        return "" if taken else out

    def pour(self, path: str, text: str) -> None:
        """Text into a file that is the input of `>(…)`."""
        if path in self.sinks:
            self._subshell(self.sinks[path], Streams().but(stdin=text))

    def _alias(self, command: SimpleCommand) -> str:
        text = self.state.aliases[command.program]
        words = list(text.split())
        if any(each in text for each in ";&|$`'\"<>(") or not words:
            self.read(text)
            return UNKNOWN
        inner = command.derived(words[0], [*map(Word, words[1:]), *command.args], "alias")
        return self.run(inner)

    def _call(self, command: SimpleCommand) -> str:
        name = command.program
        if "function " + name in command.wrappers or self._depth > MAX_DEPTH * 4:
            return UNKNOWN
        self._called.add(name)
        before, self.state.positional = self.state.positional, command.args
        body = self.state.functions.pop(name)
        streams = Streams().but(
            stdin=command.stdin, piped=command.piped, upstream=command.upstream, redirects=command.redirects
        )
        try:
            return self.statement(body, streams)
        finally:
            self.state.functions.setdefault(name, body)
            self.state.positional = before

    # ---- variables ----

    def assign(self, name: str, value: str) -> None:
        self.state.variables[name] = value
        command = SimpleCommand(ASSIGNMENT, [Word(name), Word(value)], f"{name}=…", self.state.directory)
        self._judge(command)
        self.run_later(name, value)

    def run_later(self, name: str, value: str) -> None:
        """Some variables hold a command for others."""
        if name in tools.COMMAND_VARIABLES and value.strip():
            self.read_apart(value)

    def variable(self, name: str) -> str:
        """What a variable holds; marks where that is not known."""
        state = self.state
        if name in state.variables:
            return state.variables[name]
        if name in state.arrays:
            return " ".join(state.arrays[name])
        if name in ("PWD", "OLDPWD"):
            known = state.directory if name == "PWD" else state.before
            return UNKNOWN if known is None else known
        return expansion.environment(name, self.context)

    def _value(self, node: Node) -> tuple[str, str]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        key, _, index = text_of(name).rstrip("]").partition("[") if name is not None else ("", "", "")
        is_more = "+=" in text_of(node)[: len(text_of(name)) + 2] if name is not None else False
        if value is None:
            return key, ""
        if value.type == "array":
            found = [word for child in value.named_children for word in syntax.words(self, child)]
            self.state.arrays[key] = [*self.state.arrays.get(key, []), *found] if is_more else found
            return key, " ".join(self.state.arrays[key])
        pieces = syntax.pieces(self, value)
        if pieces and pieces[0][1] == LITERAL and pieces[0][0].startswith("~"):
            text = "".join(fields(pieces[:1], self.context.home, self.state.directory or UNKNOWN))
            pieces = [(text, QUOTED), *pieces[1:]]
        text = "".join(part for part, _ in pieces)
        if index.isdigit() and int(index) < MAX_ROUNDS:
            items = [*self.state.arrays.get(key, []), *[Word("")] * MAX_ROUNDS][:MAX_ROUNDS]
            items[int(index)] = Word(text)
            self.state.arrays[key] = [item for item in items if item]
            return key, " ".join(self.state.arrays[key])
        return key, self.variable(key) + text if is_more else text

    def _assignment(self, node: Node, streams: Streams) -> str:
        name, value = self._value(node)
        self.assign(name, value)
        return ""

    def _declaration(self, node: Node, streams: Streams) -> str:
        """`export`, `declare` and the like. Without a variable, they print all of them."""
        names = [Word(text_of(child)) for child in node.named_children if child.type == "variable_name"]
        keyword = text_of(node.children[0])
        if names and "-n" in (text_of(child) for child in node.named_children):
            keyword = "unset"
        flags = [Word(text_of(child)) for child in node.named_children if child.type == "word"]
        shown = SimpleCommand(keyword, [*flags, *names], text_of(node), self.state.directory)
        shown.piped = streams.piped
        self.record(shown)
        if not names and all(child.type == "word" for child in node.named_children):
            return SECRET
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assignment(child, streams)
            elif child.type not in ("variable_name", "word"):
                for word in syntax.words(self, child):
                    name, equals, value = word.partition("=")
                    if equals:
                        self.assign(name, value)
        return ""

    def _unset(self, node: Node, streams: Streams) -> str:
        for child in node.named_children:
            name = text_of(child)
            self.state.variables.pop(name, None)
            self._judge(SimpleCommand("unset", [Word(name)], text_of(node), self.state.directory))
        return ""

    def _function(self, node: Node, streams: Streams) -> str:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            title = text_of(name)
            self.state.functions[title] = self._defined[title] = body
            calls = _calls(body)
            if title in calls and any(kind in ("pipeline", "&") for kind in calls[title]):
                self._judge(SimpleCommand(FORK_BOMB, [], text_of(node), self.state.directory))
        return ""

    # ---- compound statements ----

    def _for(self, node: Node, streams: Streams) -> str:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        values = [
            word
            for child in node.named_children
            if child not in (name, body) and child.type != "comment"
            for word in syntax.words(self, child)
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
        """One round. A loop without end that starts something in the background each time is a fork bomb."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if (
            condition is not None
            and body is not None
            and text_of(condition).strip() in ("true", ":", "((1))", "[ 1 ]")
        ):
            calls = _calls(body)
            if any("&" in kinds for kinds in calls.values()) and not {"sleep", "wait", "read"} & set(calls):
                self._judge(SimpleCommand(FORK_BOMB, [], text_of(node), self.state.directory))
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
                syntax.pieces(self, child)
        return out

    def _expressions(self, node: Node, streams: Streams) -> str:
        for child in node.named_children:
            syntax.pieces(self, child)
        return ""


_EXPRESSIONS = frozenset(
    words_of(
        "simple_expansion expansion string raw_string word number concatenation command_substitution"
        " arithmetic_expansion binary_expression unary_expression postfix_expression ternary_expression"
        " parenthesized_expression process_substitution variable_name special_variable_name ansi_c_string"
        " extglob_pattern brace_expression regex"
    )
)


def program_of(name: str) -> str:
    """The name of a program without its path."""
    if "/" not in name:
        return name
    base = name.rstrip("/").rpartition("/")[2]
    if base.startswith(("ld-linux", "ld-musl")):
        return "ld.so"
    if name.startswith("/") and any(char in name for char in "*?["):
        return _globbed(base)
    return base


def _globbed(base: str) -> str:
    """`/bin/r?`: the first well-known program that it may be."""
    import fnmatch

    known = ("rm", "sh", "bash", "cat", "dd", "chmod", "chown", "curl", "wget", "nc", "mv", "kill", "python3")
    return next((each for each in known if fnmatch.fnmatchcase(each, base)), base)


def _calls(node: Node) -> dict[str, list[str]]:
    """The commands inside of a function, each with how it stands there."""
    found: dict[str, list[str]] = {}
    stack = [(node, "")]
    while stack:
        each, context = stack.pop()
        if each.type == "command_name":
            found.setdefault(text_of(each), []).append(context)
        for number, child in enumerate(each.children):
            behind = each.children[number + 1].type if number + 1 < len(each.children) else ""
            inside = "pipeline" if each.type == "pipeline" else "&" if behind == "&" else context
            stack.append((child, inside))
    return found
