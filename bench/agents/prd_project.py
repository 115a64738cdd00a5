"""A project with a PRD loop, and the prelude of every agent that works on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROMPT = "Iteration $RALPH_ITERATION of $RALPH_MAX_ITERATIONS: $RALPH_MODE $RALPH_STORY, cap ${RALPH_REVIEW_CAP}.\n"
PRD = "# Calc\n\nIt adds.\n"
LOG = "## 2026-01-02 - planning\n- This was planned.\n"
PROGRESS = (
    f"# Ralph Progress Log\nStarted: 2026-01-02\nPRD: calc\n\n## Codebase Patterns\n- none\n\n---\n{LOG}"
)

PRELUDE = """
import json, os, re, shutil, subprocess, sys, time
from pathlib import Path
ROOT, CALLS, OUTSIDE = Path.cwd(), Path({calls!r}), Path({calls!r}).parent
RALPH, MARKER = ROOT / "ralph", ROOT / ".ralph-active"
TASKS, PRD, PROGRESS, PROMPT = (RALPH / name for name in ("tasks.json", "prd.md", "progress.txt", "prompt.md"))
CALLS.mkdir(exist_ok=True)
n = 1 + len(list(CALLS.iterdir()))
(CALLS / str(n)).write_text(sys.argv[-1])
mode, id = re.search(r": (\\S+) (\\S+), cap", sys.argv[-1]).groups()

def load():
    return json.loads(TASKS.read_text())

def save(board):
    TASKS.write_text(json.dumps(board, indent=2))

def story(which=None):
    return next(s for s in load()["userStories"] if s["id"] == (which or id))

def change(which=None, **values):
    board = load()
    for each in board["userStories"]:
        if each["id"] == (which or id):
            each.update(values)
    save(board)

def edit(**values):
    save(load() | values)

def add(which, **values):
    board = load()
    board["userStories"].append(board["userStories"][0] | dict(id=which, passes=False, reviewStatus=None,
        reviewCount=0, reviewFeedback="", notes="new", dependsOn=[]) | values)
    save(board)

def implement(which=None):
    change(which, reviewStatus="needs_review", notes="done")

def approve(which=None, **more):
    done = dict(reviewStatus="approved", passes=True, reviewCount=story(which)["reviewCount"] + 1, notes="done")
    change(which, **done | more)

def approve_all():
    for each in load()["userStories"]:
        approve(each["id"])

def reject(feedback="fix it", which=None):
    count = story(which)["reviewCount"] + 1
    change(which, reviewStatus="changes_requested", reviewCount=count, reviewFeedback=feedback)

def fix(which=None):
    change(which, reviewStatus="needs_review", reviewFeedback="")

def play():
    {{"implement": implement, "review": approve, "review-fix": fix}}[mode]()

def log(text):
    with PROGRESS.open("a") as file:
        file.write(text + "\\n")

def git(*words):
    identity = ["-c", "user.name=Agent", "-c", "user.email=agent@localhost"]
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout

def commit(message="feat: work"):
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", message)

print("I do", mode, id, flush=True)
"""


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


def board(*stories: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "project": "calc",
        "branchName": "main",
        "description": "A calculator",
        "verifyCommands": [],
    }
    return usual | {"userStories": list(stories or [story()])} | values


def write_agent(path: Path, calls: Path, body: str) -> None:
    """Write a program that stores the prompt, its last argument, in `calls` and runs `body`."""
    path.write_text(f"#!{sys.executable} -IS\n{PRELUDE.format(calls=str(calls))}\n{body}\n")
    path.chmod(0o755)


def prompts(calls: Path) -> list[str]:
    """Return the agent's prompts, in order."""
    found = sorted(calls.iterdir(), key=lambda path: int(path.name)) if calls.exists() else []
    return [path.read_text() for path in found]


def make(project: Path, tasks: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
    """Create the folder `ralph/` in a repository with one commit."""
    folder = project / "ralph"
    folder.mkdir()
    (folder / "prompt.md").write_text(PROMPT)
    (folder / "prd.md").write_text(PRD)
    (folder / "progress.txt").write_text(PROGRESS)
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=2) + "\n")
    (project / ".gitignore").write_text(".ralph-active\n.ralph/\n")
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@localhost"),
        ("add", "-A"),
        ("commit", "-q", "-m", "First"),
    ):
        git(project, words, env)


def git(project: Path, words: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", *words], cwd=project, env=dict(env or os.environ), capture_output=True, text=True, check=True
    )
    return done.stdout
