"""Which rung of the sandbox ladder a run gets: what was said on the command line, else in the settings, else the flow."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ralph.core.model import SandboxSpec
from ralph.errors import RalphError
from ralph.loop.confinement import runner
from ralph.process.client import Wakeup, Warden
from ralph.sandbox.base import Backend, RunCommand
from ralph.sandbox.proxy import Host
from ralph.sandbox.registry import DIRECT, NAMES, backends, best, find, none_here
from ralph.settings import LoadedSettings, SandboxSettings
from ralph.store.files import opened_directory

AUTO = "auto"
MEND = "One of them has to work: on Linux, bubblewrap is the simplest."


class Wanted(Struct, frozen=True):
    """What was said on the command line: a sandbox or none (None: nothing was said), or a certain rung."""

    sandbox: bool | None = None
    rung: str | None = None


def choose(loaded: LoadedSettings, wanted: Wanted, usual: str) -> SandboxSpec:
    """The sandbox of a new run; one that is insisted on and cannot be had is an error.

    `usual`: what the flow does when nobody says anything, `auto` or `direct`.
    """
    settings = loaded.settings.sandbox
    _check(loaded)
    if wanted.rung is not None and wanted.sandbox is False:
        raise RalphError("--no-sandbox and --sandbox-rung contradict each other.", "Leave one of them out.")
    named = wanted.rung or ("direct" if wanted.sandbox is False else settings.rung or usual)
    if wanted.sandbox and named == DIRECT.name:
        named = AUTO
    if named == DIRECT.name:
        return _spec(settings, DIRECT.name)
    with opened_directory(str(Path.cwd())) as directory, Warden(Wakeup()) as warden:
        rung, problems = _found(named, backends(settings.image), runner(warden, directory))
    if rung != DIRECT.name:
        return _spec(settings, rung)
    if wanted.sandbox:
        raise none_here(problems, f"{MEND} Or run directly: --no-sandbox.")
    return _spec(settings, rung, "; ".join(f"{name}: {problem}" for name, problem in problems.items()))


def _found(named: str, rungs: dict[str, Backend], run: RunCommand) -> tuple[str, dict[str, str]]:
    if named == AUTO:
        rung, problems = best(rungs, run)
        return rung.name, problems
    if problem := find(named, rungs).problem(run):
        raise RalphError(
            f"The sandbox {named} cannot be used here: {problem}.",
            "`ralph doctor --sandbox` shows what can be used.",
        )
    return named, {}


def _spec(settings: SandboxSettings, rung: str, why: str = "") -> SandboxSpec:
    if rung == DIRECT.name:
        return SandboxSpec(downgraded=why)
    return SandboxSpec(
        rung,
        settings.network,
        settings.allowed_hosts,
        settings.writable,
        settings.read_only,
        settings.hidden,
        settings.variables,
        settings.memory_mb,
        settings.processes,
        image=settings.image,
    )


def _check(loaded: LoadedSettings) -> None:
    """What only the ladder knows to be wrong."""
    settings = loaded.settings.sandbox
    if settings.rung not in (None, AUTO, *NAMES):
        raise RalphError(
            f"{loaded.sources['sandbox.rung']}: sandbox.rung: there is no sandbox {settings.rung!r}.",
            f"Known: {AUTO}, {', '.join(NAMES)}.",
        )
    if settings.image.startswith("-") or len(settings.image.split()) > 1:
        raise RalphError(
            f"{loaded.sources['sandbox.image']}: sandbox.image: {settings.image!r} is no name of an image.",
            "Write NAME or NAME:TAG, as docker and podman list it.",
        )
    for host in settings.allowed_hosts:
        try:
            Host.parse(host)
        except ValueError as error:
            raise RalphError(
                f"{loaded.sources['sandbox.allowedHosts']}: sandbox.allowedHosts: {error}.",
                "Write NAME, *.NAME for all below it, or NAME:PORT.",
            ) from None
