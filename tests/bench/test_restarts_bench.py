"""Agents that are restarted until they leave DONE: their behaviour, the counting, and that ours survives."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents.attempts import AGENTS, FAMILIES, QUICK, Restarted
from bench.arena import Attended, Place
from bench.harness.base import Finished
from bench.harness.restarters import FOLDER, RESTARTERS, SUPERVISE, UNTIL
from bench.restarts import Report, Row
from bench.truth import Absent

from bench import arena, quick, restarts
from conftest import some, wait_until
from ralph.process.client import Wakeup, Warden

BY_NAME = {agent.name: agent for agent in AGENTS}
IN_THREE = BY_NAME["in three"]
FOREVER = BY_NAME["forever"]


@pytest.fixture
def place() -> Iterator[Place]:
    with arena.place() as found:
        yield found
        arena.end_survivors(found.private)


def attempt(place: Place) -> int:
    """Run one attempt of the agent by hand."""
    env = {"PATH": os.defpath, "TASK_FOLDER": str(place.project / FOLDER)}
    done = subprocess.run(
        [place.programs / "agent"], cwd=place.project, env=env, timeout=30, start_new_session=True
    )
    return done.returncode


def row(
    agent: Restarted = IN_THREE,
    code: int | None = 0,
    *,
    hung: bool = False,
    done: bool = True,
    kinds: str = "start done",
    orphans: int = 0,
) -> Row:
    seen = Attended(Finished(code, "", "", Path()), 1.0, hung, ())
    noted = [{"kind": kind} for kind in kinds.split()]
    return restarts.judge(SUPERVISE, agent, seen, noted, done, orphans)


def harm(found: Row) -> str:
    return " ".join(kind for kind in restarts.KINDS if getattr(found, kind))


# ---- the agents ----


def test_names_are_unique_and_the_quick_form_has_some_of_each() -> None:
    """There are five families with at least forty agents."""
    assert len(AGENTS) >= 40
    assert len({agent.name for agent in AGENTS}) == len(AGENTS)
    assert set(QUICK) <= set(BY_NAME)
    assert {agent.family for agent in AGENTS if agent.name in QUICK} == set(FAMILIES)
    assert [agent.name for agent in AGENTS if not agent.finishes] == ["forever"]


@pytest.mark.parametrize("agent", some(FAMILIES["DONE liars"], 2), ids=lambda agent: repr(agent.name))
def test_a_liar_leaves_no_done_until_its_last_attempt(place: Place, agent: Restarted) -> None:
    """The false DONE can be made twice, and is replaced in the end."""
    restarts.prepare(place, agent)
    told = []
    for _ in range(3):
        assert attempt(place) == 0
        told.append(restarts.is_done(place))
    assert told == [False, False, True]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a directory", stat.S_IFDIR),
        ("a named pipe", stat.S_IFIFO),
        ("a link to nowhere", stat.S_IFLNK),
        ("a link to a folder", stat.S_IFLNK),
        ("a socket", stat.S_IFSOCK),
    ],
)
def test_a_false_done_is_what_its_name_says(place: Place, name: str, kind: int) -> None:
    """There are five kinds of files in place of DONE."""
    restarts.prepare(place, BY_NAME[name])
    attempt(place)
    assert stat.S_IFMT((place.project / FOLDER / "DONE").lstat().st_mode) == kind


def test_an_agent_counts_its_attempts_and_repeats_the_last(place: Place) -> None:
    """Exit codes and signals are real."""
    attempts = (("exit 1",), ("die SEGV",), ("group",), ("finish", "exit 3"))
    restarts.prepare(place, Restarted("f", "a", attempts))
    codes = [attempt(place) for _ in range(5)]
    assert codes == [1, -signal.SIGSEGV, -signal.SIGKILL, 3, 3]
    assert [entry["kind"] for entry in arena.recorded(place.private)].count("start") == 5
    assert restarts.is_done(place)


@pytest.mark.parametrize("word", ["session", "fork", "daemon"])
def test_an_escaped_process_outlives_the_attempt(place: Place, word: str) -> None:
    """It is identified by pid and start time, and can be killed."""
    restarts.prepare(place, Restarted("f", "a", ((f"escape {word}",),)))
    attempt(place)
    (away,) = [entry["pid"] for entry in arena.recorded(place.private) if entry["kind"] == "escaped"]
    assert os.getsid(away) != os.getsid(0)
    assert len(arena.end_survivors(place.private)) == 1
    wait_until(lambda: not _lives(away))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- counting ----


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row(), ""),
        (row(done=False), "false"),
        (row(code=1), "missed"),
        (row(kinds="start start done start"), "missed"),
        (row(code=None, hung=True), "missed hung"),
        (row(code=None, hung=True, done=False, kinds="start"), "hung unfinished"),
        (row(code=2, done=False, kinds="start"), "unfinished"),
        (row(FOREVER, code=1, done=False, kinds="start start"), ""),
        (row(FOREVER, code=None, hung=True, done=False, kinds="start"), "hung"),
        (row(orphans=2), "orphans"),
    ],
)
def test_a_run_is_false_missed_hung_unfinished_or_well(found: Row, words: str) -> None:
    """A hang with DONE is also a miss; an agent that never finishes cannot be unfinished."""
    assert harm(found) == words


def test_the_quick_form_fails_on_what_must_never_happen() -> None:
    """A stop that reports a false DONE is fine; an early exit without a reason is not."""
    good = [row(), row(code=2, done=False, kinds="start")]
    bad = [row(done=False), row(code=1), row(code=1, done=False), row(code=None, hung=True), row(orphans=1)]
    assert quick.is_good(Report({}, good, []))
    assert not any(quick.is_good(Report({}, [*good, each], [])) for each in bad)
    assert not quick.is_good(Report({}, [], []))
    assert not quick.is_good(Report({}, good, [Absent("x", "gone")]))


def test_the_tables_count_runs() -> None:
    """The tables have counts by family, totals, and the harnesses that were not measured."""
    report = Report({SUPERVISE.name: "1"}, [row(), row(orphans=3)], [Absent("until -f", "no sh")])
    assert restarts.by_family(report).splitlines()[1].split() == ["honest", "2", "0/0/0/0/1"]
    lines = restarts.summary(report).splitlines()
    assert lines[1].split() == ["ralph", "supervise", *["2", "0", "0", "0", "0", "1", "2"]]
    assert lines[2] == "until -f: not measured: no sh"


def test_families_are_chosen_by_part_of_their_name() -> None:
    """Without a name, all families are chosen."""
    assert {agent.family for agent in restarts.chosen(["liar", "hang"])} == {"DONE liars", "hangers"}
    assert restarts.chosen([]) == list(AGENTS)


# ---- real runs ----


@pytest.mark.parametrize("name", RESTARTERS)
def test_every_harness_completes_an_honest_agent(name: str) -> None:
    """It takes three attempts and leaves no process behind."""
    found = restarts.run(RESTARTERS[name], IN_THREE)
    assert (found.complete, found.done, found.starts, harm(found)) == (True, True, 3, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "name", "wrong"),
    [
        ("until -e", "a directory", "false"),
        ("until -f", "a directory", ""),
        ("until -e", "a link to nowhere", ""),
        ("until -e", "DONE, then exit code 1", ""),
        ("until -e", "takes its group along", "unfinished"),
        ("until -e", "a daemon, after DONE", "orphans"),
        ("until -e", "silent forever", "hung unfinished"),
        ("until -f", "forever", "hung"),
    ],
)
def test_the_loops_behave_like_common_loops(
    monkeypatch: pytest.MonkeyPatch, loop: str, name: str, wrong: str
) -> None:
    """One accepts a directory; none kills hung or escaped processes."""
    monkeypatch.setattr(restarts, "SETTLING", 0.3)
    if "hung" in wrong:
        monkeypatch.setattr(restarts, "PATIENCE", 3.0)
    assert harm(restarts.run(RESTARTERS[loop], BY_NAME[name])) == wrong


@pytest.mark.slow
def test_no_process_outlives_the_measurement() -> None:
    """Processes that hang, escape or ignore TERM are gone when the run is judged."""
    with arena.place() as where:
        restarts.prepare(where, BY_NAME["all, ignoring TERM, after DONE"])
        with Warden(Wakeup()) as warden:
            seen = arena.attend(warden, where, UNTIL.launch(where.private), 10.0, 0.3)
        assert len(seen.orphans) == 3
        assert not [entry for entry in arena.recorded(where.private) if _lives(entry["pid"])]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_form_is_good() -> None:
    """There is no false or missed completion, no hang and no orphan in any family."""
    report = quick.restart()
    assert quick.is_good(report), [each for each in report.rows if each.is_bad]
