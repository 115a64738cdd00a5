"""The model server drives each real CLI; these tests check the server, not ralph."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ralph.modelserver.script import parse
from ralph.modelserver.server import ModelServer
from real.real_support import NAMES, REAL, environment, run_directly

pytestmark = REAL

SCRIPT = """
turns:
  - thinking: First I look around.
    text: I look around.
    tools: [{bash: "expr 40000 + 2718"}]
  - tools: [{write: {path: hello.txt, content: "one\\ntwo\\n"}}]
  - tools: [{edit: {path: hello.txt, old: two, new: three}}]
  - tools: [{read: hello.txt}]
  - text: All is done now.
then: error
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_real_agent_plays_the_script(name: str, tmp_path: Path) -> None:
    """The agent runs the command, writes, edits and reads the file, and returns the results to the model."""
    with ModelServer(parse(SCRIPT)) as server:
        env = environment(name, tmp_path / "home", server)
        ended = run_directly(name, tmp_path / "work", env, "Please say hello.")
        turns = server.turns()
    assert ended.code == 0, ended.err
    assert "All is done now." in ended.out
    assert (tmp_path / "work" / "hello.txt").read_text() == "one\nthree\n"
    assert [request.played for request in turns] == [1, 2, 3, 4, 5]
    assert "Please say hello." in turns[0].said()
    assert "42718" in turns[1].said()
    assert "three" in turns[-1].said().rpartition("hello.txt")[2]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_a_real_agent_meets_a_usage_limit(name: str, tmp_path: Path) -> None:
    """The agent gives up at once with its own message."""
    words = {
        "claude": "This request would exceed your account's rate limit",
        "codex": "hit your usage limit",
        "gemini": "exhausted your daily quota",
    }
    with ModelServer(parse("turns: [{usage_limit: {resets_in: 7200}}]")) as server:
        env = environment(name, tmp_path / "home", server)
        ended = run_directly(name, tmp_path / "work", env, "Please say hello.", seconds=30)
        assert len(server.turns()) == 1
    assert ended.code == (173 if name == "gemini" else 1)
    assert words[name] in ended.out


def test_a_subscriber_gets_the_reset_time(tmp_path: Path) -> None:
    """Claude with a subscription reports a structured event with the reset time."""
    reset = int(time.time()) + 7200
    with ModelServer(parse(f"turns: [{{usage_limit: {{resets_at: {reset}}}}}]")) as server:
        env = environment("claude", tmp_path / "home", server, subscription=True)
        ended = run_directly("claude", tmp_path / "work", env, "Please say hello.", seconds=30)
    events = [json.loads(line) for line in ended.out.splitlines()]
    (limit,) = [event["rate_limit_info"] for event in events if event["type"] == "rate_limit_event"]
    assert (limit["status"], limit["resetsAt"], limit["rateLimitType"]) == ("rejected", reset, "five_hour")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_real_agent_never_ends_a_hang(name: str, tmp_path: Path) -> None:
    """The agent waits forever on a hang in mid-stream, so Ralph has to stop it."""
    with ModelServer(parse("turns: [{text: I begin and then, hang_after: 3}]")) as server:
        env = environment(name, tmp_path / "home", server)
        ended = run_directly(name, tmp_path / "work", env, "Please say hello.", seconds=6)
        assert len(server.turns()) == 1
    assert ended.code is None


@pytest.mark.parametrize("fault", ["cut: true", "malformed: true"])
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_real_agent_survives_a_broken_stream(name: str, fault: str, tmp_path: Path) -> None:
    """The agent retries and gets the next turn."""
    with ModelServer(parse(f"turns: [{{text: lost, {fault}}}, {{text: found again}}]")) as server:
        env = environment(name, tmp_path / "home", server)
        ended = run_directly(name, tmp_path / "work", env, "Please say hello.", seconds=30)
        assert [request.played for request in server.turns()] == [1, 2]
    assert (ended.code, "found again" in ended.out) == (0, True)
