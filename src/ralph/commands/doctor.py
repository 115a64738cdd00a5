"""`ralph doctor`: check that Ralph can run here, and show how to fix problems."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click

from ralph.commands.common import COUNT

_BEST = "?"


@click.command(
    epilog="Exit codes: 0 ready, with or without warnings · 1 the sandbox failed a probe · 2 not ready · 130 interrupted"
)
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@click.option(
    "--timeout",
    type=COUNT,
    default=10,
    metavar="S",
    help="Timeout in seconds for an agent to print its version or its help. [10]",
)
@click.option(
    "--sandbox",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_BEST,
    help="Test what a sandbox (docker, bubblewrap, container) protects here. [the best one available]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a list of {name, state, found, advice}, or the probes with --sandbox.",
)
def command(settings_file: str | None, timeout: int, sandbox: str | None, as_json: bool) -> int:
    """Check that Ralph can run here, and show how to fix problems.

    Checks the configured agent, its fallbacks and the other agents that Ralph supports (version, flags,
    login), the sandbox, the settings, git, what the worktrees of tasks need, the terminal, the state directory,
    and the system's support for stopping processes. Agents only print their version and help: no provider is
    called, and no key is read.

    Each line is ok, a warning (a run works, but something is missing or might fail) or an error: no agent is
    configured, the agent does not start, the settings are invalid, the state directory is not writable, or
    git is missing although snapshots or commits need it. Agents that are neither configured nor installed are
    not a problem.

    With --sandbox, Ralph sets up a home directory with fake credentials, a repository and some sockets, and a
    program inside the sandbox tries to reach them and to get out. Exit code 1 means that it could do something
    it should not.

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
    """Print the table of probes; return exit code 1 if one of them failed."""
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
