"""The script format: valid scripts, and error messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ralph.errors import RalphError
from ralph.modelserver.script import (
    Edit,
    ModelScript,
    ModelTurn,
    Named,
    TodoEntry,
    TokenCounts,
    Tool,
    UsageLimit,
    Write,
    load,
    parse,
)


def answers(script: ModelScript, *asked: str) -> list[int | None]:
    """The turn for each of these requests, in sequence."""
    played = [0] * len(script.turns)
    found = []
    for said in asked:
        index = script.turn(said, played)
        if index is not None:
            played[index] += 1
        found.append(index)
    return found


def test_a_script_with_everything() -> None:
    """Every key of a turn becomes a value."""
    script = parse(
        """
        then: error
        side: fine
        turns:
          - thinking: hm
            text: hello
            usage: {input: 5, output: 6, cached: 1}
            times: 2
            delay: 0.5
            tools:
              - bash: ls
              - read: a.txt
              - write: {path: a.txt, content: "x"}
              - edit: {path: a.txt, old: x, new: y}
              - todo: [first, {text: second, status: completed}]
              - call: {name: WebFetch, input: {url: "http://127.0.0.1"}}
          - usage_limit: {resets_at: 1700000000}
            times: forever
        """
    )
    tools = [
        Tool(bash="ls"),
        Tool(read="a.txt"),
        Tool(write=Write("a.txt", "x")),
        Tool(edit=Edit("a.txt", "x", "y")),
        Tool(todo=["first", TodoEntry("second", "completed")]),
        Tool(call=Named("WebFetch", {"url": "http://127.0.0.1"})),
    ]
    first = ModelTurn("hello", "hm", tools, TokenCounts(5, 6, 1), 2, 0.5)
    second = ModelTurn(usage_limit=UsageLimit(1700000000), times="forever")
    assert script == ModelScript([first, second], "error", "fine")


def test_json_is_a_script_too(tmp_path: Path) -> None:
    """A script may be a JSON file."""
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"turns": [{"text": "a"}]}))
    assert load(str(file)) == ModelScript([ModelTurn("a")])


def test_which_turn_answers() -> None:
    """Turns repeat as configured, the last one forever."""
    script = parse("turns: [{text: a, times: 2}, {text: b}, {text: c}]")
    assert answers(script, *[""] * 6) == [0, 0, 1, 2, 2, 2]


def test_a_turn_forever_hides_what_follows() -> None:
    """After `times: forever` no later turn is played."""
    script = parse("turns: [{text: a, times: forever}, {text: b}]")
    assert answers(script, *[""] * 1000)[-1] == 0


def test_then_error() -> None:
    """A script can end."""
    script = parse("{turns: [{text: a}], then: error}")
    assert answers(script, "", "") == [0, None]


def test_turns_for_some_requests() -> None:
    """A request that matches a `when` gets those turns in order, whenever it comes; all others get the rest."""
    script = parse(
        "{turns: [{text: a}, {when: judge, text: b}, {text: c}, {when: judge, text: d}], then: error}"
    )
    assert answers(script, "work", "a judge", "work", "the judge", "judge", "work") == [
        0,
        1,
        2,
        3,
        None,
        None,
    ]


def test_the_last_turn_for_some_requests_is_repeated() -> None:
    """Each of these sequences repeats its last turn; without turns for the others, they get nothing."""
    script = parse("turns: [{when: x, text: a}, {when: y, text: b}]")
    assert answers(script, "x", "x", "y", "xy", "z") == [0, 0, 1, 1, None]


def test_resets_in_counts_from_the_answer() -> None:
    """`resets_in` is relative, `resets_at` is absolute."""
    assert (UsageLimit(resets_in=60).reset(1000.9), UsageLimit(resets_at=5).reset(1000.9)) == (1060, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("turns: [{txt: a}]", "s.yaml: turns[0]: Object contains unknown field `txt`."),
        ("{turns: [{text: a}], extra: 1}", "s.yaml: Object contains unknown field `extra`."),
        ("turns: []", "s.yaml: turns: Expected `array` of length >= 1."),
        ("{}", "s.yaml: Object missing required field `turns`."),
        ("turns: [{text: 1}]", "s.yaml: turns[0].text: Expected `str`, got `int`."),
        ("turns: [{text: a, times: 0}]", "s.yaml: turns[0].times: Expected `int` >= 1."),
        ("turns: [{status: 200}]", "s.yaml: turns[0].status: Expected `int` >= 400."),
        (
            "turns: [{tools: [{bash: a, read: b}]}]",
            "s.yaml: turns[0].tools[0]: Expected exactly one of bash, read, write, edit, todo, call.",
        ),
        ("turns: [{tools: [{write: {path: a}}]}]", "turns[0].tools[0].write: Object missing required field"),
        (
            "turns: [{hang: true, cut: true, text: a}]",
            "turns[0]: Expected at most one fault, found hang and cut.",
        ),
        ("turns: [{body: {}}]", "turns[0]: Expected `status` along with `body`."),
        (
            "turns: [{text: a, type: b}]",
            "turns[0]: Expected `status` or `stream_error` along with `type`",
        ),
        (
            "turns: [{empty: true, text: a}]",
            "turns[0]: Expected no text, thinking or tools in an empty turn.",
        ),
        ("turns: [{delay: 1}]", "turns[0]: Expected text, thinking, tools or a fault"),
        (
            "turns: [{text: a, usage: {cached: 2, input: 1}}]",
            "turns[0].usage: Expected `cached` to be at most",
        ),
        ("turns: [\n  {text: a\n", "s.yaml:3: not valid YAML: "),
        ("just text", "s.yaml: Expected `object`, got `str`."),
        ("", "s.yaml: Expected `object`, got `null`."),
    ],
)
def test_errors_name_file_and_key(text: str, message: str) -> None:
    """Unknown keys, wrong types and contradictions are one line that names the place."""
    with pytest.raises(RalphError) as error:
        parse(text, "s.yaml")
    assert message in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("body", ["&a {b: *a}", "{b: 2026-01-01}"])
def test_a_body_that_is_not_json(body: str) -> None:
    """Values that YAML allows and JSON does not, such as cycles and dates, are an ordinary error."""
    with pytest.raises(RalphError, match="cannot be sent as JSON"):
        parse(f"turns: [{{status: 400, body: {body}}}]")


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(RalphError, match="script not found"):
        load(str(tmp_path / "none.yaml"))
