"""T3: an agent swaps directories and files for links; nothing is written outside the project."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, some
from faults.fault_support import DONE, REPEATED, RUNS, assert_clear, assert_sound, contents, newest

HERE = {"command": "./agent.sh"}
"""The agent by its path in the project, so that it is found wherever the project moved."""


@pytest.fixture
def swapped(tmp_path: Path, project: Project) -> tuple[Project, Path]:
    """A project two levels deep, and a directory outside that a link could hit."""
    outside = tmp_path / "outside"
    (outside / ".ralph/old").mkdir(parents=True)
    (outside / "new-run").mkdir()
    for name in ("file", "prompt_002.txt", "guardrail_001_true.log", "current_run", ".ralph/prompt_002.txt"):
        (outside / name).write_text("precious")
    deep = Project(tmp_path / "top/project", project.home)
    deep.path.mkdir(parents=True)
    return deep, outside


def first_do(project: Project, command: str) -> None:
    """An agent that does something in its first iteration and never finishes."""
    project.agent(
        f"echo hm; [ $RALPH_ITERATION = 1 ] && {{ {command}; }}; true",
        agent=HERE,
        guardrails=[{"command": "true"}],
    )


# ---- directories ----

GOES_ON, REFUSED = 1, 2

SWAPS = {
    "link": (REFUSED, "mv .ralph .r; ln -s {out} .ralph"),
    "relative link": (REFUSED, "mv .ralph .r; ln -s ../../outside .ralph"),
    "link to links": (REFUSED, "mv .ralph .r; ln -s {out} a; ln -s a .ralph"),
    "dangling link": (REFUSED, "rm -r .ralph; ln -s {out}/new .ralph"),
    "link to itself": (REFUSED, "rm -r .ralph; ln -s .ralph .ralph"),
    "file": (REFUSED, "rm -r .ralph; touch .ralph"),
    "fifo": (REFUSED, "rm -r .ralph; mkfifo .ralph"),
    "removed": (GOES_ON, "rm -r .ralph"),
    "project is a link": (GOES_ON, "cd ..; mv project moved; ln -s {out} project"),
    "project is another": (GOES_ON, "cd ..; mv project moved; cp -r moved project"),
    "parent is a link": (
        GOES_ON,
        "cd ../..; mv top moved; mkdir new; ln -s {out} new/project; ln -s new top",
    ),
    "project is removed": (REFUSED, "cd ..; rm -r project"),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_t3_a_swapped_directory(swapped: tuple[Project, Path], swap: str) -> None:
    """Whatever replaces `.ralph` or a directory above it, nothing is written outside."""
    project, outside = swapped
    code, command = SWAPS[swap]
    first_do(project, command.format(out=outside))
    before = contents(outside)
    result = project.run("run", "-p", "x", "-m", "3", timeout=30)
    assert contents(outside) == before
    assert result.code == code, result.out + result.err
    if code == REFUSED:
        assert_clear(result)
    assert_sound(project.home)


@REPEATED
def test_t3_a_directory_that_changes_all_the_time(swapped: tuple[Project, Path]) -> None:
    """Swapping `.ralph` as fast as possible never gets anything written outside.

    The result is a race: the run continues, or is refused with a clear error.
    """
    project, outside = swapped
    project.agent("echo hm", guardrails=[{"command": "false"}])
    shutil.copy(project.path / ".ralph/settings.json", project.path.parent)
    before = contents(outside)
    ours, away, stopped = project.path / ".ralph", project.path / ".away", threading.Event()
    swaps: list[bool] = []

    def swap() -> None:
        while not stopped.is_set():
            shutil.rmtree(away, ignore_errors=True)  # ralph has created another `.ralph` in between
            with suppress(OSError):
                ours.rename(away)
            with suppress(OSError):
                ours.symlink_to(outside)
                swaps.append(True)
            with suppress(OSError):
                ours.unlink()
            with suppress(OSError):
                away.rename(ours)

    for _ in range(RUNS):
        stopped.clear()
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            result = project.run("run", "-p", "x", "-m", "50", "--settings", "../settings.json")
        finally:
            stopped.set()
            thread.join()
        assert contents(outside) == before
        if "iterations used without completion" in result.out:
            assert result.code == GOES_ON
        else:
            assert_clear(result)
    assert len(swaps) > 10 * RUNS, "hardly anything was swapped: the test shows nothing"


# ---- files ----

RALPH_PID = "$(cut -d ' ' -f 4 /proc/$PPID/stat)"
"""In an agent, the process of ralph: the parent of its warden."""

OURS = (".ralph/prompt_002.txt", ".ralph/guardrail_001_true.log", f".ralph/.tmp-{RALPH_PID}-prompt_002.txt")


@pytest.mark.parametrize(
    ("code", "plant"),
    [
        pytest.param(GOES_ON, "ln -s {out}/file {name}", id="link"),
        pytest.param(GOES_ON, "ln -s {out}/missing {name}", id="dangling link"),
        pytest.param(GOES_ON, "ln {out}/file {name}", id="hard link"),
        pytest.param(GOES_ON, "mkfifo {name}", id="fifo"),
        pytest.param(REFUSED, "mkdir {name}", id="directory"),
    ],
)
def test_t3_a_planted_file(swapped: tuple[Project, Path], code: int, plant: str) -> None:
    """Whatever has the name of Ralph's next file is replaced, never written through or waited for."""
    project, outside = swapped
    first_do(project, "; ".join(plant.format(out=outside, name=name) for name in OURS))
    before = contents(outside)
    result = project.run("run", "-p", "something to do", "-m", "2", timeout=30)
    assert contents(outside) == before
    assert result.code == code, result.out + result.err
    if code == REFUSED:
        assert_clear(result)
        return
    prompt = project.path / ".ralph/prompt_002.txt"
    assert not prompt.is_symlink() and "something to do" in prompt.read_text()
    assert list((project.path / ".ralph").glob(".tmp-*")) == []


@pytest.mark.parametrize(
    ("code", "plant"),
    [
        (REFUSED, "rm -r .ralph/old; ln -s {out} .ralph/old"),
        (0, "rm .ralph/.gitignore; ln -s {out}/file .ralph/.gitignore"),
        (0, "rm .ralph/current_run; ln -s {out}/file .ralph/current_run"),
        (REFUSED, "rm -rf .ralph/old; mkdir .ralph/old; ln -s {out} .ralph/old/$RALPH_RUN_ID"),
        (0, "rm .ralph/current_run; mkfifo .ralph/current_run"),
        (0, "printf ../../../outside > .ralph/current_run"),
        (0, "ln -s {out}/file .ralph/prompt_009.txt"),
    ],
)
def test_t3_files_planted_for_the_next_run(swapped: tuple[Project, Path], code: int, plant: str) -> None:
    """Links that an agent leaves behind do not lead the next run outside."""
    project, outside = swapped
    (project.path / ".ralph/old").mkdir(parents=True)
    project.agent(f"{plant.format(out=outside)}; {DONE}")
    before = contents(outside)
    first = project.run("run", "-p", "x")
    assert first.code == 0, first.err
    project.agent(DONE)
    second = project.run("run", "-p", "x", timeout=30)
    assert contents(outside) == before
    assert second.code == code, second.err
    if code == REFUSED:
        assert_clear(second)


def test_t3_a_store_in_the_project_is_not_led_astray(swapped: tuple[Project, Path]) -> None:
    """With the store in `.ralph/state`, a swapped `.ralph` does not receive the agent's stream."""
    project, outside = swapped
    project.extra_env |= {"RALPH_STATE_DIR": "", "XDG_STATE_HOME": "", "HOME": "/dev/null/x"}
    runs = f"{outside}/state/runs/$RALPH_RUN_ID"
    project.agent(f"mv .ralph .r; mkdir -p {runs}; ln -s {outside} .ralph; echo hm; sleep 0.1; echo hm")
    result = project.run("run", "-p", "x", "-m", "2")
    assert [name for name, what in contents(outside / "state").items() if what != "directory"] == []
    assert_clear(result)


# ---- resume ----


@pytest.mark.parametrize("name", ["project", "top"])
def test_t3_a_run_resumes_in_its_own_directory_or_not_at_all(
    swapped: tuple[Project, Path], name: str
) -> None:
    """`ralph resume` refuses if the run's directory, or one above it, has become a link to another."""
    project, outside = swapped
    ran = project.path / "ran"
    project.agent(f"touch {ran}; echo hm")
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    ran.unlink()
    place = project.path if name == "project" else project.path.parent
    target = outside if name == "project" else outside.parent / "other"
    shutil.copytree(project.path, outside, dirs_exist_ok=True)
    if name == "top":
        target.mkdir()
        (target / "project").symlink_to(outside)
    place.rename(place.with_name("moved"))
    place.symlink_to(target)
    before, earlier = contents(outside), newest(project)
    result = Project(outside.parent, project.home).run("resume", earlier.id, "-m", "2")
    assert_clear(result, str(project.path))
    assert contents(outside) == before
    assert newest(project) == earlier


# ---- git ----


def outside_of(repository: Project, command: str, scm: dict[str, Any] | None) -> Path:
    """Another repository, and an agent that uses it once; snapshots are on."""
    outside = repository.home.path.parent / "outside"
    repository.git("config", "user.name", "Test")
    repository.git("config", "user.email", "test@localhost")
    shutil.copytree(repository.path, outside)
    done = outside.parent / "done"
    once = f"[ -e {done} ] || {{ touch {done}; {command.format(out=outside)}; }}"
    repository.agent(f"echo hm; echo $RALPH_ITERATION > made; {once}")
    settings = {"agent": HERE, "snapshots": True} | ({"scm": scm} if scm else {})
    repository.settings(**settings)
    return outside


COMMITS = {"command": "git", "tasks": ["commit"]}

LINK = "cd ..; mv project moved; ln -s {out} project; echo new > {out}/new"
ANOTHER = "cd ..; mv project moved; mv {out} project"
GIT_LINK = "mv .git .g; ln -s {out}/.git .git"
GIT_FILE = "mv .git .g; echo 'gitdir: {out}/.git' > .git"
SHARED = "echo {out}/.git > .git/commondir"
CIRCLE = "mv .git .g; ln -s circle circle; echo 'gitdir: circle' > .git"
SHARED_CIRCLE = "ln -s circle .git/circle; echo circle > .git/commondir"
PARTS = "objects", "refs", "refs/heads", "index", "logs", "COMMIT_EDITMSG"

REFUSAL = "is no longer the git directory that the run started with"


@pytest.mark.parametrize("scm", [None, COMMITS], ids=["snapshots", "commits"])
@pytest.mark.parametrize("command", [LINK, ANOTHER])
def test_t3_a_swapped_repository(repository: Project, command: str, scm: dict[str, Any] | None) -> None:
    """Snapshots and commits do not go into a repository that an agent put in place of ours."""
    outside = outside_of(repository, command, scm)
    before = contents(outside / ".git")
    result = repository.run("run", "-p", "x", "-m", "3")
    assert "Traceback" not in result.err
    now = outside if outside.exists() else repository.path
    assert contents(now / ".git") == before, result.out + result.err


@pytest.mark.parametrize(
    "command",
    some(
        [
            GIT_LINK,
            GIT_FILE,
            SHARED,
            SHARED_CIRCLE,
            *(f"rm -rf .git/{p}; ln -s {{out}}/.git/{p} .git/{p}" for p in PARTS),
        ],
        2,
    ),
)
def test_t3_a_swapped_git_directory(repository: Project, command: str) -> None:
    """Neither the run nor later commands follow a git directory, or a part of it, to another place."""
    outside = outside_of(repository, command, COMMITS)
    before = contents(outside / ".git")
    result = repository.run("run", "-p", "x", "-m", "3")
    assert result.code == 2 and REFUSAL in result.out, result.out + result.err
    for later in (["resume", "-m", "4"], ["rewind", newest(repository).id, "1", "-y"], ["diff"]):
        result = repository.run(*later)
        assert result.code == 2 and REFUSAL in result.out + result.err, result.out + result.err
    assert contents(outside / ".git") == before


def test_t3_a_new_repository_in_the_same_place(repository: Project) -> None:
    """An agent that throws the history away and starts a new one is not complete, even if the inode is the same."""
    outside_of(repository, "rm -rf .git; git init -q; git add -A; git commit -qm New", COMMITS)
    result = repository.run("run", "-p", "x", "-m", "3")
    assert result.code == 2 and REFUSAL in result.out, result.out + result.err


def test_t3_a_git_directory_that_leads_in_a_circle(repository: Project) -> None:
    """Without the git directory that it started with, a run neither continues nor completes."""
    outside_of(repository, CIRCLE, COMMITS)
    result = repository.run("run", "-p", "x", "-m", "3")
    assert result.code == 2 and REFUSAL in result.out, result.out + result.err
    resumed = repository.run("resume", "-m", "4")
    assert resumed.code == 2 and "was in a git repository when the run started" in resumed.err


def test_t3_the_original_git_directory_is_restored(repository: Project) -> None:
    """Once `.git` is back, a run continues with its snapshots and can be rolled back."""
    outside_of(repository, GIT_LINK, None)
    repository.run("run", "-p", "x", "-m", "2")
    (repository.path / ".git").unlink()
    (repository.path / ".g").rename(repository.path / ".git")
    result = repository.run("resume", "-m", "3")
    assert result.code == 1 and REFUSAL not in result.err, result.err
    assert repository.run("rewind", newest(repository).id, "1", "-y").code == 0
    assert not (repository.path / "made").exists()


def test_t3_a_linked_worktree_is_swapped(repository: Project) -> None:
    """The `.git` file of a linked worktree may change; the run keeps the original git directory."""
    linked = Project(repository.path.parent / "linked", repository.home)
    repository.git("worktree", "add", "-q", str(linked.path))
    outside = outside_of(linked, "echo 'gitdir: {out}/.git' > .git", COMMITS)
    (outside / ".git").unlink()
    shutil.copytree(repository.path / ".git", outside / ".git")
    before = contents(outside / ".git")
    linked.run("run", "-p", "x", "-m", "3")
    assert_clear(linked.run("rewind", newest(linked).id, "1", "-y"), REFUSAL)
    assert contents(outside / ".git") == before
    assert len(repository.git("for-each-ref", "refs/ralph").splitlines()) == 4


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("ln -s {out} nested", id="link"),
        pytest.param("mkdir nested; echo 'gitdir: {out}/.git' > nested/.git", id="file"),
        pytest.param("mkdir nested; ln -s {out}/.git nested/.git", id="link to its .git"),
        pytest.param(
            "git init -q nested; echo x > nested/x; echo {out}/.git > nested/.git/commondir", id="common"
        ),
        pytest.param(
            "git init -q nested; echo x > nested/x; cd nested/.git; rm -r objects; ln -s {out}/.git/objects .",
            id="link to its objects",
        ),
    ],
)
def test_t3_a_repository_that_only_looks_nested(repository: Project, command: str) -> None:
    """Nothing is written to another repository that a link or a file in the project points to."""
    outside = outside_of(repository, command, None)
    before = contents(outside)
    result = repository.run("run", "-p", "x", "-m", "2")
    assert result.code == 1, result.err
    assert contents(outside) == before
    is_link = (repository.path / "nested").is_symlink()
    assert ("nested points to a repository somewhere else" in result.err) == (not is_link), result.err


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("rm .git/index; mkdir .git/index", "the index is not a regular file"),
        ("rm .git/index; mkfifo .git/index", "the index is not a regular file"),
        ("rm .git/index; ln -s /dev/zero .git/index", REFUSAL),
        ("rm -r .git", REFUSAL),
        (GIT_FILE, REFUSAL),
    ],
)
def test_t3_a_failed_snapshot_does_not_stop_the_run(repository: Project, command: str, note: str) -> None:
    """If an agent made snapshots impossible, there is a clear notice, and the run continues."""
    outside_of(repository, command, None)
    result = repository.run("run", "-p", "x", "-m", "2", timeout=30)
    assert result.code == 1, result.out + result.err
    assert note in result.err
