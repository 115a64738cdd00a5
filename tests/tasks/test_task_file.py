"""Task files: their forms, and errors with a line for every problem."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.task_model import Task
from ralph.errors import RalphError
from ralph.settings import WorkSettings
from ralph.tasks import task_file
from ralph.tasks.edit import EXISTS, EntryProblem
from tasks.test_form import PATIENT, TASKS

SETTINGS = WorkSettings()
ONE = "id: A\ntitle: T\ncompletion:\n  outcome: It works\n  acceptance_criteria: [It starts]\n"


def indented(text: str, first: str, rest: str) -> str:
    return "".join((rest if number else first) + line for number, line in enumerate(text.splitlines(True)))


LIST = indented(ONE, "- ", "  ")
FORMS = {
    "a list": LIST,
    "tasks": f"tasks:\n{LIST}",
    "task": "task:\n" + indented(ONE, "  ", "  "),
    "documents": f"---\n---\n{LIST}---\n",
    "json": json.dumps(
        [
            {
                "id": "A",
                "title": "T",
                "completion": {"outcome": "It works", "acceptance_criteria": ["It starts"]},
            }
        ]
    ),
    "windows": LIST.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + LIST,
}


def parse(text: str) -> task_file.TaskFile:
    return task_file.parse(text, "plan.yaml", SETTINGS, "plan")


def errors(text: str) -> list[str]:
    """What importing this text alone would report."""
    found = parse(text)
    problems = [
        EntryProblem(number, each) for number, entry in enumerate(found.entries) for each in entry.problems
    ]
    message = found.explained(problems).message
    return message.split("\n  ")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_task(form: str) -> None:
    """A list, `tasks:`, `task:`, several documents, JSON."""
    found = parse(FORMS[form])
    assert ([entry.task for entry in found.entries], found.problems) == ([parse(LIST).entries[0].task], ())


def test_several_documents_are_one_import() -> None:
    """One task in each, and a list in the last."""
    second, third = ONE.replace("id: A", "id: B"), LIST.replace("id: A", "id: C")
    text = f"task:\n{indented(ONE, '  ', '  ')}---\ntask:\n{indented(second, '  ', '  ')}---\n{third}"
    assert [entry.id for entry in parse(text).entries] == ["A", "B", "C"]


@PATIENT
@given(st.lists(TASKS, min_size=1, max_size=3))
def test_what_is_exported_is_imported_again(tasks: list[Task]) -> None:
    """Equal tasks, whatever their texts contain."""
    found = parse(task_file.to_text(tasks))
    assert ([entry.task for entry in found.entries], found.problems) == (tasks, ())


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "[]", "tasks: []\n", "---\n---\n"])
def test_a_file_without_tasks_is_refused(text: str) -> None:
    """The error says what a task file looks like."""
    with pytest.raises(RalphError, match="no tasks found") as raised:
        parse(text)
    assert "`tasks:`" in raised.value.hint


@pytest.mark.parametrize(
    "text",
    ["some words\n", "3", "a: 1\n", ONE, "tasks: 3\n", "task: {}\ntasks: []\n", f"tasks:\n{LIST}x: 1\n"],
)
def test_an_unknown_form_is_refused(text: str) -> None:
    """The error has the line and the supported forms."""
    (message,) = errors(text)
    assert message.startswith("plan.yaml:1: no tasks. A task file is a list of tasks, or has `tasks:`")


def test_every_problem_has_its_line() -> None:
    """All problems in one error, sorted by line, each with the task and the key."""
    text = (
        "- id: A\n"
        "  titel: T\n"
        "  completion:\n"
        "    outcome: It works\n"
        "    outcome: twice\n"
        "    acceptance_criteria:\n"
        "      - It starts\n"
        "      - Returns 401: Unauthorized\n"
        "- title: !!python/name:os.system x\n"
        "  id: ../B\n"
        "  completion:\n"
        "    outcome: x\n"
        "    acceptance_criteria: [y]\n"
        "    coder: {promise: a>b}\n"
        "- 7\n"
    )
    assert errors(text) == [
        "plan.yaml: 9 problems.",
        "plan.yaml:1: A: title is missing",
        "plan.yaml:2: A: titel is not a known key; did you mean 'title'?",
        "plan.yaml:5: duplicate key 'outcome'",
        "plan.yaml:8: A: completion.acceptance_criteria[1] must be a string, not a mapping"
        " (a string with `: ` in it needs quotes)",
        "plan.yaml:9: task 2: title is missing",
        "plan.yaml:9: the tag !!python/name:os.system is not allowed",
        "plan.yaml:10: task 2: id must consist of letters, digits, `.`, `_` and `-`, and start with a letter, a digit or `_`",
        "plan.yaml:14: task 2: completion.coder.promise must be one line without < and >",
        "plan.yaml:15: task 3: must be a mapping, not a whole number",
    ]


def test_one_problem_is_one_line() -> None:
    """A single problem has no heading."""
    assert errors(LIST.replace("T\n", "3\n", 1)) == [
        "plan.yaml:2: A: title must be a string, not a whole number (put it in quotes)."
    ]


def test_at_most_twenty_are_shown() -> None:
    """The number of the rest is shown."""
    lines = errors("".join(LIST.replace("id: A", f"id: A{n}").replace("title", "titel") for n in range(30)))
    assert (lines[0], len(lines), lines[-1]) == ("plan.yaml: 60 problems.", 22, "… and 40 more")


def test_no_escape_sequence_reaches_a_terminal() -> None:
    """Neither from a key nor from an id."""
    text = json.dumps([{"id": "\x1b[2J", "\x1b]0;x\x07": 1, "a\nb": 2}])
    assert "\x1b" not in "".join(errors(text)) and not any("\n" in line for line in errors(text))


def test_the_hint_for_existing_tasks() -> None:
    """It names the option."""
    assert parse(LIST).explained([EntryProblem(0, EXISTS)]).hint == "Use --update to replace existing tasks."


def test_the_spec_is_the_name_of_the_file(tmp_path: Path) -> None:
    """Unless one is given, or the task names its own."""
    path = tmp_path / "auth.plan.yaml"
    path.write_text(LIST + LIST.replace("id: A", "id: B\n  spec_id: own"))

    def specs(spec: str) -> list[str]:
        return [
            entry.task.spec_id for entry in task_file.load(str(path), SETTINGS, spec).entries if entry.task
        ]

    assert (specs(""), specs("mine")) == (["auth.plan", "own"], ["mine", "own"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "task file not found."),
        (lambda path: path.mkdir(), "the task file is not a regular file."),
        (lambda path: path.write_bytes(b"a: 1\n\xff\xfe\0"), ":2: the task file is not UTF-8 text."),
        (lambda path: path.write_bytes(bytes(range(32)) * 100), ":1: not valid YAML: control character."),
        (lambda path: path.write_bytes(b"#" * (17 << 20)), "the task file is too large"),
        (lambda path: path.symlink_to("nowhere"), "task file not found."),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path: Path, make: object, said: str) -> None:
    """A missing file, a directory, binary data, a huge file."""
    path = tmp_path / "plan.yaml"
    assert callable(make)
    make(path)
    with pytest.raises(RalphError) as raised:
        task_file.load(str(path), SETTINGS)
    assert raised.value.message.startswith(str(path)) and said in raised.value.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\n\xff", "stdin:2: the task file is not UTF-8 text."),
        (b"#" * (17 << 20), "stdin: the task file is too"),
    ],
)
def test_stdin_that_is_not_text_is_refused(monkeypatch: pytest.MonkeyPatch, data: bytes, said: str) -> None:
    """The same errors for a pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(RalphError) as raised:
        task_file.load("-", SETTINGS)
    assert said in raised.value.message
