"""Tasks as JSON, as a table, and one task in detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ralph.core.task_model import ROLES, Task, TaskProgress, TaskStatus
from ralph.core.text import clean
from ralph.store.tasks import Stored, TaskBriefRow
from ralph.views.lines import print_lines, styled

STYLES: dict[str, str] = {
    **{defaults.status: "1;33" for defaults in ROLES.values()},
    TaskStatus.DONE: "32",
    TaskStatus.FAILED: "1;31",
    TaskStatus.BLOCKED: "31",
    TaskStatus.CANCELLED: "2",
}
_BOLD, _DIM = "1", "2"


# ---- JSON ----


class TaskJson(msgspec.Struct, frozen=True, gc=False):
    """A task, as in `list --json` and `show --json`. JSON from the store is passed through unchanged."""

    id: str
    spec_id: str
    title: str
    description: str
    status: str
    priority: int
    dependencies: Raw
    assignee: str
    created_at: str
    updated_at: str
    metadata: Raw
    iteration: int
    completion_spec: Raw
    protect: Raw
    attempts: int
    project: str


def to_json(row: Stored) -> TaskJson:
    return TaskJson(
        row.id,
        row.spec_id,
        row.title,
        row.description,
        row.status,
        row.priority,
        Raw(row.dependencies),
        row.assignee,
        _iso(row.created_at),
        _iso(row.updated_at),
        Raw(row.metadata),
        row.iteration,
        Raw(row.completion_spec or "null"),
        Raw(row.protect or "null"),
        row.attempts,
        row.project,
    )


def encoded(values: Any) -> bytes:
    """Indented JSON. Raises `msgspec.DecodeError` if a raw value is not valid JSON."""
    return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"


@lru_cache
def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- text ----


def print_list(found: Sequence[TaskBriefRow], *, with_project: bool) -> None:
    titles: tuple[str, ...] = ("task", "status", "priority", "spec", "title", "depends on")
    rows: list[tuple[str, ...]] = [
        (task.id, task.status, str(task.priority), task.spec_id, task.title, ", ".join(task.dependencies))
        for task in found
    ]
    if with_project:
        titles = (*titles, "project")
        rows = [(*row, task.project) for row, task in zip(rows, found, strict=True)]
    print_lines(titles, rows, wide=titles.index("title"), accent=titles.index("status"), styles=STYLES)


class RoleView(Struct, frozen=True):
    """The criteria of a task's role. `remark`: their source, or that the role is skipped."""

    name: str
    promise: str
    description: str
    method: str
    config: str
    max_iterations: int
    remark: str


Paint = Callable[[str, str], str]
"""Paints a text in a colour, given as an SGR code."""


def detail(
    task: Task, project: str, progress: TaskProgress, roles: Iterable[RoleView], paint: Paint = styled
) -> str:
    title = paint(clean(f"{task.id}  {task.title}"), _BOLD)
    return "\n".join([title, *facts(task, project, progress, paint), *criteria(task, roles, paint)])


def criteria(task: Task, roles: Iterable[RoleView], paint: Paint) -> list[str]:
    """The description, outcome, acceptance criteria and roles, each after an empty line."""
    lines = []
    if task.description:
        lines += ["", *_block(task.description, "  ")]
    if spec := task.completion_spec:
        lines += ["", paint("outcome", _BOLD), *_block(spec.outcome, "  ")]
        lines += ["", paint("acceptance criteria", _BOLD)]
        for criterion in spec.acceptance_criteria:
            first, *rest = _block(criterion, "    ")
            lines += [f"  - {first.strip()}", *rest]
    for role in roles:
        lines += ["", *_role(role, paint)]
    return lines


def facts(task: Task, project: str, progress: TaskProgress, paint: Paint) -> Iterator[str]:
    """The facts about a task, its status and reason first."""
    word = paint(task.status, STYLES.get(task.status, ""))
    why = f": {progress.reason}" if progress.reason else ""
    values = {
        "status": f"{word}{clean(why)}",
        "spec": clean(task.spec_id),
        "priority": str(task.priority),
        "depends on": ", ".join(task.dependencies) or "nothing",
        "assignee": clean(task.assignee),
        "attempts": f"{task.attempts} in parallel" if task.attempts > 1 else "",
        "iteration": str(task.iteration) if task.iteration else "",
        "protect": _protected(task),
        "metadata": clean(msgspec.json.encode(task.metadata).decode()) if task.metadata else "",
        "merged as": progress.merged,
        "created": _local(task.created_at),
        "updated": _local(task.updated_at),
        "project": clean(project),
    }
    return (f"{name:<12}{value}" for name, value in values.items() if value)


def _protected(task: Task) -> str:
    if task.protect is None:
        return "files that verification runs (detected automatically)"
    return clean(", ".join(task.protect)) or "nothing"


def _role(role: RoleView, paint: Paint) -> list[str]:
    lines = [
        f"{paint(role.name, _BOLD)}  {paint(f'({role.remark})', _DIM)}",
        f"  promise       <promise>{clean(role.promise)}</promise>",
        f"  verification  {role.method}, max {role.max_iterations} iteration{'s' * (role.max_iterations > 1)}",
        *_block(role.description, "  "),
    ]
    return lines + _block(role.config, "    ")


def _block(text: str, indent: str) -> list[str]:
    return (
        [f"{indent}{line}".rstrip() for line in clean(text).rstrip("\n").split("\n")] if text.strip() else []
    )


def _local(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S") if at else ""
