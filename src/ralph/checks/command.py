"""A guardrail: a shell command that must exit with 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ralph.checks.base import CheckContext, Interrupted, Method
from ralph.checks.excerpt import failing_lines
from ralph.core import prompt
from ralph.core.model import Check, Ended, Exit, Feedback, Verdict


class Config(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    command: str
    timeout_seconds: float = 0.0
    is_clean: bool = False


def configure(command: str, timeout_seconds: float, *, is_clean: bool = False) -> str:
    return msgspec.json.encode(Config(command, timeout_seconds, is_clean)).decode()


def is_clean(check: Check) -> bool:
    """Whether a check is a guardrail that runs in a clean copy."""
    return check.method == "command" and msgspec.json.decode(check.config, type=Config).is_clean


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    done = context.shell(config.command, config.timeout_seconds, is_clean=config.is_clean)
    if done.exit.ended is Ended.INTERRUPTED:
        raise Interrupted
    green = done.exit.code == 0 and done.exit.ended is None
    if green:
        return Verdict(check.name, green=True, required=check.required, reason="exit code 0", log=done.log)
    reason = exit_text(done.exit, config.timeout_seconds)
    text = prompt.guardrail_failure(
        config.command, reason, check.hint, done.log, done.output, context.truncate, done.explanation
    )
    return Verdict(
        check.name,
        green=False,
        required=check.required,
        reason=done.because(reason),
        feedback=Feedback(check.fail_action, text),
        log=done.log,
        excerpt=failing_lines(done.output),
    )


def exit_text(exit: Exit, timeout: float) -> str:
    """How a command ended, in the words used in the agent's prompt."""
    if exit.ended is Ended.TIMEOUT:
        return f"a timeout after {timeout:g} s"
    if exit.signal is not None:
        return f"exit code {128 + exit.signal}"
    if exit.error is not None:
        return "no exit code: it could not be run"
    if exit.code is None:
        return "no exit code: it was killed"
    return f"exit code {exit.code}"


def commands(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield config["command"], "."


METHOD = Method(Config, run, summary="a shell command must succeed", commands=commands)
