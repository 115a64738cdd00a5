"""Chooses the turn that answers a request and builds the reply. No sockets here."""

from __future__ import annotations

import json
import threading
from enum import Enum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ralph.errors import RalphError
from ralph.modelserver import tools
from ralph.modelserver.answer import Json, ModelAnswer, Refusal, Wire, conversation, sample
from ralph.modelserver.script import ModelScript, ModelTurn, TokenCounts

Played = int | Literal["side", "refused"]
"""The number of the script's turn (from 1), a side call, or a request that could not be answered."""


class Ending(Enum):
    WHOLE = "whole"
    CUT = "cut"
    HANG = "hang"
    SILENCE = "silence"
    """A hang before the first byte."""


class Reply(Struct, frozen=True):
    """The data to send. If the reply ends early, only the first `sent` pieces are sent."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    streams: bool = False
    delay: float = 0.0
    ending: Ending = Ending.WHOLE
    sent: int = 0


class Player:
    """Plays a script, one turn for each request except side calls. Thread-safe."""

    def __init__(self, script: ModelScript) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._asked = 0
        self._played = [0] * len(script.turns)

    def reply(self, wire: Wire, path: str, body: Json, now: float) -> tuple[Reply, Played]:
        """The reply to a request, and what was played for it."""
        advertised, said = wire.tools(body), conversation(body)
        is_side = not advertised and not self._script.addressed(said)
        with self._lock:
            self._asked += 1
            number = f"{self._asked:06}"
            index = None if is_side else self._script.turn(said, self._played)
            if index is not None:
                self._played[index] += 1
        model = wire.model(path, body)
        if is_side:
            schema = wire.schema(body)
            text = json.dumps(sample(schema)) if schema else self._script.side
            return _answered(
                wire, path, body, ModelAnswer(number, model, TokenCounts(10, 1), text=text)
            ), "side"
        if index is None:
            return refused(wire, 400, "The script has no turn left for this request."), "refused"
        turn = self._script.turns[index]
        try:
            calls = tools.calls(turn.tools, advertised, number)
        except RalphError as error:
            return refused(wire, 400, error.message), "refused"
        answer = ModelAnswer(number, model, turn.usage, turn.thinking, turn.text, calls)
        reply = _played(wire, path, body, turn, answer, now)
        headers = reply.headers + tuple(turn.headers.items())
        return replace(reply, delay=turn.delay, headers=headers), index + 1


def refused(wire: Wire, status: int, message: str) -> Reply:
    """An error of the server itself."""
    return _refusal(Refusal(status, wire.error(status, "", message)))


def _played(wire: Wire, path: str, body: Json, turn: ModelTurn, answer: ModelAnswer, now: float) -> Reply:
    """A turn's answer or fault, without its delay and headers."""
    if turn.status is not None:
        message = turn.message or f"Scripted error {turn.status}."
        error = turn.body if turn.body is not None else wire.error(turn.status, turn.type, message)
        return _refusal(Refusal(turn.status, error))
    if turn.usage_limit:
        return _refusal(wire.usage_limit(turn.usage_limit.reset(now), now))
    if turn.hang:
        return Reply((), ending=Ending.SILENCE)
    whole = _answered(wire, path, body, answer)
    if turn.malformed:
        broken = tuple(wire.malformed(answer)) if whole.streams else whole.pieces[:1]
        return replace(whole, pieces=broken)
    if turn.stream_error:
        message = turn.message or "Scripted error."
        if not whole.streams:
            return _refusal(Refusal(500, wire.error(500, turn.type, message)))
        return replace(whole, pieces=(whole.pieces[0], wire.error_event(turn.type, message)))
    if turn.hang_after is not None:
        return replace(whole, ending=Ending.HANG, sent=turn.hang_after)
    if turn.cut:
        return replace(whole, ending=Ending.CUT, sent=len(whole.pieces) // 2)
    return whole


def _answered(wire: Wire, path: str, body: Json, answer: ModelAnswer) -> Reply:
    if wire.streams(path, body):
        return Reply(tuple(wire.events(answer, body)), streams=True)
    text = json.dumps(wire.whole(answer)).encode()
    return Reply((text[: len(text) // 2], text[len(text) // 2 :]))


def _refusal(refusal: Refusal) -> Reply:
    text = refusal.body if isinstance(refusal.body, str) else json.dumps(refusal.body)
    return Reply((text.encode(),), refusal.status, refusal.headers)
