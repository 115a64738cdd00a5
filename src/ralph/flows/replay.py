"""A run told again: the events of the past, made from the journal and the raw streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.base import Parser
from ralph.agents.registry import AGENTS
from ralph.core.events import (
    AgentEnded,
    CheckEnded,
    CheckStarted,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Notice,
    RunEnded,
    RunStarted,
)
from ralph.core.model import Checked, Commit, Did, FailAction, Plan, Purpose, Ran, RunAgent, RunChecks, Steer
from ralph.store import codec
from ralph.store.journal import Row, commits, load, rows
from ralph.store.runs import Runs


@dataclass(slots=True)
class _InHand:
    """A step that has begun and is not over: what of it was told already."""

    seq: int
    parser: Parser | None = None
    offset: int = 0


class Replay:
    """Tells what is in the store, and, asked again, what has come since."""

    def __init__(self, runs: Runs, run: str, streams: Path, iteration: int | None = None) -> None:
        self._runs = runs
        self._run = run
        self._streams = streams
        self._only = iteration
        self._iteration = 0
        self._told = -1
        self._in_hand: _InHand | None = None
        self._plan: Plan | None = None

    def news(self) -> Iterator[Event]:
        """What has happened since the last time."""
        for row in rows(self._runs.db, self._run, self._told):
            yield from self._row(row)
            if row.state is None:
                return
            self._told = row.seq
            self._in_hand = None

    def end(self) -> Iterator[Event]:
        """How it ended, if it has."""
        loaded = load(self._runs.db, self._runs.path, self._run)
        if loaded.state.stop and self._only is None:
            state = loaded.state
            assert state.stop is not None
            made = commits(self._runs.db, self._run)
            yield RunEnded(self._run, state.stop, state.iteration, state.usage, state.elapsed, None, made)

    def _row(self, row: Row) -> Iterator[Event]:
        if row.kind == "plan":
            self._plan = codec.decode("plan", row.body)
            yield from self._wanted(_started(self._plan))
        elif row.kind == "run_agent":
            yield from self._agent(row, codec.decode("run_agent", row.body))
        elif row.kind == "run_checks":
            yield from self._wanted(*self._checks(row))
        elif row.kind == "commit" and row.result:
            step: Commit = codec.decode("commit", row.body)
            did: Did = codec.decode("did", row.result)
            if did.made:
                yield from self._wanted(Committed(step.iteration, did.made, step.message))
            if did.detail:
                yield from self._wanted(Notice(did.detail))
        elif row.kind == "hold" and self._is_new(row):
            yield from self._wanted(Holding(codec.decode("hold", row.body)))
        elif row.kind == "steer":
            steer: Steer = codec.decode("steer", row.body)
            yield from self._wanted(Notice(f"Guidance: {steer.text}"))

    def _is_new(self, row: Row) -> bool:
        if self._in_hand is not None and self._in_hand.seq == row.seq:
            return False
        self._in_hand = _InHand(row.seq)
        return True

    def _wanted(self, *events: Event) -> Iterator[Event]:
        if self._only is None or self._only == self._iteration:
            yield from events

    def _agent(self, row: Row, step: RunAgent) -> Iterator[Event]:
        assert self._plan is not None
        if step.purpose is not Purpose.WORK:
            return
        self._iteration = step.iteration
        if self._is_new(row):
            yield from self._wanted(IterationStarted(step.iteration, step.of, len(step.steer)))
            spec = next(agent for agent in self._plan.agents if agent.name == step.agent)
            assert self._in_hand is not None
            self._in_hand.parser = AGENTS[spec.type].parser(self._plan.claim, "")
        yield from self._wanted(*self._printed(row, step))
        if row.result:
            ran: Ran = codec.decode("ran", row.result)
            yield from self._wanted(AgentEnded(step.purpose, ran))

    def _printed(self, row: Row, step: RunAgent) -> Iterator[Event]:
        """What the agent has printed since the last time."""
        assert self._in_hand is not None and self._in_hand.parser is not None
        path = self._streams / f"{step.iteration:03d}-{row.seq}.{step.purpose}.stdout"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            file.seek(self._in_hand.offset)
            while data := file.read(1 << 20):
                self._in_hand.offset += len(data)
                yield from self._in_hand.parser.stdout(data)

    def _checks(self, row: Row) -> Iterator[Event]:
        step: RunChecks = codec.decode("run_checks", row.body)
        if self._is_new(row):
            yield CheckStarted(step.names[0])
        if row.result:
            checked: Checked = codec.decode("checked", row.result)
            for verdict in checked.verdicts:
                action = verdict.feedback.action if verdict.feedback else FailAction.APPEND
                yield CheckEnded(verdict, action, checked.took)


def _started(plan: Plan) -> RunStarted:
    checks = tuple(check.name for check in plan.checks)
    agent = plan.agents[0].name
    return RunStarted(plan.run, plan.flow, plan.directory, agent, checks, plan.limits.iterations)
