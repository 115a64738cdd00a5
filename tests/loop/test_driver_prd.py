"""The driver in a PRD loop: rules after every agent, protection of the list during checks, and restores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.loop_support import Loop, end_of, opened_loop
from prd_support import board, make_loop, story
from ralph.core.events import AgentStarted, Committed, Event, IterationStarted
from ralph.core.model import (
    Cause,
    Check,
    ClaimKind,
    ClaimRule,
    Flow,
    Outcome,
    Prd,
    PromptSource,
    Scm,
    When,
)
from ralph.errors import RalphError
from ralph.store.marker import MARKER

IMPLEMENTED = story(reviewStatus="needs_review", notes="done")
APPROVED = story(reviewStatus="approved", passes=True, reviewCount=1, notes="done")
CLAIM = ClaimRule(ClaimKind.BOARD, "promise", "COMPLETE", strict=True)


def leaves(outside: Path, *boards: dict[str, Any]) -> str:
    """A script that writes the n-th of these story lists in the n-th iteration."""
    for number, tasks in enumerate(boards, 1):
        (outside / f"board_{number}.json").write_text(json.dumps(tasks, indent=2) + "\n")
    return f"cp {outside}/board_$RALPH_ITERATION.json ralph/tasks.json; echo worked"


@contextmanager
def prd_loop(
    project: Project, tasks: dict[str, Any], agent: str, hook: str = "", **values: Any
) -> Iterator[Loop]:
    """A loop on these stories. `hook` is the body of a git pre-commit hook."""
    make_loop(project, *tasks["userStories"]).write(tasks)
    project.git("commit", "-qam", "Plan", "--allow-empty")
    if hook:
        path = project.path / ".git/hooks/pre-commit"
        path.write_text(f"#!/bin/sh\n{hook}\n")
        path.chmod(0o755)
    usual: dict[str, Any] = {
        "flow": Flow.PRD,
        "claim": CLAIM,
        "prompt": PromptSource(file="ralph/prompt.md", instruction=False, prd=Prd()),
        "checks": (Check("verify", "stories", when=When.CLAIMED),),
        "iterations": 4,
    }
    with opened_loop(project, agent, **(usual | values)) as loop:
        yield loop


def standing(project: Project) -> tuple[bool, str | None]:
    (found,) = json.loads((project.path / "ralph/tasks.json").read_text())["userStories"]
    return found["passes"], found["reviewStatus"]


def test_a_story_is_implemented_reviewed_and_proved(project: Project, tmp_path: Path) -> None:
    """Each iteration has its role and its story, and the last one completes the run."""
    agent = leaves(tmp_path, board(IMPLEMENTED), board(APPROVED))
    with prd_loop(project, board(story()), agent) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", *["look", "run_agent", "look"] * 2, "run_checks", "look", "stop"]
    assert end_of(state) == (Outcome.COMPLETE, Cause.PROVED)
    found = [(event.role, event.story) for event in loop.told(IterationStarted)]
    assert found == [("implement", "US-001"), ("review", "US-001")]
    assert not (project.path / MARKER).exists(), "the marker exists only while the loop runs"


def test_an_approval_that_verification_refutes_is_restored(project: Project, tmp_path: Path) -> None:
    """The story needs changes again, the restored list is committed, and the next iteration is told why."""
    red = {"verifyCommands": ["exit 3"]}
    agent = leaves(tmp_path, board(APPROVED, **red))
    with prd_loop(project, board(IMPLEMENTED, **red), agent, iterations=1) as loop:
        state = loop.drive()
        assert loop.kinds == ["plan", "look", "run_agent", "look", "run_checks", "restore", "look", "stop"]
    assert standing(project) == (False, "changes_requested")
    assert "refuted" in project.git("log", "-1", "--format=%s")
    undone = [text for text in loop.notices if text.startswith("Undone: ")]
    assert undone == ["Undone: an approval although verification failed (exit 3: exit code 3)."]
    assert state.told == (undone[0].removeprefix("Undone: ").removesuffix("."),)


def test_forbidden_changes_are_undone_and_reported(project: Project, tmp_path: Path) -> None:
    """An approval by the implementer is undone and reported to the user and to the next agent."""
    agent = leaves(tmp_path, board(APPROVED), board(APPROVED))
    with prd_loop(project, board(story()), agent, iterations=2) as loop:
        state = loop.drive()
    assert (end_of(state), standing(project)) == ((Outcome.LIMIT, Cause.ITERATIONS), (False, None))
    undone = [text.startswith("Undone: ") for text in loop.notices]
    copies = [text for text in loop.notices if text.startswith("Undone changes are kept in ")]
    assert sum(undone) == 2 and len(copies) == 1
    assert "cannot set passes=true" in (project.path / ".ralph/prompt_002.txt").read_text()


def test_a_removed_test_is_reported_at_once(project: Project, tmp_path: Path) -> None:
    """A removed test file is allowed, but reported to the user and to the next iteration."""
    project.path.joinpath("test_it.py").write_text("def test_it(): pass\n")
    agent = leaves(tmp_path, board(IMPLEMENTED)) + "; rm test_it.py"
    with prd_loop(project, board(story()), agent, iterations=1, snapshots=True) as loop:
        loop.drive()
    (told,) = (text for text in loop.notices if text.startswith("Next prompt will mention: "))
    assert "tests were removed (test_it.py)" in told


def test_a_check_cannot_change_the_stories(project: Project, tmp_path: Path) -> None:
    """Changes by a verify command to the list are undone and recorded in its row."""
    (tmp_path / "mine.json").write_text(json.dumps(board(APPROVED)))
    commands = {"verifyCommands": [f"cp {tmp_path}/mine.json ralph/tasks.json"]}
    agent = leaves(tmp_path, board(APPROVED, **commands))
    with prd_loop(project, board(IMPLEMENTED, **commands), agent) as loop:
        loop.drive()
        (checked,) = loop.results("run_checks")
    assert checked.undone == ("ralph/tasks.json was changed by a check or a commit hook",)
    kept = json.loads((project.path / "ralph/tasks.json").read_text())
    assert kept["verifyCommands"] == commands["verifyCommands"]


def test_a_commit_hook_cannot_change_the_stories(project: Project, tmp_path: Path) -> None:
    """Changes by a commit hook to the list are undone and recorded in its row."""
    (tmp_path / "mine.json").write_text(json.dumps(board(APPROVED)))
    agent = leaves(tmp_path, board(IMPLEMENTED))
    scm = Scm("git", ("commit",), message="feat: work")
    hook = f"cp {tmp_path}/mine.json ralph/tasks.json"
    with prd_loop(project, board(story()), agent, hook, iterations=1, scm=scm) as loop:
        loop.drive()
        (did,) = loop.results("commit")
    assert loop.told(Committed) and standing(project) == (False, "needs_review")
    assert did.undone == ("ralph/tasks.json was changed by a check or a commit hook",)


def test_a_list_that_people_have_broken_stops_the_run(project: Project) -> None:
    """A list that is broken before an iteration stops the run before an agent starts."""
    with prd_loop(project, board(story()), "echo on") as loop:
        (project.path / "ralph/tasks.json").write_text("rubbish")
        state = loop.drive()
    assert state.stop is not None and state.stop.cause is Cause.CONFIG
    assert "ralph/tasks.json" in state.stop.reason and not loop.told(AgentStarted)


def test_an_empty_answer_without_changes_is_retried(project: Project) -> None:
    """An empty answer uses no iteration, up to a few times."""
    with prd_loop(project, board(story()), "true", iterations=1) as loop:
        state = loop.drive()
    assert (state.iteration, len(loop.told(AgentStarted))) == (1, 4)


def test_the_rules_apply_to_an_interrupted_iteration_too(project: Project, tmp_path: Path) -> None:
    """Forbidden changes are undone however the agent ends."""
    agent = f"{leaves(tmp_path, board(APPROVED))}; touch {tmp_path}/waits; exec sleep 60"

    def heard(loop: Loop, event: Event) -> None:
        if type(event).__name__ == "Text":
            loop.interrupt(2)

    with prd_loop(project, board(story()), agent, heard=heard) as loop:
        state = loop.drive()
        (ran,) = loop.results("run_agent")
    assert end_of(state)[0] is Outcome.INTERRUPTED and ran.board.illegal
    assert standing(project) == (False, None)


def test_another_loop_in_the_project_is_an_error(project: Project) -> None:
    """The marker of a live process stops this run before anything starts."""
    (project.path / MARKER).write_text(json.dumps({"pid": 1}))
    with pytest.raises(RalphError, match="process 1"), prd_loop(project, board(story()), "echo on"):
        pass
