"""Starts a run, resumes it, and drives it to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from ralph.core import policy
from ralph.core.events import Event, Notice, RunEnded
from ralph.core.model import NotifyTargets, Outcome, Plan, Resume, State
from ralph.errors import RalphError
from ralph.loop.driver import Driver
from ralph.loop.run_context import RunContext
from ralph.notify.notifier import RunNotifier
from ralph.notify.sender import Sender
from ralph.process.client import Wakeup
from ralph.runs.context import opened_run
from ralph.runs.location import Location, runs_of
from ralph.runs.recovery import recovered
from ralph.runs.replay import announced, started
from ralph.store.home import Home
from ralph.store.journal import LoadedRun, commits, load
from ralph.store.notified import keep_targets, kept_targets, notified_of_run
from ralph.store.prune import LARGE, tree_size
from ralph.store.runs import Run, Runs

Tell = Callable[[Event], None]


def begin(home: Home, where: Location, plan: Plan, targets: NotifyTargets | None = None) -> Run:
    """Write the run and its plan to the store, ready to be driven. `targets` are its notification targets."""
    runs = home.runs()
    try:
        run = runs.create(plan, str(where.lock), where.project)
    finally:
        runs.db.close()
    if targets is not None and not targets.is_empty:
        keep_targets(home.make_streams(run.id), targets)
    return run


def drive(
    home: Home,
    run: Run,
    lock: int,
    wakeup: Wakeup,
    tell: Tell,
    resume: Resume | None = None,
    taken_over: Callable[[], None] | None = None,
    secrets: frozenset[str] = frozenset(),
) -> State:
    """Drive a stored run until it stops. `taken_over` is called once this process owns it."""
    runs = home.runs(patience=2.0)
    loaded = load(runs.db, runs.path, run.id)
    plan = policy.rejudged(loaded.state.plan, resume) if resume else loaded.state.plan
    if os.path.realpath(plan.directory) != plan.directory:
        raise RalphError(f"{plan.directory} is no longer the directory in which the run started.")
    runs.take_over(run.id)
    if taken_over is not None:
        taken_over()
    notifier = _notifier(home, runs, plan, tell)
    with opened_run(home, runs, plan, lock, wakeup, tell, notifier, secrets) as context:
        try:
            context.runtime.prepare(run.id)
            state = recovered(context, loaded, home.streams(run.id), resume)
            _introduce(context, loaded, state, is_resumed=resume is not None)
            context.vcs.record_baseline()
            driver = Driver(context, state)
            state = driver.drive()
            if notifier is not None:
                notifier.finish(lambda: wakeup.count > 1)
            if not plan.rules.is_part:
                _tell_size(home, tell)
            _tell_end(context, state, driver.files_changed)
            return state
        finally:
            with suppress(RalphError):
                runs.let_go(run.id)
            runs.db.close()


def _notifier(home: Home, runs: Runs, plan: Plan, tell: Tell) -> RunNotifier | None:
    """The notifier of a run, or None if no notifications are configured."""
    streams = home.streams(plan.run)
    try:
        targets = kept_targets(streams)
    except RalphError as error:
        tell(Notice(f"No notifications will be sent: {error.message}"))
        return None
    return (
        RunNotifier(tell, Sender(targets, notified_of_run(streams)), plan, runs)
        if not targets.is_empty
        else None
    )


def _introduce(context: RunContext, loaded: LoadedRun, state: State, *, is_resumed: bool) -> None:
    introduction = started(state.plan, state.limits.iterations)
    context.tell(replace(introduction, resumed=is_resumed, used=state.usage, elapsed=state.elapsed))
    if loaded.has_cut_off_agent:
        context.tell(Notice("Repeating the interrupted iteration."))
    for text in (*announced(state.plan), *context.confinement.introduction(), *context.confinement.news()):
        context.tell(Notice(text))
    if state.plan.sandbox.is_real and context.vcs.has_hooks():
        context.tell(Notice("Git hooks are disabled: they would run the agent's work outside the sandbox."))
    if context.vcs.missing:
        context.tell(Notice(context.vcs.missing))


def _tell_size(home: Home, tell: Tell) -> None:
    size = tree_size(home.path / "runs")
    with suppress(OSError):
        size += home.database.stat().st_size
    if size > LARGE:
        tell(Notice(f"The store has grown to {size / (1 << 30):.1f} GB. Run `ralph prune` to shrink it."))


def _tell_end(context: RunContext, state: State, files: int | None) -> None:
    assert state.stop is not None
    run = state.plan.run
    made = commits(context.runs.db, context.runs.path, run)
    context.tell(RunEnded(run, state.stop, state.iteration, state.usage, state.elapsed, files, made))


def unfinished(runs: Runs, where: Location) -> Run:
    """The newest run of a directory that can be resumed."""
    for run in runs_of(runs, where):
        stop = runs.brief(run.id).stop
        if stop is None or stop.outcome is not Outcome.COMPLETE:
            return run
    raise RalphError(
        f"No unfinished run in {where.lock}.", "Start one with `ralph run`. To list the runs: ralph status"
    )
