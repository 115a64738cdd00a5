"""`ralph demo`: a complete run in a scratch repository, with the built-in scripted agent."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import click

PROMPT = "Write greet.sh so that ./check.sh passes."

CHECK = """#!/bin/sh
# The guardrail of the demo: checks the greeting.
out=$(sh greet.sh Ada) || { echo "greet.sh failed or is missing"; exit 1; }
[ "$out" = "Hello, Ada!" ] || { echo "expected: Hello, Ada!"; echo "got:      $out"; exit 1; }
echo "ok"
"""

SCRIPT = r"""# The script of the built-in agent, one turn per iteration.
turns:
  - text: I'll write a first version of greet.sh.
    delay: 0.5
    run: printf 'echo "Hello, $1"\n' > greet.sh
    say: |-
      That should do it.
      <response>DONE</response>
  - text: The guardrail shows that the exclamation mark is missing. I'll add it.
    delay: 0.5
    run: printf 'echo "Hello, $1!"\n' > greet.sh
    say: |-
      The greeting is now as expected.
      <response>DONE</response>
"""

SETTINGS = {
    "maximumIterations": 5,
    "agent": {"command": "scripted", "flags": ["demo-agent.yaml"]},
    "guardrails": [
        {"command": "./check.sh", "failAction": "APPEND", "hint": "The expected greeting is in check.sh."}
    ],
}


@click.command()
def command() -> int:
    """Watch a complete run in ten seconds, without an agent or an account.

    The built-in scripted agent works in a scratch git repository. It claims to be done too early, the
    guardrail fails, its output goes into the next prompt, and the second claim is proved.
    """
    from ralph.commands.run import command as run

    scratch = Path(tempfile.mkdtemp(prefix="ralph-demo-"))
    _prepare(scratch)
    click.echo(f"Scratch repository: {scratch}", err=True)
    click.echo(f'$ cd {scratch} && ralph run -p "{PROMPT}"\n', err=True)
    before = os.getcwd()
    os.chdir(scratch)
    try:
        code: int = run.main(["-p", PROMPT], prog_name="ralph run", standalone_mode=False)
    finally:
        os.chdir(before)
    click.echo(
        f"""
What happened: the agent said it was done after iteration 1, but ./check.sh failed, so Ralph fed its
output back and ran another iteration. Iteration 2 passed. Look around in {scratch}:
  .ralph/settings.json          the agent and the guardrail
  .ralph/prompt_002.txt         the second prompt, with the feedback
  .ralph/guardrail_001_*.log    the output of the guardrail

Next, in your own project:
  ralph init                                  choose the agent and the guardrails
  ralph run -p "Make the tests pass" -m 5""",
        err=True,
    )
    return code


def _prepare(scratch: Path) -> None:
    from ralph.process.client import Wakeup, Warden, child_environment, output_of
    from ralph.store.files import opened_directory

    (scratch / ".ralph").mkdir()
    (scratch / ".ralph" / "settings.json").write_text(json.dumps(SETTINGS, indent=2) + "\n")
    (scratch / "demo-agent.yaml").write_text(SCRIPT)
    check = scratch / "check.sh"
    check.write_text(CHECK)
    check.chmod(0o755)
    identity = ["-c", "user.name=Ralph demo", "-c", "user.email=demo@localhost"]
    commands = (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "A check to pass"])
    with opened_directory(str(scratch)) as directory, Warden(Wakeup()) as warden:
        for arguments in commands:
            output_of(warden, ["git", *arguments], directory, child_environment({}))
