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
from ralph.agents.scripted import AgentScript, Scripted, ScriptedTurn, load
from ralph.core.model import AgentSpec, PromptVia, Purpose


def play(
    tmp_path: Path,
    *turns: dict[str, Any],
    iteration: int = 1,
    prompt: str = "",
    via: PromptVia = PromptVia.STDIN,
) -> subprocess.CompletedProcess[bytes]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    return run(str(script), iteration=iteration, prompt=prompt, via=via, cwd=tmp_path)


def run(
    *flags: str,
    cwd: Path,
    iteration: int = 1,
    prompt: str = "",
    via: PromptVia = PromptVia.STDIN,
    purpose: Purpose = Purpose.WORK,
) -> subprocess.CompletedProcess[bytes]:
    """Run one iteration of the agent, with the prompt passed as the loop would pass it."""
    (cwd / "prompt.txt").write_text(prompt)
    spec = AgentSpec("scripted", "scripted", "scripted", flags, prompt_via=via)
    return subprocess.run(
        Scripted().argv(spec, purpose, Prompt(prompt, "prompt.txt")),
        input=prompt.encode() if via is PromptVia.STDIN else b"",
        capture_output=True,
        cwd=cwd,
        env={"RALPH_ITERATION": str(iteration), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        timeout=30,
        check=False,
    )


def test_it_is_known_by_its_name() -> None:
    """`scripted` is the scripted agent, and it reads its prompt from stdin by default."""
    assert (type_of("scripted"), AGENTS["scripted"].prompt_via) == ("scripted", PromptVia.STDIN)
    assert type_of("./my-agent") == "custom"


@pytest.mark.parametrize(
    ("via", "word"),
    [
        (PromptVia.STDIN, "--stdin"),
        (PromptVia.ARGUMENT, "--argument=-x y"),
        (PromptVia.FILE, "--file=.ralph/prompt_001.txt"),
    ],
)
def test_it_runs_with_the_interpreter_of_ralph(via: PromptVia, word: str) -> None:
    """It needs nothing on PATH, is told where its prompt is, and gets the flags as arguments."""
    spec = AgentSpec("scripted", "scripted", "scripted", ("demo.yaml",), prompt_via=via)
    assert Scripted().argv(spec, Purpose.WORK, Prompt("-x y", ".ralph/prompt_001.txt")) == [
        sys.executable,
        "-I",
        "-m",
        "ralph.agents.scripted",
        word,
        "demo.yaml",
    ]


def test_a_turn_is_played_in_order(tmp_path: Path) -> None:
    """Text, commands, rubbish and final text come in the documented order; stderr is separate."""
    done = play(
        tmp_path,
        {"say": "last", "run": ["echo one", "echo two"], "text": "first", "stderr": "aside", "rubbish": 3},
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        b"first\none\ntwo\n" + bytes([0, 37, 74]) + b"last\n",
        b"aside\n",
    )


def test_rubbish_is_not_text(tmp_path: Path) -> None:
    """A turn can print bytes that are not UTF-8, and all of them arrive."""
    done = play(tmp_path, {"rubbish": 256})
    assert sorted(done.stdout) == list(range(256))


def test_iteration_n_plays_turn_n_and_the_last_one_repeats(tmp_path: Path) -> None:
    """The iteration selects the turn; the last one is repeated."""
    turns: list[dict[str, Any]] = [{"say": "one"}, {"say": "two"}]
    said = [play(tmp_path, *turns, iteration=n).stdout for n in (1, 2, 3, 100)]
    assert said == [b"one\n", b"two\n", b"two\n", b"two\n"]


@pytest.mark.parametrize("via", [PromptVia.STDIN, PromptVia.ARGUMENT, PromptVia.FILE])
def test_the_prompt_arrives(tmp_path: Path, via: PromptVia) -> None:
    """By stdin, argument or file: `{prompt}` in a text stands for the prompt, whatever it contains."""
    prompt = "--file=x Füge ein:\n$(touch nothing) `x` \\n {prompt}"
    done = play(tmp_path, {"text": "You said: {prompt}"}, prompt=prompt, via=via)
    assert (done.stdout.decode(), done.stderr) == (f"You said: {prompt}\n", b"")


def test_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    """The turn sets the exit code; a failing command in it does not."""
    assert [play(tmp_path, {"exit": 7}).returncode, play(tmp_path, {"run": "exit 3"}).returncode] == [7, 0]


def test_yaml_and_json_are_both_scripts(tmp_path: Path) -> None:
    """The same script in both notations."""
    (tmp_path / "a.yaml").write_text("turns:\n  - say: |-\n      two\n      lines\n    exit: 1\n")
    (tmp_path / "a.json").write_text('{"turns": [{"say": "two\\nlines", "exit": 1}]}')
    script = AgentScript([ScriptedTurn(say="two\nlines", exit=1)])
    assert load(str(tmp_path / "a.yaml")) == load(str(tmp_path / "a.json")) == script


def test_a_commit_message_needs_no_script(tmp_path: Path) -> None:
    """Asked for a commit message, it has one."""
    done = run("script.json", purpose=Purpose.MESSAGE, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"Do what the script says\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("turns: [", "while parsing a flow node"),
        ("", "Expected `object`, got `null`"),
        ("[]", "Expected `object`, got `array`"),
        ("trun: []", "Object contains unknown field `trun`"),
        ("turns: []", "Expected `array` of length >= 1 - at `$.turns`"),
        ("turns: {a: 1}", "Expected `array`, got `object` - at `$.turns`"),
        ("turns: [{say: x}, y]", "Expected `object`, got `str` - at `$.turns[1]`"),
        ("turns: [{sya: x}]", "Object contains unknown field `sya` - at `$.turns[0]`"),
        ("turns: [{delay: soon}]", "Expected `float`, got `str` - at `$.turns[0].delay`"),
        ("turns: [{exit: never}]", "Expected `int`, got `str` - at `$.turns[0].exit`"),
        ("turns: [{run: [1]}]", "Expected `str`, got `int` - at `$.turns[0].run[0]`"),
        ("turns: [{rubbish: lots}]", "Expected `int`, got `str` - at `$.turns[0].rubbish`"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_bad_script_is_one_clear_error(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    """A problem with a script is one line with its name, the turn and the key."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SystemExit) as error:
        load(str(path))
    assert str(error.value).startswith(f"scripted agent: {path}: {complaint}")


def test_a_bad_script_ends_the_process(tmp_path: Path) -> None:
    """The error is on stderr, the exit code is 1, and there is no traceback."""
    (tmp_path / "bad.yaml").write_text("turns: []")
    done = run("bad.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        1,
        b"",
        "scripted agent: bad.yaml: Expected `array` of length >= 1 - at `$.turns`\n",
    )


def test_a_delay_cannot_be_negative(tmp_path: Path) -> None:
    """An impossible value is refused like one of the wrong type."""
    (tmp_path / "bad.yaml").write_text("turns: [{delay: -1}]")
    with pytest.raises(SystemExit):
        load(str(tmp_path / "bad.yaml"))


def test_a_missing_script_is_one_clear_error(tmp_path: Path) -> None:
    """A missing flag and a missing file have different messages."""
    assert run(cwd=tmp_path).stderr == b"scripted agent: no script given; add its path to agent.flags\n"
    with pytest.raises(SystemExit) as error:
        load("none.yaml")
    assert "scripted agent: none.yaml: " in str(error.value) and "No such file" in str(error.value)
