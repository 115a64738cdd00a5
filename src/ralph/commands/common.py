"""What several commands share: options, the run argument, views."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ralph.core.events import Event
from ralph.errors import RalphError
from ralph.store.home import Home, find_home
from ralph.views.console import Console, Look
from ralph.views.jsonl import JsonLines

F = TypeVar("F", bound=Callable[..., Any])


def open_home() -> Home:
    """The store of this user; a warning goes to stderr."""
    home = find_home(Path.cwd())
    if home.warning:
        click.echo(f"ralph: warning: {home.warning}", err=True)
    return home


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Run ids for the shell's completion."""
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


def view_options(function: F) -> F:
    """How a run is shown while it goes on."""
    options = [
        click.option("-V", "--verbose", is_flag=True, help="Show settings, commands, prompts and timings."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object per event on stdout."),
        click.option("--detach", is_flag=True, help="Go on in the background; `ralph status` shows it."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def make_view(*, as_json: bool, verbose: bool, stream: bool) -> Callable[[Event], None]:
    if as_json:
        return JsonLines(sys.stdout)
    return Console(sys.stdout, sys.stderr, Look(stream=stream, verbose=verbose))
