"""Agent logins in a sandbox: what is writable, what is copied, and what must not change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralph.core.model import AgentSpec
from ralph.loop.logins import Logins


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (found := tmp_path / "home").mkdir()
    return found


def logins_of(home: Path, *specs: AgentSpec, **environment: str) -> Logins:
    return Logins(specs, environment, str(home), home.parent / "state")


def spec(kind: str, **env: str) -> AgentSpec:
    return AgentSpec(kind, kind, kind, env=tuple(env.items()))


CLAUDE, OPENCODE = spec("claude"), spec("opencode")


def test_an_agent_without_a_login_gets_none(home: Path) -> None:
    """Nothing is writable, copied or protected."""
    logins = logins_of(home, CLAUDE)
    assert (logins.of(CLAUDE)[0], logins.absent(), logins.bound(CLAUDE)) == ([], (), ())


def test_missing_files_that_start_programs_must_not_be_created(home: Path) -> None:
    """Missing files that start programs are listed by name, while a pattern covers only existing ones."""
    (home / ".claude").mkdir()
    (home / ".claude/line.sh").touch()
    logins = logins_of(home, CLAUDE)
    _, pinned = logins.of(CLAUDE)
    absent = logins.absent()
    assert str(home / ".claude/line.sh") in pinned and str(home / ".claude/line.sh") not in absent
    assert str(home / ".claude/settings.json") in absent


@pytest.mark.parametrize("where", ["environment", "agent"])
def test_a_login_can_be_moved_by_a_variable(home: Path, tmp_path: Path, where: str) -> None:
    """A variable of Ralph's or the agent's environment replaces the usual location."""
    (home / ".claude").mkdir()
    (moved := tmp_path / "moved").mkdir()
    variable = {"CLAUDE_CONFIG_DIR": str(moved)}
    agent = spec("claude", **variable) if where == "agent" else CLAUDE
    logins = logins_of(home, agent, **(variable if where == "environment" else {}))
    places, pinned = logins.of(agent)
    assert places == [str(moved)] and str(moved / "settings.json") in pinned


def test_an_agent_may_have_its_own_home(home: Path, tmp_path: Path) -> None:
    """The login is looked up in the agent's own HOME."""
    (tmp_path / "other/.claude").mkdir(parents=True)
    agent = spec("claude", HOME=str(tmp_path / "other"))
    assert logins_of(home, agent).of(agent)[0] == [str(tmp_path / "other/.claude")]


def test_files_that_an_agent_keeps_changing_are_copied(home: Path) -> None:
    """Files and directories are copied once per run, and the user's own stay unchanged."""
    (home / ".claude.json").write_text("mine")
    (home / ".config/opencode/plugins").mkdir(parents=True)
    (home / ".config/opencode/plugins/a.js").write_text("mine")
    logins = logins_of(home, CLAUDE, OPENCODE)
    ((file, target),) = logins.bound(CLAUDE)
    assert target == str(home / ".claude.json") and Path(file).read_text() == "mine"
    copies = {target: copy for copy, target in logins.bound(OPENCODE)}
    copy = copies[str(home / ".config/opencode")]
    assert Path(copy, "plugins/a.js").read_text() == "mine"
    Path(file).write_text("changed")
    assert (home / ".claude.json").read_text() == "mine"


def test_the_copies_of_a_killed_run_are_not_used(home: Path) -> None:
    """Copies left by a killed run are not used again."""
    (home / ".claude.json").write_text("mine")
    ((copy, _),) = logins_of(home, CLAUDE).bound(CLAUDE)
    Path(copy).write_text("evil")
    (home / ".claude.json").unlink()
    assert logins_of(home, CLAUDE).bound(CLAUDE) == ()


def test_files_that_cannot_be_copied_are_skipped(home: Path) -> None:
    """A pipe in a copied directory is skipped, and the rest is copied."""
    (home / ".config/opencode").mkdir(parents=True)
    os.mkfifo(home / ".config/opencode/pipe")
    (home / ".config/opencode/config.json").touch()
    ((copy, _),) = logins_of(home, OPENCODE).bound(OPENCODE)
    assert [path.name for path in Path(copy).iterdir()] == ["config.json"]


def test_a_login_that_is_a_link_keeps_its_name(home: Path, tmp_path: Path) -> None:
    """The link's target is writable, and is mounted under the name that the agent uses."""
    (real := tmp_path / "dotfiles/claude").mkdir(parents=True)
    (home / ".claude").symlink_to(real)
    logins = logins_of(home, CLAUDE)
    assert logins.of(CLAUDE)[0] == [str(real)]
    assert (str(real), str(home / ".claude")) in logins.bound(CLAUDE)


def test_a_broken_link_is_not_a_login(home: Path, tmp_path: Path) -> None:
    """A broken link is ignored, and a plain directory is not mounted under a second name."""
    (home / ".claude").symlink_to(tmp_path / "gone")
    assert logins_of(home, CLAUDE).bound(CLAUDE) == ()
    (home / ".local/share/opencode").mkdir(parents=True)
    assert logins_of(home, OPENCODE).bound(OPENCODE) == ()


def test_directories_that_start_programs_are_replaced_by_empty_ones(home: Path) -> None:
    """The agent can write there, but its files are removed with the run."""
    (home / ".claude/shell-snapshots").mkdir(parents=True)
    (home / ".claude/shell-snapshots/mine.sh").touch()
    logins = logins_of(home, CLAUDE)
    places = {target: Path(copy) for copy, target in logins.bound(CLAUDE)}
    empty = places[str(home / ".claude/shell-snapshots")]
    assert empty.is_dir() and not list(empty.iterdir())
    logins.forget()
    assert not empty.exists() and (home / ".claude/shell-snapshots/mine.sh").exists()
