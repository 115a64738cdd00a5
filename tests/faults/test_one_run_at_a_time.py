"""P10, P11, P12: one run per directory, despite reused process numbers, parallel starts and removed files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from conftest import Project, wait_until
from faults.fault_support import (
    DONE,
    IS_FULL,
    REPEATED,
    RUNS,
    assert_clear,
    finish,
    killed,
    lines,
    newest,
    status,
)
from ralph.store.runs import process_start

HELD = f"echo > ready; echo $$ >> started; until [ -e release ]; do sleep 0.02; done; {DONE}"
"""An agent that works until it is released."""


# ---- P10: a reused process number ----

BYSTANDER = """
import signal, sys
def note(number, frame):
    print(number, flush=True)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, note)
print("ready", flush=True)
while True:
    signal.pause()
"""


@contextmanager
def bystander(heard: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records every signal it gets."""
    with heard.open("w") as file:
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BYSTANDER], stdout=file)
    try:
        wait_until(lambda: lines(heard) == ["ready"])
        yield process
        assert process.poll() is None
        assert lines(heard) == ["ready"], "it was signalled"
    finally:
        process.kill()
        process.wait()


def crashed(project: Project) -> str:
    """A run whose ralph was killed; its agent completes when it is called again."""
    project.agent(f"[ -e release ] && {DONE} && exit; echo > ready; sleep 60")
    ralph = project.start("run", "-p", "x")
    wait_until((project.path / "ready").exists)
    killed(ralph)
    (project.path / "release").touch()
    return newest(project).id


COMMANDS: dict[str, tuple[tuple[str, ...], list[str | None]]] = {
    "resume": (("resume",), ["complete"]),
    "run": (("run", "-p", "y"), ["complete", None]),
    "cancel": (("cancel", "RUN"), ["interrupted"]),
}


@pytest.mark.parametrize(
    ("command", "start"),
    [("resume", "same"), ("run", "same"), ("cancel", "same"), ("resume", "other boot"), ("cancel", "none")],
)
def test_p10_a_reused_process_number_is_ignored(project: Project, command: str, start: str) -> None:
    """A live process with the number of a dead ralph makes no run live and is never signalled."""
    run = crashed(project)
    with bystander(project.path / "heard") as other:
        born = process_start(other.pid)
        assert born is not None
        with closing(sqlite3.connect(project.home.database)) as db, db:
            db.execute("UPDATE runs SET pid = ? WHERE id = ?", (other.pid, run))
            if start != "same":
                ticks = born.rpartition("/")[2]
                kept = f"00000000/{ticks}" if start == "other boot" else None
                db.execute("UPDATE runs SET pid_start = ? WHERE id = ?", (kept, run))
        assert (newest(project).state, newest(project).pid) == ("crashed", None)
        words, outcomes = COMMANDS[command]
        result = project.run(*(run if word == "RUN" else word for word in words))
        assert result.code == 0, result.err
        assert [summary.outcome for summary in status(project)] == outcomes


# ---- P11: many at once ----


@REPEATED
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 20])
def test_p11_of_many_starts_one_wins(project: Project, count: int) -> None:
    """Exactly one of many runs started at once begins; the others name it and exit with 2."""
    project.agent(HELD)
    for trial in range(RUNS if IS_FULL else 1):
        (project.path / "release").unlink(missing_ok=True)
        starts = [project.start("run", "-p", "x") for _ in range(count)]
        wait_until(lambda starts=starts: sum(s.poll() is None for s in starts) <= 1, 60)  # type: ignore[misc]
        (project.path / "release").touch()
        results = [finish(start) for start in starts]
        assert Counter(result.code for result in results) == {0: 1, 2: count - 1}, f"trial {trial}"
        assert len(status(project)) == len(lines(project.path / "started")) == trial + 1, "a loser began"
        for result in results:
            if result.code:
                assert_clear(result, f"Another run is working in {project.path}: {newest(project).id}")


@REPEATED
@pytest.mark.slow
def test_p11_of_many_resumes_and_starts_one_wins(project: Project) -> None:
    """After a kill, with five resumes and five new starts at once, only one agent works."""
    for _ in range(RUNS if IS_FULL else 1):
        for name in ("release", "ready", "started"):
            (project.path / name).unlink(missing_ok=True)
        crashed(project)
        (project.path / "release").unlink()
        project.agent(HELD)
        starts = [project.start(*words) for words in [("resume",), ("run", "-p", "x")] * 5]
        wait_until(lambda starts=starts: sum(s.poll() is None for s in starts) <= 1, 60)  # type: ignore[misc]
        (project.path / "release").touch()
        results = [finish(start) for start in starts]
        assert Counter(result.code for result in results) == {0: 1, 2: 9}, results
        for result in results:
            if result.code:
                assert_clear(result)
        assert len(lines(project.path / "started")) == 1


# ---- P12: places, names, and what is removed ----


@contextmanager
def held(project: Project) -> Iterator[str]:
    """The id of a working run, which completes afterwards."""
    project.agent(HELD, guardrails=[{"command": "echo checked"}])
    ralph = project.start("run", "-p", "x")
    try:
        wait_until((project.path / "ready").exists)
        yield newest(project).id
    finally:
        (project.path / "release").touch()
        result = finish(ralph)
    assert result.code == 0, result.err


def assert_refused(project: Project, run: str) -> None:
    assert_clear(project.run("run", "-p", "x", "--agent", "true"), "Another run is working in", run)


def test_p12_a_cleaned_directory_is_still_locked(repository: Project) -> None:
    """With `.ralph` and all untracked files removed under a running loop, a second start is refused."""
    with held(repository) as run:
        repository.git("clean", "-fdxq")
        assert not (repository.path / ".ralph").exists()
        assert_refused(repository, run)


def test_p12_a_cleaned_state_directory_is_still_locked(project: Project) -> None:
    """Whatever is removed from the state directory next to the store, a second start is refused."""
    with held(project) as run:
        for name in os.listdir(project.home.path):
            if not name.startswith(project.home.database.name):
                subprocess.run(["rm", "-rf", project.home.path / name], check=True)
        assert_refused(project, run)


@pytest.mark.parametrize(
    ("first", "seconds"),
    [(".", ["nested", "../link/sub"]), ("sub/deep", [".", "sub"])],
)
def test_p12_a_repository_is_locked_as_a_whole(repository: Project, first: str, seconds: list[str]) -> None:
    """Wherever in a repository a run works, another one there is refused with an error that names the first."""
    top, home = repository.path, repository.home
    (top / "sub/deep").mkdir(parents=True)
    repository.git("init", "-q", "nested")
    (top.parent / "link").symlink_to(top)
    with held(Project(top / first, home)) as run:
        for second in seconds:
            assert_refused(Project(top / second, home), run)


def test_p12_a_directory_is_locked_with_all_below_it(project: Project) -> None:
    """Even without a repository: by its own name, by another name, and below it."""
    (project.path / "sub/deep").mkdir(parents=True)
    (project.path.parent / "link").symlink_to(project.path)
    with held(project) as run:
        for second in ("sub/deep", "../link"):
            assert_refused(Project(project.path / second, project.home), run)
