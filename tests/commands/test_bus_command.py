"""`ralph bus`: post, read and tail, as people and programs use them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import RALPH, Project, wait_until

FIELDS = ["id", "time", "type", "task", "run", "body"]


@pytest.fixture
def task(project: Project) -> Path:
    """The folder of a task, `build`."""
    path = project.path / "build"
    path.mkdir()
    return path


def test_a_message_is_posted_and_read(project: Project, task: Path) -> None:
    """`post` prints the id; `read --json` prints one complete object per line."""
    project.extra_env["RALPH_RUN_ID"] = "20260102-030405-abcd"
    began = time.time()
    posted = project.run("bus", "post", "build", "The schema is frozen.", "--type", "fact")
    assert (posted.code, posted.err, len(posted.out.splitlines())) == (0, "", 1)
    found = project.run("bus", "read", "build", "--json")
    assert (found.code, found.err) == (0, "")
    [message] = found.lines()
    assert list(message) == FIELDS
    assert began - 1 < message.pop("time") < time.time()
    assert message == {
        "id": posted.out.strip(),
        "type": "FACT",
        "task": "build",
        "run": "20260102-030405-abcd",
        "body": "The schema is frozen.",
    }
    assert (task / "TASK-MESSAGE-BUS.md").read_text().startswith("## FACT · build · ")


@pytest.mark.parametrize(
    "body", ["", "\n", "a\n\nb\n", "\0\r\n\x1b[31m", "## FACT\n```\n---\n", "é" * 500_000]
)
def test_a_body_comes_through_a_pipe_as_it_is(project: Project, task: Path, body: str) -> None:
    """Nothing is trimmed, added or changed."""
    done = subprocess.run(
        [RALPH, "bus", "post", "build"], cwd=project.path, env=project.env, input=body.encode(), check=True
    )
    assert done.returncode == 0
    assert [line["body"] for line in project.run("bus", "read", "build", "--json").lines()] == [body]


def test_the_bus_of_the_project_is_next_to_the_task(project: Project, task: Path) -> None:
    """It is a separate bus, and its messages name the task that posted."""
    project.run("bus", "post", "build", "--project", "to all")
    assert project.run("bus", "read", "build").out == ""
    (project.path / "test").mkdir()
    [message] = project.run("bus", "read", "test", "--project", "--json").lines()
    assert (message["task"], message["type"], message["body"]) == ("build", "INFO", "to all")
    assert (project.path / "PROJECT-MESSAGE-BUS.md").is_file()


def test_read_by_type_and_since(project: Project, task: Path) -> None:
    """`--since` selects messages posted after another, `--type` is repeatable; both can be combined."""
    posted = [("ERROR", "a"), ("INFO", "b"), ("question", "c"), ("ERROR", "d")]
    ids = [project.run("bus", "post", "build", "--type", type_, body).out.strip() for type_, body in posted]

    def read(*options: str) -> list[str]:
        return [line["body"] for line in project.run("bus", "read", "build", "--json", *options).lines()]

    assert read("--type", "error") == ["a", "d"]
    assert read("--type", "error", "--type", "question") == ["a", "c", "d"]
    assert read("--since", ids[1]) == ["c", "d"]
    assert read("--since", ids[1], "--type", "ERROR") == ["d"]
    assert read("--since", ids[3]) == []


def test_people_read_it_without_control_characters(project: Project, task: Path) -> None:
    """Type, time, task and id on one line, the body below; no escape sequence reaches a terminal."""
    id = project.run("bus", "post", "build", "--type", "WARNING", "one\n\n\x1b[2Jtwo\a").out.strip()
    out = project.run("bus", "read", "build").out
    assert out.startswith("WARNING  2") and out.endswith(f"  build  {id}\n  one\n\n  two\ufffd\n\n")


def test_damage_is_a_warning(project: Project, task: Path) -> None:
    """Messages go to stdout, warnings about damage to stderr; the next post reports what it moved aside."""
    path = task / "TASK-MESSAGE-BUS.md"
    for body in "abc":
        project.run("bus", "post", "build", body)
    path.write_bytes(path.read_bytes().replace(b"> a", b"> A")[:-1])
    found = project.run("bus", "read", "build", "--json")
    assert (found.code, [line["body"] for line in found.lines()]) == (0, ["b"])
    assert found.err.count("ralph: warning: ") == 2
    assert "damaged" in found.err and "truncated" in found.err
    posted = project.run("bus", "post", "build", "d")
    assert (posted.code, posted.err.count("truncated")) == (0, 1)
    assert (task / "TASK-MESSAGE-BUS.md.torn").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["post", "nowhere", "x"], "nowhere: directory not found."),
        (["read", "nowhere"], "nowhere: directory not found."),
        (["read", "/dev/null"], "/dev/null is not a directory."),
        (["tail", "build", "-n", "-1"], "must be 0 or more, not '-1'."),
        (["post", "build", "x", "--type", "two words"], "'two words' is not a message type"),
        (["read", "build", "--type", "a b"], "'a b' is not a message type"),
        (["read", "build", "--since", "x"], "message 'x' not found."),
        (["post", "build", "x", "y"], "unexpected extra argument"),
        (["post"], "Missing argument 'DIR'"),
        (["shout", "build"], "No such command 'shout'"),
    ],
)
def test_mistakes_are_explained(project: Project, task: Path, arguments: list[str], said: str) -> None:
    """One error message, exit code 2, and no bus is created."""
    result = project.run("bus", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("ralph: error: ") and said in result.err
    assert list(task.iterdir()) == []


def test_invalid_text_is_refused(project: Project, task: Path) -> None:
    """Bytes that are not UTF-8 could not be returned unchanged to all readers."""
    done = subprocess.run(
        [RALPH, "bus", "post", "build"],
        cwd=project.path,
        env=project.env,
        input=b"ab\xff",
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not UTF-8 text (byte 2 of stdin)" in done.stderr


def test_tail_follows_until_interrupted(project: Project, task: Path) -> None:
    """The last messages, then new ones as they arrive, even before the bus exists; Ctrl-C is quiet, exit 130."""
    early = project.start("bus", "tail", "build", "--json")
    assert early.stdout
    time.sleep(0.5)
    for number in range(3):
        project.run("bus", "post", "build", str(number))
        assert f'"body":"{number}"' in early.stdout.readline()
    late = project.start("bus", "tail", "build", "--json", "-n", "1")
    assert late.stdout
    assert '"body":"2"' in late.stdout.readline()
    for process in (early, late):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 130


def test_tail_stops_when_its_reader_is_gone(project: Project, task: Path) -> None:
    """Even if nothing is posted any more."""
    project.run("bus", "post", "build", "x")
    process = project.start("bus", "tail", "build")
    assert process.stdout and process.stderr
    assert process.stdout.readline()
    process.stdout.close()
    assert (process.wait(20), process.stderr.read()) == (0, "")
    process.stderr.close()


def test_a_reader_that_goes_away(project: Project, task: Path) -> None:
    """`ralph bus read | head -1` is not an error."""
    body = "x" * 1000
    (task / "many").write_text(body)
    for _ in range(3):
        project.run("bus", "post", "build", body)
    path = task / "TASK-MESSAGE-BUS.md"
    path.write_bytes(path.read_bytes() * 500)
    line = f"set -o pipefail; {RALPH} bus read build --json | head -1 | wc -l"
    done = subprocess.run(
        ["bash", "-c", line], cwd=project.path, env=project.env, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_bus_that_is_not_a_regular_file(project: Project, task: Path, make: Callable[[Path], None]) -> None:
    """No command hangs on a pipe or follows a link."""
    path = task / "TASK-MESSAGE-BUS.md"
    make(path)
    for arguments in (["post", "build", "x"], ["read", "build"], ["tail", "build"]):
        result = project.run("bus", *arguments, timeout=20)
        assert result.code == 2 and "the message bus is not a regular file" in result.err
        assert "Move it away" in result.err
    path.rename(task / "other")
    path.symlink_to("/etc/hostname")
    assert "the message bus is a symbolic link" in project.run("bus", "read", "build").err


def test_two_posts_at_once(project: Project, task: Path) -> None:
    """Parallel commands: each message appears once."""
    started = [project.start("bus", "post", "build", str(number)) for number in range(8)]
    ids = [process.communicate(timeout=60)[0].strip() for process in started]
    found = project.run("bus", "read", "build", "--json").lines()
    assert sorted(line["id"] for line in found) == sorted(ids)
    assert sorted(line["body"] for line in found) == [str(number) for number in range(8)]
    wait_until(lambda: all(process.poll() == 0 for process in started))
