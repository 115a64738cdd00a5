"""`ralph prd init`, `status`, `archive` and `import`: the folder before and after a loop."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import RALPH, Project, some
from faults.work_fault_support import trap
from prd_support import Loop, board, make_loop, story
from ralph.prd import archive, files
from ralph.prd.plan import PrdInputs
from ralph.store.prd_folder import PrdFolder
from ralph.stories import rules
from ralph.stories.rules import AT_CAP
from terminal_support import terminal
from work_support import Site

TODAY = time.strftime("%Y-%m-%d")
NAMES = {"prd.md", "tasks.json", "progress.txt", "prompt.md"}


def tasks(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "ralph" / "tasks.json").read_text())
    return found


# ---- init ----


def test_init_in_an_empty_directory(project: Project) -> None:
    """Four files from the templates, with date and name, the marker ignored, and the next steps."""
    done = project.run("prd", "init")
    assert done.code == 0, done.err
    folder = project.path / "ralph"
    assert {path.name for path in folder.iterdir()} == NAMES
    assert (
        (folder / "progress.txt")
        .read_text()
        .startswith(f"# Ralph Progress Log\nStarted: {TODAY}\nPRD: project\n")
    )
    assert tasks(project)["branchName"] == "ralph/feature-name" and tasks(project)["project"] == ""
    assert "$RALPH_MODE" in (folder / "prompt.md").read_text()
    assert "{{" not in "".join(path.read_text() for path in folder.iterdir())
    assert (project.path / ".gitignore").read_text() == ".ralph-active\n"
    assert (
        "  1. Write ralph/prd.md and ralph/tasks.json:" in done.out
        and "  3. Start the loop: ralph prd run" in done.out
    )


@pytest.mark.parametrize(
    ("name", "branch"),
    [
        ("login", "ralph/login"),
        ("Log in!", "ralph/Log-in"),
        ("a/b..c", "ralph/a/b-c"),
        ("Größe", "ralph/Größe"),
    ],
)
def test_a_name_gives_the_branch_and_the_list_its_name(repository: Project, name: str, branch: str) -> None:
    """Any name becomes a branch name that git accepts."""
    done = repository.run("prd", "init", "--name", name)
    assert done.code == 0
    assert (tasks(repository)["branchName"], tasks(repository)["project"]) == (branch, name)
    assert f"git switch -c {branch}" in done.out
    repository.git("check-ref-format", f"refs/heads/{branch}")
    assert f"# PRD: {name}\n" in (repository.path / "ralph" / "prd.md").read_text()


def test_an_existing_folder_is_left_alone(project: Project) -> None:
    """Exit 2; --force adds files that are missing or empty, and overwrites nothing."""
    (project.path / "ralph").mkdir()
    (project.path / "ralph" / "prd.md").write_text("# Mine\n")
    (project.path / "ralph" / "progress.txt").write_text(" \n")
    (project.path / ".gitignore").write_text("*.pyc\n/.ralph-active")
    assert project.run("prd", "init").code == 2
    assert len(list((project.path / "ralph").iterdir())) == 2
    done = project.run("prd", "init", "--force")
    assert done.code == 0
    assert {path.name for path in (project.path / "ralph").iterdir()} == NAMES
    assert (project.path / "ralph" / "prd.md").read_text() == "# Mine\n"
    assert (project.path / "ralph" / "progress.txt").read_text().startswith("# Ralph Progress Log")
    assert (project.path / ".gitignore").read_text() == "*.pyc\n/.ralph-active"
    assert "exists   ralph/prd.md" in done.out and "created  ralph/tasks.json" in done.out


def test_a_line_is_added_to_an_ignore_file_without_a_last_newline(project: Project) -> None:
    """The existing lines stay as they are."""
    (project.path / ".gitignore").write_text("*.pyc")
    project.run("prd", "init", "--project-dir", str(project.path), "--ralph-dir", "docs/loop")
    assert (project.path / ".gitignore").read_text() == "*.pyc\n.ralph-active\n"
    assert {path.name for path in (project.path / "docs" / "loop").iterdir()} == NAMES


@pytest.mark.parametrize(
    "arguments", [("--project-dir", "nowhere"), ("--name", "..."), ("--ralph-dir", "..")]
)
def test_a_folder_that_cannot_be_created_is_refused(project: Project, arguments: tuple[str, ...]) -> None:
    """Exit 2, and nothing is written."""
    assert project.run("prd", "init", *arguments).code == 2
    assert list(project.path.iterdir()) == []


@pytest.mark.parametrize("command", ["init", "status", "plan", "run", "archive"])
def test_a_file_instead_of_the_folder_is_reported(project: Project, command: str) -> None:
    """Every command prints the same error and what to do; none refers to another command."""
    (project.path / "ralph").write_text("notes")
    done = project.run("prd", command)
    assert done.code == 2
    assert "ralph is not a folder (it is a file or a link)" in done.err and "Remove " in done.err


def test_a_folder_that_is_a_link_is_refused(project: Project) -> None:
    """Even with --force: nothing is written elsewhere."""
    (project.path / "elsewhere").mkdir()
    (project.path / "ralph").symlink_to("elsewhere")
    assert project.run("prd", "init", "--force").code == 2
    assert list((project.path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_template_is_recognised_until_someone_edits_it(name: str) -> None:
    """With any name and date; one added line makes it the user's file."""
    text = files.fresh(name, "Login", "ralph/login")
    assert files.is_fresh(name, text.encode())
    mine = text.replace('"title": ""', '"title": "x"') if name == "tasks.json" else f"{text}\nMine.\n"
    assert not files.is_fresh(name, mine.encode())


@pytest.mark.parametrize("command", ["run", "status"])
def test_an_unplanned_folder_says_what_to_do(project: Project, command: str) -> None:
    """Right after init: exit 2, and not a list of errors about the template."""
    project.run("prd", "init")
    project.agent("echo never")
    done = project.run("prd", command)
    assert done.code == 2 and "ralph prd plan" in done.err


# ---- status ----


def test_status_on_a_terminal(project: Project) -> None:
    """The state of every story, requested changes, the next step; the cap has a different colour than an approval."""
    capped = {"passes": True, "reviewStatus": "approved", "reviewCount": 5, "notes": "x"}
    loop = make_loop(
        project,
        story("US-000", priority=4, **capped),
        story(title="Orders have a state that can be queried by customers, with a rather long title"),
        story(
            "US-002",
            priority=2,
            reviewFeedback=f"{AT_CAP} There are no tests for the empty list. {'x ' * 20}",
            **capped,
        ),
        story("US-003", reviewStatus="changes_requested", reviewFeedback="No default.", dependsOn=["US-001"]),
        branchName="ralph/orders",
    )
    loop.project.extra_env["NO_COLOR"] = ""
    with terminal(project, "prd", "status") as screen:
        assert screen.finish() == 0
        assert screen.colour_of("auto-approved") != screen.colour_of("approved ") == "green"
        lines = screen.screen.splitlines()
    assert lines[1].split() == ["story", "state", "reviews", "priority", "title", "waits", "for"]
    words = "\n".join(lines)
    for expected in (
        "2 of 4 stories done.",
        "US-002 approved only because the review cap was reached: There are no tests for the empty list.",
        "US-003 needs changes: No default.",
        "Next: review-fix US-003. To start: ralph prd run",
        "About 6 iterations are needed for the remaining stories.",
        "You are on main, but tasks.json names ralph/orders. Ralph does not switch branches.",
        "No verifyCommands",
    ):
        assert expected in words, words


def test_status_lists_all_problems(project: Project) -> None:
    """All of them, with exit code 2, as text and as JSON; what can be shown is shown."""
    loop = make_loop(project, story(passes="x"), story(), story("US-003", dependsOn=["US-9"]))
    done = project.run("prd", "status")
    assert done.code == 2 and "US-003" in done.out
    assert "3 problems." in done.err
    found = json.loads(project.run("prd", "status", "--json").out)
    assert found["problems"] == [
        "Story US-001: 'passes' must be true or false, not \"x\".",
        "Duplicate story id: US-001.",
        "Story US-003: 'dependsOn' names US-9, which is not a story.",
    ]
    assert [each["id"] for each in found["stories"]] == ["US-001", "US-001", "US-003"]
    loop.write(board(story(reviewCount=3)))
    assert project.run("prd", "status").code == 0
    assert "at most 2 (the review cap is 1)" in project.run("prd", "status", "--review-cap", "1").err
    (loop.folder / "tasks.json").write_text("[\n1,]")
    assert "tasks.json:2: not valid JSON" in project.run("prd", "status").err


def test_status_as_json(project: Project) -> None:
    """Mode, next story, completion, and the fields of every story."""
    make_loop(project, story(), verifyCommands=["true"])
    found = json.loads(project.run("prd", "status", "--json").out)
    assert {key: found[key] for key in ("mode", "next", "complete", "branch", "running", "problems")} == {
        "mode": "implement",
        "next": "US-001",
        "complete": False,
        "branch": "main",
        "running": None,
        "problems": [],
    }
    assert found["stories"][0]["reviewStatus"] is None


# ---- archive ----


@pytest.fixture
def finished(project: Project) -> Loop:
    """Two stories done, one of them only at the cap."""
    done: dict[str, Any] = {"passes": True, "reviewStatus": "approved", "notes": "x"}
    loop = make_loop(
        project,
        story(reviewCount=2, **done),
        story("US-002", title="With | a bar", reviewCount=5, reviewFeedback=f"{AT_CAP} No tests.", **done),
        branchName="ralph/orders",
    )
    with (loop.folder / "progress.txt").open("a") as file:
        file.write("## 2026-02-03 - US-001 - review\n")
    (loop.folder / "prompt.md").write_text("My own prompt.\n")
    project.git("commit", "-qam", "Done")
    return loop


def archived(loop: Loop) -> list[Path]:
    place = loop.project.path / "ralph-archive"
    return sorted(place.iterdir()) if place.exists() else []


def test_an_archive_has_the_files_and_a_summary_and_the_folder_starts_fresh(finished: Loop) -> None:
    """Named by date and branch, committed with nothing else; the user's own prompt stays."""
    project = finished.project
    before = {name: (finished.folder / name).read_text() for name in NAMES}
    (project.path / "work.txt").write_text("not finished")
    (project.path / ".gitignore").write_text((project.path / ".gitignore").read_text() + "# mine\n")
    project.git("add", ".gitignore")
    done = project.run("prd", "archive")
    assert done.code == 0, done.err
    (place,) = archived(finished)
    assert place.name == f"{TODAY}-orders"
    for name in ("prd.md", "tasks.json", "progress.txt"):
        assert (place / name).read_text() == before[name]
        assert files.is_fresh(name, (finished.folder / name).read_bytes())
    assert (finished.folder / "prompt.md").read_text() == "My own prompt.\n"
    summary = (place / "summary.md").read_text()
    for words in (
        "- Stories done: 2 of 2",
        "- From 2026-01-02 to 2026-02-03",
        "- Reviews: 7 total, at most 5 for one story",
        "- Approved only at the review cap: US-002",
        "| US-002 | With \\| a bar | approved | 5 |",
        f"{AT_CAP} No tests.",
    ):
        assert words in summary, summary
    assert "Not finished" not in summary
    assert finished.subjects[0] == f"chore: archive {TODAY}-orders"
    assert project.git("status", "--porcelain").split() == ["M", ".gitignore", "??", "work.txt"]
    assert "Approved only at the review cap: US-002" in done.out


def test_unfinished_stories_are_reported(project: Project) -> None:
    """In the summary and on the terminal; the label names the archive, as JSON too."""
    loop = make_loop(
        project, story(), story("US-002", passes=True, reviewStatus="approved", reviewCount=1, notes="x")
    )
    done = project.run("prd", "archive", "--label", "Second try: a/b", "--json")
    found = json.loads(done.out)
    assert found["archive"] == f"ralph-archive/{TODAY}-Second-try-a-b"
    assert (found["stories"], found["done"], found["unfinished"], found["reviews"]) == (2, 1, ["US-001"], 1)
    assert found["commit"] == project.git("rev-parse", "HEAD").strip()
    assert "**Not finished**: US-001." in (archived(loop)[0] / "summary.md").read_text()


def test_a_list_without_a_description_has_no_line_for_it(project: Project) -> None:
    """Every item in the summary has a value."""
    loop = make_loop(project, description="")
    done = project.run("prd", "archive")
    assert done.out.startswith(f"ralph-archive/{TODAY}-main: 0 of 1 stories done, 0 reviews.\n")
    assert "- " not in (archived(loop)[0] / "summary.md").read_text().split("\n")


def test_a_second_archive_of_a_name_gets_a_number(finished: Loop) -> None:
    """Nothing is overwritten."""
    finished.project.run("prd", "archive")
    finished.write(board(story(title="Another"), branchName="ralph/orders"))
    assert finished.project.run("prd", "archive").code == 0
    assert [path.name for path in archived(finished)] == [f"{TODAY}-orders", f"{TODAY}-orders-2"]


def test_nothing_to_archive(project: Project) -> None:
    """A folder of fresh templates: exit 2, and no archive."""
    project.run("prd", "init")
    assert project.run("prd", "archive").code == 2
    assert not (project.path / "ralph-archive").exists()


def test_an_archive_without_a_repository(project: Project) -> None:
    """It is made, with a warning that it is not committed; a broken list is kept as it is."""
    project.run("prd", "init")
    (project.path / "ralph" / "tasks.json").write_text("{broken")
    done = project.run("prd", "archive", "--label", "x")
    assert done.code == 0 and "not committed: this is not a git repository" in done.err
    place = project.path / "ralph-archive" / f"{TODAY}-x"
    assert (place / "tasks.json").read_text() == "{broken"
    assert "The task list was not valid" in (place / "summary.md").read_text()


@pytest.mark.parametrize("nth", [1, 2])
def test_an_archive_without_an_answer_from_git(finished: Loop, nth: int) -> None:
    """Whether it was committed is not known: it is an error, not a commit."""
    trap(Site(finished.project), "'rev-parse '*HEAD", "exit 128", nth=nth)
    done = finished.project.run("prd", "archive")
    assert (done.code, "git rev-parse" in done.err) == (2, True)
    assert len(archived(finished)) == 1


def test_no_archive_while_a_loop_runs(project: Project) -> None:
    """By the lock of a run, and by the marker of another program's loop."""
    loop = make_loop(project)
    words = f"['env', '-u', 'RALPH_PARENT_RUN_ID', {RALPH!r}, 'prd', 'archive']"
    loop.agent(
        f"(OUTSIDE / 'ran').write_text(subprocess.run({words}, capture_output=True, text=True).stderr)"
    )
    loop.run("-n", "1")
    assert "Another run is working in" in (loop.outside / "ran").read_text()
    (project.path / ".ralph-active").write_text(json.dumps({"pid": 1}))
    done = project.run("prd", "archive")
    assert done.code == 2 and "according to .ralph-active (process 1)" in done.err
    assert archived(loop) == []


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("after", some([0, 3, 9, 99, 1, 7, 8, 10, 12, 14, 15, 16], 4))
def test_an_interrupted_archive_is_finished_by_the_next_call(
    finished: Loop, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed before any of its writes: nothing is lost, and the second call makes one complete archive."""
    before = {name: (finished.folder / name).read_bytes() for name in NAMES}
    left = after
    for owner, name in (
        (PrdFolder, "write"),
        (os, "rename"),
        (archive, "_commit"),
    ):
        real = getattr(owner, name)

        def dying(*arguments: Any, _real: Any = real, **more: Any) -> Any:
            nonlocal left
            if left == 0:
                raise _Killed
            left -= 1
            return _real(*arguments, **more)

        monkeypatch.setattr(owner, name, dying)
    inputs = PrdInputs(finished.project.path)
    was_killed = False
    try:
        archive.archive(inputs)
    except _Killed:
        was_killed = True
    monkeypatch.undo()
    done = finished.project.run("prd", "archive")
    (place,) = archived(finished)
    assert {name: (place / name).read_bytes() for name in NAMES - {"prompt.md"}} == {
        name: data for name, data in before.items() if name != "prompt.md"
    }
    assert (place / "summary.md").exists()
    assert files.is_fresh("tasks.json", (finished.folder / "tasks.json").read_bytes())
    assert finished.project.git("status", "--porcelain") == ""
    assert was_killed is (after < 99)
    assert done.code == (0 if was_killed else 2), done.err


# ---- import ----

SNARKTANK = {
    "project": "MyApp",
    "branchName": "ralph/task-priority",
    "description": "Task Priority System",
    "verificationCommands": {"typecheck": "npm run build", "test": "npm test"},
    "platform": {"os": ["linux"]},
    "userStories": [
        {
            "id": "US-001",
            "title": "Add priority field to database",
            "description": "As a developer, I need to store task priority.",
            "acceptanceCriteria": ["Add priority column", "Typecheck passes"],
            "priority": 1,
            "passes": True,
            "notes": "Done in May",
        },
        {
            "id": "US-002",
            "title": "Display priority",
            "description": "As a user, I want to see it.",
            "acceptanceCriteria": [
                {"description": "Badge", "passes": True},
                {"description": "Colour", "passes": False},
            ],
            "priority": "high",
            "passes": False,
            "dependencies": ["US-001", "US-9"],
            "estimate": 3,
        },
        {"id": "US-002", "title": "The same id", "acceptanceCriteria": [], "passes": "partly"},
    ],
}


def imported(project: Project, value: Any, *arguments: str, name: str = "prd.json") -> dict[str, Any]:
    path = project.path.parent / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    done = project.run("prd", "import", str(path), *arguments)
    assert done.code == 0, done.err
    (project.path.parent / "said").write_text(done.out + done.err)
    board = tasks(project)
    assert rules.schema_problems(board) == rules.invariant_problems(board) == []
    return board


def said(project: Project) -> str:
    return (project.path.parent / "said").read_text()


def test_a_prd_json_is_imported_and_nothing_is_lost(project: Project) -> None:
    """Fields without a place are kept in notes and PRD and reported; finished stories wait for their review."""
    board = imported(project, SNARKTANK)
    first, second, third = board["userStories"]
    assert (board["project"], board["branchName"]) == ("MyApp", "ralph/task-priority")
    assert board["verifyCommands"] == ["npm run build", "npm test"]
    assert (first["passes"], first["reviewStatus"], first["reviewCount"]) == (False, "needs_review", 0)
    assert first["notes"] == "Done in May\nMarked as done in prd.json; not reviewed yet."
    assert second["acceptanceCriteria"] == ["Badge", "Colour"]
    assert (second["dependsOn"], second["priority"]) == (["US-001"], 2)
    for words in ("Marked as met in prd.json: Badge", '"high"', '{"estimate": 3}', "Depended on US-9"):
        assert words in second["notes"]
    assert (third["id"], third["acceptanceCriteria"]) == ("US-002-2", ["The same id"])
    assert '{"passes": "partly"}' in third["notes"]
    assert '"platform": {' in (project.path / "ralph" / "prd.md").read_text()
    for words in (
        "marked done, to be reviewed: US-001",
        "Ralph will run this command to verify every approval: npm test",
        "Kept in prd.md, because tasks.json has no field for it: platform",
        "Kept in the notes of US-002, because a story has no field for it: estimate",
        "US-002 depended on US-9, which is not in the list",
        "Duplicate id US-002: renamed the second to US-002-2",
        "US-002 had no acceptance criteria",
    ):
        assert words in said(project), said(project)
    assert {path.name for path in (project.path / "ralph").iterdir()} == NAMES


def test_every_text_of_a_story_survives(project: Project) -> None:
    """Every text of an imported story is found again somewhere."""
    odd = {
        "id": 7,
        "title": "T1",
        "description": "T2 \n T3",
        "acceptanceCriteria": ["T4", {"text": "T5", "by": "T6"}, {"description": "T7", "passes": True}],
        "priority": "T8",
        "passes": False,
        "notes": ["T9", {"x": "T10"}],
        "reviewStatus": "approved",
        "reviewFeedback": "T11",
        "dependsOn": "T12",
        "more": {"deep": ["T13"]},
    }
    imported(project, {"userStories": [odd], "extra": "T14", "description": "T15"})
    everything = "".join(path.read_text() for path in (project.path / "ralph").iterdir())
    assert [n for n in range(1, 16) if not re.search(rf"\bT{n}\b", everything)] == []


def test_trusted_stories_count_as_approved(project: Project) -> None:
    """`--trust` accepts the list's own status."""
    board = imported(project, SNARKTANK, "--trust")
    assert (board["userStories"][0]["passes"], board["userStories"][0]["reviewStatus"]) == (True, "approved")
    assert "1 approved without a review" in said(project)


def test_circular_dependencies_are_dropped(project: Project) -> None:
    """They are recorded in the notes of the stories."""
    ring = [{"id": id, "title": id, "dependsOn": [other]} for id, other in (("A", "B"), ("B", "A"))]
    board = imported(project, ring)
    assert [each["dependsOn"] for each in board["userStories"]] == [[], []]
    assert "Depended on B." in board["userStories"][0]["notes"]


CHECKLIST = """# Shop

Intro.

## Backend
- [ ] Orders have a state
  More about it.
  - [x] The column exists
  - The migration runs
    * [ ] backwards too
- [x] Health endpoint
* Group
\t* [ ] In a group
1. [ ] Numbered

```
- [ ] an example, no story
```

### Deeper
- [ ] Below two headings
"""


def test_a_checklist_is_imported(project: Project) -> None:
    """Headings and plain items are groups, nested items are criteria, a tick is a claim; the PRD has all of it."""
    board = imported(project, CHECKLIST, name="todo.md")
    found = [
        (s["title"], s["acceptanceCriteria"], s["description"], s["reviewStatus"])
        for s in board["userStories"]
    ]
    assert found == [
        (
            "Orders have a state",
            ["The column exists", "The migration runs", "backwards too"],
            "Part of: Backend\n\nMore about it.",
            None,
        ),
        ("Health endpoint", ["Health endpoint"], "Part of: Backend", "needs_review"),
        ("In a group", ["In a group"], "Part of: Backend / Group", None),
        ("Numbered", ["Numbered"], "Part of: Backend", None),
        ("Below two headings", ["Below two headings"], "Part of: Backend / Deeper", None),
    ]
    assert "Marked as met in todo.md: The column exists" in board["userStories"][0]["notes"]
    assert (board["project"], board["branchName"]) == ("Shop", "ralph/todo")
    assert (project.path / "ralph" / "prd.md").read_text() == CHECKLIST


def test_an_import_keeps_the_branch_name_from_init(project: Project) -> None:
    """Unless the imported list has one."""
    project.run("prd", "init", "--name", "login")
    assert imported(project, CHECKLIST, name="todo.md")["branchName"] == "ralph/login"
    assert imported(project, SNARKTANK, "--force")["branchName"] == SNARKTANK["branchName"]


def test_an_import_replaces_nothing_without_force(project: Project) -> None:
    """Exit 2; with --force the old files are kept under another name, which is printed."""
    imported(project, CHECKLIST, name="todo.md")
    path = project.path.parent / "prd.json"
    path.write_text(json.dumps(SNARKTANK))
    done = project.run("prd", "import", str(path))
    assert done.code == 2 and "ralph/tasks.json and ralph/prd.md already have content" in done.err
    imported(project, SNARKTANK, "--force")
    assert (project.path / "ralph" / "prd.md.old").read_text() == CHECKLIST
    assert "Renamed ralph/tasks.json to ralph/tasks.json.old." in said(project)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "a.json:1: not valid JSON"),
        ("a.json", '{"stories": []}', "no array 'userStories'"),
        ("a.json", '{"userStories": []}', "has no stories"),
        ("a.json", '{"userStories": [1]}', "userStories[0] is not an object"),
        ("a.json", '{"userStories": [], "userStories": []}', "duplicate key 'userStories'"),
        ("a.md", "# Nothing\n- to tick\n", "no checkboxes found"),
        ("b.md", None, "list to import not found"),
    ],
)
def test_an_invalid_list_is_refused(project: Project, name: str, text: str | None, words: str) -> None:
    """Exit 2, and nothing is written."""
    path = project.path.parent / name
    if text is not None:
        path.write_text(text)
    done = project.run("prd", "import", str(path))
    assert done.code == 2 and words in done.err
    assert not (project.path / "ralph").exists()
