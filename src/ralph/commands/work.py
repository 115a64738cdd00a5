"""`ralph work`: take tasks through their roles until each is proved and merged."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from ralph.commands.common import (
    COUNT,
    budget_options,
    complete_task,
    load_with_agent,
    make_look,
    open_home,
    project_settings,
    sandbox_options,
    view_options,
)
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.notify.notifier import WorkNotifier
from ralph.notify.sender import Sender, targets_of
from ralph.runs import session
from ralph.runs.location import Location, here
from ralph.runs.sandbox_choice import Wanted, choose
from ralph.sandbox.registry import DIRECT
from ralph.scm.repository import find_repository
from ralph.settings import Settings
from ralph.store.home import Home
from ralph.store.told import told_of_project
from ralph.views.agent import count, paint
from ralph.views.console import wants_colour
from ralph.views.jsonl import JsonLines
from ralph.views.task_status import TaskState, task_state
from ralph.views.work import ManyTasks, OneTask, WorkTaskJson
from ralph.views.writer import ForgivingWriter
from ralph.work.jobs import Choice, Watch
from ralph.work.project_repo import locked_project_repo
from ralph.work.scheduler import Work


@click.command(
    epilog="Exit codes: 0 every task is done · 1 one is failed or blocked, or a budget is used up ·"
    " 2 configuration or fatal error · 3 waiting for something outside · 130 interrupted"
)
@click.option("--spec", metavar="SPEC", help="Only the tasks of this spec.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="ID",
    shell_complete=complete_task,
    help="This task; repeatable.",
)
@click.option("-j", "--jobs", type=COUNT, default=1, metavar="N", help="So many tasks at once. [1]")
@click.option("--agent", metavar="COMMAND", help="Another agent than the configured one, with its flags.")
@budget_options
@sandbox_options
@click.option("--settings", "settings_file", metavar="FILE", help="Instead of .ralph/settings.json.")
@view_options
def command(
    spec: str | None,
    tasks: tuple[str, ...],
    jobs: int,
    agent: str | None,
    settings_file: str | None,
    sandbox: bool | None,
    sandbox_rung: str | None,
    verbose: bool,
    as_json: bool,
    detach: bool,
    **budget: Any,
) -> int:
    """Take tasks through coder, reviewer, tester and qa, until each is proved and merged.

    Every task has a git worktree and a branch ralph/ID of its own; your checkout is not touched until a task is
    done. Each role is a loop of its own: it promises, and its promise is verified as the task says. A task that is
    refused goes back to the coder with the reason, three times at most. What is done is merged into the branch that
    is checked out here, if everything is green on the merged tree as well. Run it again to go on where it was.

    \b
    ralph work
    ralph work --spec auth-feature -j 4
    ralph work --task TASK-001
    """
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
        raise RalphError("`ralph work` needs a git repository.", "Make one: git init && git commit …")
    chosen = choose(loaded, Wanted(sandbox, sandbox_rung), DIRECT.name)
    if detach and not _in_background(home):
        return 0
    view = _view(settings, jobs, verbose=verbose, as_json=as_json)
    with (
        session.signals() as wakeup,
        locked_project_repo(home, repository, where.project, wakeup, runs_hooks=not chosen.is_real) as repo,
    ):
        notifier = _notifier(home, where, settings, view.hear)
        work = Work(home, repo, settings, wakeup, notifier.hear, notifier.spent, chosen)
        code = work.work(Choice(spec, tasks, jobs))
        if work.halt is not None:
            notifier.halted(work.halt.exit_code, work.halt.reason)
        notifier.finish(lambda: wakeup.count > 1)
    view.flush()
    _summary(home, where.project, work, as_json=as_json)
    return code


def _notifier(home: Home, where: Location, settings: Settings, watch: Watch) -> WorkNotifier:
    sender = Sender(targets_of(settings.notify), told_of_project(home.path, where.project))
    return WorkNotifier(watch, sender, home.runs(), where.project, str(where.directory))


def _in_background(home: Home) -> bool:
    """Go on in the background; False in the process that was called, which is done."""
    logs = home.path / "work"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = logs / f"{time.strftime('%Y%m%d-%H%M%S')}.log"
    begun = session.detach(log)
    if begun is None:
        click.echo(
            f"Working in the background. `ralph status` shows how far it is; all it says: {log}", err=True
        )
        return False
    begun()
    return True


def _view(
    settings: Settings, jobs: int, *, verbose: bool, as_json: bool
) -> OneTask | ManyTasks | WorkTaskJson:
    if as_json:
        return WorkTaskJson(JsonLines(ForgivingWriter(sys.stdout)))
    if jobs == 1:
        look = make_look(settings, verbose=verbose, stream=settings.stream_agent_output)
        return OneTask(sys.stdout, sys.stderr, look)
    colour = wants_colour(sys.stderr) if settings.use_color is None else settings.use_color
    return ManyTasks(sys.stderr, lambda name, text: paint(name, text) if colour and name else text)


def _summary(home: Home, project: str, work: Work, *, as_json: bool) -> None:
    """What became of each task, on stdout."""
    tasks, runs = home.tasks(project), home.runs()
    known = [(task, tasks.progress(task.id)) for job in work.jobs if (task := tasks.get(job.id))]
    found = [task_state(home, runs, project, task, progress) for task, progress in known]
    reason = work.halt.reason if work.halt else ""
    if as_json:
        values = {"event": "work_ended", "tasks": [to_builtins(state) for state in found], "reason": reason}
        click.echo(json.dumps(values, ensure_ascii=False))
        return
    click.echo("", err=True)
    for state in found:
        click.echo(clean(_line(state)))
    if not found:
        click.echo("There is nothing to do. Describe a task with: ralph task create --help", err=True)
    if reason:
        click.echo(clean(f"Stopped: {reason}\n  Go on with: ralph work"), err=True)


def _line(state: TaskState) -> str:
    used = f"{count(state.iterations, 'iteration')}" + (f", ${state.cost:.2f}" if state.cost else "")
    line = f"{state.status}: {state.id} {state.title} ({used})"
    if state.status == "done":
        return line + (f", merged into {state.base} as {state.merged[:10]}" if state.merged else "")
    if state.reason:
        line += f"\n  why: {state.reason.partition(chr(10))[0]}"
    if state.branch:
        line += f"\n  its work: branch {state.branch}, in {state.worktree}"
    if state.status in ("failed", "cancelled"):
        line += f"\n  once more: ralph work --task {state.id}"
    return line
