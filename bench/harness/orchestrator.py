"""ralph-orchestrator (mikeyobrien), according to its CLI reference. Measured if its `ralph` is on PATH.

The npm package downloads its program from elsewhere during installation, so it is not installed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness.base import Harness, Job, Launch
from bench.harness.on_path import other_ralph

BACKENDS = {Shape.CLAUDE: "claude", Shape.CODEX: "codex", Shape.PLAIN: "custom"}


class Orchestrator(Harness):
    name = "ralph-orchestrator"
    title = "ralph-orchestrator, without hats"
    tag = Tag("promise", "LOOP_COMPLETE")

    def find(self) -> str:
        return str(self._program())

    def _program(self) -> Path:
        return other_ralph("completion-promise", "max-iterations")

    def files(self, job: Job) -> Mapping[str, str]:
        custom = "  custom_command: agent\n  prompt_mode: stdin\n" if job.shape is Shape.PLAIN else ""
        return {"ralph.yml": f"cli:\n  backend: {BACKENDS[job.shape]}\n{custom}"}

    def launch(self, job: Job, private: Path) -> Launch:
        program = self._program()
        limits = ("--max-iterations", str(job.limit), "--completion-promise", self.tag.text)
        argv = (str(program), "run", "-p", job.prompt, "--no-tui", "--autonomous", *limits)
        return Launch(argv, path=(program.parent,))

    def resume(self, job: Job, private: Path) -> Launch:
        first = self.launch(job, private)
        return replace(first, argv=(*first.argv, "--continue"))
