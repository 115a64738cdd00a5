"""The question to a judge, and that only its own complete answer counts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.checks.judge import MAX_DIFF, MAX_MESSAGE, CriterionRuling, NoAnswer, question, read_answer

MET = {"criterion": 1, "met": True, "reason": "shown"}
UNMET = {"criterion": 2, "met": False, "reason": "missing"}
RULINGS = [CriterionRuling(1, True, "shown"), CriterionRuling(2, False, "missing")]
GOOD = json.dumps({"verdicts": [MET, UNMET]})


def answer(*verdicts: Any, **more: Any) -> str:
    return json.dumps({"verdicts": list(verdicts), **more})


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n  {GOOD}\n\n",
        f"```json\n{GOOD}\n```",
        json.dumps({"verdicts": [UNMET, MET]}, indent=2),
    ],
)
def test_one_ruling_for_each_criterion_is_an_answer(text: str) -> None:
    """In any order, with white space around, in one fence: the rulings come in the order of the criteria."""
    assert read_answer(text, 2) == RULINGS


NO_OBJECT = "it is not a single JSON object and nothing else"
NO_KEYS = "it does not have exactly the requested keys and types"
NOT_EACH = "it does not have exactly one entry for each criterion"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", NO_OBJECT),
        ("VERIFIED", NO_OBJECT),
        ("VERIFIED: All criteria appear to be met", NO_OBJECT),
        (f"Here it is: {GOOD}", NO_OBJECT),
        (f"{GOOD}\nThat is all.", NO_OBJECT),
        (f"{GOOD}\n{GOOD}", NO_OBJECT),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", NO_OBJECT),
        (f"```\n{GOOD}\n```", NO_OBJECT),
        (f"```json\n{GOOD}", NO_OBJECT),
        ('{"verdicts": [], "verdicts": []}', NO_OBJECT),
        (GOOD.replace('"met": false', '"met": false, "met": true'), NO_OBJECT),
        ("[" * 100_000, NO_OBJECT),
        ("9" * 10_000, NO_OBJECT),
        ('{"verdicts": NaN}', NO_OBJECT),
        ("true", NO_KEYS),
        ("[]", NO_KEYS),
        (json.dumps([MET, UNMET]), NO_KEYS),
        ("{}", NO_KEYS),
        (answer(MET, UNMET, note="x"), NO_KEYS),
        (answer(MET, UNMET | {"note": "x"}), NO_KEYS),
        (answer(MET, {"criterion": 2, "met": True}), NO_KEYS),
        (answer(MET, UNMET | {"met": "true"}), NO_KEYS),
        (answer(MET, UNMET | {"met": 1}), NO_KEYS),
        (answer(MET, UNMET | {"met": None}), NO_KEYS),
        (answer(MET, UNMET | {"criterion": "2"}), NO_KEYS),
        (answer(MET, UNMET | {"criterion": 2.0}), NO_KEYS),
        (answer(MET | {"criterion": True}, UNMET), NO_KEYS),
        (answer(MET, UNMET | {"reason": ""}), NO_KEYS),
        (answer(MET, UNMET | {"reason": " \n"}), "a reason is empty"),
        (answer(), NOT_EACH),
        (answer(MET), NOT_EACH),
        (answer(MET, MET), NOT_EACH),
        (answer(MET, UNMET, UNMET), NOT_EACH),
        (answer(MET, UNMET, UNMET | {"criterion": 3}), NOT_EACH),
        (answer(MET | {"criterion": 0}, UNMET), NOT_EACH),
    ],
)
def test_anything_else_is_not_an_answer(text: str, why: str) -> None:
    """Text around it, other keys, other types, missing or duplicate criteria: not an answer, with the reason."""
    with pytest.raises(NoAnswer, match=f"^{re.escape(why)}$"):
        read_answer(text, 2)


def test_reasons_become_one_harmless_line() -> None:
    """Tags, escape sequences, lone surrogates and line breaks are removed, and long reasons are cut."""
    odd = r'{"verdicts": [{"criterion": 1, "met": true, "reason": "<promise>a\n\u001b[31mb\ud800"}]}'
    long = answer(MET | {"reason": "x" * 1000})
    assert read_answer(odd, 1) == [CriterionRuling(1, True, "&lt;promise&gt;a b\ufffd")]
    assert read_answer(long, 1) == [CriterionRuling(1, True, "x" * 485 + "... [truncated]")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 4) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["verdicts", "criterion", "met", "reason", "x"]), inner, max_size=4)
    ),
)
NEARLY = st.fixed_dictionaries(
    {
        "verdicts": st.lists(
            st.fixed_dictionaries(
                {
                    "criterion": st.integers(0, 3) | JSON,
                    "met": st.booleans() | JSON,
                    "reason": st.sampled_from(["yes", "no", " "]) | JSON,
                },
                optional={"x": st.just(1)},
            ),
            max_size=4,
        )
    },
    optional={"x": st.just(1)},
)
AROUND = st.sampled_from(["", "", " ", "\n", "```json\n", "\n```", "```", "VERIFIED", "{", "}", ","])


def is_answer(value: Any, count: int) -> bool:
    """A second, independent definition of an answer."""
    return (
        isinstance(value, dict)
        and value.keys() == {"verdicts"}
        and isinstance(value["verdicts"], list)
        and all(
            isinstance(entry, dict)
            and entry.keys() == {"criterion", "met", "reason"}
            and type(entry["criterion"]) is int
            and type(entry["met"]) is bool
            and isinstance(entry["reason"], str)
            and entry["reason"].strip() != ""
            for entry in value["verdicts"]
        )
        and sorted(entry["criterion"] for entry in value["verdicts"]) == list(range(1, count + 1))
    )


@given(JSON | NEARLY, AROUND, AROUND, st.integers(1, 3))
def test_only_an_object_of_this_format_is_an_answer(value: Any, before: str, after: str, count: int) -> None:
    """A text is an answer exactly if all of it is an object of this format, or one in a fence."""
    is_whole = not before.strip() and not after.strip()
    is_fenced = before == "```json\n" and after == "\n```"
    expected = is_answer(value, count) and (is_whole or is_fenced)
    text = before + json.dumps(value) + after
    if expected:
        by_number = sorted(value["verdicts"], key=lambda entry: int(entry["criterion"]))
        assert [ruling.met for ruling in read_answer(text, count)] == [entry["met"] for entry in by_number]
    else:
        with pytest.raises(NoAnswer):
            read_answer(text, count)


@given(st.text(max_size=60), st.integers(1, 3))
def test_free_text_is_not_an_answer(text: str, count: int) -> None:
    """No short text can be a ruling by accident."""
    if '"criterion"' not in text:
        with pytest.raises(NoAnswer):
            read_answer(text, count)


# ---- the question ----


def test_the_question_has_criteria_and_both_texts() -> None:
    """Numbered criteria first, then the message and the diff as data, then the format of the answer."""
    asked = question(["It works", "It is\nfast"], "I did it.", "+code")
    token = re.search(r"BEGIN DIFF (\w{32})\n", asked)
    assert token is not None
    assert asked.index("1. It works\n2. It is\n   fast\n") < asked.index("BEGIN FINAL MESSAGE")
    assert f"\nBEGIN FINAL MESSAGE {token[1]}\nI did it.\nEND FINAL MESSAGE {token[1]}\n" in asked
    assert f"\nBEGIN DIFF {token[1]}\n+code\nEND DIFF {token[1]}\n" in asked
    assert asked.rindex("numbers 1 to 2") > asked.rindex("END DIFF")


def test_the_boundary_cannot_be_known() -> None:
    """Every question has its own token, so that no text can end the data early."""
    tokens = {re.findall(r"BEGIN DIFF (\w+)\n", question(["x"], "", "y"))[0] for _ in range(20)}
    assert len(tokens) == 20


def test_an_empty_message_and_an_empty_diff_are_marked() -> None:
    """An empty section would look like a mistake."""
    asked = question(["x"], "", "")
    assert "\n(none)\nEND FINAL MESSAGE" in asked
    assert "\n(no changes)\nEND DIFF" in asked
    assert "number 1, and no other keys" in asked


def test_long_texts_are_cut_with_a_note() -> None:
    """The judge is told that some text is missing."""
    added = "".join(f"+{number}\n" for number in range(100_000))
    diff = f"diff --git a/x b/x\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,100000 @@\n{added}"
    asked = question(["x"], "m" * (MAX_MESSAGE + 1), diff)
    assert f"m\n[... cut: only the first 20,000 of {MAX_MESSAGE + 1:,} characters are shown]\n" in asked
    assert f"[cut: not all of the {len(diff):,} characters are shown]\n" in asked
    assert len(asked) < MAX_MESSAGE + MAX_DIFF + 3000


def test_a_second_question_says_what_was_wrong_with_the_first_answer() -> None:
    """A careless judge gets a second chance."""
    assert question(["x"], "", "", "a reason is empty").endswith(
        "\n\nAn earlier answer could not be used: a reason is empty.\n"
    )
