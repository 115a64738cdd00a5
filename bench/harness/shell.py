"""Two floors: a loop that greps the agent's output for the tag, and a loop that never stops.

The first is a common script: text mode, stdout and stderr combined, `grep -q`, at most N rounds. The second is
`while :; do agent < PROMPT; done`, bounded here, which can never report completion.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.agents.model import Shape, Tag
from bench.harness.base import Harness, Job, Launch

AGENTS = {
    Shape.CLAUDE: "claude --dangerously-skip-permissions --print",
    Shape.CODEX: "codex exec --dangerously-bypass-approvals-and-sandbox -",
    Shape.PLAIN: "agent",
}

GREP = """#!/bin/sh
for round in $(seq "$1"); do
    output=$({agent} < PROMPT.md 2>&1)
    if printf '%s' "$output" | grep -qF '{tag}'; then echo complete; exit 0; fi
done
exit 1
"""
WHILE = """#!/bin/sh
round=0
while [ $round -lt "$1" ]; do
    {agent} < PROMPT.md
    round=$((round + 1))
done
exit 1
"""


class ShellLoop(Harness):
    tag = Tag("promise", "COMPLETE")

    def __init__(self, name: str, title: str, script: str) -> None:
        self.name = name
        self.title = title
        self._script = script

    def find(self) -> str:
        return "sh"

    def files(self, job: Job) -> Mapping[str, str]:
        script = self._script.replace("{agent}", AGENTS[job.shape]).replace("{tag}", str(self.tag))
        return {"loop.sh": script, "PROMPT.md": job.prompt}

    def launch(self, job: Job, private: Path) -> Launch:
        return Launch(("/bin/sh", "loop.sh", str(job.limit)))


TAG_GREP = ShellLoop("tag-grep", "a shell loop that greps the output for the tag", GREP)
BARE_WHILE = ShellLoop("while", "the bare while loop, bounded", WHILE)
