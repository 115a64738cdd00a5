"""Controlling many parallel tasks: cancels, pauses, additions, signals, agent limits, budgets, several attempts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from commands.test_agent_streams import echo, result, said
from conftest import Project, Result, wait_until
from faults.fault_support import finish, killed, lines, traces
from faults.work_fault_support import assert_clean, assert_intact, coder_only, roles_of, trap, worktrees
from ralph.core.task_model import TaskStatus
from work_support import FIXES, HONEST, Site, external, make_site, task


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


WRITES = f"{FIXES}; echo $RALPH_TASK_ID > $RALPH_TASK_ID.txt; promise CODED"


@contextmanager
def working(site: Site, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`ralph work`, which does not outlive the test."""
    ralph = site.project.start("work", *arguments)
    try:
        yield ralph
    finally:
        if ralph.poll() is None:
            killed(ralph)


def status(site: Site, id: str) -> TaskStatus:
    return site.tasks.find(id).status


def wait_for_file(site: Site, name: str) -> None:
    wait_until((site.outside / name).exists, 30)


def waits(site: Site, name: str) -> str:
    """Shell: report that we are here, and wait for a file."""
    return f"touch {site.outside}/{name}.here; until [ -e {site.outside}/{name} ]; do sleep 0.05; done"


# ---- cancels ----


def test_a_cancelled_task_frees_its_slot(site: Site) -> None:
    """With both slots busy forever, cancelling one task lets the third one start, and stops only that task."""
    coder_only(site, f"case $RALPH_TASK_ID in T-1) sleep 60;; T-2) {waits(site, 'go')};; esac\n{WRITES}")
    site.add(task("T-1"), task("T-2"), task("T-3"))
    with working(site, "-j", "2") as ralph:
        wait_for_file(site, "go.here")
        wait_until(lambda: site.prompts("T-1.coder"))
        assert site.prompts("T-3.coder") == []
        assert site.project.run("cancel", "T-1").code == 0
        wait_until(lambda: status(site, "T-3") is TaskStatus.DONE, 30)
        (site.outside / "go").touch()
        assert finish(ralph).code == 1
    assert [status(site, id).value for id in ("T-1", "T-2", "T-3")] == ["cancelled", "done", "done"]
    assert_intact(site)
    assert worktrees(site) == ["T-1"]


def test_a_task_is_cancelled_before_its_run_has_started(site: Site) -> None:
    """A cancel while the worktree is created stops only that task; the others continue."""
    coder_only(site, WRITES)
    site.add(task("T-1", priority=1), task("T-2", priority=2))
    trap(site, "'worktree add '*/T-1*", waits(site, "go"))
    with working(site) as ralph:
        wait_for_file(site, "go.here")
        assert site.project.run("cancel", "T-1").code == 0
        (site.outside / "go").touch()
        ended = finish(ralph)
    assert ended.code == 1, ended.err
    assert [status(site, id).value for id in ("T-1", "T-2")] == ["cancelled", "done"]
    assert site.prompts("T-1.coder") == []


@pytest.mark.slow
def test_a_task_is_cancelled_between_two_roles(site: Site) -> None:
    """A cancel between the end of one role and the start of the next is not lost."""
    site.agents(HONEST)
    site.add(task())
    trap(
        site,
        "'symbolic-ref -q HEAD'",
        waits(site, "go"),
        armed_by="'update-ref --no-deref refs/ralph/'*/2*",
    )
    with working(site) as ralph:
        wait_for_file(site, "go.here")
        assert site.project.run("cancel", "T-1").code == 0
        (site.outside / "go").touch()
        assert finish(ralph).code == 1
    assert status(site, "T-1") is TaskStatus.CANCELLED
    assert site.prompts("T-1.tester") == [] and not site.is_fixed()


# ---- additions ----


@pytest.mark.slow
def test_tasks_that_are_added_are_picked_up(site: Site) -> None:
    """New tasks start while others run, in the order of their dependencies; one that cannot is named."""
    coder_only(site, f"[ $RALPH_TASK_ID = T-1 ] && {{ {waits(site, 'go')}; }}\n{WRITES}")
    site.add(task("T-1"))
    with working(site, "-j", "2") as ralph:
        wait_for_file(site, "go.here")
        site.add(
            task("T-2", priority=-1, dependencies=("T-3",)), task("T-3"), task("T-4", dependencies=("T-9",))
        )
        wait_until(lambda: status(site, "T-2") is TaskStatus.DONE, 30)
        (site.outside / "go").touch()
        ended = finish(ralph)
    assert ended.code == 0, ended.err
    assert ended.err.count("Skipping T-4: T-4 depends on T-9, which is not on the board.") == 1
    assert [status(site, f"T-{n}").value for n in (1, 2, 3, 4)] == ["done", "done", "done", "todo"]
    assert_clean(site)


@pytest.mark.parametrize(
    ("dependencies", "words"),
    [
        ((("T-2",), ("T-1",)), "T-2 → T-1 → T-2"),
        ((("T-9",), ()), "T-1 depends on T-9, which is not on the board"),
    ],
)
def test_tasks_that_have_no_order(site: Site, dependencies: tuple[tuple[str, ...], ...], words: str) -> None:
    """A cycle or an unknown dependency is one error that names it."""
    site.add(*(task(f"T-{n}", dependencies=d) for n, d in enumerate(dependencies, 1)))
    ended = site.work()
    assert ended.code == 2 and f"The tasks cannot be ordered: {words}." in ended.err, ended.err


# ---- pauses ----


@pytest.mark.slow
def test_a_paused_task_does_not_block_others(site: Site) -> None:
    """The run of one task is paused and resumed later; meanwhile the other task finishes."""
    coder_only(
        site,
        f"[ $RALPH_TASK_ID.$n = T-1.0 ] && {{ {waits(site, 'go')}; exit; }}\n"
        f"[ $RALPH_TASK_ID = T-2 ] && {{ {waits(site, 'two')}; }}\n{WRITES}",
    )
    site.add(task("T-1"), task("T-2"))
    with working(site, "-j", "2") as ralph:
        wait_for_file(site, "go.here")
        wait_for_file(site, "two.here")
        assert site.project.run("pause", "T-1").code == 0
        (site.outside / "go").touch()
        (site.outside / "two").touch()
        wait_until(lambda: status(site, "T-2") is TaskStatus.DONE, 30)
        wait_until(lambda: site.state("T-1")["runs"][0]["state"] == "paused", 30)
        wait_until(lambda: site.project.run("resume", "T-1").code == 0, 30)
        ended = finish(ralph)
    assert ended.code == 0, ended.err
    assert roles_of(site, "T-1") == ["coder"]


# ---- signals ----


def test_two_signals_stop_everything_at_once(site: Site) -> None:
    """Three agents that ignore TERM, and their children, are gone with Ralph; later the work can be resumed."""
    left = traces(Project(site.outside, site.project.home))
    stays = (
        f"trap '' TERM INT; {left.me()}; setsid sh -c 'trap \"\" TERM; {left.me()}; exec sleep 60' & sleep 60"
    )
    coder_only(site, f"[ $n = 0 ] && {{ {stays}; }}\n{WRITES}")
    site.add(task("T-1"), task("T-2"), task("T-3"))
    with working(site, "-j", "3") as ralph:
        wait_until(lambda: left.count == 6, 30)
        ralph.send_signal(signal.SIGINT)
        ralph.send_signal(signal.SIGTERM)
        assert finish(ralph, 20).code == 130
    assert left.alive() == []
    assert site.history("coder") == [], "an interrupted iteration neither promised nor broke anything"
    assert site.work("-j", "3").code == 0
    assert_clean(site)


def test_two_signals_stop_a_git_that_hangs(site: Site) -> None:
    """A hook of the user that never exits does not block Ralph."""
    hook = site.project.path / ".git/hooks/post-checkout"
    hook.write_text(
        f"#!/bin/sh\n[ -e {site.outside}/fast ] || {{ touch {site.outside}/hook.here; sleep 60; }}\n"
    )
    hook.chmod(0o755)
    coder_only(site, WRITES)
    site.add(task())
    with working(site) as ralph:
        wait_for_file(site, "hook.here")
        ralph.send_signal(signal.SIGINT)
        ralph.send_signal(signal.SIGTERM)
        assert finish(ralph, 30).code == 130
    (site.outside / "fast").touch()
    assert site.work().code == 0
    assert_clean(site)


@pytest.mark.slow
def test_two_signals_while_git_works_for_a_check(site: Site) -> None:
    """It is an interruption, not a fault: the same run continues with the same iteration, and is reported correctly."""
    coder_only(site, WRITES)
    site.add(task())
    trap(site, "'diff-tree '*", waits(site, "go"))
    with working(site) as ralph:
        wait_for_file(site, "go.here")
        ralph.send_signal(signal.SIGINT)
        ralph.send_signal(signal.SIGTERM)
        assert finish(ralph, 30).code == 130
    assert [run["state"] for run in site.state()["runs"]] == ["interrupted"]
    again = site.work("-j", "2")
    assert again.code == 0, again.err
    assert roles_of(site) == ["coder"] and len(site.prompts("T-1.coder")) == 1
    assert " todo " not in again.err


# ---- agents ----


@pytest.mark.slow
def test_a_limit_of_one_agent_holds_only_its_users(site: Site) -> None:
    """The coder's agent is limited for an hour; a task reviewed by another agent continues and is merged."""
    limited = "echo 'rate limit exceeded, retry after 3600 seconds' >&2; exit 1"
    body = f"[ $RALPH_TASK_ID = T-1 ] && {{ touch {site.outside}/limited; {limited}; }}\n{WRITES}"
    reviews = site.project.script(
        "reviews.sh",
        f"until [ -e {site.outside}/limited ]; do sleep 0.05; done; echo '<promise>REVIEW_PASSED</promise>'",
    )
    site.project.git("config", "core.excludesFile", str(site.outside / "ignored"))
    (site.outside / "ignored").write_text("reviews.sh\n")
    off = {"tester": {"enabled": False}, "qa": {"enabled": False}}
    reviewer = {"agent": reviews, "verification": "string_match"}
    site.agents(body, ralph={"agents": off | {"reviewer": reviewer}})
    site.add(task("T-1"), task("T-2"))
    with working(site, "-j", "2") as ralph:
        wait_until(lambda: status(site, "T-2") is TaskStatus.DONE, 60)
        assert status(site, "T-1") is TaskStatus.IMPLEMENTING
        ralph.send_signal(signal.SIGINT)
        assert finish(ralph).code == 130
    assert roles_of(site, "T-1") == ["coder"]


@pytest.mark.slow
def test_an_agent_never_exceeds_its_parallel_limit(site: Site) -> None:
    """With one at a time in `maxPerAgent`, four slots do not help."""
    alone = f"mkdir {site.outside}/busy || echo two >> {site.outside}/overlaps; sleep 0.2; rmdir {site.outside}/busy"
    coder_only(site, f"{alone}\n{WRITES}", ralph={"maxPerAgent": {str(site.outside / "agent.sh"): 1}})
    site.add(*(task(f"T-{n}") for n in range(1, 5)))
    ended = site.work("-j", "4")
    assert ended.code == 0, ended.err
    assert lines(site.outside / "overlaps") == []


# ---- budgets ----


def dear(site: Site, cost: float, body: str = WRITES, **settings: Any) -> None:
    """Every call of the coder has this cost, as reported by Claude Code."""
    stream = echo(said("working <promise>CODED</promise>").replace("working ", "working\\n"), result(cost))
    coder_only(site, f"{body.replace('promise CODED', 'true')}\n{stream}", **settings)
    path = site.project.path / ".ralph/settings.json"
    path.write_text(path.read_text().replace('agent.sh"}', 'agent.sh", "type": "claude"}', 1))


@pytest.mark.slow
def test_the_total_budget(site: Site) -> None:
    """When it is used up, the work stops at a limit and no task fails; with more money the same runs continue."""
    dear(site, 0.3, f"[ $n = 0 ] || {{ {FIXES}; }}; echo $n > $RALPH_TASK_ID.txt", maxCostUsd=0.5)
    site.add(task("T-1"), task("T-2"))
    ended = site.work("-j", "2")
    assert ended.code == 1 and "the cost budget of `ralph work` is used up" in ended.err, ended.err
    assert {status(site, id) for id in ("T-1", "T-2")} <= {TaskStatus.IMPLEMENTING, TaskStatus.TODO}
    again = site.work("-j", "2", "--max-cost-usd", "9")
    assert again.code == 0, again.err
    assert roles_of(site, "T-1") == roles_of(site, "T-2") == ["coder"]


@pytest.mark.slow
def test_the_budget_of_one_task(site: Site) -> None:
    """A task that costs too much fails with that reason; the others continue."""
    dear(
        site,
        0.4,
        f"[ $RALPH_TASK_ID = T-1 ] || {{ {FIXES}; }}; echo $n > $RALPH_TASK_ID.txt",
        ralph={"maxTaskCostUsd": 1.0},
    )
    site.add(task("T-1"), task("T-2"))
    ended = site.work()
    assert ended.code == 1, ended.err
    assert [status(site, id).value for id in ("T-1", "T-2")] == ["failed", "done"]
    assert "about $0.40" in site.state("T-1")["reason"]
    assert site.state("T-1")["cost"] == pytest.approx(0.8)
    assert site.project.git("show", "ralph/T-1:T-1.txt") == "1\n"


# ---- several attempts ----

ATTEMPT = "case $PWD in *+2) a=2;; *+3) a=3;; *) a=1;; esac"


def three(site: Site, body: str, **criteria: Any) -> None:
    """A task with three attempts, each of which knows its number as $a."""
    coder_only(site, f"{ATTEMPT}; touch {site.outside}/began.$a\n{body}")
    site.add(task(attempts=3, coder=replace(external(), **criteria)))


def assert_taken(site: Site, ended: Result, attempt: int) -> None:
    assert ended.code == 0, ended.err
    assert site.project.git("show", "main:winner.txt") == f"{attempt}\n"
    assert_clean(site)
    assert not list(site.worktree.parent.glob("T-1*"))


WINS = f"{FIXES}; echo $a > winner.txt; promise CODED"


@pytest.mark.slow
def test_the_first_verified_attempt_is_taken(site: Site) -> None:
    """Three work in parallel; when the second is verified the others are stopped, and all worktrees are removed."""
    left = traces(Project(site.outside, site.project.home))
    together = f"until [ -e {site.outside}/began.1 ] && [ -e {site.outside}/began.3 ]; do sleep 0.05; done"
    three(site, f"[ $a = 2 ] && {together} || {{ {left.me()}; echo $a > lost.txt; sleep 60; }}\n{WINS}")
    assert_taken(site, site.work("-j", "3"), 2)
    assert left.count == 2 and left.alive() == []
    assert "lost.txt" not in site.project.git("ls-tree", "--name-only", "main")


@pytest.mark.slow
def test_one_attempt_after_the_other(site: Site) -> None:
    """With one slot the next attempt starts only after the previous one failed, from the same base."""
    moves = f"(cd {site.project.path} && git commit -q --allow-empty -m Mine)"
    three(
        site,
        f"git rev-parse HEAD >> {site.outside}/heads; [ $a = 1 ] && {{ {moves}; exit; }}\n{WINS}",
        max_iterations=1,
    )
    assert_taken(site, site.work(), 2)
    assert len(set(lines(site.outside / "heads"))) == 1
    assert not (site.outside / "began.3").exists()


@pytest.mark.slow
def test_attempts_that_all_fail(site: Site) -> None:
    """The task fails with its last attempt; the work of each stays on a branch."""
    three(site, "echo $a > try.txt; promise CODED", max_iterations=1)
    assert site.work("-j", "3").code == 1
    assert status(site, "T-1") is TaskStatus.FAILED
    tries = [
        site.project.git("show", f"{branch}:try.txt")
        for branch in ("ralph/T-1", "ralph/T-1+2", "ralph/T-1+3")
    ]
    assert tries == ["1\n", "2\n", "3\n"]


@pytest.mark.slow
def test_attempts_after_a_kill(site: Site) -> None:
    """The failed attempt is not repeated, the others continue with their runs."""
    waits_forever = f"[ -e {site.outside}/killed ] || sleep 60"
    three(site, f"[ $a = 2 ] && {{ promise CODED; exit; }}; {waits_forever}\n{WINS}", max_iterations=1)
    with working(site, "-j", "3") as ralph:
        wait_until(lambda: len(list(site.outside.glob("began.*"))) == 3, 30)
        wait_until(lambda: [run for run in site.state()["runs"] if run["state"] == "limit"], 30)
        killed(ralph)
    (site.outside / "killed").touch()
    ended = site.work("-j", "3")
    assert ended.code == 0, ended.err
    assert roles_of(site) == ["coder"] * 3
    assert_clean(site)
