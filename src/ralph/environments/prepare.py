"""Prepares a copy of a project with all ecosystems, and says what its commands need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from ralph.environments import python
from ralph.environments.as_started import put_back_programs
from ralph.environments.base import Copy, NotPrepared, Tools
from ralph.environments.registry import ECOSYSTEMS

_SETUP = "setup"
"""A file in a copy's own directory with the hash of the setup command that was run."""

_PREPARED = "prepared"
"""A file in a copy's own directory that marks that it was prepared before."""


def is_needed(copy: Copy, environment: Mapping[str, str], setup: str) -> bool:
    """Whether there is anything to prepare."""
    is_due = bool(setup) and not _was_run(copy.own, setup)
    return is_due or any(each.detect(copy, environment) for each in ECOSYSTEMS)


def prepare(copy: Copy, tools: Tools, setup: str, run_setup: Callable[[str], None]) -> None:
    """Run the user's setup command unless it was run in this copy before, then make what is still missing."""
    given = {} if (copy.own / _PREPARED).exists() else python.given(copy, tools.environment)
    copy.own.mkdir(parents=True, exist_ok=True)
    (copy.own / ".gitignore").write_text("*\n")
    if setup and not _was_run(copy.own, setup):
        python.prepare_active(copy, tools)
        run_setup(setup)
        (copy.own / _SETUP).write_text(_hash(setup))
    if kept := sorted(given.items() & python.given(copy, tools.environment).items()):
        raise NotPrepared(
            f"{kept[0][0]} is in git, in place of the environment in {copy.origin}. Remove it: git rm -r {kept[0][0]}"
        )
    for each in ECOSYSTEMS:
        if each.detect(copy, tools.environment):
            each.prepare(copy, tools)
    put_back_programs(copy)
    (copy.own / _PREPARED).touch()


def _was_run(own: Path, setup: str) -> bool:
    try:
        return (own / _SETUP).read_text() == _hash(setup)
    except OSError:
        return False


def _hash(setup: str) -> str:
    return hashlib.sha256(setup.encode()).hexdigest()


def variables(copy: Copy, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of commands in a copy."""
    found = dict(environment)
    for each in ECOSYSTEMS:
        for name, value in each.variables(copy, found).items():
            if value:
                found[name] = value
            else:
                found.pop(name, None)
    return found


def leads_out(copy: Copy, environment: Mapping[str, str]) -> list[str]:
    """What still leads from a prepared copy back to the user's checkout."""
    return [text for each in ECOSYSTEMS for text in each.leads_out(copy, environment)]


def reads(copy: Copy, environment: Mapping[str, str]) -> list[str]:
    """Directories outside a prepared copy that its commands read. `environment`: the user's, not that of the copy."""
    return [path for each in ECOSYSTEMS for path in each.reads(copy, environment)]
