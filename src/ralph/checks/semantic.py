"""Criteria that no command can check: first patterns that indicate unfinished work, then a judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ralph.checks import judge
from ralph.checks.base import CheckContext, JudgeAnswer, Method
from ralph.core import prompt
from ralph.core.claims import neutralise
from ralph.core.model import Check, FailAction, Feedback, Verdict
from ralph.core.task_model import ACCEPTANCE
from ralph.core.text import clean
from ralph.scm import diff as diffs

MAX_TRIES = 3
MAX_SHOWN = 20
_MAX_LINE = 200


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`check_for` holds the criteria, `negative_patterns` text that must not appear.

    `model` is the judge's model ("": a small one).
    """

    check_for: tuple[str, ...] | str | None = None
    negative_patterns: tuple[str, ...] = ()
    model: str = ""

    @property
    def criteria(self) -> tuple[str, ...]:
        return (self.check_for,) if isinstance(self.check_for, str) else self.check_for or ()


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    diff = context.diff()
    found = [hit for pattern in config.negative_patterns for hit in _find(pattern, context.answer, diff)]
    if found:
        return _unfinished(check, context, found)
    if not config.criteria:
        return Verdict(check.name, green=True, required=check.required, reason="No negative pattern found")
    return _judged(check, context, config, diff)


# ---- patterns ----


class _Hit(Struct, frozen=True):
    pattern: str
    where: str
    line: str


def _find(pattern: str, message: str, diff: str) -> Iterator[_Hit]:
    """The places of a pattern in the final message and in added lines, ignoring case."""
    for line, text in _occurrences(pattern, message):
        yield _Hit(pattern, f"the final message, line {line + 1}", text)
    for added in diffs.added(diff):
        for line, text in _occurrences(pattern, added.text):
            yield _Hit(pattern, f"{clean(added.path)}:{added.line + line}", text)


def _occurrences(pattern: str, text: str) -> Iterator[tuple[int, str]]:
    """The lines in which the pattern starts, counted from 0, each line once."""
    wanted, folded = pattern.casefold(), text.casefold()
    lines: list[str] = []
    line, seen, at = 0, 0, folded.find(wanted)
    while at >= 0:
        lines = lines or text.split("\n")
        line, seen = line + folded.count("\n", seen, at), at
        yield line, lines[line]
        end = folded.find("\n", at)
        at = folded.find(wanted, end + 1) if end >= 0 else -1


def _unfinished(check: Check, context: CheckContext, found: list[_Hit]) -> Verdict:
    first, more = found[0], len(found) - 1
    reason = f"Found negative pattern: {first.pattern} ({first.where}{f' and {more} more' if more else ''})"
    lines = [f'- "{hit.pattern}" in {hit.where}: {_shown_line(hit.line)}' for hit in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        lines.append(f"- and {len(found) - MAX_SHOWN} more")
    said = "The work is not finished. It contains text that finished work must not contain:"
    return _red(check, context, reason, "\n".join([said, *lines]))


def _shown_line(line: str) -> str:
    return prompt.truncate(clean(line).strip(), _MAX_LINE)


# ---- the judge ----


def _judged(check: Check, context: CheckContext, config: Config, diff: str) -> Verdict:
    refused = ""
    for _ in range(MAX_TRIES):
        answer = context.ask(judge.question(config.criteria, context.answer, diff, refused), config.model)
        why = f"it {answer.problem}"
        if not answer.problem:
            try:
                return _ruled(check, context, config, judge.read_answer(answer.text, len(config.criteria)))
            except judge.NoAnswer as error:
                why = refused = str(error)
        if answer.is_final:
            break
    return _degraded(check, context, answer, why)


def _ruled(
    check: Check, context: CheckContext, config: Config, rulings: list[judge.CriterionRuling]
) -> Verdict:
    parts = tuple(
        Verdict(criterion, green=ruling.met, reason=ruling.reason)
        for criterion, ruling in zip(config.criteria, rulings, strict=True)
    )
    unmet = [(number, part) for number, part in enumerate(parts, 1) if not part.green]
    if not unmet:
        reason = f"All {len(parts)} criteria are met" if len(parts) > 1 else "The criterion is met"
        return Verdict(check.name, green=True, required=check.required, reason=reason, parts=parts)
    reason = "Criteria not met: " + "; ".join(f"{part.check}: {part.reason}" for _, part in unmet)
    lines = [f"{number}. {part.check}\n   Not met: {part.reason}" for number, part in unmet]
    said = (
        f"{len(unmet)} of {len(parts)} criteria are not met, judging by your final message and the changes:"
    )
    return _red(check, context, reason, "\n".join([said, *lines]), parts)


def _degraded(check: Check, context: CheckContext, last: JudgeAnswer, why: str) -> Verdict:
    """Without a judge only the promise decides. The plan decides whether that is enough."""
    name = f"the judge ({last.judge})" if last.judge else "the judge"
    tried = f"gave no readable answer in {MAX_TRIES} tries: {why}"
    return Verdict(
        check.name,
        green=context.is_claimed,
        required=check.required,
        degraded=True,
        reason=f"{name} {last.problem if last.is_final else tried}",
        feedback=Feedback(FailAction.APPEND, "The criteria were not judged this time."),
        cause=last.cause,
    )


def _red(
    check: Check, context: CheckContext, reason: str, text: str, parts: tuple[Verdict, ...] = ()
) -> Verdict:
    text = prompt.truncate(neutralise(text), context.truncate)
    if check.hint:
        text = f"{text}\nHint: {check.hint}"
    feedback = Feedback(check.fail_action, text)
    return Verdict(
        check.name, green=False, required=check.required, reason=reason, feedback=feedback, parts=parts
    )


def problem(config: Config) -> str:
    if config.check_for == ():
        return "check_for: the list is empty, so nothing would be judged"
    if not config.criteria and not config.negative_patterns:
        return "nothing to check: give check_for, negative_patterns or both"
    for key, texts in (("check_for", config.criteria), ("negative_patterns", config.negative_patterns)):
        for number, text in enumerate(texts, 1):
            if not text.strip():
                return f"{key}: entry {number} is empty"
    return ""


def missing(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "check_for" in config and not config["check_for"]:
        yield "check_for", f"is empty: leave it out, or write {ACCEPTANCE}"


METHOD = Method(
    Config,
    run,
    problem,
    summary="a judge finds every criterion met",
    default={"check_for": ACCEPTANCE},
    missing=missing,
)
