"""`ralph supervise`: waiting without restart, the agent's environment, options, settings and guidance."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from conftest import Project, wait_until
from ralph.store.bus import Bus, task_bus
from supervise_support import LEAVES_DONE, PATH_TO_RALPH, QUICK, Task


@pytest.fixture
def task(project: Project) -> Task:
    project.settings(snapshots=False)
    made = Task(project)
    made.folder.mkdir(parents=True)
    return made


def only(task: Task) -> dict[str, object]:
    (run,) = task.project.status()
    return run


# ---- wait without restart ----

WAYS = {
    "exit code": "exit 42",
    "message": f"{PATH_TO_RALPH}; ralph bus post $TASK_FOLDER --type wait_without_restart 'for the reviewer'",
    "marker": 'touch "$TASK_FOLDER/WAIT_WITHOUT_RESTART"',
}


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_that_waits_is_not_restarted(task: Task, way: str) -> None:
    """Exit code 3, outcome waiting; when the marker is gone, `ralph resume` continues with the next attempt."""
    body = f'[ "$RALPH_ATTEMPT" = 1 ] && {{ {WAYS[way]}; exit; }}; {LEAVES_DONE}'
    result = task.run(body)
    run = only(task)
    assert (result.code, task.attempts) == (3, ["1"])
    assert (run["outcome"], run["cause"]) == ("waiting", "wait_marker")
    assert task.bus()[-1][0] == "INFO" and task.bus()[-1][1].startswith("stopped: ")
    assert "Wait-without-restart signal detected" in result.err
    if way == "marker":
        assert task.project.run("resume", str(run["id"])).code == 3
        (task.folder / "WAIT_WITHOUT_RESTART").unlink()
    assert task.project.run("resume").code == 0, "from where it was started"
    assert task.attempts == ["1", "2"]
    assert "WARNING" not in {type for type, _ in task.bus()}, "waiting does not count as a failure"


def test_a_marker_that_exists_at_the_start(task: Task) -> None:
    """Nothing is started."""
    (task.folder / "WAIT_WITHOUT_RESTART").touch()
    assert (task.run(LEAVES_DONE).code, task.attempts) == (3, [])


def test_done_counts_more_than_waiting(task: Task) -> None:
    """An agent that creates DONE and exits with 42 is done."""
    assert task.run(f"{LEAVES_DONE}; exit 42").code == 0


def test_only_a_message_of_the_attempt_itself_stops_it(task: Task) -> None:
    """An older wait message does not; nor does one of another type."""
    Bus(task_bus(task.folder)).post(time.time(), "wait_without_restart", "long ago")
    body = f'{PATH_TO_RALPH}; [ "$RALPH_ATTEMPT" = 1 ] && {{ ralph bus post $TASK_FOLDER hello; exit; }}; {LEAVES_DONE}'
    assert (task.run(body).code, task.attempts) == (0, ["1", "2"])


def test_a_wait_message_survives_a_killed_ralph(task: Task) -> None:
    """A message that an attempt posted before ralph was killed counts, if the attempt is not repeated."""
    killer = (
        "import os; from ralph.loop.supervised import Supervised; look = Supervised.look\n"
        "def dies(self, seen, *, after_attempt):\n"
        "    return look(self, seen, after_attempt=None) if after_attempt is None else os.kill(os.getpid(), 9)\n"
        "Supervised.look = dies\n"
        "from ralph.cli import main; import sys; main(sys.argv[1:])"
    )
    words = ["supervise", "tasks/job", *QUICK, "--", task.script(WAYS["message"])]
    died = subprocess.run(
        [sys.executable, "-c", killer, *words],
        cwd=task.project.path,
        env=task.project.env,
        capture_output=True,
    )
    assert died.returncode == -signal.SIGKILL
    assert task.project.run("resume", str(only(task)["id"])).code == 3
    assert task.attempts == ["1"]


# ---- the agent's environment ----


def test_the_environment_of_an_attempt(task: Task) -> None:
    """The folder, the run and the attempt; the working directory is the caller's."""
    body = f'echo "$TASK_FOLDER $RALPH_RUN_ID $RALPH_PARENT_RUN_ID $RALPH_ATTEMPT $(pwd)"; {LEAVES_DONE}'
    result = task.run(body)
    run = only(task)["id"]
    assert f"{task.folder} {run} {run} 1 {task.project.path}\n" in result.err


def test_the_names_of_project_and_task(task: Task) -> None:
    """They are the folder names unless given, and part of every message."""
    task.run("exit 42")
    task.run("exit 42", "--project", "house", "--task", "roof")
    read = task.project.run("bus", "read", "tasks/job", "--json").lines()
    assert {message["task"] for message in read[:2]} == {"job"}
    assert {message["task"] for message in read[-2:]} == {"roof"}


@pytest.mark.parametrize("place", ["-p", "-f"])
def test_the_configured_agent(project: Project, place: str) -> None:
    """Without a command it is the configured agent, with a prompt; each attempt starts fresh."""
    task = Task(project)
    task.folder.mkdir(parents=True)
    project.agent(
        f'echo "$1" >> prompts; [ "$RALPH_ATTEMPT" -lt 2 ] || {LEAVES_DONE}', agent={"promptVia": "argument"}
    )
    (project.path / "PROMPT.md").write_text("Build it.")
    given = {"-p": "Build it.", "-f": "PROMPT.md"}[place]
    result = project.run("supervise", "tasks/job", *QUICK, place, given)
    assert result.code == 0, result.err
    assert (project.path / "prompts").read_text() == "Build it.\nBuild it.\n"


def test_a_prompt_and_a_command_cannot_be_combined(task: Task) -> None:
    """Refused before anything is started."""
    result = task.project.run("supervise", "tasks/job", "-p", "x", "--", "true")
    assert (result.code, task.project.status()) == (2, [])


@pytest.mark.parametrize("words", [["tasks/none", "--", "true"], ["tasks/job"]])
def test_missing_arguments_are_reported(task: Task, words: list[str]) -> None:
    """A missing folder, or neither a command nor a prompt."""
    result = task.project.run("supervise", *words)
    assert result.code == 2 and result.err.startswith("ralph: error: ") and "Traceback" not in result.err


# ---- options and settings ----


@pytest.mark.slow
def test_everything_can_be_set_in_the_settings(task: Task) -> None:
    """Every option has a setting, which the option overrides."""
    task.project.settings(
        snapshots=False,
        supervise={
            "maxRestarts": 3,
            "restartDelaySeconds": 0.02,
            "restartPolicy": "fixed",
            "agentTimeoutSeconds": 0.3,
        },
    )
    command = task.script("exec sleep 60")
    assert task.project.run("supervise", "tasks/job", "--", command).code == 1
    assert len(task.attempts) == 3
    assert task.project.run("supervise", "tasks/job", "--max-restarts", "1", "--", command).code == 1
    assert len(task.attempts) == 4


def test_as_json(task: Task) -> None:
    """One object per event on stdout and nothing else, including notices and ends."""
    result = task.run(f'[ "$RALPH_ATTEMPT" = 2 ] && {LEAVES_DONE} || exit 1', "--json")
    events = result.lines()
    assert result.code == 0
    assert [e["iteration"] for e in events if e["event"] == "iteration_started"] == [1, 2]
    assert events[-1]["event"] == "run_ended" and events[-1]["outcome"] == "complete"
    assert any("restarting (attempt 2/100)" in e.get("text", "") for e in events if e["event"] == "notice")


def test_in_the_background(task: Task) -> None:
    """`--detach` returns at once with the id of the run, which continues."""
    result = task.run(f"until [ -e go ]; do sleep 0.02; done; {LEAVES_DONE}", "--detach")
    run = result.out.strip()
    assert (result.code, only(task)["id"], only(task)["state"]) == (0, run, "running")
    (task.project.path / "go").touch()
    wait_until(lambda: only(task)["outcome"] == "complete")
    assert task.done.exists()


def test_one_supervisor_per_folder(task: Task) -> None:
    """A second one is refused; another folder of the same project is fine."""
    ralph = task.start(f"until [ -e go ]; do sleep 0.02; done; {LEAVES_DONE}")
    wait_until(lambda: task.attempts)
    refused = task.project.run("supervise", "tasks/job", "--", "true")
    assert refused.code == 2 and f"process {ralph.pid}" in refused.err
    (task.project.path / "tasks/other").mkdir()
    other = task.project.run("supervise", "tasks/other", "--", "sh", "-c", LEAVES_DONE)
    (task.project.path / "go").touch()
    assert (other.code, ralph.wait(timeout=20)) == (0, 0)
    ralph.communicate()


def test_a_supervised_run_continues_while_another_run_works_above_it(task: Task) -> None:
    """It locks only its folder, also when resumed."""
    assert task.run("[ -e go ] || exit 42; " + LEAVES_DONE).code == 3
    run = str(only(task)["id"])
    task.project.agent("touch go; until [ -e stop ]; do sleep 0.02; done; echo '<response>DONE</response>'")
    above = task.project.start("run", "-p", "x")
    wait_until((task.project.path / "go").exists)
    resumed = task.project.run("resume", run)
    (task.project.path / "stop").touch()
    assert (resumed.code, above.wait(timeout=20)) == (0, 0)
    above.communicate()


# ---- guidance and pause ----


def test_guidance_for_a_command_is_delivered_on_the_bus(task: Task) -> None:
    """At once, during the current attempt, and once; `--wait` sees it there."""
    body = f"until [ -e $TASK_FOLDER/go ]; do sleep 0.02; done; {LEAVES_DONE}"
    ralph = task.start(body)
    wait_until(lambda: task.attempts)
    run = str(only(task)["id"])
    steered = task.project.run("steer", run, "Use tabs.", "--wait")
    assert (steered.code, steered.err.splitlines()[-1]) == (0, f"Delivered to {task_bus(task.folder)}.")
    assert task.attempts == ["1"]
    (task.folder / "go").touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert [m for m in task.bus() if m[1] == "Use tabs."] == [("INFO", "Use tabs.")]
    assert "guidance   Use tabs. (iteration 1)" in task.project.run("status", run).out


def test_guidance_for_a_stopped_command(task: Task) -> None:
    """It is on the bus before the attempt that the resume starts."""
    assert (
        task.run(f"[ -e go ] || exit 42; cp $TASK_FOLDER/TASK-MESSAGE-BUS.md seen; {LEAVES_DONE}").code == 3
    )
    run = str(only(task)["id"])
    assert task.project.run("steer", run, "Use tabs.").code == 0
    (task.project.path / "go").touch()
    assert task.project.run("resume", run).code == 0
    assert (task.project.path / "seen").read_text().count("Use tabs.") == 1


def test_guidance_for_a_configured_agent_goes_into_its_prompt(project: Project) -> None:
    """Only a command without a prompt gets it on the bus."""
    task = Task(project)
    task.folder.mkdir(parents=True)
    project.agent(f'echo "$1" > prompt; [ -e go ] || exit 42; {LEAVES_DONE}', agent={"promptVia": "argument"})
    assert project.run("supervise", "tasks/job", *QUICK, "-p", "Build it.").code == 3
    project.run("steer", str(only(task)["id"]), "Use tabs.")
    (project.path / "go").touch()
    assert project.run("resume", str(only(task)["id"])).code == 0
    assert "Use tabs." in (project.path / "prompt").read_text() and "Use tabs." not in str(task.bus())


def test_pause_between_attempts(task: Task) -> None:
    """A paused run starts nothing until it is resumed."""
    waits = "until [ -e go ]; do sleep 0.02; done; exit 1"
    ralph = task.start(f'[ "$RALPH_ATTEMPT" = 2 ] && {LEAVES_DONE} || {{ {waits}; }}')
    wait_until(lambda: task.attempts == ["1"])
    run = str(only(task)["id"])
    assert task.project.run("pause", run).code == 0
    (task.project.path / "go").touch()
    wait_until(lambda: only(task)["state"] == "paused")
    assert task.attempts == ["1"]
    assert task.project.run("resume", run).code == 0
    assert (ralph.wait(timeout=20), task.attempts) == (0, ["1", "2"])
    ralph.communicate()
