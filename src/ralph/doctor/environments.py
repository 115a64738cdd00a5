"""What the worktrees of tasks and clean copies get in this project, and whether it needs a setup command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ralph.core.text import clean
from ralph.doctor.finding import OK, WARNING, Finding
from ralph.environments.base import Copy, Ecosystem
from ralph.environments.installing import installers
from ralph.environments.registry import ECOSYSTEMS
from ralph.process.client import child_environment
from ralph.scm.repository import Repository, find_repository


def environment_findings(setup: str, ecosystems: Sequence[Ecosystem] = ECOSYSTEMS) -> list[Finding]:
    """One finding for each ecosystem, and one about `ralph.setup` if it is set or seems to be needed."""
    repository = find_repository(Path.cwd())
    if repository is None:
        return []
    found = _setup(setup, repository.top)
    return [*_ecosystems(repository, ecosystems), *([found] if found else [])]


def _ecosystems(repository: Repository, ecosystems: Sequence[Ecosystem]) -> list[Finding]:
    own = repository.git_dir / "ralph-none"
    copy, environment = Copy(repository.top, repository.top, ".", own), child_environment({})
    return [
        Finding(f"worktrees {each.name}", OK, each.describe(copy, environment))
        for each in ecosystems
        if each.detect(copy, environment)
    ]


def _setup(setup: str, top: Path) -> Finding | None:
    if setup:
        return Finding("ralph.setup", OK, f"{clean(setup)}: runs in every new worktree of a task")
    try:
        names = os.listdir(top)
    except OSError:
        return None
    lacking = [
        each
        for each in installers(names)
        if each.is_lock and each.makes and not os.path.lexists(top / each.makes)
    ]
    if not lacking:
        return None
    what = "; ".join(f"{each.file} is not installed here: there is no {each.makes}" for each in lacking)
    commands = " && ".join(each.command for each in lacking)
    advice = f'Run `{commands}`. If worktrees of tasks need it too, set ralph.setup to "{commands}".'
    return Finding("ralph.setup", WARNING, f"not set, and {what}", advice)
