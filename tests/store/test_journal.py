"""The journal: what is written when, what a crash leaves, and that replaying it gives the same state."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import RALPH, Project, wait_until
from journal_support import journal_of, kinds_of, replayed
from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    Cause,
    Check,
    Checked,
    Command,
    Did,
    Ended,
    Flow,
    Limits,
    Look,
    Phase,
    Plan,
    PromptSource,
    Ran,
    RunAgent,
    Seen,
    State,
    Steer,
    Stop,
    Verdict,
)
from ralph.errors import RalphError
from ralph.store.database import Busy, DiskFull
from ralph.store.home import Home
from ralph.store.journal import Journal, JournalStep, LoadedRun, load, steps
from ralph.store.runs import Runs
from ralph.views.status import Summary, summaries

PLAN = Plan(
    "",
    Flow.RUN,
    "/work",
    (AgentSpec("a", "custom", "a"),),
    PromptSource("x"),
    checks=(Check("c", "command"),),
    limits=Limits(iterations=3),
)
SCRIPT: tuple[Any, ...] = (
    Seen(101.0, 0.1),
    Steer(101.5, 1, "hm"),
    Ran(102.0, Ended.OK, "a", 1.0, claim=True, text="🦀\0"),
    Seen(103.0, 0.1),
    Checked(104.0, 1.0, (Verdict("c", True),)),
    Did(105.0),
)
"""The events of a run with one iteration, in order."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def db(home: Home) -> Iterator[sqlite3.Connection]:
    """A connection that writes; the tests read through another one."""
    with closing(home.runs().db) as connection:
        yield connection


@dataclass(frozen=True)
class Begun:
    """A run with its plan written, and nothing else."""

    run: str
    state: State
    journal: Journal


def begin(db: sqlite3.Connection, home: Home) -> Begun:
    run = Runs(db, home.database).create(PLAN, "/work", "/work")
    state = machine.start(replace(PLAN, run=run.id), run.created)
    return Begun(run.id, state, Journal(db, home.database, run.id))


def play(journal: Journal, state: State, facts: tuple[Any, ...]) -> State:
    """What the loop does with the events."""
    for fact in facts:
        if isinstance(fact, Command):
            state = machine.apply(state, fact)
            journal.command(fact, state)
            continue
        step = machine.next_step(state)
        journal.begin(step, fact.at - fact.took)
        journal.flush()
        state = machine.apply(state, fact)
        journal.complete(step, fact, state)
        journal.flush()
    return state


def loaded(home: Home, run: str) -> LoadedRun:
    with closing(home.runs().db) as db:
        return load(db, home.database, run)


# ---- what is written when ----


def test_a_run_starts_with_its_plan(db: sqlite3.Connection, home: Home) -> None:
    """The plan is row 0, complete, with the first state."""
    begun = begin(db, home)
    assert journal_of(home, begun.run) == [
        JournalStep(begun.run, 0, begun.state.now, begun.state.now, begun.state.plan)
    ]
    assert loaded(home, begun.run) == LoadedRun(begun.state, None)


def test_a_step_is_on_disk_before_it_starts(db: sqlite3.Connection, home: Home) -> None:
    """While an agent works, its row has no result yet, and the look before it is complete."""
    begun = begin(db, home)
    state = play(begun.journal, begun.state, SCRIPT[:1])
    step = machine.next_step(state)
    assert isinstance(step, RunAgent)
    number = begun.journal.begin(step, 101.0)
    begun.journal.flush()
    *_, look, agent = journal_of(home, begun.run)
    assert (look.step, look.result, look.seq, look.is_in_hand) == (Look(), SCRIPT[0], 1, False)
    assert (agent, agent.is_in_hand) == (JournalStep(begun.run, number, 101.0, None, step), True)
    assert loaded(home, begun.run) == LoadedRun(state, agent)


def test_a_look_is_written_with_the_next_step(db: sqlite3.Connection, home: Home) -> None:
    """A look has no effect and needs no separate transaction."""
    begun = begin(db, home)
    begun.journal.begin(Look(), 100.5)
    begun.journal.flush()
    state = machine.apply(begun.state, SCRIPT[0])
    begun.journal.complete(Look(), SCRIPT[0], state)
    begun.journal.flush()
    assert kinds_of(journal_of(home, begun.run)) == ["plan"]
    begun.journal.begin(machine.next_step(state), 101.0)
    begun.journal.flush()
    assert kinds_of(journal_of(home, begun.run)) == ["plan", "look", "run_agent"]


def test_a_whole_run(db: sqlite3.Connection, home: Home) -> None:
    """Every fact is a row, numbered without gaps, and the last state is the one to continue from."""
    begun = begin(db, home)
    state = play(begun.journal, begun.state, SCRIPT)
    found = journal_of(home, begun.run)
    assert [entry.seq for entry in found] == [0, 1, 2, 3, 4, 5, 6]
    assert kinds_of(found) == ["plan", "look", "steer", "run_agent", "look", "run_checks", "stop"]
    facts = [entry.step if isinstance(entry.step, Steer) else entry.result for entry in found[1:]]
    assert tuple(facts) == SCRIPT
    assert [entry.end and entry.end.stop for entry in found] == [None] * 6 + [state.stop]
    assert state.stop == Stop(Cause.PROVED, "all checks passed")
    assert replayed(home, begun.run) == state
    assert loaded(home, begun.run) == LoadedRun(state, None, is_over=True)


@pytest.mark.parametrize("cut", range(len(SCRIPT) + 1))
def test_any_prefix_is_a_state_to_continue_from(db: sqlite3.Connection, home: Home, cut: int) -> None:
    """A run that ended after any of its facts continues with a new writer to the same end."""
    begun = begin(db, home)
    states = [begun.state]
    for fact in SCRIPT:
        states.append(machine.apply(states[-1], fact))
    play(begun.journal, begun.state, SCRIPT[:cut])
    with closing(home.runs().db) as other:
        kept = load(other, home.database, begun.run).state
        journal = Journal(other, home.database, begun.run)
        assert play(journal, kept, SCRIPT[states.index(kept) :]) == states[-1]
    assert cut - states.index(kept) <= 2, "more than a look and a command was lost"
    assert replayed(home, begun.run) == states[-1]


def test_a_run_that_has_only_decided_to_stop_is_not_over(db: sqlite3.Connection, home: Home) -> None:
    """Its final work is not done before the stop itself is complete."""
    begun, runs = begin(db, home), Runs(db, home.database)
    state = play(begun.journal, begun.state, SCRIPT[:-1])
    step = machine.next_step(state)
    begun.journal.begin(step, 105.0)
    begun.journal.flush()
    assert loaded(home, begun.run) == LoadedRun(state, journal_of(home, begun.run)[-1])
    assert state.stop is not None and runs.brief(begun.run).stop is None
    begun.journal.complete(step, SCRIPT[-1], machine.apply(state, SCRIPT[-1]))
    begun.journal.flush()
    assert runs.brief(begun.run).stop == state.stop


def test_rows_can_be_followed(db: sqlite3.Connection, home: Home) -> None:
    """A view can ask for the rows after those it has seen."""
    begun = begin(db, home)
    play(begun.journal, begun.state, SCRIPT)
    with closing(home.runs().db) as other:
        assert [entry.seq for entry in steps(other, home.database, begun.run, after=4)] == [5, 6]
        assert [entry.seq for entry in steps(other, home.database, begun.run, looks=False)] == [0, 2, 3, 5, 6]
        assert list(steps(other, home.database, "another run")) == []


def test_runs_do_not_mix(db: sqlite3.Connection, home: Home) -> None:
    """Two runs in one store have separate numbers and states."""
    one, other = begin(db, home), begin(db, home)
    play(one.journal, one.state, SCRIPT[:3])
    assert [row.seq for row in journal_of(home, one.run)] == [0, 1, 2, 3]
    assert [row.seq for row in journal_of(home, other.run)] == [0]
    assert loaded(home, other.run) == LoadedRun(other.state, None)


def test_time_may_go_backwards(db: sqlite3.Connection, home: Home) -> None:
    """The order of rows is that of their numbers, whatever the clock said."""
    begun = begin(db, home)
    back = tuple(replace(fact, at=1000.0 - fact.at) for fact in SCRIPT)
    state = play(begun.journal, begun.state, back)
    found = journal_of(home, begun.run)
    assert [row.ended for row in found[1:]] == [899.0, 898.5, 898.0, 897.0, 896.0, 895.0]
    assert replayed(home, begun.run) == state
    assert loaded(home, begun.run) == LoadedRun(state, None, is_over=True)


# ---- a full disk ----


def test_nothing_is_lost_when_the_disk_is_full(db: sqlite3.Connection, home: Home) -> None:
    """D7: after a flush that found no space, the next one writes everything, in order and once."""
    begun = begin(db, home)
    journal, state = begun.journal, play(begun.journal, begun.state, SCRIPT[:2])
    long = Ran(102.0, Ended.OK, "a", 1.0, claim=True, text="x" * 200_000)
    step = machine.next_step(state)
    journal.begin(step, 101.0)
    journal.flush()
    before = journal_of(home, begun.run)
    pages = int(db.execute("PRAGMA page_count").fetchone()[0])
    db.execute(f"PRAGMA max_page_count = {pages}")
    state = machine.apply(state, long)
    journal.complete(step, long, state)
    for _ in range(3):
        with pytest.raises(DiskFull, match="No space left for"):
            journal.flush()
        assert journal_of(home, begun.run) == before
        assert not db.in_transaction
    db.execute("PRAGMA max_page_count = 1000000")
    journal.flush()
    state = play(journal, state, SCRIPT[3:])
    found = journal_of(home, begun.run)
    assert [row.seq for row in found] == [0, 1, 2, 3, 4, 5, 6]
    assert replayed(home, begun.run) == state


@pytest.mark.parametrize("what", ["nothing", "another store"])
def test_a_deleted_store_is_an_error(db: sqlite3.Connection, home: Home, what: str) -> None:
    """A store that was deleted during the run is reported, even if there is a new one in its place."""
    begun = begin(db, home)
    play(begun.journal, begun.state, SCRIPT[:3])
    for file in home.path.glob("ralph.db*"):
        file.rename(home.path / f"old-{file.name}")
    if what == "another store":
        home.runs().db.close()
    with pytest.raises(RalphError, match="was removed during the run"):
        play(begun.journal, begun.state, SCRIPT[:3])


def test_a_locked_store_is_waited_for(db: sqlite3.Connection, home: Home) -> None:
    """After a flush that found the store locked by another process, the next one writes everything."""
    begun = begin(db, home)
    journal, state = begun.journal, play(begun.journal, begun.state, SCRIPT[:3])
    db.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(home.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            play(journal, state, SCRIPT[3:5])
        other.execute("ROLLBACK")
    journal.flush()
    assert [row.seq for row in journal_of(home, begun.run)] == [0, 1, 2, 3, 4, 5]


def test_a_run_that_is_not_in_the_store_is_named(db: sqlite3.Connection, home: Home) -> None:
    """Loading a run that another process has removed is one clear error."""
    with pytest.raises(RalphError, match=f"^Run unknown is not in the store {home.database}"):
        load(db, home.database, "unknown")


# ---- real runs ----


def newest(project: Project) -> Summary:
    """The newest run, as `ralph status` shows it."""
    runs = project.home.runs()
    with closing(runs.db):
        return summaries(runs)[0]


def assert_replays(project: Project) -> State:
    """The journal of the project's newest run replays to its final state."""
    run = newest(project).id
    found = journal_of(project.home, run)
    assert [entry.seq for entry in found] == list(range(len(found)))
    return replayed(project.home, run)


def test_replay_of_a_run_with_feedback_guidance_and_a_pause(project: Project) -> None:
    """Replaying a run that was steered, paused and resumed, with failed and passed checks, gives its end."""
    project.agent(
        """
        printf 'é\\0\\377 iteration %s\\n' "$RALPH_ITERATION"
        touch started
        [ -e finish ] && touch fixed
        echo '<response>DONE</response>'
        """,
        guardrails=[{"command": "test -f fixed"}, {"command": "echo ok"}],
    )
    process = project.start("run", "-p", "Fix it 🦀", "-m", "100000")
    wait_until(lambda: (project.path / "started").exists())
    run = newest(project).id
    assert project.run("steer", run, "look at é 🦀").code == 0
    assert project.run("pause", run).code == 0
    wait_until(lambda: newest(project).state == "paused")
    (project.path / "finish").touch()
    assert project.run("resume", run).code == 0
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    state = assert_replays(project)
    assert state.stop and state.stop.cause is Cause.PROVED
    kinds = set(kinds_of(journal_of(project.home, run)))
    assert {"plan", "look", "run_agent", "run_checks", "steer", "pause", "hold", "resume", "stop"} == kinds
    prompts = [file.read_text() for file in (project.path / ".ralph").glob("prompt_*.txt")]
    assert sum("Guidance from the user: look at é 🦀" in prompt for prompt in prompts) == 1


@pytest.mark.slow
def test_guidance_is_in_the_very_next_prompt(project: Project) -> None:
    """Guidance that was queued before an iteration ended is in the prompt of the next one."""
    project.agent(f'{RALPH} steer "$RALPH_RUN_ID" "from iteration $RALPH_ITERATION"; echo hm')
    project.run("run", "-p", "x", "-m", "4")
    late = [
        number
        for number in range(2, 5)
        if f"from iteration {number - 1}"
        not in (project.path / f".ralph/prompt_{number:03d}.txt").read_text()
    ]
    assert late == []


def test_replay_of_a_run_that_continues_after_its_limit(project: Project) -> None:
    """A run that ended at a limit and was resumed with a higher one has one journal."""
    project.agent("[ $RALPH_ITERATION = 3 ] && echo '<response>DONE</response>' || exit 1")
    assert project.run("run", "-p", "x", "-m", "2").code == 1
    assert project.run("resume", "-m", "5").code == 0
    state = assert_replays(project)
    assert (state.iteration, state.limits.iterations) == (3, 5)


def test_replay_of_a_cancelled_run(project: Project) -> None:
    """Cancelling in the middle of an iteration is a row like any other."""
    project.agent("touch started; sleep 60")
    process = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "started").exists())
    assert project.run("cancel", newest(project).id).code == 0
    process.communicate(timeout=30)
    assert process.returncode == 130
    state = assert_replays(project)
    assert (state.stop and state.stop.cause, state.iteration) == (Cause.CANCELLED, 0)


def test_replay_of_a_run_that_failed(project: Project) -> None:
    """A run that the driver had to give up replays to the same end, reason and time."""
    project.agent("rm -rf .ralph; ln -s /nowhere .ralph; echo hm", guardrails=[{"command": "true"}])
    assert project.run("run", "-p", "x").code == 2
    state = assert_replays(project)
    assert state.stop and state.stop.cause is Cause.CONFIG


def killed_in_iteration(project: Project, number: int) -> str:
    """Start a run and kill ralph during an iteration; returns the run's id."""
    process = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / f"started{number}").exists())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return newest(project).id


HANGS_ONCE = """
echo "iteration $RALPH_ITERATION"
if [ "$RALPH_ITERATION" = 2 ] && [ ! -e again ]; then touch again started2; sleep 60; fi
[ "$RALPH_ITERATION" = 3 ] && echo '<response>DONE</response>'
exit 0
"""


def test_an_interrupted_iteration_is_repeated(project: Project) -> None:
    """After kill -9 the agent's row is completed as interrupted, and the iteration starts again."""
    project.agent(HANGS_ONCE)
    run = killed_in_iteration(project, 2)
    assert newest(project).state == "crashed"
    half = journal_of(project.home, run)[-1]
    assert isinstance(half.step, RunAgent) and half.is_in_hand and half.result is None
    result = project.run("resume")
    assert result.code == 0, result.err
    assert "Repeating the interrupted iteration." in result.err
    state = assert_replays(project)
    assert state.iteration == 3
    found = journal_of(project.home, run)
    mended = next(row for row in found if row.seq == half.seq)
    assert isinstance(mended.result, Ran)
    assert (mended.result.ended, mended.result.detail) == (Ended.INTERRUPTED, "ralph was killed")
    assert [row.step.iteration for row in found if isinstance(row.step, RunAgent)] == [1, 2, 2, 3]


def test_a_finished_step_is_not_repeated(project: Project) -> None:
    """After kill -9 in a check, the agent's iteration and the check before it are not repeated."""
    project.agent(
        "echo x >> agents; echo '<response>DONE</response>'",
        guardrails=[
            {"command": "echo x >> first"},
            {"command": "[ -e again ] || { touch again started1; sleep 60; }"},
        ],
    )
    killed_in_iteration(project, 1)
    assert project.run("resume").code == 0
    counts = {name: (project.path / name).read_text().count("x") for name in ("agents", "first")}
    assert counts == {"agents": 1, "first": 1}
    state = replayed(project.home, newest(project).id)
    assert state.iteration == 1


def test_commands_to_a_dead_run_reach_its_successor(project: Project) -> None:
    """Guidance that was queued while nothing ran is in the first prompt after the resume."""
    project.agent(HANGS_ONCE)
    run = killed_in_iteration(project, 2)
    assert project.run("steer", run, "be quick").code == 0
    assert project.run("resume", run).code == 0
    assert "Guidance from the user: be quick" in (project.path / ".ralph/prompt_002.txt").read_text()
    assert_replays(project)


def test_cancelling_a_dead_run_counts_its_cost(project: Project) -> None:
    """The cancel journals the cost of an interrupted iteration just as a resume would."""
    project.agent(HANGS_ONCE)
    run = killed_in_iteration(project, 2)
    assert project.run("cancel", run).code == 0
    assert_replays(project)
    assert [row.seq for row in journal_of(project.home, run) if row.is_in_hand] == []


def test_a_cancelled_dead_run_can_continue(project: Project) -> None:
    """A cancelled run is not lost: resume continues where it was."""
    project.agent(HANGS_ONCE)
    run = killed_in_iteration(project, 2)
    assert project.run("cancel", run).code == 0
    assert newest(project).outcome == "interrupted"
    assert project.run("resume", run).code == 0
    assert assert_replays(project).iteration == 3


def test_two_projects_write_into_one_store_at_once(project: Project, tmp_path: Path) -> None:
    """Runs of several projects share a store; each journal is complete and replays to its own end."""
    projects = [Project(tmp_path / f"p{number}", project.home) for number in range(3)]
    for one in projects:
        one.path.mkdir()
        one.agent("echo $RALPH_ITERATION", guardrails=[{"command": "false"}, {"command": "true"}])
    started = [one.start("run", "-p", "x", "-m", "10") for one in projects]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
    found = {status["directory"]: status["id"] for status in project.status()}
    assert set(found) == {str(one.path) for one in projects}
    for directory, id in found.items():
        mine = journal_of(project.home, id)
        state = replayed(project.home, id)
        assert (state.plan.directory, state.iteration, state.phase) == (directory, 10, Phase.BEFORE)
        assert [row.seq for row in mine] == list(range(len(mine)))


def test_the_store_is_not_much_bigger_than_what_it_holds(project: Project) -> None:
    """Hundreds of small iterations take about as much space as their rows, not several times as much."""
    project.agent("true")
    project.run("run", "-p", "x", "-m", "100")
    with closing(sqlite3.connect(project.home.database)) as db:
        (held,) = db.execute(
            "SELECT sum(length(body) + length(coalesce(result, '')) + length(coalesce(state, ''))) FROM journal"
        ).fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert project.home.database.stat().st_size < 2 * held


def test_a_reader_does_not_block_the_run(project: Project) -> None:
    """A view that keeps a transaction open for the whole run does not delay it."""
    project.agent("touch started; while [ ! -e go ]; do sleep 0.02; done; echo '<response>DONE</response>'")
    process = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "started").exists())
    with closing(sqlite3.connect(project.home.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = reader.execute("SELECT count(*) FROM journal").fetchone()
        (project.path / "go").touch()
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, out + err
        assert reader.execute("SELECT count(*) FROM journal").fetchone() == count


def test_the_process_of_a_finished_run_is_forgotten(project: Project) -> None:
    """A finished run has no process in the store, so that a reused pid means nothing."""
    project.agent("echo '<response>DONE</response>'")
    project.run("run", "-p", "x")
    runs = project.home.runs()
    assert [run.pid for run in runs.all()] == [None]
    runs.db.close()
