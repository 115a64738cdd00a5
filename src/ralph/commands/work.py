"""`ralph work`: take tasks through their roles until each is verified and merged."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.commands.common import (
    COUNT,
    budget_options,
    complete_task,
    load_with_agent,
    make_look,
    open_home,
    project_directory,
    project_settings,
    sandbox_options,
    view_options,
)
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.notify.notifier import WorkNotifier
    from ralph.runs.location import Location
    from ralph.settings import Settings
    from ralph.store.home import Home
    from ralph.views.work import ManyTasks, OneTask, WorkTaskJson
    from ralph.work.jobs import Watch


@click.command(
    epilog="Exit codes: 0 every task is done · 1 a task failed or is blocked, or a budget is used up ·"
    " 2 configuration or fatal error · 3 waiting for something external · 130 interrupted"
)
@click.option("--spec", metavar="SPEC", help="Work only on the tasks of this spec.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="ID",
    shell_complete=complete_task,
    help="Work only on this task; repeatable.",
)
@click.option("-j", "--jobs", type=COUNT, default=1, metavar="N", help="Number of parallel tasks. [1]")
@click.option(
    "--agent", metavar="COMMAND", help="Agent command with its flags, instead of the configured agent."
)
@budget_options
@sandbox_options
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@view_options
def command(
    spec: str | None,
    tasks: tuple[str, ...],
    jobs: int,
    agent: str | None,
    settings_file: str | None,
    sandbox: bool | None,
    sandbox_backend: str | None,
    verbose: bool,
    as_json: bool,
    detach: bool,
    **budget: Any,
) -> int:
    """Take tasks through coder, reviewer, tester and qa until each is verified and merged.

    Every task gets its own git worktree and branch ralph/ID; your checkout is not touched until a task is done.
    Each role is a separate loop: it promises that its part is done, and the promise is verified as the task
    specifies. A rejected task goes back to the coder with the reason, up to three times. A finished task is merged
    into the branch that is checked out here, if all checks pass on the merged tree too.

    Run the command again to continue where it stopped.

    \b
    ralph work
    ralph work --spec auth-feature -j 4
    ralph work --task TASK-001
    """
    from ralph.commands.work_text import print_summary
    from ralph.runs import background
    from ralph.runs.location import here
    from ralph.runs.parts import load_all_parts
    from ralph.runs.sandbox_choice import Wanted, choose
    from ralph.sandbox.registry import DIRECT
    from ralph.scm.repository import find_repository
    from ralph.work.jobs import Choice
    from ralph.work.project_repo import locked_project_repo
    from ralph.work.scheduler import Work

    keys = {
        "max_cost_usd": "maxCostUsd",
        "max_tokens": "maxTokens",
        "max_duration_seconds": "maxDurationSeconds",
    }
    flags = {keys[name]: value for name, value in budget.items() if value is not None}
    loaded = load_with_agent(settings_file or project_settings(), flags, agent)
    settings = loaded.settings
    home, where = open_home(), here(Path.cwd())
    repository = find_repository(where.directory)
    if repository is None:
        raise RalphError("`ralph work` needs a git repository.", "Create one: git init && git commit …")
    chosen = choose(loaded, Wanted(sandbox, sandbox_backend), DIRECT.name)
    if detach and not _in_background(home):
        return 0
    load_all_parts()
    view = _view(settings, jobs, verbose=verbose, as_json=as_json)
    with (
        background.signals() as wakeup,
        locked_project_repo(
            home,
            repository,
            where.project,
            wakeup,
            runs_hooks=not chosen.is_real,
            subdirectory=project_directory(repository.top),
        ) as repo,
    ):
        notifier = _notifier(home, where, settings, view.hear)
        work = Work(home, repo, settings, wakeup, notifier.hear, notifier.spent, chosen)
        code = work.work(Choice(spec, tasks, jobs))
        if work.halt is not None:
            notifier.halted(work.halt.exit_code, work.halt.reason)
        notifier.finish(lambda: wakeup.count > 1)
    view.flush()
    print_summary(home, where.project, work, as_json=as_json)
    return code


def _notifier(home: Home, where: Location, settings: Settings, watch: Watch) -> WorkNotifier:
    from ralph.notify.notifier import WorkNotifier
    from ralph.notify.sender import Sender, targets_of
    from ralph.store.notified import notified_of_project

    sender = Sender(targets_of(settings.notify), notified_of_project(home.path, where.project))
    return WorkNotifier(watch, sender, home.runs(), where.project, str(where.directory))


def _in_background(home: Home) -> bool:
    """Move to the background; return False in the original process, which is finished."""
    from ralph.runs import background

    logs = home.path / "work"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = logs / f"{time.strftime('%Y%m%d-%H%M%S')}.log"
    begun = background.detach(log)
    if begun is None:
        click.echo(f"Working in the background. For progress, run `ralph status`. Full log: {log}", err=True)
        return False
    begun()
    return True


def _view(
    settings: Settings, jobs: int, *, verbose: bool, as_json: bool
) -> OneTask | ManyTasks | WorkTaskJson:
    from ralph.views.agent import paint
    from ralph.views.console import wants_colour
    from ralph.views.jsonl import JsonLines
    from ralph.views.work import ManyTasks, OneTask, WorkTaskJson
    from ralph.views.writer import ForgivingWriter

    if as_json:
        return WorkTaskJson(JsonLines(ForgivingWriter(sys.stdout)))
    if jobs == 1:
        look = make_look(settings, verbose=verbose, stream=settings.stream_agent_output)
        return OneTask(sys.stdout, sys.stderr, look)
    colour = wants_colour(sys.stderr) if settings.use_color is None else settings.use_color
    return ManyTasks(sys.stderr, lambda name, text: paint(name, text) if colour and name else text)
