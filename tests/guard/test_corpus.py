"""The corpus: more than six thousand commands, each with its verdict and the reason for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from guard.guard_support import CONTEXT, GUARD, Case, corpus
from ralph.guard.judge import RULES, UNREADABLE
from ralph.shell.command import SimpleCommand
from ralph.shell.reader import read

CASES = corpus()


@pytest.mark.parametrize("category", sorted({case.category for case in CASES}))
def test_verdicts(category: str) -> None:
    """Every command gets its marked verdict. A denial because it cannot be parsed is marked too."""
    assert [wrong for case in CASES if case.category == category for wrong in differences(case)] == []


def differences(case: Case) -> Iterator[str]:
    verdict = GUARD.judge(case.command, CONTEXT)
    if ("allow" if verdict.allowed else "deny") != case.verdict:
        yield f"{case.command!r}: {case.verdict} is expected ({case.reason}), not {verdict.rule or 'allow'}"
    elif case.verdict == "deny" and (verdict.rule == UNREADABLE) != (case.category == UNREADABLE):
        yield f"{case.command!r}: {case.category} is expected, not {verdict.rule}"


def test_it_is_large_enough() -> None:
    """It has at least 400 commands, each once and with a reason, harmful and harmless."""
    commands = [case.command for case in CASES]
    assert len(set(commands)) == len(commands) >= 400
    assert all(case.reason for case in CASES)
    assert {case.category for case in CASES if case.verdict == "allow"} == {"everyday", "mentioned"}


def programs(command: str) -> set[str]:
    """Return the programs that a command would run."""
    ran: list[SimpleCommand] = []
    read(command, CONTEXT, ran.append)
    return {each.program for each in ran}


def test_every_rule_denies_something_and_leaves_something_near() -> None:
    """Each rule denies some command, and some command of the same program is allowed."""
    denied: dict[str, set[str]] = defaultdict(set)
    allowed: set[str] = set()
    for case in CASES:
        if case.verdict == "allow":
            allowed |= programs(case.command)
        elif (rule := GUARD.judge(case.command, CONTEXT).rule) != UNREADABLE:
            denied[rule] |= programs(case.command)
    assert {rule.name for rule in RULES} == set(denied)
    assert [name for name, found in denied.items() if not found & allowed] == []
