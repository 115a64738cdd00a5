"""Judges a command text: one text in, one verdict out."""

from __future__ import annotations

from ralph.guard.model import Denied, DenyRule, GuardVerdict
from ralph.guard.patterns import matches, programs
from ralph.guard.rules import (
    cloud,
    containers,
    deletion,
    disks,
    files,
    git,
    permissions,
    publishing,
    remote,
    secrets,
    system,
)
from ralph.shell.command import UNREADABLE as UNREADABLE_TEXT
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.parser import Unreadable
from ralph.shell.reader import read
from ralph.shell.words import Word, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RULES: tuple[DenyRule, ...] = (
    *deletion.RULES,
    *files.RULES,
    *disks.RULES,
    *permissions.RULES,
    *git.RULES,
    *system.RULES,
    *containers.RULES,
    *remote.RULES,
    *secrets.RULES,
    *cloud.RULES,
    *publishing.RULES,
)
UNREADABLE = "unreadable"
_IN_CONTAINERS = ("cloud", "deletion")
MAX_PART = 300


class Guard:
    """The built-in rules together with the rules from the settings."""

    def __init__(self, allow: Sequence[tuple[str, str]] = (), deny: Sequence[tuple[str, str]] = ()) -> None:
        self._allow = tuple(pattern for pattern, _ in allow)
        self._deny = tuple(
            DenyRule(f"settings: {pattern}", "settings", reason, pattern) for pattern, reason in deny
        )
        self._by_program: dict[str, list[tuple[DenyRule, str]]] = {}
        """By program: each rule that names it, with the pattern in question."""
        self._functions: list[tuple[DenyRule, Callable[[SimpleCommand, ShellContext], bool]]] = []
        for rule in RULES:
            if isinstance(rule.match, str | tuple):
                for pattern in (rule.match,) if isinstance(rule.match, str) else rule.match:
                    for name in programs(pattern):
                        self._by_program.setdefault(name, []).append((rule, pattern))
            else:
                self._functions.append((rule, rule.match))

    def judge(self, text: str, context: ShellContext) -> GuardVerdict:
        """Judge a shell command. A text that cannot be parsed is denied."""

        def check(command: SimpleCommand) -> None:
            if command.program == UNREADABLE_TEXT:
                raise Unreadable(command.args[0])
            rule = self._denied_by(command, context)
            if rule is not None and not self._is_allowed(command):
                raise Denied(rule, shown(command.text)[:MAX_PART])

        try:
            read(text, context, check)
        except Denied as denied:
            rule = denied.rule
            return GuardVerdict(False, rule.name, rule.category, rule.reason, denied.part)
        except Unreadable as error:
            reason = f"Ralph's guard cannot parse this command: {error}. Simplify it or split it into several commands."
            return GuardVerdict(False, UNREADABLE, UNREADABLE, reason, shown(text)[:MAX_PART])
        return GuardVerdict(True)

    def judge_file(self, path: str, context: ShellContext) -> GuardVerdict:
        """Judge a file that a tool other than a shell is about to write."""
        command = SimpleCommand("tee", [Word(path)], path, context.directory)
        for rule in files.RULES:
            if callable(rule.match) and rule.match(command, context):
                return GuardVerdict(False, rule.name, rule.category, rule.reason, path[:MAX_PART])
        return GuardVerdict(True)

    def _denied_by(self, command: SimpleCommand, context: ShellContext) -> DenyRule | None:
        for rule in self._deny:
            if _fits(command, str(rule.match)):
                return rule
        for rule, pattern in self._by_program.get(command.program, ()):
            if _holds(rule, command) and matches(pattern, command):
                return rule
        for rule, match in self._functions:
            if _holds(rule, command) and match(command, context):
                return rule
        return None

    def _is_allowed(self, command: SimpleCommand) -> bool:
        return any(_fits(command, pattern) for pattern in self._allow)


def _holds(rule: DenyRule, command: SimpleCommand) -> bool:
    """Whether the rule applies here. Most rules do not apply inside a container, where little harm can be done."""
    return not command.contained or rule.category in _IN_CONTAINERS


def _fits(command: SimpleCommand, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(shown(command.words), pattern)
