"""Rules and verdicts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph.shell.command import SimpleCommand
    from ralph.shell.context import ShellContext


class DenyRule:
    """A kind of command to deny. `match` is one or more patterns (see `patterns`), or a predicate."""

    __slots__ = ("category", "match", "name", "reason")

    def __init__(
        self,
        name: str,
        category: str,
        reason: str,
        match: str | tuple[str, ...] | Callable[[SimpleCommand, ShellContext], bool],
    ) -> None:
        self.name = name
        self.category = category
        self.reason = reason
        self.match = match


class GuardVerdict:
    """Whether a command is allowed, and if not, which rule denied it because of which part."""

    __slots__ = ("allowed", "category", "part", "reason", "rule")

    def __init__(
        self, allowed: bool, rule: str = "", category: str = "", reason: str = "", part: str = ""
    ) -> None:
        self.allowed = allowed
        self.rule = rule
        self.category = category
        self.reason = reason
        self.part = part


class Denied(Exception):
    """Raised when a rule matches, so that parsing stops there."""

    def __init__(self, rule: DenyRule, part: str) -> None:
        super().__init__(rule.name)
        self.rule = rule
        self.part = part
