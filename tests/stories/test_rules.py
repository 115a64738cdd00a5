"""The rules of a PRD loop, line by line, and all transitions of two stories against a table written by hand."""

from __future__ import annotations

import itertools
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import some
from ralph.stories import rules
from ralph.stories.enforce import UNVERIFIED, ReviewPolicy, ruled
from ralph.stories.rules import (
    APPROVED,
    AT_CAP,
    CHANGES_REQUESTED,
    IMPLEMENT,
    NEEDS_REVIEW,
    REVIEW,
    REVIEW_FIX,
)

MODES = (IMPLEMENT, REVIEW, REVIEW_FIX)


def story(id: str = "US-001", **values: Any) -> dict[str, Any]:
    usual = {
        "id": id,
        "title": "A story",
        "description": "",
        "acceptanceCriteria": ["It works"],
        "priority": 1,
        "passes": False,
        "reviewStatus": None,
        "reviewCount": 0,
        "reviewFeedback": "",
        "notes": "done so",
        "dependsOn": [],
    }
    return usual | values


def board(*found: Any, **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "project": "p",
        "branchName": "ralph/x",
        "description": "d",
        "verifyCommands": ["true"],
    }
    return usual | {"userStories": list(found)} | values


# ---- check 1 ----


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ([], "must be an object, not an array"),
        ({}, "the field 'project' is missing"),
        (board(project=1), "'project' must be a string, not 1"),
        (board(userStories={}), "'userStories' must be an array"),
        (board(story(), "x"), "userStories[1] must be an object, not a string"),
        (board(story(passes="yes")), "Story US-001: 'passes' must be true or false, not \"yes\""),
        (board(story(priority="1")), "'priority' must be a number"),
        (board(story(priority=True)), "'priority' must be a number, not true"),
        (board(story(acceptanceCriteria=[])), "'acceptanceCriteria' must be a non-empty array"),
        (board(story(reviewStatus="done")), "'reviewStatus' must be null"),
        (board(story(reviewCount=-1)), "'reviewCount' must be a non-negative integer, not -1"),
        (board(story(reviewCount=1.5)), "'reviewCount' must be a non-negative integer"),
        (board(story(reviewFeedback=None)), "'reviewFeedback' must be a string, not null"),
        (board(story(""), story("US-2")), "Story number 1: 'id' must be a non-empty string"),
        (board(story(), story()), "Duplicate story id: US-001"),
        (board(story(passes=True, notes=" ")), "passes=true but empty notes"),
        (board(story(dependsOn=["US-9"])), "names US-9, which is not a story"),
        (board(story(dependsOn=["US-001"])), "dependency cycle: US-001 → US-001"),
        (board(story("A", dependsOn=["B"]), story("B", dependsOn=["A"])), "A → B → A"),
        (board(story(), verifyCommands="make"), "'verifyCommands' must be an array of strings"),
    ],
)
def test_schema(broken: Any, words: str) -> None:
    """Check 1 names the story, the field and the expected value."""
    assert any(words in each for each in rules.schema_problems(broken)), rules.schema_problems(broken)


def test_a_valid_list_has_no_problem() -> None:
    """Neither form nor invariants report anything for a new or a finished list."""
    done = story("US-2", passes=True, reviewStatus=APPROVED, reviewCount=1)
    assert rules.schema_problems(board(story(), done)) == []
    assert rules.invariant_problems(board(story(), done)) == []


# ---- check 2 ----


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"passes": True}, "passes=true but reviewStatus is 'null', not 'approved'"),
        ({"passes": True, "reviewStatus": NEEDS_REVIEW}, "reviewStatus is 'needs_review', not 'approved'"),
        (
            {"passes": True, "reviewStatus": CHANGES_REQUESTED, "reviewFeedback": "x"},
            "reviewStatus is 'changes_requested', not 'approved'",
        ),
        ({"reviewStatus": CHANGES_REQUESTED}, "feedback is required"),
        ({"reviewStatus": APPROVED}, "passes=false"),
        ({"reviewCount": 7}, "at most 6"),
    ],
)
def test_invariants(values: dict[str, Any], words: str) -> None:
    """Check 2: the invariants of every state, in the wording of the table."""
    found = rules.invariant_problems(board(story(**values)))
    assert len(found) == 1 and words in found[0]


# ---- modes ----


@pytest.mark.parametrize(
    ("found", "mode", "active"),
    [
        ([story()], IMPLEMENT, "US-001"),
        ([story("A"), story("B", reviewStatus=NEEDS_REVIEW)], REVIEW, "B"),
        (
            [
                story("A", reviewStatus=NEEDS_REVIEW),
                story("B", reviewStatus=CHANGES_REQUESTED, reviewFeedback="x"),
            ],
            REVIEW_FIX,
            "B",
        ),
        ([story("A", priority=2), story("B", priority=1)], IMPLEMENT, "B"),
        ([story("A", priority=1, dependsOn=["B"]), story("B", priority=2)], IMPLEMENT, "B"),
        ([story("A", passes=True, reviewStatus=APPROVED)], IMPLEMENT, ""),
    ],
)
def test_modes(found: list[dict[str, Any]], mode: str, active: str) -> None:
    """Review-fix before review before implement; then dependencies, then priority."""
    assert (rules.mode_of(board(*found)), rules.next_story(board(*found))) == (mode, active)


def test_without_reviews_there_is_one_mode() -> None:
    """`--skip-review`: every iteration implements."""
    found = board(story(reviewStatus=NEEDS_REVIEW))
    assert rules.mode_of(found, skip_review=True) == IMPLEMENT
    assert rules.next_story(found, skip_review=True) == "US-001"


@pytest.mark.parametrize(
    ("found", "reviewed", "plain"),
    [
        ([], False, False),
        ([story()], False, False),
        ([story(passes=True)], False, True),
        ([story(passes=True, reviewStatus=APPROVED)], True, True),
        ([story(passes=True, reviewStatus=APPROVED), story("B")], False, False),
    ],
)
def test_completion(found: list[dict[str, Any]], reviewed: bool, plain: bool) -> None:
    """All stories pass and are approved; without reviews, all pass."""
    assert rules.is_complete(board(*found)) is reviewed
    assert rules.is_complete(board(*found), skip_review=True) is plain


# ---- check 2.5, exhaustively ----

STATES: list[dict[str, Any]] = [
    {"passes": passes, "reviewStatus": status, "reviewCount": count, "reviewFeedback": feedback}
    for passes in (False, True)
    for status in (None, NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED)
    for count in (0, 1, 2)
    for feedback in ("", "fix it")
]
FIELDS = ("passes", "reviewStatus", "reviewCount")


def core(state: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(state[field] for field in FIELDS)


def oracle(mode: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a change of this story alone is legal. Written from the table, not from the code."""
    before, after = core(old), core(new)
    passes, status, count = before
    if mode == IMPLEMENT:
        return after == before or (status is None and after == (passes, NEEDS_REVIEW, count))
    if mode == REVIEW:
        approves = after == (True, APPROVED, count + 1)
        rejects = after == (False, CHANGES_REQUESTED, count + 1) and new["reviewFeedback"] != ""
        return status == NEEDS_REVIEW and (approves or rejects)
    resubmits = status == CHANGES_REQUESTED and after == (passes, NEEDS_REVIEW, count)
    return after == before or (resubmits and new["reviewFeedback"] == "")


@pytest.mark.parametrize("mode", MODES)
def test_every_transition_of_one_story(mode: str) -> None:
    """All states to all states, in every mode: legal exactly where the table says so."""
    for old, new in itertools.product(STATES, STATES):
        snapshot = rules.snapshot(board(story(**old)))
        found = rules.transition_problems(snapshot, board(story(**new)), mode)
        assert (found == []) is oracle(mode, old, new), (mode, old, new, found)


@pytest.mark.parametrize("mode", some(MODES, 1))
def test_every_transition_of_two_stories(mode: str) -> None:
    """Changing two stories at once is never legal; a change of one of two is judged as if alone."""
    states = [state for state in STATES if state["reviewCount"] < 2 and not state["reviewFeedback"]]
    for a, b, c, d in itertools.product(states, repeat=4):
        changed = (core(a) != core(b)) + (core(c) != core(d))
        snapshot = rules.snapshot(board(story("A", **a), story("B", **c)))
        found = rules.transition_problems(snapshot, board(story("A", **b), story("B", **d)), mode)
        if changed == 2:
            assert found != []
        elif changed == 1:
            old, new = (a, b) if core(a) != core(b) else (c, d)
            assert (found == []) is oracle(mode, old, new)


@pytest.mark.parametrize(
    ("mode", "old", "new", "words"),
    [
        (IMPLEMENT, {}, {"passes": True}, "cannot set passes=true or approve stories"),
        (IMPLEMENT, {}, {"reviewStatus": APPROVED}, 'reviewStatus null → "approved"'),
        (IMPLEMENT, {}, {"reviewCount": 1}, "reviewCount 0 → 1"),
        (
            REVIEW,
            {"reviewStatus": NEEDS_REVIEW},
            {"reviewStatus": APPROVED, "passes": True},
            "increment reviewCount",
        ),
        (
            REVIEW_FIX,
            {"reviewStatus": CHANGES_REQUESTED},
            {"passes": True},
            "Review-fix iterations cannot approve",
        ),
        (REVIEW_FIX, {"reviewStatus": CHANGES_REQUESTED}, {"reviewCount": 1}, "reviewCount 0 → 1"),
    ],
)
def test_wording_of_transitions(mode: str, old: dict[str, Any], new: dict[str, Any], words: str) -> None:
    """A reason names the story, the field, the old and the new value."""
    snapshot = rules.snapshot(board(story(**old)))
    found = rules.transition_problems(snapshot, board(story(**(old | new))), mode)
    assert found and "US-001" in found[0] and any(words in each for each in found)


def test_two_reviews_are_called_multiple_stories() -> None:
    """A review of several says `multiple stories`."""
    waiting = {"reviewStatus": NEEDS_REVIEW}
    approved = {"reviewStatus": APPROVED, "passes": True, "reviewCount": 1}
    snapshot = rules.snapshot(board(story("A", **waiting), story("B", **waiting)))
    (found,) = rules.transition_problems(
        snapshot, board(story("A", **approved), story("B", **approved)), REVIEW
    )
    assert "multiple stories" in found and "A, B" in found


@pytest.mark.parametrize("mode", MODES)
def test_new_and_removed_stories(mode: str) -> None:
    """New stories start incomplete, in every mode; none may be removed."""
    snapshot = rules.snapshot(board(story(reviewStatus=NEEDS_REVIEW)))
    legal: dict[str, Any] = {REVIEW: {"reviewStatus": APPROVED, "passes": True, "reviewCount": 1}}.get(
        mode, {"reviewStatus": NEEDS_REVIEW}
    )
    first = story(**legal)
    assert rules.transition_problems(snapshot, board(first, story("B")), mode) == []
    assert (
        "New stories start incomplete"
        in rules.transition_problems(snapshot, board(first, story("B", passes=True)), mode)[0]
    )
    assert "was removed" in rules.transition_problems(snapshot, board(), mode)[0]


# ---- Ralph undoes what is illegal ----


@pytest.mark.parametrize("mode", MODES)
def test_hook_and_ralph_agree(mode: str) -> None:
    """Changes that the hook approves stay; those it blocks are undone, and the result is legal.

    The hook does not know earlier feedback; Ralph restores feedback that belongs to no decision.
    """
    for old, new in itertools.product(STATES, STATES):
        before, after = board(story(**old)), board(story(**new))
        if rules.invariant_problems(before):
            continue
        ruling = ruled(before, after, ReviewPolicy(mode, review_cap=9))
        (one,) = ruling.board["userStories"]
        blocked = rules.transition_problems(rules.snapshot(before), after, mode)
        is_decision = core(old) != core(new) and mode != IMPLEMENT
        if not blocked and not is_decision:
            assert one == story(**new) | {"reviewFeedback": old["reviewFeedback"]}
        elif not blocked:
            assert ruling.board == after and ruling.undone == ()
        elif core(old) != core(new):
            assert ruling.undone
            assert {field: one[field] for field in (*FIELDS, "reviewFeedback")} == old


ENDS: list[dict[str, Any]] = [
    {"passes": passes, "reviewStatus": status, "reviewCount": count, "reviewFeedback": feedback}
    for passes in (False, True)
    for status, feedback in (
        (None, ""),
        (NEEDS_REVIEW, ""),
        (CHANGES_REQUESTED, "fix it"),
        (APPROVED, ""),
    )
    for count in (0, 1)
]
"""Feedback only where it belongs to a decision."""

BEGINNINGS = [end for end in ENDS if not rules.invariant_problems(board(story(**end)))]


@pytest.mark.slow
@pytest.mark.parametrize("mode", some(MODES, 1))
def test_hook_and_ralph_agree_about_two_stories(mode: str) -> None:
    """For all possible changes of two stories, the hook blocks exactly what Ralph undoes.

    The result is legal by the table, and legal changes are kept. Only a review without a decision is blocked although
    there is nothing to undo.
    """
    for a, c in itertools.product(BEGINNINGS, repeat=2):
        before = board(story("A", **a), story("B", priority=2, **c))
        snapshot = rules.snapshot(before)
        for b, d in itertools.product(ENDS, repeat=2):
            after = board(story("A", **b), story("B", priority=2, **d))
            changes = [(old, new) for old, new in ((a, b), (c, d)) if old != new]
            legal = [change for change in changes if oracle(mode, *change)]
            blocked = rules.invariant_problems(after) + rules.transition_problems(snapshot, after, mode)
            ruling = ruled(before, after, ReviewPolicy(mode, review_cap=9))
            is_idle_review = mode == REVIEW and not changes
            assert bool(blocked) is (is_idle_review or len(changes) > len(legal) or len(legal) > 1)
            assert bool(ruling.undone) is (bool(blocked) and not is_idle_review), (mode, before, after)
            left = [
                (old, {field: one[field] for field in old})
                for old, one in zip((a, c), ruling.board["userStories"], strict=True)
                if any(one[field] != old[field] for field in old)
            ]
            assert len(left) == min(len(legal), 1) and all(change in legal for change in left)


NAMES: st.SearchStrategy[Any] = st.sampled_from(
    ["A", "B", "C", "D", "a", "A ", "\u0410", "N\n", "", 3, None, [], {}]
)
ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.text(max_size=3)
    | st.lists(st.text(max_size=2), max_size=2)
)


def near(value: Any) -> st.SearchStrategy[Any]:
    return st.just(value) | ANYTHING


def any_story() -> st.SearchStrategy[Any]:
    usual = story()
    fields = {key: near(value) for key, value in usual.items()} | {
        "id": NAMES,
        "reviewStatus": st.sampled_from([None, NEEDS_REVIEW, CHANGES_REQUESTED, APPROVED, "x"]),
        "dependsOn": st.lists(st.sampled_from(["A", "B", "C", "D"]), max_size=2),
    }
    return st.fixed_dictionaries({}, optional=fields) | ANYTHING


@given(
    st.sampled_from(MODES),
    st.booleans(),
    st.lists(any_story(), max_size=4) | ANYTHING,
    near(["true"]),
    near("ralph/x"),
)
def test_whatever_an_agent_leaves_the_list_is_valid_again(
    mode: str, skip: bool, left: Any, commands: Any, branch: Any
) -> None:
    """After any damage the list is well-formed again, with every story and unchanged commands."""
    before = board(
        story("A"),
        story("B", reviewStatus=NEEDS_REVIEW),
        story("C", reviewStatus=CHANGES_REQUESTED, reviewFeedback="x"),
        story("Z", reviewStatus=APPROVED, passes=True, reviewCount=5, reviewFeedback=f"{AT_CAP} y"),
    )
    after = board(verifyCommands=commands, branchName=branch) | {"userStories": left}
    ruling = ruled(before, deepcopy(after), ReviewPolicy(mode, skip_review=skip))
    assert rules.schema_problems(ruling.board) == []
    ids = [each["id"] for each in ruling.board["userStories"]]
    assert {"A", "B", "C", "Z"} <= set(ids) <= {"A", "B", "C", "D", "Z"}
    assert (ruling.board["verifyCommands"], ruling.board["branchName"]) == (["true"], "ralph/x")
    assert (ruling.board == after) is (ruling.undone == ())
    assert rules.approved_at_cap(ruling.board)[-1:] == ["Z"] or skip
    if not skip:
        assert rules.invariant_problems(ruling.board) == []
    assert rules.schema_problems(ruling.unapproved) == []
    assert [each["id"] for each in ruling.unapproved["userStories"] if each["passes"]] in (["Z"], [])


def test_criteria_may_only_be_added() -> None:
    """A removed criterion comes back; a new one stays."""
    before = board(story(acceptanceCriteria=["a", "b"]))
    ruling = ruled(before, board(story(acceptanceCriteria=["b", "c"])), ReviewPolicy(IMPLEMENT))
    assert ruling.board["userStories"][0]["acceptanceCriteria"] == ["a", "b", "c"]
    assert "may only be added; restored: a" in ruling.undone[0]


def test_of_two_reviews_the_one_whose_turn_it_was_counts() -> None:
    """The other decision is undone, with its feedback."""
    waiting = {"reviewStatus": NEEDS_REVIEW}
    approved = {"reviewStatus": APPROVED, "passes": True, "reviewCount": 1}
    before = board(story("A", priority=2, **waiting), story("B", priority=1, **waiting))
    ruling = ruled(
        before,
        board(story("A", priority=2, **approved), story("B", priority=1, **approved)),
        ReviewPolicy(REVIEW),
    )
    assert ruling.approved == ("B",)
    assert ruling.board["userStories"][0]["reviewStatus"] == NEEDS_REVIEW


def test_the_cap_approves_with_a_note() -> None:
    """At the cap a rejected story is approved, and the remaining feedback stays as a note for people."""
    before = board(story(reviewStatus=NEEDS_REVIEW))
    after = board(story(reviewStatus=CHANGES_REQUESTED, reviewCount=1, reviewFeedback="no tests"))
    ruling = ruled(before, after, ReviewPolicy(REVIEW, review_cap=1))
    (one,) = ruling.board["userStories"]
    assert (one["passes"], one["reviewStatus"], one["reviewFeedback"]) == (
        True,
        APPROVED,
        f"{AT_CAP} no tests",
    )
    assert (ruling.approved, ruling.at_cap) == (("US-001",), ("US-001",))
    assert ruling.undone == (
        "Story US-001 still had changes requested after review 1, at the cap of 1: approved with a note",
    )


def test_an_approval_that_is_not_verified_sends_the_story_back() -> None:
    """It needs fixing, and the review does not count: it uses up neither the cap nor a fix."""
    before = board(story(reviewStatus=NEEDS_REVIEW, reviewCount=1))
    after = board(story(reviewStatus=APPROVED, passes=True, reviewCount=2))
    (one,) = ruled(before, after, ReviewPolicy(REVIEW)).unapproved["userStories"]
    assert core(one) == (False, CHANGES_REQUESTED, 1) and one["reviewFeedback"] == UNVERIFIED
    plain = ruled(board(story()), board(story(passes=True)), ReviewPolicy(IMPLEMENT, skip_review=True))
    assert core(plain.unapproved["userStories"][0]) == (False, None, 0)


WAITING: dict[str, Any] = {"reviewStatus": NEEDS_REVIEW}
DONE: dict[str, Any] = {"reviewStatus": APPROVED, "passes": True, "reviewCount": 1}


@pytest.mark.parametrize(
    ("mode", "old", "new", "words"),
    [
        (
            REVIEW,
            [story("A", **WAITING)],
            [story("A", **DONE, reviewFeedback=AT_CAP)],
            "after only 1 of 5 reviews",
        ),
        (REVIEW, [story("A", **WAITING, notes="")], [story("A", **DONE, notes="")], "with empty notes"),
        (IMPLEMENT, [story("A", **DONE)], [story("A", **DONE, notes="")], "'notes' was reverted"),
        (IMPLEMENT, [story("A")], [story("A"), story("a")], "could be mistaken for A"),
        (IMPLEMENT, [story("A")], [story("A"), story("\u0410")], "only have printable ASCII characters"),
        (IMPLEMENT, [story("A")], [story("A"), story("A\u200b")], "only have printable ASCII characters"),
        (IMPLEMENT, [story("A")], [story("A"), story(" A")], "only have printable ASCII characters"),
        (IMPLEMENT, [story("A")], [story("A"), story("A")], "duplicate id"),
        (IMPLEMENT, [story("A")], [story("A"), {"id": ["A"]}], "a story is an object with an id"),
        (IMPLEMENT, [story("A")], [story("A"), {"id": "B"}], "no acceptance criteria"),
        (IMPLEMENT, [story("A")], [story("A", priority=float("inf"))], "'priority' was reverted"),
        (IMPLEMENT, [story("A", dependsOn=[])], [story("A", dependsOn=["A"])], "dependency cycle"),
    ],
)
def test_wording_of_undone_changes(mode: str, old: list[Any], new: list[Any], words: str) -> None:
    """Each change is restored, with a reason."""
    ruling = ruled(board(*old), board(*new), ReviewPolicy(mode))
    assert ruling.board == board(*old)
    assert any(words in each for each in ruling.undone), ruling.undone


def test_ids_in_peoples_own_letters_may_grow() -> None:
    """New ids may use the letters of the old ones."""
    after = board(story("Größe-1"), story("Größe-2"))
    assert ruled(board(story("Größe-1")), after, ReviewPolicy(IMPLEMENT)).board == after


def test_missing_fields_of_a_new_story_are_filled_in_and_reported() -> None:
    """The list is valid, and the next iteration learns what was expected."""
    new = {"id": "US-002", "acceptanceCriteria": ["x"], "dependsOn": 3}
    ruling = ruled(board(story()), board(story(), new), ReviewPolicy(IMPLEMENT))
    assert rules.schema_problems(ruling.board) == []
    assert "New story US-002: 'reviewFeedback' must be a string; set to \"\"" in ruling.undone
    assert "New story US-002: 'dependsOn' must be an array of story ids; removed" in ruling.undone


def test_without_reviews_the_review_fields_stay() -> None:
    """`--skip-review`: `passes` counts, reviewStatus and reviewCount stay as they were."""
    ruling = ruled(
        board(story()),
        board(story(passes=True, reviewStatus=APPROVED)),
        ReviewPolicy(IMPLEMENT, skip_review=True),
    )
    assert ruling.approved == ("US-001",)
    assert ruling.board["userStories"][0]["reviewStatus"] is None
