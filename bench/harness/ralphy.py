"""ralphy-cli from npm. Tested with 4.7.2.

`ralphy --prd FILE` works through a list of tasks; a task is done when the agent's process succeeds. The test command
and the files not to touch are only text in its prompt. Exit code 0 with every task checked off (`All tasks completed!`)
means complete. The npm program starts another and waits for it. After a restart it continues with the unchecked tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness import npm
from bench.harness.base import Finished, Harness, Job, Launch, program

VERSION = "4.7.2"
ENGINES = {Shape.CLAUDE: "--claude", Shape.CODEX: "--codex", Shape.PLAIN: "--copilot"}


class Ralphy(Harness):
    name = "ralphy"
    title = f"ralphy-cli {VERSION}, a list with one task"
    tag = Tag("promise", "COMPLETE")
    works_a_list = True

    def find(self) -> str:
        self._programs()
        return VERSION

    def _programs(self) -> tuple[Path, Path]:
        return npm.installed(f"ralphy-cli-{VERSION}", f"ralphy-cli@{VERSION}"), program("node").parent

    def files(self, job: Job) -> Mapping[str, str]:
        kept = "".join(f"\n    - {name}" for name in job.kept) or " []"
        config = f"project:\n  name: scripts\n  language: Shell\ncommands:\n  test: {job.guardrail}\n"
        words = " ".join(job.prompt.split())
        tasks = [words, *(f"Part {number}: {words}" for number in range(2, job.tasks + 1))]
        return {
            ".ralphy/config.yaml": f"{config}rules: []\nboundaries:\n  never_touch:{kept}\n",
            "PRD.md": "# Tasks\n\n" + "".join(f"- [ ] {task}\n" for task in tasks),
        }

    def launch(self, job: Job, private: Path) -> Launch:
        retries = ("--max-iterations", str(job.limit), "--max-retries", str(job.limit), "--retry-delay", "1")
        path = self._programs()
        argv = (str(path[0] / "ralphy"), ENGINES[job.shape], "--prd", "PRD.md", *retries, "--no-browser")
        return Launch(argv, path=path, is_starter=True)

    def is_complete(self, finished: Finished) -> bool:
        return finished.code == 0 and "All tasks completed!" in finished.out
