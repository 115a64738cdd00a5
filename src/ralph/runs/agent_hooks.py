"""The hooks an agent gets: kept outside the project, where it cannot change them, and run by our interpreter."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from msgspec import to_builtins

import ralph
from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec, Guarding, Plan
from ralph.files.paths import PLUGIN
from ralph.sandbox.base import Root
from ralph.sandbox.programs import python
from ralph.sandbox.registry import all_backends, find
from ralph.store.files import opened_directory, write

HOOKS = "hooks.json"
GUARD = "guard.json"
GUARDED_TOOLS = "Bash|Write|Edit|MultiEdit|NotebookEdit"
_GUARD = Path(ralph.__file__).parent / "guard" / "__main__.py"
_SECONDS = 60


def prepare(plan: Plan, streams: Path) -> str:
    """Write the hook settings for the agents of a run; returns the path of the file, or "" if there are none."""
    if not any(AGENTS[spec.type].hooked(spec, HOOKS) for spec in plan.agents):
        return ""
    hooks = _prd_hooks(python(_root(plan))) if plan.prompt.prd is not None else {}
    files: dict[str, object] = {}
    if plan.guard is not None and plan.guard.enabled and not plan.sandbox.is_real:
        hooks["PreToolUse"] = _hook(guard_command(streams / GUARD), GUARDED_TOOLS)
        files[GUARD] = to_builtins(plan.guard)
    if not hooks:
        return ""
    files[HOOKS] = {
        "disableAllHooks": False,
        "hooks": hooks,
    }  # otherwise `true` in the project's settings would disable these too
    with opened_directory(str(streams)) as state:
        for name, content in files.items():
            write(state, name, json.dumps(content, indent=2).encode())
    return str(streams / HOOKS)


def guard_command(settings: Path, python: str = sys.executable, script: Path = _GUARD) -> str:
    """The guard as a shell command. If the guard itself fails, it denies: Claude Code would take that as approval."""
    words = shlex.join([python, "-I", str(script), "--settings", str(settings)])
    return f'{words} || {{ [ $? -eq 2 ] || echo "Ralph\'s guard failed, so this was not run." >&2; exit 2; }}'


def _root(plan: Plan) -> Root:
    return find(plan.sandbox.backend, all_backends()).root


def _prd_hooks(python: str) -> dict[str, Any]:
    def script(name: str) -> list[dict[str, Any]]:
        return _hook(shlex.join([python, "-I", "-S", str(PLUGIN / "hooks" / "scripts" / name)]), ".*")

    return {
        "PostToolUse": script("context_monitor.py"),
        "PostToolUseFailure": script("context_monitor.py"),
        "Stop": script("stop_loop_reminder.py"),
    }


def _hook(command: str, matcher: str) -> list[dict[str, Any]]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": command, "timeout": _SECONDS}]}]


def unguarded(agents: tuple[AgentSpec, ...], guard: Guarding | None) -> tuple[str, ...]:
    """The agents whose commands the guard cannot check."""
    if guard is None:
        return ()
    return tuple(
        spec.name for spec in agents if not guard.enabled or AGENTS[spec.type].hooked(spec, HOOKS) is None
    )
