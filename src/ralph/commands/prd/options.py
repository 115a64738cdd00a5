"""Options that all commands of `ralph prd` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from ralph.errors import RalphError

CLAUDE = "claude"
"""The agent where none is configured, as the plugin has it."""

F = TypeVar("F", bound=Callable[..., Any])


def _existing(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    from ralph.files.paths import real

    if not value.is_dir():
        raise RalphError(f"--project-dir {value}: there is no such directory.")
    return real(value)


def project_option(function: F) -> F:
    return click.option(
        "-d",
        "--project-dir",
        type=click.Path(path_type=Path),
        default=Path(),
        callback=_existing,
        metavar="DIR",
        help="The project. [here]",
    )(function)


def folder_option(function: F) -> F:
    return click.option(
        "--ralph-dir",
        default="ralph",
        metavar="DIR",
        help="The folder with the PRD, from the project. [ralph]",
    )(function)


def say_undone(what: Iterable[str]) -> None:
    from ralph.core.text import clean

    for text in what:
        click.echo(clean(f"Undone, from a loop that was killed: {text}."), err=True)
