"""Worktrees of one repository that several tasks make and remove at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conftest import Project
from ralph.flows.repository import scm_runner
from ralph.process.client import Wakeup, Warden
from ralph.scm.git import Git
from ralph.scm.repository import find_repository
from ralph.scm.start import Recorded
from ralph.scm.worktrees import Worktrees
from ralph.store.files import opened_directory

ROUNDS = 12


def test_several_at_once(repository: Project, tmp_path: Path) -> None:
    """Git cannot read the list of worktrees while another git adds one: none of them fails all the same."""
    found = find_repository(repository.path)
    assert found is not None

    def work(number: int) -> list[Path | None]:
        with opened_directory(str(found.top)) as directory, Warden(Wakeup()) as warden:
            runner = scm_runner(warden, directory, found.top)
            recorded = Recorded(Git(found, runner), tmp_path / f"record-{number}")
            recorded.record()
            trees, path = Worktrees(found, runner, recorded), tmp_path / "trees" / str(number)
            seen = []
            for _ in range(ROUNDS):
                trees.add(path, f"ralph/{number}", "main")
                seen.append(trees.checkout_of(f"ralph/{number}"))
                trees.remove(path)
            return seen

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(work, range(4)))
    assert made == [[tmp_path / "trees" / str(number)] * ROUNDS for number in range(4)]
