"""The ecosystems that Ralph knows, in the order in which they prepare a copy."""

from __future__ import annotations

from ralph.environments import cargo, go, gradle, maven, node, python
from ralph.environments.base import Ecosystem

ECOSYSTEMS: tuple[Ecosystem, ...] = (python, node, go, cargo, maven, gradle)

SOURCES = tuple(ending for each in ECOSYSTEMS for ending in each.sources)
"""The endings of source files in all languages."""
