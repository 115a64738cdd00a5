"""Finds problems with the written verification of a role: the method and its config, stage by stage."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ralph.checks.registry import METHODS, config_problem, find_method, verification_methods
from ralph.core.task_model import ACCEPTANCE, injected
from ralph.errors import RalphError

Keys = tuple[str, ...]

_STAGE = ("name", "method", "config", "required")
_PLACEHOLDER = re.compile(r"\{\{\s*acceptance_criteria\s*\}\}")
_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


class TaskProblem(NamedTuple):
    """A problem with a task: its place, as keys of the written form, and the problem, as a predicate."""

    keys: Keys
    text: str


def verification_problems(
    method: str, config: dict[str, Any], acceptance: tuple[str, ...], keys: Keys
) -> list[TaskProblem]:
    """All problems with a verification. `keys` lead to the role."""
    written = (*keys, "verification_config")
    misplaced = list(_misplaced(config, written))
    full = injected(config, acceptance or ("…",))
    return misplaced or list(_problems(method, full, (*keys, "verification_method"), written))


def _problems(
    method: str, config: dict[str, Any], named: Keys, keys: Keys, more: Iterable[str] = ()
) -> Iterator[TaskProblem]:
    known = verification_methods()
    if method not in known and method not in more:
        hint = did_you_mean(method, known) or f"; one of {', '.join(known)}"
        yield TaskProblem(named, f"names an unknown method: {method!r}{hint}")
        return
    found = [*_inside(method, config, keys)]
    yield from found or _refused(method, config, keys)


def _inside(method: str, config: Mapping[str, Any], keys: Keys) -> Iterator[TaskProblem]:
    """Required settings that are missing, in stages too: a check with nothing to check proves nothing."""
    try:
        found = find_method(method)
    except RalphError:
        return  # `_refused` reports why
    for key, text in found.missing(config):
        yield TaskProblem((*keys, key), text)
    for number, (inner, its_config) in enumerate(found.stages(config)):
        if inner:
            here = (*keys, "stages", str(number))
            yield from _problems(inner, its_config, (*here, "method"), (*here, "config"), METHODS)


def _misplaced(value: Any, keys: Keys) -> Iterator[TaskProblem]:
    """Placeholders inside a longer text, where they would not be replaced."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _misplaced(inner, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _misplaced(inner, (*keys, str(number)))
    elif isinstance(value, str) and value != ACCEPTANCE and _PLACEHOLDER.search(value):
        yield TaskProblem(keys, f"must be exactly {ACCEPTANCE}, with nothing before, inside or after it")


def _refused(method: str, config: dict[str, Any], keys: Keys) -> Iterator[TaskProblem]:
    """Problems that the method itself reports about its config."""
    try:
        text = config_problem(method, config)
    except RalphError as error:
        text = error.message.rstrip(".")
    if not text:
        return
    where, _, message = text.partition(": ")
    if not re.fullmatch(r"[\w.\[\]-]+", where):
        where, message = "", text
    inner = path_of(where)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message):
        hint = did_you_mean(unknown[1], _config_keys())
        yield TaskProblem((*keys, *inner, unknown[1]), f"is not a known key{hint}")
    elif missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        yield TaskProblem((*keys, *inner, missing[1]), "is missing")
    else:
        yield TaskProblem((*keys, *inner), in_words(message))


def _config_keys() -> list[str]:
    """All keys of all verification configs."""
    structs = (find_method(name).config for name in verification_methods() if name in METHODS)
    return [*_STAGE, *(each.encode_name for struct in structs for each in msgspec.structs.fields(struct))]


# ---- words ----


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def path_of(where: str) -> Keys:
    return tuple(re.findall(r"[^.\[\]]+", where))


def in_words(message: str) -> str:
    """A msgspec error message as a predicate."""
    if found := re.fullmatch(r"Expected `([\w |]+)`, got `(\w+)`", message):
        wanted = " or ".join(_KINDS.get(each, each) for each in found[1].split(" | ") if each != "null")
        return f"must be {wanted}, not {_KINDS.get(found[2], found[2])}"
    if found := re.fullmatch(r"Expected `(\w+)` (>=|<=) (-?[\d.]+)", message):
        bound = "more" if found[2] == ">=" else "less"
        return f"must be {found[3].removesuffix('.0')} or {bound}"
    return f": {message[:1].lower()}{message[1:]}"


def kind_of(value: object) -> str:
    names = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object"}
    return _KINDS[names.get(type(value), "null")]
