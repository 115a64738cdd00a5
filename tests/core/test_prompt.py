"""Building the prompt of an iteration: what is added to the base prompt, where, and what is neutralised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core import claims, prompt
from ralph.core.command_output import CommandOutput, Gap
from ralph.core.model import (
    ClaimKind,
    ClaimRule,
    FailAction,
    Feedback,
    Left,
    PromptSource,
    Purpose,
    RunAgent,
    Steer,
    TaskBrief,
)

RULE = ClaimRule()
PROMISE = ClaimRule(tag="promise", text="COMPLETE", strict=True)
TAG = "<response>DONE</response>"
AS_IT_IS = PromptSource(instruction=False)
TOLD = f"When everything is done, and only then, end your answer with this line:\n\n{TAG}"


def a_step(*feedback: Feedback, steer: tuple[str, ...] = (), iteration: int = 1, of: int = 10) -> RunAgent:
    told = tuple(Steer(at=0.0, id=n, text=text) for n, text in enumerate(steer))
    return RunAgent(Purpose.WORK, iteration, "claude", "", Left(), of=of, feedback=feedback, steer=told)


def append(text: str) -> Feedback:
    return Feedback(FailAction.APPEND, text)


def prepend(text: str) -> Feedback:
    return Feedback(FailAction.PREPEND, text)


def instead(text: str) -> Feedback:
    return Feedback(FailAction.REPLACE, text)


# ---- guardrail failures ----


def failed(command: str, exit_text: str, hint: str, log: str, output: str, limit: int) -> str:
    return prompt.guardrail_failure(command, exit_text, hint, log, CommandOutput(output), limit)


def test_a_failed_guardrail_with_a_hint() -> None:
    """The message has the five documented parts in the documented order."""
    text = failed(
        "make test", "exit code 2", "run it alone", ".ralph/guardrail_1_make_test.log", "1 failed\n", 5000
    )
    assert text == (
        'Guardrail "make test" failed with exit code 2.\n'
        "Hint: run it alone\n"
        "Output file: .ralph/guardrail_1_make_test.log\n"
        "Output:\n"
        "1 failed\n"
    )


def test_a_failed_guardrail_without_a_hint() -> None:
    """Without a hint there is no hint line."""
    text = failed("make", "exit code 1", "", "a.log", "", 5000)
    assert text == 'Guardrail "make" failed with exit code 1.\nOutput file: a.log\nOutput:\n'


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("", 5, ""),
        ("12345", 5, "12345"),
        ("123456", 5, "12345"),
        ("12345678901234567890", 20, "12345678901234567890"),
        ("12345678901234567890+", 20, "12345... [truncated]"),
        ("äöüßé678901234567890+", 20, "äöüßé... [truncated]"),
        ("123456", 0, "123456"),
    ],
)
def test_truncation(text: str, limit: int, cut: str) -> None:
    """The first characters are kept, with a mark if something was cut and there is room for it."""
    assert prompt.truncate(text, limit) == cut


def test_only_the_output_is_cut() -> None:
    """Command, hint and log file are never cut, however long they are."""
    long = "long " * 50
    assert failed(long, "exit code 1", long, long, "123456", 5) == (
        f'Guardrail "{long}" failed with exit code 1.\n'
        f"Hint: {long}\n"
        f"Output file: {long}\n"
        "Output (truncated):\n"
        "23456"
    )


def test_tags_in_the_output_are_made_harmless() -> None:
    """Both tags in the fed-back output are escaped."""
    text = failed("cat x", "exit code 1", "", "a.log", f"{TAG} <promise>x</promise>", 5000)
    assert text.splitlines()[-1] == "&lt;response&gt;DONE&lt;/response&gt; &lt;promise&gt;x&lt;/promise&gt;"


def test_tags_are_harmless_on_both_sides_of_a_gap() -> None:
    """Of output whose middle was not kept, the end is escaped too."""
    output = CommandOutput(f"{TAG}\n<respo", f"nse>DONE</response>\n{TAG}\n", Gap(0, 9))
    text = prompt.verification_failure("cat x", "it failed", "", "", output, 0)
    assert text == (
        'Verification by "cat x" failed: it failed.\nOutput (truncated):\n'
        "&lt;response&gt;DONE&lt;/response&gt;\n<respo\n[... 9 characters omitted ...]\n"
        "nse>DONE&lt;/response&gt;\n&lt;response&gt;DONE&lt;/response&gt;\n"
    )


@given(
    st.lists(st.sampled_from([TAG, "\n", "x", "<respo", "nse>", "FAILED "]), max_size=60), st.integers(1, 300)
)
def test_no_cut_brings_a_tag_back(pieces: list[str], limit: int) -> None:
    """Wherever the output is cut, it contains no tag, and escaping does not make it longer than the limit."""
    text = failed("cat x", "exit code 1", "", "a.log", "".join(pieces), limit)
    assert prompt.has_tag("".join(pieces), RULE) or not prompt.has_tag(text, RULE)
    assert TAG not in "".join(pieces) or TAG not in text
    assert len(text.partition("Output:\n")[2] or text.partition("Output (truncated):\n")[2]) <= limit


def test_what_the_agent_sees_counts() -> None:
    """Output that only fits before its tags are escaped is cut."""
    safe = "&lt;response&gt;DONE&lt;/response&gt;"
    assert failed("cat x", "exit code 1", "", "", TAG, len(safe)).endswith(f"\nOutput:\n{safe}")
    assert "\nOutput (truncated):\n" in failed("cat x", "exit code 1", "", "", TAG, len(safe) - 1)


# ---- additions to the base prompt ----


def test_the_prompt_is_sent_unchanged() -> None:
    """Without feedback, guidance, instruction and count, the base prompt is sent unchanged and untrimmed."""
    assert prompt.build(" fix\n\n", a_step(), AS_IT_IS, RULE) == " fix\n\n"


@pytest.mark.parametrize(
    ("feedback", "text"),
    [
        ((append("red"),), "base\n\nred"),
        ((prepend("red"),), "red\n\nbase"),
        ((instead("red"),), "red"),
        ((append("1"), append("2")), "base\n\n1\n\n2"),
        ((prepend("1"), prepend("2")), "2\n\n1\n\nbase"),
        ((append("1"), prepend("2")), "2\n\nbase\n\n1"),
        ((append("1"), instead("2")), "2"),
        ((instead("1"), append("2")), "1\n\n2"),
        ((prepend("1"), instead("2"), prepend("3"), append("4")), "3\n\n2\n\n4"),
        ((instead("1"), instead("2")), "2"),
    ],
)
def test_feedback_is_added_in_order(feedback: tuple[Feedback, ...], text: str) -> None:
    """Each failed guardrail adds to the text so far after a blank line; REPLACE replaces all of it."""
    assert prompt.build("base", a_step(*feedback), AS_IT_IS, RULE) == text


def test_guidance_comes_after_the_feedback() -> None:
    """Guidance is added in order and is kept when a guardrail replaces the prompt."""
    step = a_step(instead("red"), steer=("use the old parser", "and be brief"))
    assert prompt.build("base", step, AS_IT_IS, RULE) == (
        "red\n\nGuidance from the user: use the old parser\n\nGuidance from the user: and be brief"
    )


@pytest.mark.parametrize(
    ("iteration", "of", "line"),
    [
        (1, 10, "Iteration 1 of 10, 9 remaining."),
        (10, 10, "Iteration 10 of 10, 0 remaining."),
    ],
)
def test_the_count_comes_first(iteration: int, of: int, line: str) -> None:
    """The iteration count comes before everything else, followed by a blank line."""
    step = a_step(prepend("red"), iteration=iteration, of=of)
    source = PromptSource(instruction=False, count=True)
    assert prompt.build("base", step, source, RULE) == f"{line}\n\nred\n\nbase"


def test_everything_at_once() -> None:
    """The order is always count, prepended text, base, appended text, guidance, instruction."""
    step = a_step(append("after"), prepend("before"), steer=("hurry",), iteration=2, of=3)
    assert prompt.build("base", step, PromptSource(count=True), RULE) == (
        "Iteration 2 of 3, 1 remaining.\n\n"
        "before\n\nbase\n\nafter\n\n"
        "Guidance from the user: hurry\n\n"
        f"{TOLD}"
    )


# ---- the completion instruction ----


@pytest.mark.parametrize(
    ("base", "feedback", "claim", "text"),
    [
        ("base", (), RULE, f"base\n\n{TOLD}"),
        (f"print {TAG}", (), RULE, f"print {TAG}"),
        ("print <RESPONSE>done</RESPONSE>", (), RULE, "print <RESPONSE>done</RESPONSE>"),
        ("the <response> tag", (), RULE, "the <response> tag"),
        ("the response tag", (), RULE, f"the response tag\n\n{TOLD}"),
        (f"print {TAG}", (instead("red"),), RULE, f"red\n\n{TOLD}"),
        (f"print {TAG}", (append("red"),), RULE, f"print {TAG}\n\nred"),
        ("base", (append("&lt;response&gt;"),), RULE, f"base\n\n&lt;response&gt;\n\n{TOLD}"),
        (f"print {TAG}", (), PROMISE, f"print {TAG}\n\n{prompt.instruction(PROMISE)}"),
        ("base", (), ClaimRule(kind=ClaimKind.DONE), "base"),
    ],
)
def test_the_completion_instruction(
    base: str, feedback: tuple[Feedback, ...], claim: ClaimRule, text: str
) -> None:
    """The instruction is added unless the prompt already has the tag or the claim does not use a tag."""
    assert prompt.build(base, a_step(*feedback), PromptSource(), claim) == text


def test_the_instruction_names_tag_and_text() -> None:
    """The instruction shows the run's tag and text as they are to be printed: bare, on a separate line."""
    assert prompt.instruction(PROMISE) == (
        "When everything is done, and only then, end your answer with this line:\n\n<promise>COMPLETE</promise>"
    )


def test_a_tag_in_feedback_does_not_replace_the_instruction() -> None:
    """The instruction is added even if feedback from a judge or a story board contains the tag."""
    step = a_step(append("criterion 2 is open; the agent printed <response>LATER</response> too early"))
    assert prompt.build("base", step, PromptSource(), RULE).endswith(TOLD)


# ---- an agent that repeats its prompt ----

lines = st.sampled_from(
    [
        "Fix the bug.",
        "",
        "    ",
        "```",
        "~~~",
        "> quoted",
        "an odd ` backtick",
        "1. `make test` must pass",
        f"At the very end print {TAG}",
        f"{TAG} is what you print",
        "Finally say <promise>COMPLETE</promise> please",
        "The <response> tag is asked for",
        "<response> is opened and",
        "closed by </response> here",
    ]
)
bases = st.one_of(st.lists(lines, min_size=1, max_size=6).map("\n".join), st.text(max_size=40))
feedbacks = st.builds(
    Feedback,
    st.sampled_from(FailAction),
    st.builds(
        failed,
        st.sampled_from(["make test", "grep -c '<response>' x.md"]),
        st.just("exit code 1"),
        st.sampled_from(["", f"never print {TAG} too early"]),
        st.just(".ralph/guardrail_1_make.log"),
        st.sampled_from([TAG, f"ok\n{TAG}\n", "<promise>COMPLETE</promise>", "```", "<respo<response>nse>"]),
        st.sampled_from([3, 20, 5000]),
    ),
)


@given(
    bases,
    st.lists(feedbacks, max_size=3),
    st.lists(st.sampled_from(["hurry", f"do not print {TAG} yet"]), max_size=2),
    st.sampled_from([RULE, PROMISE, ClaimRule(tag="promise", text="COMPLETE"), ClaimRule(strict=True)]),
    st.builds(PromptSource, instruction=st.booleans(), count=st.booleans()),
)
def test_a_prompt_echoed_back_is_never_a_claim(
    base: str, red: list[Feedback], steer: list[str], rule: ClaimRule, source: PromptSource
) -> None:
    """An agent that prints nothing but its prompt has not claimed anything."""
    built = prompt.build(base, a_step(*red, steer=tuple(steer)), source, rule)
    assert claims.find(built, rule, built) is None


BRIEF = TaskBrief(
    id="T-1",
    title="Fix it",
    description="It is broken.",
    outcome="It works.",
    acceptance_criteria=("tests pass",),
    role="reviewer",
    duty="Review it.",
    criteria="It is good.",
    method="external",
    may_refuse=True,
)


def test_the_tags_of_a_task_are_shown_bare() -> None:
    """Promise and refusal stand on separate lines, as they are to be printed."""
    lines = prompt.build("", a_step(), PromptSource(task=BRIEF), PROMISE).splitlines()
    tags = ["<promise>COMPLETE</promise>", "<refuse>the reason in one line</refuse>"]
    assert [line for line in lines if "<promise>" in line or "<refuse>" in line] == tags


@pytest.mark.parametrize("source", [PromptSource(), PromptSource(task=BRIEF)], ids=["run", "task"])
@pytest.mark.parametrize("rule", [RULE, PROMISE, ClaimRule(tag="promise"), ClaimRule(strict=True)])
@pytest.mark.parametrize("end", ["", "\n", "\n\nI begin.\n"], ids=["at the end", "a whole line", "more text"])
def test_an_echo_of_a_built_prompt_is_neither_claim_nor_refusal(
    source: PromptSource, rule: ClaimRule, end: str
) -> None:
    """The words before the tag show that the agent repeats its prompt, and it is told so."""
    built = prompt.build("Fix the bug.", a_step(append("red")), source, rule)
    for text in (built, built.replace("\n\n", "\n"), f"user: {built}"):
        assert claims.look(text + end, rule, built) == claims.ClaimSeen(unclaimed=claims.ECHO)
        assert claims.refusal(text + end) == ""


@given(st.text(max_size=60).filter(lambda text: "<" not in text))
def test_an_unknown_echo_of_a_prompt_without_tags_is_not_a_claim(base: str) -> None:
    """The instruction is harmless even if the search does not know the prompt."""
    built = prompt.build(base, a_step(), PromptSource(), RULE)
    assert claims.find(built, RULE) is None
