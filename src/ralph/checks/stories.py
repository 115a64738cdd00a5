"""The verify commands of a task list: all of them must succeed before a story counts as done."""

from __future__ import annotations

import json

import msgspec

from ralph.checks.base import Interrupted, Method, Workbench
from ralph.checks.command import exit_text
from ralph.core import prompt
from ralph.core.model import Check, Ended, Feedback, Verdict


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


def run(check: Check, bench: Workbench) -> Verdict:
    """In their order, up to the first that fails."""
    commands: list[str] = json.loads(bench.board or "{}").get("verifyCommands") or []
    for command in commands:
        done = bench.inside(command).shell(command, 0.0)
        if done.exit.ended is Ended.INTERRUPTED:
            raise Interrupted
        if done.exit.code == 0 and done.exit.ended is None:
            continue
        reason = f"{command}: {exit_text(done.exit, 0.0)}"
        output = prompt.truncate(done.output, bench.truncate, is_cut=done.is_cut)
        text = prompt.verification_failure(command, exit_text(done.exit, 0.0), check.hint, done.log, output)
        feedback = Feedback(check.fail_action, text)
        return Verdict(
            check.name, green=False, required=check.required, reason=reason, feedback=feedback, log=done.log
        )
    passed = f"{len(commands)} verify command{'s' * (len(commands) != 1)} passed"
    said = passed if commands else "there are no verify commands"
    return Verdict(check.name, green=True, required=check.required, reason=said)


METHOD = Method(Config, run)
