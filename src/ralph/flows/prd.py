"""`ralph prd run`: a folder with a PRD and a task list becomes the Plan of a loop with reviews."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ralph.agents.registry import with_model
from ralph.core import stories
from ralph.core.model import (
    AgentSpec,
    Check,
    ClaimKind,
    ClaimRule,
    Flow,
    Permissions,
    Plan,
    Prd,
    PromptSource,
    Scm,
    When,
)
from ralph.errors import RalphError
from ralph.flows.run import agent_specs, limits
from ralph.scm.repository import find_repository
from ralph.settings import DEFAULT, Loaded
from ralph.store.files import opened_directory, write
from ralph.store.runs import process_start
from ralph.storyboard import MARKER, PRD, TASKS, valid
from ralph.textfile import read_text

PROMPT = "prompt.md"
PER_STORY = 3
"""How many iterations a story takes, roughly: implement, review, and now and then a fix."""

PLUGIN = Path(__file__).parent.parent / "plugin"
HOOKS = "hooks.json"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was given on the command line."""

    directory: Path
    folder: str = "ralph"
    iterations: int = 15
    model: str = ""
    skip_review: bool = False
    review_cap: int = stories.REVIEW_CAP

    @property
    def prd(self) -> Prd:
        return Prd(self.folder, self.skip_review, self.review_cap)


def load_board(inputs: Inputs) -> dict[str, Any]:
    """The task list of a folder that is ready to be worked on; else one error that says what to do."""
    folder = inputs.directory / inputs.folder
    if not folder.is_dir():
        raise RalphError(f"There is no folder {folder}.", "Make it with: ralph prd init")
    for name in (PROMPT, PRD):
        if not (folder / name).is_file():
            raise RalphError(
                f"{folder / name} is missing.", "`ralph prd init --force` makes what is missing."
            )
    path = folder / TASKS
    board = valid(read_text(str(path), most=16 << 20, what="task list"), str(path), inputs.prd)
    if not board["userStories"]:
        raise RalphError(f"{path} has no stories.", "Plan them first: ralph prd plan")
    return board


def plan(run: str, loaded: Loaded, inputs: Inputs, hooks: Path | None = None) -> Plan:
    settings = loaded.settings
    folder = f"{inputs.folder}/{PROMPT}"
    return Plan(
        run=run,
        flow=Flow.PRD,
        directory=str(inputs.directory),
        agents=_agents(loaded, inputs, hooks),
        prompt=PromptSource(
            file=folder, instruction=False, truncate=settings.output_truncate_chars, prd=inputs.prd
        ),
        claim=ClaimRule(kind=ClaimKind.BOARD, tag="promise", text="COMPLETE", strict=True),
        checks=(Check("verifyCommands", "stories", when=When.CLAIMED),),
        limits=limits(settings, inputs.iterations, settings.iteration_timeout_seconds),
        scm=Scm("git", ("commit",), "chore: [ralph] what an iteration left uncommitted"),
        snapshots=settings.snapshots,
    )


def _agents(loaded: Loaded, inputs: Inputs, hooks: Path | None) -> tuple[AgentSpec, ...]:
    """Everything is allowed unless the user says otherwise; Claude Code gets the hooks."""
    specs = agent_specs(loaded.settings.agent, loaded.settings.idle_timeout_seconds)
    if loaded.sources.get("agent.permissions", DEFAULT) == DEFAULT:
        specs = tuple(replace(spec, permissions=Permissions.BYPASS) for spec in specs)
    if inputs.model:
        specs = tuple(with_model(spec, inputs.model) for spec in specs)
    return tuple(_with_hooks(spec, hooks) for spec in specs) if hooks else specs


def _with_hooks(spec: AgentSpec, hooks: Path) -> AgentSpec:
    if spec.type != "claude" or "--settings" in spec.flags:
        return spec
    return replace(spec, flags=(*spec.flags, "--settings", str(hooks)))


def write_hooks(directory: Path) -> None:
    """Hooks that a project cannot switch off: outside of it, and run by our own interpreter."""
    scripts = PLUGIN / "hooks" / "scripts"

    def hook(name: str) -> list[dict[str, Any]]:
        command = f'"{sys.executable}" -I -S "{scripts / name}"'
        return [{"matcher": ".*", "hooks": [{"type": "command", "command": command, "timeout": 60}]}]

    hooks = {
        "PostToolUse": hook("context_monitor.py"),
        "PostToolUseFailure": hook("context_monitor.py"),
        "Stop": hook("stop_loop_reminder.py"),
    }
    with opened_directory(str(directory)) as state:
        write(state, HOOKS, json.dumps({"hooks": hooks}, indent=2).encode())


# ---- what is said at the start ----


def introduction(board: dict[str, Any], inputs: Inputs) -> list[str]:
    """How many iterations it may take, and what looks odd."""
    todo = [story for story in board["userStories"] if not story["passes"]]
    each = 1 if inputs.skip_review else PER_STORY
    needed = each * len(todo)
    lines = [
        f"{len(todo)} of {len(board['userStories'])} stories to do × ~{each} iteration{'s' * (each > 1)} each"
        f" = ~{needed} iterations needed, at most {inputs.iterations} allowed."
    ]
    if needed > inputs.iterations:
        lines.append(f"That may not be enough: --max-iterations {needed} would be.")
    if (branch := current_branch(inputs.directory)) and branch != board["branchName"]:
        lines.append(
            f"You are on {branch}, and tasks.json names {board['branchName']}: Ralph does not switch branches."
        )
    if not board.get("verifyCommands"):
        lines.append("There are no verifyCommands: a story is approved by the word of its review alone.")
    return lines


def current_branch(directory: Path) -> str:
    """What is checked out, found without starting git; "" where nothing is."""
    repository = find_repository(directory)
    if repository is None:
        return ""
    try:
        head = (repository.git_dir / "HEAD").read_text().strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""


def sweep_marker(directory: Path) -> None:
    """A marker that a killed loop has left is removed; that of a live one stops us, whoever runs it."""
    path = directory / MARKER
    try:
        payload = json.loads(path.read_text())
        pid, start = int(payload["pid"]), payload.get("pidStart")
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        pid, start = 0, None
    is_live = pid > 0 and pid != os.getpid() and process_start(pid) is not None
    if is_live and start in (None, process_start(pid)):
        raise RalphError(
            f"{path} says that a loop is running here (process {pid}).",
            "Wait for it or end it; if it is none, remove the file.",
        )
    path.unlink(missing_ok=True)
