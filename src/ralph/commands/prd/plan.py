"""`ralph prd plan`: write PRD and stories with the agent, in the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import load_with_agent, open_home
from ralph.commands.prd.options import CLAUDE, folder_option, project_option
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.prd.plan import PrdInputs


@click.command("plan")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="A PRD that is there already."
)
@project_option
@folder_option
@click.option(
    "--agent", metavar="COMMAND", help="Another agent than the configured one, with its flags. [claude]"
)
@click.option("--settings", "settings_file", metavar="FILE", help="Instead of .ralph/settings.json.")
@click.option("--force", is_flag=True, help="With --from: also where prd.md has content; that is kept.")
def plan_(
    source: Path | None,
    project_dir: Path,
    ralph_dir: str,
    agent: str | None,
    settings_file: str | None,
    force: bool,
) -> int:
    """Talk to the agent about what is to be built; it writes ralph/prd.md and ralph/tasks.json.

    With an empty prd.md it asks until the requirements are clear; with a written one, or --from, it derives the stories.
    When you end the session, both files are checked; exit code 2 if something is wrong with them.

    \b
    ralph prd plan
    ralph prd plan --from docs/login.md --agent codex
    """
    from ralph.core.text import clean
    from ralph.files.paths import real
    from ralph.prd import files, plan, planning
    from ralph.runs.location import here
    from ralph.runs.run_plan import agent_specs
    from ralph.store import locks

    source = real(source) if source is not None else None
    os.chdir(project_dir)
    inputs = plan.PrdInputs(project_dir, plan.inside(project_dir, ralph_dir))
    folder = project_dir / inputs.folder
    files.require_folder(folder)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RalphError(
            "Planning is a conversation: it needs a terminal.",
            f"Without one: write {inputs.folder}/prd.md and {inputs.folder}/tasks.json (docs/prd.md has an example),"
            " or take a list that you have: ralph prd import FILE",
        )
    if locks.is_held(here(project_dir).lock, open_home().path):
        raise RalphError(
            f"A run works in {project_dir}.", "Wait for it, or pause it: `ralph status` shows it."
        )
    settings = load_with_agent(settings_file, {}, agent or None, CLAUDE).settings
    spec = agent_specs(settings.agent, None)[0]
    for line in planning.take_prd(inputs, source, force=force) if source else ():
        click.echo(clean(line), err=True)
    before = planning.current_list(inputs)
    code = planning.talk(inputs, spec)
    if code:
        click.echo(clean(f"{spec.name} ended with exit code {code}."), err=True)
    return _report(inputs, planning.problems(inputs, before))


def _report(inputs: PrdInputs, problems: list[str]) -> int:
    from ralph.core.text import clean
    from ralph.prd import plan

    if problems:
        lines = "\n  ".join(clean(each) for each in problems)
        raise RalphError(
            f"The plan is not ready:\n  {lines}", "Mend it, or talk about it once more: ralph prd plan"
        )
    board = plan.load_board(inputs)
    count = len(board["userStories"])
    click.echo(f"Planned: {count} {'story' if count == 1 else 'stories'}.")
    for line in plan.introduction(board, inputs):
        click.echo(clean(line), err=True)
    click.echo("Next: read both files, commit them, then: ralph prd run", err=True)
    return 0
