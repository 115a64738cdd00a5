"""`ralph prd status`: the stories, their reviews, and what is next."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from ralph.commands.common import COUNT
from ralph.commands.prd.options import folder_option, project_option
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.files.storyfile import MAX_TASKS, TASKS, load, text_of
from ralph.prd import files
from ralph.prd.plan import (
    PLAN_IT,
    PrdInputs,
    current_branch,
    inside,
    is_unsettled,
    iterations_needed,
    last_rules,
    running,
    unverified,
    wrong_branch,
)
from ralph.store.home import find_home
from ralph.stories import rules
from ralph.views.stories import CAPPED, is_capped, state_of
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
STYLES = {
    CAPPED: "yellow",
    "approved": "green",
    "needs_review": "yellow",
    "changes_requested": "red",
    "passes": "green",
}


@click.command("status")
@project_option
@folder_option
@click.option(
    "--skip-review", is_flag=True, help="As a run without reviews would see it. [as the last run was]"
)
@click.option(
    "--review-cap",
    type=COUNT,
    metavar="N",
    help=f"As a run with this cap would see it. [that of the last run, else {rules.REVIEW_CAP}]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def status_(
    project_dir: Path, ralph_dir: str, skip_review: bool, review_cap: int | None, as_json: bool
) -> int:
    """Show the stories of ralph/tasks.json: where each stands, how often it was reviewed, what is next.

    A list that has problems is shown with all of them, as far as it can be shown; exit code 2 then.
    """
    folder = inside(project_dir, ralph_dir)
    inputs = PrdInputs(project_dir, folder)
    path = project_dir / folder / TASKS
    board = _read(inputs, path)
    problems = rules.schema_problems(board)
    is_begun = not problems and _is_begun(board)
    last = last_rules(find_home(project_dir), inputs) if is_begun else inputs.prd
    inputs = replace(
        inputs, skip_review=skip_review or last.skip_review, review_cap=review_cap or last.review_cap
    )
    if not problems and not inputs.skip_review:
        problems = rules.invariant_problems(board, inputs.review_cap)
    state = _state(board, inputs, problems)
    if as_json:
        click.echo(json.dumps(state, indent=2, ensure_ascii=False))
        return 2 if problems else 0
    _show(state, inputs)
    if problems:
        lines = "\n  ".join(clean(each) for each in problems)
        raise RalphError(f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}.\n  {lines}")
    return 0


def _is_begun(board: dict[str, Any]) -> bool:
    return any(story["passes"] or story["reviewStatus"] for story in board["userStories"])


def _read(inputs: PrdInputs, path: Path) -> Any:
    files.require_folder(path.parent)
    with files.opened(inputs.directory, inputs.folder) as place:
        text = text_of(place.read(TASKS, MAX_TASKS), str(path))
    if files.is_unplanned(text):
        raise RalphError(f"Nothing is planned in {path} yet.", PLAN_IT)
    return load(text, str(path))


def _state(board: Any, inputs: PrdInputs, problems: list[str]) -> dict[str, Any]:
    """All that can be said of a list; where it is wrong, that is less."""
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


def _show(state: dict[str, Any], inputs: PrdInputs) -> None:
    if state["stories"]:
        rows = [_row(story) for story in state["stories"]]
        print_table(("story", "state", "reviews", "priority", "title", "waits for"), rows, STYLES)
    if state["problems"]:
        return
    for line in _words(state, inputs):
        click.echo(_wrapped(clean(line)))


def _wrapped(line: str) -> str:
    """On a terminal, broken between words."""
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
            yield f"{story['id']} only because the review cap was reached: {_short(left)}"
        elif story["reviewStatus"] == rules.CHANGES_REQUESTED:
            yield f"{story['id']} has to be changed: {_short(story['reviewFeedback'])}"
    if state["complete"]:
        yield "Every story is done." if inputs.skip_review else "Every story is approved."
        yield "Put the loop away with: ralph prd archive"
    elif state["running"]:
        yield f"A loop is running (process {state['running']}): {state['mode']} {state['next']}."
    else:
        todo = len(state["stories"]) - done
        yield f"Next: {state['mode']} {state['next']}, with: ralph prd run{' --skip-review' * inputs.skip_review}"
        yield f"About {iterations_needed(todo, inputs)} iterations are needed for what is left."
    if state["unsettled"]:
        yield "A loop was killed in the middle of an iteration: what that one may not do is undone by the next command."
    if state["branch"] not in (None, state["branchName"]):
        yield wrong_branch(state["branch"], state["branchName"])
    if not state["verifyCommands"]:
        yield unverified(inputs)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
