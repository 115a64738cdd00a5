"""Record docs/run.svg: a real run in a real terminal, as one moving picture without a script.

scripts/uv run python -m scripts.record

The agent plays a fixed script, but everything it does is real: it writes files and runs the tests, Ralph checks its
claim, and every line in the picture was printed by Ralph. Long waits are shortened.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyte
from scripts.moving_picture import Frame, Line, lines_of, svg

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "run.svg"
TITLE = "ralph run with a scripted agent: its first claim fails the tests, its second passes"
COLUMNS, ROWS = 92, 26

PROMPT = "Implement greet() so that the tests pass."
SHELL_PROMPT = "\x1b[34m~/greeter\x1b[0m $ "
TYPED = f'ralph run -p "{PROMPT}"'

LONGEST_WAIT = 1.2
"""Longer waits of the run are cut to this, in seconds."""

LAST_WAIT = 6.0
TOO_SHORT = 0.04
"""Changes of the screen that are closer together than this, in seconds, become one frame."""

PROJECT = {
    "greet.py": "def greet(name):\n    raise NotImplementedError\n",
    "test_greet.py": """\
from greet import greet

def test_name():
    assert greet("Ada") == "Hello, Ada!"

def test_spaces():
    assert greet(" Ada ") == "Hello, Ada!"

def test_no_name():
    assert greet("") == "Hello, World!"
""",
    ".gitignore": "__pycache__/\n",
    ".ralph/settings.json": json.dumps(
        {
            "maximumIterations": 5,
            "agent": {"command": "scripted", "type": "claude"},
            "guardrails": [{"command": "pytest -q --tb=no"}],
        }
    ),
}

AGENT = r'''#!PYTHON
"""Does what its script says, and reports it as Claude Code does."""
import json, os, re, subprocess, sys, time
from pathlib import Path

def line(**fields):
    print(json.dumps(fields), flush=True)

def message(**content):
    line(type="assistant", message={"id": f"m{time.monotonic_ns()}", "role": "assistant", "content": [content], "usage": {}})

def say(text):
    time.sleep(0.6)
    message(type="text", text=text)

def use(name, **given):
    time.sleep(0.7)
    id = f"t{time.monotonic_ns()}"
    message(type="tool_use", id=id, name=name, input=given)
    time.sleep(0.5)
    output = TOOLS[name](**given)
    line(type="user", message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": output}]})

def read(file_path):
    return Path(file_path).read_text()

def write(file_path, content):
    Path(file_path).write_text(content)
    return f"The file {file_path} has been updated."

def edit(file_path, old_string, new_string):
    return write(file_path, read(file_path).replace(old_string, new_string))

def bash(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout.strip()

TOOLS = {"Read": read, "Write": write, "Edit": edit, "Bash": bash}
failed = re.findall(r"FAILED \S+::(\w+)", sys.stdin.read())
line(type="system", subtype="init", session_id="s1", model="scripted")
if os.environ["RALPH_ITERATION"] == "1":
    use("Write", file_path="greet.py", content='def greet(name):\n    return f"Hello, {name}!"\n')
    last = "greet() is implemented.\n<response>DONE</response>"
else:
    time.sleep(1)
    say(f"{' and '.join(failed)} fail. I'll strip the name, and greet the world without one.")
    use("Edit", file_path="greet.py", old_string="{name}", new_string="{name.strip() or 'World'}")
    use("Bash", command="pytest -q --tb=no")
    last = "Now all tests pass.\n<response>DONE</response>"
say(last)
line(type="result", subtype="success", is_error=False, result=last, usage={})
'''

_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Change(NamedTuple):
    """Bytes that the terminal was sent, and when."""

    at: float
    data: bytes


def prepare(base: Path) -> tuple[Path, dict[str, str]]:
    """Make a home with a small project and the agent; returns the project and the environment."""
    home, programs = base / "ada", base / "bin"
    project = home / "greeter"
    for name, text in PROJECT.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    programs.mkdir()
    agent = programs / "scripted"
    agent.write_text(AGENT.replace("PYTHON", sys.executable))
    agent.chmod(0o755)
    found = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    who = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = who | {
        "HOME": str(home),
        "PATH": found,
        "RALPH_STATE_DIR": str(base / "state"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -o console_output_style=classic",
    }
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Tests for greet()"]):
        subprocess.run(["git", *words], cwd=project, env=environment, check=True)
    return project, environment


def typing() -> Iterator[Change]:
    """A shell prompt, and the command as somebody types it."""
    at = 0.0
    yield Change(at, SHELL_PROMPT.encode())
    at += 0.8
    for character in TYPED:
        yield Change(at, character.encode())
        at += 0.05
    yield Change(at + 0.4, b"\r\n")


def run(project: Path, environment: dict[str, str], began: float) -> Iterator[Change]:
    """Run ralph in a new terminal, and return its output with the times."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    ralph = str(Path(sys.executable).with_name("ralph"))
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, ralph, "run", "-p", PROMPT],
        cwd=project,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    start = time.monotonic()
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the last process has closed the terminal
                break
            yield Change(began + time.monotonic() - start, data)
    finally:
        code = process.wait(60)
        os.close(ours)
    assert code == 0, f"ralph run exited with {code}"


def frames(changes: list[Change]) -> list[Frame]:
    """Return the states of the screen, each with its seconds."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    found: list[tuple[tuple[Line, ...], float]] = []
    for number, change in enumerate(changes):
        stream.feed(change.data)
        is_last = number + 1 == len(changes)
        seconds = LAST_WAIT if is_last else min(LONGEST_WAIT, changes[number + 1].at - change.at)
        if is_last or seconds >= TOO_SHORT:
            lines = lines_of(screen)
            if found and found[-1][0] == lines:
                found[-1] = (lines, min(found[-1][1] + seconds, LAST_WAIT if is_last else LONGEST_WAIT))
            else:
                found.append((lines, seconds))
    return [Frame(lines, seconds) for lines, seconds in found]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ralph-record-") as scratch:
        project, environment = prepare(Path(scratch))
        typed = list(typing())
        recorded = frames([*typed, *run(project, environment, typed[-1].at + 0.1)])
        picture = svg(recorded, COLUMNS, ROWS, TITLE)
        for private in (scratch, str(ROOT), str(Path.home())):
            assert private not in picture, f"{private} is in the picture"
    PICTURE.write_text(picture)
    seconds = sum(frame.seconds for frame in recorded)
    print(f"docs/run.svg: {len(recorded)} frames, {seconds:.0f} s, {len(picture) // 1000} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
