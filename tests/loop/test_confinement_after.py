"""Restoring files after a sandboxed command, and the sandbox test before the first one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.confinement_support import Noted, rooms_of
from ralph.core.model import AgentSpec, Exit, Flow, Plan, PromptSource, SandboxSpec
from ralph.errors import RalphError
from ralph.loop.confinement import ConfinedRun, Confinement, opened_confinement, path_of, runner
from ralph.process.client import Wakeup, Warden
from ralph.sandbox.base import Mounts, WrappedCommand
from ralph.store.files import opened_directory

ENDED = WrappedCommand(["true"], {})


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a Claude Code login."""
    place = tmp_path_factory.mktemp("home").resolve()
    (place / ".claude").mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


def after(confinement: Confinement) -> list[str]:
    """The notices after a command has ended."""
    assert confinement.after(Exit(0), ENDED) == Exit(0)
    return list(confinement.news())


def test_settings_and_hooks_are_put_back_after_every_command(repository: Project) -> None:
    """Changed settings and git configuration are restored and reported once."""
    repository.settings(maximumIterations=3)
    settings, config = repository.path / ".ralph/settings.json", repository.path / ".git/config"
    was = settings.read_text(), config.read_text()
    confinement = rooms_of(repository)
    settings.write_text("{}")
    with config.open("a") as file:
        file.write("[core]\n\thooksPath = /elsewhere\n")
    told = [f"{path} was changed inside the sandbox and restored." for path in (settings, config)]
    assert after(confinement) == told
    assert (settings.read_text(), config.read_text()) == was
    assert after(confinement) == []


def test_a_link_where_git_writes_is_removed(repository: Project) -> None:
    """A new link inside the git directory is removed; one that was there before stays."""
    logs = repository.path / ".git/logs"
    (logs / "mine").symlink_to("/elsewhere")
    confinement = rooms_of(repository)
    (logs / "new").symlink_to("/etc/passwd")
    assert after(confinement) == [f"{logs}/new was changed inside the sandbox and restored."]
    assert (logs / "mine").is_symlink() and not (logs / "new").is_symlink()


def test_files_of_a_killed_run_are_restored_at_the_next_start(repository: Project) -> None:
    """A run restores files from the copies of a run that was killed."""
    config = repository.path / ".git/config"
    was = config.read_text()
    rooms_of(repository)
    config.write_text("[core]\n\thooksPath = /elsewhere\n")
    assert list(rooms_of(repository).news()) == [f"{config} was changed inside the sandbox and restored."]
    assert config.read_text() == was


def test_new_settings_in_a_login_are_moved_away(project: Project, home: Path) -> None:
    """New settings in a login could start programs in later sessions, so they are moved elsewhere."""
    confinement = rooms_of(project)
    made = home / ".claude/settings.json"
    for number in range(2):
        made.write_text(f"evil {number}")
        (told,) = after(confinement)
        target = told.partition(" moved to ")[2].removesuffix(".")
        assert not made.exists() and Path(target).read_text() == f"evil {number}"


def test_a_failed_restore_stops_the_run_after_the_others_were_tried(
    project: Project, home: Path, tmp_path: Path
) -> None:
    """One failed restore does not prevent the others, and its error is raised."""
    project.settings()
    settings = project.path / ".ralph/settings.json"
    confinement = rooms_of(project)
    settings.write_text('{"maximumIterations": 99}')
    (home / ".claude/settings.json").write_text("evil")
    (project.home.streams("r") / "sandbox/taken").write_text("a file in the way")
    with pytest.raises(FileExistsError):
        confinement.after(Exit(0), ENDED)
    assert settings.read_text() == "{}"
    confinement.close()
    assert not (project.home.streams("r") / "sandbox/settings").exists(), "nothing is left of the copies"


def test_a_missing_copy_is_an_error(repository: Project) -> None:
    """Without its list of links Ralph cannot tell which ones are new."""
    confinement = rooms_of(repository)
    (repository.home.streams("r") / "sandbox/links").unlink()
    with pytest.raises(FileNotFoundError):
        confinement.after(Exit(0), ENDED)


def test_closing_restores_files_and_removes_the_copies(project: Project, home: Path) -> None:
    """Copies and empty login directories are removed with the run."""
    (home / ".claude.json").write_text("{}")
    confinement = rooms_of(project)
    state = project.home.streams("r") / "sandbox"
    assert (state / "copied/.claude.json").exists()
    (project.path / ".ralph").mkdir(exist_ok=True)
    (project.path / ".ralph/settings.json").write_text("evil")
    confinement.close()
    assert not (project.path / ".ralph/settings.json").exists()
    assert [path.name for path in state.iterdir() if path.name in ("copied", "fresh", "settings")] == []


# ---- files read for an agent ----


def test_a_file_that_leads_out_by_a_link_of_the_agent_is_not_read(project: Project, tmp_path: Path) -> None:
    """A link in a writable directory to a file outside is refused; links outside the sandbox are followed."""
    (secret := tmp_path / "secret").write_text("x")
    inside, outside = project.path / "prompt.md", tmp_path / "mine.md"
    outside.symlink_to(secret)
    confinement = rooms_of(project)
    for allowed in (inside, secret, outside):
        confinement.check_way(str(allowed))
    inside.symlink_to(outside)
    with pytest.raises(RalphError, match=r"is a link to .*/secret, outside the sandbox"):
        confinement.check_way(str(inside))


def test_a_link_that_stays_inside_is_followed(project: Project, tmp_path: Path) -> None:
    """Relative, absolute or through a directory, a link is followed if its target is inside."""
    (project.path / "docs").mkdir()
    (project.path / "docs/real.md").touch()
    (project.path / "a.md").symlink_to("docs/real.md")
    (project.path / "b.md").symlink_to(project.path / "a.md")
    (tmp_path / "way").symlink_to(project.path)
    confinement = rooms_of(project)
    for path in (project.path / "a.md", project.path / "b.md", tmp_path / "way/b.md"):
        confinement.check_way(str(path))


def test_links_in_a_circle_are_not_read(project: Project) -> None:
    """Circular links do not hang, and a link out of the sandbox is refused."""
    (project.path / "a").symlink_to("b")
    (project.path / "b").symlink_to("a")
    outside = project.path / "c"
    outside.symlink_to("../../../../../../../../elsewhere")
    confinement = rooms_of(project)
    with pytest.raises(RalphError, match="is a link to"):
        confinement.check_way(str(outside))
    confinement.check_way(str(project.path / "a"))


def test_without_a_sandbox_every_link_is_followed(project: Project) -> None:
    """Without a sandbox any link is allowed because the agent could read the file itself."""
    (project.path / "link").symlink_to("/etc/passwd")
    plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource())
    run = ConfinedRun(plan, None, project.home.path, project.home.make_streams("r"))
    Confinement(run).check_way(str(project.path / "link"))


# ---- setting up the sandbox ----


class Broken(Noted):
    """A sandbox that cannot be set up on this machine."""

    def wrap(self, argv: Any, environment: Any, mounts: Mounts) -> WrappedCommand:
        return super().wrap(["/bin/sh", "-c", "echo no namespaces >&2; exit 1"], environment, mounts)


@pytest.mark.parametrize("sandbox", [Noted(), Broken()])
def test_the_sandbox_is_tested_once_before_anything_starts(project: Project, sandbox: Noted) -> None:
    """The sandbox is tested with the run's mounts, and a failure shows the sandbox's own message."""
    confinement = rooms_of(project)
    confinement.sandbox = sandbox
    with opened_directory(str(project.path)) as directory, Warden(Wakeup()) as warden:
        run = runner(warden, directory)
        if isinstance(sandbox, Broken):
            with pytest.raises(RalphError, match="bubblewrap cannot be set up: no namespaces"):
                confinement.check_boundary(run)
        else:
            confinement.check_boundary(run)
    assert str(project.path) in sandbox.mounts.writable


def test_a_backend_command_times_out(project: Project) -> None:
    """A backend command's exit code and output are returned; a timeout and a missing program are reported."""
    with opened_directory(str(project.path)) as directory, Warden(Wakeup()) as warden:
        run = runner(warden, directory)
        done = run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], 60.0)
        assert (done.code, done.out, done.err) == (3, b"out\n", "err\n")
        assert run(["/bin/sh", "-c", "exec sleep 60"], 0.01).code is None
        assert "no such file" in run(["/elsewhere"], 1.0).err


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_in_a_real_sandbox(project: Project, home: Path) -> None:
    """The agent's command cannot see the home, and its changes to the settings are undone."""
    spec = AgentSpec("a", "custom", "sh")
    sandbox = SandboxSpec("bubblewrap")
    plan = Plan("r", Flow.RUN, str(project.path), (spec,), PromptSource(), sandbox=sandbox)
    run = ConfinedRun(plan, None, project.home.path.resolve(), project.home.make_streams("r").resolve())
    with (
        opened_directory(str(project.path)) as directory,
        Warden(Wakeup()) as warden,
        opened_confinement(run, warden, directory) as confinement,
    ):
        body = f"mkdir .ralph; touch .ralph/settings.json; test ! -e {home}/.claude"
        wrapped = confinement.agent(spec, ["/bin/sh", "-c", body], dict(os.environ), None)
        done = runner(warden, directory)(wrapped.argv, 60.0)
        assert confinement.after(Exit(done.code), wrapped).code == 0
        assert len(list(confinement.news())) == 1
    assert not (project.path / ".ralph/settings.json").exists()


def test_writable_directories_are_shown_at_the_start(project: Project, home: Path) -> None:
    """The notice includes writable logins; without a sandbox there is no notice."""
    (text,) = rooms_of(project).introduction()
    assert text.startswith(f"Writable: {project.path} and {home}/.claude.")
    plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource())
    run = ConfinedRun(plan, None, project.home.path, project.home.make_streams("r"))
    assert list(Confinement(run).introduction()) == []


def test_a_writable_ralph_installation_is_a_warning(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is warned if the agent could change Ralph itself."""
    monkeypatch.setattr("sys.prefix", str(project.path / ".venv"))
    _, warning = rooms_of(project).introduction()
    assert warning.startswith(
        f"Warning: the agent can change Ralph itself, installed in {project.path}/.venv"
    )


def test_the_path_of_an_open_directory_is_its_current_one(tmp_path: Path) -> None:
    """A directory renamed after it was opened has its new path."""
    (tmp_path / "a").mkdir()
    with opened_directory(str(tmp_path / "a")) as directory:
        (tmp_path / "a").rename(tmp_path / "b")
        assert path_of(directory) == str(tmp_path / "b")


# ---- paths in the settings ----


def named(project: Project, **paths: Sequence[str]) -> Confinement:
    return rooms_of(project, sandbox={key: tuple(value) for key, value in paths.items()})


@pytest.mark.parametrize("key", ["read_only", "hidden"])
def test_a_path_that_the_agent_could_move_cannot_be_protected(project: Project, key: str) -> None:
    """Protecting a link, or a path deep inside a writable directory, is refused."""
    (project.path / "deep").mkdir()
    with pytest.raises(RalphError, match="is nested inside"):
        named(project, **{key: ["deep/file"]})
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(RalphError, match="is a link"):
        named(project, **{key: ["link"]})
    named(project, **{key: ["deep", "/etc", "~/elsewhere"]})


def test_a_path_that_contains_the_worktree_is_refused(project: Project) -> None:
    """The worktree itself can be made writable, but not its parent directory."""
    named(project, writable=["."])
    with pytest.raises(RalphError, match="contains the worktree"):
        named(project, writable=[".."])


@pytest.mark.parametrize("value", ["/", "relative"])
def test_a_home_that_hides_nothing_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """HOME must be an absolute path other than /, because the sandbox hides it."""
    monkeypatch.setenv("HOME", value)
    with pytest.raises(RalphError, match=f"HOME is {value}"):
        rooms_of(project)


def test_a_repository_around_the_home_is_not_the_worktree(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the repository contains the home, only the project in it is writable."""
    around = project.path.parent
    subprocess.run(["git", "init", "-q", str(around)], check=True)
    monkeypatch.setenv("HOME", str(around / "home"))
    assert rooms_of(project).boundary.writable == (str(project.path),)


def test_a_git_directory_elsewhere_can_be_written(repository: Project) -> None:
    """A separate git directory is writable if it points back to this worktree."""
    elsewhere = repository.path.parent / "git"
    repository.git("init", "-q", f"--separate-git-dir={elsewhere}")
    repository.git("config", "core.worktree", str(repository.path))
    confinement = rooms_of(repository)
    assert confinement.boundary.writable == (str(repository.path), str(elsewhere))
