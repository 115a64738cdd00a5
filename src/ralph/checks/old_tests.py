"""The second look: the commands that run tests pass on the new work with the tests as they were at the start.

It counts only if the same command passes in a copy with the new tests: otherwise the copy lacks something, and nothing
is shown about the old tests. An environment that no longer starts as it did excuses nothing, and neither do tests that
are still there, but hidden from git.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ralph.checks.base import CheckContext, CheckCopy, Interrupted, Method, Shell, SinceStart
from ralph.checks.command import exit_text
from ralph.checks.excerpt import failing_lines
from ralph.core import prompt
from ralph.core.model import Check, Ended, Feedback, Verdict
from ralph.core.text import clean
from ralph.protection.old_tests import ProtectRules, SecondLook, TreeChange, second_look

UNCHANGED = "no protected test was changed"
MAX_NAMED = 20


class TestCommand(Struct, frozen=True):
    """A command that may run tests, and its timeout in seconds (0: none)."""

    command: str
    timeout: float = 0.0


class Config(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`commands`: None for the verify commands of a task list, with `timeout`. `protect`: None for the executed files.

    `may_refuse`: whether the agent may leave the decision to the user.
    """

    commands: tuple[TestCommand, ...] | None = None
    timeout: float = 0.0
    protect: tuple[str, ...] | None = None
    allow: tuple[str, ...] = ()
    may_refuse: bool = False


class Failure(Struct, frozen=True):
    """A command that failed in a copy, and its result."""

    command: TestCommand
    done: Shell

    @property
    def reason(self) -> str:
        return exit_text(self.done.exit, self.command.timeout)


def configure(config: Config) -> str:
    return msgspec.json.encode(config).decode()


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    since = context.since_start()
    if since is None or not (since.changed or since.environment):
        return _green(check, UNCHANGED)
    commands = config.commands if config.commands is not None else _verify_commands(config, context)
    look = _second_look(config, commands, since, context)
    if not look.commands:
        return _green(check, UNCHANGED)
    with context.copied(as_started=True) as copy:
        copy.remove(look.removed)
        copy.put_back(look.put_back)
        for path, text in look.edited:
            copy.write(path, text)
        failures = _failures([commands[number] for number in look.commands], copy)
    if not failures:
        return _green(check, "the changed tests pass as they were, too")
    if look.environment or not set(look.changed).isdisjoint(since.hidden):  # they make the comparison fail
        return _red(check, config, context, since, look, failures[0])
    with context.copied() as copy:
        unclear = _failures([each.command for each in failures], copy)
    shown = [each for each in failures if each.command not in [other.command for other in unclear]]
    return (
        _red(check, config, context, since, look, shown[0]) if shown else _not_shown(check, look, unclear[0])
    )


def _verify_commands(config: Config, context: CheckContext) -> tuple[TestCommand, ...]:
    commands: list[str] = json.loads(context.board or "{}").get("verifyCommands") or []
    return tuple(TestCommand(command, config.timeout) for command in commands)


def _second_look(
    config: Config, commands: Sequence[TestCommand], since: SinceStart, context: CheckContext
) -> SecondLook:
    change = TreeChange(*since.files(), since.changed, since.renamed, since.environment)
    rules = ProtectRules(config.protect, (*config.allow, *context.allowed), since.project)
    return second_look([each.command for each in commands], change, rules)


def _failures(commands: Sequence[TestCommand], copy: CheckCopy) -> list[Failure]:
    found = []
    for each in commands:
        done = copy.shell(each.command, each.timeout)
        if done.exit.ended is Ended.INTERRUPTED:
            raise Interrupted
        if done.exit.code != 0 or done.exit.ended is not None:
            found.append(Failure(each, done))
    return found


# ---- verdicts ----


def _green(check: Check, reason: str, note: str = "") -> Verdict:
    return Verdict(check.name, green=True, required=check.required, reason=reason, note=note)


def _not_shown(check: Check, look: SecondLook, unclear: Failure) -> Verdict:
    """The copy lacks something, or the command fails now and then."""
    command = clean(unclear.command.command)
    why = f"in a copy of the project, {command} fails with the new tests too ({unclear.reason})"
    return _green(check, f"not shown: {why}", f"old tests were not compared ({_listed(look)}): {why}")


def _red(
    check: Check, config: Config, context: CheckContext, since: SinceStart, look: SecondLook, failure: Failure
) -> Verdict:
    were = "it was" if len(look.changed) == 1 else "they were"
    names = _listed(look)
    text = prompt.old_tests_failure(
        _told(config, since, look, failure), failure.done.log, failure.done.output, context.truncate
    )
    return Verdict(
        check.name,
        green=False,
        required=check.required,
        reason=f"{failure.reason}: {names} as {were} when the run started",
        feedback=Feedback(check.fail_action, text),
        log=failure.done.log,
        excerpt=failing_lines(failure.done.output),
        tests=look.changed if config.may_refuse else (),
        note=f"old tests fail: {names} as {were} when the run started",
    )


_WAY_OUT = (
    "If you are sure that an old test must change, leave the files as they are. Then do not say that you are done;"
    " end your answer with this line instead, and the user decides:\n\n"
    "<refuse>why the old test must change</refuse>\n"
)


def _told(config: Config, since: SinceStart, look: SecondLook, failure: Failure) -> str:
    command = clean(failure.command.command)
    lines = [
        "Tests that existed when the run started were changed, and the work fails them as they were:"
        f' "{command}" passes with the changed files and fails with the old ones, with {failure.reason}.',
        f"Changed: {_listed(look)}",
    ]
    if config.may_refuse:
        lines += ["Make the work pass the old tests, and restore these files."]
    else:
        lines += ["Check whether changing them was right. If it was not, restore them."]
    if old := [path for path in look.changed if path in look.put_back]:
        lines.append(f"Restore: git checkout {since.start} -- {_quoted(old)}")
    if edited := [path for path, _ in look.edited]:
        lines.append(f"Restore the settings of the test runner in: {_quoted(edited)}")
    if look.environment:
        lines.append(f"Make the installed environment start as it did: {_quoted(look.environment)}")
    if new := [path for path in look.changed if path in look.removed]:
        lines.append(f"Remove files that change how old tests run: {_quoted(new)}")
    return "\n".join([*lines, *([_WAY_OUT] if config.may_refuse else [])])


def _listed(look: SecondLook) -> str:
    more = len(look.changed) - MAX_NAMED
    names = ", ".join(map(clean, look.changed[:MAX_NAMED]))
    return f"{names} (and {more} more)" if more > 0 else names


def _quoted(paths: Sequence[str]) -> str:
    return " ".join(shlex.quote(clean(path)) for path in paths[:MAX_NAMED])


METHOD = Method(Config, run, summary="tests pass as they were when the run started")
