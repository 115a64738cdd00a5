"""The error that is shown to users."""

from __future__ import annotations


class RalphError(Exception):
    """An error message (what happened, and where) with a hint (what to do next). The CLI prints both and exits."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    @property
    def text(self) -> str:
        """Message and hint on one line."""
        return f"{self.message} {self.hint}".strip()
