"""A mapping of names to parts that are loaded on first use, since a run needs only a few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import TypeVar

T = TypeVar("T")

_loading = RLock()
"""Loads one part at a time: msgspec crashes when several threads build decoders at once."""


class Registry(Mapping[str, T]):
    """Calls `load` once per name, when the part is first looked up. Listing the names loads nothing."""

    def __init__(self, names: Sequence[str], load: Callable[[str], T]) -> None:
        self._names = names
        self._load = load
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            if name not in self._names:
                raise KeyError(name)
            with _loading:
                if name not in self._loaded:
                    self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
