"""A forked ralph behaves like one started as a new process, which the other tests rely on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import Project, Result, wait_until
from fork_support import ForkedRalph

LOOK = r"""
ralph=$(cut -d ' ' -f 4 /proc/$PPID/stat)
{
    grep -E '^(Name|Umask|Threads|SigBlk|SigIgn|SigCgt)' /proc/$ralph/status
    readlink /proc/$ralph/cwd
    for file in /proc/$ralph/fd/*; do readlink $file; done | sed -E 's/runs.[0-9a-f-]+//; s/[0-9]+/N/g' | sort
    env | grep -vE '^(RALPH_RUN_ID|RALPH_PARENT_RUN_ID|_)=' | sort
} > seen
echo '<response>DONE</response>'
"""
"""An agent that records the state of the ralph process, which is the parent of its warden."""


def both_ways(project: Project, *arguments: str, stdin: str = "") -> list[Result]:
    """The results of a fork and of a real process, without ids and durations."""
    results = []
    for real in (False, True):
        found = project.run(*arguments, stdin=stdin, real_process=real)
        out, err = (re.sub(r"\d{8}-\d{6}-\w{4}|[\d.]+m?s\b", "…", text) for text in (found.out, found.err))
        results.append(Result(found.code, out, err))
    return results


def test_a_run_is_the_same_both_ways(project: Project) -> None:
    """Exit code, stdout and stderr of a run are identical."""
    project.agent("echo hello; echo '<response>DONE</response>'", guardrails=[{"command": "true"}])
    forked, real = both_ways(project, "run", "-p", "x")
    assert forked == real and forked.code == 0


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run"], ["status", "--json"], ["config"], ["task", "list"], ["-h"], ["status", "\udcff"]],
    ids=" ".join,
)
def test_a_command_is_the_same_both_ways(project: Project, arguments: list[str]) -> None:
    """Errors and tables are identical too."""
    forked, real = both_ways(project, *arguments)
    assert forked == real


def test_the_process_is_the_same_both_ways(project: Project) -> None:
    """Name, directory, umask, signals, threads, open files and environment are identical."""
    project.agent(LOOK)
    seen = []
    old = os.umask(0o027)
    try:
        for real in (False, True):
            assert project.run("run", "-p", "x", real_process=real).code == 0
            seen.append((project.path / "seen").read_text())
    finally:
        os.umask(old)
    assert seen[0].splitlines() == seen[1].splitlines()


def test_stdin_arrives(project: Project) -> None:
    """A forked command reads its stdin like a real one."""
    (project.path / "build").mkdir()
    forked, real = both_ways(project, "bus", "post", "build", stdin="näher\r\n" * 500)
    assert (forked.code, real.code) == (0, 0)
    bodies = [line["body"] for line in project.run("bus", "read", "build", "--json").lines()]
    assert bodies[0] == bodies[1] and bodies[0].startswith("näher")


@pytest.mark.skipif("os.environ.get('RALPH_TEST_EXEC')", reason="every call is a real process")
def test_it_is_killed_and_waited_for_like_any_process(project: Project) -> None:
    """SIGKILL stops the process, which stays a zombie until it is waited for."""
    project.agent("touch here; sleep 60")
    ralph = project.start("run", "-p", "x")
    assert isinstance(ralph, ForkedRalph)
    wait_until((project.path / "here").exists)
    assert ralph.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        ralph.wait(timeout=0.01)
    ralph.kill()
    stat = Path(f"/proc/{ralph.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    ralph.communicate()
    assert ralph.returncode == -signal.SIGKILL and not stat.exists()


@pytest.mark.slow
@pytest.mark.skipif("os.environ.get('RALPH_TEST_EXEC')", reason="every call is a real process")
def test_a_server_that_was_killed_is_replaced(project: Project) -> None:
    """The processes of a killed server count as killed, and the next call works."""
    project.agent("touch here; sleep 60")
    with project.start("run", "-p", "x") as ralph:
        wait_until((project.path / "here").exists)
        os.kill(
            int(Path(f"/proc/{ralph.pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
        )
        os.kill(ralph.pid, signal.SIGKILL)
        assert ralph.wait(timeout=10) == -signal.SIGKILL
    assert project.run("--version").code == 0


def test_a_variable_read_at_interpreter_start_needs_a_real_process(project: Project) -> None:
    """A fork cannot apply an encoding that is chosen at the start of the interpreter."""
    project.extra_env["PYTHONIOENCODING"] = "ascii"
    ralph = project.start("--version")
    ralph.communicate()
    assert not isinstance(ralph, ForkedRalph)
