"""Ask questions in the terminal, and repeat each until the answer is valid."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

import click

from ralph.commands.common import COUNT
from ralph.core.text import clean

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_NO_TEXT = "the answer contains characters that are not text; please type it again."


def say(text: str) -> None:
    click.echo(clean(text), err=not sys.stdout.isatty())


def ask(text: str, parse: Callable[[str], T], default: str = "") -> T:
    """Ask until the answer is valid. The dialogue goes to stderr if stdout is not a terminal."""
    with suppress(ImportError):
        import readline  # noqa: F401  line editing for answers

    shown = f"{text} [{default}]" if default else text
    while True:
        try:
            return click.prompt(
                shown,
                default="",
                show_default=False,
                value_proc=lambda answer: parse(_one_line(answer) or default),
                err=not sys.stdout.isatty(),
            )
        except UnicodeDecodeError:
            say(f"Error: {_NO_TEXT}")


def _one_line(answer: str) -> str:
    if clean(answer) != answer or "\n" in answer or "\t" in answer.strip():
        raise click.UsageError(_NO_TEXT)
    return answer.strip()


def required(what: str) -> Callable[[str], str]:
    def parse(answer: str) -> str:
        if not answer:
            raise click.UsageError(f"{what} is required.")
        return answer

    return parse


def is_yes(answer: str) -> bool:
    if answer.lower() not in ("", "y", "yes", "n", "no"):
        raise click.UsageError("please answer y or n.")
    return answer.lower() in ("y", "yes")


def one_of(choices: type[E]) -> Callable[[str], E]:
    def parse(answer: str) -> E:
        found = [each for each in choices if each.value.lower() == answer.lower()]
        if not found:
            raise click.UsageError(f"please answer one of {', '.join(each.value for each in choices)}.")
        return found[0]

    return parse


def listed(answer: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in answer.split(",") if part.strip())


def count(answer: str) -> int:
    return COUNT.convert(answer, None, None)
