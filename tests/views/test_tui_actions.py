"""Actions from the dashboard: keys pressed on real runs, and the store afterwards."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from conftest import Project
from ralph.commands.tui import make_app
from ralph.store.home import Home
from ralph.views.agent import ViewOptions
from ralph.views.status import Summary, summaries
from ralph.views.tui.dialogs import Ask
from ralph.views.tui.home import HomeScreen
from ralph.views.tui.run import RunScreen
from ralph.views.tui.task import TaskScreen
from tui_support import World, screen_text, settle, settle_environment, until

WORKS = "echo working; while [ ! -f go.$RALPH_ITERATION ] && [ ! -f go ]; do sleep 0.05; done"
"""An agent that works until the test creates `go`."""

DONE = "echo '<response>DONE</response>'"
_NAMES = {"/": "slash", " ": "space", ",": "comma"}


def at_once(app: App[Any], *characters: str) -> None:
    """Send these keys before the dashboard has handled the first of them."""
    for character in characters:
        app.post_message(events.Key(character if character.isalnum() else _NAMES[character], character))


def only(project: Project) -> Summary:
    runs = project.home.runs()
    with closing(runs.db):
        (found,) = summaries(runs)
        return found


def commands(project: Project) -> list[tuple[str, str]]:
    """Kind and body of the commands in the store."""
    with closing(sqlite3.connect(project.home.database)) as db:
        return db.execute("SELECT kind, body FROM commands ORDER BY id").fetchall()


def drive(
    project: Project, steps: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (110, 40)
) -> None:
    """Run the dashboard on the store of a project and perform the steps."""

    async def run() -> None:
        app = make_app(project.home, ViewOptions())
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await steps(pilot)

    asyncio.run(run())


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose environment the dashboard shares, so that it starts other ralphs with the same store."""
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR")
    return project


@contextmanager
def live(project: Project, body: str = WORKS) -> Iterator[Summary]:
    """A live run, cancelled at the end of the test."""
    project.agent(body)
    process = project.start("run", "-p", "The work.", "-m", "9")
    try:
        while process.poll() is None and not _is_working(project):
            pass
        yield only(project)
    finally:
        (project.path / "go").touch()
        project.run("cancel", only(project).id)
        process.communicate(timeout=30)


def _is_working(project: Project) -> bool:
    found = project.status()
    return (
        bool(found)
        and found[0]["state"] == "running"
        and any(project.home.streams(found[0]["id"]).glob("*.stdout"))
    )


def test_pause_and_resume(here: Project) -> None:
    """`p` pauses a run after the current step and `r` resumes it, with the same commands in the store as the CLI."""
    with live(here):

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.press("p")
            await until(pilot, lambda: [kind for kind, _ in commands(here)] == ["pause"])
            (here.path / "go.1").touch()
            await until(pilot, lambda: only(here).state == "paused")
            await until(pilot, lambda: "paused" in screen_text(pilot.app))
            await pilot.press("r")
            await until(pilot, lambda: [kind for kind, _ in commands(here)] == ["pause", "resume"])
            await until(pilot, lambda: only(here).state == "running")

        drive(here, steps)


def test_steer(here: Project) -> None:
    """`s` asks for a line and queues it for the next prompt; text that looks like markup is kept as typed."""
    with live(here):

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.press("s")
            await until(pilot, lambda: pilot.app.screen.query(Input))
            await pilot.press(*"use [red] tabs", "enter")
            await until(pilot, lambda: commands(here))
            await until(pilot, lambda: "Queued for the next prompt" in screen_text(pilot.app))

        drive(here, steps)
        ((kind, body),) = commands(here)
        assert kind == "steer"
        assert '"text":"use [red] tabs"' in body


@pytest.mark.slow
def test_steering_can_be_cancelled(here: Project) -> None:
    """Escape sends nothing, and an empty line is refused."""
    with live(here):

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.press("s", *"no", "escape", "s", "enter")
            await until(pilot, lambda: "The guidance is empty." in screen_text(pilot.app))

        drive(here, steps)
        assert commands(here) == []


def test_cancel_asks_first(here: Project) -> None:
    """`x` followed by `n` or Enter leaves the run alone; `y` cancels it."""
    with live(here):

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.press("x", "n", "x", "enter", "escape")
            await settle(pilot)
            assert (commands(here), only(here).state) == ([], "running")
            await pilot.press("x")
            await until(pilot, lambda: "Cancel run" in screen_text(pilot.app))
            await pilot.press("y")
            await until(pilot, lambda: only(here).outcome == "interrupted")
            await until(pilot, lambda: "interrupted" in screen_text(pilot.app))

        drive(here, steps)


@pytest.mark.slow
def test_resume_with_more_iterations(here: Project) -> None:
    """Resuming a run that has used all its iterations asks for more and continues it in the background."""
    here.agent(f'echo "$RALPH_ITERATION" >> starts; [ "$RALPH_ITERATION" -lt 3 ] || {DONE}')
    assert here.run("run", "-p", "The work.", "-m", "2").code == 1

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("r")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        assert pilot.app.screen.query_one(Input).value == "4"
        await pilot.press("enter")
        await until(pilot, lambda: only(here).outcome == "complete", seconds=60)
        await until(pilot, lambda: "complete" in screen_text(pilot.app))

    drive(here, steps)
    assert (here.path / "starts").read_text().split() == ["1", "2", "3"]


def test_errors_are_shown(here: Project) -> None:
    """The error of the command line is shown, not a traceback."""
    here.agent(DONE)
    assert here.run("run", "-p", "The work.").code == 0

    async def steps(pilot: Pilot[None]) -> None:
        for key, words in (("p", "is not running"), ("r", "is complete. There is nothing to")):
            await pilot.press(key)
            await until(pilot, lambda words=words: words in " ".join(screen_text(pilot.app).split()))  # type: ignore[misc]

    drive(here, steps)


@pytest.mark.slow
def test_rewind(repository: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`w` asks for the iteration and for confirmation, restores the files, and names the saved state."""
    for name, value in repository.env.items():
        monkeypatch.setenv(name, value)
    repository.agent(
        f"echo v$RALPH_ITERATION > file.txt; [ $RALPH_ITERATION -lt 2 ] || {DONE}", snapshots=True
    )
    assert repository.run("run", "-p", "The work.").code == 0
    file = repository.path / "file.txt"

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "w")
        await until(pilot, lambda: "before iteration 2" in screen_text(pilot.app))
        await pilot.press("enter", "n")
        await settle(pilot)
        assert file.read_text() == "v2\n"
        await pilot.press("w", "enter")
        await until(pilot, lambda: "to before iteration 2?" in screen_text(pilot.app))
        await pilot.press("y")
        await until(pilot, lambda: "To undo: ralph rewind" in screen_text(pilot.app), seconds=60)
        assert file.read_text() == "v1\n"

    drive(repository, steps)


def test_the_log_without_a_terminal(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`o` without a terminal suggests `ralph logs`; with one the log goes to $PAGER (see the test in tmux)."""
    here.agent(DONE)
    here.run("run", "-p", "The work.")

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("o")
        await until(pilot, lambda: "ralph logs" in screen_text(pilot.app))

    drive(here, steps)


def test_a_live_run_is_followed(here: Project) -> None:
    """Agent output appears while the agent works, then the next iteration."""
    with live(here, f"echo first line; {WORKS}; echo second line"):

        async def steps(pilot: Pilot[None]) -> None:
            await pilot.press("enter")
            await until(pilot, lambda: "first line" in screen_text(pilot.app))
            assert "second line" not in screen_text(pilot.app)
            (here.path / "go.1").touch()
            await until(pilot, lambda: "second line" in screen_text(pilot.app))
            await until(pilot, lambda: "=== Ralph iteration 2/9 ===" in screen_text(pilot.app))

        drive(here, steps)


# ---- navigation ----


def look_around(world: World, steps: Callable[[Pilot[None]], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        app = world.app(**options)
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            await steps(pilot)

    asyncio.run(run())


@pytest.fixture
def environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_environment(world, monkeypatch)


@pytest.mark.slow
def test_keys_reach_every_screen(world: World, environment: None) -> None:
    """Enter opens, Escape goes back, Tab switches panels, `?` shows help, `t` switches the theme."""

    async def steps(pilot: Pilot[None]) -> None:
        app = pilot.app
        await pilot.press("j", "j", "k", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and "orchard" in screen_text(app))
        await pilot.press("escape", "tab", "right", "enter")
        await until(pilot, lambda: isinstance(app.screen, TaskScreen) and "SHOP-3" in screen_text(app))
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: "rewind: restore the files" in screen_text(app))
        await pilot.press("escape", "t")
        assert app.theme == "ralph-light"
        assert isinstance(app.screen, HomeScreen)

    look_around(world, steps)


@pytest.mark.slow
def test_the_mouse_works(world: World, environment: None) -> None:
    """A click selects a row and a second click opens it; tabs can be clicked."""

    async def steps(pilot: Pilot[None]) -> None:
        app = pilot.app
        await pilot.click("#runs", offset=(5, 9))
        await pilot.click("#runs", offset=(5, 9))
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and "greeter" in screen_text(app))
        await pilot.click("#tabs", offset=(15, 0))
        await until(pilot, lambda: "guardrail_002_check_sh.log" in screen_text(app))

    look_around(world, steps)


def test_filter(world: World, environment: None) -> None:
    """`/` shows only runs that match the words, including their prompts; Escape shows all runs again."""

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"prd limit", "enter")
        await until(
            pilot, lambda: "~/notes" in screen_text(pilot.app) and "~/blog" not in screen_text(pilot.app)
        )
        await pilot.press("escape")
        await until(pilot, lambda: "~/blog" in screen_text(pilot.app))
        await pilot.press("slash", *"fix the feed", "enter")
        await until(pilot, lambda: "~/notes" not in screen_text(pilot.app))
        assert "~/blog" in screen_text(pilot.app)

    look_around(world, steps)


@pytest.mark.slow
def test_fast_typing_goes_into_the_field(world: World, environment: None) -> None:
    """Keys typed right after `/` or `s` go into the field it opens, not to the list."""

    async def steps(pilot: Pilot[None]) -> None:
        app = pilot.app
        at_once(app, "/", *"xpq greeter")
        await until(pilot, lambda: app.screen.query_one("#filter", Input).value == "xpq greeter")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("escape")
        app.post_message(events.Key("slash", "/"))
        app.post_message(events.Paste("greeter"))
        await until(pilot, lambda: app.screen.query_one("#filter", Input).value == "greeter")
        await pilot.press("enter")
        await settle(pilot)
        at_once(app, "s", *"use x, please")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        await until(pilot, lambda: app.screen.query_one(Input).value == "use x, please")
        await pilot.press("escape")

    look_around(world, steps)


@pytest.mark.slow
def test_a_run_of_a_task_is_opened_from_its_history(world: World, environment: None) -> None:
    """Enter opens the run of a role, and Escape goes back to the task."""

    async def steps(pilot: Pilot[None]) -> None:
        app = pilot.app
        await pilot.press("tab", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and "Running coder" in screen_text(app))
        await pilot.press("escape")
        assert isinstance(app.screen, TaskScreen)

    look_around(world, steps, first=(world.webshop, "SHOP-1"))


def test_it_can_start_with_a_run(world: World, environment: None) -> None:
    """`ralph tui RUN` opens the run; Escape goes to the list."""

    async def steps(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app.screen, RunScreen)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, HomeScreen)

    look_around(world, steps, first=(world.ids["complete"],))


@pytest.mark.slow
def test_a_new_store_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store created while the dashboard is open is shown."""
    (tmp_path / "state").mkdir()
    project = Project(tmp_path, Home(tmp_path / "state"))
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)

    async def steps(pilot: Pilot[None]) -> None:
        assert "No runs yet" in screen_text(pilot.app)
        assert os.listdir(project.home.path) == []
        project.agent(DONE)
        await asyncio.to_thread(project.run, "run", "-p", "The work.")
        await until(pilot, lambda: "complete" in screen_text(pilot.app))

    drive(project, steps)
