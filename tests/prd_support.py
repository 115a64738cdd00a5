"""A project with a PRD loop, and agents written in Python that play it more or less honestly."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import Project, Result

PROGRESS = "# Ralph Progress Log\nStarted: 2026-01-02\nPRD: calc\n\n## Codebase Patterns\n- none\n\n---\n"
PROMPT = "Iteration $RALPH_ITERATION of $RALPH_MAX_ITERATIONS: $RALPH_MODE $RALPH_STORY, cap ${RALPH_REVIEW_CAP}.\n"

PRELUDE = """
import json, os, re, subprocess, sys, time
from pathlib import Path
ROOT, CALLS = Path.cwd(), Path({calls!r})
RALPH = ROOT / "ralph"
TASKS, PRD, PROGRESS, MARKER = RALPH / "tasks.json", RALPH / "prd.md", RALPH / "progress.txt", ROOT / ".ralph-active"
CALLS.mkdir(exist_ok=True)
n = 1 + len(list(CALLS.iterdir()))
(CALLS / str(n)).write_text(sys.argv[-1])
mode, id = re.search(r": (\\S+) (\\S+), cap", sys.argv[-1]).groups()

def load():
    return json.loads(TASKS.read_text())

def save(board):
    TASKS.write_text(json.dumps(board, indent=2))

def change(which=None, **values):
    board = load()
    for story in board["userStories"]:
        if story["id"] == (which or id):
            story.update(values)
    save(board)

def count(which=None):
    return next(s["reviewCount"] for s in load()["userStories"] if s["id"] == (which or id))

def implement(which=None):
    change(which, reviewStatus="needs_review", notes="done")

def approve(which=None, **more):
    change(which, reviewStatus="approved", passes=True, reviewCount=count(which) + 1, **more)

def reject(feedback="mend it", which=None):
    change(which, reviewStatus="changes_requested", reviewCount=count(which) + 1, reviewFeedback=feedback)

def fix(which=None):
    change(which, reviewStatus="needs_review", reviewFeedback="")

def git(*words):
    identity = ["-c", "user.name=Agent", "-c", "user.email=agent@localhost"]
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout

def commit(message="feat: work"):
    git("add", "-A")
    git("commit", "-q", "-m", message)

def play():
    {{"implement": implement, "review": approve, "review-fix": fix}}[mode]()

def log(text):
    with PROGRESS.open("a") as file:
        file.write(text + "\\n")

print("I do", mode, id)
"""

HONEST = "play()"


def story(id: str = "US-001", **values: Any) -> dict[str, Any]:
    usual = {
        "id": id,
        "title": f"Story {id}",
        "description": "",
        "acceptanceCriteria": [f"{id} works", "It is tested"],
        "priority": 1,
        "passes": False,
        "reviewStatus": None,
        "reviewCount": 0,
        "reviewFeedback": "",
        "notes": "",
        "dependsOn": [],
    }
    return usual | values


def board(*stories: dict[str, Any], **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "project": "calc",
        "branchName": "main",
        "description": "A calculator",
        "verifyCommands": [],
    }
    return usual | {"userStories": list(stories or [story()])} | values


@dataclass(frozen=True)
class Loop:
    """The project, its folder `ralph/`, and its agent, which lies outside of the repository."""

    project: Project

    @property
    def folder(self) -> Path:
        return self.project.path / "ralph"

    @property
    def outside(self) -> Path:
        return self.project.path.parent

    @property
    def tasks(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "tasks.json").read_text())
        return found

    @property
    def stories(self) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self.tasks["userStories"]}

    def standing(self, id: str = "US-001") -> tuple[bool, str | None, int]:
        """Whether a story passes, its review status, and how often it was reviewed."""
        found = self.stories[id]
        return found["passes"], found["reviewStatus"], found["reviewCount"]

    def write(self, tasks: dict[str, Any]) -> None:
        (self.folder / "tasks.json").write_text(json.dumps(tasks, indent=2) + "\n")

    def agent(self, body: str = HONEST, **settings: Any) -> None:
        """What the agent does in every iteration, in Python, with the names of the prelude."""
        path = self.outside / "agent"
        prelude = PRELUDE.format(calls=str(self.outside / "calls"))
        path.write_text(f"#!{sys.executable} -IS\n{prelude}\n{body}\n")
        path.chmod(0o755)
        self.project.settings(**({"agent": {"command": str(path)}, "snapshots": False} | settings))

    def run(self, *arguments: str, timeout: float = 60) -> Result:
        return self.project.run("prd", "run", *arguments, timeout=timeout)

    @property
    def prompts(self) -> list[str]:
        """What the agent was told, in order."""
        calls = self.outside / "calls"
        found = sorted(calls.iterdir(), key=lambda path: int(path.name)) if calls.exists() else []
        return [path.read_text() for path in found]

    @property
    def modes(self) -> list[str]:
        """Mode and story of each iteration."""
        return [prompt.partition(": ")[2].partition(",")[0] for prompt in self.prompts]

    @property
    def subjects(self) -> list[str]:
        """Of the commits, the newest first."""
        return self.project.git("log", "--format=%s").splitlines()


def make_loop(project: Project, *stories: dict[str, Any], **values: Any) -> Loop:
    loop = Loop(project)
    loop.folder.mkdir()
    (loop.folder / "prompt.md").write_text(PROMPT)
    (loop.folder / "prd.md").write_text("# Calc\n\nIt adds.\n")
    (loop.folder / "progress.txt").write_text(PROGRESS)
    loop.write(board(*stories, **values))
    (project.path / ".gitignore").write_text(".ralph-active\n.ralph/\n")
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@localhost")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    loop.agent()
    return loop
