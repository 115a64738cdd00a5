"""The board of parallel tasks: its rules, and random histories of results, crashes, cancels and additions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ralph.core.board import (
    ENDED,
    Action,
    Board,
    Cycle,
    Fact,
    Job,
    JobAdded,
    JobCancelled,
    JobState,
    Merge,
    Merged,
    MergeVerdict,
    Role,
    RoleRunEnded,
    Running,
    StartRun,
    StopRun,
    apply,
    begin,
    find_cycle,
    is_over,
    open_board,
    ready,
)
from ralph.core.model import RunVerdict

CODER = Role("coder", "claude")
REVIEWER = Role("reviewer", "codex")
TESTER = Role("tester", "codex")


def a_job(
    id: str, *depends_on: str, roles: tuple[Role, ...] = (CODER,), priority: int = 0, attempts: int = 1
) -> Job:
    return Job(id, roles, priority=priority, depends_on=depends_on, attempts=attempts)


def proved(id: str, attempt: int = 1) -> RoleRunEnded:
    return RoleRunEnded(id, attempt, RunVerdict.PROVED)


def refused(id: str, reason: str = "not good") -> RoleRunEnded:
    return RoleRunEnded(id, 1, RunVerdict.REFUSED, reason)


def failed(id: str, attempt: int = 1, reason: str = "broke") -> RoleRunEnded:
    return RoleRunEnded(id, attempt, RunVerdict.FAILED, reason)


def lost(id: str, attempt: int = 1) -> RoleRunEnded:
    return RoleRunEnded(id, attempt, RunVerdict.LOST)


def merged(id: str, verdict: MergeVerdict = MergeVerdict.OK, reason: str = "") -> Merged:
    return Merged(id, verdict, reason)


def begun(board: Board) -> Board:
    """Begin everything that is ready."""
    while actions := ready(board):
        for action in actions:
            board = begin(board, action)
    return board


def after(board: Board, *facts: Fact) -> Board:
    """Apply the facts in order, beginning everything that is ready before each of them."""
    for fact in facts:
        board = apply(begun(board), fact)
    return board


def states(board: Board) -> dict[str, str]:
    return {job.id: job.state.value for job in board.jobs}


# ---- one job ----


def test_a_job_from_start_to_end() -> None:
    """A job runs its roles in order, is merged, and then the board is over."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1)
    seen: list[tuple[Action, ...]] = []
    for fact in (proved("a"), proved("a"), merged("a")):
        seen.append(ready(board))
        board = after(board, fact)
    assert seen == [
        (StartRun("a", "coder", 1, "claude"),),
        (StartRun("a", "reviewer", 1, "codex"),),
        (Merge("a", 1),),
    ]
    assert (ready(board), states(board), is_over(board)) == ((), {"a": "done"}, True)


def test_nothing_begins_twice() -> None:
    """A run that has begun is not offered again, and the board waits for it to end."""
    board = begun(open_board([a_job("a")], slots=3))
    running = replace(a_job("a"), state=JobState.ACTIVE, running=(Running(1, CODER),))
    assert (board.job("a"), ready(board), is_over(board)) == (running, (), False)


def test_an_empty_board_is_over() -> None:
    """A board without jobs has nothing to do and is over."""
    board = open_board([], slots=1)
    assert (ready(board), is_over(board)) == ((), True)


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (failed("a"), "broke"),
        (refused("a"), "not good"),
    ],
)
def test_a_run_that_proves_nothing_fails_the_job(fact: RoleRunEnded, reason: str) -> None:
    """A first role that fails or refuses fails the job with its reason."""
    board = after(open_board([a_job("a")], slots=1), fact)
    assert board.job("a") == replace(a_job("a"), state=JobState.FAILED, reason=reason)
    assert (ready(board), is_over(board)) == ((), True)


def test_a_run_that_was_stopped_cancels_the_job() -> None:
    """A run that was stopped cancels its job instead of failing it."""
    board = after(open_board([a_job("a")], slots=1), RoleRunEnded("a", 1, RunVerdict.STOPPED))
    assert board.job("a") == replace(a_job("a"), state=JobState.CANCELLED, reason="cancelled")


def test_a_later_role_that_fails_fails_the_job() -> None:
    """A reviewer whose run fails (rather than refuses) fails the job."""
    board = after(open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1), proved("a"), failed("a"))
    assert (states(board), board.job("a").reason) == ({"a": "failed"}, "broke")


@pytest.mark.parametrize("roles", [(CODER,), (CODER, REVIEWER)])
def test_a_lost_run_is_started_again(roles: tuple[Role, ...]) -> None:
    """A run whose process is gone starts again in the same role, however often that happens."""
    board = after(open_board([a_job("a", roles=roles)], slots=1), *[proved("a")] * (len(roles) - 1))
    started = ready(board)
    assert [ready(after(board, *[lost("a")] * times)) for times in (1, 2, 9)] == [started] * 3


# ---- going back ----


def test_a_refusal_sends_the_task_back_with_its_reason() -> None:
    """A refused task starts again at its first role, which gets the reason."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER, TESTER))], slots=1)
    board = after(board, proved("a"), proved("a"), refused("a", "no tests"))
    assert ready(board) == (StartRun("a", "coder", 1, "claude", "no tests"),)


def test_the_reason_is_passed_on_once() -> None:
    """The reason for a refusal goes to the first role and not to the roles after it."""
    board = after(
        open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1), proved("a"), refused("a"), proved("a")
    )
    assert ready(board) == (StartRun("a", "reviewer", 1, "codex", ""),)


def test_a_lost_run_gets_the_reason_again() -> None:
    """A run that starts again after a crash gets the same reason as the lost one."""
    board = after(
        open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1), proved("a"), refused("a"), lost("a")
    )
    assert ready(board) == (StartRun("a", "coder", 1, "claude", "not good"),)


@pytest.mark.parametrize(("times", "state"), [(1, "active"), (3, "active"), (4, "failed")])
def test_a_task_is_sent_back_at_most_three_times(times: int, state: str) -> None:
    """The fourth refusal fails the job."""
    board = after(
        open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1), *[proved("a"), refused("a")] * times
    )
    assert (states(board), board.job("a").sent_back) == ({"a": state}, min(times, 3))


def test_refusals_of_different_roles_are_counted_together() -> None:
    """Reviewer and tester cannot send a task back three times each."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER, TESTER))], slots=1)
    by_reviewer, by_tester = [proved("a"), refused("a")], [proved("a"), proved("a"), refused("a")]
    board = after(board, *by_reviewer, *by_tester, *by_reviewer, *by_tester)
    assert states(board) == {"a": "failed"}


# ---- merging ----


@pytest.mark.parametrize("verdict", [MergeVerdict.CONFLICT, MergeVerdict.RED])
@pytest.mark.parametrize("second", [MergeVerdict.CONFLICT, MergeVerdict.RED])
def test_a_merge_that_fails_twice_blocks_the_job(verdict: MergeVerdict, second: MergeVerdict) -> None:
    """A merge conflict or a failed check after the merge sends the task back once; the next one blocks it."""
    board = after(open_board([a_job("a")], slots=1), proved("a"), merged("a", verdict, "in x.py"))
    assert ready(board) == (StartRun("a", "coder", 1, "claude", "in x.py"),)
    board = after(board, proved("a"), merged("a", second, "in y.py"))
    assert (states(board), board.job("a").reason, is_over(board)) == ({"a": "blocked"}, "in y.py", True)


def test_a_task_merged_at_the_second_try_is_done() -> None:
    """After a conflict is resolved, the task goes through all roles again and is merged."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1)
    board = after(
        board, proved("a"), proved("a"), merged("a", MergeVerdict.CONFLICT), proved("a"), proved("a")
    )
    assert (ready(board), states(after(board, merged("a")))) == ((Merge("a", 1),), {"a": "done"})


def test_a_held_merge_blocks_the_job() -> None:
    """A merge that needs a person's approval blocks the job and everything that depends on it."""
    board = open_board([a_job("a"), a_job("b", "a")], slots=1)
    board = after(board, proved("a"), merged("a", MergeVerdict.HELD, "touches protected files"))
    assert states(board) == {"a": "blocked", "b": "blocked"}
    assert [job.reason for job in board.jobs] == ["touches protected files", "depends on a (blocked)"]


def test_a_lost_merge_is_begun_again() -> None:
    """A merge whose process is gone is requested again and uses no retry."""
    board = after(open_board([a_job("a")], slots=1), proved("a"), *[merged("a", MergeVerdict.LOST)] * 5)
    assert (ready(board), board.job("a").merge_retries) == ((Merge("a", 1),), 0)


def test_one_merge_at_a_time() -> None:
    """Proved jobs are merged one after another, in order of priority."""
    board = begun(
        open_board([a_job("a", priority=2), a_job("b", priority=1), a_job("c", priority=2)], slots=3)
    )
    for id in "cab":
        board = apply(board, proved(id))
    order = []
    while actions := ready(board):
        assert [type(action) for action in actions] == [Merge]
        order.append(actions[0].job)
        board = after(board, merged(actions[0].job))
    assert order == ["b", "a", "c"]


def test_a_merge_leaves_the_slots_to_others() -> None:
    """A job that is being merged leaves its slot to another job."""
    board = after(open_board([a_job("a"), a_job("b")], slots=1), proved("a"))
    assert ready(board) == (Merge("a", 1), StartRun("b", "coder", 1, "claude"))


# ---- starting order ----


def test_a_job_waits_until_its_dependencies_are_merged() -> None:
    """A job starts only when every dependency is done; proved is not enough."""
    board = begun(open_board([a_job("c", "a", "b"), a_job("a"), a_job("b")], slots=3))
    offered = []
    for fact in (proved("a"), merged("a"), proved("b"), merged("b")):
        board = after(board, fact)
        offered.append([action for action in ready(board) if isinstance(action, StartRun)])
    assert offered == [[], [], [], [StartRun("c", "coder", 1, "claude")]]


def test_a_dependency_named_twice_counts_once() -> None:
    """A job that names the same dependency twice starts like any other."""
    board = after(open_board([a_job("b", "a", "a"), a_job("a")], slots=1), proved("a"), merged("a"))
    assert ready(board) == (StartRun("b", "coder", 1, "claude"),)


@pytest.mark.parametrize("fact", [failed("a"), JobCancelled("a")])
def test_all_dependents_of_a_failed_job_are_blocked(fact: Fact) -> None:
    """Every direct and indirect dependent of a job that will never be merged is blocked, with the cause."""
    board = after(open_board([a_job("c", "b"), a_job("b", "a"), a_job("a"), a_job("d")], slots=1), fact)
    state = board.job("a").state
    assert [(job.id, job.state, job.reason) for job in board.jobs[:2]] == [
        ("c", JobState.BLOCKED, "depends on b (blocked)"),
        ("b", JobState.BLOCKED, f"depends on a ({state})"),
    ]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.BLOCKED, JobState.CANCELLED])
def test_a_board_opened_with_a_failed_job_blocks_its_dependents(state: JobState) -> None:
    """A board reopened after a restart does not wait for a job that will never be merged."""
    board = open_board([replace(a_job("a"), state=state), a_job("b", "a")], slots=1)
    assert (states(board)["b"], is_over(board)) == ("blocked", True)


def test_a_board_opened_with_a_done_job_starts_its_dependents() -> None:
    """A board reopened after a restart starts the jobs that depend on a done job."""
    board = open_board([replace(a_job("a"), state=JobState.DONE), a_job("b", "a")], slots=1)
    assert ready(board) == (StartRun("b", "coder", 1, "claude"),)


def test_an_unknown_dependency_is_refused() -> None:
    """A job that depends on an unknown job is refused."""
    with pytest.raises(ValueError, match="nobody"):
        open_board([a_job("a", "nobody")], slots=1)


def test_the_best_priority_starts_first() -> None:
    """Slots go to the lowest priority number, and among equals to the job that was added first."""
    jobs = [a_job("a", priority=2), a_job("b", priority=1), a_job("c", priority=1), a_job("d", priority=3)]
    assert [action.job for action in ready(open_board(jobs, slots=3))] == ["b", "c", "a"]


def test_started_jobs_go_first() -> None:
    """The next role of a started job comes before a new job of better priority."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER), priority=9)], slots=1)
    board = after(board, JobAdded(a_job("b", priority=1)), proved("a"))
    assert ready(board) == (StartRun("a", "reviewer", 1, "codex"),)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_slots_are_filled_and_never_overfilled(slots: int) -> None:
    """One run per slot is offered, and no more while those run."""
    board = open_board([a_job(id, attempts=2) for id in "abcd"], slots=slots)
    assert (len(ready(board)), ready(begun(board))) == (slots, ())


def test_the_number_of_runs_per_agent_is_limited() -> None:
    """When one agent is at its limit, a job for another agent starts first."""
    jobs = [a_job("a"), a_job("b"), a_job("c"), a_job("d", roles=(REVIEWER,), priority=9)]
    board = open_board(jobs, slots=4, per_agent=(("claude", 2),))
    assert [action.job for action in ready(board)] == ["a", "b", "d"]
    assert ready(after(board, failed("a"))) == (StartRun("c", "coder", 1, "claude"),)


# ---- best of N ----


def test_the_first_proved_attempt_wins() -> None:
    """Attempts run in parallel; the first proved one is reviewed and merged, the others are stopped."""
    job = a_job("a", roles=(CODER, REVIEWER), attempts=3)
    board = open_board([job], slots=3)
    assert ready(board) == tuple(StartRun("a", "coder", n, "claude") for n in (1, 2, 3))
    board = after(board, proved("a", 2))
    assert ready(board) == (StopRun("a", 1), StopRun("a", 3), StartRun("a", "reviewer", 2, "codex"))
    stopped = [RoleRunEnded("a", n, RunVerdict.STOPPED) for n in (1, 3)]
    board = after(board, *stopped, proved("a", 2))
    assert (ready(board), states(board)) == ((Merge("a", 2),), {"a": "proved"})


def test_a_winner_needs_no_further_attempt() -> None:
    """Attempts that have not started when the first one is proved never start."""
    board = after(open_board([a_job("a", attempts=3)], slots=1), proved("a", 1))
    assert ready(board) == (Merge("a", 1),)


@pytest.mark.parametrize("verdict", [v for v in RunVerdict if v is not RunVerdict.STOPPED])
def test_a_loser_that_ends_late_changes_nothing(verdict: RunVerdict) -> None:
    """The winner stays, however a stopped attempt ends."""
    board = begun(after(open_board([a_job("a", attempts=2)], slots=2), proved("a", 1)))
    late = apply(board, RoleRunEnded("a", 2, verdict))
    assert late.job("a") == replace(board.job("a"), running=())


def test_a_job_fails_with_its_last_attempt() -> None:
    """A job fails only when its last attempt has failed."""
    board = open_board([a_job("a", attempts=3)], slots=2)
    seen = []
    for attempt in (1, 2, 3):
        board = after(board, failed("a", attempt, f"broke {attempt}"))
        seen.append((board.job("a").state, board.job("a").reason))
    assert seen == [(JobState.ACTIVE, ""), (JobState.ACTIVE, ""), (JobState.FAILED, "broke 3")]


def test_only_the_winner_is_sent_back() -> None:
    """A refusal restarts the winning attempt only."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER), attempts=2)], slots=1)
    facts = [failed("a", 1), proved("a", 2), RoleRunEnded("a", 2, RunVerdict.REFUSED, "no tests")]
    assert ready(after(board, *facts)) == (StartRun("a", "coder", 2, "claude", "no tests"),)


def test_a_job_is_merged_when_its_losers_are_gone() -> None:
    """The winner is merged only after the stopped attempts have exited, because they could still write."""
    board = after(open_board([a_job("a", attempts=2)], slots=2), proved("a", 1))
    gone = after(board, RoleRunEnded("a", 2, RunVerdict.STOPPED))
    assert not any(isinstance(action, Merge) for action in ready(board))
    assert ready(gone) == (Merge("a", 1),)
    assert states(after(gone, merged("a"))) == {"a": "done"}


def test_a_loser_counts_for_its_own_agent() -> None:
    """A losing attempt counts towards its agent's limit until it has ended."""
    jobs = [a_job("a", roles=(CODER, REVIEWER), attempts=2), a_job("b"), a_job("c")]
    board = begun(open_board(jobs, slots=9, per_agent=(("claude", 2),)))
    board = after(board, proved("a", 1))
    assert [action for action in ready(board) if isinstance(action, StartRun)] == [
        StartRun("a", "reviewer", 1, "codex"),
        StartRun("b", "coder", 1, "claude"),
    ]


@pytest.mark.parametrize("verdict", [RunVerdict.LOST, RunVerdict.PROVED])
def test_a_stopped_loser_stays_a_loser_when_the_winner_is_sent_back(verdict: RunVerdict) -> None:
    """An attempt that was told to stop neither starts again nor wins after a refusal."""
    job = a_job("a", roles=(CODER, REVIEWER), attempts=2)
    board = after(open_board([job], slots=2), proved("a", 1), refused("a"))
    late = apply(begun(board), RoleRunEnded("a", 2, verdict))
    job = late.job("a")
    assert (job.winner, job.running, job.pending) == (1, (Running(1, CODER),), ())


def test_a_job_whose_winner_fails_before_the_losers_have_ended_fails() -> None:
    """A winner that fails in review fails its job even while a losing attempt is still being stopped."""
    board = open_board([a_job("a", roles=(CODER, REVIEWER), attempts=2)], slots=2)
    board = after(board, proved("a", 1), failed("a", 1), RoleRunEnded("a", 2, RunVerdict.STOPPED))
    assert (states(board), is_over(board)) == ({"a": "failed"}, True)


# ---- cancelling ----


def test_a_running_job_that_is_cancelled_is_stopped() -> None:
    """Cancelling stops the job's runs; when they have ended, their slots go to the next job."""
    board = after(open_board([a_job("a"), a_job("b", priority=1)], slots=1), JobCancelled("a"))
    assert (ready(board), states(board)) == ((StopRun("a", 1),), {"a": "cancelled", "b": "todo"})
    board = after(board, RoleRunEnded("a", 1, RunVerdict.STOPPED))
    assert (ready(board), states(board)["a"]) == ((StartRun("b", "coder", 1, "claude"),), "cancelled")


@pytest.mark.parametrize("verdict", [*RunVerdict])
def test_a_cancelled_job_stays_cancelled(verdict: RunVerdict) -> None:
    """However the stopped run ends, the job stays cancelled and the board is over."""
    board = after(open_board([a_job("a")], slots=1), JobCancelled("a"), RoleRunEnded("a", 1, verdict))
    assert board.job("a") == replace(a_job("a"), state=JobState.CANCELLED, reason="cancelled")
    assert (ready(board), is_over(board)) == ((), True)


@pytest.mark.parametrize(
    "facts", [(), (proved("a"),)], ids=["before it has started", "when it is proved and not yet merged"]
)
def test_a_job_that_does_not_run_is_cancelled_at_once(facts: tuple[Fact, ...]) -> None:
    """A job that is not running is cancelled without a stop and is never merged."""
    board = apply(after(open_board([a_job("a")], slots=1), *facts), JobCancelled("a"))
    assert (ready(board), states(board), is_over(board)) == ((), {"a": "cancelled"}, True)


@pytest.mark.parametrize(
    "facts",
    [
        (failed("a"),),
        (proved("a"), merged("a")),
        (JobCancelled("a"), RoleRunEnded("a", 1, RunVerdict.STOPPED)),
    ],
    ids=["failed", "done", "cancelled"],
)
def test_an_ended_job_cannot_be_cancelled(facts: tuple[Fact, ...]) -> None:
    """A cancel that comes too late changes nothing."""
    board = after(open_board([a_job("a")], slots=1), *facts)
    assert apply(board, JobCancelled("a")) == board


def test_a_merge_in_progress_is_finished() -> None:
    """Cancelling during a merge does not undo the merge."""
    board = after(open_board([a_job("a")], slots=1), proved("a"), JobCancelled("a"), merged("a"))
    assert states(board) == {"a": "done"}


@pytest.mark.parametrize("verdict", [MergeVerdict.CONFLICT, MergeVerdict.RED, MergeVerdict.LOST])
def test_a_job_cancelled_during_a_failed_merge_does_not_restart(verdict: MergeVerdict) -> None:
    """A job cancelled during a merge that then fails is cancelled instead of started again."""
    board = after(open_board([a_job("a")], slots=1), proved("a"), JobCancelled("a"), merged("a", verdict))
    assert (ready(board), states(board)) == ((), {"a": "cancelled"})


# ---- adding ----


def test_a_job_is_added_while_others_run() -> None:
    """A new job takes a free slot at once, or waits for its dependencies."""
    board = after(open_board([a_job("a")], slots=2), JobAdded(a_job("c", "a")), JobAdded(a_job("b")))
    assert ready(board) == (StartRun("b", "coder", 1, "claude"),)
    board = after(board, proved("a"), merged("a"))
    assert ready(board) == (StartRun("c", "coder", 1, "claude"),)


def test_a_job_added_behind_a_failed_one_is_blocked() -> None:
    """A new job that depends on a failed one is blocked at once."""
    board = after(open_board([a_job("a")], slots=1), failed("a"), JobAdded(a_job("b", "a")))
    assert (states(board), is_over(board)) == ({"a": "failed", "b": "blocked"}, True)


def test_an_id_is_added_once() -> None:
    """A job with an id already in use is refused."""
    board = begun(open_board([a_job("a")], slots=1))
    with pytest.raises(ValueError, match="a"):
        apply(board, JobAdded(a_job("a", roles=(REVIEWER,))))


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(proved("a"), id="proved twice"),
        pytest.param(lost("a"), id="lost after proved"),
        pytest.param(refused("a"), id="refused after proved"),
        pytest.param(failed("a"), id="failed after proved"),
        pytest.param(proved("a", 7), id="unknown attempt"),
    ],
)
def test_a_fact_about_a_run_that_is_not_running_changes_nothing(fact: RoleRunEnded) -> None:
    """A run's end that is reported twice does not count as the end of the next role."""
    board = after(open_board([a_job("a", roles=(CODER, REVIEWER))], slots=1), proved("a"))
    assert apply(board, fact) == board


def test_a_merge_reported_twice_changes_nothing() -> None:
    """The end of a merge that is not in progress is ignored."""
    board = after(open_board([a_job("a")], slots=1), proved("a"), merged("a"))
    assert apply(board, merged("a", MergeVerdict.CONFLICT, "late")) == board


# ---- cycles ----


@pytest.mark.parametrize(
    ("graph", "path"),
    [
        ({}, None),
        ({"a": ()}, None),
        ({"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}, None),
        ({"a": ("unknown",)}, None),
        ({"a": ("a",)}, ("a", "a")),
        ({"a": ("b",), "b": ("a",)}, ("a", "b", "a")),
        ({"x": ("a",), "a": ("b",), "b": ("c",), "c": ("a",)}, ("a", "b", "c", "a")),
        ({"x": (), "a": ("x", "b"), "b": ("x", "a")}, ("a", "b", "a")),
    ],
)
def test_a_cycle_is_found_with_its_path(
    graph: dict[str, tuple[str, ...]], path: tuple[str, ...] | None
) -> None:
    """The reported path follows dependencies from a job back to itself."""
    assert find_cycle(graph) == path


def test_a_board_with_a_cycle_is_refused() -> None:
    """Jobs that wait for each other are refused, and the error shows the cycle."""
    with pytest.raises(Cycle, match="a → b → a") as refusal:
        open_board([a_job("a", "b"), a_job("b", "a")], slots=1)
    assert refusal.value.path == ("a", "b", "a")


def test_a_job_that_depends_on_itself_is_not_added() -> None:
    """A job that depends on itself is refused and the board does not change."""
    board = open_board([a_job("a")], slots=1)
    with pytest.raises(Cycle, match="b → b"):
        apply(board, JobAdded(a_job("b", "b")))
    assert states(board) == {"a": "todo"}


def test_a_long_chain_is_not_a_cycle() -> None:
    """A chain of ten thousand jobs is not a cycle, causes no recursion error, and is blocked as a whole."""
    chain = [a_job("0"), *(a_job(str(n), str(n - 1)) for n in range(1, 10_000))]
    assert find_cycle({job.id: job.depends_on for job in chain}) is None
    board = after(open_board(chain, slots=1), failed("0"))
    assert [job.state for job in board.jobs[1:]] == [JobState.BLOCKED] * 9_999
    assert board.job("9999").reason == "depends on 9998 (blocked)"


def test_the_order_of_jobs_does_not_matter() -> None:
    """A job listed before its dependencies is blocked or started just the same."""
    chain = [a_job("c", "b"), a_job("b", "a"), a_job("a")]
    assert states(after(open_board(chain, slots=1), failed("a"))) == {
        "c": "blocked",
        "b": "blocked",
        "a": "failed",
    }
    lost = replace(a_job("a"), state=JobState.FAILED)
    assert states(open_board([*chain[:2], lost], slots=1)) == {"c": "blocked", "b": "blocked", "a": "failed"}
    done = after(open_board(chain, slots=1), proved("a"), merged("a"))
    assert [action.job for action in ready(done)] == ["b"]


ids = st.sampled_from("abcdef")


@given(st.dictionaries(ids, st.lists(ids, max_size=3).map(tuple)))
def test_a_cycle_is_found_where_there_is_one(graph: dict[str, tuple[str, ...]]) -> None:
    """For any graph, a real cycle is returned exactly when the standard library finds one too."""
    path = find_cycle(graph)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError:
        assert path is not None and path[0] == path[-1]
        assert all(to in graph[id] for id, to in pairwise(path))
    else:
        assert path is None


# ---- random histories ----


@dataclass
class History:
    """A driver that answers the board's actions, and a record of everything it saw."""

    board: Board
    crashes: int
    facts: list[Fact] = field(default_factory=list)
    runs: dict[tuple[str, int], StartRun] = field(default_factory=dict)
    busiest: Counter[str] = field(default_factory=Counter)
    proofs: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    boards: list[Board] = field(default_factory=list, repr=False)
    started: list[tuple[StartRun, Board]] = field(default_factory=list, repr=False)
    stopped: list[tuple[StopRun, bool]] = field(default_factory=list, repr=False)
    merges: list[tuple[Merge, list[str]]] = field(default_factory=list, repr=False)
    ends: list[tuple[StartRun, RunVerdict]] = field(default_factory=list, repr=False)
    all: list[Action | Fact] = field(default_factory=list, repr=False)
    stuck: bool = False

    def begin_all(self) -> None:
        while actions := ready(self.board):
            for action in actions:
                self.board = begin(self.board, action)
                self._note(action)
        self.boards.append(self.board)

    def _note(self, action: Action) -> None:
        self.all.append(action)
        if isinstance(action, StartRun):
            key = (action.job, action.attempt)
            assert key not in self.runs, "a run is started while it runs"
            self.runs[key] = action
            self.started.append((action, self.board))
            if action.role == self.board.job(action.job).roles[0].name:
                self.proofs[key] = []
            agents = Counter(run.agent for run in self.runs.values())
            self.busiest |= agents + Counter({"all": agents.total()})
        elif isinstance(action, StopRun):
            self.stopped.append((action, (action.job, action.attempt) in self.runs))
        else:
            self.merges.append((action, self.proofs[action.job, action.attempt]))

    def happen(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.all.append(fact)
        if isinstance(fact, RoleRunEnded):
            run = self.runs.pop((fact.job, fact.attempt))
            self.ends.append((run, fact.verdict))
            if fact.verdict is RunVerdict.PROVED:
                self.proofs[fact.job, fact.attempt].append(run.role)
        if isinstance(fact, RoleRunEnded | Merged) and fact.verdict in (RunVerdict.LOST, MergeVerdict.LOST):
            self.crashes -= 1
        self.board = apply(self.board, fact)

    def answers(self) -> list[Fact]:
        """All possible answers to the runs and merges in progress."""
        merging = [job.id for job in self.board.jobs if job.state is JobState.MERGING]
        runs = list(self.runs)
        crash = self.crashes > 0
        return [
            *(RoleRunEnded(*run, verdict) for run in runs for verdict in _RUN_VERDICTS),
            *(RoleRunEnded(*run, RunVerdict.LOST) for run in runs if crash),
            *(Merged(id, verdict) for id in merging for verdict in _MERGE_VERDICTS),
            *(Merged(id, MergeVerdict.LOST) for id in merging if crash),
        ]


_RUN_VERDICTS = [RunVerdict.PROVED] * 3 + [RunVerdict.REFUSED, RunVerdict.FAILED, RunVerdict.STOPPED]
_MERGE_VERDICTS = [MergeVerdict.OK] * 3 + [MergeVerdict.CONFLICT, MergeVerdict.RED, MergeVerdict.HELD]

MAX_CRASHES = 6

agents = st.sampled_from(["claude", "codex", "amp"])


@st.composite
def jobs(draw: st.DrawFn, id: str, others: list[str]) -> Job:
    """A job that depends on some of the others."""
    attempts = draw(st.integers(1, 3))
    names = ("coder", "reviewer", "tester")[: draw(st.integers(1, 3))]
    return Job(
        id,
        tuple(Role(name, draw(agents)) for name in names),
        priority=draw(st.integers(0, 2)),
        depends_on=tuple(draw(st.lists(st.sampled_from(others), max_size=2))) if others else (),
        attempts=attempts,
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A random board without cycles, driven to its end by random answers, crashes, cancels, additions."""
    tasks: list[Job] = []
    for n in range(draw(st.integers(1, 6))):
        tasks.append(draw(jobs(f"t{n}", [task.id for task in tasks])))
    per_agent = draw(st.dictionaries(agents, st.integers(1, 2)))
    shuffled = draw(st.permutations(tasks))
    board = open_board(shuffled, draw(st.integers(1, 4)), tuple(per_agent.items()))
    history = History(board, draw(st.integers(0, MAX_CRASHES)))
    meddling = draw(st.integers(0, 4))
    for _ in range(400):
        history.begin_all()
        if is_over(history.board):
            break
        if not (facts := history.answers()):
            history.stuck = True
            break
        if meddling and draw(st.integers(0, 9)) == 0:
            meddling -= 1
            known = [job.id for job in history.board.jobs]
            new = draw(jobs(f"t{len(known)}", known))
            facts = [JobAdded(new), *(JobCancelled(id) for id in known)]
        history.happen(draw(st.sampled_from(facts)))
    return history


@given(histories())
def test_every_board_finishes(history: History) -> None:
    """As long as the driver answers, no board gets stuck, every job ends and nothing is left running."""
    assert (history.stuck, is_over(history.board), history.runs) == (False, True, {})
    assert {job.state for job in history.board.jobs} <= ENDED


@given(histories())
def test_the_number_of_runs_is_bounded(history: History) -> None:
    """Jobs go back a limited number of times, so the number of runs and merges is limited too."""
    most = sum(job.attempts + 5 * len(job.roles) for job in history.board.jobs) + MAX_CRASHES
    assert len(history.started) <= most
    assert len(history.merges) <= 2 * len(history.board.jobs) + MAX_CRASHES


@given(histories())
def test_a_job_starts_only_after_its_dependencies(history: History) -> None:
    """Whenever a run starts, all dependencies of its job are merged."""
    for action, board in history.started:
        assert {board.job(id).state for id in board.job(action.job).depends_on} <= {JobState.DONE}


@given(histories())
def test_limits_hold_at_every_moment(history: History) -> None:
    """There are never more runs than slots, more runs of one agent than allowed, or two merges at once."""
    limits = {"all": history.board.slots, **dict(history.board.per_agent)}
    assert {name: n for name, n in history.busiest.items() if n > limits.get(name, history.board.slots)} == {}
    assert max(sum(job.state is JobState.MERGING for job in board.jobs) for board in history.boards) <= 1


@given(histories())
def test_only_attempts_proved_by_every_role_are_merged(history: History) -> None:
    """A merge is requested only for an attempt that all roles have proved, in order, since its last start."""
    for action, proofs in history.merges:
        assert proofs == [role.name for role in history.board.job(action.job).roles]


@given(histories())
def test_nothing_is_merged_twice(history: History) -> None:
    """A merged job is never merged again, and a failed merge is retried at most once."""
    merged: set[str] = set()
    begun: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for happening in history.all:
        if isinstance(happening, Merge):
            assert happening.job not in merged
            begun[happening.job] += 1
        elif isinstance(happening, Merged):
            lost[happening.job] += happening.verdict is MergeVerdict.LOST
            if happening.verdict is MergeVerdict.OK:
                merged.add(happening.job)
    assert all(begun[job] - lost[job] <= 2 for job in begun)


@given(histories())
def test_a_job_is_merged_alone(history: History) -> None:
    """No attempt of a job runs while the job is being merged or after it is done."""
    for board in history.boards:
        for job in board.jobs:
            assert not (job.running and job.state in (JobState.MERGING, JobState.DONE))


@given(histories())
def test_a_role_that_was_proved_runs_again_only_when_the_job_goes_back(history: History) -> None:
    """Each role is proved once per pass through the roles, however often Ralph crashes."""
    for job in history.board.jobs:
        proofs = Counter(
            run.role
            for run, verdict in history.ends
            if run.job == job.id and verdict is RunVerdict.PROVED and run.attempt == job.winner
        )
        ways = 1 + job.sent_back + job.merge_retries
        assert all(times <= ways for times in proofs.values())


@given(histories())
def test_only_running_runs_are_stopped(history: History) -> None:
    """A stop is requested only for a run that is running."""
    assert [action for action, running in history.stopped if not running] == []


@given(histories())
def test_an_ended_job_never_changes(history: History) -> None:
    """A job that has ended keeps its state, whatever happens afterwards."""
    ended: dict[str, JobState] = {}
    for board in history.boards:
        now = {job.id: job.state for job in board.jobs if job.state in ENDED}
        assert {id: now.get(id) for id in ended} == ended
        ended = now
