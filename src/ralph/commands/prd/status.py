"""`ralph prd status`: the stories, their reviews, and what is next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ralph.core import stories
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.flows.prd import Inputs, introduction
from ralph.jsonfile import parse_strictly
from ralph.storyboard import TASKS
from ralph.textfile import read_text
from ralph.views.table import print_table

STYLES = {"approved": "green", "needs_review": "yellow", "changes_requested": "red", "passes": "green"}


@click.command("status")
@click.option(
    "-d",
    "--project-dir",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The project. [here]",
)
@click.option(
    "--ralph-dir", default="ralph", metavar="DIR", help="The folder with the PRD, from the project. [ralph]"
)
@click.option("--skip-review", is_flag=True, help="As a run without reviews would see it.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def status_(project_dir: Path, ralph_dir: str, skip_review: bool, as_json: bool) -> int:
    """Show the stories of ralph/tasks.json: where each stands, how often it was reviewed, what is next.

    A list that has problems is shown with all of them; exit code 2 then.
    """
    path = project_dir / ralph_dir / TASKS
    try:
        board = parse_strictly(read_text(str(path), most=16 << 20, what="task list"))
    except (ValueError, RecursionError) as error:
        raise RalphError(f"{path}: not valid JSON: {error}.") from None
    problems = stories.schema_problems(board)
    if problems:
        return _wrong(path, problems, as_json=as_json)
    if not skip_review:
        problems = stories.invariant_problems(board)
    state = _state(board, skip_review=skip_review, problems=problems)
    if as_json:
        click.echo(json.dumps(state, indent=2, ensure_ascii=False))
        return 2 if problems else 0
    _show(board, state, Inputs(project_dir, ralph_dir, skip_review=skip_review))
    return _wrong(path, problems, as_json=False) if problems else 0


def _state(board: dict[str, Any], *, skip_review: bool, problems: list[str]) -> dict[str, Any]:
    fields = (
        "id",
        "title",
        "priority",
        "passes",
        "reviewStatus",
        "reviewCount",
        "reviewFeedback",
        "dependsOn",
    )
    return {
        "project": board["project"],
        "branchName": board["branchName"],
        "mode": stories.mode_of(board, skip_review=skip_review),
        "next": stories.next_story(board, skip_review=skip_review),
        "complete": stories.is_complete(board, skip_review=skip_review),
        "approvedAtCap": stories.approved_at_cap(board),
        "problems": problems,
        "stories": [{name: story.get(name) for name in fields} for story in board["userStories"]],
    }


def _show(board: dict[str, Any], state: dict[str, Any], inputs: Inputs) -> None:
    rows = [
        (
            story["id"],
            story["reviewStatus"] or ("passes" if story["passes"] else "todo"),
            str(story["reviewCount"]),
            str(story["priority"]),
            story["title"],
            ", ".join(story.get("dependsOn", ())),
        )
        for story in board["userStories"]
    ]
    print_table(("story", "state", "reviews", "priority", "title", "depends on"), rows, STYLES)
    if state["complete"]:
        click.echo("Every story is done." if inputs.skip_review else "Every story is approved.")
        for id in state["approvedAtCap"]:
            click.echo(clean(f"  {id} only because the review cap was reached: see its reviewFeedback."))
    elif state["next"]:
        click.echo(clean(f"Next: {state['mode']} {state['next']}."))
    else:
        click.echo("Next: nothing can be begun; the stories that are left wait for others.")
    if not state["complete"]:
        click.echo(clean(introduction(board, inputs)[0]), err=True)


def _wrong(path: Path, problems: list[str], *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"problems": problems}, indent=2, ensure_ascii=False))
        return 2
    lines = "\n  ".join(clean(each) for each in problems)
    raise RalphError(f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}.\n  {lines}")
