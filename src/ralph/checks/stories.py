"""The verify commands of a task list. All must succeed before a story counts as done."""

from __future__ import annotations

import json

import msgspec

from ralph.checks.base import CheckContext, Interrupted, Method
from ralph.checks.command import exit_text
from ralph.core import prompt
from ralph.core.model import Check, Ended, Feedback, Verdict


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout_seconds: float = 0.0


def configure(timeout_seconds: float) -> str:
    return msgspec.json.encode(Config(timeout_seconds)).decode()


def run(check: Check, context: CheckContext) -> Verdict:
    """Run them in order, up to the first that fails."""
    timeout = msgspec.json.decode(check.config, type=Config).timeout_seconds
    commands: list[str] = json.loads(context.board or "{}").get("verifyCommands") or []
    for command in commands:
        done = context.inside(command).shell(command, timeout)
        if done.exit.ended is Ended.INTERRUPTED:
            raise Interrupted
        if done.exit.code == 0 and done.exit.ended is None:
            continue
        reason = f"{command}: {exit_text(done.exit, timeout)}"
        text = prompt.verification_failure(
            command, exit_text(done.exit, timeout), check.hint, done.log, done.output, context.truncate
        )
        feedback = Feedback(check.fail_action, text)
        return Verdict(
            check.name, green=False, required=check.required, reason=reason, feedback=feedback, log=done.log
        )
    passed = f"{len(commands)} verify command{'s' * (len(commands) != 1)} passed"
    said = passed if commands else "no verify commands"
    return Verdict(check.name, green=True, required=check.required, reason=said)


METHOD = Method(Config, run, summary="every verify command of the task list must succeed")
