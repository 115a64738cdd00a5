"""A click group that loads the module of a command only when the command is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click


class Table(click.Group):
    """A group of commands. `sections` maps the titles in the help to the commands and their descriptions."""

    def __init__(
        self, sections: Mapping[str, Mapping[str, str]], load: Callable[[str], click.Command], **rest: Any
    ) -> None:
        super().__init__(**rest, no_args_is_help=False)
        self._sections = sections
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in self._sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand:
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(args[0], possibilities=names, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=16)
