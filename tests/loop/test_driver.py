"""The driver: every kind of step is done once, journalled in order, and told."""

from __future__ import annotations

import pytest

from conftest import Project
from loop.loop_support import (
    CLAIM,
    PROVED,
    Loop,
    command_check,
    end_of,
    opened_loop,
    shell_agent,
)
from ralph.core.events import (
    AgentEnded,
    AgentStarted,
    CheckEnded,
    CheckStarted,
    ClaimLooked,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Text,
)
from ralph.core.model import (
    Cause,
    ClaimKind,
    ClaimRule,
    Did,
    Ended,
    Flow,
    Hold,
    HoldWhy,
    Limits,
    Outcome,
    Phase,
    PromptSource,
    PromptVia,
    Purpose,
    Scm,
    Stop,
)
from ralph.loop.driver import Driver
from ralph.scm.snapshots import HUGE_FILE

ONE_COMMITTED = ["plan", "look", "run_agent", "look", "run_checks", "look", "run_agent", "commit", "stop"]


@pytest.fixture
def committing(repository: Project) -> Project:
    """A repository where commits can be made."""
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@localhost")
    return repository


def test_one_iteration_from_the_first_look_to_the_commit(committing: Project) -> None:
    """The rows of an iteration stand in the order of its steps, each with its result, and are told in that order."""
    made = f"touch made; {CLAIM}"
    scm = Scm("git", ("commit -a",))
    with opened_loop(committing, made, checks=(command_check("test -e made"),), scm=scm) as loop:
        state = loop.drive()
        assert (end_of(state), loop.kinds) == (PROVED, ONE_COMMITTED)
        assert all(row.result and not row.is_in_hand for row in loop.rows[1:])
    assert [type(event) for event in loop.events if not isinstance(event, Text)] == [
        IterationStarted,
        AgentStarted,
        AgentEnded,
        ClaimLooked,
        CheckStarted,
        CheckEnded,
        AgentStarted,
        AgentEnded,
        Committed,
    ]
    (committed,) = loop.told(Committed)
    assert committed.message == "DONE" and committed.commit == committing.git("rev-parse", "HEAD").strip()
    assert "Ralph-Run" in committing.git("log", "-1", "--format=%B")


def test_a_message_of_the_plan_is_not_asked_for(committing: Project) -> None:
    """With a fixed message the agent is started once only."""
    scm = Scm("git", ("commit -a",), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm) as loop:
        loop.drive()
        assert [event.purpose for event in loop.told(AgentStarted)] == [Purpose.WORK]
    assert committing.git("log", "-1", "--format=%s").strip() == "Fixed"


def test_the_message_has_a_prompt_of_its_own(committing: Project) -> None:
    """The prompt that asks for a message is kept beside that of the iteration."""
    with opened_loop(committing, f"touch made; {CLAIM}", scm=Scm("git", ("commit -a",))) as loop:
        loop.drive()
    names = sorted(path.name for path in (committing.path / ".ralph").glob("prompt_*"))
    assert names == ["prompt_001.txt", "prompt_001_message.txt"]


def test_what_cannot_be_committed_is_told_and_the_run_goes_on(committing: Project) -> None:
    """A hook that refuses is a notice and a note of the outcome, not a stop."""
    hook = committing.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho tidy up first >&2; exit 1\n")
    hook.chmod(0o755)
    scm = Scm("git", ("commit -a",), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm) as loop:
        state = loop.drive()
        assert end_of(state) == PROVED and state.stop is not None
        (problem,) = loop.notices
        assert "tidy up first" in problem and state.stop.notes == (problem,)


@pytest.mark.parametrize("command", ["git", "true"])
def test_a_task_of_version_control_that_cannot_be_read_is_told(committing: Project, command: str) -> None:
    """An open quote in the settings is a notice, and the other tasks are done."""
    scm = Scm(command, ("commit -m 'x", "status"), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm) as loop:
        assert end_of(loop.drive()) == PROVED
    assert loop.notices == ['scm.tasks: "commit -m \'x" was not run: No closing quotation.']


def test_a_claim_that_was_given_needs_no_agent(project: Project) -> None:
    """Where only the checks are left, they are all that is run."""
    given = ClaimRule(ClaimKind.GIVEN)
    with opened_loop(project, claim=given, checks=(command_check("true"),)) as loop:
        assert end_of(loop.drive()) == PROVED
        assert loop.kinds == ["plan", "look", "run_checks", "stop"] and not loop.told(AgentStarted)


def test_every_check_has_a_row_of_its_own(project: Project) -> None:
    """A verdict is journalled when it is known: one that is red keeps none of the others from being found out."""
    checks = command_check("true", "a"), command_check("exit 3", "b"), command_check("true", "c")
    with opened_loop(project, checks=checks) as loop:
        state = loop.drive()
        verdicts = [verdict for each in loop.results("run_checks") for verdict in each.verdicts]
    assert [(verdict.check, verdict.green) for verdict in verdicts] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert end_of(state) == (Outcome.LIMIT, Cause.ITERATIONS)


def test_the_next_prompt_has_the_output_of_a_red_check(project: Project) -> None:
    """What a check printed stands in the prompt of the second iteration, not in that of the first."""
    checks = (command_check("echo so red; exit 3"),)
    with opened_loop(project, checks=checks, iterations=2) as loop:
        loop.drive()
    prompts = [(project.path / f".ralph/prompt_00{n}.txt").read_text() for n in (1, 2)]
    assert ["so red" in text for text in prompts] == [False, True]


# ---- Look ----


def test_a_prompt_file_is_read_in_every_iteration(project: Project) -> None:
    """An agent, or a person, may change it on the way; its hash is in the journal."""
    (project.path / "prompt.md").write_text("first")
    source = PromptSource(file="prompt.md", instruction=False)
    with opened_loop(project, "echo second > prompt.md", prompt=source, iterations=2) as loop:
        loop.drive()
        looks = loop.results("look")
    prompts = [(project.path / f".ralph/prompt_00{n}.txt").read_text() for n in (1, 2)]
    assert prompts == ["first", "second\n"]
    assert [bool(look.prompt) for look in looks] == [True, False] * 2 + [True]
    assert looks[0].prompt != looks[2].prompt == looks[4].prompt


def test_a_prompt_file_that_is_gone_stops_the_run(project: Project) -> None:
    """There is nothing to say to the agent: the outcome names the file."""
    with opened_loop(project, prompt=PromptSource(file="prompt.md")) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "stop"]
    assert state.stop is not None and state.stop.cause is Cause.CONFIG and "prompt.md" in state.stop.reason


def test_a_resumed_iteration_reads_its_prompt_again(project: Project) -> None:
    """A driver that begins with the agent, not with a look, has not read the prompt yet."""
    with opened_loop(project) as loop:
        assert end_of(loop.drive(loop.start(phase=Phase.WORK))) == PROVED
        assert loop.kinds == ["plan", "run_agent", "look", "stop"]
    assert (project.path / ".ralph/prompt_001.txt").read_text().startswith("Do it.")


@pytest.mark.parametrize(
    ("flow", "limits", "claim", "agent", "looked"),
    [
        (Flow.RUN, Limits(1), ClaimKind.TAG, "echo", [False, False]),
        (Flow.RUN, Limits(1, stagnation=1), ClaimKind.TAG, "echo", [True, True]),
        (Flow.WORK, Limits(1), ClaimKind.TAG, "echo", [True, False]),
        (Flow.WORK, Limits(1), ClaimKind.TAG, "exit 1", [True, True]),
        (Flow.SUPERVISE, Limits(1), ClaimKind.TAG, "echo", [True, True]),
        (Flow.SUPERVISE, Limits(1), ClaimKind.GIVEN, "echo", [False]),
    ],
)
def test_the_tree_is_looked_at_where_that_matters(
    project: Project, flow: Flow, limits: Limits, claim: ClaimKind, agent: str, looked: list[bool]
) -> None:
    """Finding out whether nothing has changed costs time: only some runs need it, some only after a failure."""
    with opened_loop(project, f"{agent} said", flow=flow, limits=limits, claim=ClaimRule(claim)) as loop:
        loop.drive()
        looks = loop.results("look")
    assert [bool(look.tree) for look in looks][: len(looked)] == looked


def test_standing_still_is_noticed(project: Project) -> None:
    """Two iterations after which the tree is the same as before end the run."""
    with opened_loop(project, "echo still", limits=Limits(9, stagnation=2)) as loop:
        state = loop.drive()
    assert (end_of(state), state.iteration) == ((Outcome.LIMIT, Cause.STAGNATION), 2)


def test_git_that_fails_while_looking_is_told_once(repository: Project) -> None:
    """A repository that is gone is a notice, and the run goes on without it."""
    git = repository.path / ".git"

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted) and git.exists():
            git.rename(repository.path.with_name("away"))

    limits, scm = Limits(2, stagnation=5), Scm("git", ("commit",))
    with opened_loop(repository, "echo on", heard=heard, limits=limits, scm=scm) as loop:
        state = loop.drive()
    assert end_of(state) == (Outcome.LIMIT, Cause.ITERATIONS)
    assert ["is no longer the git directory" in text for text in loop.notices] == [True]


# ---- snapshots ----


def test_a_run_counts_the_files_that_it_has_changed(repository: Project) -> None:
    """There is a snapshot before each iteration and one at the end; what differs is in the last row."""
    with opened_loop(repository, f"touch a b; {CLAIM}", snapshots=True) as loop:
        driver = Driver(loop.context, loop.start())
        driver.drive()
        (did,) = loop.results("stop")
    refs = repository.git("for-each-ref", "--format=%(refname)", f"refs/ralph/{loop.plan.run}").split()
    assert len(refs) == 2 and did.files == driver.files_changed == 2


def test_a_snapshot_that_fails_is_one_notice_and_no_stop(repository: Project) -> None:
    """Two iterations and the end cannot be kept: said once, and the run ends as it would have."""
    with opened_loop(repository, "echo on", snapshots=True, iterations=2) as loop:
        (repository.path / ".git").rename(repository.path.with_name("away"))
        state = loop.drive()
        (did,) = loop.results("stop")
    assert len(loop.notices) == 1 and "snapshots and commits are refused" in loop.notices[0]
    assert (end_of(state), did.files) == ((Outcome.LIMIT, Cause.ITERATIONS), None)


def test_what_a_snapshot_leaves_out_is_told_once(repository: Project) -> None:
    """A huge file is in no snapshot; the user hears of it once, not in every iteration."""
    with (repository.path / "huge").open("wb") as file:
        file.truncate(HUGE_FILE + 1)
    with opened_loop(repository, "echo on", snapshots=True, iterations=2) as loop:
        loop.drive()
    assert loop.notices == ["Snapshot: huge is larger than 50 MB and is left out."]


# ---- Hold and Stop ----


def test_a_limited_agent_is_asked_again_when_its_limit_is_over(project: Project) -> None:
    """The hold lasts until the reset that it named; the iteration that met the limit does not count."""
    mark = project.path.with_name("limited")
    body = f"test -e {mark} && {CLAIM} && exit; touch {mark}; echo 'rate limit: try again in 5 minutes' >&2; exit 1"
    with opened_loop(project, body) as loop:
        state = loop.drive()
        assert loop.kinds == [
            "plan",
            "look",
            "run_agent",
            "look",
            "hold",
            "look",
            "run_agent",
            "look",
            "stop",
        ]
    assert (end_of(state), state.iteration) == (PROVED, 1)
    assert loop.clock.passed >= 60.0 and [event.hold.why for event in loop.told(Holding)] == [HoldWhy.LIMIT]


def test_another_agent_takes_over_from_one_that_is_limited(project: Project) -> None:
    """The prompt goes to the next agent of the plan, at once."""
    first = shell_agent(project, "echo rate limit exceeded >&2; exit 1", name="first")
    second = shell_agent(project, CLAIM, name="second")
    with opened_loop(project, agents=(first, second)) as loop:
        assert end_of(loop.drive()) == PROVED
    assert [event.agent for event in loop.told(IterationStarted)] == ["first", "second"]


def test_a_stop_is_told_to_who_waits_for_it(project: Project) -> None:
    """Whoever notifies people hears of the end before it is journalled."""
    seen: list[tuple[Stop, bool]] = []
    with opened_loop(project) as loop:
        loop.use(ended=lambda stop: seen.append((stop, bool(loop.results("stop")))))
        state = loop.drive()
        assert seen == [(state.stop, False)] and loop.results("stop")


def test_the_end_is_done_again_if_it_was_cut_off(project: Project) -> None:
    """A state that has a stop already is driven to its last row and nowhere else."""
    stop = Stop(Cause.ITERATIONS, "enough")
    with opened_loop(project) as loop:
        state = loop.drive(loop.start(stop=stop))
        assert (state.stop, loop.kinds) == (stop, ["plan", "stop"])
        assert [type(did) for did in loop.results("stop")] == [Did]


def test_an_unclaimed_iteration_says_what_it_looked_for(project: Project) -> None:
    """The tag that would have counted is told after each iteration, with whether it was there."""
    with opened_loop(project, f'test "$RALPH_ITERATION" = 2 && {CLAIM}; echo on', iterations=2) as loop:
        loop.drive()
    claim = "<response>DONE</response>"
    assert loop.told(ClaimLooked) == [ClaimLooked(claim, found=False), ClaimLooked(claim, found=True)]


def test_a_command_without_a_prompt_gets_none(project: Project) -> None:
    """Neither an argument nor a file in `.ralph`."""
    spec = shell_agent(project, 'echo "$#"', PromptVia.NONE)
    with opened_loop(project, spec) as loop:
        state = loop.drive()
    assert state.ran is not None and state.ran.text == "0\n"
    assert not list((project.path / ".ralph").glob("prompt_*"))


def test_durations_are_of_the_clock(project: Project) -> None:
    """A hold that took its time counts for the run, and its row says how long it was."""
    with opened_loop(project) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.RESTART, seconds=40.0)))
        (did,) = loop.results("hold")
    assert did.took == pytest.approx(40.0, abs=0.3) and did.over and state.elapsed >= 40.0


def test_an_interrupted_iteration_does_not_count(project: Project) -> None:
    """The state after it is before the iteration, with one more try."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            loop.interrupt(2)

    with opened_loop(project, "exec sleep 60", heard=heard) as loop:
        state = loop.drive()
    assert state.ran is not None and state.ran.ended is Ended.INTERRUPTED
    assert (state.iteration, state.again, state.phase) == (0, 1, Phase.BEFORE)
