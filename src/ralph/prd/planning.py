"""`ralph prd plan`: the agent writes PRD and stories together with the user; then both files are checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec
from ralph.errors import RalphError
from ralph.files.paths import PLUGIN
from ralph.files.storyfile import MAX_TASKS, TASKS, load, text_of
from ralph.files.textfile import read_text
from ralph.loop.story_board import PRD
from ralph.prd import files
from ralph.prd.plan import PrdInputs
from ralph.process.client import child_environment, find_program
from ralph.process.foreground import run_in_terminal
from ralph.store.files import opened_directory
from ralph.stories import rules

SKILL = PLUGIN / "skills" / "ralph-plan" / "SKILL.md"

_FULL = "prd.md is still empty: work in mode 1, full planning. Start with your questions."
_DERIVE = "prd.md is written: work in mode 2, task derivation. Do not rewrite it."


def take_prd(inputs: PrdInputs, source: Path, *, force: bool = False) -> list[str]:
    """Copy an existing PRD into the folder. A PRD with content is replaced only with `force`, and kept."""
    text = read_text(str(source), most=16 << 20, what="PRD")
    if not text.strip():
        raise RalphError(f"{source} is empty.")
    kept = ""
    if files.has_prd(inputs.directory, inputs.folder):
        with files.opened(inputs.directory, inputs.folder) as place:
            if place.read(PRD) == text.encode():
                return []
        if not force:
            raise RalphError(
                f"{inputs.folder}/{PRD} already has content.",
                "Use --force to replace it; the old one is kept under another name.",
            )
        kept = files.keep_old(inputs.directory, inputs.folder, PRD)
    with files.opened(inputs.directory, inputs.folder) as place:
        place.write(PRD, text.encode())
    return [f"Renamed {inputs.folder}/{PRD} to {inputs.folder}/{kept}."] if kept else []


def prompt(inputs: PrdInputs) -> str:
    """The /ralph-plan skill of Claude Code as a prompt for any agent."""
    _, _, skill = SKILL.read_text().removeprefix("---\n").partition("\n---\n")
    mode = _DERIVE if files.has_prd(inputs.directory, inputs.folder) else _FULL
    text = f"{skill.strip()}\n\n## Now\n\n{mode} When both files are written and the user agrees, say so: the user then ends"
    text += " this session, and Ralph checks the files.\n"
    return text if inputs.folder == "ralph" else text.replace("`ralph/", f"`{inputs.folder}/")


def talk(inputs: PrdInputs, spec: AgentSpec) -> int:
    """Run the agent in the user's terminal, in this directory, until the user quits; returns its exit code."""
    name, *words = AGENTS[spec.type].interactive(spec, prompt(inputs))
    environment = child_environment(dict(spec.env))
    with opened_directory(str(inputs.directory)) as directory:
        program, problem = find_program(name, environment.get("PATH", os.defpath), directory)
    if problem:
        raise RalphError(f"{name}: {problem}.", "Use another agent: ralph prd plan --agent COMMAND")
    return run_in_terminal([program, *words], environment)


def current_list(inputs: PrdInputs) -> dict[str, Any] | None:
    """The current list, or None if it is invalid."""
    with files.opened(inputs.directory, inputs.folder) as place:
        try:
            board = load(text_of(place.read(TASKS, MAX_TASKS), TASKS), TASKS)
        except RalphError:
            return None
    return board if not rules.schema_problems(board) else None


def problems(inputs: PrdInputs, before: dict[str, Any] | None) -> list[str]:
    """The problems with a plan. Stories started `before` may keep their state."""
    found = []
    with files.opened(inputs.directory, inputs.folder) as place:
        if files.is_fresh(PRD, place.read(PRD)):
            found.append(f"{inputs.folder}/{PRD} is empty or still the template.")
        path = f"{inputs.folder}/{TASKS}"
        text = place.read(TASKS, MAX_TASKS)
    if files.is_fresh(TASKS, text):
        return [*found, f"{path} has no stories yet."]
    try:
        board = load(text_of(text, path), path)
    except RalphError as error:
        return [*found, error.message]
    wrong = rules.schema_problems(board)
    return [*found, *wrong] if wrong else [*found, *_begun(board, before)]


def _begun(board: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    """Problems with the state of stories: new ones must start from scratch, planning must not change others."""
    known = rules.snapshot(before) if before else {}
    found = []
    for id, now in rules.snapshot(board).items():
        wanted = known.get(id, rules.NEW)
        for name, value in wanted.items():
            if now[name] != value:
                words = f"must be {rules.shown(value)}, not {rules.shown(now[name])}"
                found.append(f"Story {id}: {name} {words}: planning cannot change the state of a story.")
    return found + [
        f"Story {id} was started, and is now missing." for id in known if id not in rules.snapshot(board)
    ]
