"""The scripted agent: a small script of turns, played by a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralph.agents.base import Prompt
from ralph.agents.registry import AGENTS, type_of
from ralph.agents.scripted import Scripted, load
from ralph.core.model import AgentSpec, PromptVia, Purpose
from ralph.settings import AgentSettings


def play(
    tmp_path: Path, *turns: dict[str, Any], iteration: int = 1, prompt: str = ""
) -> subprocess.CompletedProcess[bytes]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    return run(str(script), iteration=iteration, prompt=prompt, cwd=tmp_path)


def run(
    *flags: str, cwd: Path, iteration: int = 1, prompt: str = "", purpose: Purpose = Purpose.WORK
) -> subprocess.CompletedProcess[bytes]:
    argv = Scripted().argv(AgentSpec("scripted", "scripted", "scripted", flags), purpose, Prompt(prompt, ""))
    return subprocess.run(
        argv,
        input=prompt.encode(),
        capture_output=True,
        cwd=cwd,
        env={"RALPH_ITERATION": str(iteration), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        timeout=30,
        check=False,
    )


def test_it_is_known_by_its_name() -> None:
    """`scripted` is the scripted agent, and it reads its prompt from stdin."""
    assert (type_of("scripted"), AGENTS["scripted"].prompt_via) == ("scripted", PromptVia.STDIN)
    assert type_of("./my-agent") == "custom"


def test_it_is_run_by_the_interpreter_that_runs_ralph() -> None:
    """Nothing on PATH is needed, and flags are its arguments."""
    spec = AgentSpec("scripted", "scripted", "scripted", ("demo.yaml",))
    assert Scripted().argv(spec, Purpose.WORK, Prompt("x", "y")) == [
        sys.executable,
        "-I",
        "-m",
        "ralph.agents.scripted",
        "demo.yaml",
    ]


def test_a_turn_is_played_in_its_order(tmp_path: Path) -> None:
    """Text, commands, rubbish and last words come in the documented order; stderr is apart."""
    done = play(
        tmp_path,
        {"say": "last", "run": ["echo one", "echo two"], "text": "first", "stderr": "aside", "rubbish": 3},
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        b"first\none\ntwo\n" + bytes([0, 37, 74]) + b"last\n",
        b"aside\n",
    )


def test_rubbish_is_no_text(tmp_path: Path) -> None:
    """A turn can print bytes that are no UTF-8, every one of them."""
    done = play(tmp_path, {"rubbish": 256})
    assert sorted(done.stdout) == list(range(256))


def test_iteration_n_plays_turn_n_and_the_last_for_ever(tmp_path: Path) -> None:
    """The iteration chooses the turn; after the last one it is played again."""
    turns: list[dict[str, Any]] = [{"say": "one"}, {"say": "two"}]
    said = [play(tmp_path, *turns, iteration=n).stdout for n in (1, 2, 3, 100)]
    assert said == [b"one\n", b"two\n", b"two\n", b"two\n"]


def test_the_prompt_can_be_repeated(tmp_path: Path) -> None:
    """`{prompt}` in a text stands for the prompt, whatever is in it."""
    prompt = "Füge ein: $(touch nothing) `x` \\n {prompt}"
    done = play(tmp_path, {"text": "You said: {prompt}"}, prompt=prompt)
    assert done.stdout.decode() == f"You said: {prompt}\n"


def test_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    """A turn chooses its exit code; a command of it that fails does not."""
    assert [play(tmp_path, {"exit": 7}).returncode, play(tmp_path, {"run": "exit 3"}).returncode] == [7, 0]


def test_yaml_and_json_are_both_scripts(tmp_path: Path) -> None:
    """The same script in both notations."""
    (tmp_path / "a.yaml").write_text("turns:\n  - say: |-\n      two\n      lines\n    exit: 1\n")
    (tmp_path / "a.json").write_text('{"turns": [{"say": "two\\nlines", "exit": 1}]}')
    assert (
        load(str(tmp_path / "a.yaml")) == load(str(tmp_path / "a.json")) == [{"say": "two\nlines", "exit": 1}]
    )


def test_a_commit_message_needs_no_script(tmp_path: Path) -> None:
    """Asked for a commit message it has one."""
    done = run("script.json", purpose=Purpose.MESSAGE, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"Do what the script says\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("turns: [", "while parsing"),
        ("[]", "'turns' must be a list of at least one turn"),
        ("turns: []", "'turns' must be a list of at least one turn"),
        ("turns: {a: 1}", "'turns' must be a list of at least one turn"),
        ("turns: [{say: x}, y]", "turn 2 must be a mapping"),
        ("turns: [{sya: x}]", "turn 1: unknown key 'sya'; known are delay, text"),
        ("\xff", "'turns' must be a list"),
    ],
)
def test_a_bad_script_is_one_clear_error(tmp_path: Path, text: str, complaint: str) -> None:
    """What is wrong with a script is said on stderr, with its name, and no traceback."""
    (tmp_path / "bad.yaml").write_text(text)
    done = run("bad.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    error = done.stderr.decode()
    assert error.startswith("scripted agent: bad.yaml: ") and complaint in error
    assert "Traceback" not in error


@pytest.mark.xfail(
    strict=True, reason="the values of a turn are not checked: a traceback instead of one line"
)
@pytest.mark.parametrize("turn", ["{delay: soon}", "{exit: never}", "{run: [1]}", "{rubbish: lots}"])
def test_a_bad_value_is_one_clear_error(tmp_path: Path, turn: str) -> None:
    """A value of the wrong kind is said in one line that names the turn and the key."""
    (tmp_path / "bad.yaml").write_text(f"turns: [{turn}]")
    done = run("bad.yaml", cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr.decode()) == (1, False)


def test_a_missing_script_is_one_clear_error(tmp_path: Path) -> None:
    """No flag and no file are told apart."""
    assert run(cwd=tmp_path).stderr == b"scripted agent: name the script in agent.flags\n"
    assert b"No such file" in run("none.yaml", cwd=tmp_path).stderr


@pytest.mark.xfail(
    strict=True, reason="flows.run.agent_spec takes promptVia that the scripted agent cannot use"
)
@pytest.mark.parametrize("via", [PromptVia.ARGUMENT, PromptVia.FILE])
def test_a_way_that_cannot_pass_the_prompt_is_refused(via: PromptVia) -> None:
    """promptVia argument or file would leave the scripted agent without its prompt."""
    from ralph.errors import RalphError
    from ralph.flows.run import agent_spec

    with pytest.raises(RalphError):
        agent_spec(AgentSettings(command="scripted", prompt_via=via))
