"""What is recorded of a repository when a run starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Project
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden
from ralph.runs.repository import scm_runner
from ralph.scm.baseline import Baseline
from ralph.scm.git import Git, Runner
from ralph.scm.repository import Repository, find_repository
from ralph.store.files import opened_directory


@pytest.fixture
def found(repository: Project) -> Repository:
    """The repository, with a pre-commit hook."""
    hook = repository.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    found = find_repository(repository.path)
    assert found is not None
    return found


@pytest.fixture
def runner(found: Repository) -> Iterator[Runner]:
    """Git through a warden, as in a run."""
    with opened_directory(str(found.top)) as directory, Warden(Wakeup()) as warden:
        yield scm_runner(warden, directory, found.top)


def test_hooks_that_cannot_be_copied(found: Repository, runner: Runner, tmp_path: Path) -> None:
    """The run does not start, because its commits would skip the hook. In a sandbox hooks do not run."""
    (tmp_path / "hooks").write_text("a file in place of the copy\n")
    with pytest.raises(RalphError) as error:
        Baseline(Git(found, runner), tmp_path).record()
    assert f"The git hooks in {found.common / 'hooks'} cannot be copied: " in error.value.message
    Baseline(Git(found, runner), tmp_path, runs_hooks=False).record()


def test_files_that_are_not_hooks(found: Repository, runner: Runner, tmp_path: Path) -> None:
    """Named pipes and sockets next to the hooks are skipped, at any depth, instead of waiting for them."""
    (found.common / "hooks/lib").mkdir()
    (found.common / "hooks/lib/common").write_text("true\n")
    for name in ("pipe", "lib/pipe"):
        os.mkfifo(found.common / "hooks" / name)
    baseline = Baseline(Git(found, runner), tmp_path)
    baseline.record()
    kept = {str(path.relative_to(baseline.hooks)) for path in baseline.hooks.rglob("*")}
    assert kept == {"pre-commit", "lib", "lib/common"}
