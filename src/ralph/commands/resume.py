"""`ralph resume`: resume a run that was stopped, killed or paused."""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import (
    COUNT,
    allow_option,
    budget_options,
    find_run,
    finish,
    make_look,
    make_view,
    open_home,
    optional_run_argument,
    settings_here,
    view_options,
)
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.core.model import Resume
    from ralph.store.codec import RunBrief
    from ralph.store.runs import Run


@click.command()
@optional_run_argument
@click.option("-m", "--maximum-iterations", type=COUNT, metavar="N", help="New total iteration limit.")
@budget_options
@allow_option("Glob of tests that may have changed, in addition to earlier ones; repeatable. [none]")
@click.option(
    "--stream-agent-output/--no-stream-agent-output",
    "stream",
    default=True,
    help="Show agent output live. [on]",
)
@view_options
def command(
    run: str | None,
    maximum_iterations: int | None,
    max_cost_usd: float | None,
    max_tokens: int | None,
    max_duration_seconds: float | None,
    allow: tuple[str, ...],
    stream: bool,
    verbose: bool,
    as_json: bool,
    detach: bool,
) -> int:
    """Resume a run where it stopped. Without RUN, resume the newest unfinished run in this directory.

    Finished steps are not repeated; an interrupted iteration starts over. A run that stopped at a limit needs
    a higher one. A run that waits because old tests fail completes with `--allow`, if their change is right. The
    settings are not read again.

    \b
    ralph resume
    ralph resume 7f3a -m 20
    ralph resume 7f3a --allow 'tests/**'
    """
    from ralph.core.model import FLOW_RULES, Resume
    from ralph.runs import background, control, location, locking, session

    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run) if run else session.unfinished(runs, location.here(Path.cwd()))
    brief = runs.brief(chosen.id)
    limits = (maximum_iterations, max_cost_usd, max_tokens, max_duration_seconds)
    go_on = Resume(time.time(), *limits, allow=allow)
    if chosen.is_live:
        click.echo(control.unpause(runs, chosen, go_on), err=True)
        return 0
    if chosen.task is not None:
        raise RalphError(
            f"Run {chosen.id} belongs to task {chosen.task} (role {chosen.role}).",
            f"To continue the task: ralph work --task {chosen.task}",
        )
    _check(chosen, brief, go_on)
    runs.db.close()
    look = make_look(settings_here(), verbose=verbose, stream=stream)
    view = partial(make_view, look, as_json=as_json)
    with background.signals() as wakeup:
        alone = FLOW_RULES[chosen.flow].locks_folder_only
        lock = locking.lock(home, location.location_of(chosen), wakeup, view(), alone=alone)
        return finish(home, chosen, lock, wakeup, view, go_on, detach=detach)


def _check(run: Run, brief: RunBrief, go_on: Resume) -> None:
    """Refuse to resume a run that would stop again at once."""
    from ralph.core import policy
    from ralph.core.model import Cause, Outcome

    stop = brief.stop
    if stop is None:
        return
    if stop.outcome is Outcome.COMPLETE:
        raise RalphError(
            f"Run {run.id} is complete. There is nothing to resume.", 'To start a new run: ralph run -p "…"'
        )
    used = {
        Cause.ITERATIONS: (brief.iteration, go_on.iterations, brief.limits.iterations, "-m"),
        Cause.COST: (brief.usage.cost_usd, go_on.cost_usd, brief.limits.cost_usd, "--max-cost-usd"),
        Cause.TOKENS: (brief.usage.tokens, go_on.tokens, brief.limits.tokens, "--max-tokens"),
        Cause.DURATION: (brief.elapsed, go_on.seconds, brief.limits.seconds, "--max-duration-seconds"),
    }
    needs_iteration = stop.cause in (Cause.NEVER_CLAIMED, Cause.STAGNATION) or go_on.iterations is not None
    cause = Cause.ITERATIONS if needs_iteration and stop.cause not in used else stop.cause
    spent, given, old, option = used.get(cause, (0.0, None, 0.0, ""))
    limit = old if given is None else given
    if spent >= limit and (limit > 0 or cause is Cause.ITERATIONS):
        unit = {Cause.COST: "USD", Cause.DURATION: "seconds"}.get(cause, cause)
        raise RalphError(
            f"Run {run.id} has used {_amount(spent)} of {_amount(limit)} {unit} and would stop at once.",
            _give_more(run, option, spent),
        )
    if stop.cause is Cause.OLD_TESTS:
        return
    if too_dear := policy.unaffordable(policy.raised(brief.limits, go_on), brief.usage, brief.iteration):
        cause, reason = too_dear
        spent, _, limit, option = used[cause]
        raise RalphError(
            f"Run {run.id} would stop at once: {reason}.", _give_more(run, option, max(spent, limit))
        )


def _give_more(run: Run, option: str, spent: float) -> str:
    return f"Raise the limit: ralph resume {run.id} {option} {_amount(math.ceil(2 * spent) or 1)}"


def _amount(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.2f}".rstrip("0")
