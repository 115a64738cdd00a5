"""`ralph task reset` and `ralph task delete` with the worktrees and branches of real `ralph work`."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from msgspec.structs import replace

from conftest import Project, wait_until
from faults.work_fault_support import coder_only, worktrees
from ralph.core.task_model import TaskProgress, TaskStatus
from terminal_support import terminal
from work_support import FIXES, Site, external, make_site, task

NOTES = "echo $RALPH_ITERATION >> notes.txt"
COMMITS = f"{NOTES}; git add -A; git commit -qm notes"


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def fail(site: Site, body: str = NOTES, id: str = "T-1", **values: object) -> None:
    """A task that failed after one iteration of the coder."""
    coder_only(site, f"{body}; promise CODED")
    site.add(task(id, coder=replace(external(), max_iterations=1), **values))
    assert site.work("--task", id).code == 1


def reset(site: Site, *arguments: str) -> str:
    result = site.project.run("task", "reset", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


def refused(site: Site, *arguments: str) -> str:
    result = site.project.run("task", *arguments)
    assert (result.code, result.out) == (2, "")
    return result.err.removeprefix("ralph: error: ")


def branches(site: Site) -> list[str]:
    return site.project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/ralph").split()


def runs(site: Site, id: str = "T-1") -> list[str]:
    return [run["run"] for run in site.state(id)["runs"]]


def stop(work: subprocess.Popen[str]) -> None:
    """Interrupt it until it kills what it has started. Signals that come at the same time count once."""
    while work.poll() is None:
        work.send_signal(signal.SIGINT)
        time.sleep(0.2)
    work.communicate()


# ---- reset ----


def test_a_reset_removes_the_worktree_and_keeps_the_work(site: Site) -> None:
    """Uncommitted changes are on the branch; the next work makes a new worktree, with setup, and continues."""
    fail(site, COMMITS)
    (site.worktree / "notes.txt").write_text("by hand\n")
    out = reset(site, "t-1")
    assert out == (
        "Reset T-1: its status is todo.\n"
        f"  removed: worktree {site.worktree}\n"
        "  committed: uncommitted changes, to ralph/T-1\n"
        "  kept: branch ralph/T-1 (2 unmerged commits)\n"
    )
    assert (site.worktree.exists(), worktrees(site), branches(site)) == (False, [], ["ralph/T-1"])
    assert site.project.git("log", "-1", "--format=%s", "ralph/T-1") == "T-1: unfinished\n"
    assert site.project.git("show", "ralph/T-1:notes.txt") == "by hand\n"
    assert (site.state()["status"], site.tasks.progress("T-1").role) == ("todo", "")
    seen = site.outside / "set-up"
    coder_only(site, f"{FIXES}; promise CODED", ralph={"setup": f"cat notes.txt >> {seen}"})
    done = site.work()
    assert (done.code, "was missing" in done.err) == (0, False), done.err
    assert seen.read_text() == "by hand\n" * 3, "for worktree, copy and merge"
    assert site.is_fixed() and site.project.git("show", "main:notes.txt") == "by hand\n"


def test_a_hard_reset_starts_over(site: Site) -> None:
    """Worktree, branch and progress are gone; the next work begins with the base branch."""
    fail(site, COMMITS)
    commit = site.project.git("rev-parse", "ralph/T-1")[:10]
    (site.worktree / "loose.txt").write_text("x\n")
    assert reset(site, "T-1", "--hard", "--yes") == (
        "Reset T-1: its status is todo.\n"
        f"  removed: worktree {site.worktree}\n"
        f"  deleted: branch ralph/T-1 (was {commit})\n"
    )
    assert (worktrees(site), branches(site)) == ([], [])
    progress = site.tasks.progress("T-1")
    assert progress == TaskProgress(reset=runs(site)[0])
    coder_only(site, f"{FIXES}; promise CODED")
    assert site.work().code == 0
    assert site.project.git("ls-tree", "--name-only", "main").split() == [".gitignore", "calc.py", "check.py"]


def test_a_hard_reset_does_not_discard_work_without_a_yes(site: Site) -> None:
    """Without a terminal it needs --yes and names what would be lost; if nothing would be, it needs nothing."""
    fail(site, COMMITS)
    (site.worktree / "notes.txt").write_text("by hand\n")
    assert refused(site, "reset", "T-1", "--hard") == (
        "This would discard 1 unmerged commit on ralph/T-1, uncommitted changes in"
        f" {site.worktree}.\n  Use --yes to do it without a question.\n"
    )
    assert (site.worktree / "notes.txt").read_text() == "by hand\n" and branches(site) == ["ralph/T-1"]
    with terminal(site.project, "task", "reset", "T-1", "--hard") as screen:
        screen.answer("(y/N):", "n")
        assert screen.finish() == 0
    assert site.worktree.exists()
    fail(site, "true", "T-2")
    assert "deleted: branch ralph/T-2" in reset(site, "T-2", "--hard")


def test_a_reset_in_the_worktree_itself(site: Site) -> None:
    """A user who looked around there may remove it from there."""
    fail(site, COMMITS)
    inside = Project(site.worktree, site.project.home)
    assert f"  removed: worktree {site.worktree}\n" in inside.run("task", "reset", "T-1").out
    assert worktrees(site) == []


def test_several_tasks_as_json(site: Site) -> None:
    """One object for each task; every attempt has its worktree and its branch."""
    fail(site, COMMITS, attempts=2)
    site.add(task("T-2"))
    first, second = json.loads(reset(site, "T-1", "T-2", "T-1", "--json"))
    second_worktree = site.worktree.with_name("T-1+2")
    assert (first["id"], first["status"]) == ("T-1", "todo")
    assert sorted(first["worktrees"]) == [str(site.worktree), str(second_worktree)]
    assert [branch["name"] for branch in first["kept"]] == ["ralph/T-1", "ralph/T-1+2"]
    assert not second_worktree.exists()
    names = ("worktrees", "committed", "deleted", "kept", "cancelled", "problems")
    assert second == {"id": "T-2", "status": "todo", **{name: [] for name in names}}


def test_an_open_run_is_cancelled_and_never_resumed(site: Site) -> None:
    """After a kill, the run is closed; `ralph work` starts another one in the new worktree, from the branch."""
    coder_only(site, f"{COMMITS}; echo loose > loose.txt; sleep 60")
    site.add(task())
    work = site.project.start("work", real_process=True)
    wait_until((site.worktree / "loose.txt").exists)
    work.send_signal(signal.SIGKILL)
    work.communicate()
    (run,) = runs(site)
    assert f"  cancelled: run {run}\n" in wait_until(
        lambda: site.project.run("task", "reset", "T-1").out, every=0.5
    )
    assert site.project.git("show", "ralph/T-1:loose.txt") == "loose\n"
    assert "belongs to task T-1" in site.project.run("resume", run).err
    coder_only(site, f"{FIXES}; promise CODED")
    done = site.work()
    assert (done.code, "was missing" in done.err) == (0, False), done.err
    assert len(runs(site)) == 3, "the open one, a new one, and the merge"
    assert site.project.git("show", "main:loose.txt") == "loose\n"


def test_reset_is_refused_while_the_project_is_worked_on(site: Site) -> None:
    """The task being worked on, and others of the project too."""
    coder_only(site, f"touch {site.outside}/working; sleep 60")
    site.add(task(), task("T-2", priority=9))
    work = site.project.start("work")
    wait_until((site.outside / "working").exists)
    assert refused(site, "reset", "T-1").startswith("T-1 is being worked on.\n")
    assert refused(site, "reset", "T-2") == (
        "`ralph work` is running in this project: T-2 cannot be reset now.\n"
        "  Wait until it has finished, or stop it with Ctrl-C.\n"
    )
    assert site.worktree.exists()
    stop(work)


def test_what_cannot_be_reset(site: Site, tmp_path: object) -> None:
    """A task that is done or unknown, and a branch that the user has checked out."""
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    assert site.work().code == 0
    assert refused(site, "reset", "T-1").startswith("T-1 is done: there is nothing to reset.\n")
    assert refused(site, "reset", "T-9").startswith("There is no task 'T-9' in this project.\n")
    site.add(task("T-2"))
    site.project.git("branch", "ralph/T-2")
    other = site.outside / "other"
    site.project.git("worktree", "add", "-q", str(other), "ralph/T-2")
    assert refused(site, "reset", "T-2", "--hard", "--yes").startswith(
        f"The branch ralph/T-2 is checked out in {other}.\n"
    )


def test_a_directory_without_git_has_no_worktrees(project: Project) -> None:
    """Tasks can be written there, but not reset."""
    project.run("task", "create", "A", "s", "t", "--outcome", "o", "--acceptance", "a")
    assert "not in a git repository" in project.run("task", "reset", "A").err
    assert project.run("task", "delete", "A").out == "Deleted A.\n"


def test_reset_completes_ids(project: Project) -> None:
    """Like the other commands that take tasks."""
    project.run("task", "create", "ABC-1", "s", "t", "--outcome", "o", "--acceptance", "a")
    project.extra_env |= {
        "_RALPH_COMPLETE": "bash_complete",
        "COMP_WORDS": "ralph task reset A",
        "COMP_CWORD": "3",
    }
    assert "ABC-1" in project.run().out


# ---- delete ----


def test_delete_removes_what_is_merged_or_empty(site: Site) -> None:
    """A task without commits leaves neither a worktree nor a branch."""
    fail(site, "true")
    out = site.project.run("task", "delete", "T-1").out
    assert out.startswith(
        f"Deleted T-1.\n  removed: worktree {site.worktree}\n  deleted: branch ralph/T-1 (was "
    )
    assert (worktrees(site), branches(site), out.count("\n")) == ([], [], 3)


def test_delete_keeps_what_is_not_merged_and_says_how_to_delete_it(site: Site) -> None:
    """Commits and uncommitted changes stay on the branch; the command that is printed deletes it."""
    fail(site, COMMITS)
    (site.worktree / "notes.txt").write_text("by hand\n")
    assert site.project.run("task", "delete", "T-1").out == (
        "Deleted T-1.\n"
        f"  removed: worktree {site.worktree}\n"
        "  committed: uncommitted changes, to ralph/T-1\n"
        "  kept: branch ralph/T-1 (2 unmerged commits)\n"
        "  To delete what was kept: git branch -D ralph/T-1\n"
    )
    assert site.project.git("show", "ralph/T-1:notes.txt") == "by hand\n"
    site.project.git("branch", "-D", "ralph/T-1")
    assert (site.tasks.ids(TaskStatus.FAILED), worktrees(site)) == ([], [])


def test_delete_hard_discards_it(site: Site) -> None:
    """Even commits that are not merged; work that the user has merged is never lost."""
    fail(site, COMMITS)
    out = site.project.run("task", "delete", "T-1", "--hard", "--yes").out
    assert "  deleted: branch ralph/T-1 (was " in out
    assert (worktrees(site), branches(site)) == ([], [])
    fail(site, COMMITS, "T-2")
    site.project.git("merge", "-q", "ralph/T-2")
    assert "  deleted: branch ralph/T-2 (was " in site.project.run("task", "delete", "T-2").out
    assert (site.project.path / "notes.txt").exists()


def test_delete_while_other_tasks_are_worked_on(site: Site) -> None:
    """The task is deleted; its worktree and branch have to stay, and the commands that remove them are named."""
    fail(site, COMMITS)
    coder_only(site, f"touch {site.outside}/working; sleep 60")
    site.add(task("T-2"))
    work = site.project.start("work")
    wait_until((site.outside / "working").exists)
    deleted = site.project.run("task", "delete", "T-1")
    assert (deleted.code, deleted.out) == (0, "Deleted T-1.\n")
    assert "ralph prune; git branch -D ralph/T-1" in deleted.err
    assert site.worktree.exists()
    stop(work)


# ---- setup ----


def test_a_changed_setup_runs_again_and_the_same_one_does_not(site: Site) -> None:
    """After a failed task, `ralph work` prepares its existing worktree with the new command, once."""
    count = site.outside / "setups"
    (site.project.path / ".gitignore").write_text("__pycache__/\n.ralph/\nneeded\n")
    site.project.git("commit", "-qam", "Ignore it")
    check = replace(external("test -f needed"), max_iterations=1)
    coder_only(site, "echo x >> notes.txt; promise CODED", ralph={"setup": f"echo one >> {count}"})
    site.add(task(coder=check))
    assert (site.work().code, site.work("--task", "T-1").code) == (1, 1)
    assert count.read_text() == "one\n" * 3, "in the worktree, and in the copy for each claim"
    coder_only(site, "promise CODED", ralph={"setup": f"echo two >> {count}; false"})
    for _ in range(2):
        failed = site.work("--task", "T-1")
        assert failed.code == 2 and "ralph.setup failed in" in failed.err
    assert count.read_text() == "one\n" * 3 + "two\n" * 2, "a setup that failed is repeated"
    coder_only(site, "promise CODED", ralph={"setup": f"echo three >> {count}; touch needed"})
    assert site.work("--task", "T-1").code == 0
    assert count.read_text() == "one\n" * 3 + "two\n" * 2 + "three\n" * 3, "worktree, copy and merge"
