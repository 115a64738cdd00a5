"""Our own harness: `ralph run` with the guardrail and commits by ralph. Exit code 0 means complete."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness.base import Finished, Harness, Job, Launch, NotMeasured

COMMANDS = {Shape.CLAUDE: "claude", Shape.CODEX: "codex", Shape.PLAIN: "agent"}
LONGEST_LIMIT_WAIT = 30.0
WAITING, OLD_TESTS = 3, "old tests"
"""The exit code of a run that waits, and a part of its outcome if it waits for a decision on changed tests."""


class Ralph(Harness):
    """`holds_tests`: the guardrail runs in a clean copy, and a second one protects the files that must not change."""

    tag = Tag("response", "DONE")
    is_ours = True

    def __init__(self, name: str, title: str, *, holds_tests: bool) -> None:
        self.name = name
        self.title = title
        self._holds_tests = holds_tests
        self.program = Path(sys.executable).parent / "ralph"

    def find(self) -> str:
        if not self.program.exists():
            raise NotMeasured("ralph is not installed next to this python")
        done = subprocess.run([self.program, "--version"], capture_output=True, text=True, timeout=30)
        return done.stdout.strip()

    def files(self, job: Job) -> Mapping[str, str]:
        guardrails: list[dict[str, object]] = [{"command": job.guardrail, "clean": self._holds_tests}]
        if self._holds_tests and job.kept:
            hint = "Leave check.sh and tests/ as they are."
            guardrails.insert(0, {"command": unchanged(job), "hint": hint})
        settings = {
            "agent": {"command": COMMANDS[job.shape], "permissions": "bypass"},
            "guardrails": guardrails,
            "scm": {"command": "git", "tasks": ["commit"]},
            "maximumIterations": job.limit,
            "maxLimitWaitSeconds": LONGEST_LIMIT_WAIT,
        }
        return {".ralph/settings.json": json.dumps(settings, indent=2)}

    def launch(self, job: Job, private: Path) -> Launch:
        allowed = [word for glob in job.allow for word in ("--allow", glob)]
        return self._launch(private, "run", *allowed, "-p", job.prompt)

    def resume(self, job: Job, private: Path) -> Launch:
        return self._launch(private, "resume")

    def asks(self, finished: Finished) -> bool:
        return finished.code == WAITING and OLD_TESTS in finished.out + finished.err

    def _launch(self, private: Path, *arguments: str) -> Launch:
        state = private / "state"
        state.mkdir(exist_ok=True)
        return Launch(
            (str(self.program), *arguments, "--no-stream-agent-output"), {"RALPH_STATE_DIR": str(state)}
        )


def unchanged(job: Job) -> str:
    """Return a command that fails if a kept file has changed or its directory has new files."""
    folders = sorted({str(Path(name).parent) for name in job.kept} - {"."})
    names = [name for name in job.kept if "/" not in name] + [f"{folder}/*" for folder in folders]
    patterns = " ".join(name if name.endswith("/*") else shlex.quote(name) for name in names)
    digest = f"git hash-object --no-filters -- {patterns} | git hash-object --stdin"
    return f'test "$({digest})" = {job.kept_digest}'


OURS = Ralph("ralph", "ralph run; one guardrail runs the tests, one protects them", holds_tests=True)
BARE = Ralph("ralph-bare", "ralph run; one guardrail runs the tests", holds_tests=False)
