"""Text transformations of common programs."""

from __future__ import annotations

from ralph.shell.words import DECODED, EVERYONE, MARKS, NET, SECRET, Word, ansi_c

MAX_TEXT = 20_000


def kept(text: str) -> str:
    """Return the marks in a text that survive any filter."""
    return "".join(mark for mark in (NET, SECRET, DECODED, EVERYONE) if mark in text)


def formatted(pattern: str, values: list[Word]) -> str:
    out = ""
    while True:
        used, at = 0, 0
        while at < len(pattern):
            if pattern[at] != "%":
                out += pattern[at]
                at += 1
                continue
            end = at + 1
            while end < len(pattern) and pattern[end] in "-+ #0123456789.*":
                end += 1
            kind = pattern[end : end + 1]
            at = end + 1
            if kind == "%":
                out += "%"
                continue
            value = values[used] if used < len(values) else ""
            used += 1
            if kind == "b":
                out += ansi_c(value)
            elif kind == "c":
                out += chr(int(value)) if value.isdecimal() and 1 < len(value) < 4 else value[:1]
            elif kind in ("x", "o", "d"):
                out += format(int(value), kind) if value.isdecimal() and len(value) < 12 else value
            else:
                out += value
        values = values[used:]
        if not values or not used or len(out) > MAX_TEXT:
            return out


def decoded(text: str) -> str:
    """Decode base64. Return a mark if the text is unknown or does not decode to text."""
    if not MARKS.isdisjoint(text):
        return DECODED + kept(text)
    import binascii

    try:
        return binascii.a2b_base64("".join(text.split()) + "==").decode()
    except (ValueError, UnicodeDecodeError):
        return DECODED


def characters(text: str) -> str:
    """Return the characters of a `tr` set."""
    text = ansi_c(text).replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:space:]", " \n\t")
    out, at = "", 0
    while at < len(text):
        if at + 2 < len(text) and text[at + 1] == "-" and text[at] <= text[at + 2]:
            out += "".join(chr(n) for n in range(ord(text[at]), ord(text[at + 2]) + 1))
            at += 3
        else:
            out += text[at]
            at += 1
    return out[:5000]
