"""`ralph supervise`: when it restarts, waits or stops, case by case, with real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import Project, Recorded, wait_until
from supervise_support import LEAVES_DONE, Task

COMPLETED = "task completed (DONE marker present, no active children)"
STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "


@pytest.fixture
def task(project: Project) -> Task:
    project.settings(snapshots=False)
    made = Task(project)
    made.folder.mkdir(parents=True)
    return made


def logged(said: str) -> list[str]:
    """The lines of the log, without their times."""
    return [re.sub(STAMP, "", line) for line in said.splitlines() if re.match(STAMP, line)]


# ---- success ----


def test_immediate_success(task: Task) -> None:
    """An agent that creates DONE is started once; both the task's and the project's bus record it."""
    result = task.run(LEAVES_DONE)
    assert (result.code, task.attempts) == (0, ["1"])
    assert task.bus() == [("INFO", "attempt 1/100 started"), ("FACT", COMPLETED)]
    assert task.project_bus() == [("FACT", COMPLETED)]
    assert logged(result.err) == [COMPLETED]


def test_success_after_some_restarts(task: Task) -> None:
    """After crashes it is restarted until DONE exists; each failure is on the bus and in the log."""
    result = task.run(f'[ "$RALPH_ATTEMPT" -lt 4 ] && exit "$RALPH_ATTEMPT"; {LEAVES_DONE}')
    assert (result.code, task.attempts) == (0, ["1", "2", "3", "4"])
    assert [body for kind, body in task.bus() if kind == "WARNING"] == [
        f"attempt {n} failed: exit code {n}" for n in (1, 2, 3)
    ]
    assert logged(result.err)[:3] == [
        f"Agent failed with exit code {n}, restarting (attempt {n + 1}/100)" for n in (1, 2, 3)
    ]


def test_an_exit_code_of_zero_alone_never_stops_it(task: Task) -> None:
    """It is not a failure either, however often and however silent: the agent is restarted until the limit."""
    result = task.run("exit 0", "--max-restarts", "14")
    assert (result.code, len(task.attempts)) == (1, 14)
    assert [kind for kind, _ in task.bus() if kind == "WARNING"] == []
    assert logged(result.err)[0] == "Agent exited without DONE, restarting (attempt 2/14)"


def test_a_failing_agent_that_creates_done_is_complete(task: Task) -> None:
    """DONE counts, whatever the exit code."""
    assert (task.run(f"{LEAVES_DONE}; exit 7").code, task.attempts) == (0, ["1"])


def test_done_before_the_first_attempt(task: Task) -> None:
    """Nothing is started."""
    task.done.touch()
    result = task.run("exit 1")
    assert (result.code, task.attempts, task.bus()) == (0, [], [("FACT", COMPLETED)])


def test_done_is_noticed_during_the_restart_delay(task: Task) -> None:
    """Someone else may create DONE; the rest of the delay is skipped."""
    ralph = task.start("exit 1", "--restart-delay", "60")
    wait_until(lambda: "attempt 1 failed: exit code 1" in str(task.bus()))
    task.done.touch()
    assert ralph.wait(timeout=20) == 0
    ralph.communicate()
    assert task.attempts == ["1"]


# ---- stopping without success ----


def test_max_restarts(task: Task) -> None:
    """Exit code 1, an ERROR on the bus, a line in the log, and not one attempt more."""
    result = task.run("exit 1", "--max-restarts", "3")
    assert (result.code, task.attempts) == (1, ["1", "2", "3"])
    assert task.bus()[-1] == ("ERROR", "max restarts exceeded (3)")
    assert logged(result.err)[-1] == "Attempt 3: Max restarts exceeded, stopping"
    assert task.project_bus() == []


def test_more_restarts_with_resume(task: Task) -> None:
    """A run that used up its restarts continues with a higher limit, from where it was."""
    task.run(f'[ "$RALPH_ATTEMPT" -lt 3 ] && exit 1; {LEAVES_DONE}', "--max-restarts", "2")
    (run,) = task.project.status()
    assert task.project.run("resume", run["id"]).code == 2
    assert task.project.run("resume", run["id"], "-m", "4").code == 0
    assert task.attempts == ["1", "2", "3"]


def test_cancel(task: Task) -> None:
    """The agent and everything it started are stopped, and nothing is restarted."""
    pids = Recorded(task.project.path / "pids")
    ralph = task.start("sleep 60 & echo $! >> pids; echo $$ >> pids; wait")
    wait_until(lambda: len(pids.pids()) == 2)
    (run,) = task.project.status()
    assert task.project.run("cancel", run["id"]).code == 0
    assert ralph.wait(timeout=10) == 130
    ralph.communicate()
    assert not pids.alive() and task.attempts == ["1"]
    assert [kind for kind, _ in task.bus()] == ["INFO"]


def test_cancel_between_two_attempts(task: Task) -> None:
    """A run that waits for its next attempt is cancelled at once."""
    ralph = task.start("exit 1", "--restart-delay", "60")
    wait_until(lambda: len(task.bus()) == 2)
    (run,) = task.project.status()
    assert task.project.run("cancel", run["id"]).code == 0
    assert (ralph.wait(timeout=10), task.attempts) == (130, ["1"])
    ralph.communicate()


def test_a_command_that_cannot_be_started_is_fatal(task: Task) -> None:
    """One attempt, exit code 2, an ERROR on the bus that says what is missing."""
    result = task.project.run("supervise", "tasks/job", "--", "./missing", "--its", "flags")
    assert result.code == 2
    assert task.bus() == [
        ("INFO", "attempt 1/100 started"),
        ("WARNING", "attempt 1 failed: unstartable: ./missing: no such file"),
        ("ERROR", "./missing: no such file"),
    ]


def test_a_command_without_permission_is_fatal(task: Task) -> None:
    """Permission denied is not worth a retry."""
    Path(task.script("exit 0")).chmod(0o644)
    result = task.project.run("supervise", "tasks/job", "--", "./task.sh")
    assert (result.code, task.attempts) == (2, [])
    assert "not executable" in task.bus()[-1][1]


def test_resume_of_a_command_that_could_not_be_started(task: Task) -> None:
    """It is tried again, the end says what to do next, and once that is done the task completes."""
    assert task.project.run("supervise", "tasks/job", "--", "./later.sh").code == 2
    (run,) = task.project.status()
    again = task.project.run("resume", run["id"])
    assert again.code == 2 and again.out.splitlines()[0] == "Failed: ./later.sh: no such file"
    advice = f"Fix this (ralph doctor checks the configured agents), then: ralph resume {run['id']}"
    assert again.out.splitlines()[-1] == f"  {advice}"
    task.project.script("later.sh", LEAVES_DONE)
    assert task.project.run("resume", run["id"]).code == 0


@pytest.mark.parametrize(
    ("words", "complaint", "advice"),
    [
        ([], "No command and no prompt.", "ralph supervise tasks/job -- COMMAND…,"),
        (
            ["-p", "a", "-f", "b"],
            "--prompt and --prompt-file cannot be used together.",
            "Leave one of them out.",
        ),
        (["-f", "-"], "The prompt cannot be read from stdin", "-f PROMPT.md."),
        (["-p", "a", "--", "true"], "A custom command cannot have a prompt.", "after `--`"),
    ],
    ids=["nothing", "two prompts", "stdin", "both"],
)
def test_a_usage_error_explains_this_command(
    task: Task, words: list[str], complaint: str, advice: str
) -> None:
    """With no command, or with both, the error shows the usage of `supervise`, not of another command."""
    result = task.project.run("supervise", "tasks/job", *words)
    error, hint = result.err.splitlines()
    assert result.code == 2 and complaint in error and advice in hint
    assert "ralph run" not in result.err and task.project.status() == []


# ---- delays and timeouts ----


def test_the_restart_delay(task: Task) -> None:
    """It applies between two attempts, after exit code 0 too."""
    body = f'[ "$RALPH_ATTEMPT" -lt 3 ] && exit $((RALPH_ATTEMPT - 1)); {LEAVES_DONE}'
    result = task.run(body, "--restart-delay", "0.2", "--restart-policy", "fixed", "--json")
    held = [line["hold"] for line in result.lines() if line["event"] == "holding"]
    assert [(hold["why"], hold["seconds"]) for hold in held] == [("restart", 0.2), ("restart", 0.2)]


def test_fixed_restarts_ignore_crash_loops(task: Task) -> None:
    """The same failure is repeated up to the limit."""
    result = task.run("exit 1", "--restart-policy", "fixed", "--max-restarts", "20")
    assert (result.code, len(task.attempts)) == (1, 20)


def test_an_attempt_that_takes_too_long(task: Task) -> None:
    """It is stopped with everything it started, counts as a failure, and the next one starts."""
    pids = Recorded(task.project.path / "pids")
    body = f'echo $$ >> pids; sleep 60 & echo $! >> pids; [ "$RALPH_ATTEMPT" = 2 ] && {LEAVES_DONE} || wait'
    result = task.run(body, "--agent-timeout", "0.5", "--wait-timeout", "0.2")
    assert (result.code, task.attempts) == (0, ["1", "2"])
    assert len(pids.pids()) == 4 and not pids.alive()
    first = logged(result.err)[:3]
    assert re.fullmatch(r"Agent timeout after 0\.[5-9]s, killing process group", first[0]), first
    assert first[1:] == [
        "Process group killed, treating as failure",
        "Agent failed with timeout, restarting (attempt 2/100)",
    ]


@pytest.mark.slow
def test_a_timeout_does_not_affect_the_next_attempt(task: Task) -> None:
    """The timeout starts again with each attempt: the next one may take longer."""
    body = f'[ "$RALPH_ATTEMPT" = 1 ] && exec sleep 60; sleep 6.5; {LEAVES_DONE}'
    result = task.run(body, "--agent-timeout", "7.5")
    assert (result.code, task.attempts) == (0, ["1", "2"])


@pytest.mark.slow
def test_leftovers_of_an_attempt_are_gone_before_the_next(task: Task) -> None:
    """No process survives an attempt: not in the group, not in another session, not one that ignores TERM."""
    pids = Recorded(task.project.path / "pids")
    body = f"""
        for pid in $(cat pids 2> /dev/null); do kill -0 $pid 2> /dev/null && echo $pid >> survivors; done
        sleep 60 & echo $! >> pids
        setsid sh -c 'echo $$ >> pids; exec sleep 60' &
        setsid sh -c 'trap "" TERM; echo $$ >> pids; sleep 60; sleep 60' &
        until [ $(wc -l < pids) -ge $((3 * RALPH_ATTEMPT)) ]; do sleep 0.01; done
        [ "$RALPH_ATTEMPT" -lt 3 ] || {LEAVES_DONE}
    """
    result = task.run(body, "--wait-timeout", "0.1")
    assert (result.code, task.attempts) == (0, ["1", "2", "3"])
    assert len(pids.pids()) == 9 and not pids.alive()
    assert not (task.project.path / "survivors").exists()


# ---- children after DONE ----


def test_children_are_waited_for_after_done(task: Task) -> None:
    """The run is complete when the last child has exited."""
    result = task.run(f"(sleep 1; touch later) & {LEAVES_DONE}")
    assert result.code == 0
    assert (task.project.path / "later").exists()
    assert task.bus()[-1] == ("FACT", COMPLETED)


@pytest.mark.slow
def test_children_are_waited_for_in_a_repository(repository: Project) -> None:
    """Git, which reads the tree in between, does not stop them."""
    task = Task(repository)
    assert task.run(f"(sleep 1; touch later) & {LEAVES_DONE}").code == 0
    assert (repository.path / "later").exists()


def test_children_that_stay_are_stopped(task: Task) -> None:
    """They are stopped after the wait; the run still completes, with a WARNING on the bus."""
    pids = Recorded(task.project.path / "pids")
    result = task.run(f"sleep 60 & echo $! >> pids; {LEAVES_DONE}", "--wait-timeout", "0.5")
    assert result.code == 0 and pids.pids() and not pids.alive()
    assert task.bus()[-2:] == [("WARNING", "1 child process had to be killed"), ("FACT", COMPLETED)]
    assert "1 child process had to be killed" in result.out


def test_a_task_that_creates_done_and_keeps_running_is_stopped(task: Task) -> None:
    """It gets the same time as children, is then stopped, and does not count as failed."""
    pids = Recorded(task.project.path / "pids")
    result = task.run(f"echo $$ >> pids; {LEAVES_DONE}; exec sleep 60", "--wait-timeout", "0.5")
    assert (result.code, task.attempts) == (0, ["1"])
    assert not pids.alive()
    assert [kind for kind, _ in task.bus()] == ["INFO", "FACT"]


def test_a_task_that_removes_its_done_continues(task: Task) -> None:
    """A DONE that is removed again stops nothing."""
    body = f'{LEAVES_DONE}; sleep 0.4; rm "$TASK_FOLDER/DONE"; sleep 2; touch later; {LEAVES_DONE}'
    assert task.run(body, "--wait-timeout", "1.5").code == 0
    assert (task.project.path / "later").exists() and task.attempts == ["1"]


def test_a_task_that_ends_soon_after_done_is_left_alone(task: Task) -> None:
    """DONE alone does not stop an agent that is still cleaning up."""
    assert task.run(f"{LEAVES_DONE}; sleep 1; touch later").code == 0
    assert (task.project.path / "later").exists()
