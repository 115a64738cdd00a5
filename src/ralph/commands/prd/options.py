"""Options shared by the `ralph prd` commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from ralph.errors import RalphError

CLAUDE = "claude"
"""The default agent, as in the plugin."""

F = TypeVar("F", bound=Callable[..., Any])


def _existing(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    from ralph.files.paths import real

    if not value.is_dir():
        raise RalphError(f"--project-dir {value}: directory not found.")
    return real(value)


def project_option(function: F) -> F:
    return click.option(
        "-d",
        "--project-dir",
        type=click.Path(path_type=Path),
        default=Path(),
        callback=_existing,
        metavar="DIR",
        help="Project directory. [current directory]",
    )(function)


def folder_option(function: F) -> F:
    return click.option(
        "--ralph-dir",
        default="ralph",
        metavar="DIR",
        help="PRD folder, relative to the project. [ralph]",
    )(function)


def say_undone(what: Iterable[str]) -> None:
    from ralph.core.text import clean

    for text in what:
        click.echo(clean(f"A killed loop left forbidden changes. Undone: {text}."), err=True)
