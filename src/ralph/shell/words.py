"""The words of a command, as far as they are known before it runs.

An unknown part of a text is represented by a mark: one character that no command contains, so that it travels along
with the text. Marks are control characters but not whitespace, so the parser treats them as parts of words.
"""

from __future__ import annotations

import itertools

UNKNOWN = "\x10"
"""Text that only running the command would reveal."""
UNSET = "\x11"
"""An unset variable, most likely empty."""
NET = "\x12"
"""Text from the network."""
DECODED = "\x13"
"""Text that was obfuscated: decoded, unpacked, decrypted."""
SECRET = "\x14"
"""A secret, or text that contains one."""
EVERYONE = "\x16"
"""PIDs of other processes, or of all."""
HERE = "\x15"
"""Precedes the text of a here-string, see `parser`."""

MARKS = frozenset((UNKNOWN, UNSET, NET, DECODED, SECRET, EVERYONE, HERE))

LITERAL, QUOTED, EXPANDED = range(3)
Piece = tuple[str, int]
"""Part of a word: its text, and whether it is literal, quoted or expanded."""

MAX_WORDS = 4000


def words_of(text: str) -> tuple[str, ...]:
    """Split a string into words, so that long lists stay readable in the source."""
    return tuple(text.split())


class Word(str):
    """A word as a program receives it. With `glob`, the shell may still expand it to file names."""

    glob: bool = False

    @property
    def is_known(self) -> bool:
        return MARKS.isdisjoint(self)


def globbing(text: str) -> Word:
    word = Word(text)
    word.glob = True
    return word


def strip_marks(text: str) -> str:
    return "".join(each for each in text if each not in MARKS)


def shown(text: str) -> str:
    """Return a text for display, with an ellipsis for each mark."""
    return "".join("…" if each in MARKS else each for each in text)


def fields(pieces: list[Piece], home: str, directory: str, separators: str = " \t\n") -> list[Word]:
    """Return the words that a shell makes of one: braces, tilde, splitting. Globs are not expanded."""
    found: list[Word] = []
    for each in _braces(pieces):
        found += _split(_tilde(each, home, directory), separators)
    return found


def _braces(pieces: list[Piece]) -> list[list[Piece]]:
    if not any(kind == LITERAL and "{" in text for text, kind in pieces):
        return [pieces]
    line = "".join(text if kind == LITERAL else f"\0{number}\0" for number, (text, kind) in enumerate(pieces))
    return [_restored(text, pieces) for text in brace_expansion(line)]


def _restored(line: str, pieces: list[Piece]) -> list[Piece]:
    """Put the non-literal pieces back, which are represented by numbers between NULs."""
    parts = enumerate(line.split("\0"))
    return [pieces[int(part)] if at % 2 else (part, LITERAL) for at, part in parts if part] or [("", LITERAL)]


def brace_expansion(text: str, limit: int = 200) -> list[str]:
    """Expand braces: `a{b,c}d` -> abd, acd; `{1..3}` -> 1 2 3. Anything else stays unchanged."""
    start = text.find("{")
    while start >= 0:
        end, commas = _brace_end(text, start)
        if end < 0:
            return [text]
        inner = text[start + 1 : end]
        choices: list[str] = []
        if commas:
            edges = [start, *commas, end]
            choices = [text[a + 1 : b] for a, b in itertools.pairwise(edges)]
        elif ".." in inner:
            choices = _range(inner)
        if choices and not text[:start].endswith("$"):
            heads = [deep for each in choices for deep in brace_expansion(each, limit)][:limit]
            tails = brace_expansion(text[end + 1 :], limit)
            return [text[:start] + head + tail for head in heads for tail in tails][:limit]
        start = text.find("{", start + 1)
    return [text]


def _brace_end(text: str, start: int) -> tuple[int, list[int]]:
    depth = 0
    commas: list[int] = []
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at, commas
        elif text[at] == "," and depth == 1:
            commas.append(at)
    return -1, []


def _range(inner: str) -> list[str]:
    first, _, last = inner.partition("..")
    if first.lstrip("-").isdecimal() and last.lstrip("-").isdecimal() and len(first + last) < 12:
        a, b = int(first), int(last)
        return [str(n) for n in range(a, b + (1 if b >= a else -1), 1 if b >= a else -1)][:50]
    if len(first) == len(last) == 1 and first <= last and (first + last).isascii():
        return [chr(n) for n in range(ord(first), ord(last) + 1)]
    return []


def _tilde(pieces: list[Piece], home: str, directory: str) -> list[Piece]:
    text, kind = pieces[0]
    if kind != LITERAL or not text.startswith("~"):
        return pieces
    name, slash, rest = text.partition("/")
    if len(pieces) > 1 and not slash:
        return pieces
    if name == "~":
        base = home
    elif name == "~+":
        base = directory
    elif name == "~-" or not name[1:].replace("-", "").replace("_", "").isalnum():
        return pieces
    else:
        base = "/root" if name == "~root" else f"/home/{name[1:]}"
    return [(base, QUOTED), (slash + rest, LITERAL), *pieces[1:]]


def _split(pieces: list[Piece], separators: str) -> list[Word]:
    words: list[Word] = []
    text, is_word, glob = "", False, False

    def end() -> None:
        nonlocal text, is_word, glob
        if is_word:
            words.append(globbing(text) if glob else Word(text))
        text, is_word, glob = "", False, False

    for part, kind in pieces:
        if kind == EXPANDED:
            for each in part:
                if each in separators:
                    end()
                else:
                    text += each
                    is_word = True
                    glob = glob or each in "*?["
            continue
        text += part
        is_word = is_word or kind == QUOTED or bool(part)
        glob = glob or (kind == LITERAL and any(each in part for each in "*?["))
    end()
    return words


# ---- quotes ----


def literal(text: str) -> list[Piece]:
    """Return the pieces of an unquoted word, in which a backslash quotes the next character."""
    if "\\" not in text:
        return [(text, LITERAL)]
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        cut = text.find("\\", at)
        if cut < 0 or cut + 1 >= len(text):
            pieces.append((text[at:], LITERAL))
            break
        if cut > at:
            pieces.append((text[at:cut], LITERAL))
        if text[cut + 1] != "\n":
            pieces.append((text[cut + 1], QUOTED))
        at = cut + 2
    return pieces


def in_double_quotes(text: str) -> str:
    if "\\" not in text:
        return text
    out = ""
    at = 0
    while at < len(text):
        each = text[at]
        if each == "\\" and at + 1 < len(text) and text[at + 1] in '"$`\\\n':
            out += "" if text[at + 1] == "\n" else text[at + 1]
            at += 2
        else:
            out += each
            at += 1
    return out


_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}


def ansi_c(text: str) -> str:
    """Decode backslash escapes as in `$'…'`, `echo -e` and `printf`."""
    out = ""
    at = 0
    while at < len(text):
        each = text[at]
        at += 1
        if each != "\\" or at == len(text):
            out += each
            continue
        each = text[at]
        at += 1
        if each in _ESCAPES:
            out += _ESCAPES[each]
        elif each in "xuU":
            limit = {"x": 2, "u": 4, "U": 8}[each]
            digits = _digits(text, at, limit, "0123456789abcdefABCDEF")
            at += len(digits)
            out += _character(digits, 16) if digits else "\\" + each
        elif each in "01234567":
            digits = _digits(text, at - 1, 4 if each == "0" else 3, "01234567")
            at += len(digits) - 1
            out += _character(digits, 8)
        elif each == "c" and at < len(text):
            at += 1
        else:
            out += each if each in "\\'\"?" else "\\" + each
    return out


def _character(digits: str, base: int) -> str:
    number = int(digits, base)
    return chr(number) if 0 < number < 0xD800 and chr(number) not in MARKS else ""


def _digits(text: str, at: int, limit: int, known: str) -> str:
    end = at
    while end < len(text) and end - at < limit and text[end] in known:
        end += 1
    return text[at:end]
