"""A verification method of another package: the change must stay small."""

from __future__ import annotations

import msgspec

from ralph.checks.base import CheckContext, Method
from ralph.core.model import Check, Feedback, Verdict
from ralph.scm.diff import added


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`most`: maximum number of added lines."""

    most: int = 400


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    count = sum(block.text.count("\n") + 1 for block in added(context.diff()))
    if count <= config.most:
        return Verdict(check.name, green=True, required=check.required, reason=f"{count} lines were added")
    reason = f"{count} lines were added, at most {config.most} are allowed"
    feedback = Feedback(check.fail_action, f"The change is too large: {reason}. Make it smaller.")
    return Verdict(check.name, green=False, required=check.required, reason=reason, feedback=feedback)


def problem(config: Config) -> str:
    return "" if config.most > 0 else "most: must be 1 or more"


METHOD = Method(Config, run, problem)
