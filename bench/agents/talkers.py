"""Many agents that print at a steady rate, driven by one talker process; imitates Claude Code. Standard library only.

    python -I -S talkers.py SOCKET                        one agent
    python -I -S talkers.py SOCKET AGENTS RATE SECONDS    the talker for all of them

An agent passes its stdout to the talker and stays until that hangs up. The talker prints to all of them at the given
rate in lines per second, spread over time as if they were independent, at little cost. On its own stdout it reports
when it begins, and at the end the number of lines per agent and the seconds taken.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
import time

SPREAD = 20
"""Number of groups; the groups print one after another."""

PAUSE = 0.3
"""Seconds of silence before the first line and after the last."""

PATIENCE = 60.0
"""Seconds that the talker waits for an agent."""

_SESSION = '"session_id":"8bcbf33b-aeb6-4775-98ca-b820f1348fcb","uuid":"f532cf9a-124a-43cd-8826-%012d"'
_ASSISTANT = (
    '{"type":"assistant","message":{"id":"msg_%09d","type":"message","role":"assistant",'
    '"model":"claude-opus-5-5","content":[%s],"stop_reason":null,"stop_sequence":null,'
    '"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":12013,'
    '"output_tokens":0},"context_management":null},"parent_tool_use_id":null,%s,"timestamp":"%s"}\n'
)
_TEXT = '{"type":"text","text":"Step %d: now I read the next file, to see how it does that."}'
_CALL = (
    '{"type":"tool_use","id":"toolu_%09d","name":"Bash","input":{"command":"grep -n step src/step_%d.py"}}'
)
_RESULT = (
    '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":'
    '"12:def step(number: int) -> str:\\n40:    return step(number - 1)","is_error":false,'
    '"tool_use_id":"toolu_%09d"}]},"parent_tool_use_id":null,%s,"timestamp":"%s","tool_use_result":'
    '{"stdout":"12:def step(number: int) -> str:\\n40:    return step(number - 1)","stderr":""}}\n'
)


def line(number: int, at: float) -> bytes:
    """Return one line: a text, a tool call or its result, half a kilobyte each, as Claude Code prints it."""
    turn, kind = divmod(number, 3)
    seconds, micro = divmod(int(at * 1e6), 1_000_000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micro:06}Z"
    session = _SESSION % number
    if kind == 2:
        return (_RESULT % (turn, session, stamp)).encode()
    block = _CALL % (turn, turn) if kind else _TEXT % turn
    return (_ASSISTANT % (turn, block, 1000 + turn, session, stamp)).encode()


def listen(path: str, agents: int) -> tuple[list[socket.socket], list[int]]:
    """Wait for all agents; return their connections and their stdout descriptors."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(agents)
    server.settimeout(PATIENCE)
    print("ready", flush=True)
    talkers, mouths = [], []
    for _ in range(agents):
        talker, _ = server.accept()
        _, ancillary, _, _ = talker.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
        mouths.append(array.array("i", ancillary[0][2])[0])
        talkers.append(talker)
    return talkers, mouths


def talk(mouths: list[int], rate: float, seconds: float) -> int:
    """Print to all agents, catching up when late; return the number of lines per agent."""
    groups = [mouths[start::SPREAD] for start in range(SPREAD)]
    lines, began = round(rate * seconds), time.monotonic()
    for number in range(lines):
        for place, group in enumerate(groups):
            due = began + (number + place / SPREAD) / rate
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            text = line(number, time.time())
            for mouth in group:
                os.write(mouth, text)
    return lines


def mouth(path: str, agents: int, rate: float, seconds: float) -> None:
    talkers, mouths = listen(path, agents)
    time.sleep(PAUSE)
    print("begin", flush=True)
    began = time.monotonic()
    lines = talk(mouths, rate, seconds)
    took = time.monotonic() - began
    time.sleep(PAUSE)
    print(json.dumps({"lines": lines, "seconds": took}), flush=True)
    sys.stdin.read()
    for talker in talkers:
        talker.close()


def agent(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as talker:
        talker.connect(path)
        talker.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
        talker.recv(1)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        mouth(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        agent(sys.argv[1])
