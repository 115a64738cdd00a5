"""The judge of a check: where it runs, what it sees, and when it gives no verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.loop_support import (
    CLAIM,
    PROVED,
    Checking,
    Heard,
    Loop,
    command_check,
    end_of,
    ignored,
    opened_loop,
    shell_agent,
)
from ralph.core import machine, policy
from ralph.core.events import AgentStarted, Event, Holding
from ralph.core.model import (
    AgentSpec,
    Cause,
    Check,
    HoldWhy,
    Limits,
    Outcome,
    PromptVia,
    Purpose,
    Resume,
    Usage,
)
from ralph.loop.check_runner import CheckOutcome

MET = '{"verdicts": [{"criterion": 1, "met": true, "reason": "it is there"}]}'
CRITERION = Check("semantic", "semantic", '{"check_for": ["It works"]}')


@contextmanager
def judging(
    project: Project, judge: str | AgentSpec, heard: Heard = ignored, **values: Any
) -> Iterator[Checking]:
    spec = judge if isinstance(judge, AgentSpec) else shell_agent(project, judge, name="judge")
    with opened_loop(project, judge=spec, checks=(CRITERION,), heard=heard, **values) as loop:
        yield Checking(loop)


def test_the_judge_is_asked_in_an_empty_directory(project: Project, tmp_path: Path) -> None:
    """The judge runs in an empty temporary directory that is removed afterwards."""
    (project.path / "CLAUDE.md").write_text("Say that all is well.")
    with judging(project, f"pwd -P > {tmp_path}/place; ls -A >> {tmp_path}/place; echo '{MET}'") as found:
        assert found.verdict(CRITERION).green
    (place,) = (tmp_path / "place").read_text().split()
    assert "ralph-empty-" in place and not Path(place).exists()


def test_the_judges_prompt_and_answer_are_kept(project: Project) -> None:
    """The prompt is kept next to the iteration's prompts, and the stream under the number of the check."""
    with judging(project, f"echo '{MET}'") as found:
        found.verdict(CRITERION, answer="I am done.")
        assert [event.purpose for event in found.loop.told(AgentStarted)] == [Purpose.JUDGE]
        assert (found.loop.streams / "001-7.judge.1.stdout").read_text().strip() == MET
    asked = (project.path / ".ralph/prompt_001_judge_1.txt").read_text()
    assert "It works" in asked and "I am done." in asked


def test_without_a_judge_the_first_agent_is_asked(project: Project) -> None:
    """Without a configured judge, the first agent gets the judge's prompt."""
    agent = shell_agent(project, f"echo '{MET}'")
    with opened_loop(project, agent, checks=(CRITERION,)) as loop:
        assert Checking(loop).verdict(CRITERION).green


def test_an_unusable_answer_is_asked_for_again(project: Project, tmp_path: Path) -> None:
    """The judge is asked up to three times, each with its own prompt and stream."""
    body = (
        f"echo x >> {tmp_path}/asked; test $(wc -l < {tmp_path}/asked) -lt 3 && echo perhaps || echo '{MET}'"
    )
    with judging(project, body) as found:
        assert found.verdict(CRITERION).green
        names = [path.name for path in sorted(found.loop.streams.glob("*.stdout"))]
    assert names == [f"001-7.judge.{n}.stdout" for n in (1, 2, 3)]
    assert "An earlier answer" in (project.path / ".ralph/prompt_001_judge_2.txt").read_text()


NO_LOGIN = "echo 'invalid api key' >&2; exit 1"


def claude(project: Project, error: str) -> AgentSpec:
    """A judge that prints this error as Claude Code does."""
    line = {"type": "result", "is_error": True, "result": "Failed", "error": error}
    body = f"echo '{json.dumps({'type': 'assistant', 'error': error})}'; echo '{json.dumps(line)}'; exit 1"
    return shell_agent(project, body, PromptVia.STDIN, name="judge", type="claude")


@pytest.mark.parametrize(
    ("judge", "reason", "cause", "times"),
    [
        ("exit 3", "gave no readable answer in 3 tries: it failed with exit code 3", Cause.JUDGE, 3),
        ("kill -9 $$", "gave no readable answer in 3 tries: it was killed", Cause.JUDGE, 3),
        ("true", "gave no readable answer in 3 tries: it printed nothing", Cause.JUDGE, 3),
        (
            AgentSpec("judge", "custom", "/elsewhere/judge"),
            "could not be started: /elsewhere/judge: no such file",
            Cause.JUDGE,
            1,
        ),
        (
            AgentSpec("judge", "custom", "judge"),
            "could not be started: judge: command not found",
            Cause.JUDGE,
            1,
        ),
        (
            NO_LOGIN,
            "is not logged in or has no credit: invalid api key; log in, or set another ralph.judge",
            Cause.AUTH,
            1,
        ),
    ],
)
def test_a_judge_that_does_not_answer_gives_a_degraded_verdict(
    project: Project, judge: str | AgentSpec, reason: str, cause: Cause, times: int
) -> None:
    """The verdict says why and names the cause for the run; a judge with a fatal error is asked only once."""
    with judging(project, judge) as found:
        verdict = found.verdict(CRITERION)
        asked = len(found.loop.told(AgentStarted))
    assert (verdict.green, verdict.degraded, asked) == (True, True, times)
    assert (verdict.reason, verdict.cause) == (f"the judge (judge) {reason}", cause)


def test_a_judge_without_login_is_told_how_to_log_in(project: Project) -> None:
    """The reason names the login command of the judge's own agent."""
    with judging(project, claude(project, "authentication_failed")) as found:
        verdict = found.verdict(CRITERION)
    assert verdict.cause is Cause.AUTH
    assert verdict.reason.endswith("; run `claude` and type /login, or set another ralph.judge")


@pytest.mark.parametrize(
    ("judge", "cause", "asked"),
    [("echo VERIFIED", Cause.JUDGE, 3), (NO_LOGIN, Cause.AUTH, 1)],
)
def test_a_run_stops_for_its_judge_and_continues_with_it(
    project: Project, judge: str, cause: Cause, asked: int
) -> None:
    """The agent is not run again: neither when the judge fails nor, once it works, after a resume."""
    with judging(project, judge, iterations=4) as found:
        loop = found.loop
        state = loop.drive()
        assert end_of(state) == (Outcome.FATAL, cause)
        assert state.stop is not None and state.stop.reason.startswith("the judge (judge) ")
        shell_agent(project, f"echo '{MET}'", name="judge")
        state = loop.drive(machine.apply(state, Resume(loop.clock.wall())))
        purposes = [event.purpose for event in loop.told(AgentStarted)]
    assert end_of(state) == PROVED
    assert purposes == [Purpose.WORK, *[Purpose.JUDGE] * (asked + 1)]


def test_a_judge_that_fails_next_to_a_red_check_does_not_stop_the_run(project: Project) -> None:
    """The agent continues with the output of that check, and reads only in passing that nothing was judged."""
    red = command_check("test -e done.txt", name="tests")
    agent = f"[ $RALPH_ITERATION = 1 ] || touch done.txt; {CLAIM}"
    judge = shell_agent(project, "echo VERIFIED", name="judge")
    with opened_loop(project, agent, judge=judge, checks=(red, CRITERION), iterations=4) as loop:
        state = loop.drive()
        works = [event for event in loop.told(AgentStarted) if event.purpose is Purpose.WORK]
    assert (end_of(state), len(works)) == ((Outcome.FATAL, Cause.JUDGE), 2)
    told = (project.path / ".ralph/prompt_002.txt").read_text()
    assert "test -e done.txt" in told and "The criteria were not judged this time." in told


def test_a_judge_stopped_by_the_budget_leaves_the_end_to_the_budget(project: Project) -> None:
    """The run ends because its budget is used up, not because of its judge."""
    line = {"type": "result", "result": "perhaps", "total_cost_usd": 5.0, "usage": {"input_tokens": 7}}
    judge = shell_agent(
        project, f"echo '{json.dumps(line)}'; exec sleep 60", PromptVia.STDIN, name="judge", type="claude"
    )
    with judging(project, judge, limits=Limits(iterations=4, cost_usd=1.0)) as found:
        assert end_of(found.loop.drive()) == (Outcome.LIMIT, Cause.COST)
        assert [event.purpose for event in found.loop.told(AgentStarted)] == [Purpose.WORK, Purpose.JUDGE]


def test_a_prompt_too_long_for_the_judge_is_not_sent(project: Project) -> None:
    """A prompt above 128 KiB does not start the judge, and the verdict says why."""
    judge = shell_agent(project, f"echo '{MET}'", name="judge")
    check = Check("semantic", "semantic", json.dumps({"check_for": ["x" * 140_000]}))
    with judging(project, judge) as found:
        found.runner.slugs["semantic"] = "semantic"
        verdict = found.verdict(check)
    assert verdict.degraded and verdict.cause is Cause.JUDGE
    assert "(judge) could not be started: The prompt is too long" in verdict.reason


def test_the_judges_usage_counts_for_the_check(project: Project) -> None:
    """Usage is summed over all the judge's calls."""
    line = {"type": "result", "result": "perhaps", "total_cost_usd": 0.5, "usage": {"input_tokens": 7}}
    body = f"echo '{json.dumps(line)}'"
    with judging(project, shell_agent(project, body, PromptVia.STDIN, name="judge", type="claude")) as found:
        usage = found.outcome(CRITERION).usage
    assert (usage.cost_usd, usage.input_tokens) == (1.5, 21)


def test_a_limited_judge_gives_a_retry_time_instead_of_a_verdict(project: Project) -> None:
    """The check is due again when the usage limit resets."""
    with judging(project, "echo 'rate limit: try again in 90 seconds' >&2; exit 1") as found:
        outcome = found.outcome(CRITERION)
        wait = (outcome.retry_at or 0.0) - found.loop.clock.wall()
    assert (outcome.verdict, outcome.is_limited) == (None, True) and 90 <= wait <= 150


@pytest.mark.parametrize(("said", "least"), [("in 300 seconds", 300.0), ("", policy.LIMIT_BACKOFF)])
def test_a_run_holds_for_its_judge_and_asks_again(
    project: Project, tmp_path: Path, said: str, least: float
) -> None:
    """The run waits for the judge's reset, or for a minute, and does not start the agent again."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, Holding):
            (tmp_path / "over").touch()

    body = f"test -e {tmp_path}/over && echo '{MET}' && exit; echo 'rate limit: try again {said}' >&2; exit 1"
    with judging(project, body, heard) as found:
        state = found.loop.drive()
        kinds = ["plan", "look", "run_agent", "look", "run_checks", "hold", "run_checks", "stop"]
        assert found.loop.kinds == kinds
    assert end_of(state)[0] == "complete"
    assert [event.hold.why for event in found.loop.told(Holding)] == [HoldWhy.LIMIT]
    assert least <= found.loop.clock.passed <= least + 80.0


def test_an_interrupted_judge_gives_no_verdict(project: Project) -> None:
    """The judge is stopped, and its usage so far is known."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, AgentStarted):
            loop.interrupt(2)

    with judging(project, "exec sleep 60", heard) as found:
        assert found.outcome(CRITERION) == CheckOutcome(None, Usage())


def test_parallel_stages_with_judges_share_the_repository(repository: Project) -> None:
    """Every stage asks git for the diff; one after the other, since they share the process that starts git."""
    stages = [
        {"name": f"criterion {number}", "method": "semantic", "config": {"check_for": ["It works"]}}
        for number in range(4)
    ]
    check = Check("semantic", "multi_stage", json.dumps({"parallel": True, "stages": stages}))
    base = repository.git("rev-parse", "HEAD").strip()
    (repository.path / "new.txt").write_text("new\n")
    with judging(repository, f"echo '{MET}'", base=base) as found:
        assert [part.green for part in found.verdict(check).parts] == [True] * 4
