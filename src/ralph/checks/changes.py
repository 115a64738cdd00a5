"""Checks that there are changes: talking about a task does not complete it."""

from __future__ import annotations

import msgspec

from ralph.checks.base import CheckContext, Method
from ralph.core.model import Check, Feedback, Verdict

NOTHING = "nothing was changed"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


def run(check: Check, context: CheckContext) -> Verdict:
    msgspec.json.decode(check.config, type=Config)
    if context.diff().strip():
        return Verdict(check.name, green=True, required=check.required, reason="there are changes")
    text = " ".join(filter(None, ("You say the task is done, but nothing was changed.", check.hint)))
    feedback = Feedback(check.fail_action, text)
    return Verdict(check.name, green=False, required=check.required, reason=NOTHING, feedback=feedback)


METHOD = Method(Config, run, summary="there are changes")
