"""`ralph config`: show the settings and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@click.option("--json", "as_json", is_flag=True, help="Print the values and their sources as JSON.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings file, for editors.")
def command(settings_file: str | None, as_json: bool, schema: bool) -> int:
    """Show the merged settings and where each value comes from.

    \b
    ralph config
    ralph config --schema > settings.schema.json
    """
    from ralph import settings

    if schema:
        click.echo(json.dumps(settings.schema(), indent=2))
        return 0
    loaded = settings.load(Path(settings_file) if settings_file else None)
    rows = list(settings.leaves(loaded))
    if as_json:
        values = {path: {"value": value, "source": source} for path, value, source in rows}
        click.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return 0
    _table(rows)
    return 0


def _table(rows: list[tuple[str, object, str]]) -> None:
    from ralph.views.table import print_table

    print_table(
        ("setting", "value", "source"),
        [(path, json.dumps(value, ensure_ascii=False), source) for path, value, source in rows],
    )
