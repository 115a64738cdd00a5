"""YAML written by hand: every problem has its line, and memory use stays bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralph.errors import RalphError
from ralph.files import yamlfile

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
LINES = st.lists(st.sampled_from(["a", " b", "c ", "", "\t", "# d", "- e", "é😀", "{{f}}"]), max_size=6).map(
    "\n".join
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | LINES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | LINES, inner, max_size=4),
    max_leaves=20,
)


def only(text: str) -> yamlfile.YamlDocument:
    (document,) = yamlfile.parse(text, "f.yaml")
    return document


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_written_values_are_read_back(values: Any) -> None:
    """Strings that look like numbers, lines with trailing spaces and emoji all come back."""
    document = only(yamlfile.dump(values))
    assert (document.values, document.problems) == (values, ())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_json_is_read_as_json(values: Any) -> None:
    """Escaped surrogates, exponents and tabs too, which YAML would read differently."""
    if isinstance(values, list | dict):
        assert only(json.dumps(values, indent="\t")).values == values


def test_readable_output() -> None:
    """A multi-line string is a block, a long one is not folded, lists are indented."""
    text = yamlfile.dump({"command": "a &&\nb\n", "list": ["x", "é 😀"], "quoted": "yes", "empty": []})
    assert text == "command: |\n  a &&\n  b\nlist:\n  - x\n  - é 😀\nquoted: 'yes'\nempty: []\n"


def test_several_documents() -> None:
    """Each has the line numbers of the file."""
    first, second = yamlfile.parse("a: 1\n---\nb:\n  - c: 2\n", "f.yaml")
    assert (first.values, second.values) == ({"a": 1}, {"b": [{"c": 2}]})
    assert (first.line_of(["a"]), second.line_of(["b", "0", "c"])) == (1, 4)


@pytest.mark.parametrize("text", ["a: [1, {b: 2}]\n", '{"a": [1, {"b": 2}]}', "a:\n- 1\n- b: 2\n"])
def test_the_line_of_a_path(text: str) -> None:
    """The last existing key on the path decides."""
    document = only(text)
    last = text.count("\n", 0, text.index("b")) + 1
    assert document.line_of(["a", "1", "b"]) == document.line_of(["a", "1", "b", "nothing"]) == last
    assert document.line_of(["a", "7"]) == document.line_of(["a"]) == document.line_of([]) == 1


def test_dates_are_strings() -> None:
    """A plain date stays as typed; anchors and merge keys are resolved."""
    text = "day: 2026-01-02\nbase: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nboth: {<<: [{x: 5}, *b]}\n"
    assert only(text).values == {
        "day": "2026-01-02",
        "base": {"x": 1, "y": 2},
        "mine": {"x": 1, "y": 3},
        "both": {"x": 5, "y": 2},
    }


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key 'a'"),
        (
            "a: 1\nb: !!python/object/apply:os.system [ls]\n",
            2,
            "the tag !!python/object/apply:os.system is not",
        ),
        ("- !mine x\n", 1, "the tag !mine is not allowed"),
        ("- 1\n- !!binary aGk=\n", 2, "the tag !!binary is not allowed"),
        ("- !!set {a}\n", 1, "the tag !!set is not allowed"),
        ("1: a\n", 1, "the key '1' is not a string: put it in quotes"),
        ("? [a]\n: b\n", 1, "this key is not a string"),
        ("a: &x [1]\n*x : b\n", 2, "this key is not a string"),
        ("a: !!omap [b: 1]\n", 1, "the tag !!omap is not allowed"),
        ("a: .inf\n", 1, "'.inf' is not a usable number"),
        ("a: .nan\n", 1, "'.nan' is not a usable number"),
        ("a: !!int x\n", 1, "'x' is not a usable number"),
        (f"a: {'1' * 5000}\n", 1, "is not a usable number"),
        ("a:\n  <<: 3\n", 2, "`<<` takes mappings only"),
    ],
)
def test_what_yaml_allows_and_we_do_not(text: str, line: int, said: str) -> None:
    """Each problem has its line; the rest of the document is still read."""
    ((found, problem),) = only(text).problems
    assert found == line and said in problem


NINES = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c\n", "f.yaml:1: not valid YAML: mapping values are not allowed"),
        ("a: 1\nb: [1, 2\n", "f.yaml:3: not valid YAML: "),
        ("a: 1\n\tb: 2\n", "f.yaml:2: not valid YAML: "),
        ("a: 1\nb: \x01\n", "f.yaml:2: not valid YAML: control character."),
        ("a: *b\n", "f.yaml:1: not valid YAML: found undefined alias."),
        ("a: &b 1\nc: &b 2\n", "f.yaml:2: not valid YAML: found duplicate anchor."),
        ('{"a": 1,\n "a": 2}', "f.yaml:2: duplicate key 'a'."),
        ('{"a": NaN}', "f.yaml:1: NaN is not a JSON number."),
        ("[" * 3_000_000, "f.yaml:1: nested too deeply."),
        ("[" * 100 + "]" * 100, "f.yaml:1: nested too deeply."),
        ("- " * 200_000, "f.yaml:1: nested too deeply."),
        ("\n".join(" " * depth + "a:" for depth in range(100)), "f.yaml:51: nested too deeply."),
        (f"l0: &l0 [x]\n{NINES}", "aliases expand to too much data."),
        (f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n", "aliases expand to too much data."),
        ("a: &a [*a]\n", "aliases expand to too much data."),
        ("&a {<<: *a}\n", "aliases expand to too much data."),
    ],
)
def test_rubbish_is_one_error(text: str, said: str) -> None:
    """Text that cannot be read at all, or would fill the memory, is refused with its line."""
    with pytest.raises(RalphError) as raised:
        yamlfile.parse(text, "f.yaml")
    assert said in raised.value.message


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """The only possible failure is a clear error."""
    try:
        yamlfile.parse(text, "f.yaml")
    except RalphError as error:
        assert error.message.startswith("f.yaml:")
