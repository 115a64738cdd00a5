"""The steps that a program takes, as returned by its emulation and carried out by the reader.

A step is a command to run, a text that is printed, or one of the classes below.
"""

from __future__ import annotations

from ralph.shell.command import SimpleCommand
from ralph.shell.words import UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralph.shell.state import ShellState


class ShellText:
    """A command line that runs in a separate shell. Its output is ignored."""

    __slots__ = ("directory", "text")

    def __init__(self, text: str, directory: str | None = "") -> None:
        self.text = text
        self.directory = directory
        """The working directory, "" for that of the program, None if unknown."""


class ShellScript:
    """A shell that runs this code with the streams of the program. `arguments` are $0, $1 and so on."""

    __slots__ = ("arguments", "text")

    def __init__(self, text: str, arguments: Sequence[Word] = ()) -> None:
        self.text = text
        self.arguments = arguments


class EvaluatedText:
    """A text that the current shell runs, as with `eval`."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class SetVariable:
    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value


class WriteFile:
    """A text that is written to a file. `name` is as the program uses it."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text


class Guess:
    """A step that code in another language might take. If it cannot be parsed, it is ignored."""

    __slots__ = ("step",)

    def __init__(self, step: SimpleCommand | ShellText) -> None:
        self.step = step


if TYPE_CHECKING:
    Step = SimpleCommand | str | ShellText | ShellScript | EvaluatedText | SetVariable | WriteFile | Guess
    Steps = str | list[Step]
    """A plain text is the program's output. The output of several steps is joined in order."""
    Emulation = Callable[[ShellState, SimpleCommand], Steps]


def inner(
    command: SimpleCommand, words: Sequence[Word], wrapper: str = "", directory: str | None = ""
) -> list[Step]:
    """Return the step for a command that the program runs, in its own directory ("") or elsewhere."""
    if not words:
        return [UNKNOWN]
    made = command.derived(words[0], list(words[1:]), wrapper or command.program)
    if directory != "":
        made.directory = directory
    return [made]


def read_aside(*texts: str) -> list[Step]:
    """Return steps that run these command lines in separate shells. Unknown ones are left out."""
    return [ShellText(text) for text in texts if text.strip() and text.strip() != UNKNOWN]
