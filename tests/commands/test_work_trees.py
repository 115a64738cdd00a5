"""What `ralph work` does to working trees, the user's and its own, and which tree it proves."""

from __future__ import annotations

import subprocess

import pytest

from conftest import Project, some, wait_until
from faults.work_fault_support import assert_clean, coder_only, script
from ralph.core.task_model import TaskStatus
from scm.overwrite_cases import CASES, FREE, IGNORE
from scm.test_overwrites import contents, shell
from work_support import FIXES, Site, external, make_site, task


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def ignoring(site: Site) -> None:
    ignored = site.project.path / ".gitignore"
    ignored.write_text(IGNORE + ignored.read_text())
    site.project.git("commit", "-qam", "Ignore")


# ---- files of the user that git does not track ----


@pytest.mark.parametrize("name", some(CASES, 3))
def test_files_of_the_user_hold_the_merge(site: Site, name: str) -> None:
    """They are left as they are and named with what to do; when they are moved away, the task is merged."""
    case, top = CASES[name], site.project.path
    ignoring(site)
    coder_only(site, f"{FIXES}; {case.theirs}; git commit -qam theirs; promise CODED")
    site.add(task())
    shell(top, case.mine)
    before = contents(top)
    result = site.work()
    assert (result.code, site.state()["status"]) == (1, "blocked"), result.err
    assert contents(top) == before
    reason = site.state()["reason"]
    assert reason.startswith(f"The merge would replace files in {top} that git does not track: ")
    assert (
        "Move them away. After that, run `git merge --ff-only ralph/T-1` on main, or `ralph work`" in reason
    )
    for path in case.found:
        (top / path.rstrip("/")).rename(site.outside / "moved")
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed() and len(site.prompts("T-1.coder")) == 1
    assert_clean(site)


@pytest.mark.parametrize("name", some(FREE, 2))
def test_files_that_are_not_in_the_way(site: Site, name: str) -> None:
    """The task is merged, and they are as they were."""
    ignoring(site)
    coder_only(site, f"{FIXES}; {FREE[name].theirs}; git commit -qam theirs; promise CODED")
    site.add(task())
    shell(site.project.path, FREE[name].mine)
    before = contents(site.project.path)
    result = site.work()
    assert result.code == 0, result.err
    after = contents(site.project.path)
    assert {path: after[path] for path in before if path != "calc.py"} == {
        path: data for path, data in before.items() if path != "calc.py"
    }
    assert_clean(site)


def test_a_link_that_setup_makes(site: Site) -> None:
    """A link to an environment, committed by an agent, does not replace the environment of the user."""
    ignored = site.project.path / ".gitignore"
    ignored.write_text(f"/.venv/\n{ignored.read_text()}")
    site.project.git("commit", "-qam", "Ignore")
    python = site.project.path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("mine\n")
    coder_only(site, f"{FIXES}; git add -f .venv; promise CODED", ralph={"setup": "ln -sfn /nowhere .venv"})
    site.add(task())
    result = site.work()
    assert result.code == 1 and ".venv/" in site.state()["reason"], result.err
    assert python.read_text() == "mine\n"


def test_a_base_that_brings_what_was_untracked(site: Site) -> None:
    """In a task's own worktree, files that setup made give way to those of the base, and no link is followed."""
    far = site.outside / "far"
    far.mkdir()
    (far / "x").write_text("far\n")
    base = "mkdir -p node_modules && echo x > node_modules/x && echo both >> notes && git add -A . && git commit -qm Base"
    moves = f"[ $n != 0 ] || (cd {site.project.path} && {base}); [ $n != 0 ] || echo mine >> notes"
    coder_only(
        site,
        f"{moves}; [ $n = 0 ] || echo all > notes; {FIXES}; promise CODED",
        ralph={"setup": f"[ -e node_modules ] || ln -s {far} node_modules"},
    )
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert (far / "x").read_text() == "far\n"
    assert site.project.git("show", "main:node_modules/x", "main:notes") == "x\nall\n"


def test_an_interrupted_iteration_leaves_nothing_in_the_way(site: Site) -> None:
    """A file that the agent replaced by a directory with ignored files is back before the iteration is repeated."""
    ignoring(site)
    half = f"rm check.py; mkdir check.py; touch check.py/x.log {site.outside}/started; sleep 60"
    coder_only(site, f"[ $n = 0 ] && {{ {half}; }}\n{FIXES}; promise CODED")
    site.add(task())
    ralph = site.project.start("work")
    wait_until((site.outside / "started").exists)
    ralph.kill()
    ralph.communicate()
    result = site.work()
    assert result.code == 0, result.err
    assert "blocked by" not in result.err and site.is_fixed()
    assert len(site.prompts("T-1.coder")) == 2


# ---- the commit is what was checked ----

MERGING = "*/.merge/*"
"""A shell pattern for worktrees of merges."""


def locked(site: Site, setup: str, check: str) -> None:
    """A project with a lock file, a setup command, and a check."""
    (site.project.path / "lock").write_text("old\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "Lock")
    coder_only(site, f"{FIXES}; git checkout -q lock; promise CODED", ralph={"setup": setup})
    site.add(task(coder=external(check)))


def test_what_setup_changes_is_not_proved(site: Site) -> None:
    """Tracked files are restored before the checks of a merge, so a check that needs the change is red."""
    locked(
        site,
        f"case $PWD in {MERGING}) echo new > lock; rm check.py; git update-index --assume-unchanged lock;; esac",
        f"cp lock {site.outside}/seen",
    )
    result = site.work()
    assert result.code == 0, result.err
    assert "Changed before the checks of the merge, and restored: check.py, lock" in result.err
    assert (site.outside / "seen").read_text() == "old\n"
    assert site.project.git("show", "main:lock") == "old\n"


def test_a_commit_that_setup_makes_is_not_proved(site: Site) -> None:
    """The checks look at the commit that is merged, wherever setup has moved HEAD."""
    locked(
        site,
        f"case $PWD in {MERGING}) echo new > lock; git -c user.name=a -c user.email=a@b commit -qam setup;; esac",
        f"cp lock {site.outside}/seen",
    )
    result = site.work()
    assert result.code == 0, result.err
    assert (site.outside / "seen").read_text() == "old\n"
    assert site.project.git("show", "main:lock") == "old\n"


def test_files_that_cannot_be_restored_hold_the_merge(site: Site) -> None:
    """A filter that changes a file with every look: no check can look at what is merged."""
    clean = script(site, "clean", f"cat; [ ! -e {site.outside}/odd ] || date +%N")
    site.project.git("config", "filter.odd.clean", clean)
    (site.project.path / ".gitattributes").write_text("lock filter=odd\n")
    locked(site, f"touch {site.outside}/odd; echo new > lock", "true")
    coder_only(
        site,
        f"rm -f {site.outside}/odd; {FIXES}; git checkout lock; promise CODED",
        ralph={"setup": f"case $PWD in {MERGING}) touch {site.outside}/odd; echo new > lock;; esac"},
    )
    result = site.work()
    assert (result.code, site.state()["status"]) == (1, "blocked"), result.err
    assert "still differ from the commit" in site.state()["reason"] and ": lock." in site.state()["reason"]
    assert not site.is_fixed()


# ---- work that was not committed ----


def test_work_that_an_earlier_ralph_left_uncommitted(site: Site) -> None:
    """A task was proved, but its work not committed: it is committed, proved again and merged."""
    coder_only(site, f"{FIXES}; echo new > new; promise CODED")
    site.add(task())
    (site.project.path / "calc.py").write_text("# mine\n")
    assert site.work().code == 1
    site.project.git("checkout", "--", "calc.py")
    for words in (("reset", "-q", "--soft", "main"), ("reset", "-q")):
        subprocess.run(["git", *words], cwd=site.worktree, check=True)
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed() and site.project.git("show", "main:new") == "new\n"
    assert site.tasks.find("T-1").status is TaskStatus.DONE
    assert "has to be proved again" in site.prompts("T-1.coder")[1]
    assert_clean(site)
