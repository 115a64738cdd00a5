"""`ralph doctor`: can a run work here, and what is to be done if not?"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path

import click
from msgspec import to_builtins

from ralph.commands.common import COUNT, settings_here
from ralph.core.text import clean
from ralph.doctor.checkup import examine
from ralph.doctor.finding import Finding, FindingState
from ralph.doctor.sandbox import ALLOWED, DENIED, ProbeResult, prove
from ralph.runs import session
from ralph.settings import load
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
_BEST = "?"
_NARROW = 60


@click.command(
    epilog="Exit codes: 0 a run can work here, warnings or not · 1 a sandbox does not hold · 2 it cannot · 130 interrupted"
)
@click.option("--settings", "settings_file", metavar="FILE", help="Instead of .ralph/settings.json.")
@click.option(
    "--timeout",
    type=COUNT,
    default=10,
    metavar="S",
    help="How long an agent may take to tell its version, and its help. [10]",
)
@click.option(
    "--sandbox",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_BEST,
    help="Prove what a sandbox (docker, bubblewrap, container) protects here; without NAME, the best that works.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A list of {name, state, found, advice}; of probes with --sandbox.",
)
def command(settings_file: str | None, timeout: int, sandbox: str | None, as_json: bool) -> int:
    """Find out whether a run can work here, and what to do if not.

    Looks at the configured agent, its fallbacks and the other agents that Ralph knows (version, flags,
    login), the sandbox, the settings, git, the terminal, the state directory, and what the system offers to end
    processes. Agents are asked for nothing but their version and help; nobody is called, no key is read.

    Each line is ok, a warning (a run works, but something is missing or may fail), or an error: no
    agent is configured or it cannot be started, the settings are not valid, the state directory cannot
    be written, or git is missing where snapshots or commits are wanted. An agent that is neither
    configured nor installed is no problem.

    With --sandbox, a home with made-up credentials, a repository and some sockets are set up, and a program
    inside the sandbox tries to get at them and out; exit code 1 if it could do anything that it should not.

    \b
    ralph doctor
    ralph doctor --sandbox
    ralph doctor --json | jq '.[] | select(.state != "ok")'
    """
    if sandbox is not None:
        image = load(Path(settings_file) if settings_file else None).settings.sandbox.image
        return _prove(None if sandbox == _BEST else sandbox, image, as_json=as_json)
    with session.signals() as wakeup:
        findings = examine(Path(settings_file) if settings_file else None, wakeup, timeout)
        if wakeup.count:
            return 130
    findings.append(_terminal())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if as_json:
        click.echo(json.dumps([to_builtins(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        _print(findings)
    return 2 if any(finding.state is FindingState.ERROR for finding in findings) else 0


def _prove(name: str | None, image: str, *, as_json: bool) -> int:
    """The table of probes; exit code 1 if one of them came out wrong."""
    with session.signals() as wakeup:
        proof = prove(name, image, wakeup)
        if wakeup.count:
            return 130
    if as_json:
        values = to_builtins(proof) | {"sound": proof.is_sound}
        click.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return 0 if proof.is_sound else 1
    _print_proof(proof)
    return 0 if proof.is_sound else 1


def _print_proof(proof: ProbeResult) -> None:
    width = max(len(probe.tried) for probe in proof.probes)
    for expected, title in ((ALLOWED, "What an agent must be able to do:"), (DENIED, "What must be denied:")):
        click.echo(title)
        for probe in (probe for probe in proof.probes if probe.expected == expected):
            click.echo(clean(f"  {'ok' if probe.ok else 'WRONG':5}  {probe.tried:{width}}  {probe.seen}"))
    wrong = sum(not probe.ok for probe in proof.probes)
    verdict = "all as they should be" if not wrong else f"{wrong} not as they should be"
    click.echo(f"{proof.backend}: {len(proof.probes)} probes, {verdict}.", err=True)
    for other in proof.others:
        click.echo(clean(f"Not usable here: {other}."), err=True)


def _terminal() -> Finding:
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    encoding = stream.encoding.lower().replace("_", "-")
    if not stream.isatty():
        return Finding("terminal", FindingState.OK, f"none here: Ralph prints plain lines in {encoding}")
    columns, lines = os.get_terminal_size(stream.fileno())
    able = [
        *(["colours"] if wants_colour(stream) else ["no colours"]),
        *(["emoji"] if shows_emoji(stream) else ["no emoji"]),
    ]
    found = f"{columns} x {lines}, {encoding}, {', '.join(able)}"
    if encoding != "utf-8":
        advice = "Set LANG=C.UTF-8: what an agent says may come out garbled."
        return Finding("terminal", FindingState.WARNING, found, advice)
    if 0 < columns < _NARROW:
        return Finding("terminal", FindingState.WARNING, found, f"Make it at least {_NARROW} columns wide.")
    return Finding("terminal", FindingState.OK, found)


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
    errors = sum(finding.state is FindingState.ERROR for finding in findings)
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
