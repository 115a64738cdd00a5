"""Report -> Markdown, for pull requests, wikis and terminals. Text of others stays text: it is escaped, or fenced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ralph.views.agent import duration
from ralph.views.report import words
from ralph.views.report.model import Excerpt, Found, Iteration, Report, Review, RunReport

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&@$]|:(?=//)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)])")
"""Emphasis, links, tags, tables, addresses that link themselves; and what makes a heading or a list of a line."""
_TICKS = re.compile(r"`+")
_INDENTED = "  "


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_text(report.title)}"
    yield ""
    yield f"**{_text(words.verdict(report))}** · {report.subject} {_code(report.id)}"
    yield ""
    for line in (report.reason, words.standing(report)):
        if line:
            yield _quoted(line)
            yield ""
    yield " · ".join(f"{name}: {_text(value)}" for name, value in words.facts(report))
    yield ""
    yield f"{_text(words.moment(report.began))} to {_text(words.moment(report.updated))}"
    yield ""
    yield from _task(report)
    yield from _proof(report)
    yield from _remarks(report)
    yield from _stories(report)
    yield from _reviews(report.reviews, "The way through the roles" if report.task else "Reviews")
    for run in report.runs:
        yield from _run(report, run)
    yield from _asked(report)
    if report.notes:
        yield from ("## Not in this report", "")
        yield from (f"- {_text(note)}" for note in report.notes)
        yield ""
    yield f"Made by ralph {_text(report.version)}, {_text(words.moment(report.made))}."


def _task(report: Report) -> Iterator[str]:
    task = report.task
    if task is None:
        return
    yield from ("## The task", "")
    wanted = f"Wanted: {task.wanted}" if task.wanted else ""
    for text in filter(None, (task.description, wanted)):
        yield _quoted(text)
        yield ""
    if task.criteria:
        yield from ("Done means:", "")
    yield from (f"- {_text(each)}" for each in task.criteria)
    if task.merged:
        yield from ("", f"Merged into {_code(task.base)} as {_code(task.merged[:12])}.")
    elif task.branch:
        yield from ("", f"Its work is on the branch {_code(task.branch)}.")
    yield ""


def _proof(report: Report) -> Iterator[str]:
    run = words.proved(report)
    if run is None or run.proof is None:
        return
    proof = run.proof
    yield from ("## The proof", "", f"Claimed: {_text(proof.claim)}.", "")
    for found in proof.checks:
        yield from _found(found)
    if not proof.checks:
        yield "No check was asked for: the claim is all there is."
    yield ""
    for name, value in (("tree", proof.tree), ("kept as", proof.snapshot), ("commit", proof.commit)):
        if value:
            yield f"- {name}: {_code(value)}"
    yield ""


def _remarks(report: Report) -> Iterator[str]:
    remarks = [remark for run in report.runs for remark in run.remarks]
    if remarks:
        yield from ("## Good to know", "")
        yield from (f"- **{words.REMARKS[each.kind]}**: {_text(words.remark_line(each))}" for each in remarks)
        yield ""


def _stories(report: Report) -> Iterator[str]:
    for run in report.runs:
        if run.stories:
            yield from ("## Stories", "")
            for each in run.stories:
                cap = ", **only at the review cap**" if each.at_cap else ""
                status = f"{each.status.replace('_', ' ')}, {words.plural(each.reviews, 'review')}"
                yield f"- [{'x' if each.passes else ' '}] {_code(each.id)} {_text(each.title)}: {_text(status)}{cap}"
            yield ""


def _reviews(reviews: tuple[Review, ...], title: str) -> Iterator[str]:
    if not reviews:
        return
    yield from (f"## {title}", "")
    for each in reviews:
        yield (
            f"- {_text(words.moment(each.at))}: **{_text(each.subject or each.by)}**"
            f" {_text(each.what.replace('_', ' '))} {_text(words.review_where(each))}".rstrip()
        )
        if each.text:
            yield from _fenced(Excerpt(each.text), _INDENTED)
    yield ""


def _run(report: Report, run: RunReport) -> Iterator[str]:
    if report.task:
        yield from (f"## {_text(run.role)}: {_text(run.outcome or run.state)}", "")
        if run.reason:
            yield from (_quoted(run.reason), "")
    else:
        yield from ("## Iterations", "")
    if run.iterations:
        yield "| | what | agent | checks | waiting | in all | cost | tokens | files |"
        yield "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        yield from map(_row, run.iterations)
        yield ""
    for each in run.iterations:
        if not each.is_short:
            yield from _iteration(each)
    if run.guidance:
        yield from ("### Guidance given", "")
        for steer in run.guidance:
            when = f"in the prompt of iteration {steer.iteration}" if steer.iteration else "not delivered"
            yield f"- {_text(words.moment(steer.at))}, {when}:"
            yield from _fenced(Excerpt(steer.text), _INDENTED)
        yield ""


def _row(each: Iteration) -> str:
    spent = dict.fromkeys(("agent", "check", "other"), 0.0)
    for segment in each.segments:
        spent[segment.doing if segment.doing in spent else "other"] += segment.seconds
    cells = (
        str(each.number),
        _text(words.about(each)),
        duration(spent["agent"]),
        duration(spent["check"]),
        duration(spent["other"]),
        duration(each.seconds),
        words.money(each.used.cost_usd) if each.used.cost_usd else "",
        words.short_number(each.used.tokens) if each.used.tokens else "",
        f"{each.changes.count} (+{each.changes.added} −{each.changes.removed})" if each.changes else "",
    )
    return f"| {' | '.join(cells)} |"


def _iteration(each: Iteration) -> Iterator[str]:
    yield from (f"### Iteration {each.number}", "")
    for found in each.checks:
        yield from _found(found)
        if found.feedback.text:
            yield from _fenced(found.feedback, _INDENTED)
    if each.said.text:
        yield from ("", "The agent said:", "", *_fenced(each.said), "")
    if each.changes and each.changes.diff.text:
        yield from _fenced(each.changes.diff, "", "diff")
    elif each.changes and each.changes.diff.see:
        yield f"Its diff is left out: {_code(each.changes.diff.see)} shows it."
    for commit in each.commits:
        yield from ("", f"Committed {_code(commit.id[:12])}: {_text(commit.message)}")
    yield ""


def _asked(report: Report) -> Iterator[str]:
    if report.subject != "run" or not report.runs:
        return
    run = report.runs[0]
    yield from ("## What was asked", "")
    if run.prompt.text:
        yield from (*_fenced(run.prompt), "")
    yield f"- agent: {_text(', then '.join(run.agents))}"
    checks = [
        _code(each.command or each.name) + ("" if each.required else " (not required)") for each in run.checks
    ]
    yield f"- checks: {', '.join(checks) or 'none'}"
    yield f"- sandbox: {_text(run.sandbox)}"
    yield f"- limit: {words.plural(run.budget.iterations, 'iteration')}"
    yield ""


def _found(found: Found, indent: str = "") -> Iterator[str]:
    words_ = [
        "green" if found.green else "**red**",
        *([] if found.required else ["not required"]),
        *(["**degraded**"] if found.degraded else []),
    ]
    reason = f": {_text(found.reason)}" if found.reason else ""
    yield f"{indent}- {_code(found.check)} {', '.join(words_)}{reason}"
    if found.command and found.command != found.check:
        yield from _fenced(Excerpt(found.command), indent + _INDENTED)
    for part in found.parts:
        yield from _found(part, indent + _INDENTED)


# ---- text of others ----


def _text(text: str) -> str:
    """One line in which nothing has a meaning for Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _quoted(text: str) -> str:
    return "\n".join(f"> {_text(line)}" for line in text.splitlines() or [""])


def _code(text: str) -> str:
    """In as many backticks as it takes."""
    line = " ".join(text.split())
    ticks = "`" * (1 + max((len(found) for found in _TICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _fenced(excerpt: Excerpt, indent: str = "", language: str = "text") -> Iterator[str]:
    """A block that the text cannot end: its fence is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(found) for found in _TICKS.findall(excerpt.text)), default=0))
    if excerpt.left_out:
        see = f": {_code(excerpt.see)} shows all" if excerpt.see else ""
        yield from (f"{indent}{excerpt.left_out:,} characters are left out{see}.", "")
    yield f"{indent}{fence}{language}"
    yield from (f"{indent}{line}" for line in excerpt.text.removesuffix("\n").split("\n"))
    yield f"{indent}{fence}"
