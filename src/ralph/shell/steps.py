"""What a program does, step by step: told by the emulations of programs, carried out by the reader.

A step is a command that is run, a text that is printed, or one of the classes below.
"""

from __future__ import annotations

from ralph.shell.command import SimpleCommand
from ralph.shell.words import UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralph.shell.state import ShellState


class ShellText:
    """A command line that is read aside, in a shell of its own; what it prints is not followed."""

    __slots__ = ("directory", "text")

    def __init__(self, text: str, directory: str | None = "") -> None:
        self.text = text
        self.directory = directory
        """Where it runs, "" for where the program does, None: nobody knows."""


class ShellScript:
    """A shell that is started with this code, in the streams of the program; `arguments`: its $0 and what follows."""

    __slots__ = ("arguments", "text")

    def __init__(self, text: str, arguments: Sequence[Word] = ()) -> None:
        self.text = text
        self.arguments = arguments


class EvaluatedText:
    """A text that the shell itself goes on with, like that of `eval`."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class SetVariable:
    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value


class WriteFile:
    """A text goes into a file, by the name that the program has for it."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text


class Guess:
    """A step that code in another language may take. If it cannot be read, it was none."""

    __slots__ = ("step",)

    def __init__(self, step: SimpleCommand | ShellText) -> None:
        self.step = step


if TYPE_CHECKING:
    Step = SimpleCommand | str | ShellText | ShellScript | EvaluatedText | SetVariable | WriteFile | Guess
    Steps = str | list[Step]
    """A text alone is what the program prints. What its steps print comes together in their order."""
    Emulation = Callable[[ShellState, SimpleCommand], Steps]


def inner(
    command: SimpleCommand, words: Sequence[Word], wrapper: str = "", directory: str | None = ""
) -> list[Step]:
    """The words are a command that the program runs: where it runs itself (""), or elsewhere."""
    if not words:
        return [UNKNOWN]
    made = command.derived(words[0], list(words[1:]), wrapper or command.program)
    if directory != "":
        made.directory = directory
    return [made]


def read_aside(*texts: str) -> list[Step]:
    """Command lines, as far as they are known."""
    return [ShellText(text) for text in texts if text.strip() and text.strip() != UNKNOWN]
