"""`ralph logs`: a run that has finished, or is still running."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from conftest import RALPH, Project, Result, wait_until
from ralph.store.home import Home
from ralph.views.status import Summary, summaries
from ralph.views.writer import PATIENCE

TAG = "<response>DONE</response>"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def newest(project: Project) -> Summary:
    """The newest run, as `ralph status` would show it."""
    runs = project.home.runs()
    with closing(runs.db):
        return summaries(runs)[0]


def said(text: str) -> list[str]:
    """The lines, without times, which differ between readings."""
    return re.sub(r"\d+\.\ds", "N", text).splitlines()


def told(result: Result, *without: str) -> list[dict[str, Any]]:
    """The events without some kinds, and without times and chunk borders, which differ between readings."""
    found: list[dict[str, Any]] = []
    for event in result.lines():
        if event["event"] == "text" and found and found[-1]["event"] == "text":
            found[-1]["text"] += event["text"]
        elif event["event"] not in without:
            found.append({key: value for key, value in event.items() if key not in ("at", "seconds")})
    return found


def raw(project: Project, *arguments: str) -> bytes:
    """The output of `ralph logs --raw`, byte for byte."""
    done = subprocess.run(
        [RALPH, "logs", "--raw", *arguments],
        cwd=project.path,
        env=project.env,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run of three iterations, for reading only; the second prints bytes that are not text."""
    project = Project(tmp_path_factory.mktemp("project"), Home(tmp_path_factory.mktemp("state")))
    project.agent(
        """
        echo "iteration $RALPH_ITERATION"
        [ $RALPH_ITERATION = 2 ] && printf 'a\\033]0;t\\007b\\377\\000\\r\\nno end'
        [ $RALPH_ITERATION = 3 ] && echo first >&2 && echo second >&2
        exit 0
        """,
        guardrails=[{"command": "test $RALPH_ITERATION != 2"}],
    )
    project.run("run", "-p", "The work.", "-m", "3")
    return project


# ---- a finished run ----

STORY = f"""
printf 'iteration %s \\033[31min red\\033[0m\\n' $RALPH_ITERATION
[ $RALPH_ITERATION = 1 ] && exit 3
[ $RALPH_ITERATION = 2 ] && touch fixed
echo '{TAG}'
"""
"""An agent that fails, then fixes what its guardrail finds, and says so."""


def test_a_finished_run_is_shown_as_it_was(project: Project) -> None:
    """The terminal output, progress and result, is repeated word for word on stdout."""
    project.agent(STORY, guardrails=[{"command": "test -f fixed"}])
    run = project.run("run", "-p", "x")
    logs = project.run("logs")
    assert (logs.code, logs.err, said(logs.out)) == (0, "", said(run.err + run.out))
    assert "iteration 1 in red" in logs.out and not HARMFUL.search(logs.out)
    assert project.run("logs", "-f", newest(project).id) == logs


def test_the_same_events_for_programs(project: Project) -> None:
    """--json has the same events as `run --json`, in the same order, with the same fields."""
    project.agent(STORY, guardrails=[{"command": "test -f fixed"}])
    run = project.run("run", "-p", "x", "--json")
    logs = project.run("logs", "--json")
    assert (logs.code, logs.err) == (0, "")
    assert told(logs) == told(run, "agent_started", "claim")


def test_the_last_line_is_shown_too(three: Project) -> None:
    """Many agents end without a newline, and their last line is the claim."""
    assert "no end\n" in three.run("logs").out


def test_stderr_of_the_agent_is_shown(three: Project) -> None:
    """The reason for an agent's failure is often on stderr, which the terminal showed."""
    assert "first\nsecond\n" in three.run("logs").out


def test_an_event_has_its_original_time(three: Project) -> None:
    """Yesterday's events have yesterday's times."""
    latest = newest(three).updated + 0.01
    assert [event for event in three.run("logs", "--json").lines() if event["at"] > latest] == []


def test_a_commit_is_shown_with_its_iteration(repository: Project) -> None:
    """The commit, as the run reported it and as git has it."""
    repository.agent(
        'case "$1" in Provide*) echo "Add a file";; *) echo x > file; echo working;; esac',
        scm={"command": "git", "tasks": ["commit"]},
    )
    repository.git("config", "user.name", "Test")
    repository.git("config", "user.email", "test@localhost")
    run = repository.run("run", "-p", "x", "-m", "1", "--json")
    head = repository.git("rev-parse", "HEAD").strip()
    (event,) = [event for event in told(run) if event["event"] == "committed"]
    assert event == {"event": "committed", "iteration": 1, "commit": head, "message": "Add a file"}
    assert [event for event in told(repository.run("logs", "--json")) if event["event"] == "committed"] == [
        event
    ]
    assert f"Committed {head[:10]}: Add a file\n" in repository.run("logs", "--iteration", "1").out


def test_the_end_shows_what_changed(repository: Project) -> None:
    """Whoever watches a detached run sees at its end how to inspect and undo its changes."""
    repository.agent("echo x > file; echo working", snapshots=True)
    run = repository.run("run", "-p", "x", "-m", "1")
    assert "To undo everything: ralph rewind" in run.out
    assert said(repository.run("logs").out) == said(run.err + run.out)


def test_guidance_and_interrupted_iterations_are_shown(project: Project) -> None:
    """Guidance from the user, and an iteration that was killed and repeated, are part of the log."""
    project.agent("echo x >> starts; echo at work; while [ ! -f go ]; do sleep 0.02; done")
    process = project.start("run", "-p", "x", "-m", "1")
    wait_until(lambda: "at work" in project.run("logs").out)
    process.kill()
    process.communicate(timeout=30)
    crashed = project.run("logs")
    assert (crashed.code, crashed.out.splitlines()[1:]) == (0, ["=== Ralph iteration 1/1 ===", "at work"])
    (project.path / "go").touch()
    project.run("steer", newest(project).id, "Use tabs.")
    project.run("resume")
    assert said(project.run("logs").out)[1:-2] == [
        "=== Ralph iteration 1/1 ===",
        "at work",
        "Agent was interrupted: ralph was killed",
        "Guidance: Use tabs.",
        "=== Ralph iteration 1/1 ===",
        "1 message from `ralph steer` added to the prompt",
        "at work",
        "",
        "Stopped: 1 of 1 iterations used; last result: the agent did not say it was done",
    ]


def test_an_interrupted_wait_does_not_end_the_log(project: Project) -> None:
    """Events after a kill during a pause are shown too."""
    project.agent(f"until [ -e go ]; do sleep 0.02; done; [ $RALPH_ITERATION = 1 ] || echo '{TAG}'")
    process = project.start("run", "-p", "x")
    wait_until(lambda: project.status())
    project.run("pause", newest(project).id)
    (project.path / "go").touch()
    wait_until(lambda: "Paused." in project.run("logs").out)
    process.kill()
    process.communicate(timeout=30)
    assert project.run("resume").code == 0
    told = project.run("logs").out
    assert told.count("Paused.") == 1 and "=== Ralph iteration 2/10 ===" in told
    assert "Unverified: no checks" in told


# ---- a live run ----


@pytest.fixture
def background(project: Project) -> Iterator[Project]:
    """A project whose agents are released at the end, so that no detached run outlives its test."""
    yield project
    (project.path / "go").touch()
    wait_until(lambda: newest(project).pid is None)


def test_a_live_run_is_followed_to_its_end(background: Project) -> None:
    """Lines appear while the agent works, and `logs -f` ends with the run."""
    background.agent(
        f"""
        [ $RALPH_ITERATION = 1 ] && echo warming up && exit
        echo early; while [ ! -f go ]; do sleep 0.02; done; echo late
        echo '{TAG}'
        """,
        guardrails=[{"command": "true"}],
    )
    run = background.run("run", "-p", "x", "--detach").out.strip()
    logs = background.start("logs", "-f")
    assert logs.stdout is not None
    shown: list[str] = []
    for line in logs.stdout:
        shown.append(line)
        if line == "early\n":
            break
    assert (logs.poll(), newest(background).state) == (None, "running")
    assert [line for line in shown if "===" in line or line == "warming up\n"] == [
        "=== Ralph iteration 1/10 ===\n",
        "warming up\n",
        "=== Ralph iteration 2/10 ===\n",
    ]
    (background.path / "go").touch()
    rest, err = logs.communicate(timeout=30)
    assert (logs.returncode, err) == (0, "")
    assert "".join(shown) + rest == background.run("logs", run).out
    assert rest.splitlines()[0] == "late"


def test_a_live_run_is_shown_without_waiting(background: Project) -> None:
    """Without -f, past events are shown without waiting for new ones."""
    background.agent("echo early; touch started; while [ ! -f go ]; do sleep 0.02; done; echo late")
    background.run("run", "-p", "x", "-m", "1", "--detach")
    wait_until((background.path / "started").exists)
    logs = background.run("logs")
    assert (logs.code, logs.out.splitlines()[1:]) == (0, ["=== Ralph iteration 1/1 ===", "early"])


def test_a_pause_is_shown_once(background: Project) -> None:
    """However long it takes, a pause is one line."""
    background.agent(f"exec {RALPH} pause $RALPH_RUN_ID")
    run = background.run("run", "-p", "x", "-m", "2", "--detach").out.strip()
    logs = background.start("logs", "-f")
    wait_until(lambda: newest(background).state == "paused")
    background.run("resume")
    wait_until(lambda: newest(background).iteration == 2 and newest(background).state == "paused")
    background.run("cancel", run)
    out, _ = logs.communicate(timeout=30)
    assert [line.split(".")[0] for line in out.splitlines() if "===" in line or "Paused" in line] == [
        "=== Ralph iteration 1/2 ===",
        "Paused",
        "=== Ralph iteration 2/2 ===",
        "Paused",
    ]


# ---- parts of a run ----


SECOND = b"iteration 2\na\x1b]0;t\x07b\xff\x00\r\nno end"


def test_one_iteration(three: Project) -> None:
    """--iteration leaves out the others, and the start and the end of the run."""
    assert said(three.run("logs", "--iteration", "3").out) == [
        "=== Ralph iteration 3/3 ===",
        "iteration 3",
        "first",
        "second",
        "Running test $RALPH_ITERATION != 2",
        "✓ test $RALPH_ITERATION != 2 passed (N)",
    ]
    events = three.run("logs", "--iteration", "2", "--json").lines()
    assert [event["event"] for event in events if event["event"] != "text"] == [
        "iteration_started",
        "agent_ended",
        "check_started",
        "check_ended",
    ]


def test_an_iteration_that_does_not_exist(three: Project) -> None:
    """It is an error, also with --raw."""
    assert three.run("logs", "--iteration", "4").code == 2


def test_raw_is_byte_for_byte(three: Project) -> None:
    """--raw prints the agent's stdout, for all iterations or one, and nothing else."""
    assert raw(three) == b"iteration 1\n" + SECOND + b"iteration 3\n"
    assert raw(three, "--iteration", "2") == SECOND
    none = three.run("logs", "--raw", "--iteration", "4")
    assert (none.code, none.out, none.err) == (
        2,
        "",
        f"ralph: error: Run {newest(three).id} has no agent output for iteration 4.\n",
    )


def test_raw_on_a_terminal_is_harmless(three: Project) -> None:
    """On a terminal, the raw stream is shown without escape sequences."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [RALPH, "logs", "--raw", "--iteration", "2"], cwd=three.path, env=three.env, stdout=theirs
        )
        os.close(theirs)
        assert process.wait(timeout=30) == 0
        shown = terminal.read(65536).decode()
    assert shown.replace("\r\n", "\n") == "iteration 2\nab\ufffd\ufffd\nno end"


# ---- which run ----


def test_without_a_run_it_is_the_newest_of_this_directory(project: Project) -> None:
    """Older runs here and newer ones elsewhere are skipped; an id finds any of them."""
    below, other = project.path / "below", project.path.parent / "other"
    for directory, text in ((below, "old"), (below, "newest here"), (other, "elsewhere")):
        directory.mkdir(exist_ok=True)
        place = Project(directory, project.home)
        place.agent(f"echo {text}")
        place.run("run", "-p", "x", "-m", "1")
    assert raw(Project(below, project.home)) == b"newest here\n"
    assert raw(project, newest(project).id[-4:]) == b"elsewhere\n"
    none = project.run("logs")
    assert (none.code, none.err.splitlines()) == (
        2,
        [
            f"ralph: error: There is no run in {project.path}.",
            "  To list the runs of all projects: ralph status",
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "There is no run 'nothing'."),
        (["--raw", "--json"], "--raw cannot be used with --json, --follow or --replay."),
        (["--iteration", "0"], "Invalid value for '--iteration': must be 1 or more, not '0'."),
    ],
)
def test_what_cannot_be_shown(project: Project, arguments: list[str], complaint: str) -> None:
    """One error, exit code 2."""
    result = project.run("logs", *arguments)
    assert (result.code, result.out, result.err.splitlines()[0]) == (2, "", f"ralph: error: {complaint}")


# ---- readers that go away ----


def test_a_reader_that_has_seen_enough(project: Project) -> None:
    """`ralph logs | head` ends quietly, in each format."""
    project.agent("seq 100000")
    project.run("run", "-p", "x", "-m", "1")
    for flag in ("", "--raw", "--json"):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", '"$0" logs $1 | head -n 1 > first', RALPH, flag],
            cwd=project.path,
            env=project.env,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert len((project.path / "first").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_reader_that_takes_its_time_gets_everything(project: Project) -> None:
    """`ralph logs | less`: the log waits for a slow reader, unlike the view of a live run."""
    project.agent("seq 1000000", outputTruncateChars=10)
    project.run("run", "-p", "x", "-m", "1", "--no-stream-agent-output")
    logs = project.start("logs")
    time.sleep(PATIENCE + 0.5)
    out, _ = logs.communicate(timeout=30)
    assert (logs.returncode, out.splitlines()[-3]) == (
        0,
        "Stopped: 1 of 1 iterations used; last result: the agent did not say it was done",
    )


def test_a_follower_ends_with_its_reader(background: Project) -> None:
    """`ralph logs -f | grep -m 1 ready` waits for a line, not for the end of the run."""
    background.agent("echo ready; while [ ! -f go ]; do echo working; sleep 0.05; done")
    background.run("run", "-p", "x", "-m", "1", "--detach")
    logs = background.start("logs", "-f")
    assert logs.stdout is not None and logs.stderr is not None
    for line in logs.stdout:
        if line == "ready\n":
            break
    logs.stdout.close()
    try:
        assert logs.wait(timeout=3) == 0
    finally:
        (background.path / "go").touch()
        logs.wait(timeout=30)
        logs.stderr.close()
