"""Commands to a run from any terminal: each is written to the store, and its effect is returned as a message."""

from __future__ import annotations

import time

from ralph.core.model import (
    Cancel,
    ClaimKind,
    Outcome,
    Pause,
    PromptVia,
    Purpose,
    Resume,
    RunAgent,
    Steer,
    Stop,
)
from ralph.errors import RalphError
from ralph.runs.recovery import cancel_dead
from ralph.store.home import Home
from ralph.store.journal import LoadedRun, load
from ralph.store.runs import Run, Runs
from ralph.store.task_folder import Folder


def pause(runs: Runs, run: Run) -> str:
    if not run.is_live:
        raise RalphError(f"Run {run.id} is not running.", "To list the runs: ralph status")
    runs.send(run.id, Pause(time.time()))
    return f"Run {run.id} pauses after the current step. To continue: ralph resume {run.id}"


def unpause(runs: Runs, run: Run, resume: Resume) -> str:
    """Resume a live run that is paused."""
    if not runs.brief(run.id).paused:
        raise RalphError(f"Run {run.id} is already running.", f"See: ralph status {run.id}")
    runs.send(run.id, resume)
    return f"Run {run.id} continues."


def steer(runs: Runs, run: Run, text: str) -> tuple[int, str]:
    """Queue guidance for a run. Returns the number of the command, to wait for its delivery, and a message."""
    brief = runs.brief(run.id)
    if brief.stop and brief.stop.outcome is Outcome.COMPLETE:
        raise RalphError(f"Run {run.id} is complete: there is no next prompt for the guidance.")
    if not text.strip():
        raise RalphError("The guidance is empty.", 'ralph steer RUN "what to do differently"')
    loaded = load(runs.db, runs.path, run.id)
    if loaded.state.plan.claim.kind is ClaimKind.GIVEN:
        raise RalphError(
            f"Run {run.id} only runs checks: it has no prompt for the guidance.",
            f"See: ralph status {run.task or run.id}",
        )
    number = runs.send(run.id, Steer(time.time(), 0, text))
    if not run.is_live:
        return number, f"Queued: delivered when the run continues. To continue: ralph resume {run.id}"
    if guidance_folder(runs, run.id) is not None:
        return number, "Queued: will be posted to the bus of the task."
    return number, _queued(loaded, brief.limits.iterations)


def _queued(loaded: LoadedRun, limit: int) -> str:
    """Which prompt of a live run will have the guidance: the one of the agent at work is already written."""
    step = loaded.half_done.step if loaded.half_done is not None else None
    is_at_work = isinstance(step, RunAgent) and step.purpose is Purpose.WORK
    iteration = loaded.state.iteration + (2 if is_at_work else 1)
    if iteration <= limit:
        return f"Queued for the next prompt (iteration {iteration})."
    return f"Queued, but iteration {limit} is the last one: delivered if the run continues."


def guidance_folder(runs: Runs, run: str) -> Folder | None:
    """The folder of a supervised command without a prompt, whose guidance is posted to its bus; otherwise None."""
    plan = load(runs.db, runs.path, run).state.plan
    return Folder(plan.task, run) if plan.task and plan.agents[0].prompt_via is PromptVia.NONE else None


def cancel(home: Home, runs: Runs, run: Run) -> str:
    """Cancel a run. A live one is asked to stop and does so soon; for a dead one the journal is completed."""
    if stop := runs.brief(run.id).stop:
        raise RalphError(f"Run {run.id} has already stopped: {stop.outcome}.")
    if not run.is_live:
        return cancelled(run.id, cancel_dead(home, run), "; no process was running it")
    runs.send(run.id, Cancel(time.time()))
    return f"Cancelling run {run.id}..."


def cancelled(run: str, stop: Stop | None, more: str = "") -> str:
    """The result of cancelling: the run may have stopped by itself at the same moment."""
    if stop is None or stop.outcome is Outcome.INTERRUPTED:
        return f"Run {run} cancelled{more}."
    return f"Run {run} had already stopped: {stop.outcome}."
