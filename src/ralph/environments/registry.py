"""The ecosystems that Ralph knows, in the order in which they prepare a copy."""

from __future__ import annotations

from ralph.environments import cargo, go, gradle, maven, node
from ralph.environments.base import Ecosystem

ECOSYSTEMS: tuple[Ecosystem, ...] = (node, go, cargo, maven, gradle)
