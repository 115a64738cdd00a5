"""Loads the modules a run will need before it starts, so that an upgrade during a run does not break it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ralph.agents.registry import AGENTS
from ralph.checks.command import is_clean
from ralph.checks.registry import METHODS, find_method
from ralph.core.model import Plan, When
from ralph.errors import RalphError


def load_parts(plan: Plan) -> None:
    """Load the agents and check methods of a plan. The sandbox is loaded when it is opened."""
    for spec in (*plan.agents, *((plan.judge,) if plan.judge else ())):
        AGENTS[spec.type]
    for check in plan.checks:
        with suppress(RalphError):  # the check itself reports a missing method
            _load_method(check.method, json.loads(check.config))
    if (
        plan.origin
        or any(map(is_clean, plan.checks))
        or any(check.when is When.PROVED for check in plan.checks)
    ):
        _load_copies()


def load_all_parts() -> None:
    """Load all agents and check methods, for a process that will drive runs whose plans do not exist yet."""
    for name in AGENTS:
        AGENTS[name]
    for name in METHODS:
        METHODS[name]
    _load_copies()


def _load_copies() -> None:
    """Load what makes copies of the project for checks."""
    from ralph.environments import as_started, missing  # noqa: F401
    from ralph.loop import controls, copies  # noqa: F401


def _load_method(name: str, config: Mapping[str, Any]) -> None:
    for inner, its_config in find_method(name).stages(config):
        if inner:
            _load_method(inner, its_config)
