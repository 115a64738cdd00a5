"""Write into docs/reference.md what the source knows: the table of commands and the exit codes.

scripts/uv run python -m scripts.reference_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from scripts.architecture import replaced

from ralph.cli import GROUPS, make_group
from ralph.core.model import Cause, Outcome, complete

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"

MEANINGS = complete(
    Outcome,
    {
        Outcome.COMPLETE: "The agent said it was done, and every check passed.",
        Outcome.LIMIT: "Stopped at a limit, or checks kept failing.",
        Outcome.FATAL: "Wrong settings or command line, a command refused, or a fatal error such as an expired login.",
        Outcome.WAITING: "Waiting for something external, such as a usage limit.",
        Outcome.INTERRUPTED: "Stopped by Ctrl-C, another signal or `ralph cancel`.",
    },
)


def commands() -> str:
    """Return one table for each group of commands; those with subcommands have a row for each of them."""
    group = make_group()
    parts = []
    for title, names in GROUPS.items():
        lines = [f"**{title}**", "", "| command | |", "| --- | --- |"]
        for name, summary in names.items():
            lines += [f"| `{path}` | {text} |" for path, text in _rows(group, name, summary)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _rows(group: click.Group, name: str, summary: str) -> Iterator[tuple[str, str]]:
    yield f"ralph {name}", _cell(summary)
    context = click.Context(group)
    command = group.get_command(context, name)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield f"ralph {name} {each}", _cell(inner.get_short_help_str(200))


def exit_codes() -> str:
    """Return the table of outcomes, with the causes that lead to each."""
    lines = ["| code | outcome | meaning | causes |", "| --- | --- | --- | --- |"]
    for outcome in Outcome:
        causes = ", ".join(f"`{cause}`" for cause in Cause if cause.outcome is outcome)
        lines.append(f"| {outcome.exit_code} | `{outcome}` | {MEANINGS[outcome]} | {causes} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """Return the page with its written parts as they should be."""
    text = PAGE.read_text()
    for name, part in (("commands", commands()), ("exit codes", exit_codes())):
        text = replaced(text, name, part)
    return text


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
