"""Reading a unified diff: added lines are found by hunks, and a long diff is shortened fairly."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.scm.diff import AddedLines, FileDiff, added, parse, shortened

NEW_FILE = """\
diff --git a/notes.md b/notes.md
new file mode 100644
index 0000000..b6fc4c6
--- /dev/null
+++ b/notes.md
@@ -0,0 +1,2 @@
+hello
+world
"""


def test_a_new_file_is_all_added() -> None:
    """The lines of a new file start with number 1."""
    assert parse(NEW_FILE) == [FileDiff("notes.md", NEW_FILE, (AddedLines("notes.md", 1, "hello\nworld"),))]


def test_lines_that_look_like_headers_are_lines() -> None:
    """Inside a hunk nothing is a header: an added "++ b/x" and a removed "-- a/x" are content."""
    diff = """\
--- a/query.sql
+++ b/query.sql
@@ -1,3 +1,4 @@
--- a comment of SQL
 select 1
+++ b/fake
+@@ -1 +1 @@
 from x
@@ -10 +11,2 @@ a title
 y
++z
"""
    assert list(added(diff)) == [
        AddedLines("query.sql", 2, "++ b/fake\n@@ -1 +1 @@"),
        AddedLines("query.sql", 12, "+z"),
    ]


def test_the_note_about_a_missing_newline_is_not_a_line() -> None:
    """The note about a missing newline is not counted."""
    diff = (
        "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+b\n+c\n"
        "\\ No newline at end of file\n"
    )
    assert list(added(diff)) == [AddedLines("x", 1, "b\nc")]


def test_no_diff_has_no_files() -> None:
    """An empty diff is not a file with an empty name."""
    assert parse("") == []


@pytest.mark.parametrize(
    "name",
    ["a b.txt", "ümlaut.txt", 'quo"te.txt', "tab\there.txt", "back\\slash", " b/inner.txt", "line\nend"],
)
def test_unusual_names_are_read_as_git_prints_them(tmp_path: Path, name: str) -> None:
    """Names with spaces, quotation marks, tabs and umlauts are read correctly, with and without content."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("one\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\0\1")
    subprocess.run([*git, "add", "-A"], check=True)
    diff = subprocess.run([*git, "diff", "--cached"], check=True, capture_output=True, text=True).stdout
    assert {file.path: file.added for file in parse(diff)} == {
        name: (AddedLines(name, 1, "one"),),
        "empty": (),
        "binary": (),
    }


def test_a_renamed_file_has_its_new_name(tmp_path: Path) -> None:
    """A file moved without a change has its new name."""
    diff = "diff --git a/old name b/new\nsimilarity index 100%\nrename from old name\nrename to new\n"
    assert [file.path for file in parse(diff)] == ["new"]


LINES = st.lists(
    st.sampled_from(
        ["a", "b", "", "++ b/x", "-- a/x", "+", "@@ -1 +1 @@", "diff --git a/x b/x", "\\ x", " s"]
    ),
    max_size=12,
)


@given(LINES, LINES, st.integers(0, 3))
def test_every_added_line_is_found_with_its_number(old: list[str], new: list[str], around: int) -> None:
    """For any two files, the result matches what difflib reports as added, by number and by text."""
    lines = list(difflib.unified_diff(old, new, "a/x", "b/x", n=around, lineterm=""))
    diff = "".join(f"{line}\n" for line in lines)
    found = {
        block.line + number: text
        for block in added(diff)
        for number, text in enumerate(block.text.split("\n"))
    }
    changes = difflib.SequenceMatcher(None, old, new).get_opcodes()
    expected = {
        number + 1: new[number]
        for kind, _, _, begin, end in changes
        if kind in ("insert", "replace")
        for number in range(begin, end)
    }
    assert found == expected


@given(st.text(alphabet=st.sampled_from('+-@ ,0123\n\\abdif/"\t\r\u2028'), max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """Text that is not a diff raises nothing, and none of it is lost."""
    files = parse(text)
    assert "".join(file.text for file in files) == (f"{text.removesuffix(chr(10))}\n" if text else "")


def a_file(name: str, lines: int) -> str:
    body = "".join(f"+line {number}\n" for number in range(lines))
    return f"diff --git a/{name} b/{name}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{lines} @@\n{body}"


def test_a_short_diff_is_shown_whole() -> None:
    """A diff that fits is unchanged."""
    assert shortened(NEW_FILE, len(NEW_FILE)) == NEW_FILE


def test_a_long_file_does_not_hide_the_others() -> None:
    """A lock file of any length leaves the code next to it complete, and is marked as cut."""
    code = a_file("z.py", 5)
    shown = shortened(a_file("a.lock", 10_000) + code, 2000)
    assert shown.endswith(code)
    assert "[... the rest of a.lock is not shown; 108,966 characters total]" in shown
    assert len(shown) <= 2000


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(0, 3000))
def test_a_shortened_diff_is_never_longer(sizes: list[int], most: int) -> None:
    """However many files there are, the notes fit in too."""
    diff = "".join(a_file(f"{number}.py", size) for number, size in enumerate(sizes))
    assert len(shortened(diff, most)) <= most
