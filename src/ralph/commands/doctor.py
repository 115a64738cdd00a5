"""`ralph doctor`: can a run work here, and what is to be done if not?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click

from ralph.commands.common import COUNT

_BEST = "?"


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
    from msgspec import to_builtins

    from ralph.commands.doctor_text import print_findings, terminal
    from ralph.doctor.checkup import examine
    from ralph.doctor.finding import FindingState
    from ralph.runs.background import signals
    from ralph.settings import load

    if sandbox is not None:
        image = load(Path(settings_file) if settings_file else None).settings.sandbox.image
        return _prove(None if sandbox == _BEST else sandbox, image, as_json=as_json)
    with signals() as wakeup:
        findings = examine(Path(settings_file) if settings_file else None, wakeup, timeout)
        if wakeup.count:
            return 130
    findings.append(terminal())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if as_json:
        click.echo(json.dumps([to_builtins(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        print_findings(findings)
    return 2 if any(finding.state is FindingState.ERROR for finding in findings) else 0


def _prove(name: str | None, image: str, *, as_json: bool) -> int:
    """The table of probes; exit code 1 if one of them came out wrong."""
    from msgspec import to_builtins

    from ralph.commands.doctor_text import print_proof
    from ralph.doctor.sandbox import prove
    from ralph.runs.background import signals

    with signals() as wakeup:
        proof = prove(name, image, wakeup)
        if wakeup.count:
            return 130
    if as_json:
        values = to_builtins(proof) | {"sound": proof.is_sound}
        click.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return 0 if proof.is_sound else 1
    print_proof(proof)
    return 0 if proof.is_sound else 1
