"""The Go `ralph` (richclement/ralph-cli), according to its README: its own settings file, exit code 0 means complete.

Not on npm: measured if it is on PATH. It looks for the text at the end of the result, without a tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness.base import Harness, Job, Launch
from bench.harness.on_path import other_ralph

COMMANDS = {Shape.CLAUDE: "claude", Shape.CODEX: "codex", Shape.PLAIN: "agent"}


class GoRalph(Harness):
    name = "ralph-go"
    title = "ralph-cli in Go, with the guardrail, commits by itself"
    tag = Tag("response", "DONE")

    def find(self) -> str:
        return str(self._program())

    def _program(self) -> Path:
        return other_ralph("completion-response", "maximum-iterations")

    def files(self, job: Job) -> Mapping[str, str]:
        settings = {
            "maximumIterations": job.limit,
            "completionResponse": str(self.tag),
            "agent": {"command": COMMANDS[job.shape]},
            "guardrails": [{"command": job.guardrail, "failAction": "APPEND"}],
            "scm": {"command": "git", "tasks": ["commit"]},
        }
        return {".ralph/settings.json": json.dumps(settings, indent=2)}

    def launch(self, job: Job, private: Path) -> Launch:
        program = self._program()
        return Launch((str(program), "run", "-p", job.prompt), path=(program.parent,))
