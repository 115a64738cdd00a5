"""`ralph tui`: watch and steer every run on this machine.

Modules that only an opened run or a key needs are imported later, so that the first screen appears sooner.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import make_look, optional_run_argument, settings_here
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.core.task_model import Task
    from ralph.store.home import Home
    from ralph.store.runs import Run, Runs
    from ralph.views.agent import ViewOptions
    from ralph.views.tasks import RoleView
    from ralph.views.tui.app import RalphApp
    from ralph.views.tui.feed import Past

MAX_BYTES = 1 << 19
"""Approximate amount of agent output that the dashboard shows, counted from the end."""


@click.command()
@optional_run_argument
@click.option("--theme", type=click.Choice(["dark", "light"]), help="Colour theme. [from the settings]")
def command(run: str | None, theme: str | None) -> int:
    """Watch and steer every run on this machine on one screen. With RUN or a task ID, open that one.

    Runs keep running when you close the dashboard. You can open any number of dashboards, from any directory.
    Press `?` for the keys.

    \b
    ralph tui
    ralph tui TASK-001
    """
    from ralph.runs.location import here
    from ralph.store.home import known_home
    from ralph.views.console import is_able, shows_emoji
    from ralph.views.tui.colours import terminal_theme

    if not is_able(sys.stdout) or not sys.stdin.isatty():
        raise RalphError("`ralph tui` needs a terminal.", "To print the runs once: ralph status")
    home, project, settings = known_home(Path.cwd()), here(Path.cwd()).project, settings_here()
    first = _first(home, project, run) if run else ()
    emoji = shows_emoji(sys.stdout) if settings.use_emoji is None else settings.use_emoji
    chosen = theme or settings.theme or terminal_theme()
    make_app(home, make_look(settings), emoji=emoji, theme=chosen, project=project, first=first).run()
    return 0


def make_app(
    home: Home,
    look: ViewOptions,
    now: Callable[[], float] = time.time,
    *,
    emoji: bool = False,
    theme: str = "dark",
    project: str = "",
    first: tuple[str, ...] = (),
) -> RalphApp:
    """Make the dashboard for a store. Lines are always coloured here; the app removes colours if not wanted."""
    from ralph.views.agent import ViewOptions
    from ralph.views.tui.app import RalphApp
    from ralph.views.tui.feed import Feed, FeedSources

    def past(runs: Runs, run: str) -> Past:
        from ralph.runs.replay import Replay

        return Replay(runs, run, home.streams(run), most=MAX_BYTES)

    shown = ViewOptions(
        emoji=emoji,
        colour=True,
        timestamp=look.timestamp,
        max_lines=look.max_lines,
        max_chars=look.max_chars,
    )
    return RalphApp(
        Feed(home, FeedSources(past, _roles)),
        StoreActions(home),
        shown,
        now,
        theme=theme,
        project=project,
        first=first,
    )


def _first(home: Home, project: str, name: str) -> tuple[str, ...]:
    """Return the screen to open first: a task of this project, or a run."""
    from ralph.store.database import Missing
    from ralph.store.tasks import Tasks

    try:
        runs = home.to_read()
    except Missing:
        raise RalphError(f"There is no run {name!r}.", "No runs have been started yet.") from None
    with closing(runs.db):
        if Tasks(runs.db, runs.path, project).get(name):
            return project, name
        return (runs.find(name).id,)


def _roles(directory: str, task: Task) -> list[RoleView]:
    from ralph.commands.task.look import role_views
    from ralph.settings import DEFAULT_PATH, Settings, load

    try:
        settings = load(Path(directory) / DEFAULT_PATH).settings
    except RalphError:
        settings = Settings()
    return role_views(task, settings.ralph)


class StoreActions:
    """The actions of the dashboard on a run. Actions that start processes are done by another ralph process."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def pause(self, run: str) -> str:
        from ralph.runs import control

        return self._with_run(run, lambda runs, chosen: control.pause(runs, chosen))

    def steer(self, run: str, text: str) -> str:
        from ralph.runs import control

        return self._with_run(run, lambda runs, chosen: control.steer(runs, chosen, text)[1])

    def cancel(self, run: str) -> str:
        from ralph.runs import control

        return self._with_run(run, lambda runs, chosen: control.cancel(self._home, runs, chosen))

    def resume(self, run: str, iterations: int | None) -> str:
        from ralph.core.model import Resume
        from ralph.runs import control

        with closing((runs := self._home.runs()).db):
            chosen = runs.find(run)
            if chosen.is_live:
                return control.unpause(runs, chosen, Resume(time.time(), iterations))
        more = ("-m", str(iterations)) if iterations is not None else ()
        _ask("resume", run, *more, "--detach")
        return f"Run {run} continues in the background."

    def rewind(self, run: str, iteration: int) -> str:
        return _ask("rewind", run, str(iteration), "--yes")

    def diff(self, run: str, iteration: int | None) -> str:
        return _ask("diff", run, *([str(iteration)] if iteration is not None else []), only_out=True)

    def show_log(self, run: str) -> None:
        from ralph.process.foreground import run_in_terminal
        from ralph.process.other_ralph import ralph_command

        pager = os.environ.get("PAGER") or "less -R"
        logs = shlex.join(ralph_command("logs", run))
        run_in_terminal(["/bin/sh", "-c", f"{logs} | {pager}"], os.environ)

    def _with_run(self, run: str, act: Callable[[Runs, Run], str]) -> str:
        runs = self._home.runs()
        with closing(runs.db):
            return act(runs, runs.find(run))


def _ask(*arguments: str, only_out: bool = False) -> str:
    """Run another ralph process and return its output; raise its error as ours."""
    from ralph.process.other_ralph import ask_ralph

    answer = ask_ralph(*arguments)
    if answer.code:
        first, _, rest = answer.err.strip().removeprefix("ralph: error: ").partition("\n")
        raise RalphError(first or f"ralph {arguments[0]} exited with code {answer.code}.", rest.strip())
    return answer.out if only_out else f"{answer.out}{answer.err}".strip()
