"""Several methods combined: every required stage must pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ralph.checks.base import CheckContext, Method
from ralph.core.claims import neutralise
from ralph.core.model import Cause, Check, Feedback, Verdict
from ralph.errors import RalphError

MAX_DEPTH = 5
"""Maximum nesting depth of stages within stages."""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One method with its config. If it is not `required`, a failure is only a warning."""

    name: str
    method: str
    config: dict[str, Any] = {}
    required: bool = True


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`require_all` stops at the first required stage that fails; otherwise all stages run.

    `parallel` runs all stages at once.
    """

    stages: tuple[Stage, ...]
    require_all: bool = True
    parallel: bool = False


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    if config.parallel:
        stages = [(stage.name, partial(_run_stage, check, stage)) for stage in config.stages]
        parts = tuple(context.together(stages))
    else:
        parts = tuple(_in_sequence(check, config, context))
    failed = [part for part in parts if part.required and not part.green]
    weak = [part for part in parts if part.required and part.green and part.degraded]
    return Verdict(
        check.name,
        green=not failed,
        required=check.required,
        degraded=bool(weak),
        reason=_reason(config, parts, failed, weak),
        feedback=_feedback(check, [*failed, *weak]),
        log=next((part.log for part in failed if part.log), ""),
        parts=parts,
        excerpt=next((part.excerpt for part in failed if part.excerpt), ()),
        cause=_cause(failed, weak),
    )


def _in_sequence(check: Check, config: Config, context: CheckContext) -> Iterator[Verdict]:
    for stage in config.stages:
        verdict = _run_stage(check, stage, context.inside(stage.name))
        yield verdict
        if config.require_all and verdict.required and not verdict.green:
            return


def _run_stage(check: Check, stage: Stage, context: CheckContext) -> Verdict:
    from ralph.checks.registry import find_method  # imported here: the registry lists this module

    config = msgspec.json.encode(stage.config).decode()
    inner = Check(stage.name, stage.method, config, stage.required, check.when, check.fail_action)
    verdict = find_method(stage.method).run(inner, context)
    return replace(verdict, check=stage.name, required=stage.required)


def _cause(failed: Sequence[Verdict], weak: Sequence[Verdict]) -> Cause | None:
    """Why the run stops if only degraded stages are in the way."""
    causes = [part.cause for part in weak]
    return None if failed or None in causes else next(iter(causes), None)


def _reason(
    config: Config, parts: Sequence[Verdict], failed: Sequence[Verdict], weak: Sequence[Verdict]
) -> str:
    warned = [part for part in parts if not part.required and not part.green]
    if failed and config.require_all and not config.parallel:
        said = f"Stage {failed[0].check!r} failed: {failed[0].reason}"
    elif failed:
        said = f"Failed stages: {_listed(failed)}"
    else:
        required = f"{sum(part.required for part in parts)} required" if warned else len(parts)
        said = f"All {required} verification stages passed"
    notes = [("degraded", weak), ("warnings", warned)]
    return said + "".join(f"; {name}: {_listed(those)}" for name, those in notes if those)


def _listed(parts: Sequence[Verdict]) -> str:
    return "; ".join(f"{part.check}: {part.reason}" for part in parts)


def _feedback(check: Check, parts: Sequence[Verdict]) -> Feedback | None:
    """The feedback of these stages, joined."""
    if not parts:
        return None
    texts = [
        f"Stage {part.check!r}:\n{part.feedback.text if part.feedback else neutralise(part.reason)}"
        for part in parts
    ]
    if check.hint:
        texts.append(f"Hint: {check.hint}")
    return Feedback(check.fail_action, "\n\n".join(texts))


# ---- validation of a config ----


def problem(config: Config) -> str:
    if not config.stages:
        return "stages: must not be empty"
    if any(_depth(stage.method, stage.config, MAX_DEPTH) == MAX_DEPTH for stage in config.stages):
        return f"stages: nested more than {MAX_DEPTH} levels deep"
    names = [stage.name for stage in config.stages]
    if "" in map(str.strip, names):
        return f"stages: stage {[name.strip() for name in names].index('') + 1} has no name"
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"stages: two stages are named {twice!r}"
    if not any(stage.required for stage in config.stages):
        return "stages: no stage is required, so nothing would be verified"
    wrong = ((stage.name, _stage_problem(stage)) for stage in config.stages)
    return next((f"stage {name!r}: {text}" for name, text in wrong if text), "")


def _stage_problem(stage: Stage) -> str:
    from ralph.checks.registry import config_problem

    try:
        return config_problem(stage.method, stage.config)
    except RalphError as error:
        return " ".join(filter(None, (error.message, error.hint)))


def _depth(method: Any, config: Any, most: int) -> int:
    """How deep stages are nested in a stage, counted up to `most`."""
    if most == 0 or method != "multi_stage" or not isinstance(config, dict):
        return 0
    stages = config.get("stages")
    inner = [stage for stage in stages if isinstance(stage, dict)] if isinstance(stages, list) else []
    depths = (_depth(stage.get("method"), stage.get("config"), most - 1) for stage in inner)
    return 1 + max(depths, default=0)


def missing(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not config.get("stages"):
        yield "stages", "is missing: a list of stages, each with a name, a method and a config"


def stages(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The stages, with empty values for malformed ones, whose problems are reported elsewhere."""
    found = config.get("stages")
    for stage in found if isinstance(found, list) else ():
        method = stage.get("method") if isinstance(stage, dict) else None
        inner = stage.get("config", {}) if isinstance(stage, dict) else None
        if isinstance(method, str) and isinstance(inner, dict):
            yield method, inner
        else:
            yield "", {}


METHOD = Method(
    Config,
    run,
    problem,
    summary="every required stage must pass",
    default=None,
    missing=missing,
    stages=stages,
)
