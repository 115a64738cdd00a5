"""The caches of tools. Even without a `.gitignore`, commits and checked trees leave them out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from ralph.scm.git import Git, paths

CACHES = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage"),
        *(".tox", ".nox", ".venv", "node_modules", ".DS_Store"),
    }
)


def caches(git: Git, untracked: Iterable[str]) -> list[str]:
    """The caches among untracked paths, each with everything in it, except those that are partly tracked."""
    found = dict.fromkeys(filter(None, map(cache_of, untracked)))
    if not found:
        return []
    places = (f":(top,literal){path}" for path in found)
    tracked = set(map(cache_of, paths(git("ls-files", "-z", "--", *places))))
    return [path for path in found if path not in tracked]


def cache_of(name: str) -> str:
    """The outermost part of a path that is a cache; "" if none is."""
    parts = name.rstrip("/").split("/")
    return next((path for path in accumulate(parts, "{}/{}".format) if path.rpartition("/")[2] in CACHES), "")
