"""`ralph prd init`: create the folder of a PRD loop from templates."""

from __future__ import annotations

from pathlib import Path

import click

from ralph.commands.prd.options import folder_option, project_option


@click.command("init")
@project_option
@click.option(
    "--name", default="", metavar="FEATURE", help="Name of the feature; its branch is ralph/FEATURE."
)
@folder_option
@click.option("--force", is_flag=True, help="Add missing files to an existing folder; overwrites nothing.")
def init_(project_dir: Path, name: str, ralph_dir: str, force: bool) -> int:
    """Create ralph/ with prd.md, tasks.json, progress.txt and prompt.md.

    Also adds the marker file of a running loop, .ralph-active, to .gitignore.

    \b
    ralph prd init --name login
    """
    from ralph.core.text import clean
    from ralph.prd import files
    from ralph.prd.plan import inside

    folder = inside(project_dir, ralph_dir)
    made = files.make(project_dir, folder, name, force=force)
    for each in made.new:
        click.echo(f"created  {each if each == '.gitignore' else f'{folder}/{each}'}")
    for each in made.old:
        click.echo(f"exists   {folder}/{each}")
    click.echo("\nNext:")
    branch = f" on a new branch: git switch -c {made.branch}" if made.branch else "."
    steps = [
        f"Write {folder}/prd.md and {folder}/tasks.json: with the agent (`ralph prd plan`), from an existing list"
        " (`ralph prd import FILE`), or by hand.",
        f"Review and commit them{branch}",
        "Start the loop: ralph prd run",
    ]
    for number, step in enumerate(steps, 1):
        click.echo(clean(f"  {number}. {step}"))
    return 0
