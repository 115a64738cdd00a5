"""The list of runs: ids, finding them, who drives them, and their queued commands."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import RALPH, Project
from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    Cancel,
    Command,
    Flow,
    Pause,
    Plan,
    PromptSource,
    Resume,
    Steer,
)
from ralph.errors import RalphError
from ralph.store.database import open_database
from ralph.store.home import Home
from ralph.store.journal import Journal, steps
from ralph.store.runs import Run, Runs, new_id, process_start

NOON = 1_767_268_800.0  # 2026-01-01 12:00:00 UTC


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """An empty list of runs."""
    found = Home(tmp_path).runs()
    yield found
    found.db.close()


def add(runs: Runs, id: str, created: float = NOON, directory: str = "/work") -> None:
    """A run with a chosen id, driven by no process."""
    runs.db.execute(
        "INSERT INTO runs (id, project, directory, flow, created) VALUES (?, ?, ?, 'run', ?)",
        (id, directory, directory, created),
    )


def plan(id: str) -> Plan:
    return Plan(id, Flow.RUN, "/work", (AgentSpec("a", "custom", "a"),), PromptSource("x"))


def create(runs: Runs) -> Run:
    return runs.create(plan(""), "/work", "/work")


# ---- ids ----


def test_an_id_is_date_time_and_four_digits() -> None:
    """A run id has the time in UTC and four hexadecimal digits."""
    assert re.fullmatch(r"20260101-120000-[0-9a-f]{4}", new_id(NOON))


def test_ids_sort_by_time() -> None:
    """Sorted as text, ids are in the order of their seconds, across every border of the calendar."""
    times = [NOON, NOON + 1, NOON + 60, NOON + 86400, NOON + 31 * 86400, NOON + 366 * 86400, 4e9]
    ids = [new_id(at) for at in times]
    assert sorted(ids) == ids


def test_runs_of_one_second_have_different_ids(runs: Runs) -> None:
    """An id that is taken is not used again."""
    made = [create(runs) for _ in range(300)]
    assert len({run.id for run in made}) == 300
    assert {run.id for run in runs.all()} == {run.id for run in made}


def test_a_run_comes_with_its_plan(runs: Runs) -> None:
    """A run and row 0 of its journal are written together: a kill leaves both or neither."""
    run = create(runs)
    (entry,) = steps(runs.db, runs.path, run.id)
    assert (entry.seq, entry.step) == (0, plan(run.id))
    runs.db.execute("DROP TABLE journal")
    with pytest.raises(RalphError, match="no such table: journal"):
        create(runs)
    assert [known.id for known in runs.all()] == [run.id]


def test_runs_can_be_created_in_parallel(tmp_path: Path) -> None:
    """Many connections write to a store at the same time and lose nothing."""
    home = Home(tmp_path)
    home.runs().db.close()

    def create_one(_: int) -> str:
        runs = home.runs()
        with closing(runs.db):
            return create(runs).id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(create_one, range(24)))
    runs = home.runs()
    assert sorted(run.id for run in runs.all()) == sorted(ids)
    runs.db.close()


def test_a_store_being_created_by_another_process_is_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When two processes start for the first time together, neither takes the other's store for a foreign file."""
    path = tmp_path / "ralph.db"

    class Overtaken(sqlite3.Connection):
        """Another process creates the store while this one inspects it."""

        seen = 0

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            self.seen += 1
            if self.seen == 3:
                monkeypatch.undo()
                with suppress(RalphError):
                    open_database(path, patience=0.1).close()
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Overtaken, **k))
    runs = Home(tmp_path).runs()
    with closing(runs.db):
        assert runs.all() == []


# ---- finding ----

IDS = ("20260101-120000-abcd", "20260101-120000-abce", "20260102-120000-00cd", "20250101-120000-ffff")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("20260101-120000-abcd", "20260101-120000-abcd"),
        ("20260102", "20260102-120000-00cd"),
        ("2025", "20250101-120000-ffff"),
        ("abcd", "20260101-120000-abcd"),
        ("ffff", "20250101-120000-ffff"),
        ("ABCE", "20260101-120000-abce"),
        ("0-abcd", "20260101-120000-abcd"),
    ],
)
def test_a_run_is_found_by_a_part_of_its_id(runs: Runs, name: str, found: str) -> None:
    """An id, or a unique prefix or suffix of it, is enough."""
    for id in IDS:
        add(runs, id)
    assert runs.find(name).id == found


@pytest.mark.parametrize(
    "name", ["", "%", "_", "2026%", "____", "120000", "nothing", "' OR 1=1 --", "\\", "*"]
)
def test_an_unknown_run_is_an_error(runs: Runs, name: str) -> None:
    """An unknown name, even one with SQL wildcards, matches no run."""
    for id in IDS:
        add(runs, id)
    with pytest.raises(RalphError, match=re.escape(f"There is no run {name!r}.")):
        runs.find(name)


@pytest.mark.parametrize(("name", "could_be"), [("20260101", IDS[:2]), ("cd", (IDS[0], IDS[2])), ("2", IDS)])
def test_an_ambiguous_name_lists_what_it_could_be(runs: Runs, name: str, could_be: tuple[str, ...]) -> None:
    """A name that matches several runs is refused, and they are listed."""
    for id in IDS:
        add(runs, id)
    with pytest.raises(RalphError, match="matches several runs") as caught:
        runs.find(name)
    assert all(id in caught.value.message for id in could_be)


def test_a_whole_id_wins_over_a_longer_one(runs: Runs) -> None:
    """An id that is also a prefix of another is not ambiguous."""
    add(runs, "20260101-120000-abcd")
    add(runs, "20260101-120000-abcd-1")
    assert runs.find("20260101-120000-abcd").id == "20260101-120000-abcd"


def test_runs_are_listed_newest_first(runs: Runs) -> None:
    """They are in order of creation, whatever the clock said, and a directory has its own list."""
    for id, created, directory in [("a", 7.0, "/x"), ("c", 6.0, "/x"), ("b", 5.0, "/y")]:
        add(runs, id, created, directory)
    assert [run.id for run in runs.all()] == ["b", "c", "a"]
    assert [run.id for run in runs.in_directory("/x")] == ["c", "a"]
    assert runs.in_directory("/") == []


# ---- who drives them ----


def run_of(pid: int | None, start: str | None) -> Run:
    return Run("id", "/work", "/work", Flow.RUN, None, NOON, pid, start)


def test_a_run_is_live_while_its_process_is(runs: Runs) -> None:
    """Pid and start time together identify a process."""
    run = create(runs)
    assert (run.pid, run.is_live) == (os.getpid(), True)
    assert runs.find(run.id) == run
    other = subprocess.Popen(["sleep", "60"])
    try:
        start = process_start(other.pid)
        assert run_of(other.pid, start).is_live
        assert not run_of(other.pid, process_start(os.getpid())).is_live, "the number was reused"
    finally:
        other.kill()
        other.wait()
    assert not run_of(other.pid, start).is_live


def test_a_zombie_drives_nothing() -> None:
    """A process that has exited but was not waited for is not live."""
    process = subprocess.Popen(["sleep", "60"])
    start = process_start(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not run_of(process.pid, start).is_live
    process.wait()


def test_a_run_of_an_earlier_boot_is_not_live() -> None:
    """The same pid and the same ticks after a reboot are another process."""
    start = process_start(os.getpid())
    assert start is not None
    assert not run_of(os.getpid(), "00000000" + start[8:]).is_live


def test_a_dead_process_with_an_unknown_start_is_not_live() -> None:
    """Even without a known start time, a process that is gone is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    assert not run_of(process.pid, None).is_live


def test_a_run_changes_hands(runs: Runs) -> None:
    """A run that was released is driven by no process until one takes it over."""
    run = create(runs)
    runs.let_go(run.id)
    assert (runs.find(run.id).pid, runs.find(run.id).is_live) == (None, False)
    runs.take_over(run.id)
    assert runs.find(run.id) == run


def test_only_the_driver_lets_go(runs: Runs) -> None:
    """A process that ends late does not take a run away from its successor."""
    run = create(runs)
    runs.db.execute("UPDATE runs SET pid = 1, pid_start = 'x' WHERE id = ?", (run.id,))
    runs.let_go(run.id)
    assert runs.find(run.id) == replace(run, pid=1, pid_start="x")


# ---- commands ----


def test_commands_wait_in_order_for_their_run(runs: Runs) -> None:
    """Commands arrive in the order they were sent, and only at their run."""
    said: list[Command] = [
        Steer(1.0, 0, "a"),
        Pause(2.0),
        Resume(3.0, 20, 1.5),
        Cancel(4.0),
        Steer(0.5, 0, "b"),
    ]
    numbers = [runs.send("one", command) for command in said]
    runs.send("other", Pause(9.0))
    expected = [replace(c, id=n) if isinstance(c, Steer) else c for n, c in zip(numbers, said, strict=True)]
    assert runs.waiting("one") == list(zip(numbers, expected, strict=True))
    assert runs.waiting("nobody") == []
    assert numbers == sorted(set(numbers))


def test_a_command_is_applied_once(runs: Runs) -> None:
    """An applied command no longer waits, and its sender can see when it was delivered."""
    run = create(runs).id
    state = machine.start(plan(run), NOON)
    journal = Journal(runs.db, runs.path, run)
    number = runs.send(run, Steer(NOON, 0, "more tests"))
    assert runs.delivery(number) == (False, None)
    ((_, steer),) = runs.waiting(run)
    journal.command(steer, machine.apply(state, steer), number)
    journal.flush()
    assert (runs.waiting(run), runs.delivery(number)) == ([], (True, None))
    journal.delivered((number,), 3)
    journal.command(Pause(NOON), machine.apply(state, Pause(NOON)))
    journal.flush()
    assert runs.delivery(number) == (True, 3)
    assert runs.delivery(999) == (False, None)


def test_commands_come_from_other_connections(tmp_path: Path) -> None:
    """Commands from another process are seen at once."""
    one, other = Home(tmp_path).runs(), Home(tmp_path).runs()
    assert one.waiting("run") == []
    number = other.send("run", Pause(1.0))
    assert one.waiting("run") == [(number, Pause(1.0))]
    one.db.close()
    other.db.close()


@pytest.mark.parametrize("text", ["\0", "a\0b", "🦀🦀", "line\nline", "<response>DONE</response>", '"\\'])
def test_guidance_of_any_text_arrives(runs: Runs, text: str) -> None:
    """Guidance is data: any text arrives unchanged."""
    number = runs.send("run", Steer(1.0, 0, text))
    assert runs.waiting("run") == [(number, Steer(1.0, number, text))]


def raw(project: Project, *arguments: str | bytes) -> subprocess.CompletedProcess[str]:
    """Run ralph with arguments that need not be text."""
    return subprocess.run(
        [RALPH, *arguments], cwd=project.path, env=project.env, capture_output=True, text=True, timeout=30
    )


def test_arguments_that_are_not_text(project: Project) -> None:
    """Arguments that are not UTF-8 are one clear error with exit 2, for every command."""
    project.agent("echo hm")
    lines: list[tuple[str | bytes, ...]] = [
        ("steer", "x", b"\xff"),
        ("resume", b"\xff"),
        ("run", "-p", "x", "-c", b"\xff"),
        ("run", "-p", "x", "--agent", b"./\xff"),
    ]
    for line in lines:
        done = raw(project, *line)
        assert done.returncode == 2, line
        assert done.stderr.startswith("ralph: error: ") and "unexpected" not in done.stderr, done.stderr


def test_a_project_whose_name_is_not_text(project: Project, tmp_path: Path) -> None:
    """A directory with a name that is not UTF-8 is refused with a clear message."""
    project.agent("echo '<response>DONE</response>'")
    strange = os.fsencode(tmp_path) + b"/\xff"
    os.rename(project.path, strange)
    done = raw(Project(Path(os.fsdecode(strange)), project.home), "run", "-p", "x")
    assert "unexpected" not in done.stderr
    assert done.returncode == 2


def test_a_prompt_file_whose_name_is_not_text(project: Project) -> None:
    """A prompt file with a name that is not UTF-8 is refused with a clear message."""
    project.agent("echo '<response>DONE</response>'")
    Path(os.fsdecode(os.fsencode(project.path) + b"/\xff")).write_text("Do it")
    done = raw(project, "run", "-f", b"\xff")
    assert "unexpected" not in done.stderr
    assert done.returncode == 2


def test_a_command_of_a_newer_version_is_refused(project: Project) -> None:
    """A queued command of an unknown kind is one clear error for a resume."""
    project.agent("echo hm")
    project.run("run", "-p", "x", "-m", "1")
    run = project.status()[0]["id"]
    db = sqlite3.connect(project.home.database)
    with db:
        db.execute("INSERT INTO commands (run, kind, body, created) VALUES (?, 'dance', '{}', 1.0)", (run,))
    db.close()
    result = project.run("resume", run, "-m", "2")
    assert result.code == 2
    assert "dance" in result.err and "unexpected" not in result.err
