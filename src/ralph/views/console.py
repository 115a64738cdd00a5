"""A run on the terminal: progress on stderr, the result on stdout, agent output made safe."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from typing import Any, TextIO, get_args

from msgspec.structs import replace

from ralph.core.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    CheckEnded,
    CheckStarted,
    ClaimLooked,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Notice,
    RunEnded,
    RunStarted,
    UsageReported,
)
from ralph.core.model import (
    Cause,
    Ended,
    FailAction,
    Flow,
    HoldWhy,
    Network,
    Outcome,
    Permissions,
    Purpose,
    Ran,
    Stop,
    Usage,
    complete,
)
from ralph.core.text import clean
from ralph.views.agent import AgentLines, ViewOptions, count, duration, paint
from ralph.views.writer import Sink, ThreadedWriter

FIX_JUDGE = "Fix the judge (ralph.judge in the settings) or set ralph.allowDegraded"

_NEXT = complete(
    Cause,
    {
        Cause.PROVED: "",
        Cause.UNVERIFIED: "To have the next run checked, add `guardrails` to .ralph/settings.json (ralph init).",
        Cause.AUTO_APPROVED: "",
        Cause.ITERATIONS: "To continue: ralph resume {run} -m N",
        Cause.COST: "To continue: ralph resume {run} --max-cost-usd USD",
        Cause.TOKENS: "To continue: ralph resume {run} --max-tokens N",
        Cause.DURATION: "To continue: ralph resume {run} --max-duration-seconds S",
        Cause.STAGNATION: 'Add guidance: ralph steer {run} "…", then: ralph resume {run}',
        Cause.NEVER_CLAIMED: 'Look at the changes: ralph diff {run}. If something is missing: ralph steer {run} "…", then: ralph resume {run}',
        Cause.CRASH_LOOP: "See why: ralph logs {run}, then: ralph resume {run}",
        Cause.VERIFICATION: "See which checks fail: ralph status {run}",
        Cause.REFUSED: "See why: ralph logs {run}",
        Cause.CONFIG: "Fix this, then: ralph resume {run} (after a change of settings, start a new run)",
        Cause.GIT: "Nothing is lost: the work is in the working tree. Fix this, then: ralph resume {run}",
        Cause.UNSTARTABLE: "Fix this (ralph doctor checks the configured agents), then: ralph resume {run}",
        Cause.AUTH: "Log in or add credit, then: ralph resume {run}",
        Cause.DENIED: "Allow it to write (agent.permissions), then start a new run.",
        Cause.JUDGE: f"{FIX_JUDGE}, then: ralph resume {{run}}",
        Cause.WAIT_MARKER: "When that is done: ralph resume {run}",
        Cause.OLD_TESTS: "Look at the changes: ralph diff {run}. If they are right: ralph resume {run} {allow}",
        Cause.LIMIT_WAIT: "After the reset: ralph resume {run}",
        Cause.SIGNAL: "To continue: ralph resume {run}",
        Cause.CANCELLED: "To continue: ralph resume {run}",
    },
)
"""The next command after each end; empty where nothing is left to do."""

_NEXT_OF: dict[str, dict[Cause, str]] = {
    Flow.PRD: {
        Cause.VERIFICATION: "Fix this, or set a story back to needs_review, then: ralph resume {run}",
        Cause.AUTO_APPROVED: "Read the notes of these stories: ralph prd status",
    },
    Flow.WORK: {cause: "To continue its task: ralph work --task ID" for cause, hint in _NEXT.items() if hint}
    | {Cause.JUDGE: f"{FIX_JUDGE}, then: ralph work --task ID"},
}
MAX_ALLOWED = 5
"""Maximum number of tests named in the command that allows their change."""

QUIET_SECONDS = 1.0
"""A shorter run shows no status line."""

_FEEDBACK = {
    FailAction.APPEND: "output goes into the next prompt",
    FailAction.PREPEND: "output goes first in the next prompt",
    FailAction.REPLACE: "output replaces the next prompt",
}

_MAY = {
    Permissions.EDIT: "May edit files without asking (agent.permissions: edit).",
    Permissions.BYPASS: "May do anything without asking (agent.permissions: bypass).",
    Permissions.NONE: "May only do what its own settings allow (agent.permissions: none).",
}

_REACH = {
    Network.OPEN: "network open (sandbox.network: open).",
    Network.OFF: "network off.",
    Network.ALLOW_LIST: "network limited to the allow-list.",
}


def wants_colour(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and is_able(stream)


def is_able(stream: TextIO) -> bool:
    """Whether this is a terminal that can move its cursor."""
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def shows_emoji(stream: TextIO) -> bool:
    return _is_utf8(stream) and os.environ.get("TERM") != "linux" and is_able(stream)


def _is_utf8(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", "") or "utf-8").lower().replace("-", "") == "utf8"


class Console:
    """Prints events as they arrive. Losing the terminal does not stop the run."""

    check_word = "Guardrail"

    def __init__(
        self, out: TextIO, err: TextIO, look: ViewOptions, sink: Callable[[TextIO], Sink] = ThreadedWriter
    ) -> None:
        self._out, self._err = sink(out), sink(err)
        self._colour = wants_colour(err) if look.colour is None else look.colour
        self._colour_result = wants_colour(out) if look.colour is None else look.colour
        emoji = shows_emoji(err) if look.emoji is None else look.emoji
        self._passed, self._failed = ("✓", "✗") if _is_utf8(err) else ("[OK]", "[FAILED]")
        self._look = replace(look, emoji=emoji, colour=self._colour)
        self._agent = AgentLines(self._look)
        self._open_line = False
        self._is_work = True
        self._flow = ""
        self._run = self._main_agent = ""
        self._is_last = False
        self._status = _Status(err, self._agent, self._colour)
        if isinstance(self._err, ThreadedWriter) and is_able(err):
            self._err.status = self._status
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            **dict.fromkeys(get_args(AgentEvent), self._agent_did),
            RunStarted: self._run_started,
            IterationStarted: self._iteration_started,
            AgentStarted: self._agent_started,
            AgentEnded: self._agent_ended,
            UsageReported: self._used,
            CheckStarted: self._check_started,
            CheckEnded: self._check_ended,
            ClaimLooked: self._claim_looked,
            Committed: self._committed,
            Holding: self._holding,
            Notice: self._notice,
            RunEnded: self._run_ended,
        }

    def __call__(self, event: Event, at: float | None = None) -> None:
        self._handlers[type(event)](event, time.time() if at is None else at)

    @property
    def current(self) -> str:
        """The tool that is running."""
        return self._agent.current

    def flush(self) -> None:
        self._err.flush()
        self._out.flush()

    # ---- the agent ----

    def _agent_did(self, event: AgentEvent, at: float) -> None:
        if self._look.stream and (self._is_work or self._look.verbose):
            self._write(self._agent(event, at))

    def _used(self, event: UsageReported, at: float) -> None:
        self._status.current = event.usage

    def _agent_started(self, event: AgentStarted, at: float) -> None:
        self._agent.begin(at)
        self._is_work = event.purpose is Purpose.WORK
        self._verbose(f"Agent command: {clean(shlex.join(event.command))[:2000]}")
        more = "..." if event.prompt_chars > len(event.prompt) else ""
        self._verbose(f"Prompt: {clean(event.prompt)}{more}")

    def _agent_ended(self, event: AgentEnded, at: float) -> None:
        ran = event.ran
        self._agent.begin(at)
        self._status.ended(ran.usage)
        code = "" if ran.exit is None else f", exit code {ran.exit}"
        unread = f", {count(event.unread, 'unknown line')}" if event.unread else ""
        self._verbose(f"Agent ended: {ran.ended}{code} ({ran.took:.1f}s{unread})")
        if event.purpose is Purpose.WORK and ran.ended is not Ended.OK:
            self._line(self._paint("yellow", f"Agent {ran.ended.words}{_explained(ran)}"))

    # ---- Ralph ----

    def _run_started(self, event: RunStarted, at: float) -> None:
        self._run = event.run
        self._flow = event.flow
        self._main_agent = event.agent
        self._status.started(event.used, event.elapsed)
        again = "resumed" if event.resumed else "started"
        checks = count(len(event.checks), "check") if event.checks else "no checks"
        what = f"agent {clean(event.agent)}, {checks}, up to {count(event.iterations, 'iteration')}"
        if event.flow == Flow.SUPERVISE:
            what = f"{clean(event.agent)}, up to {count(event.iterations, 'attempt')}"
        if event.unguarded:
            some = {event.agent, *event.fallbacks} - set(event.unguarded)
            whose = f" for {', '.join(clean(name) for name in event.unguarded)}" if some else ""
            what += f", no command guard{whose}"
        self._line(f"{self._paint('bold', f'Run {event.run} {again}')}: {what}")
        if event.permissions is not None:
            self._line(_MAY[event.permissions])
        if event.fallbacks:
            self._line(f"Fallbacks at a usage limit: {', '.join(clean(name) for name in event.fallbacks)}")
        if event.sandbox != "direct":
            self._line(f"Sandbox: {event.sandbox}, {_REACH[event.network]}")

    def _iteration_started(self, event: IterationStarted, at: float) -> None:
        self._verbose(f"Iteration {event.iteration}/{event.of} starting")
        about = clean(f": {event.role} {event.story}") if event.story else ""
        self._line(self._paint("bold", f"=== Ralph iteration {event.iteration}/{event.of}{about} ==="))
        self._is_last = event.iteration >= event.of
        self._agent.begin(at)
        self._status.iteration, self._status.waiting = f"{event.iteration}/{event.of}", ""
        if self._main_agent and event.agent not in ("", self._main_agent):
            self._line(f"Using {clean(event.agent)} while {clean(self._main_agent)} is at its usage limit")
        if event.steered:
            self._line(f"{count(event.steered, 'message')} from `ralph steer` added to the prompt")

    def _check_started(self, event: CheckStarted, at: float) -> None:
        self._verbose(f"Running {self.check_word.lower()}: {clean(event.check)}")
        self._line(self._paint("dim", f"Running {clean(event.check)}"))

    def _check_ended(self, event: CheckEnded, at: float) -> None:
        verdict = event.verdict
        reason, name, seconds = clean(verdict.reason), clean(verdict.check), f"{event.seconds:.1f}s"
        words = (
            reason.replace("exit code", "exited with code")
            if "exit code" in reason
            else f"finished: {reason}"
        )
        self._verbose(f"{self.check_word} {words} ({seconds})")
        if verdict.green and verdict.cause is not None:
            self._line(self._paint("yellow", f"{name} not judged ({seconds}): {reason}"))
            return
        if verdict.green:
            weaker = f": {reason}" if verdict.degraded or reason.startswith("no ") else ""
            self._line(self._paint("green", f"{self._passed} {name} passed ({seconds}){weaker}"))
            return
        why = reason.replace("no exit code: it ", "").replace("exit code ", "exit ")
        why = why.replace("a timeout after", "timed out after")
        then = f"; {_FEEDBACK[event.fail_action]}" if verdict.feedback and self._is_fed_back() else ""
        self._line(self._paint("red", f"{self._failed} {name} failed ({why}){then}"))
        for line in verdict.excerpt:
            self._line(f"    {clean(line)}")
        if verdict.log:
            self._line(self._paint("dim", f"  full output: {verdict.log}"))

    def _is_fed_back(self) -> bool:
        """Whether another iteration of this run will read the output of a failed check."""
        return not self._is_last

    def _claim_looked(self, event: ClaimLooked, at: float) -> None:
        self._verbose(f"Completion: {clean(event.expected)} {'found' if event.found else 'not found'}")
        if event.unclaimed:
            tag = event.expected.partition(">")[0] + ">"
            line = f"The agent's {tag} tag is not counted as a claim: {event.unclaimed}"
            self._line(self._paint("yellow", clean(line)))

    def _committed(self, event: Committed, at: float) -> None:
        subject = clean(event.message).strip().partition("\n")[0]
        self._line(self._paint("green", f"Committed {event.commit[:10]}: {subject[:100]}"))

    def _holding(self, event: Holding, at: float) -> None:
        hold = event.hold
        if hold.why is HoldWhy.PAUSED:
            self._line(self._paint("yellow", f"Paused. To continue: ralph resume {self._run}"))
        elif hold.until is not None:
            until = time.strftime("%H:%M:%S", time.localtime(hold.until))
            self._line(self._paint("yellow", f"Usage limit reached. Waiting until {until}."))
            self._status.waiting = f"waiting until {until}"
        elif hold.seconds and hold.seconds >= 0.05:
            self._line(f"Waiting {_WAITS[hold.why].format(f'{hold.seconds:.1f}s')}.")

    def _notice(self, event: Notice, at: float) -> None:
        if event.detail:
            self._verbose(clean(event.text))
        else:
            self._line(clean(event.text))

    def _run_ended(self, event: RunEnded, at: float) -> None:
        stop = event.stop
        self._status.over()
        unit = "attempt" if self._flow == Flow.SUPERVISE else "iteration"
        used = [count(event.iterations, unit), duration(event.seconds), *usage_words(event.usage)]
        lines = [clean(stop.headline), f"  run {event.run}: {', '.join(used)}"]
        if event.files:
            made = f", {count(len(event.commits), 'commit')}" if event.commits else ""
            lines.append(f"  {count(event.files, 'file')} changed{made}: ralph diff {event.run}")
            lines.append(f"  To undo everything: ralph rewind {event.run} 1")
        lines += [f"  note: {clean(note)}" for note in stop.notes]
        if hint := _NEXT_OF.get(self._flow, {}).get(stop.cause) or _NEXT[stop.cause]:
            lines.append(f"  {hint.format(run=event.run, allow=_allow(stop))}")
        self._line("")
        self.flush()
        if self._colour_result:
            lines[0] = paint(end_colour(stop), lines[0])
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()

    # ---- writing ----

    def _verbose(self, text: str) -> None:
        if self._look.verbose:
            self._line("\n".join(f"[ralph] {line}" for line in text.split("\n")))

    def _line(self, text: str) -> None:
        self._write(("\n" if self._open_line else "") + text + "\n")

    def _write(self, text: str) -> None:
        if text:
            self._open_line = not text.endswith("\n")
            self._err.write(text)

    def _paint(self, colour: str, text: str) -> str:
        return paint(colour, text) if self._colour else text


class _Status:
    """The status line: iteration, time, cost or tokens, current tool."""

    def __init__(self, stream: TextIO, agent: AgentLines, colour: bool) -> None:
        self._stream = stream
        self._colour = colour
        self._agent = agent
        self._used = Usage()
        self._began: float | None = None
        self._quiet_until = 0.0
        self.current = Usage()
        self.iteration = ""
        self.waiting = ""

    def started(self, used: Usage, elapsed: float) -> None:
        now = time.monotonic()
        self._used, self._began, self._quiet_until = used, now - elapsed, now + QUIET_SECONDS

    def ended(self, usage: Usage) -> None:
        self._used, self.current = self._used + usage, Usage()

    def over(self) -> None:
        self._began = None

    def __call__(self) -> str:
        """The text to show now, empty before and after the run."""
        now = time.monotonic()
        if self._began is None or not self.iteration or now < self._quiet_until:
            return ""
        used = self._used + self.current
        facts = [f"iteration {self.iteration}", duration(now - self._began), *usage_words(used)]
        doing = self.waiting or self._agent.current
        text = " · ".join([*facts, doing] if doing else facts)
        try:
            width = os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
        text = text[: max(10, width - 1)]
        return paint("dim", text) if self._colour else text


_WAITS = complete(
    HoldWhy,
    {
        HoldWhy.RESTART: "{} before the next attempt",
        HoldWhy.LIMIT: "{} for the usage limit to reset",
        HoldWhy.PAUSED: "{} while paused",
        HoldWhy.CHILDREN: "up to {} for child processes to exit",
    },
)


def _allow(stop: Stop) -> str:
    """The options that allow the changes of these tests; only a few are spelled out."""
    names = [shlex.quote(re.sub(r"([*?[])", r"[\1]", clean(path))) for path in stop.tests]
    return " ".join(f"--allow {name}" for name in names) if 0 < len(names) <= MAX_ALLOWED else "--allow GLOB"


def end_colour(stop: Stop) -> str:
    """Green for proved work, yellow for unverified or interrupted work, red for the rest."""
    if stop.cause is Cause.UNVERIFIED or stop.outcome is Outcome.INTERRUPTED:
        return "yellow"
    return "green" if stop.outcome is Outcome.COMPLETE else "red"


_BY_RALPH = {Ended.IDLE, Ended.BUDGET, Ended.INTERRUPTED}
"""Ralph stopped the agent, so its signal explains nothing."""


def _explained(ran: Ran) -> str:
    if ran.ended is Ended.TIMEOUT:
        return f" after {duration(ran.took)}"
    code = f", exit code {ran.exit}" if ran.ended is Ended.FAILED and ran.exit is not None else ""
    detail = clean(ran.detail)
    if detail.startswith("by "):
        return "" if ran.ended in _BY_RALPH else f"{code} {detail}"
    return f"{code}: {detail}" if detail else code


def usage_words(usage: Usage) -> list[str]:
    words = []
    if usage.cost_usd:
        words.append(f"${usage.cost_usd:.2f}")
    if usage.tokens:
        words.append(f"{usage.tokens:,} tokens")
    return words
