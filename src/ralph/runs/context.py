"""Builds the context of a run: its files, processes, repository, sandbox and listeners."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ralph.checks.command import is_clean
from ralph.core.events import Event, Notice
from ralph.core.model import Plan, When
from ralph.errors import RalphError
from ralph.files.paths import real
from ralph.loop.bus_reporter import BusReporter
from ralph.loop.clock import Clock
from ralph.loop.confinement import ConfinedRun, opened_confinement
from ralph.loop.inbox import Inbox
from ralph.loop.run_context import RunContext, nobody
from ralph.loop.supervised import Supervised
from ralph.notify.notifier import RunNotifier
from ralph.process.client import Wakeup, Warden, child_environment
from ralph.redact import Secrets, secret_values, secrets_of
from ralph.runs import agent_hooks
from ralph.runs.parts import load_parts
from ralph.runs.repository import is_pinned, pinned_runner, scm_runner
from ralph.scm.pinned import held
from ralph.scm.repository import Repository, find_repository
from ralph.scm.version_control import VersionControl
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.journal import Journal
from ralph.store.runs import Runs
from ralph.store.runtime import Runtime
from ralph.store.task_folder import Folder

if TYPE_CHECKING:
    from ralph.loop.story_board import StoryBoard

Tell = Callable[[Event], None]


@contextmanager
def opened_run(
    home: Home,
    runs: Runs,
    plan: Plan,
    lock: int,
    wakeup: Wakeup,
    tell: Tell,
    notifier: RunNotifier | None = None,
    secrets: frozenset[str] = frozenset(),
    clock: Clock | None = None,
) -> Iterator[RunContext]:
    """Everything a run needs while it is driven. `secrets` are redacted in addition to values that look like secrets."""
    load_parts(plan)
    streams, repository = home.make_streams(plan.run), find_repository(Path(plan.directory))
    folder = Folder(plan.task, plan.run) if plan.task else None
    tell = notifier or tell
    reporter = BusReporter(tell, folder) if folder else None
    clock = clock or Clock()
    inbox = Inbox(runs, plan.run, wakeup, clock, reporter or tell)
    environment, confined = (
        child_environment({}),
        ConfinedRun(plan, repository, real(home.path), real(streams)),
    )
    if plan.origin and repository is not None:
        from ralph.loop.copies import environment_of  # only worktrees need it

        made = environment_of(plan, repository)
        environment, confined = made.variables, replace(confined, reads=made.reads, writes=made.writes)
    with (
        Runtime(Path(plan.directory)) as runtime,
        opened_directory(str(streams)) as streams_directory,
        Warden(wakeup, lock) as warden,
        _version_control(plan, repository, warden, streams, inbox) as vcs,
        folder.watched(wakeup.wake) if folder else nullcontext(),
        opened_confinement(confined, warden, runtime.project) as confinement,
        _story_board(plan, runtime, home, vcs, tell) as stories,
    ):
        if not (plan.setup or plan.origin) and any(map(is_clean, plan.checks)):
            _check_copies(plan, vcs)
        yield RunContext(
            plan=plan,
            runs=runs,
            journal=Journal(runs.db, runs.path, plan.run),
            runtime=runtime,
            streams=streams_directory,
            vcs=vcs,
            warden=warden,
            wakeup=wakeup,
            tell=reporter or tell,
            clock=clock,
            inbox=inbox,
            confinement=confinement,
            environment=environment,
            copies=real(home.copies(plan.run)),
            start_files=_start_files(plan, streams, vcs),
            cache=home.environments,
            secrets=_secrets(plan, secrets | (notifier.sender.targets.secrets if notifier else frozenset())),
            supervised=Supervised(reporter.folder, warden, runs, plan.run, reporter.post_end)
            if reporter
            else None,
            stories=stories,
            hooks=agent_hooks.prepare(plan, streams),
            ended=notifier.ended if notifier else nobody,
        )


def _start_files(plan: Plan, streams: Path, vcs: VersionControl) -> Path:
    """A file with what the project's environment ran when the run started, recorded for the second look at tests."""
    path = streams / "start-files.json"
    if vcs.has_repository and not path.exists() and any(check.when is When.PROVED for check in plan.checks):
        from ralph.environments.as_started import record_start_files

        record_start_files(path, vcs.top, vcs.project)
    return path


def _check_copies(plan: Plan, vcs: VersionControl) -> None:
    """Raise an error now if a clean copy of the project could never work."""
    from ralph.environments.base import Copy
    from ralph.loop.copies import check_compiled

    project = os.path.relpath(plan.directory, vcs.top)
    check_compiled(Copy(vcs.top, vcs.top, project, vcs.top), child_environment({}), vcs.ignored)


def _secrets(plan: Plan, more: frozenset[str]) -> Secrets:
    """The values of environment variables, ours or an agent's, whose names mark them as secrets."""
    environments = [os.environ, *(dict(agent.env) for agent in plan.agents)]
    return secrets_of(more | {value for each in environments for value in secret_values(each)})


@contextmanager
def _version_control(
    plan: Plan, repository: Repository | None, warden: Warden, state: Path, inbox: Inbox
) -> Iterator[VersionControl]:
    """Version control for a run: git runs at the top of its repository, other commands in the project."""
    top = repository.top if repository else Path(plan.directory)
    with opened_directory(str(top)) as directory, ExitStack() as stack:
        runner = scm_runner(warden, directory, top, inbox.is_interrupted)
        if repository is not None:
            stack.enter_context(held(repository))
            runner = pinned_runner(runner, repository, directory, state / "scm")
        elif is_pinned(state / "scm"):
            raise RalphError(
                f"{top} was in a git repository when the run started.", "Restore its .git first."
            )
        yield VersionControl(plan, repository, runner, state)


@contextmanager
def _story_board(
    plan: Plan, runtime: Runtime, home: Home, vcs: VersionControl, tell: Tell
) -> Iterator[StoryBoard | None]:
    """The folder of a PRD loop, with its marker file while the loop runs."""
    prd = plan.prompt.prd
    if prd is None:
        yield None
        return
    from ralph.loop.story_board import StoryBoard  # only PRD loops need to load these
    from ralph.protection.protect import tests_among
    from ralph.store.marker import Marker

    def commit(names: list[str], message: str) -> None:
        """Commit files. If that fails, the changes stay in the working tree."""
        try:
            problem = vcs.commit_files(names, message)
        except RalphError as error:
            problem = error.text
        if problem:
            tell(Notice(problem))

    def lost_tests(tree: str) -> tuple[list[str], list[str]]:
        """Removed and shortened test files."""
        removed, cut = vcs.lost(tree)
        return tests_among(removed), tests_among(cut)

    Marker(runtime.project).refuse_live()
    kept = home.prd(plan.directory, prd.folder)
    mode = "sandbox" if plan.sandbox.is_real else "direct"
    board = StoryBoard(prd, runtime.project, kept, commit, vcs.branch, lost_tests, mode)
    try:
        yield board
    finally:
        board.unmark()
