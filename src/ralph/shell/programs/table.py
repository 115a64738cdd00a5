"""The table of all emulated programs."""

from __future__ import annotations

from ralph.shell.code.languages import language
from ralph.shell.programs import builtins, finders, outputs, tools, wrappers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.steps import Emulation

_TABLE: dict[str, Emulation] = {
    **outputs.TABLE,
    **tools.TABLE,
    **finders.TABLE,
    **wrappers.TABLE,
    **builtins.TABLE,
}


def emulation(program: str) -> Emulation:
    """Return the emulation of a program. For an unknown program, only its output is emulated."""
    if program in _TABLE:
        return _TABLE[program]
    if language(program):
        from ralph.shell.code.interpreters import interpret

        return interpret
    return outputs.of
