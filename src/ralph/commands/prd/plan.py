"""`ralph prd plan`: write the PRD and its stories with the agent, in the terminal."""

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
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE", help="Existing PRD to start from."
)
@project_option
@folder_option
@click.option(
    "--agent",
    metavar="COMMAND",
    help="Agent command with its flags, instead of the configured agent. [claude]",
)
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@click.option("--force", is_flag=True, help="With --from, replace an existing prd.md; keeps a backup.")
def plan_(
    source: Path | None,
    project_dir: Path,
    ralph_dir: str,
    agent: str | None,
    settings_file: str | None,
    force: bool,
) -> int:
    """Plan a feature with the agent, which writes ralph/prd.md and ralph/tasks.json.

    If prd.md is empty, the agent asks questions until the requirements are clear. If it has content, or with --from,
    the agent derives the stories from it. When you end the session, Ralph checks both files and exits with code 2 if
    something is wrong.

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
            "`ralph prd plan` is a conversation and needs a terminal.",
            f"Without one, write {inputs.folder}/prd.md and {inputs.folder}/tasks.json (example in docs/prd.md),"
            " or import an existing list: ralph prd import FILE",
        )
    if locks.is_held(here(project_dir).lock, open_home().path):
        raise RalphError(
            f"A run is active in {project_dir}.", "Wait for it, or stop it. To see it: ralph status"
        )
    settings = load_with_agent(settings_file, {}, agent or None, CLAUDE).settings
    spec = agent_specs(settings.agent, None)[0]
    for line in planning.take_prd(inputs, source, force=force) if source else ():
        click.echo(clean(line), err=True)
    before = planning.current_list(inputs)
    code = planning.talk(inputs, spec)
    if code:
        click.echo(clean(f"{spec.name} exited with code {code}."), err=True)
    return _report(inputs, planning.problems(inputs, before))


def _report(inputs: PrdInputs, problems: list[str]) -> int:
    from ralph.core.text import clean
    from ralph.prd import plan

    if problems:
        lines = "\n  ".join(clean(each) for each in problems)
        raise RalphError(
            f"The plan is not ready:\n  {lines}", "Fix this, or continue planning: ralph prd plan"
        )
    board = plan.load_board(inputs)
    count = len(board["userStories"])
    click.echo(f"Planned: {count} {'story' if count == 1 else 'stories'}.")
    for line in plan.introduction(board, inputs):
        click.echo(clean(line), err=True)
    click.echo("Next: review both files, commit them, then run: ralph prd run", err=True)
    return 0
