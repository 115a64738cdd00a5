"""Where agents keep their logins: what of that is theirs in a sandbox, what is copied, and what must not change."""

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
    """Nothing is writable, nothing is made, and nothing has to be taken away."""
    logins = logins_of(home, CLAUDE)
    assert (logins.of(CLAUDE)[0], logins.absent(), logins.bound(CLAUDE)) == ([], (), ())


def test_what_is_not_there_must_not_be_made(home: Path) -> None:
    """In a login that is there: what starts programs later, by its name; a pattern stands for what is there now."""
    (home / ".claude").mkdir()
    (home / ".claude/line.sh").touch()
    logins = logins_of(home, CLAUDE)
    _, pinned = logins.of(CLAUDE)
    absent = logins.absent()
    assert str(home / ".claude/line.sh") in pinned and str(home / ".claude/line.sh") not in absent
    assert str(home / ".claude/settings.json") in absent


@pytest.mark.parametrize("where", ["environment", "agent"])
def test_a_login_can_be_moved_by_a_variable(home: Path, tmp_path: Path, where: str) -> None:
    """Of this process, or of the agent alone; the usual place does not count then."""
    (home / ".claude").mkdir()
    (moved := tmp_path / "moved").mkdir()
    variable = {"CLAUDE_CONFIG_DIR": str(moved)}
    agent = spec("claude", **variable) if where == "agent" else CLAUDE
    logins = logins_of(home, agent, **(variable if where == "environment" else {}))
    places, pinned = logins.of(agent)
    assert places == [str(moved)] and str(moved / "settings.json") in pinned


def test_an_agent_may_have_a_home_of_its_own(home: Path, tmp_path: Path) -> None:
    """Its login is there."""
    (tmp_path / "other/.claude").mkdir(parents=True)
    agent = spec("claude", HOME=str(tmp_path / "other"))
    assert logins_of(home, agent).of(agent)[0] == [str(tmp_path / "other/.claude")]


def test_what_an_agent_changes_all_the_time_is_a_copy(home: Path) -> None:
    """Files and directories, one copy for the run; the user's own stays as it is."""
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
    """What was changed in them is of no use to the next."""
    (home / ".claude.json").write_text("mine")
    ((copy, _),) = logins_of(home, CLAUDE).bound(CLAUDE)
    Path(copy).write_text("evil")
    (home / ".claude.json").unlink()
    assert logins_of(home, CLAUDE).bound(CLAUDE) == ()


def test_what_cannot_be_copied_is_not_needed(home: Path) -> None:
    """A pipe in a directory that is copied: the rest is there."""
    (home / ".config/opencode").mkdir(parents=True)
    os.mkfifo(home / ".config/opencode/pipe")
    (home / ".config/opencode/config.json").touch()
    ((copy, _),) = logins_of(home, OPENCODE).bound(OPENCODE)
    assert [path.name for path in Path(copy).iterdir()] == ["config.json"]


def test_a_login_that_is_a_link_is_found_by_its_own_name(home: Path, tmp_path: Path) -> None:
    """The place that it leads to is what can be written; inside it has the name that the agent knows."""
    (real := tmp_path / "dotfiles/claude").mkdir(parents=True)
    (home / ".claude").symlink_to(real)
    logins = logins_of(home, CLAUDE)
    assert logins.of(CLAUDE)[0] == [str(real)]
    assert (str(real), str(home / ".claude")) in logins.bound(CLAUDE)


def test_a_link_that_leads_nowhere_is_no_login(home: Path, tmp_path: Path) -> None:
    """Nor is a directory that is no link found under a second name."""
    (home / ".claude").symlink_to(tmp_path / "gone")
    assert logins_of(home, CLAUDE).bound(CLAUDE) == ()
    (home / ".local/share/opencode").mkdir(parents=True)
    assert logins_of(home, OPENCODE).bound(OPENCODE) == ()


def test_directories_that_start_programs_are_empty_ones(home: Path) -> None:
    """The agent has to write there, but what it writes is gone with the run."""
    (home / ".claude/shell-snapshots").mkdir(parents=True)
    (home / ".claude/shell-snapshots/mine.sh").touch()
    logins = logins_of(home, CLAUDE)
    places = {target: Path(copy) for copy, target in logins.bound(CLAUDE)}
    empty = places[str(home / ".claude/shell-snapshots")]
    assert empty.is_dir() and not list(empty.iterdir())
    logins.forget()
    assert not empty.exists() and (home / ".claude/shell-snapshots/mine.sh").exists()
