"""Behaviour specific to the real Claude Code, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

import time

from conftest import Project
from ralph.modelserver.script import parse
from real.real_support import DONE, REAL, assert_gone, driven, ends, limits, turns

pytestmark = REAL


def test_when_a_usage_limit_is_over(repository: Project) -> None:
    """With a subscription, the reset time is known to the second."""
    reset = int(time.time()) + 1200
    script = parse(f"turns: [{{usage_limit: {{resets_at: {reset}}}, times: forever}}]")
    with driven("claude", repository, script, subscription=True, maxLimitWaitSeconds=1) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (3, ["limit"]), result.err
        assert [(limit["kind"], limit["retry_at"]) for limit in limits(result)] == [("usage", reset)]


def test_a_fallback_while_it_is_limited(repository: Project) -> None:
    """The run switches to the fallback agent instead of waiting for the limit."""
    script = parse("turns: [{usage_limit: {resets_in: 1200}, times: forever}]")
    agent = {"fallbacks": [{"command": repository.script("other.sh", f"echo '{DONE}'")}]}
    with driven("claude", repository, script, subscription=True, agent=agent) as (project, server):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["limit", "ok"]), result.err
        assert len(server.turns()) == 1


def test_a_rejected_key(repository: Project) -> None:
    """The run stops as fatal within seconds, although Claude would retry ten times."""
    script = parse("turns: [{status: 401, type: authentication_error, message: wrong, times: forever}]")
    with driven("claude", repository, script, maximumIterations=3) as (project, server):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (2, ["auth"]), result.err
        assert [limit["kind"] for limit in limits(result)] == ["auth"]
        assert len(server.turns()) <= 3


def test_a_task_in_the_background(repository: Project) -> None:
    """A background task that would keep Claude from exiting is stopped."""
    task = "echo $$ > task.pid; while :; do sleep 1; done"
    call = {"name": "Bash", "input": {"command": task, "description": "wait", "run_in_background": True}}
    script = turns({"tools": [{"call": call}]}, {"text": DONE})
    with driven("claude", repository, script, exitGraceSeconds=2) as (project, _):
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert_gone(project.path / "task.pid")


def test_a_prompt_as_argument(repository: Project) -> None:
    """A prompt that looks like an option reaches the model unchanged."""
    agent = {"promptVia": "argument", "flags": ["--allowedTools Bash"]}
    with driven("claude", repository, turns({"text": DONE}), agent=agent) as (project, server):
        result = project.run("run", "-p", "--help me", "--json")
        assert (result.code, ends(result)) == (0, ["ok"]), result.err
        assert "--help me" in server.turns()[0].said()
