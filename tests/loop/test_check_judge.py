"""The judge of a check: where it runs, what it sees, and when it gives no verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.loop_support import Checking, Heard, Loop, end_of, ignored, opened_loop, shell_agent
from ralph.core import policy
from ralph.core.events import AgentStarted, Event, Holding
from ralph.core.model import AgentSpec, Check, HoldWhy, PromptVia, Purpose, Usage
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


@pytest.mark.parametrize(
    ("judge", "why", "times"),
    [
        ("exit 3", "failed", 3),
        (AgentSpec("j", "custom", "/elsewhere/judge"), "unstartable: /elsewhere/judge: no such file", 1),
        ("echo 'invalid api key' >&2; exit 1", "auth: invalid api key", 1),
    ],
)
def test_a_judge_that_does_not_answer_gives_a_degraded_verdict(
    project: Project, judge: str | AgentSpec, why: str, times: int
) -> None:
    """The claim alone decides, which the verdict says; a judge with a fatal error is asked only once."""
    with judging(project, judge) as found:
        verdict = found.verdict(CRITERION)
        asked = len(found.loop.told(AgentStarted))
    assert (verdict.green, verdict.degraded, asked) == (True, True, times)
    assert f"could not be judged ({why})" in verdict.reason


def test_a_prompt_too_long_for_the_judge_is_not_sent(project: Project) -> None:
    """A prompt above 128 KiB does not start the judge, and the verdict says why."""
    judge = shell_agent(project, f"echo '{MET}'", name="judge")
    check = Check("semantic", "semantic", json.dumps({"check_for": ["x" * 140_000]}))
    with judging(project, judge) as found:
        found.runner.slugs["semantic"] = "semantic"
        verdict = found.verdict(check)
    assert verdict.degraded and "the limit is 128 KiB" in verdict.reason


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
