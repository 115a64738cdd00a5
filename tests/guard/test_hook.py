"""`ralph guard --hook` as a process: exit 0 without output, or exit 2 with a reason, whatever the input."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import ralph.guard
from conftest import some
from guard.guard_support import CONTEXT, GUARD, corpus
from ralph.guard.hook import answer
from ralph.guard.model import GuardVerdict

SCRIPT = Path(ralph.guard.__file__).with_name("__main__.py")
RALPH = Path(sys.executable).with_name("ralph")
HOOKS = {
    "the harness": (sys.executable, "-I", str(SCRIPT)),
    "the command": (str(RALPH), "guard", "--hook"),
}
REPEATS = 50 * int(os.environ.get("RALPH_FAULT_RUNS", "30"))
"""Random inputs of one seed."""

SEEDS = [int(os.environ["RALPH_FAULT_SEED"])] if "RALPH_FAULT_SEED" in os.environ else range(1, 8)

RUN = {"RALPH_RUN_ID": "x", "HOME": "/home/dev", "PATH": os.environ["PATH"]}


def hook(given: bytes, *words: str, env: dict[str, str] = RUN) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*HOOKS["the harness"], *words], input=given, env=env, capture_output=True)


def bash(command: object, **more: object) -> bytes:
    values = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": CONTEXT.directory}
    return json.dumps(values | more).encode()


def reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the reason of a denial and check that the denial is complete."""
    assert done.returncode == 2
    (output,) = json.loads(done.stdout).values()
    assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
    assert done.stderr.decode().strip() == output["permissionDecisionReason"]
    return str(output["permissionDecisionReason"])


@pytest.mark.parametrize("how", HOOKS)
def test_both_ways_to_call_it(how: str) -> None:
    """A denial names rule, reason and part. An allowed command produces no output."""
    for command, code in (("cd x && rm -rf ~", 2), ("rm -rf build", 0)):
        done = subprocess.run(HOOKS[how], input=bash(command), env=RUN, capture_output=True)
        assert done.returncode == code
        if code:
            assert "delete-home" in reason(done) and "(rm -rf ~)" in reason(done)
        else:
            assert (done.stdout, done.stderr) == (b"", b"")


def test_outside_of_a_run() -> None:
    """Nothing is judged, not even nonsense."""
    env = {name: value for name, value in RUN.items() if name != "RALPH_RUN_ID"}
    for given in (bash("rm -rf /"), b"nonsense"):
        done = hook(given, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"tool_name": 1}',
        b'{"tool_name": "Bash"}',
        b'{"tool_name": "Bash", "tool_input": {}}',
        b'{"tool_name": "Bash", "tool_input": {"command": 5}}',
        b'{"tool_name": "Write", "tool_input": {}}',
        b"[" * 100_000,
        b"x" * (5 << 20),
    ],
    ids=lambda given: repr(given[:30]),
)
def test_input_that_makes_no_sense(given: bytes) -> None:
    """It is denied, with the reason."""
    assert "could not judge" in reason(hook(given))


@pytest.mark.slow
def test_no_stdin_at_all() -> None:
    """A closed stdin is denied. An open and silent one is denied after a while."""
    words = " ".join(f"'{word}'" for word in HOOKS["the harness"])
    done = subprocess.run(["/bin/sh", "-c", f"{words} <&-"], env=RUN, capture_output=True)
    assert done.returncode == 2
    reader, writer = os.pipe()
    done = subprocess.run(HOOKS["the harness"], stdin=reader, env=RUN, capture_output=True)
    os.close(reader)
    os.close(writer)
    assert "timed out or crashed" in reason(done)


def test_a_closed_output() -> None:
    """A closed output does not change a denial."""
    words = " ".join(f"'{word}'" for word in HOOKS["the harness"])
    done = subprocess.run(["/bin/sh", "-c", f"{words} >&- 2>&-"], input=bash("rm -rf /"), env=RUN)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("tool", "values", "code"),
    [
        ("Read", {"file_path": "/etc/passwd"}, 0),
        ("WebFetch", {"url": "https://x"}, 0),
        ("mcp__x__y", {"command": "rm -rf /"}, 0),
        ("Write", {"file_path": "/home/dev/work/app/src/x.py"}, 0),
        ("Write", {"file_path": "/tmp/x"}, 0),
        ("Edit", {"file_path": "/home/dev/work/app/.ralph/settings.json"}, 2),
        ("Write", {"file_path": ".ralph-active"}, 2),
        ("Write", {"file_path": "/home/dev/work/app/.git/hooks/pre-commit"}, 2),
        ("MultiEdit", {"file_path": "/home/dev/.bashrc"}, 2),
        ("Write", {"file_path": "/etc/hosts"}, 2),
        ("Write", {"file_path": "/home/dev/.claude/settings.json"}, 2),
        ("NotebookEdit", {"notebook_path": "/home/dev/work/app/x.ipynb"}, 0),
    ],
)
def test_other_tools(tool: str, values: dict[str, str], code: int) -> None:
    """Tools that write files are judged by the path, all others are allowed."""
    given = json.dumps({"tool_name": tool, "tool_input": values, "cwd": CONTEXT.directory}).encode()
    assert hook(given).returncode == code


def test_without_a_directory() -> None:
    """If it is missing, not a string or does not exist, the command is still judged."""
    for more in ({"cwd": None}, {"cwd": 5}, {"cwd": "relative"}, {"cwd": "/not/there"}):
        assert hook(bash("rm -rf ~", **more)).returncode == 2
        assert hook(bash("ls", **more)).returncode == 0


def test_settings(tmp_path: Path) -> None:
    """Custom rules come from the project, or from the settings file that the run started with."""
    mine = {
        "allow": [{"pattern": "npm publish*", "reason": "a test registry"}],
        "deny": [{"pattern": "make deploy*", "reason": "Deployments are ours."}],
    }
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/settings.json").write_text(json.dumps({"guard": mine}))
    kept = tmp_path / "guard.json"
    kept.write_text(json.dumps(mine))
    for words in ([], ["--settings", str(kept)]):
        cwd = str(tmp_path) if not words else CONTEXT.directory
        assert hook(bash("npm publish --tag x", cwd=cwd), *words).returncode == 0
        assert "Deployments are ours." in reason(hook(bash("cd a; make deploy-all", cwd=cwd), *words))
        assert hook(bash("npm publish; rm -rf /", cwd=cwd), *words).returncode == 2
    kept.write_text('{"enabled": false}')
    assert hook(bash("rm -rf /"), "--settings", str(kept)).returncode == 0
    kept.write_text("{")
    assert "could not judge" in reason(hook(bash("ls"), "--settings", str(kept)))


BOMBS = {
    "a megabyte": "a" * (1 << 20),
    "a megabyte of data": "cat <<EOF\n" + "x" * (1 << 20) + "\nEOF",
    "100,000 words": "echo " + "a " * 100_000,
    "5,000 open substitutions": "echo " + "$(" * 5000,
    "5,000 nested substitutions": "echo " + "$(" * 5000 + ")" * 5000,
    "parentheses": "(" * 5000 + ")" * 5000,
    "pipes": "a|" * 20_000 + "a",
    "statements": "a;" * 60_000,
    "here-documents": "cat " + "<<A " * 20_000,
    "braces": "echo " + "{a,b}" * 30,
    "nested braces": "echo " + "{a," * 3000 + "}" * 3000,
    "functions": "".join(f"f{n}() {{ f{n + 1}; f{n + 1}; }};" for n in range(60)) + "f0",
    "evals": "eval " * 3000 + "ls",
    "quotes": "'\"" * 12_000,
    "blanks for an editor": "vim -c '" + " " * 60_000 + "x'",
    "code that runs and runs": "python3 -c '" + "exec " * 8_000 + "'",
    "loops": "for a in {1..50}; do " * 12 + "ls" + "; done" * 12,
}


READABLE = ("braces", "quotes", "blanks for an editor", "code that runs and runs")


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    """A command that can be parsed is allowed, anything else is denied, and nothing crashes. `bench guard`
    measures the time."""
    done = hook(bash(BOMBS[name]))
    if name in READABLE:
        assert (done.returncode, done.stderr) == (0, b"")
    else:
        assert "guard could not judge" in reason(done) or "rule unreadable" in reason(done)


@pytest.mark.parametrize("seed", some(SEEDS, 1))
def test_nothing_breaks_it(seed: int) -> None:
    """Inputs made of pieces of the corpus and of shell syntax always get an answer."""
    source = random.Random(seed)
    pieces = [case.command for case in corpus()]
    noise = [
        *"$`'\"\\(){}[]<>|&;*?~!#=\n\t ",
        "$(",
        "${",
        "<<EOF\n",
        "<<<",
        "<(",
        "\0",
        "\ud800",
        "é",
        "\x10",
        "{\U00031860",
    ]
    for _ in range(REPEATS):
        text = source.choice(pieces)
        for _ in range(source.randint(1, 6)):
            at = source.randint(0, len(text))
            extra = source.choice(noise) if source.random() < 0.8 else source.choice(pieces)
            text = text[:at] + extra + text[at + source.randint(0, 3) :]
        assert isinstance(GUARD.judge(text, CONTEXT), GuardVerdict)


@pytest.mark.parametrize("seed", some(SEEDS, 1))
def test_nothing_breaks_the_process(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With random bytes, the real process gives the same verdict as the function."""
    monkeypatch.setenv("HOME", RUN["HOME"])
    source = random.Random(seed)
    whole = [bash(case.command) for case in corpus()]
    for _ in range(REPEATS // 30):
        data = bytearray(source.choice(whole))
        for _ in range(source.randint(0, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        assert hook(bytes(data)).returncode == (2 if answer(bytes(data), []) else 0)


def test_a_bug_in_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a rule leads to a denial that names the error."""
    monkeypatch.setattr("ralph.guard.judge.Guard.judge", lambda *_: 1 // 0)
    assert b"ZeroDivisionError" in answer(bash("ls"), [])
