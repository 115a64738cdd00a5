"""Plays a scripted agent as `claude`, `codex`, `copilot` or `agent`. Standard library only; starts fast.

    python -I -S play.py SCRIPT PROGRAM ARGUMENT…

Every start is recorded before anything else: a line of JSON with its kind, pid and start time. The number of an
invocation is the number of work starts so far, because not every harness passes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than everything else
    from typing import Any

VERSIONS = {"claude": "2.1.325 (Claude Code)", "codex": "codex-cli 0.166.0"}
HELP = "Usage: {} [options] [prompt]\n\nOptions:\n  -p, --print  --output-format  --verbose  --json  --yolo"
ASKS_VERSION = {"--version", "-v", "-V"}
ASKS_HELP = {"--help", "-h", "help"}
ASKS_MESSAGE = "commit message for the changes"
FRAME = "  │ "


def main(path: str, program: str, arguments: list[str]) -> int:
    with open(path) as file:
        script = json.load(file)
    state = script["state"]
    asked = set(arguments)
    if asked & (ASKS_VERSION | ASKS_HELP):
        record(state, "probe")
        print(VERSIONS.get(program, "1.0.0") if asked & ASKS_VERSION else HELP.format(program))
        return 0
    prompt = prompt_of(arguments)
    shapes: dict[str, type[Claude | Codex | Plain]] = {"claude": Claude, "codex": Codex, "plain": Plain}
    out = shapes[script["shape"]](arguments, prompt)
    if ASKS_MESSAGE in prompt:
        record(state, "message")
        with open(os.path.join(state, "project")) as file:
            return play(script["message"], out, prompt, state, file.read())
    if script["refusal"] and (seconds := refused(script["refusal"], state)):
        record(state, "refused")
        out.refuse(script["refusal"]["limit"], seconds)
        return 1
    turns = script["turns"]
    with open(os.path.join(state, "project"), "w") as file:
        file.write(os.getcwd())
    return play(turns[min(record(state, "work"), len(turns)) - 1], out, prompt, state, os.getcwd())


def play(turn: dict[str, Any], out: Claude | Codex | Plain, prompt: str, state: str, project: str) -> int:
    for shown in turn["shown"]:
        text = shown["text"].replace("{prompt}", prompt)
        if shown["kind"] == "stderr":
            print(text, file=sys.stderr, flush=True)
        elif shown["command"]:
            getattr(out, shown["kind"])(text, shown["command"])
        else:
            getattr(out, shown["kind"])(text)
    if turn["do"]:
        run(turn["do"], project, state)
    out.finish(turn | {"say": turn["say"].replace("{prompt}", prompt)})
    sys.stdout.flush()
    if turn["exit"] < 0:
        os.kill(os.getpid(), -turn["exit"])
    return int(turn["exit"])


def run(command: str, project: str, state: str) -> None:
    """Run a command in the project quietly, without git prompts; `$ARENA` is the directory of this program's records."""
    env = dict(os.environ, GIT_TERMINAL_PROMPT="0", GIT_EDITOR="true", ARENA=state)
    null = subprocess.DEVNULL
    words = ["/bin/sh", "-c", command]
    subprocess.run(words, cwd=project, env=env, stdin=null, stdout=null, stderr=null, check=False)


def record(state: str, kind: str) -> int:
    """Record this start; return the number of starts of its kind."""
    with open(os.path.join(state, "starts"), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = sum(bool(json.loads(line)["kind"] == kind) for line in file)
        file.write(json.dumps({"kind": kind, "pid": os.getpid(), "start": started()}) + "\n")
    return before + 1


def started() -> int:
    """Return the start time of this process, in clock ticks since boot."""
    try:
        with open("/proc/self/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def prompt_of(arguments: list[str]) -> str:
    """Return the last argument, or the file it names, unless it is a flag or its value; otherwise stdin."""
    last = arguments[-1] if arguments else "-"
    before = arguments[-2] if len(arguments) > 1 else ""
    is_value = before in ("--output-format", "--permission-mode", "--sandbox", "--model")
    if last.startswith("-") or is_value or last in ("exec", "e"):
        return sys.stdin.read()
    if len(last) < 4096 and os.path.isfile(last):
        with open(last) as file:
            return file.read()
    return last


def refused(refusal: dict[str, Any], state: str) -> float:
    """Return the remaining seconds of the refusal (0: it works)."""
    path = os.path.join(state, "refusals")
    with open(path, "a+") as file:
        file.seek(0)
        times = [float(line) for line in file]
        file.write(f"{time.time()}\n")
    seconds, starts = float(refusal["seconds"]), int(refusal["starts"])
    if starts:
        return max(1.0, seconds) if len(times) < starts else 0.0
    over = (times[0] if times else time.time()) + seconds
    return max(0.0, over - time.time())


WORDS = {
    "usage": "You've hit your usage limit. Try again in {:.0f} seconds.",
    "rate": "Rate limit reached: too many requests. Please try again in {:.0f} seconds.",
    "overload": "Overloaded. Please try again in {:.0f} seconds.",
    "credit": "Credit balance is too low",
}
ERRORS = {
    "usage": ("rate_limit", 429, "rate_limit_error"),
    "rate": ("rate_limit", 429, "rate_limit_error"),
    "overload": ("overloaded", 529, "overloaded_error"),
    "credit": ("billing_error", 400, "invalid_request_error"),
}
"""Claude Code's names: error, status, type."""


# ---- shapes ----


class Claude:
    """Output as stream-json, json or text, as requested."""

    MODEL = "claude-opus-5-5"

    def __init__(self, arguments: list[str], prompt: str) -> None:
        asked = [value for flag, value in pairwise(arguments) if flag == "--output-format"]
        self.format = asked[-1] if asked else "text"
        self.messages = self.tools = 0
        self.emit(type="system", subtype="init", model=self.MODEL)

    def emit(self, **line: Any) -> None:
        if self.format == "stream-json":
            print(json.dumps(line | {"session_id": "s-1"}, ensure_ascii=False), flush=True)

    def block(self, **block: Any) -> None:
        message = {
            "id": f"msg_{self.messages}",
            "type": "message",
            "role": "assistant",
            "model": self.MODEL,
            "content": [block],
            "usage": {"input_tokens": 100, "output_tokens": 0},
        }
        self.emit(type="assistant", message=message, parent_tool_use_id=None)

    def answer(self, **block: Any) -> None:
        self.emit(type="user", message={"role": "user", "content": [block]}, parent_tool_use_id=None)

    def text(self, text: str) -> None:
        self.messages += 1
        self.block(type="text", text=text)

    def thinking(self, text: str) -> None:
        self.block(type="thinking", thinking=text, signature="c2NyaXB0ZWQ=")

    def tool(self, text: str, command: str) -> None:
        self.messages += 1
        self.tools += 1
        name = f"toolu_{self.tools}"
        self.block(type="tool_use", id=name, name="Bash", input={"command": command})
        self.answer(type="tool_result", tool_use_id=name, content=text, is_error=False)

    raw_tool = tool

    def user(self, text: str) -> None:
        self.answer(type="text", text=text)

    def finish(self, turn: dict[str, Any]) -> None:
        if turn["say"]:
            self.text(turn["say"])
        if not turn["cut"]:
            usage = {"input_tokens": 100, "output_tokens": 50}
            line = {"is_error": False, "result": turn["say"], "total_cost_usd": turn["cost"], "usage": usage}
            self.result(line | {"permission_denials": []})

    def result(self, line: dict[str, Any]) -> None:
        line = {"type": "result", "subtype": "success", "num_turns": 1, "duration_ms": 5} | line
        self.emit(**line)
        if self.format == "json":
            print(json.dumps(line))
        elif self.format == "text":
            print(line["result"])

    def refuse(self, limit: str, seconds: float) -> None:
        text, (error, status, kind) = WORDS[limit].format(seconds), ERRORS[limit]
        if limit == "usage":
            resets = int(time.time() + seconds) + 1
            info = {"status": "rejected", "resetsAt": resets, "rateLimitType": "five_hour"}
            self.emit(type="rate_limit_event", rate_limit_info=info)
        details = {"api_error_status": status, "api_error_type": kind}
        content = [{"type": "text", "text": text}]
        message = {"id": "m", "model": "<synthetic>", "role": "assistant", "content": content}
        same = {"type": "assistant", "message": message, "parent_tool_use_id": None}
        self.emit(**same, error=error, is_api_error_message=True, **details)
        self.result(
            {"is_error": True, "result": text, "total_cost_usd": 0, "terminal_reason": "api_error"} | details
        )


class Codex:
    """JSON lines with --json; otherwise the conversation on stderr and the final message on stdout."""

    def __init__(self, arguments: list[str], prompt: str) -> None:
        self.json = "--json" in arguments
        flags = ("-o", "--output-last-message")
        self.file = next((value for flag, value in pairwise(arguments) if flag in flags), None)
        self.items = 0
        self.emit("OpenAI Codex v0.166.0\n--------", type="thread.started", thread_id="t-1")
        self.emit(f"user\n{prompt}", type="turn.started")

    def emit(self, plain: str, **line: Any) -> None:
        if self.json:
            print(json.dumps(line, ensure_ascii=False), flush=True)
        else:
            print(plain, file=sys.stderr, flush=True)

    def item(self, plain: str, event: str = "completed", **item: Any) -> None:
        self.emit(plain, type=f"item.{event}", item={"id": f"item_{self.items}"} | item)
        self.items += event == "completed"

    def text(self, text: str) -> None:
        self.item(f"codex\n{text}", type="agent_message", text=text)

    def thinking(self, text: str) -> None:
        self.item(f"thinking\n{text}", type="reasoning", text=text)

    def tool(self, text: str, command: str) -> None:
        same = {"type": "command_execution", "command": f"/bin/bash -lc '{command}'"}
        self.item("exec", "started", **same, aggregated_output="", exit_code=None, status="in_progress")
        self.item(f"{command}\n{text}", **same, aggregated_output=text, exit_code=0, status="completed")

    raw_tool = tool

    def user(self, text: str) -> None:
        print(f"user\n{text}", file=sys.stderr, flush=True)

    def finish(self, turn: dict[str, Any]) -> None:
        if turn["say"]:
            self.text(turn["say"])
        if turn["cut"]:
            return
        usage = {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 50}
        self.emit("tokens used\n150", type="turn.completed", usage=usage)
        if not self.json:
            print(turn["say"])
        if self.file:
            with open(self.file, "w") as file:
                file.write(turn["say"])

    def refuse(self, limit: str, seconds: float) -> None:
        text = WORDS[limit].format(seconds)
        self.emit(f"ERROR: {text}", type="error", message=text)
        if self.json:
            self.emit("", type="turn.failed", error={"message": text})


class Plain:
    """Plain text on stdout; a refusal on stderr."""

    def __init__(self, arguments: list[str], prompt: str) -> None:
        pass

    def text(self, text: str) -> None:
        print(text, flush=True)

    def thinking(self, text: str) -> None:
        print("\n".join(FRAME + line for line in text.splitlines()), flush=True)

    def tool(self, text: str, command: str) -> None:
        print(f"● Shell\n{FRAME}$ {command}")
        self.thinking(text)

    def raw_tool(self, text: str, command: str) -> None:
        print(f"$ {command}\n{text}", flush=True)

    def user(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def finish(self, turn: dict[str, Any]) -> None:
        if turn["say"]:
            print(turn["say"], end="" if turn["cut"] else "\n", flush=True)

    def refuse(self, limit: str, seconds: float) -> None:
        print(f"Error: {WORDS[limit].format(seconds)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
