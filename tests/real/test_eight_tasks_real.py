"""Eight tasks, four at once, by two kinds of real agents; after a kill -9 nothing is lost or repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import RALPH, Project, wait_until
from faults.fault_support import Watched
from faults.work_fault_support import assert_green, assert_intact
from ralph.modelserver.server import ModelServer
from real.real_support import REAL, Lonely
from real.work_real_support import (
    TIMEOUT,
    asked_by,
    edit,
    imported,
    only,
    roles,
    say,
    told,
    working,
    write,
)
from work_support import Site

pytestmark = REAL

# ---- the project and its tasks ----

CHECK = "python3 -B check.py"
FILES = {
    "check.py": '''"""Run the check of every module; modules named as arguments must exist."""

import importlib
import pathlib
import sys

found = {path.stem for path in pathlib.Path().glob("*.py")} - {"check"}
for name in sorted(found | set(sys.argv[1:])):
    importlib.import_module(name).check()
''',
    "prices.py": """PRICES = {"tea": 3}


def check():
    assert PRICES["tea"] == 3
""",
    "tax.py": """def tax(amount):
    return amount / 5


def check():
    assert callable(tax)
""",
    ".gitignore": ".ralph/\n",
}

TASK = """
- id: {id}
  spec_id: shop
  title: Write {id}
  dependencies: [{after}]
  protect: [check.py]
  completion:
    outcome: The module of {id} is there
    acceptance_criteria: [Its check is green]
    coder:
      promise: WRITTEN
      verification_method: external
      verification_config:
        command: {command}
      max_iterations: 2
    reviewer:
      promise: READ
      verification_method: external
      verification_config:
        command: python3 -B check.py
"""
TASKS = {
    "first": {"command": "grep milk prices.py", "after": ""},
    "second": {"command": "grep bread prices.py", "after": ""},
    "red": {"command": f"{CHECK} bill", "after": ""},
    "never": {"command": f"{CHECK} never", "after": ""},
    "plain": {"command": "grep rate tax.py", "after": ""},
    "after": {"command": f"{CHECK} duty", "after": "plain"},
    "behind-red": {"command": f"{CHECK} receipt", "after": "red"},
    "behind-never": {"command": f"{CHECK} nothing", "after": "never"},
}
"""How each task is verified, and its dependency."""

DONE = ("first", "second", "red", "plain", "after", "behind-red")


def module(body: str, check: str) -> str:
    return f"{body}\n\n\ndef check():\n    assert {check}\n"


DUTY = module("from tax import tax\n\n\ndef duty(amount):\n    return tax(amount, 10)", "duty(100) == 10")
BILL = module("from tax import tax\n\n\ndef bill(amount):\n    return amount + tax(amount)", "bill(10)")
RECEIPT = module(
    "from bill import bill\n\n\ndef receipt():\n    return f'{bill(10):.2f}'", "'12.00' in receipt()"
)
TEA, MILK, BREAD, ALL = (
    f"PRICES = {{{prices}}}"
    for prices in (
        '"tea": 3',
        '"tea": 3, "milk": 2',
        '"tea": 3, "bread": 4',
        '"tea": 3, "milk": 2, "bread": 4',
    )
)

# ---- scripted answers ----

HANG: dict[str, Any] = {"hang": True}
"""No answer: `ralph work` is killed meanwhile."""

SLEEPER = ("sleep", "298")
LEAVES = {"tools": [{"bash": f"setsid {' '.join(SLEEPER)} > /dev/null 2>&1 &"}]}
"""Starts a process that outlives the agent."""

WRITTEN, READ = say("It is written.", "WRITTEN"), say("It is good.", "READ")

CODER: dict[str, list[dict[str, Any]]] = {
    "first": [*edit("prices.py", TEA, MILK), WRITTEN],
    "second": [
        *edit("prices.py", TEA, BREAD),
        WRITTEN,
        {"tools": [{"read": "prices.py"}]},
        write(prices=FILES["prices.py"].replace(TEA, ALL)),
        WRITTEN,
    ],
    "red": [
        LEAVES,
        HANG,
        write(bill=BILL),
        WRITTEN,
        *edit("bill.py", "    return amount + tax(amount)", "    return amount + tax(amount, 20)"),
        WRITTEN,
    ],
    "never": [write(never=module("GOOD = False", "GOOD")), WRITTEN, HANG, WRITTEN],
    "plain": [
        *edit(
            "tax.py",
            "def tax(amount):\n    return amount / 5",
            "def tax(amount, rate):\n    return amount * rate / 100",
        ),
        WRITTEN,
    ],
    "after": [write(duty="def half_of_it("), HANG, write(duty=DUTY), WRITTEN],
    "behind-red": [LEAVES, write(receipt=RECEIPT), WRITTEN],
}
REVIEWER = {
    "first": [READ],
    "second": [HANG, READ, READ],
    "red": [READ, READ],
    "plain": [READ],
    "after": [READ],
    "behind-red": [READ],
}


def script() -> list[dict[str, Any]]:
    """The answers for each role of each task, in order."""
    return [
        {"when": f"# {id}: Write {id}\n\nYou {part}"} | answer
        for part, answers in (("implement", CODER), ("review", REVIEWER))
        for id, mine in answers.items()
        for answer in mine
    ]


# ---- before and after the kill ----


def prepared(repository: Project) -> None:
    for name, text in FILES.items():
        (repository.path / name).write_text(text)
    repository.git("add", "-A")
    repository.git("commit", "-qm", "Shop")


def killed_when_all_hang(site: Site, server: ModelServer) -> None:
    """Kill `ralph work -j 4` when four agents wait for an answer, and wait until all its processes are gone."""
    project = site.project
    assert isinstance(project, Lonely)
    hangs = {number for number, turn in enumerate(script(), 1) if "hang" in turn}
    ralph = Watched(project, [RALPH, "work", "-j", "4"], site.outside / "killed.log")

    def is_time() -> bool:
        return hangs <= {request.played for request in server.turns()} or ralph.process.poll() is not None

    try:
        wait_until(is_time, TIMEOUT)
        assert project.runs(*SLEEPER)
    finally:
        ralph.process.kill()
        ralph.process.wait()
        print(ralph.said)
    wait_until(lambda: not project.living())


def runs(site: Site) -> dict[str, dict[str, Any]]:
    """All runs of all tasks, as shown by `ralph status`."""
    return {run["run"]: run for id in TASKS for run in site.state(id)["runs"]}


def worktrees(site: Site) -> list[str]:
    """The names of all worktrees except the user's, including those of merges."""
    listing = site.project.git("worktree", "list", "--porcelain")
    assert "prunable" not in listing
    found = [Path(line.split()[1]) for line in listing.splitlines() if line.startswith("worktree ")][1:]
    top = site.project.home.path / "worktrees"
    assert sorted(path.parent for path in top.rglob(".git")) == sorted(found)
    return sorted(path.name for path in found)


# ---- assertions ----


def assert_half_way(site: Site) -> None:
    """Two tasks are merged; of the others, one is with its second role and three are with their first."""
    assert {id: site.state(id)["status"] for id in ("first", "plain")} == {"first": "done", "plain": "done"}
    assert worktrees(site) == ["after", "never", "red", "second"]
    cut_off = {
        id: [run["role"] for run in site.state(id)["runs"] if run["state"] == "crashed"] for id in TASKS
    }
    assert {id: role for id, role in cut_off.items() if role} == {
        "second": ["reviewer"],
        "red": ["coder"],
        "never": ["coder"],
        "after": ["coder"],
    }


def assert_ended_as_they_must(site: Site) -> None:
    states = {id: site.state(id) for id in TASKS}
    ended = {id: (state["status"], state["reason"].partition(";")[0]) for id, state in states.items()}
    assert ended == dict.fromkeys(DONE, ("done", "")) | {
        "never": ("failed", "2 of 2 iterations used"),
        "behind-never": ("blocked", "depends on never (failed)"),
    }
    assert {id: roles(site, id) for id in TASKS} == {
        "first": ["coder", "reviewer", "merge"],
        "second": ["coder", "reviewer", "coder", "reviewer", "merge"],
        "red": ["coder", "reviewer", "merge", "coder", "reviewer", "merge"],
        "never": ["coder"],
        "plain": ["coder", "reviewer", "merge"],
        "after": ["coder", "reviewer", "merge"],
        "behind-red": ["coder", "reviewer", "merge"],
        "behind-never": [],
    }


def assert_played_once(server: ModelServer, coder: str, reviewer: str) -> None:
    """No answer was requested twice, and each role used its configured agent."""
    assert "refused" not in {request.played for request in server.requests}
    assert Counter(request.played for request in server.turns()) == Counter(range(1, len(script()) + 1))
    wires = {role: {request.wire for request in asked_by(server, role)} for role in ("coder", "reviewer")}
    wire = {"claude": {"anthropic"}, "codex": {"responses"}}
    assert wires == {"coder": wire[coder], "reviewer": wire[reviewer]}


def assert_told_why(server: ModelServer) -> None:
    """The conflict and the failed merge went back to their coders, with the base in their worktrees."""
    told_again = {
        id: [words for words in told(server, "coder") if f"# {id}: " in words][-1] for id in ("second", "red")
    }
    assert all("## Why The Task Came Back To You" in words for words in told_again.values())
    assert "with conflict markers in: prices.py" in told_again["second"]
    assert f"On the merged tree: {CHECK}: exit code 1" in told_again["red"]
    assert "missing 1 required positional argument: 'rate'" in told_again["red"]
    assert any(
        MILK in r.said() and BREAD in r.said() and "<<<<<<<" in r.said() for r in asked_by(server, "coder")
    )


def assert_merged_once(site: Site) -> None:
    """The user's branch has the work of each finished task once, with passing checks at every merge."""
    subjects = site.project.git("log", "--first-parent", "--format=%s", "main").splitlines()
    brought = [subject.removeprefix("Merge ").partition(":")[0] for subject in subjects]
    assert sorted(brought) == sorted([*DONE, "First", "Shop"])
    assert_green(site, CHECK)
    files = site.project.git("ls-tree", "--name-only", "main").split()
    assert set(files) == {*FILES, "README.md", "bill.py", "duty.py", "receipt.py"}
    assert ALL in site.project.git("show", "main:prices.py")
    assert site.project.git("show", "main:duty.py") == DUTY
    assert "tax(amount, 20)" in site.project.git("show", "main:bill.py")


def assert_nothing_left(site: Site) -> None:
    """Only the failed task still has a worktree and a branch, with all its work."""
    assert_intact(site)
    assert worktrees(site) == ["never"]
    branches = site.project.git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/ralph/proved")
    assert branches.split() == ["refs/heads/main", "refs/heads/ralph/never"]
    assert "GOOD = False" in site.project.git("show", "ralph/never:never.py")


@pytest.mark.parametrize(("coder", "reviewer"), [("codex", "claude"), ("claude", "codex")])
def test_eight_tasks_survive_a_kill(repository: Project, coder: str, reviewer: str) -> None:
    """After a conflict, a failed merge, a failed task and a kill, finished steps stay and the rest runs once."""
    prepared(repository)
    agents = {
        role: {"agent": {"command": name, "permissions": "bypass"}}
        for role, name in (("coder", coder), ("reviewer", reviewer))
    }
    settings = only("reviewer", agents=agents) | {
        "guardrails": [{"command": CHECK}],
        "guard": {"enabled": False},  # it would deny starting a process that outlives the agent
    }
    with working(repository, (coder, reviewer), *script(), **settings) as (site, server):
        imported(site, "".join(TASK.format(id=id, **about) for id, about in TASKS.items()))
        killed_when_all_hang(site, server)
        assert_half_way(site)
        finished = {id: run for id, run in runs(site).items() if run["state"] != "crashed"}
        again = site.work("-j", "4", timeout=TIMEOUT)
        assert again.code == 1, again.err + again.out[-2000:]
        assert_ended_as_they_must(site)
        assert {id: run for id, run in runs(site).items() if id in finished} == finished
        assert_played_once(server, coder, reviewer)
        assert_told_why(server)
        assert_merged_once(site)
        assert_nothing_left(site)
