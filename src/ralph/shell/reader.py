"""Finds the simple commands that would run, by interpreting a syntax tree without running anything.

It tracks variables, functions, aliases, the working directory and the files that the command itself writes, as far as
they are known, and passes every simple command to a visitor before it continues.
"""

from __future__ import annotations

from ralph.shell.command import UNREADABLE, SimpleCommand, Streams
from ralph.shell.parser import Unreadable, parse
from ralph.shell.programs.table import emulation
from ralph.shell.programs.wrappers import started
from ralph.shell.statements import MAX_DEPTH, StatementReader
from ralph.shell.steps import EvaluatedText, Guess, SetVariable, ShellScript, ShellText, WriteFile
from ralph.shell.texts import MAX_TEXT
from ralph.shell.words import MARKS, UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from ralph.shell.context import ShellContext
    from ralph.shell.steps import Step


def read(text: str, context: ShellContext, visit: Callable[[SimpleCommand], None]) -> None:
    """Call `visit` with all simple commands that a text would run, including those of functions that are never called.

    A text that cannot be parsed is passed as UNREADABLE. Raises Unreadable if it is too long or nested too deeply.
    """
    if not MARKS.isdisjoint(text):
        raise Unreadable("the command contains control characters")
    try:
        ShellReader(context, visit).read(text)
    except RecursionError as error:
        raise Unreadable("the command is nested too deeply") from error


class ShellReader(StatementReader):
    def __init__(self, context: ShellContext, visit: Callable[[SimpleCommand], None]) -> None:
        super().__init__(context, visit)
        self._is_guessing = False
        self._called: set[str] = set()

    # ---- texts ----

    def read(self, text: str) -> None:
        """Read a whole command, then the functions that were never called."""
        self._read(text, Streams())
        for name, body in self._defined.items():
            if name not in self._called:
                self._called.add(name)
                self.state.positional = None
                self.statement(body, Streams())

    def read_aside(self, text: str) -> None:
        self._apart(lambda: self._read(text, Streams()))

    def _read(self, text: str, streams: Streams) -> str:
        try:
            self._descend(MAX_DEPTH)
            tree = self._parsed(text)
            return UNKNOWN if tree is None else self.sequence(tree, streams)
        finally:
            self._depth -= 1

    def _parsed(self, text: str) -> Node | None:
        try:
            return parse(text)
        except Unreadable as error:
            self._visit(SimpleCommand(UNREADABLE, [Word(error)], text, self.state.directory))
            return None

    def run(self, command: SimpleCommand) -> str:
        """Run one simple command, following any command that it runs in turn. Return its output."""
        if (command.directory, command.mounts) != (self.state.directory, self.state.mounts):
            return self._apart(lambda: self._run_elsewhere(command))
        try:
            self._descend()
            return self._written(command, self._dispatch(command))
        finally:
            self._depth -= 1

    def _run_elsewhere(self, command: SimpleCommand) -> str:
        self.state.directory, self.state.mounts = command.directory, command.mounts
        return self.run(command)

    def _dispatch(self, command: SimpleCommand) -> str:
        name = command.name
        if name in self.state.aliases and "alias" not in command.wrappers:
            return self._alias(command)
        if name in self.state.functions and not {"command", "builtin"} & set(command.wrappers):
            return self._call(command)
        command.program = program_of(name)
        command.is_guess = self._is_guessing
        if name.startswith("/etc/init.d/"):
            command.program, command.args = "service", [Word(command.program), *command.args]
        script = self.state.files.get(self.state.path(name) or "", "") if "/" in name else ""
        if script:
            steps = started(command, script, [Word(name), *command.args])
        else:
            steps = emulation(command.program)(self.state, command)
        self._record(command)
        return "".join(
            self._carry_out(command, step) for step in ([steps] if isinstance(steps, str) else steps)
        )

    def _alias(self, command: SimpleCommand) -> str:
        text = self.state.aliases[command.name]
        words = [Word(word) for word in text.split()]
        if any(each in text for each in ";&|$`'\"<>(") or not words:
            self._read(text, Streams())
            return UNKNOWN
        return self.run(command.derived(words[0], [*words[1:], *command.args], "alias"))

    def _call(self, command: SimpleCommand) -> str:
        name = command.name
        if self._depth > MAX_DEPTH * 4:
            return UNKNOWN
        self._called.add(name)
        before, self.state.positional = self.state.positional, command.args
        body = self.state.functions.pop(name)
        try:
            return self.statement(body, command.but(background=False))
        finally:
            self.state.functions.setdefault(name, body)
            self.state.positional = before

    # ---- what programs do ----

    def _carry_out(self, command: SimpleCommand, step: Step) -> str:
        """Carry out one step of a program and return its output."""
        match step:
            case str():
                return step[:MAX_TEXT]
            case SimpleCommand():
                return self.run(step)
            case ShellScript():
                return self._apart(lambda: self._script(command, step))
            case EvaluatedText():
                return self._read(step.text, Streams())
            case ShellText():
                self._apart(lambda: self._aside(step))
            case Guess():
                self._guess(command, step)
            case SetVariable():
                self.assign(step.name, step.value)
            case WriteFile():
                if (path := self.state.path(step.name)) and step.text:
                    self._write(path, step.text)
        return ""

    def _script(self, command: SimpleCommand, script: ShellScript) -> str:
        self.state.positional = list(script.arguments[1:])
        self.state.variables.update(command.assigns)
        if script.arguments:
            self.state.variables["0"] = script.arguments[0]
        stdin = "" if script.text == command.stdin else command.stdin
        return self._read(
            script.text, Streams().but(upstream=command.upstream, piped=command.piped, stdin=stdin)
        )

    def _aside(self, step: ShellText) -> str:
        if step.directory != "":
            self.state.directory = step.directory
        return self._read(step.text, Streams())

    def _guess(self, command: SimpleCommand, guess: Guess) -> None:
        outer, self._is_guessing = self._is_guessing, True
        try:
            self._carry_out(command, guess.step)
        except Unreadable:
            pass  # the string is not a command
        finally:
            self._is_guessing = outer

    def _written(self, command: SimpleCommand, out: str) -> str:
        """Return the output that is not redirected, and store the rest in the files. Errors (`2>`) are unknown."""
        taken = False
        for operator, target in command.redirects:
            if operator in (">", ">>", ">|", "&>", "&>>") and target != "/dev/stdout":
                taken = True
                path = self.state.path(target)
                if path and out:
                    self._write(path, out, self.state.files.get(path, "") if ">>" in operator else "")
        return "" if taken else out

    def _write(self, path: str, text: str, before: str = "") -> None:
        """Write text to a file, which can be the input of `>(…)`."""
        if path in self.sinks:
            self.subshell(self.sinks[path], Streams().but(stdin=text))
        self.state.files[path] = before + text


def program_of(name: str) -> str:
    """Return the name of a program without its path."""
    if "/" not in name:
        return name
    base = name.rstrip("/").rpartition("/")[2]
    if base.startswith(("ld-linux", "ld-musl")):
        return "ld.so"
    if name.startswith("/") and any(char in name for char in "*?["):
        return _globbed(base)
    return base


def _globbed(base: str) -> str:
    """Return the first well-known program that a glob such as `/bin/r?` matches."""
    import fnmatch

    known = ("rm", "sh", "bash", "cat", "dd", "chmod", "chown", "curl", "wget", "nc", "mv", "kill", "python3")
    return next((each for each in known if fnmatch.fnmatchcase(each, base)), base)
