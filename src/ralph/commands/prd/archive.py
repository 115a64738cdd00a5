"""`ralph prd archive`: archive a loop's files with a summary, and start with fresh templates."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ralph.commands.common import open_home
from ralph.commands.prd.options import folder_option, project_option, say_undone


@click.command("archive")
@project_option
@folder_option
@click.option("--label", default="", metavar="LABEL", help="Name of the archive. [the branch]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def archive_(project_dir: Path, ralph_dir: str, label: str, as_json: bool) -> int:
    """Archive a loop's files with a summary, and start with fresh templates.

    Moves prd.md, tasks.json and progress.txt to ralph-archive/<date>-<branch>/, puts fresh templates into ralph/,
    and commits only these changes. Not possible while a loop is running. The summary lists unfinished stories. If
    the command is interrupted, run it again.

    \b
    ralph prd archive
    ralph prd archive --label login-v1
    """
    from ralph.core.text import clean
    from ralph.prd import archive, plan
    from ralph.runs import background, locking
    from ralph.runs.location import here

    home = open_home()
    inputs = plan.PrdInputs(project_dir, plan.inside(project_dir, ralph_dir))
    with background.signals() as wakeup:
        lock = locking.lock(home, here(project_dir), wakeup, lambda event: None)
        try:
            say_undone(plan.take_over(home, inputs))
            done = archive.archive(inputs, label)
        finally:
            os.close(lock)
    if as_json:
        click.echo(archive.as_json(done))
        return 0
    counts = done.counts
    reviews = f"{counts.reviews} review{'s' * (counts.reviews != 1)}"
    click.echo(clean(f"{done.path}: {counts.done} of {counts.all} stories done, {reviews}."))
    if counts.unfinished:
        click.echo(clean(f"Unfinished: {', '.join(counts.unfinished)}."))
    if counts.at_cap:
        click.echo(
            clean(f"Approved only at the review cap: {', '.join(counts.at_cap)}; see {done.path}/summary.md.")
        )
    if done.commit:
        click.echo(f"Committed as {done.commit[:10]}.", err=True)
    else:
        click.echo(clean(f"ralph: warning: not committed: {done.problem}."), err=True)
    return 0
