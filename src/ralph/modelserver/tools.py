"""Translates agent-neutral tools into calls of the tools a CLI advertises."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from ralph.errors import RalphError
from ralph.modelserver.answer import ToolCall
from ralph.modelserver.script import Edit, TodoEntry, Tool, Write

Input = dict[str, Any] | str
Builder = Callable[[Any], list[Input]]


def calls(tools: list[Tool], advertised: frozenset[str], prefix: str) -> tuple[ToolCall, ...]:
    """The calls for a turn's tools. An error names a tool the CLI does not have."""
    found = [call for tool in tools for call in _translate(tool, advertised)]
    return tuple(ToolCall(f"{prefix}_{number}", name, input) for number, (name, input) in enumerate(found, 1))


def _translate(tool: Tool, advertised: frozenset[str]) -> list[tuple[str, Input]]:
    if tool.call:
        return [(tool.call.name, tool.call.input)]
    for name, build in TABLE[tool.kind].items():
        if name in advertised:
            return [(name, input) for input in build(getattr(tool, tool.kind))]
    if tool.kind == "bash" or (command := _as_command(tool)) is None:
        known = ", ".join(sorted(advertised))
        raise RalphError(f"The script wants `{tool.kind}`, but the request advertises only: {known}.")
    return _translate(Tool(bash=command), advertised)


def _as_command(tool: Tool) -> str | None:
    """The shell command for a CLI that has only a shell; None if there is none."""
    if tool.read:
        return f"cat {shlex.quote(tool.read)}"
    if tool.write:
        return f"printf %s {shlex.quote(tool.write.content)} > {shlex.quote(tool.write.path)}"
    return None


def _added(file: Write) -> str:
    """A whole file in the patch format of codex."""
    lines = "".join(f"+{line}\n" for line in file.content.splitlines())
    return f"*** Begin Patch\n*** Add File: {file.path}\n{lines}*** End Patch"


def _changed(edit: Edit) -> str:
    old = "".join(f"-{line}\n" for line in edit.old.splitlines())
    new = "".join(f"+{line}\n" for line in edit.new.splitlines())
    return f"*** Begin Patch\n*** Update File: {edit.path}\n@@\n{old}{new}*** End Patch"


def _todos(todos: list[TodoEntry | str], text: str, **more: str) -> list[dict[str, str]]:
    """Entries of a task list. `text` is the agent's key for the text."""
    entries = [TodoEntry(todo) if isinstance(todo, str) else todo for todo in todos]
    return [{text: todo.text, "status": todo.status} | more for todo in entries]


TABLE: dict[str, dict[str, Builder]] = {
    "bash": {
        "Bash": lambda command: [{"command": command, "description": "Run a command"}],
        "bash": lambda command: [{"command": command, "description": "Run a command"}],
        "run_shell_command": lambda command: [{"command": command, "description": "Run a command"}],
        "exec_command": lambda command: [{"cmd": command, "yield_time_ms": 30_000}],
        "shell_command": lambda command: [{"command": command}],
        "shell": lambda command: [{"command": ["bash", "-c", command]}],
    },
    "read": {
        "Read": lambda path: [{"file_path": path}],
        "read_file": lambda path: [{"file_path": path}],
        "read": lambda path: [{"filePath": path}],
    },
    "write": {
        "Write": lambda file: [{"file_path": file.path, "content": file.content}],
        "write_file": lambda file: [{"file_path": file.path, "content": file.content}],
        "write": lambda file: [{"filePath": file.path, "content": file.content}],
        "apply_patch": lambda file: [_added(file)],
    },
    "edit": {
        "Edit": lambda edit: [{"file_path": edit.path, "old_string": edit.old, "new_string": edit.new}],
        "replace": lambda edit: [
            {
                "file_path": edit.path,
                "instruction": "Change it",
                "old_string": edit.old,
                "new_string": edit.new,
            }
        ],
        "edit": lambda edit: [{"filePath": edit.path, "oldString": edit.old, "newString": edit.new}],
        "apply_patch": lambda edit: [_changed(edit)],
    },
    "todo": {
        "TodoWrite": lambda todos: [{"todos": _todos(todos, "content", activeForm="Working")}],
        "TaskCreate": lambda todos: [
            {"subject": todo["subject"], "description": todo["subject"]} for todo in _todos(todos, "subject")
        ],
        "update_plan": lambda todos: [{"plan": _todos(todos, "step")}],
        "write_todos": lambda todos: [{"todos": _todos(todos, "description")}],
        "todowrite": lambda todos: [{"todos": _todos(todos, "content", priority="medium")}],
    },
}
"""Tools of claude, opencode, gemini and codex by name. The first match is used."""
