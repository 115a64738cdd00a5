"""Something was changed at all: a task that asks for code is not done by words."""

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
        return Verdict(check.name, green=True, required=check.required, reason="something was changed")
    text = " ".join(filter(None, ("You say that it is done, but nothing was changed.", check.hint)))
    feedback = Feedback(check.fail_action, text)
    return Verdict(check.name, green=False, required=check.required, reason=NOTHING, feedback=feedback)


METHOD = Method(Config, run, summary="something was changed at all")
