"""`ralph prd plan`: an agent in the user's own terminal, and the files that it writes."""

from __future__ import annotations

import json
import sys
import termios
from pathlib import Path

import pytest

from conftest import Project, some_rows
from prd_support import board, story
from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec
from terminal_support import CTRL_C, terminal

PLANNER = """
import json, os, signal, sys, termios, tty
from pathlib import Path
OUTSIDE = Path({outside!r})
(OUTSIDE / "told").write_text(json.dumps(sys.argv[1:]))
(OUTSIDE / "where").write_text(os.getcwd() + " " + str(os.environ.get("CLAUDECODE")))
PRD, TASKS = Path("ralph/prd.md"), Path("ralph/tasks.json")

def ask(question):
    print(question, end=" ", flush=True)
    return sys.stdin.readline().strip()

def write(title="Login", **values):
    PRD.write_text(f"# PRD\\n\\nPeople want: {{title}}.\\n")
    TASKS.write_text(json.dumps(json.loads({board!r}) | values))

{body}
"""


@pytest.fixture
def planned(project: Project) -> Project:
    """A project with a fresh folder."""
    project.run("prd", "init")
    return project


def planner(project: Project, body: str, name: str = "planner") -> None:
    path = project.path.parent / name
    text = PLANNER.format(outside=str(project.path.parent), board=json.dumps(board()), body=body)
    path.write_text(f"#!{sys.executable} -IS\n{text}\n")
    path.chmod(0o755)
    project.settings(agent={"command": str(path), "flags": ["--deep"]})


def told(project: Project) -> list[str]:
    found: list[str] = json.loads((project.path.parent / "told").read_text())
    return found


def test_a_plan_is_made_in_a_conversation(planned: Project) -> None:
    """The agent has the terminal and the planning skill as its prompt; then both files are checked."""
    planner(planned, "write(ask('What do you want to build?'))")
    planned.extra_env["CLAUDECODE"] = "1"
    with terminal(planned, "prd", "plan") as screen:
        screen.answer("What do you want to build?", "a login")
        assert screen.finish() == 0, screen.screen
        assert "Planned: 1 story." in screen.screen
        assert "then run: ralph prd run" in screen.screen
    assert (planned.path / "ralph" / "prd.md").read_text().endswith("People want: a login.\n")
    flag, prompt = told(planned)
    assert flag == "--deep"
    assert prompt.startswith("# Plan a feature for a Ralph loop") and "mode 1, full planning" in prompt
    assert (planned.path.parent / "where").read_text() == f"{planned.path} None"


def test_a_circular_link_is_refused(planned: Project) -> None:
    """With a clear error, and nothing is started."""
    (planned.path / "circle").symlink_to("circle")
    with terminal(planned, "prd", "plan", "--from", "circle") as screen:
        assert screen.finish() == 2
        assert "circle" in screen.screen and "This is a bug" not in screen.screen, screen.screen


@pytest.mark.slow
def test_stories_are_derived_from_a_written_prd(planned: Project) -> None:
    """With --from it is copied first, never over another one unless --force is given, which keeps a backup."""
    source = planned.path.parent / "login.md"
    source.write_text("# Login\n\nWith a password.\n")
    planner(planned, f"TASKS.write_text(json.dumps(json.loads({json.dumps(board())!r})))")
    with terminal(planned, "prd", "plan", "--from", str(source)) as screen:
        assert screen.finish() == 0, screen.screen
    assert (planned.path / "ralph" / "prd.md").read_text() == source.read_text()
    assert "mode 2, task derivation" in told(planned)[1]
    source.write_text("# Another\n\nWithout.\n")
    with terminal(planned, "prd", "plan", "--from", str(source)) as screen:
        assert screen.finish() == 2
        assert "ralph/prd.md already has content." in screen.screen
    with terminal(planned, "prd", "plan", "--from", str(source), "--force") as screen:
        assert screen.finish() == 0, screen.screen
        assert "Renamed ralph/prd.md to ralph/prd.md.old." in screen.screen
    assert "With a password." in (planned.path / "ralph" / "prd.md.old").read_text()


@pytest.mark.parametrize(
    ("body", "words"),
    some_rows(
        [
            ("pass", ("prd.md is empty or still the template", "tasks.json has no stories yet")),
            ("write(); TASKS.write_text('{')", ("tasks.json:1: not valid JSON",)),
            ("write(project=1)", ("'project' must be a string",)),
            (
                f"write(userStories=[{story(passes=True, reviewStatus='approved', reviewCount=1, notes='x')!r}])",
                (
                    "Story US-001: passes must be false, not true",
                    "reviewStatus must be null",
                    "reviewCount must be 0",
                ),
            ),
        ],
        2,
    ),
)
def test_problems_of_a_plan_are_reported(planned: Project, body: str, words: tuple[str, ...]) -> None:
    """All of them, with exit code 2, and how to continue."""
    planner(planned, body)
    with terminal(planned, "prd", "plan") as screen:
        assert screen.finish() == 2
        for each in (*words, "ralph prd plan"):
            assert each in screen.screen, screen.screen


def test_planning_cannot_change_stories_that_were_started(planned: Project) -> None:
    """They can stay as they are; they cannot be reset or removed."""
    begun = story(passes=True, reviewStatus="approved", reviewCount=1, notes="x")
    (planned.path / "ralph" / "tasks.json").write_text(json.dumps(board(begun)))
    planner(planned, f"write(userStories=[{begun!r}, {story('US-002')!r}])")
    with terminal(planned, "prd", "plan") as screen:
        assert screen.finish() == 0, screen.screen
    planner(planned, f"write(userStories=[{story('US-002')!r}, {story()!r}])")
    with terminal(planned, "prd", "plan") as screen:
        assert screen.finish() == 2
        assert "Story US-001: passes must be true, not false" in screen.screen


def test_ctrl_c_goes_to_the_agent(planned: Project) -> None:
    """It interrupts the agent, not ralph, which waits for the end of the session."""
    planner(
        planned,
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'not yet '))\n"
        "ask('Ready?')\nwrite(ask('And now?'))",
    )
    with terminal(planned, "prd", "plan") as screen:
        screen.expect("Ready?")
        screen.type(CTRL_C)
        screen.answer("not yet", "yes")
        screen.answer("And now?", "a login")
        assert screen.finish() == 0, screen.screen


def test_a_terminal_left_in_a_bad_state_is_restored(planned: Project) -> None:
    """An agent that dies in full-screen mode; its exit code is printed, and the files are checked."""
    planner(planned, "tty.setraw(0)\nos.kill(os.getpid(), signal.SIGKILL)")
    with terminal(planned, "prd", "plan") as screen:
        assert screen.finish() == 2
        assert "exited with code 137." in screen.screen
        assert termios.tcgetattr(screen._master)[3] & termios.ICANON


def test_planning_needs_a_terminal_a_folder_and_an_agent(project: Project) -> None:
    """Each missing one is refused with advice; nothing is started."""
    done = project.run("prd", "plan")
    assert done.code == 2 and "Create it with: ralph prd init" in done.err
    project.run("prd", "init")
    done = project.run("prd", "plan")
    assert done.code == 2 and "needs a terminal" in done.err and "ralph prd import FILE" in done.err
    with terminal(project, "prd", "plan", "--agent", "no-such-agent --x") as screen:
        assert screen.finish() == 2
        assert "no-such-agent: command not found." in screen.screen


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        ("claude", ["x", "--model", "opus", "--", "P"]),
        ("codex", ["x", "--model", "opus", "--", "P"]),
        ("gemini", ["x", "--model", "opus", "-i", "P"]),
        ("opencode", ["x", "--model", "opus", "--prompt", "P"]),
        ("custom", ["x", "--model", "opus", "P"]),
    ],
)
def test_every_agent_starts_a_session_with_the_prompt(type: str, expected: list[str]) -> None:
    """As its own help says; the user's flags are kept, and no flags for iterations are added."""
    assert AGENTS[type].interactive(AgentSpec("a", type, "x", ("--model", "opus")), "P") == expected


def test_another_folder_is_named_in_the_prompt(project: Project) -> None:
    """`--ralph-dir`: the skill names that folder."""
    project.run("prd", "init", "--ralph-dir", "docs/loop")
    planner(project, "pass")
    with terminal(project, "prd", "plan", "--ralph-dir", "docs/loop") as screen:
        assert screen.finish() == 2
    prompt = told(project)[1]
    assert "`docs/loop/prd.md`" in prompt and "`ralph/" not in prompt
    assert Path(project.path / "docs" / "loop").is_dir()
