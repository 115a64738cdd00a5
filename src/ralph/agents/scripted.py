"""The scripted agent: plays a small script of turns as a real process. For tests, the demo and benchmarks.

A script is YAML or JSON: `turns`, a list; iteration N plays turn N, the last turn is played for ever.
Each turn may have, done in this order:
    delay: 0.5              seconds to wait
    text: "…"               printed on stdout (`{prompt}` is replaced by the prompt)
    stderr: "…"             printed on stderr
    run: "make build"       a shell command, or a list of them; its output goes to stdout
    rubbish: 1000           so many bytes that are no text, on stdout
    say: "…"                printed last, on stdout
    hang: true              never exits
    exit: 1                 exit code
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ralph.agents.base import Prompt
from ralph.agents.plain import PlainParser
from ralph.core.model import AgentSpec, ClaimRule, PromptVia, Purpose


class Scripted:
    prompt_via = PromptVia.STDIN
    idle_seconds = 0.0

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        mode = ["--message"] if purpose is Purpose.MESSAGE else []
        return [sys.executable, "-I", "-m", "ralph.agents.scripted", *mode, *spec.flags]

    def parser(self, claim: ClaimRule, prompt: str) -> PlainParser:
        return PlainParser(claim, prompt)


KEYS = ("delay", "text", "stderr", "run", "rubbish", "say", "hang", "exit")


def load(path: str) -> list[dict[str, Any]]:
    """The turns of a script; what is wrong with it is said in one line."""
    import yaml

    try:
        script = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SystemExit(f"scripted agent: {path}: {error}") from None
    turns = script.get("turns") if isinstance(script, dict) else None
    if not isinstance(turns, list) or not turns:
        raise SystemExit(f"scripted agent: {path}: 'turns' must be a list of at least one turn")
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict):
            raise SystemExit(f"scripted agent: {path}: turn {number} must be a mapping")
        if unknown := set(turn) - set(KEYS):
            raise SystemExit(
                f"scripted agent: {path}: turn {number}: unknown key {sorted(unknown)[0]!r};"
                f" known are {', '.join(KEYS)}"
            )
    return turns


def play(turn: dict[str, Any], prompt: str) -> int:
    """Do what one turn says; returns the exit code."""
    import subprocess
    import time

    out = sys.stdout
    time.sleep(float(turn.get("delay", 0)))
    if "text" in turn:
        print(str(turn["text"]).replace("{prompt}", prompt), flush=True)
    if "stderr" in turn:
        print(turn["stderr"], file=sys.stderr, flush=True)
    commands = turn.get("run", [])
    for command in [commands] if isinstance(commands, str) else commands:
        subprocess.run(["sh", "-c", command], check=False)
    if "rubbish" in turn:
        out.buffer.write(bytes(n * 37 % 256 for n in range(int(turn["rubbish"]))))
        out.flush()
    if "say" in turn:
        print(turn["say"], flush=True)
    while turn.get("hang"):
        time.sleep(60)
    return int(turn.get("exit", 0))


def main(arguments: list[str]) -> int:
    import os

    if arguments[:1] == ["--message"]:
        print("Do what the script says")
        return 0
    if not arguments:
        raise SystemExit("scripted agent: name the script in agent.flags")
    turns = load(arguments[0])
    iteration = int(os.environ.get("RALPH_ITERATION", "1"))
    return play(turns[min(iteration, len(turns)) - 1], sys.stdin.read())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
