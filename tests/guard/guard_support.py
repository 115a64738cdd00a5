"""Helpers to judge commands, and the corpus."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ralph.guard.judge import Guard
from ralph.shell.context import ShellContext

CONTEXT = ShellContext("/home/dev/work/app", "/home/dev")
"""A worktree below the home directory."""

GUARD = Guard()


@dataclass(frozen=True)
class Case:
    """One command of the corpus and the reason for its verdict."""

    command: str
    verdict: str
    category: str
    reason: str


def corpus() -> list[Case]:
    lines = Path(__file__).with_name("corpus.jsonl").read_text().splitlines()
    return [Case(**json.loads(line)) for line in lines]


def denied_by(command: str, context: ShellContext = CONTEXT) -> str:
    """Return the rule that denies a command, or "" if none does."""
    return GUARD.judge(command, context).rule
