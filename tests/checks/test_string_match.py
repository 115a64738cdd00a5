"""The promise as a verification method."""

from __future__ import annotations

import pytest

from checks.check_support import Bench
from ralph.checks.registry import METHODS, config_problem
from ralph.checks.string_match import run
from ralph.core.model import Check, FailAction, Feedback, Verdict

PROMISED = Check("said", "string_match", '{"promise": "AUTH_DONE"}', hint="Be honest.")
SAID = "All is well.\n<promise>AUTH_DONE</promise>\n"


def test_it_is_in_the_registry() -> None:
    """A check with the method `string_match` is this one."""
    assert METHODS["string_match"].run is run


def test_without_a_promise_the_claim_of_the_run_counts() -> None:
    """The claim that the run expects decides, not the text of the message."""
    check = Check("said", "string_match")
    assert run(check, Bench(is_claimed=True)) == Verdict("said", green=True, reason="Promise found in output")
    assert run(check, Bench(is_claimed=False, answer=SAID)) == Verdict(
        "said",
        green=False,
        reason="No completion promise found",
        feedback=Feedback(FailAction.APPEND, "No completion promise found."),
    )


def test_a_configured_promise_must_match_exactly() -> None:
    """With `promise`, the tag alone on the last line must have that text, ignoring case."""
    assert run(PROMISED, Bench(answer=SAID.lower())) == Verdict(
        "said", green=True, reason="Promise found in output"
    )
    assert run(PROMISED, Bench(answer="<promise>OTHER</promise>")) == Verdict(
        "said",
        green=False,
        reason="Promise 'AUTH_DONE' not found in output",
        feedback=Feedback(
            FailAction.APPEND,
            "Promise 'AUTH_DONE' not found in output. Be honest. When everything is done, and only then, end your"
            " answer with this line:\n\n<promise>AUTH_DONE</promise>",
        ),
    )


@pytest.mark.parametrize(
    "answer",
    [
        "AUTH_DONE",
        "`<promise>AUTH_DONE</promise>`",
        "> <promise>AUTH_DONE</promise>",
        "```\n<promise>AUTH_DONE</promise>\n```",
        "<promise>AUTH_DONE</promise> is still missing",
        "<promise>AUTH_DONE</promise>\nNot quite.",
        "<promise>AUTH_DONE_SOON</promise>",
    ],
)
def test_a_lookalike_is_not_a_promise(answer: str) -> None:
    """Quoted, in code, followed by text or only mentioned: not a promise."""
    assert not run(PROMISED, Bench(answer=answer)).green


def test_the_echoed_instruction_is_not_a_promise() -> None:
    """An agent that repeats its prompt repeats the tag in the feedback of this check."""
    feedback = run(PROMISED, Bench(answer="Not yet.")).feedback
    assert feedback is not None
    assert not run(PROMISED, Bench(answer=f"# T-1\n\n{feedback.text}\n")).green


@pytest.mark.parametrize("is_claimed", [True, False])
def test_without_an_agent_the_earlier_claim_counts(is_claimed: bool) -> None:
    """Before a merge no agent runs, so the earlier claim still counts."""
    assert run(PROMISED, Bench(answer="", is_claimed=is_claimed)).green is is_claimed


def test_an_optional_one_stays_optional() -> None:
    """The verdict is as required as the check."""
    check = Check("said", "string_match", required=False)
    assert [run(check, Bench(is_claimed=c)).required for c in (True, False)] == [False, False]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, ""),
        ({"promise": "X"}, ""),
        ({"promise": " "}, "promise: must not be empty"),
        ({"promise": "a\nb"}, "promise: must be one line"),
        ({"promise": 1}, "promise: Expected `str | null`, got `int`"),
        ({"Promise": "X"}, "Object contains unknown field `Promise`"),
    ],
)
def test_its_config(config: dict[str, object], problem: str) -> None:
    """The only key is `promise`, which must be one non-empty line."""
    assert config_problem("string_match", config) == problem
