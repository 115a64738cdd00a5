"""`ralph logs`: show the log of a run, from the journal and the raw streams."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import (
    COUNT,
    find_run,
    make_log_view,
    make_look,
    newest_run,
    open_home,
    optional_run_argument,
    settings_here,
)
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.home import Home
    from ralph.store.runs import Run, Runs

POLL_SECONDS = 0.1


@click.command()
@optional_run_argument
@click.option("-f", "--follow", is_flag=True, help="Keep showing new events until the run ends.")
@click.option("--iteration", type=COUNT, metavar="N", help="Show only this iteration.")
@click.option("--raw", is_flag=True, help="Print the agent's raw stdout, with secrets redacted.")
@click.option("--replay", is_flag=True, help="Show only the agent's output, including unrecognised lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
def command(
    run: str | None, follow: bool, iteration: int | None, raw: bool, replay: bool, as_json: bool
) -> int:
    """Show the log of a run. Without RUN, show the newest run in this directory.

    \b
    ralph logs -f                  # watch a detached run
    ralph logs 7f3a --iteration 2
    ralph logs 7f3a --replay       # the agent's output again, formatted
    """
    from ralph.core.events import AgentEvent, IterationStarted
    from ralph.runs.replay import Replay

    if raw and (as_json or follow or replay):
        raise RalphError("--raw cannot be used with --json, --follow or --replay.")
    home = open_home()
    runs = home.runs()
    chosen = find_run(home, runs, run) if run else newest_run(runs)
    if raw:
        return _raw(home, runs, chosen, iteration)
    view = make_log_view(make_look(settings_here(), verbose=replay), as_json=as_json)
    past = Replay(runs, chosen.id, home.streams(chosen.id), iteration)
    while True:
        live = runs.find(chosen.id).is_live
        for event, at in past.news():
            if not replay or isinstance(event, AgentEvent | IterationStarted):
                view(event, at)
        sys.stdout.flush()
        if not follow or not live:
            break
        time.sleep(POLL_SECONDS)
    if iteration is not None and iteration not in past.iterations:
        raise RalphError(
            f"Run {chosen.id} has no iteration {iteration}.",
            f"To list its iterations: ralph status {chosen.id}",
        )
    return 0


def _raw(home: Home, runs: Runs, run: Run, iteration: int | None) -> int:
    """Print the streams unchanged, but without control characters on a terminal."""
    from ralph.core.text import clean

    found = False
    for path, number in _streams(home, runs, run):
        if iteration is not None and number != iteration:
            continue
        found = True
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                if sys.stdout.isatty():
                    sys.stdout.write(clean(data.decode(errors="replace")))
                else:
                    sys.stdout.buffer.write(data)
    if not found:
        raise RalphError(
            f"Run {run.id} has no agent output" + (f" for iteration {iteration}." if iteration else ".")
        )
    return 0


def _streams(home: Home, runs: Runs, run: Run) -> list[tuple[Path, int]]:
    from ralph.core.model import Purpose, RunAgent
    from ralph.store.journal import steps
    from ralph.store.streams import STDOUT, stream_name

    found = []
    for entry in steps(runs.db, runs.path, run.id, looks=False):
        match entry.step:
            case RunAgent(purpose=Purpose.WORK, iteration=number):
                path = home.streams(run.id) / (stream_name(number, entry.seq, Purpose.WORK) + STDOUT)
                found += [(path, number)] if path.exists() else []
    return found
