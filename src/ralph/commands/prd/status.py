"""`ralph prd status`: show the stories, their reviews and the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.commands.common import COUNT
from ralph.commands.prd.options import folder_option, project_option
from ralph.errors import RalphError
from ralph.stories.rules import REVIEW_CAP

if TYPE_CHECKING:
    from ralph.prd.plan import PrdInputs


@click.command("status")
@project_option
@folder_option
@click.option(
    "--skip-review", is_flag=True, help="Show the status for a run without reviews. [as in the last run]"
)
@click.option(
    "--review-cap",
    type=COUNT,
    metavar="N",
    help=f"Show the status for a run with this review cap. [the last run's, otherwise {REVIEW_CAP}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_(
    project_dir: Path, ralph_dir: str, skip_review: bool, review_cap: int | None, as_json: bool
) -> int:
    """Show the stories in ralph/tasks.json with their status and reviews, and the next step.

    If the file is invalid, lists all problems, shows the readable part, and exits with code 2.

    \b
    ralph prd status
    """
    from msgspec.structs import replace

    from ralph.commands.prd.status_text import print_stories, state_of_list
    from ralph.core.text import clean
    from ralph.files.storyfile import TASKS
    from ralph.prd.plan import PrdInputs, inside, last_rules
    from ralph.store.home import find_home
    from ralph.stories import rules

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
    state = state_of_list(board, inputs, problems)
    if as_json:
        click.echo(json.dumps(state, indent=2, ensure_ascii=False))
        return 2 if problems else 0
    print_stories(state, inputs)
    if problems:
        lines = "\n  ".join(clean(each) for each in problems)
        raise RalphError(f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}.\n  {lines}")
    return 0


def _is_begun(board: dict[str, Any]) -> bool:
    return any(story["passes"] or story["reviewStatus"] for story in board["userStories"])


def _read(inputs: PrdInputs, path: Path) -> Any:
    from ralph.files.storyfile import MAX_TASKS, TASKS, load, text_of
    from ralph.prd import files
    from ralph.prd.plan import PLAN_IT

    files.require_folder(path.parent)
    with files.opened(inputs.directory, inputs.folder) as place:
        text = text_of(place.read(TASKS, MAX_TASKS), str(path))
    if files.is_unplanned(text):
        raise RalphError(f"{path} has no stories yet.", PLAN_IT)
    return load(text, str(path))
