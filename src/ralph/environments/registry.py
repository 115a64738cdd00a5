"""The ecosystems that Ralph knows, in the order in which they prepare a copy."""

from __future__ import annotations

from ralph.environments import node
from ralph.environments.base import Ecosystem

ECOSYSTEMS: tuple[Ecosystem, ...] = (node,)
