"""What a run will need, loaded before it begins: an upgrade under a running loop must not hurt it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ralph.agents.registry import AGENTS
from ralph.checks.registry import METHODS, find_method
from ralph.core.model import Plan
from ralph.errors import RalphError


def load_parts(plan: Plan) -> None:
    """Its agents and its ways of checking; its sandbox is loaded when it is opened."""
    for spec in (*plan.agents, *((plan.judge,) if plan.judge else ())):
        AGENTS[spec.type]
    for check in plan.checks:
        with suppress(RalphError):  # a method that is not there any more is told by the check
            _load_method(check.method, json.loads(check.config))


def load_all_parts() -> None:
    """For many runs in one process, whose plans are not made yet."""
    for name in AGENTS:
        AGENTS[name]
    for name in METHODS:
        METHODS[name]


def _load_method(name: str, config: Mapping[str, Any]) -> None:
    for inner, its_config in find_method(name).stages(config):
        if inner:
            _load_method(inner, its_config)
