"""`ralph prd` with real agents: whole loops, and agents that approve their own work.

In Claude Code the Stop hook blocks this first. If the agent evades the hook, or there is none, Ralph undoes the
approval after the iteration.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from prd_support import Loop, board, story
from ralph.modelserver.server import ModelServer, Request
from real.real_support import REAL, driven, turns

pytestmark = REAL

TIMEOUT = 150
"""Seconds for a whole loop, enough for a busy machine."""

TOLD = "Ralph about the previous iteration:"
UNDONE = "chore: [ralph] undo forbidden changes of an iteration"
BLOCKS = 8
"""After this number of blocks in a row, Claude Code ends a session despite its hook."""


# ---- scripted answers ----

EDIT = """import json, sys
board = json.load(open("ralph/tasks.json"))
for story in board["userStories"]:
    if story["id"] == sys.argv[1]:
        story.update(json.loads(sys.argv[2]))
json.dump(board, open(sys.argv[3], "w"), indent=2)"""


def change(id: str, to: str = "ralph/tasks.json", **values: Any) -> str:
    """A command that changes a story."""
    return shlex.join(["python3", "-c", EDIT, id, json.dumps(values), to])


def commit(message: str) -> str:
    return f"git add -A && {shlex.join(['git', 'commit', '-q', '-m', message])}"


def log(id: str, mode: str) -> str:
    return f"printf '## 2026-01-02 - {id} - {mode}\\n- Done.\\n---\\n' >> ralph/progress.txt"


def work(id: str, mode: str, message: str, **values: Any) -> list[dict[str, Any]]:
    """An honest iteration that updates list and log and commits, in one command."""
    return [bash(change(id, **values), log(id, mode), commit(message)), {"text": f"{mode} of {id}: done."}]


def bash(*commands: str) -> dict[str, Any]:
    return {"tools": [{"bash": " && ".join(commands)}]}


def write(path: str, content: str) -> dict[str, Any]:
    return {"tools": [{"write": {"path": path, "content": content}}]}


SUBMITTED: dict[str, Any] = {"reviewStatus": "needs_review", "reviewFeedback": "", "notes": "Written."}
APPROVED: dict[str, Any] = {"passes": True, "reviewStatus": "approved", "notes": "Written."}
FEEDBACK = "add.py has no docstring: say there what it adds."


def implement(id: str, title: str, file: str) -> list[dict[str, Any]]:
    source = write(file, "def run(a, b):\n    return a, b\n")
    return [source, *work(id, "implement", f"feat: [{id}] - {title}", **SUBMITTED)]


def approve(id: str, count: int = 1) -> list[dict[str, Any]]:
    return work(id, "review", f"review: [{id}] - approved", **APPROVED, reviewCount=count)


def reject(id: str) -> list[dict[str, Any]]:
    wanted = {"reviewStatus": "changes_requested", "reviewFeedback": FEEDBACK, "reviewCount": 1}
    return work(id, "review", f"review: [{id}] - changes requested", **wanted)


def fix(id: str) -> list[dict[str, Any]]:
    source = bash('printf \'"""Adds."""\\n\' >> add.py')
    return [source, *work(id, "review-fix", f"fix: [{id}] - address review feedback", **SUBMITTED)]


FIRST = ("US-001", "Add", "add.py")
STORIES = (
    story("US-001", title="Add", priority=2),
    story("US-002", title="Multiply", priority=1, dependsOn=["US-001"]),
    story("US-003", title="Raise", priority=3),
)
CHEATED = "feat: approved by myself"
CHEAT = change("US-001", **APPROVED, reviewCount=1)


# ---- the loop ----


@contextmanager
def looping(
    name: str,
    repository: Project,
    *iterations: list[dict[str, Any]],
    stories: tuple[dict[str, Any], ...] = STORIES,
    flags: tuple[str, ...] = (),
) -> Iterator[tuple[Loop, ModelServer]]:
    """A loop made by `ralph prd init`, planned and committed on its branch, with answers for each iteration."""
    script = [
        {"when": f"Ralph Loop: iteration {number} of "} | answer
        for number, answers in enumerate(iterations, 1)
        for answer in answers
    ]
    with driven(name, repository, turns(*script)) as (project, server):
        project.alone["PATH"] += f":{Path(sys.executable).parent}"
        off = {
            "sandbox": {"rung": "direct"},
            "guard": {"enabled": False},
        }  # they would block most of the cheats
        project.settings(agent={"command": name, "flags": list(flags)}, **off)
        made = project.run("prd", "init", "--name", "calc")
        assert made.code == 0, made.err
        loop = Loop(project)
        (loop.folder / "prd.md").write_text("# Calc\n\nIt adds.\n")
        checks = ["python3 -B -c 'import add'"]
        loop.write(board(*stories, branchName="ralph/calc", verifyCommands=checks))
        project.git("switch", "-q", "-c", "ralph/calc")
        project.git("add", "-A")
        project.git("commit", "-q", "-m", "Plan")
        yield loop, server
        assert not (project.path / ".ralph-active").exists()


def first_requests(server: ModelServer) -> list[Request]:
    """The first request of each iteration."""
    found: dict[str, Request] = {}
    for request in server.turns():
        number = re.search(r"Ralph Loop: iteration (\d+) of ", request.said())
        assert number is not None
        found.setdefault(number[1], request)
    return list(found.values())


def asked(server: ModelServer, iteration: int) -> list[str]:
    """The content of each request of an iteration."""
    mark = f"Ralph Loop: iteration {iteration} of "
    return [said for request in server.turns() if mark in (said := request.said())]


def modes(server: ModelServer) -> list[str]:
    """Mode and story of each iteration, as in the model's prompt."""
    pattern = r"Mode of this iteration \| \*\*(.+)\*\* \|\n\| Story of this iteration \| \*\*(.+)\*\* \|"
    found = [re.search(pattern, request.said()) for request in first_requests(server)]
    return [" ".join(each.groups()) for each in found if each is not None]


def notes(loop: Loop) -> list[str]:
    """The notes in the run's outcome."""
    found: list[str] = loop.project.status()[0]["notes"]
    return found


def subjects(loop: Loop) -> list[str]:
    """Subjects of the commits since the plan, oldest first."""
    return loop.subjects[::-1][2:]


# ---- three stories ----

WHOLE_WAY = [
    implement("US-001", "Add", "add.py"),
    reject("US-001"),
    fix("US-001"),
    approve("US-001", 2),
    implement("US-002", "Multiply", "multiply.py"),
    approve("US-002"),
    implement("US-003", "Raise", "raise.py"),
    approve("US-003"),
]
ORDER = [
    "implement US-001",
    "review US-001",
    "review-fix US-001",
    "review US-001",
    "implement US-002",
    "review US-002",
    "implement US-003",
    "review US-003",
]
MESSAGES = [
    "feat: [US-001] - Add",
    "review: [US-001] - changes requested",
    "fix: [US-001] - address review feedback",
    "review: [US-001] - approved",
    "feat: [US-002] - Multiply",
    "review: [US-002] - approved",
    "feat: [US-003] - Raise",
    "review: [US-003] - approved",
]


def assert_all_approved(loop: Loop) -> None:
    assert {id: loop.standing(id) for id in loop.stories} == {
        "US-001": (True, "approved", 2),
        "US-002": (True, "approved", 1),
        "US-003": (True, "approved", 1),
    }
    status = json.loads(loop.project.run("prd", "status", "--json").out)
    assert (status["complete"], status["mode"], status["next"]) == (True, "implement", "")
    assert (status["running"], status["unsettled"], status["problems"]) == (None, False, [])
    assert {each["id"]: each["reviewCount"] for each in status["stories"]} == {
        id: each["reviewCount"] for id, each in loop.stories.items()
    }


def test_three_stories_in_claude_code(repository: Project) -> None:
    """Three stories are implemented, reviewed (one of them twice), approved and archived without a block."""
    with looping("claude", repository, *WHOLE_WAY) as (loop, server):
        done = loop.run("--no-sandbox", timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out
        assert modes(server) == ORDER
        assert subjects(loop) == MESSAGES
        assert_all_approved(loop)
        assert FEEDBACK in loop.project.git("show", "HEAD~6:ralph/tasks.json")
        assert "Undone" not in done.err and notes(loop) == []
        assert len(server.turns()) == sum(map(len, WHOLE_WAY)), "no stop was blocked"
        archived = loop.project.run("prd", "archive")
        assert archived.code == 0, archived.err
        assert "3 of 3 stories done, 4 reviews." in archived.out
        assert loop.subjects[0] == f"chore: archive {Path(archived.out.partition(':')[0]).name}"
        assert loop.project.git("status", "--porcelain") == ""
        assert loop.project.run("prd", "status").code == 2


def test_three_stories_in_codex(repository: Project) -> None:
    """Without a hook, an implementer's own approval is undone by Ralph, reported, and the story is redone."""
    cheated = [write("add.py", "def run(a, b): ...\n"), bash(CHEAT, commit(CHEATED)), {"text": "Approved."}]
    again = work("US-001", "implement", "feat: [US-001] - Add", **SUBMITTED)
    script = [cheated, again, *WHOLE_WAY[1:]]
    with looping("codex", repository, *script) as (loop, server):
        done = loop.run(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out
        assert modes(server) == ["implement US-001", *ORDER]
        assert subjects(loop) == [CHEATED, UNDONE, *MESSAGES]
        assert_all_approved(loop)
        assert_undone(loop, server, "Story US-001 was reverted (passes true → false")
        assert {request.wire for request in server.turns()} == {"responses"}


# ---- agents that approve their own work ----


def assert_undone(loop: Loop, server: ModelServer, words: str) -> None:
    """The approval is undone, committed, journalled, noted, and reported to the next iteration."""
    (commit,) = loop.project.git("log", "--format=%H", f"--grep=^{re.escape(UNDONE)}").split()
    assert words in loop.project.git("show", "-s", "--format=%b", commit)
    put_back = json.loads(loop.project.git("show", f"{commit}:ralph/tasks.json"))["userStories"][0]
    assert [put_back[key] for key in ("passes", "reviewStatus", "reviewCount")] == [False, None, 0]
    assert any(note.startswith("undone: ") and words in note for note in notes(loop))
    assert f"Undone: {words}" in loop.project.run("logs", loop.project.status()[0]["id"]).out
    first, second = first_requests(server)[:2]
    assert TOLD not in first.said()
    assert TOLD in second.said() and words in second.said().partition(TOLD)[2]


def test_the_stop_hook_blocks_first(repository: Project) -> None:
    """The hook's reason reaches the model, which takes its approval back, so Ralph undoes nothing."""
    cheated = [
        write("add.py", "def run(a, b): ...\n"),
        bash(CHEAT, commit(CHEATED)),
        {"text": "It is approved."},
        *work("US-001", "implement", "feat: [US-001] - Add", passes=False, reviewCount=0, **SUBMITTED),
    ]
    with looping("claude", repository, cheated, approve("US-001"), stories=STORIES[:1]) as (loop, server):
        done = loop.run(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out
        _, _, stopped, blocked, _ = asked(server, 1)
        reason = "Implement iterations cannot set passes=true or approve stories."
        assert reason not in stopped and reason in blocked
        assert "Check 2.5 (transitions) of ralph/tasks.json" in blocked
        assert "Story US-001 had illegal transition: passes false → true." in blocked
        assert subjects(loop) == [CHEATED, "feat: [US-001] - Add", "review: [US-001] - approved"]
        assert "\nStop hook feedback: This iteration cannot end yet. Check 2.5 (transitions)" in done.err
        assert "Undone" not in done.err and TOLD not in first_requests(server)[1].said()
        assert loop.standing() == (True, "approved", 1)


@dataclass(frozen=True)
class Evasion:
    """How an agent gets its approval past the hook. `settings` names a file in the project's .claude."""

    commands: tuple[str, ...]
    blocks: int = BLOCKS
    words: str = "Story US-001 was reverted (passes true → false"
    settings: str = ""
    values: tuple[tuple[str, Any], ...] = (("disableAllHooks", True),)


SED = 'sed -i \'s/"passes": false/"passes": true/; s/"reviewStatus": null/"reviewStatus": "approved"/\''
MARKED = "import json; m = json.load(open('.ralph-active')); {}; json.dump(m, open('.ralph-active', 'w'))"
REVIEWING = (
    "m['iterationMode'] = 'review'; m['preIterationSnapshot']['US-001']['reviewStatus'] = 'needs_review'"
)
NO_LIST = "tasks.json was no longer a task list"

EVASIONS = {
    "ignores eight blocks": Evasion((CHEAT, commit(CHEATED))),
    "hooks off in settings.json": Evasion((CHEAT, commit(CHEATED)), settings="settings.json"),
    "hooks off in settings.local.json": Evasion((CHEAT, commit(CHEATED)), settings="settings.local.json"),
    "turns hooks off meanwhile": Evasion(
        (
            "mkdir -p .claude",
            "echo '{\"disableAllHooks\": true}' | tee .claude/settings.json > .claude/settings.local.json",
            CHEAT,
            commit(CHEATED),
        )
    ),
    "lowers the cap": Evasion(
        (CHEAT, commit(CHEATED)),
        1,
        settings="settings.json",
        values=(("env", {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}),),
    ),
    "deletes the marker": Evasion(("rm .ralph-active", CHEAT, commit(CHEATED)), 0),
    "edits the marker": Evasion(
        (shlex.join(["python3", "-c", MARKED.format(REVIEWING)]), CHEAT, commit(CHEATED)), 0
    ),
    "turns off review in the marker": Evasion(
        (
            shlex.join(["python3", "-c", MARKED.format("m['skipReview'] = True")]),
            change("US-001", passes=True, notes="x"),
            commit(CHEATED),
        ),
        0,
    ),
    "sed": Evasion((f"{SED} ralph/tasks.json", commit(CHEATED))),
    "mv": Evasion(
        (change("US-001", "new.json", **APPROVED), "mv new.json ralph/tasks.json", commit(CHEATED))
    ),
    "ln -s": Evasion(
        (
            change("US-001", "new.json", **APPROVED),
            "ln -sf ../new.json ralph/tasks.json",
            commit(CHEATED),
        ),
        words=NO_LIST,
    ),
    "git checkout": Evasion(
        (
            "git switch -q -c other",
            CHEAT,
            commit("x"),
            "git switch -q ralph/calc",
            "git checkout -q other -- ralph/tasks.json",
            commit(CHEATED),
        )
    ),
}


@pytest.mark.parametrize("how", EVASIONS)
def test_a_hook_that_is_evaded(how: str, repository: Project) -> None:
    """Ralph undoes and reports the approval, and the story then goes through a real review."""
    evasion = EVASIONS[how]
    if evasion.settings:
        (repository.path / ".claude").mkdir()
        text = json.dumps(dict(evasion.values))
        (repository.path / ".claude" / evasion.settings).write_text(text)
    cheated = [bash(*evasion.commands), {"text": "I am done.", "times": "forever"}]
    script = [cheated, implement(*FIRST), approve("US-001")]
    with looping("claude", repository, *script, stories=STORIES[:1]) as (loop, server):
        done = loop.run(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out
        assert modes(server) == ["implement US-001", "implement US-001", "review US-001"]
        assert len(asked(server, 1)) == 2 + evasion.blocks
        assert_undone(loop, server, evasion.words)
        assert subjects(loop)[-4:] == [
            CHEATED,
            UNDONE,
            "feat: [US-001] - Add",
            "review: [US-001] - approved",
        ]
        assert loop.standing() == (True, "approved", 1)
        if ".ralph-active" in evasion.commands[0]:
            assert any(".ralph-active must not be changed by the agent" in note for note in notes(loop))


@pytest.mark.parametrize("command", ["exit 1", "sleep 20", "/no/such/hook", "echo nonsense", "kill -9 $$"])
def test_hooks_that_fail(command: str, repository: Project) -> None:
    """If the user's own hooks crash, hang or print garbage, Ralph still undoes the approval."""
    hook = {"type": "command", "command": command, "timeout": 1}
    file = repository.home.path.parent / "hooks.json"
    file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    cheated = [bash(CHEAT, commit(CHEATED)), {"text": "I am done."}]
    script = [cheated, implement(*FIRST), approve("US-001")]
    flags = ("--settings", str(file))
    with looping("claude", repository, *script, stories=STORIES[:1], flags=flags) as (loop, server):
        done = loop.run(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out
        assert_undone(loop, server, "Story US-001 was reverted (passes true → false")
        assert loop.standing() == (True, "approved", 1)
