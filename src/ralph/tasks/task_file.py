"""Task files in YAML or JSON, with one task or many. All problems are reported at once, each with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.core.task_model import Task
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.files import yamlfile
from ralph.files.jsonfile import dotted as dotted
from ralph.files.textfile import decoded, read_text
from ralph.files.yamlfile import YamlDocument
from ralph.settings import WorkSettings
from ralph.tasks.edit import AT_WORK, EXISTS, EntryProblem
from ralph.tasks.form import Entry, id_problem, read, written
from ralph.tasks.verification import Keys

MAX_BYTES = 16 << 20
MAX_SHOWN = 20
STDIN = "-"
_FORMS = "A task file is a list of tasks, or has `tasks:` (a list) or `task:` (one task)."

_HINTS = {
    EXISTS: "Use --update to replace existing tasks.",
    AT_WORK: "Wait for it, or stop it with `ralph cancel`.",
}


class TaskFile(Struct, frozen=True):
    """The entries of a file with their places, and the problems with the file itself."""

    name: str
    entries: tuple[Entry, ...]
    places: tuple[tuple[YamlDocument, Keys], ...]
    problems: tuple[tuple[int, str], ...]

    def explained(self, found: Sequence[EntryProblem]) -> RalphError:
        """One error with all problems, sorted by line."""
        lines = [*self.problems, *(self._explain(each) for each in found)]
        problems = {each.problem for each in found}
        hint = next((text for problem, text in _HINTS.items() if problem in problems), "")
        return explain(self.name, [f"{self.name}:{line}: {text}" for line, text in sorted(lines)], hint)

    def _explain(self, found: EntryProblem) -> tuple[int, str]:
        document, keys = self.places[found.entry]
        problem = found.problem
        id = self.entries[found.entry].id
        name = f"task {found.entry + 1}" if not id or id_problem(id) else id
        return document.line_of([*keys, *problem.keys]), f"{name}: {said(dotted(problem.keys), problem.text)}"


def explain(what: str, lines: Sequence[str], hint: str = "") -> RalphError:
    """One error for all of these lines."""
    shown = [clean(line).replace("\n", " ") for line in lines[:MAX_SHOWN]]
    if len(lines) == 1:
        return RalphError(shown[0] + "." * (not shown[0].endswith("?")), hint)
    if len(lines) > MAX_SHOWN:
        shown.append(f"… and {len(lines) - MAX_SHOWN} more")
    return RalphError("\n  ".join([f"{what}: {len(lines)} problems.", *shown]), hint)


def said(subject: str, predicate: str) -> str:
    return f"{subject}{'' if predicate.startswith(':') else ' '}{predicate}".strip(" :")


def load(path: str, settings: WorkSettings, spec: str = "") -> TaskFile:
    """Load a file, or stdin for `-`. Tasks without a spec get `spec`, or the name of the file."""
    name = "stdin" if path == STDIN else path
    text = _stdin() if path == STDIN else read_text(path, most=MAX_BYTES, what="task file")
    return parse(text, name, settings, spec or ("" if path == STDIN else Path(path).stem))


def _stdin() -> str:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RalphError(f"stdin: the task file is too large (at most {MAX_BYTES:,} bytes).")
    return decoded(data, "stdin", "task file")


def parse(text: str, name: str, settings: WorkSettings, spec: str = "") -> TaskFile:
    problems: list[tuple[int, str]] = []
    entries: list[Entry] = []
    places: list[tuple[YamlDocument, Keys]] = []
    for document in yamlfile.parse(text, name):
        problems += document.problems
        try:
            found = list(_tasks(document))
        except _NoForm as error:
            problems.append((document.line_of(()), str(error)))
            continue
        entries += (read(values, settings, spec) for _, values in found)
        places += ((document, keys) for keys, _ in found)
    if not entries and not problems:
        raise RalphError(f"{name}: no tasks found.", _FORMS)
    return TaskFile(name, tuple(entries), tuple(places), tuple(problems))


class _NoForm(ValueError):
    """The document is neither a task nor a list of tasks."""


def _tasks(document: YamlDocument) -> Iterator[tuple[Keys, Any]]:
    values = document.values
    if values is None:
        return
    if isinstance(values, list):
        yield from (((str(number),), each) for number, each in enumerate(values))
    elif isinstance(values, dict) and set(values) == {"task"}:
        yield ("task",), values["task"]
    elif isinstance(values, dict) and set(values) == {"tasks"} and isinstance(values["tasks"], list):
        yield from ((("tasks", str(number)), each) for number, each in enumerate(values["tasks"]))
    else:
        raise _NoForm(f"no tasks. {_FORMS}".rstrip("."))


def to_text(tasks: Iterable[Task]) -> str:
    """A task file from which `parse` reads equal tasks."""
    return yamlfile.dump([written(task) for task in tasks])


def one_to_text(task: Task) -> str:
    """The same for a single task, under the key `task`."""
    return yamlfile.dump({"task": written(task)})
