"""A command decides, by its exit code and its output."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ralph.checks.base import CheckContext, Interrupted, Method, Shell
from ralph.checks.excerpt import failing_lines
from ralph.core import prompt
from ralph.core.command_output import CommandOutput
from ralph.core.model import Check, Ended, Exit, Feedback, Verdict
from ralph.errors import RalphError
from ralph.scm.git import GitError


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`timeout` is in seconds (0: no limit). `working_dir` is relative to the worktree and inside it."""

    command: str
    success_exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    output_contains: str | None = None
    output_not_contains: str | None = None
    timeout: Annotated[float, Meta(ge=0)] = 300.0
    working_dir: str = "."


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    directory = posixpath.normpath(config.working_dir)
    try:
        done = context.shell(config.command, config.timeout, directory=directory)
        reason = _fault(config, done, context)
    except GitError:  # not an answer
        raise
    except (OSError, RalphError) as error:  # a failed check, so that the loop continues
        return _red(check, config, context, f"Command failed: {error}")
    if reason:
        return _red(check, config, context, reason, done)
    return Verdict(
        check.name, green=True, required=check.required, reason="External verification passed", log=done.log
    )


def _red(
    check: Check, config: Config, context: CheckContext, reason: str, done: Shell | None = None
) -> Verdict:
    done = done or Shell(Exit(), CommandOutput(), "")
    text = prompt.verification_failure(
        config.command, reason, check.hint, done.log, done.output, context.truncate, done.explanation
    )
    feedback = Feedback(check.fail_action, text)
    return Verdict(
        check.name,
        green=False,
        required=check.required,
        reason=done.because(reason),
        feedback=feedback,
        log=done.log,
        excerpt=failing_lines(done.output),
    )


def _fault(config: Config, done: Shell, context: CheckContext) -> str:
    """Why the command counts as failed; "" if it passed."""
    exit = done.exit
    if exit.ended is Ended.INTERRUPTED:
        raise Interrupted
    if exit.ended is Ended.TIMEOUT:
        return f"Command timed out after {config.timeout:g}s"
    if exit.error is not None:
        return f"Command failed: {done.output.head or os.strerror(exit.error)}"
    code = 128 + exit.signal if exit.signal is not None else exit.code
    if code is None or exit.ended is not None:
        return "Command failed: it was killed"
    if code != config.success_exit_code:
        return f"Command exited with {code}, expected {config.success_exit_code}"
    wanted, forbidden = config.output_contains, config.output_not_contains
    if wanted and not context.has_printed(done, wanted):
        return f"Output doesn't contain: {wanted}"
    if forbidden and context.has_printed(done, forbidden):
        return f"Output contains forbidden: {forbidden}"
    if forbidden and done.lost and done.output.gap is not None:
        return f"Output may contain {forbidden}: its log is incomplete ({done.lost})"
    return ""


def problem(config: Config) -> str:
    if not config.command.strip():
        return "command: must not be empty"
    if "\0" in config.command:
        return "command: contains a NUL character"
    if not math.isfinite(config.timeout):
        return "timeout: must be a number of seconds (0: no limit)"
    directory = posixpath.normpath(config.working_dir)
    if posixpath.isabs(directory) or directory.split("/")[0] == ".." or "\0" in directory:
        return f"working_dir: {config.working_dir!r} is not inside the worktree; give a path relative to it"
    return ""


def missing(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if config.get("command") in (None, ""):
        yield "command", "is missing: external verification needs a command that must succeed"


def commands(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield config.get("command", ""), config.get("working_dir", ".")


METHOD = Method(
    Config,
    run,
    problem,
    summary="a command must succeed",
    default=None,
    missing=missing,
    commands=commands,
)
