"""The ecosystems that Ralph knows, in the order in which they prepare a copy."""

from __future__ import annotations

from ralph.environments import python
from ralph.environments.base import Ecosystem

ECOSYSTEMS: tuple[Ecosystem, ...] = (python,)

SOURCES = tuple(ending for each in ECOSYSTEMS for ending in each.sources)
"""The endings of source files in all languages."""
