"""The scripted agent: a real process that plays a small script of turns. For tests, the demo and benchmarks.

A script is YAML or JSON with a list `turns`. Iteration N plays turn N; the last turn repeats forever.
A turn has these optional keys, executed in this order:
    delay: 0.5              wait, in seconds
    text: "…"               text for stdout (`{prompt}` is replaced by the prompt)
    stderr: "…"             text for stderr
    run: "make build"       a shell command or a list of them; output goes to stdout
    rubbish: 1000           number of non-text bytes for stdout
    say: "…"                final text for stdout
    hang: true              never exit
    exit: 1                 exit code
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec

from ralph.agents.base import Agent, Prompt, Reading
from ralph.agents.custom import argument
from ralph.agents.plain import PlainParser
from ralph.core.model import AgentSpec, PromptVia, Purpose


class Scripted(Agent):
    idle_seconds = 0.0

    def model_flags(self, model: str) -> list[str]:
        return []

    def hooked(self, spec: AgentSpec, path: str) -> AgentSpec | None:
        """No hooks needed: it only does what the script says."""
        return spec

    def argv(self, spec: AgentSpec, purpose: Purpose, prompt: Prompt) -> list[str]:
        mode = ["--message"] if purpose is Purpose.MESSAGE else []
        via = [f"--{spec.prompt_via}" + "".join(f"={text}" for text in argument(spec, prompt))]
        if spec.prompt_via is PromptVia.NONE:
            via = []
        return [sys.executable, "-I", "-m", "ralph.agents.scripted", *mode, *via, *spec.flags]

    def parser(self, reading: Reading) -> PlainParser:
        return PlainParser(reading)


AGENT: Agent = Scripted()


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The actions of one iteration, in the order of the fields."""

    delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    text: str = ""
    stderr: str = ""
    run: str | list[str] = []
    rubbish: Annotated[int, msgspec.Meta(ge=0)] = 0
    say: str = ""
    hang: bool = False
    exit: int = 0


class AgentScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[list[ScriptedTurn], msgspec.Meta(min_length=1)]


def load(path: str) -> AgentScript:
    """Load a script. A problem with it is a one-line error."""
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(Path(path).read_text()), AgentScript)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise SystemExit(f"scripted agent: {path}: {error}") from None


def play(turn: ScriptedTurn, prompt: str) -> int:
    """Play one turn and return the exit code."""
    import subprocess  # only here: Ralph's own process imports this file too, as the adapter

    time.sleep(turn.delay)
    if turn.text:
        print(turn.text.replace("{prompt}", prompt), flush=True)
    if turn.stderr:
        print(turn.stderr, file=sys.stderr, flush=True)
    for command in [turn.run] if isinstance(turn.run, str) else turn.run:
        subprocess.run(["sh", "-c", command], check=False)
    if turn.rubbish:
        sys.stdout.buffer.write(bytes(n * 37 % 256 for n in range(turn.rubbish)))
        sys.stdout.flush()
    if turn.say:
        print(turn.say, flush=True)
    while turn.hang:
        time.sleep(60)
    return turn.exit


def main(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="scripted agent", allow_abbrev=False)
    parser.add_argument("--message", action="store_true")
    via = parser.add_mutually_exclusive_group()
    via.add_argument("--stdin", action="store_true")
    via.add_argument("--argument")
    via.add_argument("--file", type=Path)
    parser.add_argument("script", nargs="?")
    options = parser.parse_args(arguments)
    if options.message:
        print("Do what the script says")
        return 0
    if options.script is None:
        raise SystemExit("scripted agent: no script given; add its path to agent.flags")
    turns = load(options.script).turns
    prompt = options.argument or (options.file.read_bytes().decode() if options.file else sys.stdin.read())
    iteration = int(os.environ.get("RALPH_ITERATION", "1"))
    return play(turns[min(iteration, len(turns)) - 1], prompt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
