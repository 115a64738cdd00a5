"""Agent logins in a sandbox: which files an agent may use, and which must not change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec
from ralph.sandbox.base import PEOPLES
from ralph.sandbox.programs import within

Bound = tuple[tuple[str, str], ...]
"""(path outside, path inside) of files and directories."""


def is_too_much(path: str, home: str) -> bool:
    """Whether the path would expose a whole home directory, for example one on PATH or in a variable."""
    return any(within(each, [path, os.path.realpath(path)]) for each in (home, *PEOPLES))


class Logins:
    """The logins of the run's agents; `state`: a directory for copies, out of their reach."""

    def __init__(
        self, specs: Sequence[AgentSpec], environment: Mapping[str, str], home: str, state: Path
    ) -> None:
        self._specs, self._environment, self._home, self._state = specs, environment, home, state
        shutil.rmtree(state / "copied", ignore_errors=True)
        self._copied = dict(self._copies())

    def of(self, spec: AgentSpec) -> tuple[list[str], list[str]]:
        """The login directories of an agent, and the files in them that must not change."""
        needs = AGENTS[spec.type].needs
        environment = {**self._environment, **dict(spec.env)}
        home = os.path.realpath(environment.get("HOME") or self._home)
        moved = [environment[name] for name in needs.moved if environment.get(name)]
        state = moved[:1] or [os.path.join(home, name) for name in needs.state]
        found = [os.path.realpath(path) for path in state]
        pinned = [each for name in needs.pinned for each in _named(found[0], name)] if found else []
        return [path for path in found if os.path.isdir(path) and not is_too_much(path, self._home)], pinned

    def absent(self) -> tuple[str, ...]:
        """Files that must not change and do not exist: if created, they are moved away."""
        found = [self.of(spec) for spec in self._specs]
        return tuple(
            path for places, pinned in found if places for path in pinned if not os.path.lexists(path)
        )

    def bound(self, spec: AgentSpec) -> Bound:
        """Paths that differ inside: copies, empty directories, and targets of links."""
        return (*self._own_copies(spec), *self._fresh(spec), *self._linked(spec))

    def forget(self) -> None:
        for name in ("copied", "fresh"):
            shutil.rmtree(self._state / name, ignore_errors=True)

    def _own_copies(self, spec: AgentSpec) -> Iterator[tuple[str, str]]:
        for name in AGENTS[spec.type].needs.copied:
            target = os.path.join(self._home, name)
            if target in self._copied:
                yield self._copied[target], target

    def _fresh(self, spec: AgentSpec) -> Iterator[tuple[str, str]]:
        places, _ = self.of(spec)
        for name in AGENTS[spec.type].needs.fresh if places else ():
            empty = self._state / "fresh" / spec.type / name
            empty.mkdir(parents=True, exist_ok=True)
            yield str(empty), os.path.join(places[0], name)

    def _linked(self, spec: AgentSpec) -> Iterator[tuple[str, str]]:
        """Login directories that are symbolic links, mounted under their own name."""
        for name in AGENTS[spec.type].needs.state:
            path = os.path.join(self._home, name)
            if os.path.isdir(path) and os.path.realpath(path) != path:
                yield os.path.realpath(path), path

    def _copies(self) -> Iterator[tuple[str, str]]:
        """Copies of files that an agent changes constantly, one set for the whole run."""
        for spec in self._specs:
            for name in AGENTS[spec.type].needs.copied:
                source, copy = os.path.join(self._home, name), self._state / "copied" / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                if os.path.isdir(source):
                    with suppress(shutil.Error):  # an unreadable file is not needed
                        shutil.copytree(source, copy, symlinks=True, dirs_exist_ok=True)
                elif os.path.isfile(source):
                    shutil.copyfile(source, copy)
                if copy.exists():
                    yield source, str(copy)


def _named(directory: str, name: str) -> list[str]:
    """The matches of a name with `*`; any other name, whether it exists or not."""
    return list(map(str, Path(directory).glob(name))) if "*" in name else [os.path.join(directory, name)]
