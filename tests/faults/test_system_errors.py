"""D8: the system refuses what ralph asks for; that is one clear error, and nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from conftest import RALPH, Project, Result, wait_until
from faults.fault_support import (
    DONE,
    IS_FULL,
    Watched,
    assert_clear,
    assert_sound,
    finish,
    injected,
    newest,
    status,
)

ERRORS = (errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EMFILE)


def sites(*names: str) -> list[ParameterSet]:
    """Each place that can fail with one of its errors in turn; in the full run, with all of them."""
    found = []
    for place, name in enumerate(names):
        numbers = ERRORS if IS_FULL else (ERRORS[place % len(ERRORS)],)
        marks = [pytest.mark.slow] if place >= 4 else []
        found += [pytest.param(name, number, marks=marks) for number in numbers]
    return found


@pytest.mark.parametrize(
    ("site", "number"),
    sites(
        "store.files.mkdir",
        "store.files.open",
        "store.files.write",
        "store.files.rename",
        "store.files.fsync",
        "store.files.listdir",
        "store.files.unlink",
        "store.runtime.listdir",
        "store.runtime.stat",
        "store.runtime.rename",
        "store.runtime.open",
        "store.locks.open",
        "store.database.open",
        "store.journal.stat",
        "process.client.pipe2",
        "process.client.open",
        "process.client.posix_spawn",
    ),
)
def test_d8_an_error_at_the_start(project: Project, tmp_path: Path, site: str, number: int) -> None:
    """Any error before the first iteration is one clear error and leaves no run that seems alive."""
    project.agent(DONE)
    (project.path / ".ralph/prompt_001.txt").touch()
    (project.path / "broken").touch()
    result = Watched(project, injected(site, number, "run", "-p", "x"), tmp_path / "log").result()
    assert_clear(result, os.strerror(number))
    assert [run for run in status(project) if run.pid is not None] == []
    (project.path / "broken").unlink()
    assert project.run("run", "-p", "x").code == 0
    assert_sound(project.home)


@pytest.mark.parametrize(
    ("site", "number"),
    sites(
        "store.files.mkdir",
        "store.files.open",
        "store.files.write",
        "store.files.rename",
        "store.files.unlink",
        "store.runtime.open",
        "process.client.pipe2",
        "process.client.open",
        "files.textfile.open",
    ),
)
def test_d8_an_error_during_a_run(project: Project, tmp_path: Path, site: str, number: int) -> None:
    """Any error in a run is one clear stop, also in the journal; once it has passed, the run continues."""
    (project.path / "prompt.md").write_text("x")
    project.agent(
        f"cat >&2; [ -e repaired ] || touch broken; {DONE}",
        agent={"promptVia": "stdin"},
        guardrails=[{"command": "[ $RALPH_ITERATION = 2 ]"}],
    )
    words = injected(site, number, "run", "-f", "prompt.md")
    result = Watched(project, words, tmp_path / "log").result()
    assert_clear(result, os.strerror(number))
    assert_sound(project.home)
    found = newest(project)
    assert (found.state, found.outcome) == ("ended", "fatal")
    assert os.strerror(number) in (found.reason or "")
    (project.path / "broken").unlink()
    (project.path / "repaired").touch()
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err


def test_d8_an_unreadable_store_was_not_removed(project: Project, tmp_path: Path) -> None:
    """A disk error under the store is reported as such."""
    project.agent(f"[ -e repaired ] || touch broken; {DONE}", guardrails=[{"command": "true"}])
    words = injected("store.journal.stat", errno.EIO, "run", "-p", "x")
    result = Watched(project, words, tmp_path / "log").result()
    assert_clear(result, os.strerror(errno.EIO), str(project.home.database))
    assert "removed" not in result.err
    (project.path / "broken").unlink()
    (project.path / "repaired").touch()
    assert project.run("resume").code == 0


# ---- a system that really refuses ----


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prlimit")
@pytest.mark.parametrize(
    ("what", "soft"),
    [
        pytest.param(resource.RLIMIT_FSIZE, 0, id="no byte can be written"),
        pytest.param(resource.RLIMIT_NOFILE, 6, id="no file can be opened"),
    ],
)
def test_d8_a_process_without_any_permissions(project: Project, what: int, soft: int) -> None:
    """Real system errors under SQLite and ralph's own files give one clear error."""
    project.agent(
        f"touch started; while [ ! -e go ]; do sleep 0.02; done; {DONE}", guardrails=[{"command": "true"}]
    )
    ralph = project.start("run", "-p", "x")
    wait_until(lambda: (project.path / "started").exists())
    _, hard = resource.prlimit(ralph.pid, what)
    resource.prlimit(ralph.pid, what, (soft, hard))
    (project.path / "go").touch()
    result = finish(ralph)
    assert_clear(result)
    assert_sound(project.home)
    resumed = project.run("resume")
    assert resumed.code == 0, resumed.err


def ralph_with(project: Project, limit: str, *words: str) -> Result:
    """Run a command to its end under a `ulimit` of the shell."""
    done = subprocess.run(
        ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *words],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_d8_few_descriptors_from_the_start(project: Project) -> None:
    """With too few descriptors a run is refused with a clear error, with enough it completes; nothing in between."""
    project.agent(DONE)
    codes = []
    for most in range(12, 25, 1 if IS_FULL else 3):
        result = ralph_with(project, f"-n {most}", RALPH, "run", "-p", "x")
        if result.code != 0:
            assert_clear(result, "Too many open files")
        codes.append(result.code)
    assert (codes[0], codes[-1]) == (2, 0), "the limits made no difference: the test shows nothing"
    assert codes == sorted(codes, reverse=True)
    assert_sound(project.home)


def test_d8_no_place_for_a_bug_report(project: Project) -> None:
    """An unexpected error is still one error with exit 2 if its details cannot be written."""
    code = (
        "import sys, ralph.cli as cli\n"
        "def broken(argv): raise RuntimeError('hm')\n"
        "cli._invoke = broken\n"
        "sys.exit(cli.main(['status']))\n"
    )
    result = ralph_with(project, "-f 0", sys.executable, "-c", code)
    assert (result.code, "Traceback" in result.err) == (2, False), result.err
    assert "hm" in result.err
