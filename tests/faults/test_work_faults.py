"""G1: `ralph work` is killed with -9 at every step of worktrees and merges; no manual repair is needed."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Project, some, wait_until
from faults.fault_support import REPEATED, RUNS, assert_sound, finish, killed, seeded, traces
from faults.work_fault_support import (
    GIT,
    KILL_AFTER,
    KILL_BEFORE,
    KILL_HARD,
    assert_clean,
    assert_green,
    assert_intact,
    coder_only,
    filtered,
    killed_work,
    roles_of,
    trap,
    worktrees,
)
from ralph.core.task_model import CompletionCriteria, Task
from ralph.store.home import Home
from work_support import CHECK, FIXES, Site, external, make_site, task


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def moved_base(site: Site) -> str:
    """A snippet that commits to the user's branch once, while a task is running, with a git that no trap kills."""
    commit = f"echo mine > mine.txt && {GIT} add mine.txt && {GIT} commit -qm Mine"
    return f"[ -e {site.project.path}/mine.txt ] || (cd {site.project.path} && {commit})"


def assert_merged_once(site: Site, *before: str) -> None:
    """The task is done in one run, the user's branch has its work once, and nothing is left over."""
    assert site.is_fixed()
    assert (site.state()["status"], roles_of(site)) == ("done", ["coder"])
    subjects = site.project.git("log", "--format=%s", "main").splitlines()
    expected = ["First", "Merge T-1: Make add add", "Mine", "T-1: Make add add (coder)", *before]
    assert sorted(subjects) == sorted(expected)
    assert site.state()["merged"] == site.project.git("rev-parse", "main").strip()
    assert_clean(site)
    assert_green(site, f"grep -q 'a - b' calc.py || {CHECK}")


# ---- between two git commands ----

ADD, ADD_MERGE, MERGE = "'worktree add -q -b '*", "'worktree add -q --detach '*", "'merge --no-ff '*"
FORWARD, CLEAR = "'merge --ff-only '*", "'update-ref --stdin '*"
STOP, SETTLE = "'update-ref --no-deref refs/ralph/'*/2*", "'symbolic-ref -q HEAD'"

MOMENTS = {
    "before the worktree": (ADD, KILL_BEFORE, ""),
    "after the worktree": (ADD, KILL_AFTER, ""),
    "at the end of the proved run": (STOP, KILL_AFTER, ""),
    "between the proved run and its note": (SETTLE, KILL_BEFORE, STOP),
    "before the worktree of the merge": (ADD_MERGE, KILL_BEFORE, ""),
    "after the worktree of the merge": (ADD_MERGE, KILL_AFTER, ""),
    "before the merge": (MERGE, KILL_BEFORE, ""),
    "between the merge and its proof": (MERGE, KILL_AFTER, ""),
    "between the proof and the fast-forward": (FORWARD, KILL_BEFORE, ""),
    "between the fast-forward and its note": (FORWARD, KILL_AFTER, ""),
    "before the branch is deleted": (CLEAR, KILL_BEFORE, ""),
    "after the branch was deleted": (CLEAR, KILL_AFTER, ""),
}


@pytest.mark.parametrize("moment", some(MOMENTS, 2))
def test_g1_killed_between_two_steps(site: Site, moment: str) -> None:
    """Ralph is killed there; called again, it merges the task once, without extra runs."""
    coder_only(site, f"{FIXES}; {moved_base(site)}; promise CODED")
    site.add(task())
    trap(site, *MOMENTS[moment])
    killed_work(site)
    result = site.work()
    assert result.code == 0, result.err
    assert_merged_once(site)
    assert len(site.prompts("T-1.coder")) == 1


COMMANDS = 80
"""The approximate number of git commands for one task."""


@REPEATED
@pytest.mark.slow
def test_g1_killed_at_any_git_command(project: Project) -> None:
    """Whichever git command Ralph is killed at, before or after it, the task is merged once."""
    chance = seeded()
    for number in range(RUNS):
        _killed_at_some_command(new_site(project, f"trial-{number}"), chance)


def new_site(project: Project, name: str) -> Site:
    """Make one of several sites for the same test."""
    path, state = project.path / name / "project", project.path / name / "state"
    path.mkdir(parents=True)
    state.mkdir()
    return make_site(Project(path, Home(state)))


def _killed_at_some_command(site: Site, chance: random.Random) -> None:
    coder_only(site, f"{FIXES}; {moved_base(site)}; promise CODED")
    site.add(task())
    number, deed = chance.randint(1, COMMANDS), chance.choice([KILL_BEFORE, KILL_AFTER])
    trap(site, "*", deed, nth=number)
    first = site.work()
    print(f"command {number} of {len((site.outside / 'met').read_text().splitlines())}: {first.code}")
    (site.outside / "sprung").mkdir(exist_ok=True)
    result = site.work()
    assert result.code == 0, result.err
    assert_merged_once(site)


# ---- in the middle of one ----

PLACES = {"the worktree": "*/T-1", "the merge": "*/.merge/*", "the user's checkout": "*/project"}


@pytest.mark.parametrize("place", some(PLACES, 1))
def test_g1_killed_while_git_writes_files(site: Site, place: str) -> None:
    """Git is killed with only some files written; the next Ralph leaves nothing half-done."""
    names = [f"{name}.txt" for name in "abcd"]
    coder_only(
        site,
        f"{FIXES}; for f in {' '.join(names)}; do echo new > $f; done; {moved_base(site)}; promise CODED",
    )
    site.add(task())
    for name in names:
        (site.project.path / name).write_text("old\n")
    filtered(site, f"{PLACES[place]}/c.txt", KILL_HARD)
    killed_work(site)
    result = site.work()
    assert result.code == 0, result.err
    assert {(site.project.path / name).read_text() for name in names} == {"new\n"}
    assert_merged_once(site, "Texts")


# ---- many tasks, at any moment ----

ALL_TRUE = "! grep half *.txt && ! grep '<<<<' *.txt && ! grep -L done *.txt | grep ."
"""Every text is finished, and none contains both sides of a conflict."""

EIGHT_AGENTS = """
{me}
setsid sh -c '{me}; exec sleep 60' &
case $RALPH_ROLE in
reviewer) promise REVIEW_PASSED; exit;;
esac
case $RALPH_TASK_ID in
never) echo half > never.txt; promise CODED; exit;;
first | second) text=shared.txt;;
*) text=$RALPH_TASK_ID.txt;;
esac
if grep -qs '<<<<' $text; then
    echo "first and second, done" > $text
    promise CODED
elif [ ! -e $text ] || grep -qs base $text; then
    echo "half $RALPH_TASK_ID" > $text
else
    sed -i 's/half/done/' $text
    promise CODED
fi
"""
"""Each task starts a text in one iteration and finishes it in the next; each role leaves a process behind."""


def eight_tasks() -> list[Task]:
    """Two that conflict, one that fails when merged, one that never succeeds, and tasks that depend on them."""

    def one(id: str, check: str, *dependencies: str, **more: Any) -> Task:
        reviewed = CompletionCriteria("REVIEW_PASSED", "It is good", "external", {"command": "true"})
        return task(
            id,
            coder=replace(external(check), **more),
            reviewer=reviewed,
            dependencies=dependencies,
            protect=(),
        )

    return [
        one("plain", "grep done plain.txt"),
        one("first", "grep done shared.txt"),
        one("second", "grep done shared.txt"),
        one("after", "grep done after.txt && grep done plain.txt", "plain"),
        one("red", 'grep done red.txt && test "$RALPH_ROLE" != merge'),
        one("never", "grep done never.txt", max_iterations=2),
        one("behind-red", "true", "red"),
        one("behind-never", "true", "never"),
    ]


def worked_on(site: Site) -> dict[str, list[str]]:
    """The roles of each task, in the order of their runs."""
    return {id: roles_of(site, id) for id in ("plain", "first", "second", "after", "red", "never")}


def survive(site: Site, chance: random.Random) -> int:
    """All eight, killed up to four times, then completed. Returns the number of kills."""
    left = traces(Project(site.outside, site.project.home))
    (site.project.path / "shared.txt").write_text("base, done\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "Shared")
    off = {name: {"enabled": False} for name in ("tester", "qa")}
    site.agents(EIGHT_AGENTS.format(me=left.me()), ralph={"agents": off})
    site.add(*eight_tasks())
    kills, most = 0, chance.randint(2, 4)
    while True:
        ralph = site.project.start("work", "-j", "4")
        if kills < most:
            moment = chance.uniform(0.1, 8.0)
            with suppress(subprocess.TimeoutExpired):
                ralph.communicate(timeout=moment)
        if kills < most and ralph.poll() is None:
            kills += 1
            print(f"kill {kills} after {moment:.4f} s")
            killed(ralph)
            wait_until(lambda: not left.alive(), 20)
            assert_sound(site.project.home)
            continue
        result = finish(ralph, 120)
        assert result.code == 1, f"{result.code} {result.err}"
        break
    assert left.alive() == []
    assert_all_eight(site)
    return kills


def assert_all_eight(site: Site) -> None:
    """Each task ended as it must, without extra runs, and all work is where it belongs."""
    ended = {each.id: site.tasks.find(each.id).status.value for each in eight_tasks()}
    assert ended == {
        "plain": "done",
        "first": "done",
        "second": "done",
        "after": "done",
        "red": "blocked",
        "never": "failed",
        "behind-red": "blocked",
        "behind-never": "blocked",
    }
    once, twice = ["coder", "reviewer"], ["coder", "reviewer"] * 2
    found = worked_on(site)
    assert sorted([found.pop("first"), found.pop("second")]) == [once, twice]
    assert found == {"plain": once, "after": once, "red": twice, "never": ["coder"]}
    assert site.project.git("show", "main:shared.txt") == "first and second, done\n"
    assert_green(site, ALL_TRUE)
    brought = site.project.git("log", "--first-parent", "--format=%s", "main").splitlines()[:-2]
    assert sorted(subject.split()[1].rstrip(":") for subject in brought) == [
        "after",
        "first",
        "plain",
        "second",
    ]
    assert_intact(site)
    assert worktrees(site) == ["never", "red"]
    assert site.project.git("show", "ralph/never:never.txt", "ralph/red:red.txt") == "half\ndone red\n"


@REPEATED
@pytest.mark.slow
def test_g1_many_tasks_survive_being_killed_at_any_moment(project: Project) -> None:
    """Whenever `ralph work -j 4` is killed: nothing is lost, merged twice, repeated or left running."""
    chance = seeded()
    kills = trial = 0
    while kills < RUNS:
        trial += 1
        kills += survive(new_site(project, f"trial-{trial}"), chance)
