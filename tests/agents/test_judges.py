"""The same agent with another model, or as a judge."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ralph.agents import gemini
from ralph.agents.base import Prompt
from ralph.agents.registry import AGENTS, as_judge, with_model
from ralph.core.model import AgentSpec, Permissions, Purpose

POLICY = Path(gemini.__file__).with_name("gemini_judge.toml")


def spec(type: str, *flags: str, env: tuple[tuple[str, str], ...] = ()) -> AgentSpec:
    return AgentSpec(type, type, type, flags, env)


def argv(spec: AgentSpec) -> str:
    words = AGENTS[spec.type].argv(spec, Purpose.JUDGE, Prompt("Q", "q.txt"))
    return " ".join(word or "''" for word in words)


@pytest.mark.parametrize(
    ("type", "flags", "model", "expected"),
    [
        ("claude", (), "", ("--model", "haiku")),
        ("claude", (), "opus", ("--model", "opus")),
        ("gemini", (), "", ("--model", "flash-lite")),
        ("codex", (), "", ()),
        ("opencode", (), "", ()),
        ("amp", (), "x", ()),
        ("codex", ("-m", "big", "--json"), "", ("-m", "big", "--json")),
        ("codex", ("--json", "-m", "big"), "small", ("--json", "--model", "small")),
        ("opencode", ("--model=a/b", "--pure"), "c/d", ("--pure", "--model", "c/d")),
        ("amp", ("--model", "x"), "y", ("--model", "x")),
    ],
)
def test_another_model(type: str, flags: tuple[str, ...], model: str, expected: tuple[str, ...]) -> None:
    """The model is passed once, replacing the user's. Without a name it is a small one, unless the user named one."""
    assert with_model(spec(type, *flags), model).flags == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            spec("claude", "--tools", "Bash", "Write", "--permission-mode=plan", "--effort", "low"),
            "claude -p --output-format stream-json --verbose --no-session-persistence --effort low --model haiku"
            " --tools '' --strict-mcp-config",
        ),
        (
            spec("codex", "-s", "workspace-write", "--yolo", "-m", "big"),
            "codex exec --json --skip-git-repo-check --ephemeral -m big --sandbox read-only -c features.shell_tool=false"
            " -- -",
        ),
        (
            spec("gemini", "-y", "--debug"),
            "gemini --prompt= --output-format stream-json --skip-trust --debug --model flash-lite"
            f" --approval-mode default --admin-policy {POLICY}",
        ),
        (
            spec("opencode", "--auto", "--title", "mine", "--pure"),
            "opencode run --format json --thinking --print-logs --log-level ERROR --pure --title judge",
        ),
        (spec("amp", "--dangerously-allow-all", "--no-ide"), "amp --no-ide -x"),
        (spec("custom", "--anything"), "custom --anything"),
    ],
)
def test_a_judge_may_do_nothing(given: AgentSpec, expected: str) -> None:
    """It has no permissions, whatever the user allows the agent, because it reads untrusted work."""
    judge = as_judge(given, "")
    assert (argv(judge), judge.permissions) == (expected, Permissions.NONE)


def test_opencode_gets_a_variable() -> None:
    """Every tool is denied, even those that the user's configuration allows by name."""
    name, rules = as_judge(spec("opencode", env=(("A", "b"),)), "").env[-1]
    assert name == "OPENCODE_PERMISSION"
    assert set(json.loads(rules).values()) == {"deny"} and {"*", "bash", "edit"} < json.loads(rules).keys()


def test_the_policy_of_a_gemini_judge() -> None:
    """It denies every tool except one that only reads; without the file nothing would be denied."""
    first, second = tomllib.loads(POLICY.read_text())["rule"]
    assert (first["toolName"], first["decision"]) == ("list_directory", "allow")
    assert (second["toolName"], second["decision"]) == ("*", "deny")
    assert first["priority"] > second["priority"]
