"""What people say to a run, from whatever terminal: each is a command in the store, and what follows from it in words."""

from __future__ import annotations

import time

from ralph.core.model import Cancel, Outcome, Pause, PromptVia, Resume, Steer, Stop
from ralph.errors import RalphError
from ralph.runs.recovery import cancel_dead
from ralph.store.home import Home
from ralph.store.journal import load
from ralph.store.runs import Run, Runs
from ralph.store.task_folder import Folder


def pause(runs: Runs, run: Run) -> str:
    if not run.is_live:
        raise RalphError(f"Run {run.id} is not running.", "`ralph status` shows what is.")
    runs.send(run.id, Pause(time.time()))
    return f"Run {run.id} pauses after the step in hand. Go on with: ralph resume {run.id}"


def unpause(runs: Runs, run: Run, go_on: Resume) -> str:
    """Let a live run go on that is held."""
    if not runs.brief(run.id).paused:
        raise RalphError(f"Run {run.id} is running.", f"`ralph status {run.id}` shows it.")
    runs.send(run.id, go_on)
    return f"Run {run.id} goes on."


def steer(runs: Runs, run: Run, text: str) -> tuple[int, str]:
    """Returns the number of the command too: by that its delivery can be waited for."""
    brief = runs.brief(run.id)
    if brief.stop and brief.stop.outcome is Outcome.COMPLETE:
        raise RalphError(f"Run {run.id} is complete: there is no next prompt.")
    if not text.strip():
        raise RalphError("The guidance is empty.", 'ralph steer RUN "what to do differently"')
    number = runs.send(run.id, Steer(time.time(), 0, text))
    if not run.is_live:
        return number, f"Queued: it is delivered when the run goes on (ralph resume {run.id})."
    if guidance_folder(runs, run.id) is not None:
        return number, "Queued: it goes on the bus of the task."
    iteration = brief.iteration + 1
    return number, f"Queued: it goes into the next prompt (iteration {iteration} or the one after)."


def guidance_folder(runs: Runs, run: str) -> Folder | None:
    """The folder of a command that has no prompt: guidance goes on its bus."""
    plan = load(runs.db, runs.path, run).state.plan
    return Folder(plan.task, run) if plan.task and plan.agents[0].prompt_via is PromptVia.NONE else None


def cancel(home: Home, runs: Runs, run: Run) -> str:
    """End a run. A live one is told to, and ends a little later; of a dead one only the journal is left."""
    if stop := runs.brief(run.id).stop:
        raise RalphError(f"Run {run.id} has already ended: {stop.outcome}.")
    if not run.is_live:
        return cancelled(run.id, cancel_dead(home, run), "; no process was running it")
    runs.send(run.id, Cancel(time.time()))
    return f"Cancelling run {run.id}..."


def cancelled(run: str, stop: Stop | None, more: str = "") -> str:
    """A run may come to its own end in the moment in which it is to be cancelled."""
    if stop is None or stop.outcome is Outcome.INTERRUPTED:
        return f"Run {run} is cancelled{more}."
    return f"Run {run} had come to its end: {stop.outcome}."
