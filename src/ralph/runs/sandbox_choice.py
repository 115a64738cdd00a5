"""Chooses the sandbox backend of a run: from the command line, the settings, or the default of the flow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ralph.core.model import SandboxSpec
from ralph.errors import RalphError
from ralph.loop.confinement import runner
from ralph.process.client import Wakeup, Warden
from ralph.sandbox.base import Backend, RunCommand
from ralph.sandbox.registry import DIRECT, NAMES, all_backends, best, canonical, find, none_here
from ralph.settings import LoadedSettings, SandboxSettings
from ralph.store.files import opened_directory

AUTO = "auto"
HOW_TO_GET_ONE = "Install one of them; on Linux, bubblewrap is the simplest."


class Wanted(Struct, frozen=True):
    """The sandbox options of the command line; None if not given."""

    sandbox: bool | None = None
    backend: str | None = None


def choose(loaded: LoadedSettings, wanted: Wanted, usual: str) -> SandboxSpec:
    """The sandbox of a new run. A sandbox that was required explicitly and is unavailable is an error.

    `usual` is the default of the flow: `auto` or `direct`.
    """
    settings = loaded.settings.sandbox
    _check(loaded)
    if wanted.backend is not None and wanted.sandbox is False:
        raise RalphError(
            "--no-sandbox and --sandbox-backend cannot be used together.", "Leave one of them out."
        )
    named = canonical(wanted.backend or ("direct" if wanted.sandbox is False else settings.backend or usual))
    if wanted.sandbox and named == DIRECT.name:
        named = AUTO
    if named == DIRECT.name:
        return _spec(settings, DIRECT.name)
    with opened_directory(str(Path.cwd())) as directory, Warden(Wakeup()) as warden:
        backend, problems = _found(named, all_backends(settings.image), runner(warden, directory))
    if backend != DIRECT.name:
        return _spec(settings, backend)
    if wanted.sandbox:
        raise none_here(problems, f"{HOW_TO_GET_ONE} Or run directly: --no-sandbox.")
    return _spec(settings, backend, "; ".join(f"{name}: {problem}" for name, problem in problems.items()))


def _found(named: str, backends: Mapping[str, Backend], run: RunCommand) -> tuple[str, dict[str, str]]:
    if named == AUTO:
        backend, problems = best(backends, run)
        return backend.name, problems
    if problem := find(named, backends).problem(run):
        raise RalphError(
            f"The sandbox {named} is not available: {problem}.",
            "Run `ralph doctor --sandbox` to see which ones are.",
        )
    return named, {}


def _spec(settings: SandboxSettings, backend: str, why: str = "") -> SandboxSpec:
    if backend == DIRECT.name:
        return SandboxSpec(downgraded=why)
    return SandboxSpec(
        backend,
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
    """Check the settings that only the sandbox registry can validate."""
    settings = loaded.settings.sandbox
    if settings.backend is not None and canonical(settings.backend) not in (AUTO, *NAMES):
        raise RalphError(
            f"{loaded.sources['sandbox.rung']}: sandbox.rung: unknown sandbox {settings.backend!r}.",
            f"Known: {AUTO}, {', '.join(NAMES)}.",
        )
    if settings.image.startswith("-") or len(settings.image.split()) > 1:
        raise RalphError(
            f"{loaded.sources['sandbox.image']}: sandbox.image: {settings.image!r} is not an image name.",
            "Use NAME or NAME:TAG, as listed by docker or podman.",
        )
    for host in settings.allowed_hosts:
        from ralph.sandbox.proxy import Host  # loaded only if needed

        try:
            Host.parse(host)
        except ValueError as error:
            raise RalphError(
                f"{loaded.sources['sandbox.allowedHosts']}: sandbox.allowedHosts: {error}.",
                "Use NAME, *.NAME for all subdomains, or NAME:PORT.",
            ) from None
