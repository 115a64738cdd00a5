"""Settings: defaults, merging, sources, errors that name file, line and key, and invalid files of any kind."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import RALPH, Project, Result, some
from ralph.core.model import AgentSpec, FailAction, PromptVia
from ralph.errors import RalphError
from ralph.runs import run_plan
from ralph.settings import (
    DEFAULT,
    AgentSettings,
    GuardrailSettings,
    LoadedSettings,
    deep_merge,
    leaves,
    load,
    schema,
    to_json,
)

ROLE = {
    "enabled": True,
    "maxIterations": None,
    "promise": None,
    "verification": None,
    "agent": None,
    "model": None,
}
DEFAULTS: dict[str, Any] = {
    "protect": None,
    "maximumIterations": 10,
    "completionResponse": "DONE",
    "outputTruncateChars": 5000,
    "streamAgentOutput": True,
    "includeIterationCountInPrompt": False,
    "includeCompletionInstruction": True,
    "agent": {
        "command": "",
        "flags": [],
        "type": None,
        "promptVia": None,
        "permissions": None,
        "env": {},
        "fallbacks": [],
    },
    "guardrails": [],
    "scm": None,
    "iterationTimeoutSeconds": 0.0,
    "idleTimeoutSeconds": None,
    "exitGraceSeconds": 30.0,
    "maxLimitWaitSeconds": 21600.0,
    "maxCostUsd": 0.0,
    "maxTokens": 0,
    "maxDurationSeconds": 0.0,
    "stagnationLimit": 0,
    "snapshots": True,
    "guard": {"enabled": True, "allow": [], "deny": []},
    "sandbox": {
        "rung": None,
        "image": "",
        "network": "open",
        "allowedHosts": [],
        "writable": [],
        "readOnly": [],
        "hidden": [],
        "variables": [],
        "memoryMb": 0,
        "processes": 0,
    },
    "supervise": {
        "maxRestarts": 100,
        "restartDelaySeconds": 1.0,
        "restartPolicy": "backoff",
        "agentTimeoutSeconds": 0.0,
        "waitTimeoutSeconds": 300.0,
        "pollIntervalSeconds": 1.0,
    },
    "ralph": {
        "enabled": True,
        "defaultMaxIterations": None,
        "defaultVerification": None,
        "agents": {"coder": ROLE, "reviewer": ROLE, "tester": ROLE, "qa": ROLE},
        "judge": {"agent": None, "model": None},
        "allowDegraded": False,
        "protect": None,
        "setup": "",
        "maxPerAgent": {},
        "maxTaskCostUsd": 0.0,
    },
    "notify": {"urls": [], "command": "", "on": ["finished", "failed", "waiting", "limit", "budget"]},
    "useEmoji": None,
    "useColor": None,
    "theme": None,
    "showTimestamp": False,
    "maxOutputLines": 5,
    "maxOutputChars": 2000,
}

EXAMPLE: dict[str, Any] = {
    "maximumIterations": 10,
    "completionResponse": "DONE",
    "outputTruncateChars": 5000,
    "streamAgentOutput": True,
    "includeIterationCountInPrompt": False,
    "agent": {"command": "claude", "flags": ["--model opus", "--no-auto-compact"]},
    "guardrails": [
        {
            "command": "make lint",
            "failAction": "APPEND",
            "hint": "Fix lint errors only. Do not change behavior.",
        },
        {"command": "make test", "failAction": "APPEND"},
    ],
    "scm": {"command": "git", "tasks": ["commit", "push"]},
}
"""The settings file that the documentation shows."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project to load settings in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ralph").mkdir()
    return tmp_path


def write(path: Path, values: Any) -> Path:
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def plain(values: Any) -> Any:
    """Values as in JSON: a tuple becomes an array."""
    return json.loads(json.dumps(values))


def values_of(loaded: LoadedSettings) -> dict[str, Any]:
    values: dict[str, Any] = plain(to_json(loaded.settings))
    return values


def message_of(path: Path, values: Any) -> tuple[str, str]:
    """The error for an invalid settings file."""
    write(path, values)
    with pytest.raises(RalphError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint


# ---- values, defaults and sources ----


def test_every_key_has_a_default(here: Path) -> None:
    """Without any file every key has its documented default, with the source `default`."""
    loaded = load()
    assert values_of(loaded) == DEFAULTS
    assert loaded.files == ()
    assert set(loaded.sources.values()) == {DEFAULT}


def test_the_documented_example_is_valid(here: Path) -> None:
    """The example of the documentation is valid, and keys that it leaves out keep their defaults."""
    write(here / ".ralph/settings.json", EXAMPLE)
    expected = DEFAULTS | EXAMPLE
    expected["agent"] = DEFAULTS["agent"] | EXAMPLE["agent"]
    expected["guardrails"] = [
        {"failAction": "APPEND", "hint": "", "timeoutSeconds": 0.0, "clean": False} | guardrail
        for guardrail in EXAMPLE["guardrails"]
    ]
    assert values_of(load()) == expected


def test_every_key_can_be_set(here: Path) -> None:
    """Each key takes a value other than its default."""
    values = {
        "maximumIterations": 3,
        "protect": ["tests/"],
        "completionResponse": "ALL GREEN",
        "outputTruncateChars": 0,
        "streamAgentOutput": False,
        "includeIterationCountInPrompt": True,
        "includeCompletionInstruction": False,
        "agent": {
            "command": "scripted",
            "flags": ["a.yaml"],
            "type": "scripted",
            "promptVia": "file",
            "permissions": "bypass",
            "env": {"A": "b"},
            "fallbacks": [
                {
                    "command": "codex",
                    "flags": ["-m x"],
                    "type": None,
                    "promptVia": "stdin",
                    "permissions": "none",
                    "env": {"C": "d"},
                }
            ],
        },
        "guardrails": [
            {
                "command": "make test",
                "failAction": "REPLACE",
                "hint": "Hm.",
                "timeoutSeconds": 1.5,
                "clean": True,
            }
        ],
        "scm": {"command": "git", "tasks": ["commit"]},
        "iterationTimeoutSeconds": 60.0,
        "idleTimeoutSeconds": 0.5,
        "exitGraceSeconds": 0.0,
        "maxLimitWaitSeconds": 60.0,
        "maxCostUsd": 2.5,
        "maxTokens": 1000,
        "maxDurationSeconds": 3600.0,
        "stagnationLimit": 3,
        "snapshots": False,
        "guard": {
            "enabled": False,
            "allow": [{"pattern": "npm publish", "reason": "It is a test registry."}],
            "deny": [{"pattern": "make deploy*", "reason": "Deployments are ours."}],
        },
        "sandbox": {
            "rung": "bubblewrap",
            "image": "localhost/mine:1",
            "network": "allow-list",
            "allowedHosts": ["registry.example.org"],
            "writable": ["~/.npm"],
            "readOnly": ["~/notes"],
            "hidden": ["/srv"],
            "variables": ["AWS_*"],
            "memoryMb": 4096,
            "processes": 500,
        },
        "supervise": {
            "maxRestarts": 5,
            "restartDelaySeconds": 0.5,
            "restartPolicy": "fixed",
            "agentTimeoutSeconds": 60.0,
            "waitTimeoutSeconds": 0.0,
            "pollIntervalSeconds": 0.1,
        },
        "ralph": {
            "enabled": False,
            "defaultMaxIterations": 4,
            "defaultVerification": "string_match",
            "agents": {
                key: {
                    "enabled": False,
                    "maxIterations": 2,
                    "promise": "P",
                    "verification": "semantic",
                    "agent": "codex",
                    "model": "m",
                }
                for key in ("coder", "reviewer", "tester", "qa")
            },
            "judge": {"agent": "gemini", "model": "n"},
            "allowDegraded": True,
            "protect": ["tests/"],
            "setup": "npm ci",
            "maxPerAgent": {"claude": 2},
            "maxTaskCostUsd": 1.5,
        },
        "notify": {"urls": ["ntfy://topic"], "command": "notify-send x", "on": ["failed"]},
        "useEmoji": True,
        "useColor": False,
        "theme": "light",
        "showTimestamp": True,
        "maxOutputLines": 0,
        "maxOutputChars": 80,
    }
    assert set(values) == set(DEFAULTS)
    assert values_of(load(write(here / "s.json", values))) == values


def test_local_file_and_flags_on_top(here: Path) -> None:
    """The local file overrides the file, a flag overrides both, and each value has its source."""
    base = write(
        here / ".ralph/settings.json",
        {
            "maximumIterations": 3,
            "completionResponse": "BASE",
            "agent": {"command": "base", "flags": ["--model opus"], "env": {"A": "1", "B": "2"}},
            "scm": {"command": "git", "tasks": ["commit"]},
        },
    )
    local = write(
        here / ".ralph/settings.local.json",
        {"completionResponse": "LOCAL", "agent": {"flags": ["--verbose"], "env": {"B": "3"}}, "scm": None},
    )
    loaded = load(flags={"maximumIterations": 7, "streamAgentOutput": False, "agent.command": "flag"})
    assert loaded.files == (base.relative_to(here), local.relative_to(here))
    found = {path: (plain(value), source) for path, value, source in leaves(loaded) if source != DEFAULT}
    in_base, in_local = ".ralph/settings.json", ".ralph/settings.local.json"
    assert found == {
        "maximumIterations": (7, "flag"),
        "completionResponse": ("LOCAL", in_local),
        "streamAgentOutput": (False, "flag"),
        "agent.command": ("flag", "flag"),
        "agent.flags": (["--verbose"], in_local),
        "agent.env.A": ("(redacted)", in_base),
        "agent.env.B": ("(redacted)", in_local),
        "scm": (None, in_local),
    }


@pytest.mark.parametrize(
    ("chosen", "local"),
    [
        ("other.json", "other.local.json"),
        ("a.b.json", "a.b.local.json"),
        ("plain", "plain.local"),
        ("sub/settings.json", "sub/settings.local.json"),
    ],
)
def test_the_local_file_is_next_to_the_chosen_one(here: Path, chosen: str, local: str) -> None:
    """With `--settings FILE`, only FILE and its own local file are read, not the default ones."""
    write(here / ".ralph/settings.json", {"maxTokens": 1})
    write(here / ".ralph/settings.local.json", {"maxTokens": 2})
    (here / chosen).parent.mkdir(exist_ok=True)
    write(here / chosen, {"maximumIterations": 3, "stagnationLimit": 4})
    write(here / local, {"stagnationLimit": 5})
    loaded = load(Path(chosen))
    values = loaded.settings
    assert (values.maximum_iterations, values.stagnation_limit, values.max_tokens) == (3, 5, 0)
    assert loaded.files == (Path(chosen), Path(local))


def test_a_local_file_alone_is_enough(here: Path) -> None:
    """Local settings count without a settings file."""
    write(here / ".ralph/settings.local.json", {"maximumIterations": 4})
    assert load().settings.maximum_iterations == 4


def test_a_local_file_may_be_partial(here: Path) -> None:
    """A local file with only part of `scm` is merged before required keys are checked."""
    write(here / ".ralph/settings.json", {"scm": {"command": "jj", "tasks": ["commit"]}})
    write(here / ".ralph/settings.local.json", {"scm": {"tasks": []}})
    assert values_of(load())["scm"] == {"command": "jj", "tasks": []}


def test_required_keys_must_be_in_some_file(here: Path) -> None:
    """Settings that are incomplete after merging are refused, and the error names the files."""
    message, _ = message_of(here / "s.json", {"scm": {"tasks": ["commit"]}})
    assert str(here / "s.json") in message
    assert "command" in message and "scm" in message


def test_a_chosen_file_must_exist(here: Path) -> None:
    """The default file may be missing, but not one that was asked for."""
    assert load().files == ()
    with pytest.raises(RalphError, match=r"^nowhere\.json: settings file not found\.$"):
        load(Path("nowhere.json"))


def test_a_schema_reference_is_ignored(here: Path) -> None:
    """`$schema`, which editors need, is allowed at the top level."""
    loaded = load(write(here / "s.json", {"$schema": "./schema.json", "maxTokens": 5}))
    assert loaded.settings.max_tokens == 5
    assert "$schema" not in loaded.sources


@pytest.mark.parametrize("written", ["append", "Append", "PREPEND", "prepend", "rePlace"])
def test_fail_actions_are_case_insensitive(here: Path, written: str) -> None:
    """`failAction` may be written in any case."""
    values = {"guardrails": [{"command": "true", "failAction": written}]}
    loaded = load(write(here / "s.json", values))
    assert loaded.settings.guardrails[0].fail_action is FailAction[written.upper()]


def test_config_shows_values_sources_and_no_secrets(project: Project) -> None:
    """`ralph config --json` has every key with value and source; the agent's environment is redacted."""
    other = {"command": "y", "env": {"TOKEN": "hunter2"}}
    project.settings(maximumIterations=3, agent={**other, "fallbacks": [other]})
    result = project.run("config", "--json")
    shown = json.loads(result.out)
    assert shown["maximumIterations"] == {"value": 3, "source": ".ralph/settings.json"}
    assert shown["snapshots"] == {"value": True, "source": "default"}
    assert shown["agent.env.TOKEN"] == {"value": "(redacted)", "source": ".ralph/settings.json"}
    assert {path.partition(".")[0] for path in shown} == set(DEFAULTS)
    assert "hunter2" not in result.out + project.run("config").out


# ---- merging ----

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)
OBJECT = object()


def nodes(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every place of a document by its path; objects are a mark and the places below them."""
    if not isinstance(value, dict):
        return {path: value}
    found: dict[tuple[str, ...], Any] = {path: OBJECT}
    for key, inner in value.items():
        found |= nodes(inner, (*path, key))
    return found


def overlaid(base: dict[str, Any], local: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """The places after a merge: values in `local` win, and remove what `base` had below them."""
    found = nodes(base)
    for path, value in nodes(local).items():
        if value is OBJECT and found.get(path) is OBJECT:
            continue
        found = {other: kept for other, kept in found.items() if other[: len(path)] != path}
        found[path] = value
    return found


@given(objects, objects)
def test_deep_merge(base: dict[str, Any], local: dict[str, Any]) -> None:
    """Objects are merged key by key at every depth; arrays and scalars in the local file replace."""
    before = json.dumps([base, local])
    assert nodes(deep_merge(base, local)) == overlaid(base, local)
    assert json.dumps([base, local]) == before


@given(objects, objects, objects)
def test_deep_merge_laws(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    """Merging nothing, or the same again, changes nothing; a later file wins."""
    assert deep_merge(a, {}) == deep_merge({}, a) == deep_merge(a, a) == a
    merged = deep_merge(deep_merge(a, b), c)
    assert deep_merge(merged, c) == merged


# ---- errors ----


@pytest.mark.parametrize(
    ("values", "key", "hint"),
    [
        ({"maximumIteration": 3}, "maximumIteration", "Did you mean 'maximumIterations'?"),
        ({"guardrail": []}, "guardrail", "Did you mean 'guardrails'?"),
        ({"MaxTokens": 3}, "MaxTokens", "Did you mean 'maxTokens'?"),
        ({"agent": {"comand": "x"}}, "agent.comand", "Did you mean 'command'?"),
        ({"agent": {"prompt_via": "x"}}, "agent.prompt_via", "Did you mean 'promptVia'?"),
        (
            {"guardrails": [{"command": "x"}, {"command": "x", "failaction": "APPEND"}]},
            "guardrails[1].failaction",
            "Did you mean 'failAction'?",
        ),
        ({"scm": {"command": "git", "task": []}}, "scm.task", "Did you mean 'tasks'?"),
        ({"scm": {"command": "git", "zzz": 1}}, "scm.zzz", "Known keys: command, tasks."),
        (
            {"agent": {"$schema": "x"}},
            "agent.$schema",
            "Known keys: command, flags, type, promptVia, permissions, env, fallbacks.",
        ),
    ],
)
def test_an_unknown_key_is_an_error(here: Path, values: Any, key: str, hint: str) -> None:
    """An unknown key is refused at every level, with the key that was probably meant."""
    path = here / "s.json"
    assert message_of(path, values) == (f"{path}:1: unknown key {key!r}.", hint)


@pytest.mark.parametrize(
    ("text", "line", "key", "reason"),
    [
        ('{\n"maximumIterations": true}', 2, "maximumIterations", "must be a whole number, not a boolean"),
        ('{\n\n"maximumIterations": "3"}', 3, "maximumIterations", "must be a whole number, not a string"),
        ('{\n"maximumIterations": 0}', 2, "maximumIterations", "must be 1 or more"),
        ('{\n"maximumIterations": 1.5}', 2, "maximumIterations", "must be a whole number, not a fraction"),
        ('{\n"outputTruncateChars": -1}', 2, "outputTruncateChars", "must be 0 or more"),
        ('{\n"maxCostUsd": -0.1}', 2, "maxCostUsd", "must be 0 or more"),
        ('{\n"maxCostUsd": true}', 2, "maxCostUsd", "must be a number, not a boolean"),
        ('{\n"snapshots": 1}', 2, "snapshots", "must be true or false, not a number"),
        ('{\n"snapshots": null}', 2, "snapshots", "must be true or false, not null"),
        ('{\n"completionResponse": ""}', 2, "completionResponse", "must not be empty"),
        ('{\n"agent": []}', 2, "agent", "must be an object, not an array"),
        ('{"agent":\n{"flags": "x"}}', 2, "agent.flags", "must be an array, not a string"),
        ('{"agent":\n{"flags":\n["a", 1]}}', 3, "agent.flags[1]", "must be a string, not a number"),
        ('{"agent":\n{"promptVia": "mail"}}', 2, "agent.promptVia", "unknown value 'mail'"),
        ('{\n"guardrails": {}}', 2, "guardrails", "must be an array, not an object"),
        ('{\n"guardrails": [\n"x"]}', 3, "guardrails[0]", "must be an object, not a string"),
        (
            '{"guardrails": [\n{"command": "x",\n"failAction": "IGNORE"}]}',
            3,
            "guardrails[0].failAction",
            "unknown value 'IGNORE'",
        ),
        ('{\n"scm": "git"}', 2, "scm", "must be an object or null, not a string"),
    ],
)
def test_a_wrong_type_names_file_line_and_key(
    here: Path, text: str, line: int, key: str, reason: str
) -> None:
    """A value of the wrong type, or out of range, is reported with file, line, key and what was expected."""
    path = here / "s.json"
    assert message_of(path, text)[0] == f"{path}:{line}: {key}: {reason}."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"agent": {\n"command": 1},\n"guardrails": [{\n"command": "true"}]}', 2),
        ('{"guardrails": [\n{"command": 1},\n{"command": "true"}]}', 2),
        ('{"guardrails": [{"command": "true"},\n{"command": "true",\n"command ": 1}]}', 3),
        ('{"agent": {"env": {"A": "\\"agent\\": {",\n"B": "}",\n"C": 1}}}', 3),
        ('{"agent": {"env": {"a.b[0]": "x",\n"a.b[1]": 1}}}', 2),
        ('{"agent": {"command": "a",\n"command": "b"},\n"scm": {"command": "git"}}', 2),
        ('{"agent": {\n"comm\\u0061nd": 1}}', 2),
    ],
)
def test_the_line_is_that_of_the_wrong_value(here: Path, text: str, line: int) -> None:
    """Keys of the same name in other objects, braces in strings and escapes do not lead to a wrong line."""
    path = here / "s.json"
    assert message_of(path, text)[0].startswith(f"{path}:{line}: ")


def test_a_key_that_is_repeated_with_escapes_is_one_clear_error(here: Path) -> None:
    """A key that appears twice, once with an escape, is reported like any other."""
    path = here / "s.json"
    message, _ = message_of(path, '{"\\u0061": 1,\n"\\u0061": 2}')
    assert message == f"{path}:2: duplicate key 'a'."


def test_an_error_in_the_local_file_names_the_local_file(here: Path) -> None:
    """Each file is checked by itself, so that the right one is named."""
    write(here / ".ralph/settings.json", {"maxTokens": 1})
    write(here / ".ralph/settings.local.json", '{\n"maxTokens": "many"}')
    with pytest.raises(RalphError, match=r"^\.ralph/settings\.local\.json:2: maxTokens: "):
        load()


def test_a_wrong_environment_variable_is_named(here: Path) -> None:
    """Among many variables, the error names the one whose value is not a string."""
    message, _ = message_of(here / "s.json", {"agent": {"env": {"GOOD": "x", "BAD": 1}}})
    assert "agent.env.BAD" in message


# ---- from settings to a plan ----


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model opus", "--no-auto-compact"], ("--model", "opus", "--no-auto-compact")),
        (["--message 'two words'", '--x "a b"'], ("--message", "two words", "--x", "a b")),
        (["a\\ b", "''", ""], ("a b", "")),
        (["$HOME `x` *"], ("$HOME", "`x`", "*")),
        (["--é 日本"], ("--é", "日本")),
    ],
)
def test_flags_are_split_as_a_shell_would(flags: list[str], words: tuple[str, ...]) -> None:
    """An entry of `flags` may be several arguments; quotes and backslashes group them."""
    spec = run_plan.agent_spec(AgentSettings(command="tool", flags=tuple(flags)))
    assert spec == AgentSpec("tool", "custom", "tool", words, (), PromptVia.ARGUMENT)


def test_flags_that_cannot_be_split(project: Project) -> None:
    """An open quote in `flags` is exit 2 and names the key."""
    project.settings(agent={"command": "true", "flags": ["it's"]})
    result = project.run("run", "-p", "x")
    assert result.code == 2
    assert result.err.startswith("ralph: error: agent.flags: ")


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (AgentSettings(), "No agent is configured."),
        (AgentSettings(command="  "), "No agent is configured."),
        (AgentSettings(command="x", type="gpt"), "agent.type: unknown agent 'gpt'."),
    ],
)
def test_an_invalid_agent(agent: AgentSettings, said: str) -> None:
    """A missing agent, or one of an unknown type, is refused before anything starts."""
    with pytest.raises(RalphError) as caught:
        run_plan.agent_spec(agent)
    assert caught.value.message == said
    assert caught.value.hint


def test_the_type_comes_from_the_command_unless_given() -> None:
    """`agent.type` follows the base name of the command; promptVia follows the type."""
    by_name = run_plan.agent_spec(AgentSettings(command="/usr/bin/scripted"))
    assert (by_name.type, by_name.prompt_via) == ("scripted", PromptVia.STDIN)
    given_type = run_plan.agent_spec(
        AgentSettings(command="./mine", type="scripted", prompt_via=PromptVia.FILE)
    )
    assert (given_type.type, given_type.prompt_via) == ("scripted", PromptVia.FILE)


@pytest.mark.parametrize(
    "commands",
    [
        ("make test", "make test", "make test"),
        ("make test", "make test", "make test #2"),
        ("make test #2", "make test", "make test"),
    ],
)
def test_every_guardrail_has_a_unique_name(commands: tuple[str, ...]) -> None:
    """Checks are identified by name: with a shared name, one of them would never run."""
    checks = run_plan.guardrails(tuple(GuardrailSettings(command=command) for command in commands))
    assert len({check.name for check in checks}) == len(commands)


# ---- the schema for editors ----

KEYWORDS = {
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "items",
    "minLength",
    "minimum",
    "properties",
    "required",
    "title",
    "type",
}


def is_type(value: Any, name: str) -> bool:
    """The types of JSON Schema, in which a boolean is not a number."""
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else int | float) and not isinstance(value, bool)
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    return isinstance(value, types[name])


def accepts(part: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """A validator for the part of JSON Schema that the settings schema uses."""
    assert set(part) <= KEYWORDS, set(part) - KEYWORDS
    if "$ref" in part:
        target = root["$defs"][part["$ref"].removeprefix("#/$defs/")]
        if not accepts(target, value, root):
            return False
    if "anyOf" in part and not any(accepts(one, value, root) for one in part["anyOf"]):
        return False
    if "type" in part and not is_type(value, part["type"]):
        return False
    if "enum" in part and value not in part["enum"]:
        return False
    if isinstance(value, dict) and "properties" in part | {"properties": {}}:
        known, more = part.get("properties", {}), part.get("additionalProperties", True)
        extra = {key: inner for key, inner in value.items() if key not in known}
        if (extra and more is False) or not set(part.get("required", ())) <= set(value):
            return False
        if isinstance(more, dict) and not all(accepts(more, inner, root) for inner in extra.values()):
            return False
        return all(accepts(known[key], inner, root) for key, inner in value.items() if key in known)
    if isinstance(value, list) and "items" in part:
        return all(accepts(part["items"], inner, root) for inner in value)
    if isinstance(value, str) and len(value) < part.get("minLength", 0):
        return False
    return not (is_type(value, "number") and value < part.get("minimum", value))


def test_the_schema_describes_every_key_with_its_default(project: Project) -> None:
    """`ralph config --schema` is a JSON Schema with the keys and defaults of the settings."""
    printed = json.loads(project.run("config", "--schema").out)
    assert printed == plain(schema())
    properties = printed["$defs"][printed["$ref"].removeprefix("#/$defs/")]["properties"]
    assert properties.pop("$schema") == {"type": "string"}
    assert {key: part["default"] for key, part in properties.items()} == DEFAULTS
    assert accepts(printed, DEFAULTS, printed)


@pytest.mark.parametrize(
    ("values", "good"),
    [
        (EXAMPLE, True),
        ({}, True),
        ({"scm": None, "idleTimeoutSeconds": None, "agent": {"type": None}}, True),
        ({"agent": {"env": {"A": "b"}}}, True),
        ({"unknown": 1}, False),
        ({"agent": {"unknown": 1}}, False),
        ({"agent": {"env": {"A": 1}}}, False),
        ({"agent": {"promptVia": "mail"}}, False),
        ({"guardrails": [{"hint": "no command"}]}, False),
        ({"guardrails": [{"command": ""}]}, False),
        ({"scm": {"tasks": []}}, False),
        ({"maximumIterations": 0}, False),
        ({"maximumIterations": True}, False),
        ({"maxCostUsd": -1}, False),
        ([], False),
    ],
)
def test_the_schema_agrees_with_ralph(here: Path, values: Any, good: bool) -> None:
    """An editor marks what Ralph refuses, and both accept the documented example."""
    path = write(here / "s.json", values)
    try:
        load(path)
        loads = True
    except RalphError:
        loads = False
    assert (accepts(schema(), values, schema()), loads) == (good, good)


def test_the_schema_allows_its_own_reference() -> None:
    """A file that names its schema, for an editor, is valid."""
    assert accepts(schema(), {"$schema": "settings.schema.json"}, schema())


# ---- D11: invalid files of any kind ----


@dataclass(frozen=True)
class Rubbish:
    """A file that cannot be used as settings: how to make it, and the error after its path."""

    make: Callable[[Path], Any]
    said: str


def text(content: str | bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


RUBBISH = {
    "bom": Rubbish(text(b"\xef\xbb\xbf{}"), ":1: starts with a byte order mark."),
    "utf16": Rubbish(text('{"maxTokens": 1}'.encode("utf-16")), ":1: the settings file is not UTF-8 text."),
    "binary": Rubbish(text(b'{}\n\n"\xff\xfe\x00'), ":3: the settings file is not UTF-8 text."),
    "empty": Rubbish(text(""), ":1: not valid JSON: Expecting value."),
    "nul": Rubbish(text("\0" * 100), ":1: not valid JSON: Expecting value."),
    "cut off": Rubbish(text('{\n"agent": {'), ":2: not valid JSON: "),
    "trailing comma": Rubbish(text('{\n"maxTokens": 1,\n}'), ":"),
    "comment": Rubbish(text('{\n// no\n"maxTokens": 1}'), ":2: not valid JSON: "),
    "two documents": Rubbish(text("{}\n{}"), ":2: not valid JSON: Extra data."),
    "duplicate": Rubbish(text('{"maxTokens": 1,\n"maxTokens": 2}'), ":2: duplicate key 'maxTokens'"),
    "nan": Rubbish(text('{"maxCostUsd": NaN}'), ":1: NaN is not a JSON number."),
    "infinity": Rubbish(text('{"maxCostUsd": -Infinity}'), ":1: -Infinity is not a JSON number."),
    "digits": Rubbish(text('{"maxTokens": ' + "9" * 5000 + "}"), ":1: a number has too many digits."),
    "lists": Rubbish(text("[" * 100_000 + "]" * 100_000), ":1: nested too deeply."),
    "objects": Rubbish(text('{"a":' * 100_000), ":1: nested too deeply."),
    "bool": Rubbish(text('{"maximumIterations": true}'), ":1: maximumIterations: must be a whole number"),
    "array": Rubbish(text("[]"), ":1: a settings file must be a JSON object, not an array."),
    "null": Rubbish(text("null"), ":1: a settings file must be a JSON object, not null."),
    "large": Rubbish(text(b" " * ((1 << 20) + 1) + b"{}"), ": the settings file is too large"),
    "sparse": Rubbish(sparse, ": the settings file is too large (10,737,418,240 bytes"),
    "fifo": Rubbish(os.mkfifo, ": the settings file is not a regular file."),
    "symlink": Rubbish(lambda p: p.symlink_to("/etc/passwd"), ": the settings file cannot be read: it is a"),
    "dangling": Rubbish(lambda p: p.symlink_to("nowhere"), ": the settings file cannot be read: it is a"),
}


def bounded(project: Project, *arguments: str) -> Result:
    """Run ralph with at most 100 MB of memory of any kind."""
    done = subprocess.run(
        ["sh", "-c", 'ulimit -v 102400; exec "$@"', "sh", RALPH, *arguments],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def assert_refused(result: Result, said: str) -> None:
    """Exit 2 and one error in at most two lines; nothing unexpected."""
    assert result.code == 2, result.err
    assert result.err.startswith(f"ralph: error: {said}"), result.err
    assert len(result.err.splitlines()) <= 2
    assert "unexpected" not in result.err and "Traceback" not in result.err
    assert result.out == ""


@pytest.mark.parametrize("name", some(RUBBISH, 8))
def test_d11_rubbish_is_one_clear_error(project: Project, name: str) -> None:
    """D11: whatever is in place of the settings is one error that names it, before anything is done."""
    rubbish, path = RUBBISH[name], project.path / "s.json"
    rubbish.make(path)
    assert_refused(bounded(project, "run", "-p", "x", "--settings", "s.json"), f"s.json{rubbish.said}")
    assert not project.home.database.exists()


@pytest.mark.parametrize("name", ["bom", "fifo", "sparse", "symlink"])
def test_d11_rubbish_as_a_local_file(project: Project, name: str) -> None:
    """D11: the default file and the local one are read with the same care."""
    project.settings(maxTokens=1)
    RUBBISH[name].make(project.path / ".ralph/settings.local.json")
    assert_refused(bounded(project, "config"), f".ralph/settings.local.json{RUBBISH[name].said}")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/full"])
def test_d11_a_device_is_refused(project: Project, path: str) -> None:
    """D11: a device is refused without being read."""
    assert_refused(
        bounded(project, "config", "--settings", path), f"{path}: the settings file is not a regular"
    )


@pytest.mark.parametrize("path", ["directory", ".", "..", "/"])
def test_d11_a_directory_is_refused(project: Project, path: str) -> None:
    """D11: a directory in place of the settings is one clear error."""
    (project.path / "directory").mkdir()
    assert_refused(bounded(project, "config", "--settings", path), f"{path}: ")


def test_d11_a_name_that_is_too_long(project: Project) -> None:
    """D11: a path that is too long for a file is one clear error."""
    assert_refused(bounded(project, "config", "--settings", "a" * 5000), "aaaa")


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 950, 990, 2000])
def test_d11_any_depth_is_one_clear_error(project: Project, depth: int) -> None:
    """D11: nesting that the parser accepts does not break the steps after it."""
    (project.path / "s.json").write_text('{"agent": ' + '{"env":' * depth + "1" + "}" * depth + "}")
    assert_refused(bounded(project, "config", "--settings", "s.json"), "s.json:")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "9" * 5000])
def test_d11_a_bad_number_is_found_on_its_line(here: Path, number: str) -> None:
    """D11: the error names the line of the number, and shows no Python internals."""
    path = here / "s.json"
    message, _ = message_of(path, f'{{"snapshots": true,\n\n"maxCostUsd": {number}}}')
    assert message.startswith(f"{path}:3: ")
    assert "set_int_max_str_digits" not in message


@pytest.mark.parametrize(
    ("key", "literal"),
    [
        ("maxCostUsd", "1e400"),
        ("iterationTimeoutSeconds", "1e999"),
        ("completionResponse", '"\\ud800"'),
        ("agent", '{"command": "true", "flags": ["\\udfff"]}'),
        ("agent", '{"command": "true", "env": {"A": "\\ud800"}}'),
        ("agent", '{"command": "tr\\u0000ue"}'),
        ("agent", '{"command": "true", "flags": ["a\\u0000b"]}'),
        ("agent", '{"command": "true", "env": {"A": "b\\u0000c"}}'),
        ("guardrails", '[{"command": "echo \\ud83d"}]'),
        ("guardrails", '[{"command": "true\\u0000PATH=/nowhere"}]'),
    ],
)
def test_values_that_cannot_be_used(here: Path, key: str, literal: str) -> None:
    """Infinite numbers, lone surrogates and NUL characters are refused at once, with file, line and key."""
    path = here / "s.json"
    message, _ = message_of(path, f'{{"maximumIterations": 1,\n"{key}": {literal}}}')
    assert message.startswith(f"{path}:2: {key}")


def test_a_text_that_cannot_be_printed_is_still_refused(project: Project) -> None:
    """A key that no terminal can show is one clear error, and nothing is started."""
    (project.path / "s.json").write_text('{"agent": {"command": "true"},\n"\\ud800": 1}')
    assert_refused(project.run("run", "--settings", "s.json", "-p", "x"), "s.json:")
    assert not project.home.database.exists()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"protect": True}, None),
        ({"protect": False}, ()),
        ({"protect": ["a/**"]}, ("a/**",)),
        ({"ralph": {"protect": ["b"]}}, ("b",)),
        ({"ralph": {"protect": []}}, ()),
        ({"protect": ["a"], "ralph": {"protect": ["a"]}}, ("a",)),
    ],
)
def test_protected_tests(here: Path, values: dict[str, Any], expected: tuple[str, ...] | None) -> None:
    """`protect` and `ralph.protect` mean the same."""
    assert load(write(here / "s.json", values)).settings.protected == expected


def test_two_different_keys_for_protected_tests(here: Path) -> None:
    """The error names both."""
    with pytest.raises(RalphError, match=r"protect and ralph\.protect are both set, to different values"):
        load(write(here / "s.json", {"protect": False, "ralph": {"protect": ["b"]}}))
