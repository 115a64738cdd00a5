"""Every screen of the dashboard in three sizes, on a store of real scripted runs.

After an intended change, run pytest tests/views/test_tui_screens.py -n 0 --snapshot-update and look at the pictures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_textual_snapshot import SVGImageExtension  # type: ignore[import-untyped]
from textual.pilot import Pilot

from conftest import Project, some
from tui_support import SIZES, World, settle, settle_environment

Compare = Callable[..., bool]
SVGImageExtension.file_extension = "svg"  # the plugin sets the attribute's name from older versions of syrupy

sizes = pytest.mark.parametrize("size", some(SIZES, 1), ids=lambda size: f"{size[0]}x{size[1]}")


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    settle_environment(request.getfixturevalue("world"), monkeypatch)


def typed(*keys: str) -> Callable[[Pilot[None]], object]:
    """Press these keys, each after the screen has settled."""

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)

    return run_before


@sizes
def test_all_runs(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """Live runs first, a child below its parent, and the project's swimlanes with iterations."""
    assert snap_compare(world.app(), terminal_size=size, run_before=typed())


@sizes
def test_stories(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The stories of a PRD loop in their lanes, in the light theme."""
    keys = typed("/", *"notes", "enter", "P", "enter")
    assert snap_compare(world.app(theme="light"), terminal_size=size, run_before=keys)


@sizes
def test_a_run_that_works(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The agent panel with tool, todo list and cost, and its events as the console shows them."""
    app = world.app(first=(world.ids["running"],))
    assert snap_compare(app, terminal_size=size, run_before=typed())


@sizes
def test_a_run_that_waits(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The end of the wait and the time left."""
    app = world.app(first=(world.ids["waiting"],))
    assert snap_compare(app, terminal_size=size, run_before=typed())


@sizes
def test_a_run_that_crashed(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The crash is shown, with what to do."""
    app = world.app(first=(world.ids["crashed"],))
    assert snap_compare(app, terminal_size=size, run_before=typed())


@sizes
def test_hostile_text(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """Escape sequences, markup and bidirectional overrides from an agent are shown as plain text."""
    app = world.app(first=(world.ids["limit"],))
    assert snap_compare(app, terminal_size=size, run_before=typed())


@sizes
def test_checks(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """Every verdict, and the log of the selected one."""
    app = world.app(first=(world.ids["complete"],))
    assert snap_compare(app, terminal_size=size, run_before=typed("2", "down", "down"))


@sizes
def test_diff(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The diff of one iteration."""
    app = world.app(first=(world.ids["complete"],))
    assert snap_compare(app, terminal_size=size, run_before=typed("3", "["))


@sizes
def test_a_task(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The criteria of every role, and every verification result."""
    app = world.app(first=(world.webshop, "SHOP-1"))
    assert snap_compare(app, terminal_size=size, run_before=typed("down", "down"))


@sizes
def test_a_story(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """Everything the task list says about a story."""
    keys = typed("/", *"notes", "enter", "P", "enter", "tab", "enter")
    assert snap_compare(world.app(), terminal_size=size, run_before=keys)


@sizes
def test_help(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The list of all keys."""
    assert snap_compare(world.app(), terminal_size=size, run_before=typed("?"))


@sizes
def test_a_question(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """A destructive action asks first and explains its effect."""
    assert snap_compare(world.app(), terminal_size=size, run_before=typed("x"))


@sizes
def test_a_line_to_type(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The field for guidance to a run."""
    assert snap_compare(world.app(), terminal_size=size, run_before=typed("s", *"use tabs"))


@sizes
def test_the_projects(world: World, snap_compare: Compare, size: tuple[int, int]) -> None:
    """The list of projects to choose from."""
    assert snap_compare(world.app(), terminal_size=size, run_before=typed("P"))


@sizes
def test_nothing_yet(
    world: World,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    snap_compare: Compare,
    size: tuple[int, int],
) -> None:
    """Without a store, the screen shows how to start, and nothing is created."""
    monkeypatch.setenv("HOME", str(project.home.path))
    empty = World(project.path, project.home)
    assert snap_compare(empty.app(), terminal_size=size, run_before=typed())
    assert list(project.home.path.iterdir()) == []


@sizes
def test_no_colours(
    world: World, monkeypatch: pytest.MonkeyPatch, snap_compare: Compare, size: tuple[int, int]
) -> None:
    """With NO_COLOR, marks and words remain and the cursor is reversed."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(world.app(), terminal_size=size, run_before=typed())
