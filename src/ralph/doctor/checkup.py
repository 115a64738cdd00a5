"""Check everything that a run needs. Each check is one finding, with advice if there is a problem."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

from ralph.core.text import clean
from ralph.doctor.agents import agent_findings
from ralph.doctor.environments import environment_findings
from ralph.doctor.finding import ABSENT, ERROR, OK, WARNING, Finding
from ralph.doctor.installed import ask, look_up, version_in
from ralph.errors import RalphError
from ralph.loop.confinement import runner
from ralph.process import warden
from ralph.process.client import Wakeup, Warden, child_environment
from ralph.runs.agent_hooks import unguarded
from ralph.runs.run_plan import agent_specs, guarding
from ralph.runs.sandbox_choice import HOW_TO_GET_ONE
from ralph.sandbox.registry import DIRECT, all_backends, best
from ralph.scm.git import hint_for, without_local
from ralph.scm.repository import find_repository
from ralph.settings import LoadedSettings, Settings, load
from ralph.store.database import Busy, is_on_network
from ralph.store.files import opened_directory
from ralph.store.home import Home, find_home
from ralph.store.prune import LARGE, tree_size

LITTLE_SPACE = 200 << 20
"""Warn below this many bytes of free space: the journal and the streams might soon fill the disk."""

_PATIENCE = 2.0
_UNITS = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def examine(settings_file: Path | None, wakeup: Wakeup, seconds: float) -> list[Finding]:
    """Check everything that a run in this directory needs, the configured agents first."""
    loaded, settings_finding = _settings(settings_file)
    settings = loaded.settings if loaded else Settings()
    findings = [
        *agent_findings(settings, wakeup, seconds, is_known=loaded is not None),
        _guard(settings),
        _sandbox(settings, wakeup),
        settings_finding,
        _git(settings, wakeup, seconds),
        *environment_findings(settings.ralph.setup),
        _state_directory(),
        _processes(),
        _python(),
    ]
    return [replace(each, name=clean(each.name), found=clean(each.found)) for each in findings]


# ---- settings ----


def _settings(path: Path | None) -> tuple[LoadedSettings | None, Finding]:
    try:
        loaded = load(path)
    except RalphError as error:
        return None, Finding("settings", ERROR, error.message, error.hint or "Fix the file.")
    if not loaded.files:
        advice = "Run `ralph init` to create .ralph/settings.json."
        return loaded, Finding("settings", OK, "no settings file, using defaults", advice)
    return loaded, Finding("settings", OK, f"valid, from {' and '.join(map(str, loaded.files))}")


# ---- the guard ----


def _guard(settings: Settings) -> Finding:
    """Check which agents' commands the guard checks before they run."""
    if not settings.guard.enabled:
        return Finding("guard", WARNING, "disabled", "Unless this is intended, set guard.enabled to true.")
    try:
        agents = agent_specs(settings.agent, None)
    except RalphError:
        return Finding("guard", OK, "checks the commands of agents with hooks: Claude Code")
    names = unguarded(agents, guarding(settings))
    if names:
        found = f"cannot check the commands of {', '.join(names)}: no hooks"
        return Finding("guard", WARNING, found, "Use a sandbox, or a machine where it can do no harm.")
    return Finding("guard", OK, "checks the commands of " + ", ".join(spec.name for spec in agents))


# ---- the sandbox ----


def _sandbox(settings: Settings, wakeup: Wakeup) -> Finding:
    """Check which sandbox `--sandbox` would use, and `ralph prd run` by default."""
    with opened_directory(".") as directory, Warden(wakeup) as owner:
        backend, problems = best(all_backends(settings.sandbox.image), runner(owner, directory))
    if backend is not DIRECT:
        advice = "Run `ralph doctor --sandbox` to test what it protects."
        return Finding("sandbox", OK, f"{backend.name} is available", advice)
    why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    return Finding("sandbox", ABSENT, f"none available; {why}", HOW_TO_GET_ONE)


# ---- git ----


def _git(settings: Settings, wakeup: Wakeup, seconds: float) -> Finding:
    """Check git, and the repository in which a run here would keep snapshots."""
    here = Path.cwd()
    repository = find_repository(here)
    commits = settings.scm is not None and os.path.basename(settings.scm.command) == "git"
    is_wanted = commits or (settings.snapshots and repository is not None)
    program = look_up("git", child_environment({}))
    without = ERROR if is_wanted else WARNING
    if program.problem:
        return Finding("git", without, program.problem, "Install git: snapshots and commits need it.")
    environment = without_local(child_environment(_PLAIN))
    with opened_directory(".") as directory, Warden(wakeup) as owner:
        version, inside, identity = (
            ask(owner, [program.program, *words], environment, directory, seconds)
            for words in (["--version"], ["rev-parse", "--git-dir"], ["var", "GIT_COMMITTER_IDENT"])
        )
    if version.problem:
        return Finding("git", without, version.problem, "Run `git --version` to see the problem.")
    found = f"{version_in(version.out)} at {program.program}"
    if repository is not None and inside.problem:
        hint = hint_for(inside.err, repository) or "Run `git status` to see the problem."
        return Finding("git", WARNING, f"{found}; {inside.problem}", hint)
    if repository is None:
        wanted = settings.snapshots or commits
        advice = "Run `git init` to get a snapshot before every iteration." if wanted else ""
        state = WARNING if wanted else OK
        return Finding("git", state, f"{found}; not a git repository", advice)
    found += f"; repository {repository.top}"
    if identity.problem:
        advice = 'Set it: git config --global user.email "you@example.org" (and user.name).'
        return Finding("git", WARNING, f"{found}; git identity not set", advice)
    return Finding("git", OK, f"{found}; git identity set")


_PLAIN = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


# ---- the state directory ----


def _state_directory() -> Finding:
    """Check the directory of the journal: it must be writable, undamaged, and have free space."""
    try:
        home = find_home(Path.cwd())
        _write_to(home.path)
        home.runs(_PATIENCE).db.close()
    except Busy as error:
        return Finding("state directory", WARNING, error.message, error.hint)
    except RalphError as error:
        return Finding("state directory", ERROR, error.message, error.hint)
    return _room(home)


def _write_to(directory: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        raise RalphError(
            f"{directory} is not writable: {error.strerror}.",
            "Free some disk space, or set RALPH_STATE_DIR to a writable directory.",
        ) from None


def _room(home: Home) -> Finding:
    free, used = shutil.disk_usage(home.path).free, tree_size(home.path)
    found = f"{home.path} is writable; {_size(used)} used, {_size(free)} free"
    advice = []
    if free < LITTLE_SPACE:
        advice.append("Free some disk space: a run waits when the disk is full.")
    if used > LARGE:
        advice.append("Run `ralph prune` to remove old runs.")
    if is_on_network(home.database):
        found += "; on a network mount"
        advice.append("Set RALPH_STATE_DIR to a local disk, which is faster and safer.")
    if home.warning:
        found += f"; {home.warning.rstrip('.')}"
        advice.append("Set RALPH_STATE_DIR to a writable directory.")
    return Finding("state directory", WARNING if advice else OK, found, " ".join(advice))


def _size(count: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), (1, "bytes"))
    return f"{count / unit:.1f} {name}" if unit > 1 and count < 100 * unit else f"{count // unit} {name}"


# ---- the system ----


def _processes() -> Finding:
    """Check the system's support for stopping everything that an agent started."""
    features = {"subreaper": warden.become_subreaper(), "pidfd": _has_pidfd(), "/proc": _has_proc()}
    missing = [name for name, has in features.items() if not has]
    if not missing:
        found = f"{', '.join(features)}: everything an agent starts is stopped with it"
        return Finding("processes", OK, found)
    return Finding(
        "processes",
        WARNING,
        f"no {', no '.join(missing)}: only the process group of an agent is certain to be stopped",
        "After a run, check for processes that the agent left in the background.",
    )


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def _has_proc() -> bool:
    return os.path.exists(f"/proc/{os.getpid()}/stat")


def _python() -> Finding:
    return Finding("python", OK, f"{platform.python_version()} at {sys.executable}")
