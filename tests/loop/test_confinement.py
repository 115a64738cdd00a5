"""The mounts and variables of a sandboxed command, computed without starting anything."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Project
from loop.confinement_support import Noted, room_of, rooms_of
from ralph.core.model import AgentSpec, Flow, Network, Plan, PromptSource, SandboxSpec, TaskFolder
from ralph.errors import RalphError
from ralph.loop.confinement import ConfinedRun, Confinement
from ralph.sandbox import programs, variables


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory."""
    place = tmp_path_factory.mktemp("home").resolve()
    monkeypatch.setenv("HOME", str(place))
    return place


@contextmanager
def worktree(repository: Project) -> Iterator[Path]:
    place = repository.path.parent / "linked"
    repository.git("commit", "-q", "--allow-empty", "-m", "Begin")
    repository.git("worktree", "add", "-q", str(place))
    yield place.resolve()


def test_a_worktree_gets_what_git_needs_and_no_more(repository: Project) -> None:
    """Objects, refs, logs and its own git directory are writable; the rest of the repository is read-only."""
    with worktree(repository) as place:
        mounts = room_of(rooms_of(repository, place))
        git = repository.path / ".git"
        names = ("worktrees/linked", "objects", "refs", "logs")
        assert mounts.writable == (str(place), *(str(git / name) for name in names))
        assert str(git) in mounts.read_only


@pytest.mark.parametrize("how", ["another worktree", "a whole repository", "commondir"])
def test_a_git_directory_that_was_swapped_is_not_opened(repository: Project, how: str) -> None:
    """A git directory that does not point back to the worktree is not writable, even if `.git` names it."""
    victim = repository.path.parent / "victim"
    subprocess.run(["git", "init", "-q", str(victim)], check=True)
    commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(["git", "-C", str(victim), *commit], check=True)
    subprocess.run(["git", "-C", str(victim), "worktree", "add", "-q", str(victim / "w")], check=True)
    with worktree(repository) as place:
        if how == "commondir":
            (repository.path / ".git/worktrees/linked/commondir").write_text(str(victim / ".git"))
        else:
            target = victim / (".git/worktrees/w" if how == "another worktree" else ".git")
            (place / ".git").write_text(f"gitdir: {target}\n")
        mounts = room_of(rooms_of(repository, place))
        assert mounts.writable == (str(place),)


def test_a_project_that_contains_the_home_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that contains the home directory cannot be sandboxed."""
    monkeypatch.setenv("HOME", str(project.path / "home"))
    with pytest.raises(RalphError, match="contains your home directory"):
        rooms_of(project)


def test_a_journal_in_the_project_is_refused(project: Project) -> None:
    """A journal inside the project is refused because the agent could write to it."""
    plan = Plan("r", Flow.RUN, str(project.path), (), PromptSource(), sandbox=SandboxSpec("bubblewrap"))
    site = ConfinedRun(plan, None, project.path / ".ralph" / "state", project.path / "streams")
    with pytest.raises(RalphError, match="journal"):
        Confinement(site)


def test_a_supervised_tasks_folder_can_be_written(project: Project) -> None:
    """The task's folder is writable, and so is its project's bus if it exists."""
    folder = project.path.parent / "tasks" / "job"
    folder.mkdir(parents=True)
    bus = folder.parent / "PROJECT-MESSAGE-BUS.md"
    bus.touch()
    confinement = rooms_of(project, task=TaskFolder(str(folder), "p", "job"))
    assert room_of(confinement).writable == (str(project.path), str(folder), str(bus))


def test_a_program_brings_its_package_and_its_interpreter(tmp_path: Path) -> None:
    """An npm program in a home brings its link, its node_modules and the directory of node."""
    package = tmp_path / "lib/node_modules/agent"
    node = tmp_path / "node/bin/node"
    for path in (package / "cli.js", tmp_path / "bin/agent", node):
        path.parent.mkdir(parents=True, exist_ok=True)
    (package / "cli.js").write_text("#!/usr/bin/env node\n")
    node.write_text("")
    node.chmod(0o755)
    (tmp_path / "bin/agent").symlink_to("../lib/node_modules/agent/cli.js")
    found = set(programs.of_program(str(tmp_path / "bin/agent"), str(node.parent)))
    assert {str(tmp_path / "bin/agent"), str(tmp_path / "lib/node_modules"), str(node.parent)} <= found


@pytest.mark.parametrize("name", ["", "bin", ".bin"])
def test_a_path_never_shows_a_home(
    project: Project, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A home stays hidden even if PATH contains it or a directory inside it."""
    (home / name).mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", f"{home / name}:/usr/bin:/bin")
    shown = [path for path in room_of(rooms_of(project)).read_only if home.is_relative_to(path)]
    assert shown == []


def test_a_variable_never_shows_a_home(project: Project, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable such as CLAUDE_CONFIG_DIR cannot expose the home."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home))
    assert room_of(rooms_of(project)).writable == (str(project.path),)


@pytest.mark.parametrize("path", ["~", "/", "/home"])
def test_settings_cannot_open_a_home(project: Project, path: str) -> None:
    """A writable path that contains home directories is refused."""
    with pytest.raises(RalphError, match=r"contains home directories|contains the worktree"):
        rooms_of(project, sandbox={"writable": (path,)})


def test_an_agent_sees_only_its_own_login(
    project: Project, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's own login is writable except for files that start programs; a check sees no login."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for name in (".claude", ".codex"):
        (home / name).mkdir()
    for name in ("settings.json", "line.sh"):
        (home / ".claude" / name).touch()
    (home / ".claude.json").write_text("{}")
    confinement = rooms_of(project)
    mounts = room_of(confinement)
    assert isinstance(confinement.sandbox, Noted)
    assert str(home / ".claude") in mounts.writable and str(home / ".codex") not in mounts.writable
    assert {str(home / ".claude" / name) for name in ("settings.json", "line.sh")} <= {*mounts.read_only}
    fresh = [".claude.json", ".claude/shell-snapshots", ".claude/session-env"]
    assert [target for _, target in mounts.copied] == [str(home / name) for name in fresh]
    assert "ANTHROPIC_API_KEY" in confinement.sandbox.environment
    assert "OPENAI_API_KEY" not in confinement.sandbox.environment
    confinement.check(["true"], dict(os.environ), str(project.path))
    assert (
        confinement.sandbox.mounts.writable == (str(project.path),) and not confinement.sandbox.mounts.copied
    )
    assert "ANTHROPIC_API_KEY" not in confinement.sandbox.environment


def test_files_that_the_flags_name_can_be_read(project: Project, home: Path) -> None:
    """Files named in the flags are readable, but nothing else in their directory."""
    for name in ("mine.json", "servers.json", "other.json"):
        (home / name).touch()
    flags = ("--settings", str(home / "mine.json"), f"--mcp-config={home}/servers.json", str(home))
    confinement = rooms_of(project)
    confinement.agent(AgentSpec("claude", "claude", "claude", flags), ["/bin/true"], dict(os.environ), None)
    assert isinstance(confinement.sandbox, Noted)
    named = {str(home / name) for name in ("mine.json", "servers.json")}
    assert {path for path in confinement.sandbox.mounts.read_only if path.startswith(str(home))} == named


def test_the_hosts_are_the_agents_own_and_those_allowed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts are the allowed ones, the provider's and those in its variables, without IP addresses."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.test/v1")
    sandbox = {"network": Network.ALLOW_LIST, "hosts": ("a.test",)}
    hosts = rooms_of(project, sandbox=sandbox).boundary.hosts
    assert hosts[0] == "a.test" and "api.anthropic.com" in hosts and "gateway.test:443" in hosts
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080")
    assert not any("127" in host for host in rooms_of(project, sandbox=sandbox).boundary.hosts)


NAMES = st.text("ABC_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.just("x"), max_size=5), st.lists(NAMES.map(lambda name: f"{name}*")))
def test_only_named_variables_are_passed(environment: dict[str, str], patterns: list[str]) -> None:
    """A variable is passed exactly if a pattern matches its name or the start of it."""
    passed = variables.passed(environment, ["PATH", *patterns])
    wanted = {k: v for k, v in environment.items() if any(k.startswith(p[:-1]) for p in patterns)}
    assert passed == wanted


@given(
    st.lists(st.sampled_from(["/a", "/a/b", "/a/bc", "/d"]), max_size=3),
    st.sampled_from(["/a/b", "/ab", "/a/b/c"]),
)
def test_within_compares_whole_path_components(places: list[str], path: str) -> None:
    """A directory is not inside another one just because its path starts with the same characters."""
    assert programs.within(path, places) == any(Path(path).is_relative_to(place) for place in places)
