"""Trouble for a harness: what counts as lost, left behind or hung, and that ours survives it."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents import project
from bench.harness.base import Finished
from bench.harness.registry import HARNESSES
from bench.ordeal import PIECES, Session, Site, Usual
from bench.survival import CASES, UNDISTURBED, Row, judge
from bench.truth import Absent

from bench import arena, ordeal, quick, survival

GREP, WHILE = HARNESSES["tag-grep"], HARNESSES["while"]
FAST = 0.05


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordeal, "PIECE_SECONDS", FAST)
    monkeypatch.setattr(ordeal, "SETTLING", 0.3)


@pytest.fixture(scope="module")
def usual() -> Usual:
    """An undisturbed run of ours on this machine, so that trouble strikes while it works."""
    return survival.usual_run(HARNESSES["ralph"])


@pytest.fixture
def place(fast: None) -> Iterator[Site]:
    """A site of the shell loop, with nothing done yet."""
    with arena.place() as base:
        yield ordeal.site(base, GREP, None)


def session(place: Site, ended: float) -> Session:
    return Session(Finished(0, "", "", place.where.project), False, (), 0.0, ended)


def wrote(place: Site, *entries: tuple[str, float, int | None]) -> None:
    """Write a ledger with these entries."""
    lines = [{"kind": kind, "at": at, "piece": piece, "pid": 1, "start": 0} for kind, at, piece in entries]
    (place.ledger / "starts").write_text("".join(json.dumps(line) + "\n" for line in lines))


def commit(place: Site, *pieces: int) -> None:
    directory = place.where.project / "pieces"
    directory.mkdir(exist_ok=True)
    for piece in pieces:
        (directory / str(piece)).touch()
    project.git(place.where.project, "add", "-A")
    project.git(place.where.project, "commit", "-q", "-m", "Pieces")


HARMLESS = Row(
    "ralph", "held pipe", 0, gone=0, again=0, orphans=0, hung=False, unfinished=False, together=0, seconds=1.0
)


# ---- counting ----


def test_a_finished_piece_that_is_not_committed_is_gone(place: Site) -> None:
    """Of two finished pieces, one is committed."""
    wrote(place, ("start", 1, None), ("end", 2, 1), ("start", 3, None), ("end", 4, 2))
    commit(place, 1)
    found = judge(place, UNDISTURBED, 0, Usual(1.0, 4), [session(place, 5)], [])
    assert (found.gone, found.again, found.unfinished) == (1, 0, True)


@pytest.mark.parametrize(("killed_at", "again"), [(2.5, 0), (3.5, 1)])
def test_only_acknowledged_iterations_count_as_repeated(place: Site, killed_at: float, again: int) -> None:
    """An iteration may be repeated if the harness was killed between the agent's exit and the next start."""
    ends = [("end", at, piece) for at, piece in ((2, 1), (4, 2), (5, 3), (6, 4), (7, None))]
    wrote(place, ("start", 1, None), ends[0], ("start", 3, None), *ends[1:])
    commit(place, 1, 2, 3, 4)
    sessions = [session(place, killed_at), session(place, 8)]
    assert judge(place, CASES["harness killed"], 0, Usual(1.0, 4), sessions, []).again == again


def test_quick_fails_on_every_kind_of_failure() -> None:
    """It also fails if the harness is missing or nothing was measured."""
    good = HARMLESS
    bad = [
        *(replace(good, gone=1), replace(good, again=1), replace(good, orphans=1), replace(good, hung=True)),
        *(replace(good, unfinished=True), replace(good, together=1)),
    ]
    assert quick.has_survived(survival.Report({}, [good], [], {}))
    assert not any(quick.has_survived(survival.Report({}, [good, each], [], {})) for each in bad)
    assert not quick.has_survived(survival.Report({}, [], [], {}))
    assert not quick.has_survived(survival.Report({}, [good], [Absent("ralph", "not there")], {}))


def test_the_tables() -> None:
    """The tables have one line per case and per harness, and count runs, not processes."""
    rows = [replace(HARMLESS, orphans=3), HARMLESS, replace(HARMLESS, case="disk full", again=2)]
    report = survival.Report({"ralph": "1"}, rows, [Absent("other", "gone fishing")], {"x": "no mounts"})
    assert [line.split()[-1] for line in survival.by_case(report).splitlines()[1:]] == [
        "0/1/0/0/0",
        "1/0/0/0/0",
    ]
    assert survival.summary(report).splitlines()[1:] == [
        "ralph 1     3     1        1     0           0         0",
        "other: not measured: gone fishing",
        "x: not measured: no mounts",
    ]


# ---- real runs ----


def test_undisturbed_every_piece_is_made_once(place: Site) -> None:
    """The worker makes one piece per iteration and prints the tag after the last."""
    found = ordeal.run(place, place.launch())
    assert place.harness.is_complete(found.finished)
    assert [entry["piece"] for entry in place.entries() if entry["kind"] == "end"] == [1, 2, 3, 4]
    assert place.is_finished and project.is_done(place.where.project)


@pytest.mark.slow
def test_a_killed_shell_loop_leaves_its_agent(fast: None) -> None:
    """The agent becomes an orphan and is killed, and the loop starts over."""
    usual = survival.usual_run(WHILE)
    with arena.place() as base:
        place = ordeal.site(base, WHILE, None)
        sessions = ordeal.harness_killed(place, random.Random(1), Usual(usual.seconds / 4, usual.ends))
        assert len(sessions[0].orphans) == 1
        assert sessions[0].finished.code == -signal.SIGKILL
        pids = [entry["pid"] for entry in place.entries()]
        assert place.is_finished and not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.slow
def test_processes_that_escape_a_shell_loop_are_counted(fast: None) -> None:
    """A process in its own session, a double fork and a daemon outlive it; the number of pieces is right."""
    found = survival.undergo(GREP, CASES["escapees"], 0, Usual(1.0, PIECES))
    assert (found.orphans, found.lost, found.unfinished) == (3, 0, False)


@pytest.mark.slow
def test_a_shell_loop_hangs_on_a_held_pipe(fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without progress counts as hung and is killed."""
    monkeypatch.setattr(ordeal, "SILENCE", 1.5)
    found = survival.undergo(GREP, CASES["held pipe"], 0, Usual(1.0, PIECES))
    assert (found.hung, found.unfinished, found.lost) == (True, True, 0)


@pytest.mark.slow
def test_two_shell_loops_run_at_the_same_time(fast: None) -> None:
    """Nothing prevents the second one from starting."""
    found = survival.undergo(GREP, CASES["started twice"], 0, Usual(0.05, PIECES))
    assert found.together > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if name != "500 MB of output"])
def test_ours_survives(case: str, usual: Usual) -> None:
    """Nothing is lost, left behind or hung, and the work is finished."""
    if case == "disk full" and not ordeal.can_mount():
        pytest.skip("cannot mount anything on this machine")
    found = survival.undergo(HARNESSES["ralph"], CASES[case], 0, usual)
    assert not found.is_bad, found
