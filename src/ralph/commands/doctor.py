"""`ralph doctor`: can a run work here, and what is to be done if not?"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from ralph.commands.common import COUNT, settings_here
from ralph.flows import session
from ralph.flows.doctor import examine
from ralph.flows.finding import Finding, State
from ralph.views.agent import paint
from ralph.views.console import shows_emoji, wants_colour

_EMOJI = {State.OK: "✅", State.WARNING: "⚠️", State.ERROR: "❌", State.ABSENT: "➖"}
_TEXT = {State.OK: "[OK]", State.WARNING: "[WARN]", State.ERROR: "[ERR]", State.ABSENT: "[--]"}
_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.ERROR: "red", State.ABSENT: "dim"}
_LONGEST_NAME = 24
_NARROW = 60


@click.command(epilog="Exit codes: 0 a run can work here, warnings or not · 2 it cannot · 130 interrupted")
@click.option("--settings", "settings_file", metavar="FILE", help="Instead of .ralph/settings.json.")
@click.option(
    "--timeout",
    type=COUNT,
    default=10,
    metavar="S",
    help="How long an agent may take to tell its version, and its help. [10]",
)
@click.option("--json", "as_json", is_flag=True, help="A list of {name, state, found, advice}.")
def command(settings_file: str | None, timeout: int, as_json: bool) -> int:
    """Find out whether a run can work here, and what to do if not.

    Looks at the configured agent, its fallbacks and the other agents that Ralph knows (version, flags,
    login), the settings, git, the terminal, the state directory, and what the system offers to end
    processes. Agents are asked for nothing but their version and help; nobody is called, no key is read.

    Each line is ok, a warning (a run works, but something is missing or may fail), or an error: no
    agent is configured or it cannot be started, the settings are not valid, the state directory cannot
    be written, or git is missing where snapshots or commits are wanted. An agent that is neither
    configured nor installed is no problem.

    \b
    ralph doctor
    ralph doctor --json | jq '.[] | select(.state != "ok")'
    """
    with session.signals() as wakeup:
        findings = examine(Path(settings_file) if settings_file else None, wakeup, timeout)
        if wakeup.count:
            return 130
    findings.append(_terminal())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        _print(findings)
    return 2 if any(finding.state is State.ERROR for finding in findings) else 0


def _terminal() -> Finding:
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    encoding = stream.encoding.lower().replace("_", "-")
    if not stream.isatty():
        return Finding("terminal", State.OK, f"none here: Ralph prints plain lines in {encoding}")
    columns, lines = os.get_terminal_size(stream.fileno())
    able = [
        *(["colours"] if wants_colour(stream) else ["no colours"]),
        *(["emoji"] if shows_emoji(stream) else ["no emoji"]),
    ]
    found = f"{columns} x {lines}, {encoding}, {', '.join(able)}"
    if encoding != "utf-8":
        advice = "Set LANG=C.UTF-8: what an agent says may come out garbled."
        return Finding("terminal", State.WARNING, found, advice)
    if 0 < columns < _NARROW:
        return Finding("terminal", State.WARNING, found, f"Make it at least {_NARROW} columns wide.")
    return Finding("terminal", State.OK, found)


def _print(findings: list[Finding]) -> None:
    look = settings_here()
    colour = wants_colour(sys.stdout) if look.use_color is None else look.use_color
    emoji = shows_emoji(sys.stdout) if look.use_emoji is None else look.use_emoji
    marks = _EMOJI if emoji else _TEXT
    width = min(max(len(finding.name) for finding in findings), _LONGEST_NAME)
    for finding in findings:
        mark = marks[finding.state] if emoji else f"{marks[finding.state]:6}"
        head = f"{mark} {finding.name:{width}}  "
        indent = width + (5 if emoji else 9)
        lines = _lines(finding, indent, arrow="→" if emoji else "->")
        shown = paint(_COLOURS[finding.state], head) if colour else head
        click.echo(f"{shown}{lines[0]}", color=True)
        for line in lines[1:]:
            click.echo(f"{' ' * indent}{line}")
    errors = sum(finding.state is State.ERROR for finding in findings)
    what = "1 thing" if errors == 1 else f"{errors} things"
    verdict = f"A run cannot work here: {what} must be mended first." if errors else "A run can work here."
    click.echo(verdict, err=True)


def _lines(finding: Finding, indent: int, arrow: str) -> list[str]:
    """What was found and what to do: folded on a terminal, one line elsewhere."""
    found = finding.found.replace("\n", " ")
    advice = [f"{arrow} {finding.advice}"] if finding.advice else []
    if not sys.stdout.isatty():
        return [" ".join([found, *advice])]
    room = max(shutil.get_terminal_size().columns - indent, 30)
    return [
        line
        for text in (found, *advice)
        for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    ]
