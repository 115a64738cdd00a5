"""One task: the criteria of each role and all verification results. Also the text of a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from ralph.core.board import MAX_SENT_BACK
from ralph.core.text import clean
from ralph.views import stories, tasks
from ralph.views.agent import count, duration
from ralph.views.lines import one_line
from ralph.views.task_status import RoleRun, Verification
from ralph.views.tui.bar import StatusBar
from ralph.views.tui.colours import STATES
from ralph.views.tui.feed import TaskSeen, project_directory
from ralph.views.tui.lines import LinesView
from ralph.views.tui.panel import short_path
from ralph.views.tui.rows import Column, RowList, TableRow
from ralph.views.tui.screen import Polled
from ralph.views.tui.strips import Piece

HISTORY = (
    Column("role", 10),
    Column("", 15),
    Column("iter", 6, right=True),
    Column("verification result"),
)


class TaskScreen(Polled):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "Switch panel"),
        Binding("escape,q", "app.pop_screen", "Back"),
    ]

    def __init__(self, project: str, task: str) -> None:
        super().__init__()
        self._project, self._named = project, task
        self._text = ""

    def body(self) -> ComposeResult:
        with Vertical(id="task"):
            yield LinesView(id="criteria")
            yield RowList(HISTORY, id="history", empty="No runs yet.")

    def on_mount(self) -> None:
        self.set_focus(self.query_one("#criteria"))
        super().on_mount()

    def gather(self) -> TaskSeen:
        return self.ralph.feed.task(self._project, self._named)

    def show(self, found: TaskSeen) -> None:
        state = found.state
        self.query_one("#title", StatusBar).set(
            [("Task ", "dim"), (one_line(f"{state.id}  {state.title}"), "bold")], list(_standing(found))
        )
        project = short_path(project_directory(self._project))
        standing, *facts = tasks.facts(found.task, project, found.progress, _painted)
        criteria = tasks.criteria(found.task, found.roles, _painted)
        text = "\n".join([standing, *criteria, "", *facts])
        if text != self._text:
            self._text = text
            self.query_one("#criteria", LinesView).set_text(text)
        rows = [row for run in reversed(state.runs) for row in _history(run)]
        history = self.query_one("#history", RowList)
        history.set_rows(rows)
        is_side_by_side = self.has_class("-vast")
        history.styles.height = (
            "1fr" if is_side_by_side else min(len(rows) + 2, max(6, self.size.height * 5 // 9))
        )

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.ralph.open_run(event.key[0])


def _painted(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _standing(found: TaskSeen) -> Iterator[Piece]:
    state = found.state
    yield (state.status, STATES.get(state.status, ""))
    cost = f", ${state.cost:.2f}" if state.cost else ""
    back = f", sent back {state.sent_back} of {MAX_SENT_BACK} times" if state.sent_back else ""
    yield (f" {state.role}, {count(state.iterations, 'iteration')}{cost}{back} ", "dim")


def _history(run: RoleRun) -> Iterator[TableRow]:
    """A role's run, followed by its verifications; every row opens the run."""
    of = f"{run.iteration}/{run.max_iterations}" if run.role != "merge" else "-"
    used = duration(run.seconds) + (f", ${run.cost:.2f}" if run.cost else "")
    words = f"{used}  {run.reason}".strip()
    yield TableRow(
        (run.run, 0), ((run.role, "bold"), (run.state, STATES.get(run.state, "")), (of, ""), (words, "dim"))
    )
    for number, found in enumerate(run.verification_results, 1):
        yield TableRow(
            (run.run, number), (("", ""), _verdict(found), (str(found.iteration), ""), (found.reason, ""))
        )


def _verdict(found: Verification) -> Piece:
    if found.verified:
        return "✓ verified", "done"
    return ("✗ failed", "bad") if found.promise_found else ("· no promise", "dim")


def story_words(story: Mapping[str, Any]) -> str:
    """Everything the task list says about a story."""

    def listed(key: str) -> list[str]:
        value = story.get(key)
        return [str(each) for each in value] if isinstance(value, list) else []

    facts = {
        "state": stories.state_of(story),
        "reviews": str(story.get("reviewCount") or 0),
        "priority": str(story.get("priority")),
        "depends on": ", ".join(listed("dependsOn")),
    }
    lines = [_painted(clean(str(story.get("title"))), "1"), ""]
    lines += [f"{name:<12}{clean(value)}" for name, value in facts.items() if value]
    lines += ["", _painted("acceptance criteria", "1")]
    lines += [f"  - {clean(each)}" for each in listed("acceptanceCriteria")]
    for key, title in (
        ("description", "description"),
        ("reviewFeedback", "review feedback"),
        ("notes", "notes"),
    ):
        if text := str(story.get(key) or "").strip():
            lines += ["", _painted(title, "1"), *(f"  {line}" for line in clean(text).splitlines())]
    return "\n".join(lines)
