"""Options, arguments and views shared by several commands.

A command's module imports only what its options need; everything else is imported inside the function. This keeps
`--help` as fast as click itself, and a command that only reads the store starts in half the time of a run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ralph.errors import RalphError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ralph.core.model import Plan, Resume
    from ralph.process.client import Wakeup
    from ralph.runs.location import Location
    from ralph.settings import LoadedSettings, NotifySettings, Settings, WorkSettings
    from ralph.store.home import Home
    from ralph.store.runs import Run, Runs
    from ralph.store.tasks import Tasks
    from ralph.views.agent import ViewOptions
    from ralph.views.console import Console
    from ralph.views.jsonl import JsonLines

    View = Console | JsonLines

F = TypeVar("F", bound=Callable[..., Any])


def open_home() -> Home:
    """Open the user's store and print its warning, if any, to stderr."""
    from ralph.store.home import find_home

    home = find_home(Path.cwd())
    if home.warning:
        click.echo(f"ralph: warning: {home.warning}", err=True)
    return home


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete run ids in the shell."""
    from click.shell_completion import CompletionItem

    from ralph.store.home import find_home

    try:
        runs = find_home(Path.cwd()).runs()
        return [
            CompletionItem(run.id, help=f"{run.flow} in {run.directory}")
            for run in runs.all()
            if run.id.startswith(incomplete)
        ]
    except RalphError:
        return []


def run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN", shell_complete=complete_run)(function)


def optional_run_argument(function: F) -> F:
    return click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)(function)


def find_run(home: Home, runs: Runs, name: str) -> Run:
    """Find a run by its id, or part of it, or the newest run of a task in this project."""
    from ralph.runs.location import here

    project = here(Path.cwd()).project
    tasks = home.tasks(project)
    try:
        if tasks.get(name) is None:
            return runs.find(name)
    finally:
        tasks.db.close()
    found = runs.of_task(project, name)
    if not found:
        raise RalphError(f"Task {name} has no runs yet.", f"Start one with: ralph work --task {name}")
    return found[0]


@contextmanager
def open_tasks() -> Iterator[Tasks]:
    """Open the tasks of the current project."""
    from ralph.runs.location import here

    tasks = open_home().tasks(here(Path.cwd()).project)
    with closing(tasks.db):
        yield tasks


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete task ids in the shell."""
    from click.shell_completion import CompletionItem

    from ralph.core.text import clean
    from ralph.runs.location import here
    from ralph.store.home import find_home

    try:
        tasks = find_home(Path.cwd()).tasks(here(Path.cwd()).project)
        with closing(tasks.db):
            return [
                CompletionItem(task.id, help=clean(task.title))
                for task in tasks.briefs()
                if task.id.casefold().startswith(incomplete.casefold())
            ]
    except RalphError:
        return []


def task_argument(function: F) -> F:
    return click.argument("id", metavar="ID", shell_complete=complete_task)(function)


def newest_run(runs: Runs) -> Run:
    """Return the newest run in this directory."""
    from ralph.runs.location import here, runs_of

    where = here(Path.cwd())
    for run in runs_of(runs, where):
        return run
    raise RalphError(f"There is no run in {where.lock}.", "To list the runs of all projects: ralph status")


class WholeNumber(click.ParamType[int]):
    """A whole number from `least` to `most`."""

    name = "number"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"must be a whole number, not {value!r}.", param, ctx)
        if number < self.least:
            self.fail(f"must be {self.least} or more, not {value!r}.", param, ctx)
        if self.most is not None and number > self.most:
            self.fail(f"must be {self.most} or less, not {value!r}.", param, ctx)
        return number


class Amount(click.ParamType[float]):
    """A number, 0 or more."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"must be a number, not {value!r}.", param, ctx)
        if number < 0:
            self.fail(f"must be 0 or more, not {value!r}.", param, ctx)
        return number


COUNT, NATURAL, PORT, AMOUNT = WholeNumber(1), WholeNumber(0), WholeNumber(0, 65_535), Amount()


def budget_options(function: F) -> F:
    options = [
        click.option(
            "--max-cost-usd", type=AMOUNT, metavar="USD", help="Total cost limit in USD (0: no limit)."
        ),
        click.option("--max-tokens", type=NATURAL, metavar="N", help="Total token limit (0: no limit)."),
        click.option(
            "--max-duration-seconds",
            type=AMOUNT,
            metavar="S",
            help="Total time limit in seconds (0: no limit).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def allow_option(help: str) -> Callable[[F], F]:
    """The option `--allow`, which may be repeated."""
    return click.option("--allow", multiple=True, metavar="GLOB", callback=_globs, help=help)


def _globs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if not all(glob.strip() for glob in value):
        raise click.BadParameter("must not be empty.", ctx, param)
    return value


def sandbox_options(function: F) -> F:
    options = [
        click.option(
            "--sandbox/--no-sandbox", default=None, help="Require a sandbox, or run the agent without one."
        ),
        click.option(
            "--sandbox-backend",
            metavar="NAME",
            help="Require this sandbox: docker-sandbox, bubblewrap or container.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def start(
    plan: Plan,
    where: Location,
    view: Callable[[], View],
    home: Home | None = None,
    locked: Callable[[], None] | None = None,
    *,
    detach: bool,
    notify: NotifySettings,
) -> int:
    """Start a new run and drive it to its end; return the exit code.

    `locked` is called once the directory is locked, before the run is created. `notify` holds the notification
    targets.
    """
    from ralph.notify.sender import targets_of
    from ralph.runs import background, locking, session

    home = home or open_home()
    with background.signals() as wakeup:
        lock = locking.lock(home, where, wakeup, view(), alone=plan.rules.locks_folder_only)
        if locked is not None:
            locked()
        run = session.begin(home, where, plan, targets_of(notify))
        return finish(home, run, lock, wakeup, view, detach=detach)


def finish(
    home: Home,
    run: Run,
    lock: int,
    wakeup: Wakeup,
    view: Callable[[], View],
    resume: Resume | None = None,
    *,
    detach: bool,
) -> int:
    """Drive a run to its end, here or in the background; return the exit code."""
    from ralph.runs import background, session

    taken_over = None
    if detach:
        taken_over = background.detach(home.make_streams(run.id) / "console.log")
        if taken_over is None:
            click.echo(run.id)
            click.echo(f"Running in the background. To watch: ralph logs -f {run.id}", err=True)
            return 0
    state = session.drive(home, run, lock, wakeup, view(), resume, taken_over)
    assert state.stop is not None
    return state.stop.outcome.exit_code


def view_options(function: F) -> F:
    """Add the options that control the output of a live run."""
    options = [
        click.option("-V", "--verbose", is_flag=True, help="Show settings, commands, prompts and timings."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event."),
        click.option("--detach", is_flag=True, help="Run in the background, and print how to watch it."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def make_view(look: ViewOptions, *, as_json: bool) -> View:
    """Make the view of a live run on stdout and stderr. A slow or closed reader never blocks the run."""
    from ralph.views.console import Console
    from ralph.views.jsonl import JsonLines
    from ralph.views.writer import ForgivingWriter

    if as_json:
        return JsonLines(ForgivingWriter(sys.stdout))
    return Console(sys.stdout, sys.stderr, look)


def make_log_view(look: ViewOptions, *, as_json: bool) -> View:
    """Make the view of past events, all on stdout. It waits for slow readers."""
    from ralph.views.console import Console
    from ralph.views.jsonl import JsonLines
    from ralph.views.writer import DirectWriter

    if as_json:
        return JsonLines(DirectWriter(sys.stdout))
    return Console(sys.stdout, sys.stdout, look, DirectWriter)


def make_look(settings: Settings, *, verbose: bool = False, stream: bool = True) -> ViewOptions:
    from ralph.views.agent import ViewOptions

    return ViewOptions(
        stream=stream,
        verbose=verbose,
        emoji=settings.use_emoji,
        colour=settings.use_color,
        timestamp=settings.show_timestamp,
        max_lines=settings.max_output_lines,
        max_chars=settings.max_output_chars,
    )


def settings_here() -> Settings:
    """Load the settings of this directory for display options; unreadable settings count as defaults."""
    from ralph.settings import Settings, load

    try:
        return load().settings
    except RalphError:
        return Settings()


def project_settings() -> str | None:
    """Return the settings file at the top of the repository if this directory has none."""
    from ralph.scm.repository import find_repository
    from ralph.settings import DEFAULT_PATH

    repository = find_repository(Path.cwd())
    if repository is None or DEFAULT_PATH.exists():
        return None
    path = repository.top / DEFAULT_PATH
    return str(path) if path.exists() else None


def project_directory(top: Path) -> str:
    """Return this directory, relative to the top of the repository, if it has settings; "." otherwise."""
    from ralph.settings import DEFAULT_PATH

    return str(Path.cwd().relative_to(top)) if DEFAULT_PATH.exists() else "."


def work_settings() -> WorkSettings:
    """Load the settings for tasks."""
    return load_with_agent(project_settings(), {}, None).settings.ralph


def load_with_agent(
    settings_file: str | None, flags: dict[str, Any], agent: str | None, otherwise: str = ""
) -> LoadedSettings:
    """Load the settings with `agent` instead of the configured one, or `otherwise` if none is configured."""
    from ralph.settings import load

    return load(Path(settings_file) if settings_file else None, flags, agent, otherwise)
