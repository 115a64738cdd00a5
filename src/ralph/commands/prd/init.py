"""`ralph prd init`: the folder of a PRD loop from the templates."""

from __future__ import annotations

from pathlib import Path

import click

from ralph.commands.prd.options import folder_option, project_option


@click.command("init")
@project_option
@click.option(
    "--name", default="", metavar="FEATURE", help="Its branch is ralph/FEATURE, its list has its name."
)
@folder_option
@click.option(
    "--force", is_flag=True, help="Add what is missing to a folder that is there; nothing is overwritten."
)
def init_(project_dir: Path, name: str, ralph_dir: str, force: bool) -> int:
    """Make ralph/ with prd.md, tasks.json, progress.txt and prompt.md, and let git ignore the marker of a loop.

    \b
    ralph prd init --name login
    """
    from ralph.core.text import clean
    from ralph.prd import files
    from ralph.prd.plan import inside

    folder = inside(project_dir, ralph_dir)
    made = files.make(project_dir, folder, name, force=force)
    for each in made.new:
        click.echo(f"made   {each if each == '.gitignore' else f'{folder}/{each}'}")
    for each in made.old:
        click.echo(f"there  {folder}/{each}")
    click.echo("\nNext:")
    branch = f", on a branch of its own: git switch -c {made.branch}" if made.branch else "."
    steps = [
        f"Plan it: `ralph prd plan` asks the agent to write {folder}/prd.md and {folder}/tasks.json with you;"
        " `ralph prd import FILE` takes a list that you have; or write them by hand.",
        f"Read and commit them{branch}",
        "Start the loop: ralph prd run",
    ]
    for number, step in enumerate(steps, 1):
        click.echo(clean(f"  {number}. {step}"))
    return 0
