"""The progress log only grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.stories.progress import LINE, grown

OLD = b"# Log\n- none\n\n---\n## one\n- a\n"


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        OLD + b"## two\n",
        OLD.replace(b"- none", b"- tabs") + b"## two\n",
        OLD.rstrip() + b"\n\n## two\n",
        b"# Log\n\n---\n- a section of patterns\n\n---\n## one\n- a\n## two\n",
    ],
)
def test_additions_are_kept_as_they_are(new: bytes) -> None:
    """Entries at the end, a new head, even another line in the head."""
    assert grown(OLD, new) == new


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (None, OLD),
        (b"", OLD),
        (b"# Log\n- tabs\n\n---\n", b"# Log\n- tabs\n\n---\n## one\n- a\n"),
        (b"# Log\n\n---\n## two\n", b"# Log\n\n---\n## one\n- a\n\n## two\n"),
        (b"# Log\n\n---\n## one\n- b\n", b"# Log\n\n---\n## one\n- a\n\n- b\n"),
        (b"All is done.\n", b"# Log\n- none\n\n---\n## one\n- a\n\nAll is done.\n"),
    ],
)
def test_removed_entries_come_back(new: bytes | None, expected: bytes) -> None:
    """New text is kept below them."""
    assert grown(OLD, new) == expected


def test_a_log_without_a_line_grows_as_a_whole() -> None:
    """For people who wrote their own format."""
    assert grown(b"one\n", b"one\ntwo\n") == b"one\ntwo\n"
    assert grown(b"one\n", b"two\n") == b"one\n\ntwo\n"


lines = st.lists(st.sampled_from([b"a", b"b", b"## x", b"---", b""]), max_size=6).map(b"\n".join)


@given(lines, lines, lines)
def test_nothing_below_the_line_is_ever_lost(head: bytes, log: bytes, new: bytes) -> None:
    """Whatever an agent does to it; and a legal result stays legal the next time."""
    old = head + LINE + log
    kept = grown(old, new)
    rest = old.partition(LINE)[2]
    assert rest.rstrip() in kept
    assert grown(kept, kept) == kept
