"""The driver does each step once, journals it in order and reports it."""

from __future__ import annotations

import pytest

from conftest import Project
from loop.loop_support import (
    CLAIM,
    PROVED,
    UNVERIFIED,
    Loop,
    command_check,
    end_of,
    opened_loop,
    shell_agent,
)
from ralph.core import machine
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
    Resume,
    Scm,
    Stop,
)
from ralph.loop.driver import GIT_PAUSES, Driver
from ralph.scm.snapshots import HUGE_FILE

ONE_COMMITTED = ["plan", "look", "run_agent", "look", "run_checks", "look", "run_agent", "commit", "stop"]


@pytest.fixture
def committing(repository: Project) -> Project:
    """A repository with a git identity."""
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@localhost")
    return repository


def test_one_iteration_from_the_first_look_to_the_commit(committing: Project) -> None:
    """Rows and events of an iteration are in the order of its steps, each row with its result."""
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
    assert committed.message == "Do it." and committed.commit == committing.git("rev-parse", "HEAD").strip()
    assert "Ralph-Run" in committing.git("log", "-1", "--format=%B")


def test_the_agent_is_not_asked_for_a_fixed_message(committing: Project) -> None:
    """With a fixed commit message the agent runs only once."""
    scm = Scm("git", ("commit -a",), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm) as loop:
        loop.drive()
        assert [event.purpose for event in loop.told(AgentStarted)] == [Purpose.WORK]
    assert committing.git("log", "-1", "--format=%s").strip() == "Fixed"


def test_the_commit_message_has_its_own_prompt(committing: Project) -> None:
    """The prompt for a commit message is kept next to the iteration's prompt."""
    with opened_loop(committing, f"touch made; {CLAIM}", scm=Scm("git", ("commit -a",))) as loop:
        loop.drive()
    names = sorted(path.name for path in (committing.path / ".ralph").glob("prompt_*"))
    assert names == ["prompt_001.txt", "prompt_001_message.txt"]


def test_a_refused_commit_is_fed_back(committing: Project) -> None:
    """Work that a hook refuses to commit is not done: the hook's words go into the next prompt."""
    hook = committing.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho tidy up first >&2; exit 1\n")
    hook.chmod(0o755)
    scm = Scm("git", ("commit -a",), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm, iterations=2) as loop:
        state = loop.drive()
        assert end_of(state) == (Outcome.LIMIT, Cause.ITERATIONS) and state.stop is not None
        assert [text for text in loop.notices if "Not committed: git commit failed: tidy up first" in text]
        assert "tidy up first" in state.stop.reason
    assert "tidy up first" in (committing.path / ".ralph/prompt_002.txt").read_text()


@pytest.mark.parametrize(
    ("command", "end"), [("git", (Outcome.LIMIT, Cause.ITERATIONS)), ("true", UNVERIFIED)]
)
def test_an_unreadable_scm_task_is_reported(
    committing: Project, command: str, end: tuple[Outcome, Cause]
) -> None:
    """An unclosed quote in an scm task is a notice; without a commit, the work is not delivered."""
    scm = Scm(command, ("commit -m 'x", "status"), message="Fixed")
    with opened_loop(committing, f"touch made; {CLAIM}", scm=scm) as loop:
        assert end_of(loop.drive()) == end
    assert 'scm.tasks: "commit -m \'x" was not run: No closing quotation.' in loop.notices[0]


def test_a_claim_that_was_given_needs_no_agent(project: Project) -> None:
    """When the claim is given, only the checks run."""
    given = ClaimRule(ClaimKind.GIVEN)
    with opened_loop(project, claim=given, checks=(command_check("true"),)) as loop:
        assert end_of(loop.drive()) == PROVED
        assert loop.kinds == ["plan", "look", "run_checks", "stop"] and not loop.told(AgentStarted)


def test_every_check_has_its_own_row(project: Project) -> None:
    """A failed check does not keep the others from running."""
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
    """The output of a failed check is in the prompt of the second iteration, but not of the first."""
    checks = (command_check("echo so red; exit 3"),)
    with opened_loop(project, checks=checks, iterations=2) as loop:
        loop.drive()
    prompts = [(project.path / f".ralph/prompt_00{n}.txt").read_text() for n in (1, 2)]
    assert ["so red" in text for text in prompts] == [False, True]


# ---- Look ----


def test_a_prompt_file_is_read_in_every_iteration(project: Project) -> None:
    """The prompt file is read again in each iteration, and its hash is journalled."""
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
    """A missing prompt file stops the run, and the outcome names it."""
    with opened_loop(project, prompt=PromptSource(file="prompt.md")) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "stop"]
    assert state.stop is not None and state.stop.cause is Cause.CONFIG and "prompt.md" in state.stop.reason


def test_a_resumed_iteration_reads_its_prompt_again(project: Project) -> None:
    """A run resumed at the agent step reads its prompt first."""
    with opened_loop(project) as loop:
        assert end_of(loop.drive(loop.start(phase=Phase.WORK))) == UNVERIFIED
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
        (Flow.SUPERVISE, Limits(1), ClaimKind.GIVEN, "echo", [True]),
    ],
)
def test_the_tree_is_hashed_only_where_needed(
    project: Project, flow: Flow, limits: Limits, claim: ClaimKind, agent: str, looked: list[bool]
) -> None:
    """Hashing the tree takes time, so only some runs do it, and some only after a failure."""
    with opened_loop(project, f"{agent} said", flow=flow, limits=limits, claim=ClaimRule(claim)) as loop:
        loop.drive()
        looks = loop.results("look")
    assert [bool(look.tree) for look in looks][: len(looked)] == looked


def test_stagnation_stops_the_run(project: Project) -> None:
    """Two iterations that leave the tree unchanged stop the run."""
    with opened_loop(project, "echo still", limits=Limits(9, stagnation=2)) as loop:
        state = loop.drive()
    assert (end_of(state), state.iteration) == ((Outcome.LIMIT, Cause.STAGNATION), 2)


def test_a_git_that_keeps_failing_stops_the_run(repository: Project) -> None:
    """Without git nobody knows what would be committed, so the run stops, and continues from there when resumed."""
    git, away = repository.path / ".git", repository.path.with_name("away")

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted) and event.purpose is Purpose.WORK:
            git.rename(away)

    with opened_loop(repository, f"touch made; {CLAIM}", heard=heard, scm=Scm("git", ("commit",))) as loop:
        state = loop.drive()
        assert (end_of(state), state.phase) == ((Outcome.FATAL, Cause.GIT), Phase.AFTER)
        assert state.stop is not None and "is no longer the git directory" in state.stop.reason
        assert sum("Trying again" in text for text in loop.notices) == len(GIT_PAUSES)
        away.rename(git)
        repository.git("config", "user.email", "ada@localhost")
        repository.git("config", "user.name", "Ada")
        assert end_of(loop.drive(machine.apply(state, Resume(loop.clock.wall())))) == UNVERIFIED
        assert [event.purpose for event in loop.told(AgentStarted)] == [Purpose.WORK, Purpose.MESSAGE]
    assert "made" in repository.git("show", "--name-only", "--format=")


# ---- snapshots ----


def test_a_run_counts_its_changed_files(repository: Project) -> None:
    """Snapshots before each iteration and at the end give the number of changed files."""
    with opened_loop(repository, f"touch a b; {CLAIM}", snapshots=True) as loop:
        driver = Driver(loop.context, loop.start())
        driver.drive()
        (did,) = loop.results("stop")
    refs = repository.git("for-each-ref", "--format=%(refname)", f"refs/ralph/{loop.plan.run}").split()
    assert len(refs) == 2 and did.files == driver.files_changed == 2


def test_a_failed_snapshot_is_one_notice_and_does_not_stop_the_run(repository: Project) -> None:
    """Failed snapshots are reported once and do not change the outcome."""
    with opened_loop(repository, "echo on", snapshots=True, iterations=2) as loop:
        (repository.path / ".git").rename(repository.path.with_name("away"))
        state = loop.drive()
        (did,) = loop.results("stop")
    assert len(loop.notices) == 1 and "snapshots and commits are refused" in loop.notices[0]
    assert (end_of(state), did.files) == ((Outcome.LIMIT, Cause.ITERATIONS), None)


def test_a_file_left_out_of_snapshots_is_reported_once(repository: Project) -> None:
    """A huge file is not in the snapshots, which is reported once and not in every iteration."""
    with (repository.path / "huge").open("wb") as file:
        file.truncate(HUGE_FILE + 1)
    with opened_loop(repository, "echo on", snapshots=True, iterations=2) as loop:
        loop.drive()
    assert loop.notices == ["Snapshot: huge is larger than 50 MB and is left out."]


# ---- Hold and Stop ----


def test_a_limited_agent_is_asked_again_when_its_limit_is_over(project: Project) -> None:
    """The run waits until the usage limit resets, and the limited iteration does not count."""
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
    assert (end_of(state), state.iteration) == (UNVERIFIED, 1)
    assert loop.clock.passed >= 60.0 and [event.hold.why for event in loop.told(Holding)] == [HoldWhy.LIMIT]


def test_another_agent_takes_over_from_one_that_is_limited(project: Project) -> None:
    """The prompt goes to the plan's next agent at once."""
    first = shell_agent(project, "echo rate limit exceeded >&2; exit 1", name="first")
    second = shell_agent(project, CLAIM, name="second")
    with opened_loop(project, agents=(first, second)) as loop:
        assert end_of(loop.drive()) == UNVERIFIED
    assert [event.agent for event in loop.told(IterationStarted)] == ["first", "second"]


def test_the_stop_callback_runs_before_the_stop_is_journalled(project: Project) -> None:
    """The callback that sends notifications runs before the last row is complete."""
    seen: list[tuple[Stop, bool]] = []
    with opened_loop(project) as loop:
        loop.use(ended=lambda stop: seen.append((stop, bool(loop.results("stop")))))
        state = loop.drive()
        assert seen == [(state.stop, False)] and loop.results("stop")


def test_an_interrupted_end_is_repeated(project: Project) -> None:
    """A run that was already stopping only writes its last row."""
    stop = Stop(Cause.ITERATIONS, "enough")
    with opened_loop(project) as loop:
        state = loop.drive(loop.start(stop=stop))
        assert (state.stop, loop.kinds) == (stop, ["plan", "stop"])
        assert [type(did) for did in loop.results("stop")] == [Did]


def test_each_iteration_reports_the_expected_claim(project: Project) -> None:
    """After each iteration the expected tag is reported, with whether it was found."""
    with opened_loop(project, f'test "$RALPH_ITERATION" = 2 && {CLAIM}; echo on', iterations=2) as loop:
        loop.drive()
    claim = "<response>DONE</response>"
    assert loop.told(ClaimLooked) == [ClaimLooked(claim, found=False), ClaimLooked(claim, found=True)]


def test_a_command_without_a_prompt_gets_none(project: Project) -> None:
    """Without a prompt there is neither an argument nor a prompt file."""
    spec = shell_agent(project, 'echo "$#"', PromptVia.NONE)
    with opened_loop(project, spec) as loop:
        state = loop.drive()
    assert state.ran is not None and state.ran.text == "0\n"
    assert not list((project.path / ".ralph").glob("prompt_*"))


def test_durations_follow_the_clock(project: Project) -> None:
    """A hold counts towards the run's time, and its row has its duration."""
    with opened_loop(project) as loop:
        state = loop.drive(loop.start(hold=Hold(HoldWhy.RESTART, seconds=40.0)))
        (did,) = loop.results("hold")
    assert did.took == pytest.approx(40.0, abs=0.3) and did.over and state.elapsed >= 40.0


def test_an_interrupted_iteration_does_not_count(project: Project) -> None:
    """After an interrupt, the state is back before the iteration with one more retry."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            loop.interrupt(2)

    with opened_loop(project, "exec sleep 60", heard=heard) as loop:
        state = loop.drive()
    assert state.ran is not None and state.ran.ended is Ended.INTERRUPTED
    assert (state.iteration, state.again, state.phase) == (0, 1, Phase.BEFORE)
