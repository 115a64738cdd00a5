"""R4, O3: a clock that runs backwards, and bytes that are not text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import Project
from faults.fault_support import DONE, Watched, newest
from journal_support import replayed
from ralph.core.model import Ran

BACKWARDS = """
import itertools, sys
from ralph.loop import clock
ticks = itertools.count()
clock.Clock.wall = lambda clock: 2_000_000_000.0 - 1000 * next(ticks)
from ralph.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_r4_a_clock_that_runs_backwards(project: Project, tmp_path: Path) -> None:
    """A clock that falls with every reading changes neither the order of rows nor durations."""
    project.agent(
        f"touch $RALPH_ITERATION; [ $RALPH_ITERATION = 3 ] && {DONE}; true", guardrails=[{"command": "true"}]
    )
    words = [sys.executable, "-c", BACKWARDS, "run", "-p", "x", "--max-duration-seconds", "600"]
    result = Watched(project, words, tmp_path / "log").result()
    assert result.code == 0, result.err
    found = newest(project)
    state = replayed(project.home, found.id)
    assert (state.iteration, found.outcome) == (3, "complete")
    assert state.elapsed >= 0
    for command in ("status", "logs"):
        assert project.run(command, found.id).code == 0


@pytest.mark.parametrize("via", ["stdin", "argument"])
def test_o3_strange_text_survives_a_run(project: Project, via: str) -> None:
    """NUL, emoji, surrogates and invalid bytes survive prompt, output and journal."""
    text = "🦀 é \u2028 \x1b[31m" + ("\0" if via == "stdin" else "")
    (project.path / "prompt.md").write_text(text)
    rubbish = "printf '\\355\\240\\200 \\377\\376 \\360\\237\\246\\200 \\0 x\\n'"
    project.agent(f'cat > got; printf %s "$1" >> got; {rubbish}; {DONE}', agent={"promptVia": via})
    result = project.run("run", "-f", "prompt.md")
    assert result.code == 0, result.err
    assert (project.path / "got").read_bytes().startswith(text.encode())
    run = newest(project).id
    state = replayed(project.home, run)
    assert isinstance(state.ran, Ran) and "🦀" in state.ran.text
    raw = next(project.home.streams(run).glob("*.stdout")).read_bytes()
    assert raw.startswith(b"\355\240\200 \377\376 \360\237\246\200 \0 x\n")
    json.loads(project.run("status", run, "--json").out)
    shown = project.run("logs", run, "--json")
    assert [line for line in shown.out.splitlines() if not isinstance(json.loads(line), dict)] == []
