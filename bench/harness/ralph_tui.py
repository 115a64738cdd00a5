"""ralph-tui from npm. Tested with 0.11.0 and bun 1.4.4 (also from npm), which it needs to start.

`ralph-tui run --prd FILE --no-tui` works through the stories of a file. Its exit code is always 0; the summary at the
end says `Tasks: 1/1 completed`. It commits if `autoCommit` is set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness import npm
from bench.harness.base import Finished, Harness, Job, Launch

VERSION = "0.11.0"
BUN = "1.4.4"
CONFIG_VERSION = "2.1"
"""Without it, the program upgrades its settings and tries to download skills at every start."""

AGENTS = {Shape.CLAUDE: "claude", Shape.CODEX: "codex", Shape.PLAIN: "github-copilot"}


class RalphTui(Harness):
    name = "ralph-tui"
    title = f"ralph-tui {VERSION}, headless, one story, commits by itself"
    tag = Tag("promise", "COMPLETE")
    works_a_list = True

    def find(self) -> str:
        self._programs()
        return f"{VERSION} (bun {BUN})"

    def _programs(self) -> Path:
        return npm.installed(f"ralph-tui-{VERSION}", f"ralph-tui@{VERSION}", f"bun@{BUN}")

    def files(self, job: Job) -> Mapping[str, str]:
        criteria = [f"{job.guardrail} exits with 0"]
        criteria += [f"Unchanged: {', '.join(job.kept)}"] if job.kept else []
        same = {"description": job.prompt, "acceptanceCriteria": criteria, "passes": False, "dependsOn": []}
        stories = [
            {"id": f"US-{number:03}", "title": f"Sum and product {number}", "priority": number} | same
            for number in range(1, job.tasks + 1)
        ]
        prd = {"name": "scripts", "description": "Scripts", "branchName": "main", "userStories": stories}
        config = (
            'tracker = "json"',
            f'agent = "{AGENTS[job.shape]}"',
            "autoCommit = true",
            f'configVersion = "{CONFIG_VERSION}"',
        )
        return {
            "prd.json": json.dumps(prd, indent=2),
            ".ralph-tui/config.toml": "\n".join(config) + "\n",
        }

    def launch(self, job: Job, private: Path) -> Launch:
        path = self._programs()
        argv = (
            *(str(path / "ralph-tui"), "run", "--prd", "prd.json", "--agent", AGENTS[job.shape], "--no-tui"),
            *("--no-setup", "--no-notify", "--no-sandbox", "--serial", "--delay", "0"),
            *("--iterations", str(job.limit)),
        )
        return Launch(argv, path=(path,))

    def resume(self, job: Job, private: Path) -> Launch:
        path = self._programs()
        return Launch((str(path / "ralph-tui"), "resume", "--headless"), path=(path,))

    def is_complete(self, finished: Finished) -> bool:
        tasks = re.findall(r"^\s*Tasks:\s+(\d+)/(\d+) completed", finished.out, re.MULTILINE)
        return bool(tasks) and tasks[-1][0] == tasks[-1][1] != "0"
