"""What a command in a sandbox leaves behind is put back or taken away, and the walls are tried before the first."""

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
    """A home with a login of Claude Code."""
    place = tmp_path_factory.mktemp("home").resolve()
    (place / ".claude").mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


def after(confinement: Confinement) -> list[str]:
    """A command has ended: what those who watch are told."""
    assert confinement.after(Exit(0), ENDED) == Exit(0)
    return list(confinement.news())


def test_settings_and_hooks_are_put_back_after_every_command(repository: Project) -> None:
    """What would start programs later is as it was, which is told once."""
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
    """It would lead git's writing elsewhere; one that was there before stays."""
    logs = repository.path / ".git/logs"
    (logs / "mine").symlink_to("/elsewhere")
    confinement = rooms_of(repository)
    (logs / "new").symlink_to("/etc/passwd")
    assert after(confinement) == [f"{logs}/new was changed inside the sandbox and restored."]
    assert (logs / "mine").is_symlink() and not (logs / "new").is_symlink()


def test_what_a_killed_ralph_could_not_put_back_is_put_back_at_the_start(repository: Project) -> None:
    """The copies of the run that was killed are still there."""
    config = repository.path / ".git/config"
    was = config.read_text()
    rooms_of(repository)
    config.write_text("[core]\n\thooksPath = /elsewhere\n")
    assert list(rooms_of(repository).news()) == [f"{config} was changed inside the sandbox and restored."]
    assert config.read_text() == was


def test_what_must_not_be_made_in_a_login_is_taken_away(project: Project, home: Path) -> None:
    """Settings that were not there would start programs in later sessions: they are kept elsewhere."""
    confinement = rooms_of(project)
    made = home / ".claude/settings.json"
    for number in range(2):
        made.write_text(f"evil {number}")
        (told,) = after(confinement)
        target = told.partition(" moved to ")[2].removesuffix(".")
        assert not made.exists() and Path(target).read_text() == f"evil {number}"


def test_what_cannot_be_put_back_ends_the_run_after_all_else_was_tried(
    project: Project, home: Path, tmp_path: Path
) -> None:
    """One thing that fails keeps nothing else in its place; the first error is that of the command."""
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


def test_a_copy_that_is_gone_is_an_error(repository: Project) -> None:
    """Nobody can say any more which links were there."""
    confinement = rooms_of(repository)
    (repository.home.streams("r") / "sandbox/links").unlink()
    with pytest.raises(FileNotFoundError):
        confinement.after(Exit(0), ENDED)


def test_closing_puts_back_and_forgets(project: Project, home: Path) -> None:
    """Copies and empty directories of logins go with the run."""
    (home / ".claude.json").write_text("{}")
    confinement = rooms_of(project)
    state = project.home.streams("r") / "sandbox"
    assert (state / "copied/.claude.json").exists()
    (project.path / ".ralph").mkdir(exist_ok=True)
    (project.path / ".ralph/settings.json").write_text("evil")
    confinement.close()
    assert not (project.path / ".ralph/settings.json").exists()
    assert [path.name for path in state.iterdir() if path.name in ("copied", "fresh", "settings")] == []


# ---- what is read for an agent ----


def test_a_file_that_leads_out_by_a_link_of_the_agent_is_not_read(project: Project, tmp_path: Path) -> None:
    """A link in what can be written, to what it may not see; the user's own way to a file is no such link."""
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
    """Relative, absolute, or through a directory: what counts is where it ends."""
    (project.path / "docs").mkdir()
    (project.path / "docs/real.md").touch()
    (project.path / "a.md").symlink_to("docs/real.md")
    (project.path / "b.md").symlink_to(project.path / "a.md")
    (tmp_path / "way").symlink_to(project.path)
    confinement = rooms_of(project)
    for path in (project.path / "a.md", project.path / "b.md", tmp_path / "way/b.md"):
        confinement.check_way(str(path))


def test_links_in_a_circle_are_not_read(project: Project) -> None:
    """They lead nowhere, and nobody follows them for ever."""
    (project.path / "a").symlink_to("b")
    (project.path / "b").symlink_to("a")
    outside = project.path / "c"
    outside.symlink_to("../../../../../../../../elsewhere")
    confinement = rooms_of(project)
    with pytest.raises(RalphError, match="is a link to"):
        confinement.check_way(str(outside))
    confinement.check_way(str(project.path / "a"))


def test_without_a_sandbox_every_way_is_right(project: Project) -> None:
    """The agent could read the file itself."""
    (project.path / "link").symlink_to("/etc/passwd")
    plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource())
    run = ConfinedRun(plan, None, project.home.path, project.home.make_streams("r"))
    Confinement(run).check_way(str(project.path / "link"))


# ---- the walls ----


class Broken(Noted):
    """A sandbox that the machine does not let be set up."""

    def wrap(self, argv: Any, environment: Any, mounts: Mounts) -> WrappedCommand:
        return super().wrap(["/bin/sh", "-c", "echo no namespaces >&2; exit 1"], environment, mounts)


@pytest.mark.parametrize("sandbox", [Noted(), Broken()])
def test_the_walls_are_tried_once_before_anything_is_started(project: Project, sandbox: Noted) -> None:
    """With the mounts of the run; what is wrong is one error, in the sandbox's own words."""
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


def test_a_command_of_the_backend_is_ended_after_its_time(project: Project) -> None:
    """Its exit and its output are known; one that is not there is told."""
    with opened_directory(str(project.path)) as directory, Warden(Wakeup()) as warden:
        run = runner(warden, directory)
        done = run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], 60.0)
        assert (done.code, done.out, done.err) == (3, b"out\n", "err\n")
        assert run(["/bin/sh", "-c", "exec sleep 60"], 0.01).code is None
        assert "no such file" in run(["/elsewhere"], 1.0).err


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_in_a_real_sandbox(project: Project, home: Path) -> None:
    """Homes are hidden from an agent's command, and what it made in the settings is gone when it has ended."""
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


def test_what_can_be_written_is_said_at_the_start(project: Project, home: Path) -> None:
    """With the logins that are in it; without a sandbox there is nothing to say."""
    (text,) = rooms_of(project).introduction()
    assert text.startswith(f"Writable: {project.path} and {home}/.claude.")
    plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource())
    run = ConfinedRun(plan, None, project.home.path, project.home.make_streams("r"))
    assert list(Confinement(run).introduction()) == []


def test_ralph_in_what_can_be_written_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent could change it."""
    monkeypatch.setattr("sys.prefix", str(project.path / ".venv"))
    _, warning = rooms_of(project).introduction()
    assert warning.startswith(
        f"Warning: the agent can change Ralph itself, installed in {project.path}/.venv"
    )


def test_the_place_of_an_open_directory_is_where_it_is_now(tmp_path: Path) -> None:
    """Its name may have changed since it was opened."""
    (tmp_path / "a").mkdir()
    with opened_directory(str(tmp_path / "a")) as directory:
        (tmp_path / "a").rename(tmp_path / "b")
        assert path_of(directory) == str(tmp_path / "b")


# ---- what the settings name ----


def named(project: Project, **paths: Sequence[str]) -> Confinement:
    return rooms_of(project, sandbox={key: tuple(value) for key, value in paths.items()})


@pytest.mark.parametrize("key", ["read_only", "hidden"])
def test_what_could_be_moved_away_cannot_be_kept_from_an_agent(project: Project, key: str) -> None:
    """Deep inside of what can be written, or a link there: the settings are refused."""
    (project.path / "deep").mkdir()
    with pytest.raises(RalphError, match="is nested inside"):
        named(project, **{key: ["deep/file"]})
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(RalphError, match="is a link"):
        named(project, **{key: ["link"]})
    named(project, **{key: ["deep", "/etc", "~/elsewhere"]})


def test_what_contains_the_worktree_is_too_much(project: Project) -> None:
    """The worktree itself may be named, what is around it may not."""
    named(project, writable=["."])
    with pytest.raises(RalphError, match="contains the worktree"):
        named(project, writable=[".."])


@pytest.mark.parametrize("value", ["/", "relative"])
def test_a_home_that_hides_nothing_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """A sandbox hides the home and shows the rest."""
    monkeypatch.setenv("HOME", value)
    with pytest.raises(RalphError, match=f"HOME is {value}"):
        rooms_of(project)


def test_a_repository_around_the_home_is_not_the_worktree(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the project in it can be written."""
    around = project.path.parent
    subprocess.run(["git", "init", "-q", str(around)], check=True)
    monkeypatch.setenv("HOME", str(around / "home"))
    assert rooms_of(project).boundary.writable == (str(project.path),)


def test_a_git_directory_elsewhere_can_be_written(repository: Project) -> None:
    """`git init --separate-git-dir`: it points back to this worktree, so it belongs to it."""
    elsewhere = repository.path.parent / "git"
    repository.git("init", "-q", f"--separate-git-dir={elsewhere}")
    repository.git("config", "core.worktree", str(repository.path))
    confinement = rooms_of(repository)
    assert confinement.boundary.writable == (str(repository.path), str(elsewhere))
