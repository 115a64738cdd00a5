"""Every harness, by name."""

from __future__ import annotations

from bench.harness import ralph, shell
from bench.harness.base import Harness
from bench.harness.go_ralph import GoRalph
from bench.harness.orchestrator import Orchestrator
from bench.harness.ralph_tui import RalphTui
from bench.harness.ralphy import Ralphy

_ALL: tuple[Harness, ...] = (
    ralph.OURS,
    ralph.BARE,
    Ralphy(),
    RalphTui(),
    GoRalph(),
    Orchestrator(),
    shell.TAG_GREP,
    shell.BARE_WHILE,
)
HARNESSES = {harness.name: harness for harness in _ALL}
