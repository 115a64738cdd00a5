"""Find the tag with which an agent says it is done, and ignore lookalikes.

A tag does not count inside a code block, inline code, a quoted line or command output ("$ cat notes"), where
the agent repeats its prompt, or in a sentence that negates it ("I cannot print <response>DONE</response> yet").
"""

from __future__ import annotations

import re

from ralph.core.model import ClaimRule

LONGEST_TAG = 10_000
"""An opening tag without a closing tag within this many characters is ignored."""

_LONGEST_LINE = 20_000
_HEAD = 200
_ECHO_WORDS = 3
_NEAR = 200

_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}|~{3,})(.*)")
_QUOTED = re.compile(
    r"""(?:[ ]{4}|[ ]{0,3}\t)              # indented code
      | \s*(?: [>|│┃]                       # a quotation, a table, a frame
             | \+{1,2}\s*(?=<) | -{1,2}(?=<)  # a line of a diff
             | \d+\s*[:|→\t]                # a numbered line of a listing
             | [^<]{0,200}?[:-]\d+[:-](?:\d+:|\s*(?=<))  # a hit of a search
           )""",
    re.VERBOSE,
)
_COMMAND = re.compile(r"\s*(?:\$|❯|➜|%)\s+\S")
_INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_CLAUSE_ENDS = re.compile(r"[.;:!?,—)(]+(?=\s|$)|\s-\s|\n")
_DENIED = re.compile(
    r"\b(?:not|never|cannot|unless|until|if|when|once|would|as\s+soon\s+as|instead\s+of|rather\s+than"
    r"|before\s+(?:i|we|you|it|(?:print|say|output|writ|end)ing))\b|n['’]t\b|\b(?:no|without)\s*$",
    re.IGNORECASE,
)
_POSTPONED = re.compile(r"\s*(?:after|later|yet)\b", re.IGNORECASE)


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
    return matches(find(text, rule, prompt), rule)


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


class Scanner:
    """Finds a claim in text that arrives piece by piece, with bounded memory."""

    def __init__(self, rule: ClaimRule, prompt: str = "") -> None:
        self._strict = rule.strict
        self._open_tag = f"<{rule.tag}>".casefold()
        self._tag = re.compile(rf"<(/?){re.escape(rule.tag)}>", re.IGNORECASE)
        self._echo_before, self._echo_after = self._learn(prompt)
        self._before = ""
        self._partial = ""
        self._is_long = False
        self._fence = ""
        self._is_output = False
        self._inside: list[str] | None = None
        self._found: str | None = None

    def feed(self, text: str) -> None:
        """Take the next piece of text; it may end anywhere."""
        if self._found is not None and not self._strict:
            return
        whole, newline, rest = text.rpartition("\n")
        if not newline:
            self._grow(rest)
            return
        first, _, block = (self._partial + whole).partition("\n")
        self._lines(first, was_long=self._is_long)
        if block:
            self._lines(block)
        self._partial, self._is_long = "", False
        self._grow(rest)

    def finish(self) -> str | None:
        """The claimed text, once all text has been fed."""
        if self._partial:
            self._lines(self._partial, was_long=self._is_long)
            self._partial = ""
        return self._found

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
        """Remember the words before the next tag: they show whether the agent repeats its prompt.

        Lines after a shell prompt, up to an empty line, are command output.
        """
        for line in text[-_LONGEST_LINE:].rpartition("\n\n")[2].split("\n"):
            self._is_output = bool(line.strip()) and (self._is_output or bool(_COMMAND.match(line)))
        if self._echo_before:
            self._before = f"{self._before}\n{text[-_HEAD:]}"[-_HEAD:]

    def _is_dull(self, block: str) -> bool:
        """Whether no line of the block can start, end or hide a claim."""
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
        if self._is_fenced(line) or self._is_output or _QUOTED.match(line):
            self._inside = None
            return
        text = _INLINE_CODE.sub(lambda code: " " * len(code[0]), line)
        if self._strict:
            self._only_tag(text, line)
        elif self._inside is not None or self._open_tag in text.casefold():
            self._tags(text, line)

    def _is_fenced(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if not self._fence:
            if mark and not (mark[1][0] == "`" and "`" in mark[2]):
                self._fence = mark[1]
            return bool(self._fence)
        if mark and mark[1].startswith(self._fence) and not mark[2].strip():
            self._fence = ""
        return True

    def _only_tag(self, text: str, line: str) -> None:
        tags = list(self._tag.finditer(text))
        if len(tags) == 2 and not tags[0][1] and tags[1][1]:
            outside = line[: tags[0].start()] + line[tags[1].end() :]
            if not outside.strip() and not self._is_echo(line, tags[0].start()):
                self._found = text[tags[0].end() : tags[1].start()].strip()

    def _tags(self, text: str, line: str) -> None:
        """Scan the tags of one line; the opening tag may be on an earlier line."""
        at = 0
        for tag in self._tag.finditer(text):
            if not tag[1]:
                refused = _is_denied_before(text, tag.start()) or self._is_echo(line, tag.start())
                self._inside = None if refused else []
            elif self._inside is not None:
                self._inside.append(text[at : tag.start()])
                if not _is_denied_after(text, tag.end()) and not self._is_echo_behind(line, tag.end()):
                    self._found = "".join(self._inside).strip()
                    return
                self._inside = None
            at = tag.end()
        if self._inside is not None:
            self._inside.append(text[at:] + "\n")
            if sum(map(len, self._inside)) > LONGEST_TAG:
                self._inside = None

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


def _is_denied_before(text: str, at: int) -> bool:
    """Whether the words before the tag, in the same clause, negate it."""
    return bool(_DENIED.search(_CLAUSE_ENDS.split(text[max(0, at - _NEAR) : at])[-1]))


def _is_denied_after(text: str, at: int) -> bool:
    """Whether the words after the tag continue its sentence and negate it."""
    clause = _CLAUSE_ENDS.split(text[at : at + _NEAR])[0]
    goes_on = clause.lstrip()[:1].islower()
    return goes_on and bool(_DENIED.search(clause) or _POSTPONED.match(clause))


def _shortened(line: str) -> str:
    """The start of a very long line, which may mark it as a quotation, and its end, where a claim would be."""
    return f"{line[:_HEAD]} {line[-LONGEST_TAG:]}"
