"""A run from its lock to its last row: begin it, resume it, drive it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec.structs import replace

from ralph.core.events import Event, Notice, RunEnded
from ralph.core.model import (
    Flow,
    NotifyTargets,
    Outcome,
    Plan,
    Resume,
    State,
)
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.loop.bus_reporter import BusReporter
from ralph.loop.confinement import ConfinedRun, opened_confinement
from ralph.loop.driver import Driver
from ralph.loop.run_context import Clock, RunContext
from ralph.loop.story_board import StoryBoard
from ralph.loop.supervised import Supervised
from ralph.notify.notifier import RunNotifier
from ralph.notify.sender import Sender
from ralph.process.client import Wakeup, Warden
from ralph.runs import agent_hooks
from ralph.runs.location import Location as Location
from ralph.runs.location import here as here
from ralph.runs.location import runs_of
from ralph.runs.recovery import recovered
from ralph.runs.replay import announced, started
from ralph.runs.repository import pinned_runner, scm_runner
from ralph.scm.repository import find_repository
from ralph.scm.version_control import VersionControl
from ralph.store import locks
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.journal import Journal, LoadedRun, commits, load
from ralph.store.marker import Marker
from ralph.store.prune import LARGE, tree_size
from ralph.store.runs import Run, Runs, parent_run
from ralph.store.runtime import Runtime
from ralph.store.task_folder import Folder
from ralph.store.told import keep_targets, kept_targets, told_of_run

Tell = Callable[[Event], None]

DYING_SECONDS = 10.0
"""How long the tree of a killed ralph may take to end before its directory is free again."""


# ---- beginning and resuming ----


def begin(
    home: Home,
    flow: Flow,
    where: Location,
    make_plan: Callable[[str], Plan],
    targets: NotifyTargets | None = None,
) -> Run:
    """Write the run and its plan into the store; it can be driven from here on. `ways`: who is notified, and how."""
    runs = home.runs()
    try:
        run = runs.create(flow, str(where.lock), where.project, make_plan)
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
    """Drive a run that is in the store until it stops; `taken_over` is called once it is ours."""
    runs = home.runs(patience=2.0)
    loaded = load(runs.db, runs.path, run.id)
    plan = loaded.state.plan
    if os.path.realpath(plan.directory) != plan.directory:
        raise RalphError(f"{plan.directory} is not the directory any more that the run began in.")
    runs.take_over(run.id)
    if taken_over is not None:
        taken_over()
    driver: Driver | None = None

    def is_interrupted() -> bool:
        return driver.is_interrupted() if driver else wakeup.count > 1

    notifier = _notifier(home, runs, plan, tell)
    if notifier is not None:
        tell, secrets = notifier, secrets | notifier.sender.targets.secrets
    with _run_context(home, runs, plan, lock, wakeup, tell, is_interrupted) as context:
        context = replace(context, secrets=secrets)
        if notifier is not None:
            context = replace(context, ended=notifier.ended)
        try:
            context.runtime.prepare(run.id)
            state = recovered(context, loaded, home.streams(run.id), resume)
            _introduce(context, loaded, state, is_resumed=resume is not None)
            context.vcs.record_baseline()
            driver = Driver(context, state)
            state = driver.drive()
            if notifier is not None:
                notifier.finish(lambda: wakeup.count > 1)
            if plan.flow is not Flow.WORK:
                _tell_size(home, tell)
            _tell_end(context, state, driver.files_changed)
            return state
        finally:
            with suppress(RalphError):
                runs.let_go(run.id)
            runs.db.close()


def _notifier(home: Home, runs: Runs, plan: Plan, tell: Tell) -> RunNotifier | None:
    """Who notifies people, if anybody is to be notified."""
    streams = home.streams(plan.run)
    try:
        targets = kept_targets(streams)
    except RalphError as error:
        tell(Notice(f"Nobody is notified: {error.message}"))
        return None
    return (
        RunNotifier(tell, Sender(targets, told_of_run(streams)), plan, runs) if not targets.is_empty else None
    )


@contextmanager
def _run_context(
    home: Home,
    runs: Runs,
    plan: Plan,
    lock: int,
    wakeup: Wakeup,
    tell: Tell,
    is_interrupted: Callable[[], bool],
) -> Iterator[RunContext]:
    """All that a run has while it goes on: its files, its processes, its repository, the folder of its task."""
    streams = home.make_streams(plan.run)
    folder = Folder(plan.task, plan.run) if plan.task else None
    reporter = BusReporter(tell, folder) if folder else None
    with (
        Runtime(Path(plan.directory)) as runtime,
        opened_directory(str(streams)) as streams_directory,
        Warden(wakeup, lock) as warden,
        _version_control(plan, warden, streams, is_interrupted) as vcs,
        folder.watched(wakeup.wake) if folder else nullcontext(),
        opened_confinement(_confined_run(plan, home, streams), warden, runtime.project) as confinement,
        _story_board(plan, runtime, home, vcs, tell) as stories,
    ):
        yield RunContext(
            runs=runs,
            journal=Journal(runs.db, runs.path, plan.run),
            runtime=runtime,
            streams=streams_directory,
            vcs=vcs,
            warden=warden,
            wakeup=wakeup,
            tell=reporter or tell,
            clock=Clock(),
            confinement=confinement,
            supervised=Supervised(reporter.folder, warden, runs, plan.run, reporter.post_end)
            if reporter
            else None,
            stories=stories,
            hooks=agent_hooks.prepare(plan, streams),
        )


def _confined_run(plan: Plan, home: Home, streams: Path) -> ConfinedRun:
    return ConfinedRun(plan, find_repository(Path(plan.directory)), real(home.path), real(streams))


@contextmanager
def _story_board(
    plan: Plan, runtime: Runtime, home: Home, vcs: VersionControl, tell: Tell
) -> Iterator[StoryBoard | None]:
    """The folder of a PRD loop; its marker is there only while the loop is."""
    prd = plan.prompt.prd
    if prd is None:
        yield None
        return
    from ralph.core.protect import tests_among  # no other flow has to wait for it

    def commit(names: list[str], message: str) -> None:
        """What cannot be committed is in the tree all the same."""
        try:
            problem = vcs.commit_files(names, message)
        except RalphError as error:
            problem = f"{error.message} {error.hint}".strip()
        if problem:
            tell(Notice(problem))

    def lost_tests(tree: str) -> tuple[list[str], list[str]]:
        """What cannot be found out is said, and nobody is stopped."""
        try:
            removed, cut = vcs.lost(tree)
        except RalphError as error:
            tell(Notice(f"{error.message} {error.hint}".strip()))
            return [], []
        return tests_among(removed), tests_among(cut)

    Marker(runtime.project).sweep()
    kept = home.prd(plan.directory, prd.folder)
    mode = "sandbox" if plan.sandbox.is_real else "direct"
    board = StoryBoard(prd, runtime.project, kept, commit, vcs.branch, lost_tests, mode)
    try:
        yield board
    finally:
        board.unmark()


def _introduce(context: RunContext, loaded: LoadedRun, state: State, *, is_resumed: bool) -> None:
    introduction = started(state.plan, state.limits.iterations)
    context.tell(replace(introduction, resumed=is_resumed, used=state.usage, elapsed=state.elapsed))
    if loaded.has_cut_off_agent:
        context.tell(Notice("The iteration that was cut off is done again."))
    for text in (*announced(state.plan), *context.confinement.introduction(), *context.confinement.news()):
        context.tell(Notice(text))
    if state.plan.sandbox.is_real and context.vcs.has_hooks():
        context.tell(
            Notice("Your git hooks are not run: they would run the agent's work outside the sandbox.")
        )
    if context.vcs.missing:
        context.tell(Notice(context.vcs.missing))


def _tell_size(home: Home, tell: Tell) -> None:
    size = tree_size(home.path / "runs")
    with suppress(OSError):
        size += home.database.stat().st_size
    if size > LARGE:
        tell(Notice(f"The store has grown to {size / (1 << 30):.1f} GB: `ralph prune` helps."))


def _tell_end(context: RunContext, state: State, files: int | None) -> None:
    assert state.stop is not None
    run = state.plan.run
    made = commits(context.runs.db, context.runs.path, run)
    context.tell(RunEnded(run, state.stop, state.iteration, state.usage, state.elapsed, files, made))


@contextmanager
def _version_control(
    plan: Plan, warden: Warden, state: Path, is_interrupted: Callable[[], bool]
) -> Iterator[VersionControl]:
    """Git at the top of the run's repository, any other command in the project."""
    repository = find_repository(Path(plan.directory))
    top = repository.top if repository else Path(plan.directory)
    with opened_directory(str(top)) as directory:
        runner = scm_runner(warden, directory, top, is_interrupted)
        if repository is not None:
            runner = pinned_runner(runner, repository, directory, state / "scm")
        yield VersionControl(plan, repository, runner, state)


def unfinished(runs: Runs, where: Location) -> Run:
    """The newest run of a directory that can go on."""
    for run in runs_of(runs, where):
        stop = runs.brief(run.id).stop
        if stop is None or stop.outcome is not Outcome.COMPLETE:
            return run
    raise RalphError(
        f"There is no unfinished run in {where.lock}.", "Start one with `ralph run`, or see `ralph status`."
    )


# ---- the lock ----


def lock(home: Home, where: Location, wakeup: Wakeup, tell: Tell, *, alone: bool = False) -> int:
    """The lock of a directory, or an error that names the run that holds it.

    `alone`: what is above it does not matter. A run that an agent starts shares the lock of its parent.
    """
    if not where.lock.is_dir():
        raise RalphError(f"{where.lock} is not there any more.", "A run can only go on where it was.")
    deadline = time.monotonic() + DYING_SECONDS
    told = False
    while True:
        try:
            return locks.acquire(where.lock, home.path, above=not alone)
        except locks.Locked as locked:
            if _is_held_for_us(home, locked.directory):
                return os.open(where.lock, os.O_RDONLY | os.O_CLOEXEC)
            holder, is_dying = _holder(home, locked.directory)
            if holder or not is_dying or time.monotonic() > deadline:
                raise RalphError(
                    f"Another run works in {locked.directory}{holder}.",
                    "Wait for it, or stop it with `ralph cancel`; `ralph status` shows it.",
                ) from None
            if not told:
                tell(Notice("Waiting for the processes of a killed run to end..."))
            told = True
            if wakeup.count:
                raise KeyboardInterrupt from None


def _is_held_for_us(home: Home, directory: str) -> bool:
    """Does the run whose agent has started us, or one above it, hold this lock?"""
    runs = home.runs()
    try:
        known = {run.id: run for run in runs.all()}
        parent = known.get(parent_run() or "")
        while parent is not None and parent.is_live:
            if parent.directory == directory:
                return True
            parent = known.get(parent.parent or "")
        return False
    finally:
        runs.db.close()


def _holder(home: Home, directory: str) -> tuple[str, bool]:
    """Who holds a lock, in words; or whether it is only the warden of a killed run that cleans up."""
    runs = home.runs()
    try:
        for _ in range(50):
            known = runs.in_directory(directory)
            live = next((run for run in known if run.is_live), None)
            if live:
                return f": {live.id} (process {live.pid})", False
            if any(run.pid is not None for run in known):
                return "", True
            time.sleep(0.01)
        return "", False
    finally:
        runs.db.close()


# ---- signals and the background ----


@contextmanager
def signals() -> Iterator[Wakeup]:
    """The first signal asks the run to stop after the operation in hand, the second ends it now.

    A signal that the caller ignores (nohup) stays ignored; after the run all of them do, so that none can
    change an exit code that is already decided.
    """
    wakeup = Wakeup()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, lambda *_: wakeup.interrupt())
    try:
        yield wakeup
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_IGN)


def detach(output: Path) -> Callable[[], None] | None:
    """Go on in the background.

    The process that goes on gets a function to call when the run is its own; the one that was called
    waits for that and gets None.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return None
    os.close(reader)
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    return lambda: os.close(writer)


def location_of(run: Run) -> Location:
    """Where a run of the store works."""
    return Location(Path(run.directory), Path(run.directory), run.project)
