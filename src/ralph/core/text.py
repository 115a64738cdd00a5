"""Text from agents and commands, made harmless for terminals and prompts."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"""\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?      # OSC: titles, links, the clipboard
      | \x1b[PX^_][^\x1b\n]*(?:\x1b\\)?          # DCS, SOS, PM, APC
      | (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?        # CSI: colours, cursor
      | \x1b[ -/]*[0-~]?                         # two-character escapes
    """,
    re.VERBOSE,
)
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_CARRIAGE = re.compile(r"\r+\n|\r+")


def is_text(value: str) -> bool:
    """Whether the text can be encoded as UTF-8; a lone surrogate cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    """The text without escape sequences, control characters (except tab and newline) and bidirectional overrides."""
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub("\ufffd", _CARRIAGE.sub("\n", _ESCAPES.sub("", text)))
