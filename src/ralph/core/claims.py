"""Find the tag with which an agent says it is done, ignore lookalikes, and say why one did not count.

A tag counts after any ordinary sentence, at any depth of indentation. It does not count in backticks, in a code block,
in a quotation, in a listing ("12:<response>", "$ cat notes"), in a sentence that only mentions it ("I cannot print
<response>DONE</response> yet"; see `mentions`), or where the agent repeats its prompt. The first tag that counts wins.
Under the strict rule it counts only alone on the last line.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ralph.core import mentions
from ralph.core.model import ClaimRule

LONGEST_TAG = 10_000
"""An opening tag without a closing tag within this many characters is ignored."""

CODE = "in backticks"
BLOCK = "inside a code block"
INDENTED = "indented like a code block"
QUOTATION = "in a quotation"
LISTING = "inside a listing or command output"
ECHO = "in a sentence that repeats the prompt"
MENTIONED = "in a sentence about saying it"
NOT_ALONE = "not alone on the last line"
UNCLOSED = "without a closing tag"

_LONGEST_LINE = 20_000
_HEAD = 200
_ECHO_WORDS = 3
_KEPT = max(_HEAD, mentions.MAX_SENTENCE)
_MAX_TAGS = 400
"""Tags of one line that are read, from its end: no text has more."""

_MAX_QUOTED = 60

_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}|~{3,})(.*)")
_DEEP = re.compile(r"[ ]{4}|[ ]{0,3}\t")
_QUOTED = re.compile(r"\s*>")
_LISTED = re.compile(
    r"""\s*(?: [|│┃]                         # a table, a frame
             | \+{1,2}\s*(?=<) | -{1,2}(?=<)  # a line of a diff
             | \d+\s*[:|→\t]                # a numbered line of a listing
             | [^<]{0,200}?(?<!\b\d\d)(?::\d+:(?:\d+:|\s*(?=<))|(?<!\b\d{4})-\d+-\s*(?=<))  # a hit of a search, no time or date
           )""",
    re.VERBOSE,
)
_COMMAND = re.compile(r"\s*(?:\$|❯|➜|%)\s+\S|diff --git |@@ -\d")
_INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def matches(found: str | None, rule: ClaimRule) -> bool:
    """Whether the tag's text is the promised text, ignoring case and surrounding whitespace."""
    return found is not None and found.strip().casefold() == rule.text.strip().casefold()


def find(text: str, rule: ClaimRule, prompt: str = "") -> str | None:
    """The text inside the first tag that is a claim, or None."""
    scanner = Scanner(rule, prompt)
    scanner.feed(text)
    return scanner.finish()


def claimed(text: str, rule: ClaimRule, prompt: str = "") -> bool:
    """Whether this final message claims that the work is done."""
    return look(text, rule, prompt).claimed


class ClaimSeen(Struct, frozen=True):
    """Whether a text claims that the work is done; if not, why the tag in it, if any, did not count."""

    claimed: bool = False
    unclaimed: str = ""


def look(text: str, rule: ClaimRule, prompt: str = "") -> ClaimSeen:
    """Search a whole text."""
    scanner = Scanner(rule, prompt)
    scanner.feed(text)
    return ClaimSeen(matches(scanner.finish(), rule), scanner.unclaimed)


def message(text: str) -> str:
    """The commit message in an agent's answer: the tag's text, or the first non-empty line."""
    lower = text.casefold()
    start = lower.find("<response>")
    end = lower.find("</response>", start)
    if 0 <= start < end and len(lower) == len(text):
        return text[start + len("<response>") : end].strip()
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not _FENCE.fullmatch(line)), "")


def neutralise(text: str) -> str:
    """Escape every tag in `text`, so that output in a prompt can never be read as a claim."""
    return re.sub(r"<(/?\s*(?:response|promise|refuse)\b[^<>]*)>", r"&lt;\1&gt;", text, flags=re.IGNORECASE)


def refusal(text: str) -> str:
    """Why an agent sends a task back (the tag alone on its last line), or ""."""
    return find(text, ClaimRule(tag="refuse", strict=True)) or ""


class _OpenTag:
    """An opening tag: the text before it, why it does not count, and the text inside it so far."""

    def __init__(self, before: str, why: str, region: str) -> None:
        self.before, self.why, self.region = before, why, region
        self.inside: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.inside).strip()


class Scanner:
    """Finds a claim in text that arrives piece by piece, with bounded memory."""

    def __init__(self, rule: ClaimRule, prompt: str = "") -> None:
        self._rule = rule
        self._strict = rule.strict
        self._open_tag = f"<{rule.tag}>".casefold()
        self._tag = re.compile(rf"<(/?){re.escape(rule.tag)}>", re.IGNORECASE)
        self._echo_before, self._echo_after = self._learn(prompt)
        self._before = ""
        self._partial = ""
        self._is_long = False
        self._fence = ""
        self._is_output = False
        self._open: _OpenTag | None = None
        self._found: str | None = None
        self._refused = (-1, "")

    def feed(self, text: str) -> None:
        """Take the next piece of text; it may end anywhere."""
        if self._is_decided:
            return
        whole, newline, rest = text.rpartition("\n")
        if not newline:
            self._grow(rest)
            return
        first, more, block = (self._partial + whole).partition("\n")
        self._lines(first, was_long=self._is_long)
        if more:
            self._lines(block)
        self._partial, self._is_long = "", False
        self._grow(rest)

    def finish(self) -> str | None:
        """The claimed text, once all text has been fed."""
        if self._partial:
            self._lines(self._partial, was_long=self._is_long)
            self._partial = ""
        return self._found

    @property
    def unclaimed(self) -> str:
        """Why no tag counts, as a short clause; "" if one does or there is none. Text in it is not neutralised.

        About the first tag with the promised text that does not repeat the prompt, otherwise about the first tag.
        """
        if matches(self._found, self._rule):
            return ""
        if self._found is not None:
            return self._differs(self._found)
        is_begun = self._open is not None and self._open.text.casefold().startswith(
            self._rule.text.casefold()
        )
        return self._refused[1] or (UNCLOSED if is_begun else "")

    def _differs(self, text: str) -> str:
        return f'its text is "{_cut(text)}", not "{_cut(self._rule.text)}"'

    @property
    def _is_decided(self) -> bool:
        return self._found is not None and not self._strict

    def _grow(self, rest: str) -> None:
        """Extend the unfinished line; of a very long one only the start and the end are kept."""
        self._partial += rest
        if len(self._partial) > _LONGEST_LINE:
            self._partial, self._is_long = _shortened(self._partial), True

    def _lines(self, block: str, *, was_long: bool = False) -> None:
        if not was_long and self._is_dull(block):
            self._pass(block)
            return
        for line in block.split("\n"):
            self._line(_shortened(line) if was_long or len(line) > _LONGEST_LINE else line)
            self._pass(line)

    def _learn(self, prompt: str) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
        """The words before each tag in the prompt, or after it where none come before."""
        before: set[tuple[str, ...]] = set()
        after: set[tuple[str, ...]] = set()
        bare = False
        for tag in self._tag.finditer(prompt):
            if not tag[1]:
                words = _words_before(prompt, tag.start())
                bare = not words
                before |= {words} - {()}
            elif bare:
                after |= {_words_behind(prompt, tag.end())} - {()}
        return before, after

    def _pass(self, text: str) -> None:
        """Remember the text before the next tag: it may begin its sentence, or repeat the prompt.

        Lines after a shell prompt, up to an empty line, are command output.
        """
        _, is_paragraph, end = text[-_LONGEST_LINE:].rpartition("\n\n")
        self._is_output = self._is_output and not is_paragraph
        for line in end.split("\n"):
            self._is_output = bool(line.strip()) and (self._is_output or bool(_COMMAND.match(line)))
        self._before = f"{self._before}\n{text[-_KEPT:]}"[-_KEPT:]

    def _is_dull(self, block: str) -> bool:
        """Whether no line of the block can start, end or hide a claim."""
        return (
            self._open is None
            and not self._strict
            and "```" not in block
            and "~~~" not in block
            and self._open_tag not in block.casefold()
        )

    def _line(self, line: str) -> None:
        if self._strict and self._found is not None and line.strip():
            self._refuse(self._found, NOT_ALONE)
            self._found = None
        if self._is_decided:
            return
        region = self._region(line)
        if self._open is not None and self._open.region != region:
            self._open = None
        if self._open is not None or self._open_tag in line.casefold():
            self._tags(line, region)

    def _region(self, line: str) -> str:
        """Why no tag in this line can count, or ""."""
        if self._is_fenced(line):
            return BLOCK
        if self._strict and _DEEP.match(line):
            return INDENTED
        if _QUOTED.match(line):
            return QUOTATION
        return LISTING if self._is_output or _LISTED.match(line) or _COMMAND.match(line) else ""

    def _is_fenced(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if not self._fence:
            if mark and not (mark[1][0] == "`" and "`" in mark[2]):
                self._fence = mark[1]
            return bool(self._fence)
        if mark and mark[1].startswith(self._fence) and not mark[2].strip():
            self._fence = ""
        return True

    def _tags(self, line: str, region: str) -> None:
        """Read the tags of one line; the opening tag may be on an earlier line."""
        plain = _INLINE_CODE.sub(lambda code: " " * len(code[0]), line)
        at = 0
        for tag in list(self._tag.finditer(line))[-_MAX_TAGS:]:
            is_code = plain[tag.start()] == " "
            if not tag[1]:
                is_code = is_code or plain[: tag.start()].endswith("`")  # code that ends on another line
                why = region or (CODE if is_code else ECHO if self._is_echo(line, tag.start()) else "")
                self._open = _OpenTag(f"{self._before}\n{plain[: tag.start()]}"[-_KEPT:], why, region)
            elif self._open is not None and (self._open.why or not is_code):
                self._open.inside.append(line[at : tag.start()])
                self._close(self._open, line, tag.end(), is_alone=self._is_alone(line, tag.end()))
                self._open = None
                if self._found is not None and not self._strict:
                    return
            at = tag.end()
        if self._open is not None:
            self._open.inside.append(line[at:] + "\n")
            if sum(map(len, self._open.inside)) > LONGEST_TAG:
                self._open = None

    def _is_alone(self, line: str, end: int) -> bool:
        """Whether the line holds one whole tag and nothing else."""
        text = line.strip()
        return (
            text.casefold().startswith(self._open_tag)
            and not line[end:].strip()
            and len(self._tag.findall(text)) == 2
        )

    def _close(self, tag: _OpenTag, line: str, end: int, *, is_alone: bool) -> None:
        """Decide whether a whole tag counts."""
        why = tag.why
        if not why and self._is_echo_behind(line, end):
            why = ECHO
        if not why and self._strict:
            why = "" if is_alone else NOT_ALONE
        elif not why and (mentions.before(tag.before) or mentions.after(line[end:])):
            why = MENTIONED
        if why:
            self._refuse(tag.text.strip("`"), why)
        else:
            self._found = tag.text

    def _refuse(self, text: str, why: str) -> None:
        """Keep the reason that helps most."""
        is_promised = matches(text, self._rule)
        if why == NOT_ALONE and not is_promised:
            why = self._differs(text)
        rank = 2 * is_promised + (why != ECHO)
        if rank > self._refused[0]:
            self._refused = rank, why

    def _is_echo(self, line: str, at: int) -> bool:
        """Whether the same words precede this tag as a tag of the prompt: the agent repeats it."""
        if not self._echo_before:
            return False
        text = f"{self._before}\n{line[max(0, at - _HEAD) : at]}"
        words = _words_before(text, len(text))
        return any(words[-len(echo) :] == echo for echo in self._echo_before)

    def _is_echo_behind(self, line: str, at: int) -> bool:
        return bool(self._echo_after) and _words_behind(line, at) in self._echo_after


def _words_before(text: str, at: int) -> tuple[str, ...]:
    return tuple(_words(text[max(0, at - _HEAD) : at])[-_ECHO_WORDS:])


def _words_behind(text: str, at: int) -> tuple[str, ...]:
    return tuple(_words(text[at : at + _HEAD].partition("\n")[0])[:_ECHO_WORDS])


def _words(text: str) -> list[str]:
    """Words without punctuation, so that a quoted or bold repetition is recognised."""
    stripped = (word.strip("\"'`*_.,:;!?()[]{}<>“”‘’«»|#-") for word in text.split())
    return [word for word in stripped if word]


def _cut(text: str) -> str:
    """The text on one line, as it is quoted in a reason."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def _shortened(line: str) -> str:
    """The start of a very long line, which may mark it as a quotation, and its end, where a claim would be."""
    return f"{line[:_HEAD]} {line[-LONGEST_TAG:]}"
