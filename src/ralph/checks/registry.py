"""All verification methods. To add one, write a file and add it here, or use an entry point in another package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from ralph.checks.base import Method
from ralph.errors import RalphError
from ralph.registry import Registry

_NAMES = (
    *("command", "string_match", "semantic", "stories"),
    *("external", "multi_stage", "protected", "changes", "old_tests"),
)


def _load(name: str) -> Method:
    method: Method = import_module(f"ralph.checks.{name}").METHOD
    msgspec.json.Decoder(method.config)  # built here, in one thread: several at once would crash msgspec
    return method


METHODS = Registry(_NAMES, _load)
VERIFICATION = ("string_match", "semantic", "external", "multi_stage")
"""The methods a task may name, besides those of other packages."""

ENTRY_POINTS = "ralph.checks"


@cache
def plugins() -> dict[str, Any]:
    """Methods of other packages by name, not yet loaded."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def verification_methods() -> list[str]:
    return [*VERIFICATION, *sorted(set(plugins()) - set(METHODS))]


@cache
def find_method(name: str) -> Method:
    """A method by its name. Methods of other packages are loaded when first used."""
    if name in METHODS:
        return METHODS[name]
    if name not in plugins():
        known = ", ".join(verification_methods())
        raise RalphError(f"There is no verification method {name!r}.", f"Known: {known}.")
    what, hint = f"The verification method {name!r}", "Fix or remove the package that provides it."
    try:
        method = plugins()[name].load()
    except Exception as error:
        raise RalphError(f"{what} cannot be loaded: {type(error).__name__}: {error}.", hint) from error
    if not isinstance(method, Method):
        raise RalphError(f"{what} must be a ralph.checks.base.Method, not {type(method).__name__}.", hint)
    return method


def commands_of(name: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every command a verification method runs, with its directory."""
    if not name:
        return
    method = find_method(name)
    yield from method.commands(config)
    for inner, its_config in method.stages(config):
        yield from commands_of(inner, its_config)


def config_problem(name: str, config: dict[str, Any]) -> str:
    """The problem with the config of a verification method, or ""."""
    method = find_method(name)
    try:
        parsed = msgspec.convert(config, method.config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        where = where.strip(".`")
        return f"{where}: {message}" if where else message
    return method.problem(parsed) if method.problem else ""
