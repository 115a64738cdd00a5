"""A run on the terminal: progress on stderr, the result on stdout, nothing raw from an agent."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from ralph.core.events import (
    AgentEnded,
    AgentStarted,
    CheckEnded,
    CheckStarted,
    ClaimLooked,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Noise,
    Notice,
    RunEnded,
    RunStarted,
    Text,
)
from ralph.core.model import Cause, Ended, HoldWhy, Outcome, Purpose, Usage
from ralph.core.text import clean
from ralph.views.outlet import Outlet, Sink

_NEXT = {
    Cause.ITERATIONS: "Go on with more: ralph resume {run} -m N",
    Cause.COST: "Go on with more: ralph resume {run} --max-cost-usd USD",
    Cause.TOKENS: "Go on with more: ralph resume {run} --max-tokens N",
    Cause.DURATION: "Go on with more: ralph resume {run} --max-duration-seconds S",
    Cause.STAGNATION: 'Tell it what to do: ralph steer {run} "…", then: ralph resume {run}',
    Cause.CRASH_LOOP: "See why with: ralph logs {run}, then: ralph resume {run}",
    Cause.VERIFICATION: "See what is red with: ralph status {run}",
    Cause.CONFIG: "Mend that and start again: ralph run …",
    Cause.UNSTARTABLE: "Install it, then: ralph resume {run}; or name another: ralph run --agent …",
    Cause.AUTH: "Log in, then: ralph resume {run}",
    Cause.DENIED: "Change that and start again: ralph run …",
    Cause.WAIT_MARKER: "When it is over: ralph resume {run}",
    Cause.LIMIT_WAIT: "When it is over: ralph resume {run}",
    Cause.SIGNAL: "Go on with: ralph resume {run}",
    Cause.CANCELLED: "Go on with: ralph resume {run}",
}
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


@dataclass(frozen=True, slots=True)
class Look:
    """What the user wants to see. `stream`: the agent's own output. `verbose`: everything else too."""

    stream: bool = True
    verbose: bool = False


def wants_colour(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


class Console:
    """Prints events as they come. A terminal that has gone away stops nothing."""

    def __init__(self, out: TextIO, err: TextIO, look: Look, sink: Callable[[TextIO], Sink] = Outlet) -> None:
        self._out, self._err = sink(out), sink(err)
        self._look = look
        self._colour = wants_colour(err)
        self._colour_result = wants_colour(out)
        self._open_line = False
        self._run = ""
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Text: self._text,
            Noise: self._noise,
            RunStarted: self._run_started,
            IterationStarted: self._iteration_started,
            AgentStarted: self._agent_started,
            AgentEnded: self._agent_ended,
            CheckStarted: self._check_started,
            CheckEnded: self._check_ended,
            ClaimLooked: self._claim_looked,
            Committed: self._committed,
            Holding: self._holding,
            Notice: self._notice,
            RunEnded: self._run_ended,
        }

    def __call__(self, event: Event, at: float | None = None) -> None:
        self._handlers[type(event)](event)

    def flush(self) -> None:
        self._err.flush()
        self._out.flush()

    # ---- the agent ----

    def _text(self, event: Text) -> None:
        if self._look.stream:
            self._write(clean(event.text))

    def _noise(self, event: Noise) -> None:
        if self._look.stream:
            self._write(self._paint("dim", clean(event.text)))

    def _agent_started(self, event: AgentStarted) -> None:
        self._verbose(f"Agent command: {clean(shlex.join(event.command))[:2000]}")
        more = "..." if event.prompt_chars > len(event.prompt) else ""
        self._verbose(f"Prompt: {clean(event.prompt)}{more}")

    def _agent_ended(self, event: AgentEnded) -> None:
        ran = event.ran
        code = "" if ran.exit is None else f", exit code {ran.exit}"
        self._verbose(f"Agent ended: {ran.ended}{code} ({ran.took:.1f}s)")
        if event.purpose is Purpose.WORK and ran.ended is not Ended.OK:
            detail = f": {clean(ran.detail)}" if ran.detail else ""
            self._line(self._paint("yellow", f"Agent {_ENDS[ran.ended]}{code}{detail}"))

    # ---- the harness ----

    def _run_started(self, event: RunStarted) -> None:
        self._run = event.run
        again = "goes on" if event.resumed else "starts"
        checks = f"{len(event.checks)} guardrail{'' if len(event.checks) == 1 else 's'}"
        what = f"agent {clean(event.agent)}, {checks}, at most {_count(event.iterations, 'iteration')}"
        self._line(f"{self._paint('bold', f'Run {event.run} {again}')}: {what}")

    def _iteration_started(self, event: IterationStarted) -> None:
        self._verbose(f"Iteration {event.iteration}/{event.of} starting")
        self._line(self._paint("bold", f"=== Ralph iteration {event.iteration}/{event.of} ==="))
        if event.steered:
            self._line(f"Guidance delivered with this prompt: {event.steered}")

    def _check_started(self, event: CheckStarted) -> None:
        self._verbose(f"Running guardrail: {clean(event.check)}")
        self._line(f"Guardrail start: {clean(event.check)}")

    def _check_ended(self, event: CheckEnded) -> None:
        verdict = event.verdict
        reason = clean(verdict.reason)
        words = (
            reason.replace("exit code", "exited with code") if "exit code" in reason else f"ended by {reason}"
        )
        self._verbose(f"Guardrail {words} ({event.seconds:.1f}s)")
        action = "" if verdict.green else f", action {event.fail_action}"
        colour = "green" if verdict.green else "red"
        name, seconds = clean(verdict.check), f"{event.seconds:.1f}s"
        self._line(self._paint(colour, f"Guardrail end: {name} ({reason}{action}, {seconds})"))
        if not verdict.green:
            self._line(f"  output: {verdict.log}")

    def _claim_looked(self, event: ClaimLooked) -> None:
        self._verbose(f"Completion: {clean(event.expected)} {'found' if event.found else 'not found'}")

    def _committed(self, event: Committed) -> None:
        subject = clean(event.message).strip().partition("\n")[0]
        self._line(self._paint("green", f"Committed {event.commit[:10]}: {subject[:100]}"))

    def _holding(self, event: Holding) -> None:
        hold = event.hold
        if hold.why is HoldWhy.PAUSED:
            self._line(self._paint("yellow", f"Paused. Go on with: ralph resume {self._run}"))
        elif hold.until is not None:
            until = time.strftime("%H:%M:%S", time.localtime(hold.until))
            self._line(self._paint("yellow", f"The agent is at its limit. Waiting until {until}."))
        else:
            self._line(f"Waiting {hold.seconds or 0:.1f}s ({hold.why}).")

    def _notice(self, event: Notice) -> None:
        if event.detail:
            self._verbose(clean(event.text))
        else:
            self._line(clean(event.text))

    def _run_ended(self, event: RunEnded) -> None:
        stop = event.stop
        colour = "green" if stop.outcome is Outcome.COMPLETE else "red"
        used = [_count(event.iterations, "iteration"), duration(event.seconds), *_usage(event.usage)]
        lines = [f"{stop.outcome}: {clean(stop.reason)}", f"  run {event.run}: {', '.join(used)}"]
        if event.files:
            made = f", {_count(len(event.commits), 'commit')}" if event.commits else ""
            lines.append(f"  {_count(event.files, 'file')} changed{made}: ralph diff {event.run}")
            lines.append(f"  To undo all of it: ralph rewind {event.run} 1")
        lines += [f"  note: {clean(note)}" for note in stop.notes]
        if hint := _NEXT.get(stop.cause):
            lines.append(f"  {hint.format(run=event.run)}")
        self._line("")
        self.flush()
        if self._colour_result:
            lines[0] = f"\x1b[{_COLOURS[colour]}m{lines[0]}\x1b[0m"
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
        if not self._colour or not text:
            return text
        body, newline = (text[:-1], "\n") if text.endswith("\n") else (text, "")
        return f"\x1b[{_COLOURS[colour]}m{body}\x1b[0m{newline}"


_ENDS = {
    Ended.EMPTY: "said nothing",
    Ended.FAILED: "failed",
    Ended.TIMEOUT: "was ended: its time was up",
    Ended.IDLE: "was ended: it had been silent for too long",
    Ended.KILLED: "was killed",
    Ended.LIMIT: "is at a usage limit",
    Ended.AUTH: "is not logged in, or out of credit",
    Ended.BUDGET: "was ended: the budget is used up",
    Ended.DENIED: "was not allowed to write",
    Ended.UNSTARTABLE: "could not be started",
    Ended.INTERRUPTED: "was interrupted",
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _usage(usage: Usage) -> list[str]:
    words = []
    if usage.cost_usd:
        words.append(f"${usage.cost_usd:.2f}")
    if usage.tokens:
        words.append(f"{usage.tokens:,} tokens")
    return words


def duration(seconds: float) -> str:
    """A duration as people say it: 0.4s, 12s, 3m5s, 2h10m."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"
