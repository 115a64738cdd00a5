"""`ralph prd import`: import a prd.json or a Markdown checklist into ralph/."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ralph.commands.common import open_home
from ralph.commands.prd.options import folder_option, project_option, say_undone


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@project_option
@folder_option
@click.option("--force", is_flag=True, help="Replace an existing PRD and stories; keeps a backup of them.")
@click.option("--trust", is_flag=True, help="Treat stories marked done as approved, without a review.")
def import_(file: Path, project_dir: Path, ralph_dir: str, force: bool, trust: bool) -> int:
    """Import a prd.json (userStories with acceptanceCriteria and passes) or a Markdown checklist into ralph/.

    In a checklist, every top-level `- [ ]` is a story, the items below it are its criteria, and headings are
    groups. Stories marked done still need a review. Content that does not fit into tasks.json goes into the notes
    or prd.md, and is reported.

    \b
    ralph prd import prd.json
    ralph prd import TODO.md --project-dir ~/shop
    """
    from ralph.core.text import clean
    from ralph.prd import files, import_lists, plan
    from ralph.runs import background, locking
    from ralph.runs.location import here

    home, folder = open_home(), plan.inside(project_dir, ralph_dir)
    imported = import_lists.read(file, files.named_branch(project_dir, folder), trust=trust)
    with background.signals() as wakeup:
        lock = locking.lock(home, here(project_dir), wakeup, lambda event: None)
        try:
            say_undone(plan.take_over(home, plan.PrdInputs(project_dir, folder)))
            kept = import_lists.write(project_dir, folder, imported, force=force)
        finally:
            os.close(lock)
    for line in (*imported.said, *kept):
        click.echo(clean(line), err=True)
    found = imported.board["userStories"]
    done = sum(story["passes"] for story in found)
    words = f"Imported {len(found)} {'story' if len(found) == 1 else 'stories'} into {folder}/"
    if imported.claimed:
        words += f"; marked done, to be reviewed: {', '.join(imported.claimed)}"
    click.echo(clean(f"{words}{f'; {done} approved without a review' if done else ''}."))
    click.echo(f"Next: read {folder}/prd.md and {folder}/tasks.json, then: ralph prd run", err=True)
    return 0
