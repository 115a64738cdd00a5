"""The output of `ralph prd status`: the state of a story list, as JSON values and as text."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from ralph.core.text import clean
from ralph.prd.plan import (
    PrdInputs,
    current_branch,
    is_unsettled,
    iterations_needed,
    running,
    unverified,
    wrong_branch,
)
from ralph.store.home import find_home
from ralph.stories import rules
from ralph.views.stories import STATES, is_capped, state_of
from ralph.views.table import print_table

FIELDS = (
    "id",
    "title",
    "priority",
    "passes",
    "reviewStatus",
    "reviewCount",
    "reviewFeedback",
    "dependsOn",
)
STYLES = {state: style.colour for state, style in STATES.items() if style.colour}


def state_of_list(board: Any, inputs: PrdInputs, problems: list[str]) -> dict[str, Any]:
    """Return the state of a story list; an invalid list yields fewer values."""
    values = board if isinstance(board, dict) else {}
    found = values.get("userStories")
    listed = [story for story in found if isinstance(story, dict)] if isinstance(found, list) else []
    is_valid = not rules.schema_problems(board)
    skip = inputs.skip_review
    return {
        "project": values.get("project"),
        "branchName": values.get("branchName"),
        "branch": current_branch(inputs.directory),
        "mode": rules.mode_of(board, skip_review=skip) if is_valid else None,
        "next": rules.next_story(board, skip_review=skip) if is_valid else None,
        "complete": is_valid and not problems and rules.is_complete(board, skip_review=skip),
        "approvedAtCap": rules.approved_at_cap(board) if is_valid else [],
        "verifyCommands": values.get("verifyCommands") or [],
        "running": running(inputs.directory),
        "unsettled": is_unsettled(find_home(inputs.directory), inputs),
        "problems": problems,
        "stories": [{name: story.get(name) for name in FIELDS} for story in listed],
    }


def print_stories(state: dict[str, Any], inputs: PrdInputs) -> None:
    if state["stories"]:
        rows = [_row(story) for story in state["stories"]]
        print_table(("story", "state", "reviews", "priority", "title", "waits for"), rows, STYLES)
    if state["problems"]:
        return
    for line in _words(state, inputs):
        click.echo(_wrapped(clean(line)))


def _wrapped(line: str) -> str:
    """Wrap a line between words on a terminal."""
    if not sys.stdout.isatty():
        return line
    return textwrap.fill(line, max(40, shutil.get_terminal_size().columns - 1), subsequent_indent="  ")


def _row(story: dict[str, Any]) -> tuple[str, ...]:
    state = state_of(story)
    waits = story["dependsOn"] if isinstance(story["dependsOn"], list) else []
    cells = (story["id"], state, story["reviewCount"], story["priority"], story["title"])
    return (*("" if cell is None else str(cell) for cell in cells), ", ".join(map(str, waits)))


def _words(state: dict[str, Any], inputs: PrdInputs) -> Iterator[str]:
    done = sum(bool(story["passes"]) for story in state["stories"])
    yield f"{done} of {len(state['stories'])} stories done."
    for story in state["stories"]:
        if is_capped(story):
            left = story["reviewFeedback"].removeprefix(rules.AT_CAP).strip()
            yield f"{story['id']} approved only because the review cap was reached: {_short(left)}"
        elif story["reviewStatus"] == rules.CHANGES_REQUESTED:
            yield f"{story['id']} needs changes: {_short(story['reviewFeedback'])}"
    if state["complete"]:
        yield "All stories are done." if inputs.skip_review else "All stories are approved."
        yield "To archive the loop: ralph prd archive"
    elif state["running"]:
        yield f"A loop is running (process {state['running']}): {state['mode']} {state['next']}."
    else:
        todo = len(state["stories"]) - done
        yield f"Next: {state['mode']} {state['next']}. To start: ralph prd run{' --skip-review' * inputs.skip_review}"
        yield f"About {iterations_needed(todo, inputs)} iterations are needed for the remaining stories."
    if state["unsettled"]:
        yield "A loop was killed during an iteration. The next command undoes its forbidden changes."
    if state["branch"] not in (None, state["branchName"]):
        yield wrong_branch(state["branch"], state["branchName"])
    if not state["verifyCommands"]:
        yield unverified(inputs)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
