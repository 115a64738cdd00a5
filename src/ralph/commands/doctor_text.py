"""The output of `ralph doctor`: its findings, and the probes of a sandbox."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

import click

from ralph.commands.common import settings_here
from ralph.core.text import clean
from ralph.doctor.finding import Finding, FindingState
from ralph.doctor.sandbox import ALLOWED, DENIED, ProbeResult
from ralph.views.agent import paint
from ralph.views.console import shows_emoji, wants_colour

_EMOJI = {
    FindingState.OK: "✅",
    FindingState.WARNING: "⚠️",
    FindingState.ERROR: "❌",
    FindingState.ABSENT: "➖",
}
_TEXT = {
    FindingState.OK: "[OK]",
    FindingState.WARNING: "[WARN]",
    FindingState.ERROR: "[ERR]",
    FindingState.ABSENT: "[--]",
}
_COLOURS = {
    FindingState.OK: "green",
    FindingState.WARNING: "yellow",
    FindingState.ERROR: "red",
    FindingState.ABSENT: "dim",
}
_LONGEST_NAME = 24
_NARROW = 60


def print_proof(proof: ProbeResult) -> None:
    width = max(len(probe.tried) for probe in proof.probes)
    for expected, title in ((ALLOWED, "Must be allowed:"), (DENIED, "Must be denied:")):
        click.echo(title)
        for probe in (probe for probe in proof.probes if probe.expected == expected):
            click.echo(clean(f"  {'ok' if probe.ok else 'FAIL':5}  {probe.tried:{width}}  {probe.seen}"))
    wrong = sum(not probe.ok for probe in proof.probes)
    verdict = "all passed" if not wrong else f"{wrong} failed"
    click.echo(f"{proof.backend}: {len(proof.probes)} probes, {verdict}.", err=True)
    for other in proof.others:
        click.echo(clean(f"Not available here: {other}."), err=True)


def terminal() -> Finding:
    """Check whether this terminal can show Ralph's output."""
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    encoding = stream.encoding.lower().replace("_", "-")
    if not stream.isatty():
        return Finding("terminal", FindingState.OK, f"not a terminal: plain output in {encoding}")
    columns, lines = os.get_terminal_size(stream.fileno())
    able = [
        *(["colours"] if wants_colour(stream) else ["no colours"]),
        *(["emoji"] if shows_emoji(stream) else ["no emoji"]),
    ]
    found = f"{columns} x {lines}, {encoding}, {', '.join(able)}"
    if encoding != "utf-8":
        advice = "Set LANG=C.UTF-8; otherwise agent output might be garbled."
        return Finding("terminal", FindingState.WARNING, found, advice)
    if 0 < columns < _NARROW:
        return Finding("terminal", FindingState.WARNING, found, f"Make it at least {_NARROW} columns wide.")
    return Finding("terminal", FindingState.OK, found)


def print_findings(findings: list[Finding]) -> None:
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
    errors = sum(finding.state is FindingState.ERROR for finding in findings)
    problems = "1 problem" if errors == 1 else f"{errors} problems"
    click.echo(f"Not ready: {problems}." if errors else "Ready to run.", err=True)


def _lines(finding: Finding, indent: int, arrow: str) -> list[str]:
    """Return the finding and its advice, wrapped on a terminal and on one line otherwise."""
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
