"""`ralph resume`: go on with a run that was stopped, killed or paused."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ralph.commands.common import make_view, open_home, optional_run_argument, view_options
from ralph.core.model import Outcome, Resume
from ralph.errors import RalphError
from ralph.flows import session
from ralph.store.runs import Brief, Run


@click.command()
@optional_run_argument
@click.option(
    "-m", "--maximum-iterations", type=click.IntRange(min=1), metavar="N", help="The new limit in all."
)
@click.option("--max-cost-usd", type=click.FloatRange(min=0), metavar="USD", help="The new budget in all.")
@click.option(
    "--stream-agent-output/--no-stream-agent-output", "stream", default=True, help="Show its output."
)
@view_options
def command(
    run: str | None,
    maximum_iterations: int | None,
    max_cost_usd: float | None,
    stream: bool,
    verbose: bool,
    as_json: bool,
    detach: bool,
) -> int:
    """Go on with a run where it was; without RUN, the newest unfinished one of this directory.

    No finished step is repeated; an iteration that was cut off is done again. A run that ended at a
    limit needs a higher one.

    \b
    ralph resume
    ralph resume 7f3a -m 20
    """
    home, where = open_home(), session.here(Path.cwd())
    runs = home.runs()
    chosen = runs.find(run) if run else session.unfinished(runs, where)
    brief = runs.brief(chosen.id)
    command = Resume(time.time(), maximum_iterations, max_cost_usd)
    if chosen.is_live:
        if not (brief and brief.paused):
            raise RalphError(f"Run {chosen.id} is running.", f"`ralph status {chosen.id}` shows it.")
        runs.send(chosen.id, command)
        click.echo(f"Run {chosen.id} goes on.", err=True)
        return 0
    _check(chosen, brief, maximum_iterations)
    runs.db.close()
    tell = make_view(as_json=as_json, verbose=verbose, stream=stream)
    at = session.place_of(chosen)
    lock = session.lock(home, at, tell)
    if detach and not session.detach(home.streams(chosen.id) / "console.log"):
        click.echo(chosen.id)
        return 0
    if detach:
        tell = make_view(as_json=as_json, verbose=verbose, stream=stream)
    state = session.drive(home, chosen, lock, tell, command)
    assert state.stop is not None
    return state.stop.outcome.exit_code


def _check(run: Run, brief: Brief | None, iterations: int | None) -> None:
    """Refuse what could only stop again at once."""
    if brief is None:
        raise RalphError(f"Run {run.id} was killed before it began.", "Start it again with `ralph run`.")
    if brief.stop and brief.stop.outcome is Outcome.COMPLETE:
        raise RalphError(f"Run {run.id} is complete: there is nothing to go on with.")
    limit = iterations if iterations is not None else brief.limits.iterations
    if brief.iteration >= limit and not (brief.stop is None and iterations is None):
        raise RalphError(
            f"Run {run.id} has used {brief.iteration} iterations, and the limit is {limit}.",
            f"Give a higher one: ralph resume {run.id} -m {brief.iteration + 5}",
        )
