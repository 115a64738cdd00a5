"""Find the tag by which an agent says that it is done, and nothing that only looks like it.

A tag is no claim inside a code fence, inline code or a quoted line, where the agent repeats its
prompt, or where its own clause denies it ("I cannot print <response>DONE</response> yet").
"""

from __future__ import annotations

import re
from itertools import pairwise

from ralph.core.model import ClaimRule

LONGEST_TAG = 10_000
"""A tag that is still open after this many characters was no tag."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_QUOTED = re.compile(
    r"""\s*(?: >                # a quotation
             | \|               # a table or a quotation bar
             | [+-](?=<)        # a line of a diff
             | \d+\s*[:|→\t]    # a numbered line of a listing
             | \S+:\d+:         # a hit of a search
           )""",
    re.VERBOSE,
)
_INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_CLAUSE_ENDS = re.compile(r"[.;:!?,—()\n]")
_DENIED = re.compile(
    r"\b(?:not|never|cannot|without|unless|until|before|if|when|once|would|instead\s+of|rather\s+than)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)


def matches(found: str | None, rule: ClaimRule) -> bool:
    """The tag's text must be the promised text: trimmed, exact, case ignored."""
    return found is not None and found.strip().casefold() == rule.text.strip().casefold()


def find(text: str, rule: ClaimRule, prompt: str = "") -> str | None:
    """The text inside the first tag that is a claim, or None."""
    scanner = Scanner(rule, prompt)
    scanner.feed(text)
    return scanner.finish()


def claimed(text: str, rule: ClaimRule, prompt: str = "") -> bool:
    """Does this final message say that the work is done?"""
    return matches(find(text, rule, prompt), rule)


def message(text: str) -> str:
    """The commit message in an agent's answer: the tag's text, else the first non-empty line."""
    tagged = re.search(r"<response>(.*?)</response>", text, re.IGNORECASE | re.DOTALL)
    if tagged:
        return tagged[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def neutralise(text: str) -> str:
    """Make every tag in `text` harmless, so that fed-back output can never be read as a claim."""
    return re.sub(r"<(/?\s*(?:response|promise)\b[^<>]*)>", r"&lt;\1&gt;", text, flags=re.IGNORECASE)


class Scanner:
    """Finds a claim in text that arrives piece by piece, with bounded memory."""

    def __init__(self, rule: ClaimRule, prompt: str = "") -> None:
        self._strict = rule.strict
        self._open_tag = f"<{rule.tag}>".casefold()
        self._tag = re.compile(rf"<(/?){re.escape(rule.tag)}>", re.IGNORECASE)
        self._echo = _Echo(prompt, self._tag)
        self._partial = ""
        self._fence = ""
        self._inside: list[str] | None = None
        self._found: str | None = None

    def feed(self, text: str) -> None:
        """Take the next piece of text; it may end anywhere."""
        if self._found is not None and not self._strict:
            return
        whole, newline, rest = text.rpartition("\n")
        if not newline:
            self._partial = _tail(self._partial + rest)
            return
        block, self._partial = self._partial + whole, _tail(rest)
        if self._is_dull(block):
            self._echo.skip(block)
            return
        for line in block.split("\n"):
            self._line(line)

    def finish(self) -> str | None:
        """The text has ended: what was claimed?"""
        if self._partial:
            self._line(self._partial)
            self._partial = ""
        return self._found

    def _is_dull(self, block: str) -> bool:
        """No line of the block can begin, end or hide a claim."""
        return (
            self._inside is None
            and not self._strict
            and "```" not in block
            and "~~~" not in block
            and (bool(self._fence) or self._open_tag not in block.casefold())
        )

    def _line(self, line: str) -> None:
        if self._strict and line.strip():
            self._found, self._inside = None, None
        if self._found is not None:
            return
        echoed = self._echo.repeats(line)
        if self._is_fenced(line) or _QUOTED.match(line) or echoed:
            self._inside = None
            return
        text = _INLINE_CODE.sub(lambda code: " " * len(code[0]), line)
        if self._strict:
            self._only_tag(text)
        elif self._inside is not None or self._open_tag in text.casefold():
            self._tags(text)

    def _is_fenced(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if not self._fence:
            if mark and not (mark[1][0] == "`" and "`" in mark[2]):
                self._fence = mark[1]
            return bool(self._fence)
        if mark and mark[1].startswith(self._fence) and not mark[2].strip():
            self._fence = ""
        return True

    def _only_tag(self, text: str) -> None:
        tags = list(self._tag.finditer(text))
        if len(tags) == 2 and not tags[0][1] and tags[1][1]:
            outside = text[: tags[0].start()] + text[tags[1].end() :]
            if not outside.strip():
                self._found = text[tags[0].end() : tags[1].start()].strip()

    def _tags(self, text: str) -> None:
        """Walk the tags of one line; an opening tag may have been met on an earlier line."""
        at = 0
        for tag in self._tag.finditer(text):
            if tag[1]:
                if self._inside is not None:
                    self._inside.append(text[at : tag.start()])
                    if not _denied_after(text[tag.end() :]):
                        self._found = "".join(self._inside).strip()
                        return
                    self._inside = None
            else:
                self._inside = None if _denied_before(text[: tag.start()]) else []
            at = tag.end()
        if self._inside is not None:
            self._inside.append(text[at:] + "\n")
            if sum(map(len, self._inside)) > LONGEST_TAG:
                self._inside = None


def _denied_before(text: str) -> bool:
    return bool(_DENIED.search(_CLAUSE_ENDS.split(text)[-1]))


def _denied_after(text: str) -> bool:
    return bool(_DENIED.search(_CLAUSE_ENDS.split(text)[0]))


def _tail(partial: str) -> str:
    """An endless line is kept only by its end, where a claim would stand."""
    return partial if len(partial) <= 1_000_000 else partial[-LONGEST_TAG:]


class _Echo:
    """Recognises the prompt in the output: its sentences with the tag, and a bare tag in its place.

    A line of the prompt that holds the tag and other words is an echo wherever it appears. A line
    that is nothing but the tag is an echo only right after the prompt's line before it.
    """

    def __init__(self, prompt: str, tag: re.Pattern[str]) -> None:
        lines = [line.strip() for line in prompt.splitlines() if line.strip()]
        tagged = {line for line in lines if tag.search(line)}
        self._sentences = {line for line in tagged if _words_beside_tag(line, tag) >= 2}
        self._follows = {
            (before, line)
            for before, line in pairwise(lines)
            if line in tagged and line not in self._sentences
        }
        self._last = ""

    def repeats(self, line: str) -> bool:
        stripped = line.strip()
        if not stripped:
            return False
        last, self._last = self._last, stripped
        return (last, stripped) in self._follows or any(s in stripped for s in self._sentences)

    def skip(self, block: str) -> None:
        """Lines without a tag: only the last one matters."""
        if self._follows:
            lines = (line.strip() for line in reversed(block.split("\n")))
            self._last = next(filter(None, lines), self._last)


def _words_beside_tag(line: str, tag: re.Pattern[str]) -> int:
    marks = list(tag.finditer(line))
    return len(line[: marks[0].start()].split()) + len(line[marks[-1].end() :].split())
