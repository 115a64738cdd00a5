"""`ralph prd run`: implement, review and fix stories until all are approved."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from ralph.commands.common import (
    COUNT,
    load_with_agent,
    make_look,
    make_view,
    open_home,
    sandbox_options,
    start,
    view_options,
)
from ralph.commands.prd.options import CLAUDE, folder_option, project_option, say_undone
from ralph.stories.rules import REVIEW_CAP


@click.command(
    "run",
    epilog="Exit codes: 0 every story is approved · 1 limit reached · 2 configuration or fatal error ·"
    " 3 waiting for something external · 130 interrupted",
)
@click.option(
    "-n",
    "--max-iterations",
    type=COUNT,
    default=15,
    metavar="N",
    help="Maximum number of iterations. [15]",
)
@folder_option
@project_option
@click.option("-m", "--model", default="", metavar="MODEL", help="Model for the agent, for example opus.")
@click.option(
    "--agent",
    metavar="COMMAND",
    help="Agent command with its flags, instead of the configured agent. [claude]",
)
@sandbox_options
@click.option("--skip-review", is_flag=True, help="Skip reviews: a story passes when it is verified.")
@click.option(
    "--review-cap",
    type=COUNT,
    default=REVIEW_CAP,
    metavar="N",
    help=f"Maximum reviews per story; then it is approved with a note. [{REVIEW_CAP}]",
)
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@view_options
def run_(
    max_iterations: int,
    ralph_dir: str,
    project_dir: Path,
    model: str,
    agent: str | None,
    sandbox: bool | None,
    sandbox_backend: str | None,
    skip_review: bool,
    review_cap: int,
    settings_file: str | None,
    verbose: bool,
    as_json: bool,
    detach: bool,
) -> int:
    """Work through the stories in ralph/tasks.json, one per iteration, until all are approved.

    A story is implemented, reviewed with a fresh context, and either approved or sent back with feedback. An approval
    counts only after Ralph has run the verifyCommands. An iteration's forbidden changes are undone and
    reported to the next one.

    \b
    ralph prd run
    ralph prd run -n 30 -m opus --review-cap 3
    """
    from ralph.core.text import clean
    from ralph.prd import plan
    from ralph.runs.location import here
    from ralph.runs.sandbox_choice import AUTO, Wanted, choose

    os.chdir(project_dir)
    folder = plan.inside(project_dir, ralph_dir)
    inputs = plan.PrdInputs(project_dir, folder, max_iterations, model, skip_review, review_cap)
    loaded = load_with_agent(settings_file, {}, agent or None, CLAUDE)
    chosen = choose(loaded, Wanted(sandbox, sandbox_backend), AUTO)
    look = make_look(loaded.settings, verbose=verbose, stream=loaded.settings.stream_agent_output)
    home = open_home()

    def look_around() -> None:
        say_undone(plan.take_over(home, inputs))
        for line in plan.introduction(plan.load_board(inputs), inputs):
            click.echo(clean(line), err=True)

    return start(
        plan.plan(loaded.settings, inputs, chosen),
        here(inputs.directory),
        partial(make_view, look, as_json=as_json),
        home,
        look_around,
        detach=detach,
        notify=loaded.settings.notify,
    )
