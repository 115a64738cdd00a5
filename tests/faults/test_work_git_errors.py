"""Git fails once anywhere in `ralph work`: nothing is taken for an answer, and the next call finishes the task."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from conftest import Project, some, some_rows
from faults.test_work_faults import moved_base, new_site
from faults.work_fault_support import (
    FINDS_RALPH,
    GIT,
    assert_clean,
    assert_stopped,
    coder_only,
    filtered,
    is_sprung,
    trap,
)
from work_support import FIXES, Site, make_site, task

DEEDS = {
    "fails": "echo 'fatal: odd' >&2; exit 128",
    "is killed before": "kill -9 $$",
    "is killed after": f'{GIT} "$@"; kill -9 $$',
}

WRITING = (
    *("merge --no-ff", "merge --ff-only", "worktree add", "update-ref", "update-index", "read-tree"),
    *("commit", "commit-tree", "write-tree"),
)
READING = (
    *("status", "symbolic-ref", "merge-base", "worktree list", "rev-parse", "for-each-ref", "ls-tree"),
    *("ls-files", "diff-tree", "diff", "log", "var", "config"),
)
"""Commands that are repeated if they are killed, so that it is enough if they fail."""

MOST_CALLS = 12


@pytest.mark.parametrize(
    ("command", "deed"),
    some_rows([*product(WRITING, DEEDS), *product(READING, ["fails"]), ("status", "is killed before")], 1),
)
def test_a_git_that_fails_once(project: Project, command: str, deed: str) -> None:
    """Whichever call of a command fails, a task is never done without its work, and then it is done."""
    for number in range(1, MOST_CALLS + 1):
        site = new_site(project, f"trial-{number}")
        if not _failed_once(site, command, deed, number):
            assert number > 1, f"git {command} is not used"
            return


def _failed_once(site: Site, command: str, deed: str, number: int) -> bool:
    """Work with a git that fails at one call of a command; returns whether there was one."""
    coder_only(site, f"{FIXES}; {moved_base(site)}; echo new > new.txt; promise CODED")
    site.add(task())
    trap(site, f"'{command}' | '{command} '*", DEEDS[deed], nth=number)
    first = site.work()
    if not is_sprung(site):
        return False
    about = f"call {number} of git {command}: exit {first.code}\n{first.err}"
    if site.state()["status"] == "done":
        assert is_merged(site), about
    again = site.work()
    assert again.code == 0, f"{about}\n{again.err}"
    assert is_merged(site), f"{about}\n{again.err}"
    assert_clean(site)
    return True


def is_merged(site: Site) -> bool:
    files = site.project.git("ls-tree", "-r", "--name-only", "main").split()
    top: Path = site.project.path
    return site.is_fixed() and "new.txt" in files and (top / "new.txt").exists()


# ---- git is killed in the middle ----

TEXTS = [f"{name}.txt" for name in "abcd"]
KILLS_GIT = f"{FINDS_RALPH} grep -q merge /proc/${{gits##* }}/cmdline && {{ kill -9 $gits; sleep 60; }}"
"""For a filter: kills a merge of git, while Ralph lives."""


def deed(site: Site, *, is_lasting: bool) -> str:
    """What kills git, once or again and again."""
    return f"rmdir {site.outside}/sprung; {KILLS_GIT}" if is_lasting else KILLS_GIT


def with_texts(project: Project) -> Site:
    site = make_site(project)
    for name in TEXTS:
        (project.path / name).write_text("old\n")
    return site


def texts(site: Site) -> set[str]:
    return {site.project.git("show", f"main:{name}") for name in TEXTS}


@pytest.mark.parametrize("is_lasting", some([False, True], 1))
def test_a_fast_forward_that_is_cut_off(project: Project, is_lasting: bool) -> None:
    """It is tried again; if that does not help, the user's checkout is as it was, and the next call merges the task."""
    site = with_texts(project)
    coder_only(site, f"{FIXES}; for f in {' '.join(TEXTS)}; do echo new > $f; done; promise CODED")
    site.add(task())
    filtered(site, "*/project/c.txt", deed(site, is_lasting=is_lasting))
    result = site.work()
    if is_lasting:
        assert_stopped(result, 2, "git merge --ff-only: killed by signal 9", "To continue: ralph work")
        assert site.project.git("status", "--porcelain") == ""
        (site.outside / "sprung").mkdir()
        result = site.work()
    assert is_sprung(site)
    assert result.code == 0, result.err
    assert texts(site) == {"new\n"}
    assert_clean(site)


@pytest.mark.parametrize("is_lasting", some([False, True], 1))
def test_a_base_that_was_half_merged_into_a_task(project: Project, is_lasting: bool) -> None:
    """The merge is repeated: files that git had not written yet do not count as the task's own."""
    site = with_texts(project)
    base = f"for f in {' '.join(TEXTS)}; do echo new > $f; done; echo base > notes; git add -A; git commit -qm Base"
    moves = f"echo mine > notes; (cd {project.path}; {base}); rmdir {site.outside}/sprung"
    coder_only(site, f"{FIXES}; [ $n = 0 ] && {{ {moves}; }} || echo all > notes; promise CODED")
    site.add(task())
    filtered(site, "*/project-????????/T-1/c.txt", deed(site, is_lasting=is_lasting))
    (site.outside / "sprung").mkdir()  # the trap is set when the base has moved
    result = site.work()
    if is_lasting:
        assert_stopped(result, 2, "killed by signal 9", "To continue: ralph work")
        (site.outside / "sprung").mkdir()
        result = site.work()
    assert is_sprung(site)
    assert result.code == 0, result.err
    assert texts(site) == {"new\n"} and site.project.git("show", "main:notes") == "all\n"
    assert_clean(site)
