"""Preparing a copy: the setup command runs once, and what an agent puts in the way is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from environments.python_support import Place, make_venv, path_line, place, site_of
from ralph.environments import prepare
from ralph.environments.base import NotPrepared


@pytest.fixture
def made(tmp_path: Path) -> Place:
    found = place(tmp_path)
    path_line(found.site, found.source)
    return found


def test_setup_runs_once_until_it_changes(made: Place) -> None:
    """The same command is not repeated in a worktree, a changed one runs, and one that failed runs again."""
    ran: list[str] = []

    def fails(setup: str) -> None:
        ran.append(setup)
        raise NotPrepared("it failed")

    with pytest.raises(NotPrepared):
        prepare.prepare(made.copy, made.tools(), "one", fails)
    for setup in ("one", "one", "two", "", "two", "one"):
        prepare.prepare(made.copy, made.tools(), setup, ran.append)
    assert ran == ["one", "one", "two", "one"]
    assert not prepare.is_needed(made.copy, {"PATH": ""}, "one") or made.venv.exists()


def test_setup_makes_the_environment(made: Place) -> None:
    """An environment made by setup is used as it is."""

    def setup(command: str) -> None:
        make_venv(made.layer)
        path_line(site_of(made.layer), made.top / "src")

    prepare.prepare(made.copy, made.tools(), "setup", setup)
    assert made.where() == "copy"
    assert not prepare.leads_out(made.copy, made.environment())


@pytest.mark.parametrize("kind", ["directory", "link", "file"])
def test_an_environment_in_the_tree_is_refused(made: Place, tmp_path: Path, kind: str) -> None:
    """An agent has committed a `.venv` in place of the user's: the copy is not prepared with it."""
    if kind == "directory":
        make_venv(made.layer)
    elif kind == "link":
        made.layer.symlink_to(make_venv(tmp_path / "its own"))
    else:
        made.layer.touch()
    with pytest.raises(NotPrepared, match=r"^\.venv is in git, in place of the environment in .*Remove it"):
        prepare.prepare(made.copy, made.tools(), "", lambda _: None)


def test_a_link_that_the_user_has_in_git_is_not_refused(made: Place, tmp_path: Path) -> None:
    """It is the same link as in the checkout; that it leads there is for the control to find."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "envs" / "app")
    path_line(site_of(venv), made.source)
    for link in (made.venv, made.layer):
        link.symlink_to(venv)
    prepare.prepare(made.copy, made.tools(), "", lambda _: None)
    assert len(prepare.leads_out(made.copy, made.environment())) == 1


def test_a_second_call_keeps_what_is_there(made: Place) -> None:
    """In a worktree that was prepared before, a `.venv` is not taken for one from git."""
    for _ in range(2):
        prepare.prepare(made.copy, made.tools(), "", lambda _: None)
    assert made.where() == "copy"


def test_variables_without_anything_to_prepare(tmp_path: Path) -> None:
    """A project without any environment keeps its variables."""
    made = place(tmp_path)
    (made.venv / "pyvenv.cfg").unlink()
    environment = made.environment(X="1")
    assert prepare.variables(made.copy, environment) == environment
    assert not prepare.is_needed(made.copy, environment, "")
    assert prepare.is_needed(made.copy, environment, "setup")
