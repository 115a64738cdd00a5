"""`ralph guard`: check whether the guard would allow a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ralph.guard.model import GuardVerdict
    from ralph.settings import GuardRuleSettings, GuardSettings

DENIED = 1


@click.command()
@click.argument("text", metavar="[COMMAND]", required=False)
@click.option("--hook", is_flag=True, help="Check a hook's JSON on stdin during a run; exits with 0 or 2.")
@click.option("--rules", is_flag=True, help="List all rules, including those from the settings.")
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict or the rules as JSON.")
def command(text: str | None, hook: bool, rules: bool, settings_file: str | None, as_json: bool) -> int:
    """Check whether the guard would let an agent run COMMAND in this directory, and why not.

    Exits with 0 if the command is allowed and with 1 if it is denied. The guard is a seat belt, not a security
    boundary: it blocks destructive mistakes, not deliberate attacks.

    \b
    ralph guard "rm -rf build"
    ralph guard "git push --force" --json
    ralph guard --rules
    """
    from ralph.guard import setup
    from ralph.guard.judge import Guard
    from ralph.settings import load

    guard = load(Path(settings_file) if settings_file else None).settings.guard
    if rules:
        _show_rules(guard, as_json=as_json)
        return 0
    if text is None:
        raise click.UsageError("Give a COMMAND, or --rules.")
    verdict = Guard(_pairs(guard.allow), _pairs(guard.deny)).judge(text, setup.context())
    _show(verdict, guard, as_json=as_json)
    return 0 if verdict.allowed else DENIED


def _pairs(rules: tuple[GuardRuleSettings, ...]) -> list[tuple[str, str]]:
    return [(rule.pattern, rule.reason) for rule in rules]


def _show(verdict: GuardVerdict, guard: GuardSettings, *, as_json: bool) -> None:
    from ralph.core.text import clean

    if as_json:
        values = {
            "verdict": "allow" if verdict.allowed else "deny",
            "rule": verdict.rule,
            "category": verdict.category,
            "reason": verdict.reason,
            "part": verdict.part,
            "enabled": guard.enabled,
        }
        click.echo(json.dumps(values, ensure_ascii=False))
    elif verdict.allowed:
        click.echo("allowed")
    else:
        click.echo(f"denied by {verdict.rule} ({verdict.category}): {clean(verdict.part)}\n{verdict.reason}")
    if not guard.enabled and not as_json:
        click.echo("The guard is disabled here (guard.enabled is false): a run would not use it.", err=True)


def _show_rules(guard: GuardSettings, *, as_json: bool) -> None:
    from ralph.guard.judge import RULES
    from ralph.views.table import print_table

    rows = [
        *(("allow", "settings", rule.pattern, rule.reason) for rule in guard.allow),
        *(("deny", "settings", rule.pattern, rule.reason) for rule in guard.deny),
        *(("deny", rule.category, rule.name, rule.reason) for rule in RULES),
    ]
    if as_json:
        names = ("verdict", "category", "rule", "reason")
        click.echo(
            json.dumps([dict(zip(names, row, strict=True)) for row in rows], ensure_ascii=False, indent=2)
        )
    else:
        print_table(("verdict", "category", "rule", "reason"), rows)
