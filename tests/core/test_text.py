"""Cleaning text from agents and commands for a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.text import clean

HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
NASTY = st.sampled_from(
    [
        *"\x1b[]()P^_X\\;?0159mHJKhlc\x07\x9b\x9d\x90\x9c\x00\x08\r\n\t \u202e\u2066\u061c\ud83dé漢",
        "\x1b]52;c;",
        "\x1b]8;;",
        "\x1b\\",
        "\x1b[?1049h",
        "text",
    ]
)
TEXT = st.one_of(st.text(), st.lists(NASTY, max_size=40).map("".join))


def case(name: str, text: str, shown: str) -> object:
    return pytest.param(text, shown, id=name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        case("nothing", "", ""),
        case("plain text", "make test\n\tok\n", "make test\n\tok\n"),
        case("other alphabets", "Größe 漢字 🙂 ½", "Größe 漢字 🙂 ½"),
        case("joined emoji", "👩\u200d💻", "👩\u200d💻"),
        case("a colour", "\x1b[1;31mred\x1b[0m", "red"),
        case("a colour with colons", "\x1b[38:2::255:0:0mred\x1b[m", "red"),
        case("the cursor", "a\x1b[2J\x1b[Hb\x1b[10;20fc", "abc"),
        case("the other screen", "\x1b[?1049hvim\x1b[?1049l", "vim"),
        case("a title, ended by BEL", "\x1b]0;root@prod\x07ls", "ls"),
        case("a title, ended by ST", "\x1b]2;root@prod\x1b\\ls", "ls"),
        case("the clipboard", "\x1b]52;c;cm0gLXJmIC8=\x07ok", "ok"),
        case("a link", "\x1b]8;;file:///etc/passwd\x1b\\click\x1b]8;;\x1b\\", "click"),
        case("a device control string", '\x1bP$q"p\x1b\\ok', "ok"),
        case("an application command", "\x1b_Gi=1;AAAA\x1b\\ok", "ok"),
        case("a private message", "\x1b^secret\x1b\\ok", "ok"),
        case("a reset", "\x1bcok", "ok"),
        case("another character set", "\x1b(0lqqk\x1b(B", "lqqk"),
        case("an escape alone", "a\x1b", "a"),
        case("a sequence cut off", "a\x1b[31", "a"),
        case("colours in one byte", "\x9b31mred", "red"),
        case("other controls in one byte", "a\x90b\x9dc\x9cd", "a\ufffdb\ufffdc\ufffdd"),
        case("NUL, bell and backspace", "a\x00b\x07c\x08d", "a\ufffdb\ufffdc\ufffdd"),
        case("delete", "a\x7fb", "a\ufffdb"),
        case("form feed and vertical tab", "a\x0cb\x0bc", "a\ufffdb\ufffdc"),
        case("windows line ends", "a\r\nb\r\n", "a\nb\n"),
        case("a progress bar", "10%\r50%\r100%\r\n", "10%\n50%\n100%\n"),
        case("a line that hides another", "rm -rf /\rls", "rm -rf /\nls"),
        case("reversed text", "user\u202enimda\u202c", "user\ufffdnimda\ufffd"),
        case("isolates and marks", "\u2066a\u2069\u200eb\u200fc\u061c", "\ufffda\ufffd\ufffdb\ufffdc\ufffd"),
        case("half a surrogate pair", "a\ud800b", "a\ufffdb"),
    ],
)
def test_text_shown_in_a_terminal(text: str, shown: str) -> None:
    """Escape sequences are removed, stray control characters leave a mark, and the rest stays."""
    assert clean(text) == shown


@pytest.mark.parametrize("opening", ["\x1b]0;", "\x1bP", "\x1b_", "\x1b^", "\x1bX"])
def test_an_unterminated_string_hides_no_other_line(opening: str) -> None:
    """One unterminated escape string does not hide the lines after it."""
    assert clean(f"{opening}x\nerror: the build is broken\n").endswith("error: the build is broken\n")


@given(TEXT)
def test_nothing_harmful_is_left(text: str) -> None:
    """Cleaned text has no escape, control or bidirectional override characters and no lone surrogates."""
    assert not HARMFUL.search(clean(text))


@given(TEXT)
def test_clean_text_is_unchanged(text: str) -> None:
    """Cleaning twice gives the same text as cleaning once."""
    assert clean(clean(text)) == clean(text)


@given(st.text(st.characters(exclude_characters="\x1b\x9b\r")))
def test_no_character_is_lost_without_an_escape(text: str) -> None:
    """In text without escape sequences, every character is kept or leaves a mark in its place."""
    assert clean(text) == HARMFUL.sub("\ufffd", text)


@given(TEXT, st.integers(0, 200))
def test_a_sequence_cut_in_two_is_harmless(text: str, at: int) -> None:
    """A text may be cut anywhere, even inside an escape sequence, and both parts are still harmless."""
    assert not HARMFUL.search(clean(text[:at]) + clean(text[at:]))
