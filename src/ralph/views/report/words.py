"""Texts shared by the HTML and Markdown reports."""

from __future__ import annotations

import time

from ralph.core.model import Cause, Usage
from ralph.views.agent import duration
from ralph.views.report.model import Doing, Iteration, Proof, Remark, RemarkKind, Report, Review, RunReport

DOING = {
    Doing.AGENT: "agent",
    Doing.CHECK: "checks",
    Doing.COMMIT: "commit",
    Doing.LIMIT: "waiting for usage limit",
    Doing.RESTART: "restart delay",
    Doing.PAUSED: "paused",
    Doing.CHILDREN: "waiting for child processes",
    Doing.AWAY: "not running",
}

REMARKS = {
    RemarkKind.AUTO_APPROVED: "Auto-approved",
    RemarkKind.DEGRADED: "Degraded",
    RemarkKind.UNDONE: "Undone",
    RemarkKind.LIMIT: "Usage limit",
    RemarkKind.FAILED: "Agent",
    RemarkKind.RESUMED: "Resumed",
    RemarkKind.NOTE: "Note",
}

_STILL = ("running", "paused", "waiting")
_PLAIN = {
    "proved": "verified",
    "merged tree is green": "merged tree verified",
    "not begun": "not started",
    "iterations": "iteration limit reached",
    "cost": "cost limit reached",
    "tokens": "token limit reached",
    "duration": "time limit reached",
    "stagnation": "no more changes",
    "verification": "verification failed",
    "config": "configuration error",
    "unstartable": "agent could not be started",
    "auth": "not logged in or no credit",
    "denied": "agent was denied every write",
    "judge": "the judge gave no verdict",
    "wait marker": "for something external",
    "limit wait": "usage limit reached",
    "signal": "interrupted",
}


def plain(value: str) -> str:
    """A status or cause from the report's JSON in plain words."""
    value = value.replace("_", " ")
    return _PLAIN.get(value, value)


def tone(report: Report) -> str:
    """The overall tone of a report: good, weak, bad, live or idle."""
    if is_weak(report):
        return "weak"
    if report.outcome == "complete":
        return "good"
    if any(run.state in _STILL for run in report.runs):
        return "live"
    if report.outcome in ("waiting", "interrupted"):
        return "weak"
    state = report.runs[-1].state if report.runs else ""
    if report.outcome or report.state.startswith(("failed", "blocked")) or state == "crashed":
        return "bad"
    return "idle"


def is_weak(report: Report) -> bool:
    """Whether the work is complete, but unverified, or with an auto-approved story or a degraded check."""
    kinds = {remark.kind for run in report.runs for remark in run.remarks}
    is_doubtful = report.cause == Cause.UNVERIFIED or kinds & {RemarkKind.AUTO_APPROVED, RemarkKind.DEGRADED}
    return report.outcome == "complete" and bool(is_doubtful)


def verdict(report: Report) -> str:
    """The outcome in a few words."""
    if report.subject == "task":
        word = report.state.partition(",")[0]
        return "done, with reservations" if word == "done" and is_weak(report) else word
    if report.cause == Cause.UNVERIFIED:
        return "unverified: no checks configured"
    if report.outcome == "complete":
        return "complete, with reservations" if is_weak(report) else "complete"
    if report.outcome:
        headline, cause = Cause(report.cause).headline.lower() or "stopped", plain(report.cause)
        return headline if headline == cause else f"{headline}: {cause}"
    return report.state


def proved(report: Report) -> RunReport | None:
    """The run with the proof; for a task, its last run."""
    last = report.runs[-1] if report.runs else None
    return last if last is not None and last.proof and report.outcome == "complete" else None


def proof_title(proof: Proof) -> str:
    """The heading above the claim and its checks; without checks nothing was proved."""
    return "Proof" if proof.checks else "Claim"


def standing(report: Report) -> str:
    """A warning for a report that is not final; empty if it is final."""
    last = report.runs[-1] if report.runs else None
    if last is None:
        return "No runs yet."
    if last.state == "crashed":
        command = f"ralph work --task {report.id}" if report.task else f"ralph resume {last.id}"
        return f"The run crashed: its process is gone. To continue: {command}"
    if last.state in _STILL:
        return f"Still {last.state}: this report shows the state at {moment(report.made)}."
    return ""


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at)).strip()


def money(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def number(value: float) -> str:
    return f"{value:,.0f}"


def short_number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + letter
    return f"{value:.0f}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def facts(report: Report) -> list[tuple[str, str]]:
    """The numbers at the top."""
    used = report.used
    found = [
        ("iterations", number(report.count)),
        ("working time", duration(report.elapsed)),
    ]
    if used.cost_usd:
        found.append(("cost", money(used.cost_usd)))
    if used.tokens:
        found.append(("tokens", short_number(used.tokens)))
    files = [run.files for run in report.runs if run.files is not None]
    if files and report.subject == "run":
        found.append(("files changed", number(files[-1])))
    if report.task is not None:
        found.append(("sent back", plural(report.task.sent_back, "time")))
    return found


def iteration_line(iteration: Iteration) -> str:
    """The result of one iteration in a few words."""
    if iteration.is_open:
        return "in progress"
    words = [f"agent {iteration.ended}"] if iteration.ended not in ("", "ok") else []
    if iteration.moved:
        words.append(iteration.moved)
    elif iteration.claim:
        words.append("said it was done")
    red = [found for found in iteration.checks if not found.green and found.required]
    if red:
        words.append(plural(len(red), "failed check") if len(red) > 1 else f"check failed: {red[0].check}")
    elif iteration.checks:
        words.append("checks passed")
    return ", ".join(words) or "no claim"


def about(iteration: Iteration) -> str:
    """The result of one iteration, with its role and story."""
    story = "" if iteration.moved else iteration.story
    return " · ".join(filter(None, (iteration_line(iteration), f"{iteration.role} {story}".strip())))


def remark_line(remark: Remark) -> str:
    where = f" (iteration {remark.iteration})" if remark.iteration else ""
    return f"{remark.text}{where}"


def review_where(review: Review) -> str:
    """Who reviewed a story and in which iteration; for a task's role, its number of iterations."""
    if not review.subject:
        return f"after {plural(review.iteration, 'iteration')}" if review.iteration else ""
    return f"by {review.by}, iteration {review.iteration}" if review.by else f"iteration {review.iteration}"


def tokens_line(used: Usage) -> str:
    parts = [
        (used.input_tokens, "in"),
        (used.output_tokens, "out"),
        (used.cache_read_tokens, "cache read"),
        (used.cache_write_tokens, "cache written"),
    ]
    return " · ".join(f"{short_number(count)} {name}" for count, name in parts if count)
