"""The one kind of error that is meant for people."""

from __future__ import annotations


class RalphError(Exception):
    """What happened and where, and what to do next. The error boundary prints both and exits."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.message} {self.hint}".strip()
