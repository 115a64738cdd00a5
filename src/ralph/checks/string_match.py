"""The promise itself: the agent says that it is done, and that is enough.

If no agent has run, as before a merge, the earlier claim counts.
"""

from __future__ import annotations

import msgspec

from ralph.checks.base import CheckContext, Method
from ralph.core import claims, prompt
from ralph.core.model import Check, ClaimRule, Feedback, Verdict


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`promise` is the text required inside `<promise>`; None means the claim this run expects."""

    promise: str | None = None


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    if config.promise is None:
        return _verdict(check, context.is_claimed, "No completion promise found", "")
    rule = ClaimRule(tag="promise", text=config.promise, strict=True)
    asked = prompt.instruction(rule)
    is_claimed = claims.claimed(context.answer, rule, asked) if context.answer else context.is_claimed
    return _verdict(check, is_claimed, f"Promise {config.promise!r} not found in output", asked)


def _verdict(check: Check, is_claimed: bool, missing: str, instruction: str) -> Verdict:
    if is_claimed:
        return Verdict(check.name, green=True, required=check.required, reason="Promise found in output")
    text = " ".join(filter(None, (f"{missing}.", check.hint, instruction)))
    feedback = Feedback(check.fail_action, text)
    return Verdict(check.name, green=False, required=check.required, reason=missing, feedback=feedback)


def problem(config: Config) -> str:
    if config.promise is None:
        return ""
    if not config.promise.strip():
        return "promise: must not be empty"
    return "promise: must be one line" if "\n" in config.promise.strip() else ""


METHOD = Method(Config, run, problem, summary="the agent promises it", reads_tree=False)
