"""One command text -> one verdict."""

from __future__ import annotations

from ralph.guard.grammar import Unreadable
from ralph.guard.model import Command, Denied, Place, Rule, Verdict
from ralph.guard.patterns import matches, programs
from ralph.guard.reader import Reader
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
from ralph.guard.words import MARKS, Word, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RULES: tuple[Rule, ...] = (
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
MOST_PART = 300


class Guard:
    """The built-in rules with those of the settings."""

    def __init__(self, allow: Sequence[tuple[str, str]] = (), deny: Sequence[tuple[str, str]] = ()) -> None:
        self._allow = tuple(pattern for pattern, _ in allow)
        self._deny = tuple(
            Rule(f"settings: {pattern}", "settings", reason, pattern) for pattern, reason in deny
        )
        self._by_program: dict[str, list[tuple[Rule, str]]] = {}
        """By program: a rule, and the one of its patterns."""
        self._functions: list[tuple[Rule, Callable[[Command, Place], bool]]] = []
        for rule in RULES:
            if isinstance(rule.match, str | tuple):
                for pattern in (rule.match,) if isinstance(rule.match, str) else rule.match:
                    for name in programs(pattern):
                        self._by_program.setdefault(name, []).append((rule, pattern))
            else:
                self._functions.append((rule, rule.match))

    def judge(self, text: str, place: Place) -> Verdict:
        """A text that cannot be read is denied."""

        def check(command: Command) -> None:
            rule = self._denied_by(command, place)
            if rule is not None and not self._is_allowed(command):
                raise Denied(rule, shown(command.text)[:MOST_PART])

        try:
            if not MARKS.isdisjoint(text) or "\0" in text:
                raise Unreadable("the command has characters that no command needs")
            reader = Reader(place, check)
            reader.read(text)
            reader.finish()
        except Denied as denied:
            rule = denied.rule
            return Verdict(False, rule.name, rule.category, rule.reason, denied.part)
        except (Unreadable, RecursionError) as error:
            why = str(error) if isinstance(error, Unreadable) else "it is nested too deeply"
            reason = (
                f"Ralph's guard cannot read it: {why}. Write it in a simpler way, or in several commands."
            )
            return Verdict(False, UNREADABLE, UNREADABLE, reason, shown(text)[:MOST_PART])
        return Verdict(True)

    def judge_file(self, path: str, place: Place) -> Verdict:
        """A file that a tool other than a shell would write."""
        command = Command("tee", [Word(path)], path, place.directory)
        for rule in files.RULES:
            if callable(rule.match) and rule.match(command, place):
                return Verdict(False, rule.name, rule.category, rule.reason, path[:MOST_PART])
        return Verdict(True)

    def _denied_by(self, command: Command, place: Place) -> Rule | None:
        for rule in self._deny:
            if _fits(command, str(rule.match)):
                return rule
        for rule, pattern in self._by_program.get(command.program, ()):
            if _holds(rule, command) and matches(pattern, command):
                return rule
        for rule, match in self._functions:
            if _holds(rule, command) and match(command, place):
                return rule
        return None

    def _is_allowed(self, command: Command) -> bool:
        return any(_fits(command, pattern) for pattern in self._allow)


def _holds(rule: Rule, command: Command) -> bool:
    """Most of what is done in a container hurts nobody."""
    return not command.contained or rule.category in _IN_CONTAINERS


def _fits(command: Command, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(shown(command.words), pattern)
