"""Parts by name, each loaded when it is first wanted: a run needs few of them, and has those before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import TypeVar

T = TypeVar("T")

_loading = RLock()
"""One at a time: several threads that make decoders at once would crash msgspec."""


class Registry(Mapping[str, T]):
    """`load` is called once for each name, when somebody asks for the part; names alone load nothing."""

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
