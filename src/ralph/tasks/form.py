"""The written form of a task, as in task files: reads it, reporting all problems at once, and writes it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from ralph.checks.registry import verification_methods
from ralph.core.task_model import (
    ACCEPTANCE,
    ROLES,
    CompletionCriteria,
    Task,
    TaskCompletionSpec,
    TaskStatus,
    VerificationMethod,
)
from ralph.core.text import clean, is_text
from ralph.settings import WorkSettings
from ralph.tasks.criteria import default_promise, default_verification
from ralph.tasks.verification import (
    Keys,
    TaskProblem,
    did_you_mean,
    in_words,
    kind_of,
    path_of,
    verification_problems,
)

LONGEST_ID = 100
BY_WORK = frozenset(defaults.status for defaults in ROLES.values())
"""Statuses that a task has only while `ralph work` is working on it."""

Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Texts = tuple[str, ...]

_TASK: dict[str, Any] = {
    "id": str,
    "spec_id": str,
    "title": str,
    "description": str,
    "status": str,
    "priority": Priority,
    "dependencies": Texts,
    "assignee": str,
    "metadata": dict[str, Any],
    "protect": Texts,
    "attempts": Count,
    "completion": dict[str, Any],
}
_COMPLETION: dict[str, Any] = {"outcome": str, "acceptance_criteria": Texts} | dict.fromkeys(
    ROLES, dict[str, Any]
)
_CRITERIA: dict[str, Any] = {
    "promise": str,
    "description": str,
    "verification_method": str,
    "verification_config": dict[str, Any],
    "max_iterations": Count,
}
_MISSING = {
    "id": "is missing",
    "spec_id": "is missing: the name of the spec that the task belongs to",
    "title": "is missing",
    "completion": "is missing: it needs outcome and acceptance_criteria",
    "outcome": 'is missing: one measurable sentence that says what "done" means',
    "acceptance_criteria": "is missing: at least one verifiable requirement",
}
_GIVEN = ("description", "priority", "assignee", "metadata", "attempts")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Entry(Struct, frozen=True):
    """A task as read. `task` is set if there are no problems; `id` and `dependencies` are always set."""

    id: str
    dependencies: tuple[str, ...]
    task: Task | None
    problems: tuple[TaskProblem, ...]


def read(values: Any, settings: WorkSettings, spec: str = "") -> Entry:
    """Read a task from its written form. `spec` is the default for `spec_id`."""
    return _Form(settings).entry(values, spec)


def written(task: Task) -> dict[str, Any]:
    """The written form of a task, without its progress (iteration, times). `read` returns an equal task."""
    status = None if task.status in (TaskStatus.TODO, *BY_WORK) else str(task.status)
    optional: dict[str, Any] = {"description": task.description or None, "status": status}
    values: dict[str, Any] = {"id": task.id, "spec_id": task.spec_id, "title": task.title}
    values |= {key: value for key, value in optional.items() if value is not None}
    values |= {"priority": task.priority, "dependencies": list(task.dependencies)}
    if task.assignee:
        values["assignee"] = task.assignee
    if task.metadata:
        values["metadata"] = task.metadata
    if task.protect is not None:
        values["protect"] = list(task.protect)
    if task.attempts > 1:
        values["attempts"] = task.attempts
    if spec := task.completion_spec:
        criteria = {role: _written_criteria(each) for role, each in spec.criteria}
        required = {"outcome": spec.outcome, "acceptance_criteria": list(spec.acceptance_criteria)}
        values["completion"] = required | criteria
    return values


def _written_criteria(criteria: CompletionCriteria) -> dict[str, Any]:
    values: dict[str, Any] = {
        "promise": criteria.promise,
        "description": criteria.description or None,
        "verification_method": str(criteria.verification_method),
        "verification_config": criteria.verification_config or None,
        "max_iterations": criteria.max_iterations,
    }
    return {key: value for key, value in values.items() if value is not None}


def id_problem(id: str) -> str:
    """Why an id is invalid, or "": it becomes the name of a branch and a directory."""
    if not _ID.fullmatch(id):
        return "must consist of letters, digits, `.`, `_` and `-`, and start with a letter, a digit or `_`"
    if len(id) > LONGEST_ID:
        return f"has {len(id)} characters; the maximum is {LONGEST_ID}"
    if ".." in id or id.endswith(".") or id.lower().endswith(".lock"):
        return "must not contain `..` or end in `.` or `.lock`, because it becomes a branch name"
    return ""


class _Form(Struct):
    """Reads one task and collects its problems."""

    settings: WorkSettings
    problems: list[TaskProblem] = field(default_factory=list)

    def entry(self, values: Any, spec: str) -> Entry:
        self.problems += _unusable(values, ())
        found = self._fields(values, _TASK, ())
        if not isinstance(values, dict):
            return Entry("", (), None, tuple(self.problems))
        if spec:
            found.setdefault("spec_id", spec)
        self._need(found, ("id", "spec_id", "title"), ())
        if values.get("completion") is None:
            self._note(("completion",), _MISSING["completion"])
        for key in ("spec_id", "title", "assignee"):
            if problem := _line_problem(found.get(key)):
                self._note((key,), problem)
        if found.get("id") and (problem := id_problem(found["id"])):
            self._note(("id",), problem)
        status = self._status(found.get("status", TaskStatus.TODO))
        for number, glob in enumerate(found.get("protect", ())):
            if problem := _line_problem(glob) or ("is empty" if not glob.strip() else ""):
                self._note(("protect", str(number)), problem)
        completion = self._completion(found.get("completion"))
        dependencies = tuple(dict.fromkeys(found.get("dependencies", ())))
        id = found.get("id", "")
        if self.problems or completion is None:
            return Entry(id, dependencies, None, tuple(self.problems))
        given = {key: found[key] for key in _GIVEN if key in found}
        task = Task(
            id=id,
            spec_id=found["spec_id"],
            title=found["title"],
            status=status,
            dependencies=dependencies,
            completion_spec=completion,
            protect=found.get("protect"),
            **given,
        )
        return Entry(id, dependencies, task, ())

    # ---- parts ----

    def _status(self, word: str) -> TaskStatus:
        known = [each.value for each in TaskStatus if each not in BY_WORK]
        if word in known:
            return TaskStatus(word)
        by_work = word in {each.value for each in BY_WORK}
        why = "can only be set by `ralph work`" if by_work else f"{word!r} is unknown"
        self._note(("status",), f"{why}; one of {', '.join(known)}")
        return TaskStatus.TODO

    def _completion(self, values: dict[str, Any] | None) -> TaskCompletionSpec | None:
        if values is None:
            return None
        keys = ("completion",)
        found = self._fields(values, _COMPLETION, keys)
        self._need(found, ("outcome", "acceptance_criteria"), keys)
        acceptance = found.get("acceptance_criteria", ())
        for number, each in enumerate(acceptance):
            if not each.strip():
                self._note((*keys, "acceptance_criteria", str(number)), "is empty")
        roles = {role: self._criteria(role, found[role], acceptance) for role in ROLES if found.get(role)}
        return TaskCompletionSpec(found.get("outcome", ""), acceptance, **roles)

    def _criteria(self, role: str, values: dict[str, Any], acceptance: Texts) -> CompletionCriteria:
        keys = ("completion", role)
        found = self._fields(values, _CRITERIA, keys)
        promise = found.get("promise", default_promise(role, self.settings)).strip()
        if not promise:
            self._note((*keys, "promise"), "is empty: it is the text that the agent prints when it is done")
        elif _line_problem(promise) or "<" in promise or ">" in promise:
            self._note((*keys, "promise"), "must be one line without < and >")
        method, config = found.get("verification_method"), found.get("verification_config", {})
        if method == VerificationMethod.SEMANTIC and not config:
            config = {"check_for": ACCEPTANCE}
        if method is not None:
            self.problems += verification_problems(method, config, acceptance, keys)
        elif config:
            self._note(
                (*keys, "verification_method"), f"is missing; one of {', '.join(verification_methods())}"
            )
        else:
            method, config = default_verification(role, self.settings)
        description = found.get("description", "")
        return CompletionCriteria(promise, description, method or "", config, found.get("max_iterations"))

    # ---- fields ----

    def _fields(self, values: Any, types: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
        """The values of all known keys with the right type. A key without a value counts as missing."""
        if not isinstance(values, dict):
            self._note(keys, f"must be a mapping, not {kind_of(values)}")
            return {}
        found = {}
        for key, value in values.items():
            if key not in types:
                self._note((*keys, key), f"is not a known key{did_you_mean(key, types)}")
            elif value is not None:
                try:
                    found[key] = msgspec.convert(value, types[key])
                except msgspec.ValidationError as error:
                    self._wrong(str(error), (*keys, key))
        return found

    def _wrong(self, error: str, keys: Keys) -> None:
        message, _, where = error.partition(" - at `$")
        hint = ""
        if message == "Expected `str`, got `object`":
            hint = " (a string with `: ` in it needs quotes)"
        elif message.startswith("Expected `str`, got"):
            hint = " (put it in quotes)"
        self._note((*keys, *path_of(where.rstrip("`"))), in_words(message) + hint)

    def _need(self, found: Mapping[str, Any], names: Iterable[str], keys: Keys) -> None:
        """Report missing or empty values. Values of the wrong type were already reported."""
        noted = {problem.keys[: len(keys) + 1] for problem in self.problems}
        for name in names:
            value = found.get(name)
            empty = not value.strip() if isinstance(value, str) else not value
            if empty and (*keys, name) not in noted:
                self._note((*keys, name), _MISSING[name])

    def _note(self, keys: Keys, text: str) -> None:
        self.problems.append(TaskProblem(keys, text))


# ---- invalid values ----


def _unusable(value: Any, keys: Keys) -> Iterator[TaskProblem]:
    """Values that cannot be stored or passed to a program."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unusable(key, keys)
            yield from _unusable(inner, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _unusable(inner, (*keys, str(number)))
    elif isinstance(value, str) and ("\0" in value or not is_text(value)):
        yield TaskProblem(keys, "contains an invalid character")
    elif (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, int) and not -(2**63) <= value < 2**63
    ):
        yield TaskProblem(keys, "is too large")


def _line_problem(value: str | None) -> str:
    if value is None or (clean(value) == value and "\n" not in value and "\t" not in value):
        return ""
    return "must be one line, without control characters"
