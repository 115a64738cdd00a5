"""Texts for people read as plain English: none of the phrases below, in code, output, documents or tests.

A phrase is here because it slipped in before. The pattern matches whole words in any case; what to write instead
is next to it.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PHRASES = {
    r"(?<!there )(?:is|are|was|were) no(?! (?:longer|more than|later than|one|match)\b)": "is not a …",
    r"mend(?:s|ed|ing)?": "fix",
    r"so long(?! as)|so (?:many|much)(?! (?:that|as))": "a number, a time, or `timeout in seconds`",
    r"such an?": "this, that, like this",
    r"in hand": "current",
    r"of (?:its|their|his|your|our|one's) own(?! accord)": "its own …, separate",
    r"go(?:es)? on|went on": "continue, resume",
    r"unasked": "without asking",
    r"once more": "again",
    r"for ever": "forever, indefinitely",
    r"(?:is|are|was|were|be|been) ended": "stopped, killed, timed out",
    r"cannot be told|nothing tells|tells? of": "unknown; says",
    r"who is told|nobody is": "notification targets; no one is",
    r"what (?:\w+ ){1,3}(?:came|comes|has come) to": "result",
    r"in vain|anew|lest|ere|hereof|thereof|wherein|therein|whereupon": "plain words",
    r"beside": "next to, along with, besides",
    r"found out": "found",
    r"last words": "final message",
    r"has to say|have to say": "says",
    r"what destroys|walled in|no boundary": "destructive commands; sandboxed; not a security boundary",
    r"ends what it starts": "leaves no stray processes",
    r"beginning or end of it": "unique prefix or suffix",
    r"guardrail (?:start|end)(?=:)": "Running …; ✓ … passed; ✗ … failed",
    r"every required check green|limited for longer than": "all checks passed; later than … allows",
    r"says is not asked|who commits is known": "options skip their question; git identity set",
    r"by the word of": "only the review …",
}
BANNED = re.compile("|".join(f"(?P<p{i}>\\b(?:{p})(?!\\w))" for i, p in enumerate(PHRASES)), re.IGNORECASE)
INSTEAD = list(PHRASES.values())

TEXT = {".md", ".sh", ".toml", ".yaml", ".yml", ".html", ".css", ".js", ".txt", ""}
SKIPPED = ("tests/agents/streams/", "tests/golden/", "bench/results/", "LICENSE", "tests/test_words.py")
"""Recordings of other programs, generated files that follow their source, and this list."""


@cache
def _files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        name
        for name in listed.stdout.split("\0")
        if name and not name.startswith(SKIPPED) and Path(name).suffix in {".py", *TEXT}
    ]


def _passages(path: Path) -> Iterator[tuple[int, str]]:
    """The words in a file with their lines: strings, comments and test names of Python, paragraphs of other files."""
    source = path.read_text(errors="replace")
    if path.suffix != ".py":
        for match in re.finditer(r"(?:.+\n?)+", source):
            yield source.count("\n", 0, match.start()) + 1, match[0]
        return
    for match in re.finditer(r"(?:^ *#.*\n)+", source, re.MULTILINE):
        yield source.count("\n", 0, match.start()) + 1, match[0].replace("#", "")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")


def hits(path: Path) -> list[str]:
    found = []
    for line, passage in _passages(path):
        words = " ".join(passage.split())
        for match in BANNED.finditer(words):
            instead = INSTEAD[int(match.lastgroup[1:])] if match.lastgroup else ""
            around = words[max(0, match.start() - 40) : match.end() + 30]
            found.append(f"{path.relative_to(ROOT)}:{line}: …{around}…  (write: {instead})")
    return found


def _folders() -> list[str]:
    return sorted({"/".join(Path(name).parts[:-1][:3]) for name in _files()})


@pytest.mark.parametrize("folder", _folders())
def test_no_banned_phrase(folder: str) -> None:
    """No file in the folder holds a phrase that reads as translated."""
    names = [name for name in _files() if "/".join(Path(name).parts[:-1][:3]) == folder]
    assert [hit for name in names if (ROOT / name).is_file() for hit in hits(ROOT / name)] == []


def test_the_list_finds_what_it_bans() -> None:
    """Every pattern matches the text that brought it here."""
    for text in (
        "'0' is no whole number",
        "Mend it, then",
        "ended after so long",
        "What is in hand",
        "Go on",
    ):
        assert BANNED.search(text), text
    for text in (
        "there is no run",
        "is no longer",
        "as long as",
        "recommend",
        "amended",
        "such as",
        "foregone",
    ):
        assert not BANNED.search(text), text
