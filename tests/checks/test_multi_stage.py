"""Several methods combined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checks.check_support import LOG, Bench
from ralph.checks.base import Interrupted, JudgeAnswer, JudgeLimited, Shell
from ralph.checks.multi_stage import MAX_DEPTH, run
from ralph.checks.registry import METHODS, config_problem
from ralph.core.command_output import CommandOutput
from ralph.core.model import Cause, Check, Ended, Exit, FailAction, Feedback, Verdict

NO_LOGIN = JudgeAnswer("", "is not logged in", is_final=True, judge="haiku", cause=Cause.AUTH)
RED = "Command exited with 1, expected 0"


def stage(name: str, method: str = "external", *, required: bool = True, **config: Any) -> dict[str, Any]:
    """A stage, by default with a command named like the stage."""
    values = config or ({"command": name} if method == "external" else {})
    return {"name": name, "method": method, "config": values, "required": required}


def check_of(*stages: dict[str, Any], hint: str = "", **keys: Any) -> Check:
    return Check("qa", "multi_stage", json.dumps({"stages": stages, **keys}), hint=hint)


def bench_with(*red: str, **more: Any) -> Bench:
    """A context in which these commands fail and all others succeed."""
    return Bench(shells={name: Shell(Exit(1), CommandOutput("no"), f"{name}.log") for name in red}, **more)


def green(name: str, *, required: bool = True) -> Verdict:
    return Verdict(name, green=True, required=required, reason="External verification passed", log=LOG)


def told(name: str) -> str:
    return f'Verification by "{name}" failed: {RED}.\nOutput file: {name}.log\nOutput:\nno'


def red(name: str, *, required: bool = True) -> Verdict:
    feedback = Feedback(FailAction.APPEND, told(name))
    return Verdict(
        name,
        green=False,
        required=required,
        reason=RED,
        feedback=feedback,
        log=f"{name}.log",
        excerpt=("no",),
    )


def test_it_is_in_the_registry() -> None:
    """A check with the method `multi_stage` is this one."""
    assert METHODS["multi_stage"].run is run


def test_all_green_is_green() -> None:
    """Every stage runs in order, each in its own context."""
    context = bench_with()
    assert run(check_of(stage("a"), stage("b")), context) == Verdict(
        "qa", green=True, reason="All 2 verification stages passed", parts=(green("a"), green("b"))
    )
    assert (context.asked, context.paths) == ([("a", 300.0), ("b", 300.0)], [("a",), ("b",)])


def test_the_first_red_stage_ends_it() -> None:
    """Later stages do not run."""
    context = bench_with("b", "c")
    assert run(check_of(stage("a"), stage("b"), stage("c"), hint="Continue."), context) == Verdict(
        "qa",
        green=False,
        reason=f"Stage 'b' failed: {RED}",
        feedback=Feedback(FailAction.APPEND, f"Stage 'b':\n{told('b')}\n\nHint: Continue."),
        log="b.log",
        excerpt=("no",),
        parts=(green("a"), red("b")),
    )


@pytest.mark.parametrize(
    "keys", [{"require_all": False}, {"parallel": True}, {"parallel": True, "require_all": False}]
)
def test_otherwise_all_are_run(keys: dict[str, Any]) -> None:
    """Without `require_all`, or in parallel, all stages run; the verdict is the same, with every failure."""
    context = bench_with("a", "c")
    assert run(check_of(stage("a"), stage("b"), stage("c"), **keys), context) == Verdict(
        "qa",
        green=False,
        reason=f"Failed stages: a: {RED}; c: {RED}",
        feedback=Feedback(FailAction.APPEND, f"Stage 'a':\n{told('a')}\n\nStage 'c':\n{told('c')}"),
        log="a.log",
        excerpt=("no",),
        parts=(red("a"), green("b"), red("c")),
    )
    assert context.paths == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize("keys", [{}, {"require_all": False}, {"parallel": True}])
def test_an_optional_red_stage_is_a_warning(keys: dict[str, Any]) -> None:
    """It is mentioned, but stops nothing and fails nothing."""
    stages = (stage("a", required=False), stage("b"), stage("c", required=False))
    assert run(check_of(*stages, **keys), bench_with("a")) == Verdict(
        "qa",
        green=True,
        reason=f"All 1 required verification stages passed; warnings: a: {RED}",
        parts=(red("a", required=False), green("b"), green("c", required=False)),
    )


def test_a_warning_is_mentioned_along_with_a_failure() -> None:
    """The verdict has both, but the agent is told only what it must fix."""
    verdict = run(check_of(stage("a", required=False), stage("b")), bench_with("a", "b"))
    assert verdict.reason == f"Stage 'b' failed: {RED}; warnings: a: {RED}"
    assert verdict.feedback == Feedback(FailAction.APPEND, f"Stage 'b':\n{told('b')}")


def test_a_degraded_green_stage_degrades_the_whole() -> None:
    """A judge that could not be asked is not hidden by commands that passed."""
    context = bench_with(answers=[NO_LOGIN])
    verdict = run(check_of(stage("a"), stage("j", "semantic", check_for="good")), context)
    judged = verdict.parts[1]
    assert judged.feedback is not None
    assert verdict == Verdict(
        "qa",
        green=True,
        degraded=True,
        reason=f"All 2 verification stages passed; degraded: j: {judged.reason}",
        feedback=Feedback(FailAction.APPEND, f"Stage 'j':\n{judged.feedback.text}"),
        parts=(green("a"), judged),
        cause=Cause.AUTH,
    )


JUDGED = stage("j", "semantic", check_for="good")


@pytest.mark.parametrize("keys", [{}, {"require_all": False}, {"parallel": True}])
@pytest.mark.parametrize(
    ("stages", "cause"),
    [
        ((JUDGED, stage("a")), Cause.AUTH),
        ((stage("inner", "multi_stage", stages=[JUDGED, stage("a")]),), Cause.AUTH),
        ((JUDGED, stage("bad", required=False)), Cause.AUTH),
        ((JUDGED, stage("bad")), None),
        ((stage("bad"), JUDGED), None),
        ((JUDGED | {"required": False}, stage("a")), None),
        ((JUDGED, JUDGED | {"name": "k"}), Cause.AUTH),
    ],
)
def test_a_failed_judge_is_the_cause_if_nothing_else_failed(
    stages: tuple[dict[str, Any], ...], cause: Cause | None, keys: dict[str, Any]
) -> None:
    """A required stage passes its cause on, in every mode; an optional one, or one next to a real failure, does not."""
    assert run(check_of(*stages, **keys), bench_with("bad", answers=[NO_LOGIN] * 2)).cause is cause


def test_a_budget_that_is_used_up_comes_first() -> None:
    """If one of two judges was stopped by the budget of the run, the other one's failure does not stop it."""
    answers = [NO_LOGIN, JudgeAnswer("", "gone", is_final=True, cause=None)]
    assert run(check_of(JUDGED, JUDGED | {"name": "k"}), bench_with(answers=answers)).cause is None


@pytest.mark.parametrize(("required", "is_claimed"), [(False, True), (True, False)])
def test_an_optional_or_a_red_degraded_stage_does_not(required: bool, is_claimed: bool) -> None:
    """Only stages that the green verdict relies on can degrade it."""
    context = bench_with(answers=[JudgeAnswer("", "gone", is_final=True)], is_claimed=is_claimed)
    stages = (stage("a"), stage("j", "semantic", required=required, check_for="good"))
    assert run(check_of(*stages), context).degraded is False


def test_stages_may_have_stages() -> None:
    """Any method can be a stage, including this one; names are prefixed by those above."""
    inner = stage("inner", "multi_stage", stages=[stage("x"), stage("said", "string_match")])
    context = bench_with("x")
    verdict = run(check_of(inner, stage("b")), context)
    assert verdict.reason == f"Stage 'inner' failed: Stage 'x' failed: {RED}"
    assert verdict.feedback == Feedback(FailAction.APPEND, f"Stage 'inner':\nStage 'x':\n{told('x')}")
    assert [part.parts for part in verdict.parts] == [(red("x"),)]
    assert context.paths == [("inner", "x")]


def test_a_stage_without_a_verdict_leaves_the_check_without_one() -> None:
    """A limited judge or an interrupted command leaves the whole check open."""

    class Busy(Bench):
        def ask(self, prompt: str, model: str) -> JudgeAnswer:
            raise JudgeLimited(None)

    stages = (stage("a"), stage("j", "semantic", check_for="good"))
    for check in (check_of(*stages), check_of(*stages, parallel=True)):
        with pytest.raises(JudgeLimited):
            run(check, Busy())
        with pytest.raises(Interrupted):
            run(check, Bench(Exit(ended=Ended.INTERRUPTED)))


# ---- its config ----


def nested(depth: int) -> dict[str, Any]:
    config: dict[str, Any] = {"stages": [stage("x")]}
    for _ in range(depth - 1):
        config = {"stages": [stage("inner", "multi_stage", **config)]}
    return config


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"stages": [stage("a")]}, ""),
        ({"stages": [{"name": "a", "method": "string_match"}], "require_all": False, "parallel": True}, ""),
        (nested(MAX_DEPTH), ""),
        (nested(MAX_DEPTH + 1), "stages: nested more than 5 levels deep"),
        (nested(200), "stages: nested more than 5 levels deep"),
        ({}, "Object missing required field `stages`"),
        ({"stages": []}, "stages: must not be empty"),
        ({"stages": [stage("a"), stage(" ", command="x")]}, "stages: stage 2 has no name"),
        ({"stages": [stage("a"), stage("a")]}, "stages: two stages are named 'a'"),
        ({"stages": [{"name": "a"}]}, "stages[0]: Object missing required field `method`"),
        ({"stages": [stage("a") | {"when": 1}]}, "stages[0]: Object contains unknown field `when`"),
        ({"stages": [stage("a", command=" ")]}, "stage 'a': command: must not be empty"),
        ({"stages": [stage("a"), stage("b", cmd="x")]}, "stage 'b': Object contains unknown field `cmd`"),
        (
            {"stages": [stage("a", required=False)]},
            "stages: no stage is required, so nothing would be verified",
        ),
        (
            {"stages": [stage("a", "magic")]},
            "stage 'a': There is no verification method 'magic'."
            " Known: string_match, semantic, external, multi_stage.",
        ),
        (
            {"stages": [stage("a", "multi_stage", stages=[stage("b", "semantic", check_for=[])])]},
            "stage 'a': stage 'b': check_for: the list is empty, so nothing would be judged",
        ),
        ({"stages": [stage("a", "multi_stage", stages=7)]}, "stage 'a': stages: Expected `array`, got `int`"),
    ],
)
def test_its_config(config: dict[str, Any], problem: str) -> None:
    """Every stage is checked as if it were alone, and the problem names the stage."""
    assert config_problem("multi_stage", config) == problem
