"""Which texts count as a claim, and which only look like one."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import some
from ralph.core import claims, prompt
from ralph.core.model import ClaimRule

RULE = ClaimRule()
PROMISE = ClaimRule(tag="promise", text="COMPLETE")
STRICT = ClaimRule(strict=True)
RULES = (RULE, PROMISE, STRICT, ClaimRule(tag="promise", text="COMPLETE", strict=True))
TAG = "<response>DONE</response>"


def case(*values: object, id: str) -> object:
    return pytest.param(*values, id=id)


def cases(table: dict[str, str]) -> list[object]:
    return [pytest.param(text, id=name) for name, text in table.items()]


def scan(pieces: list[str], rule: ClaimRule, base: str = "") -> str | None:
    scanner = claims.Scanner(rule, base)
    for piece in pieces:
        scanner.feed(piece)
    return scanner.finish()


def reason(pieces: list[str], rule: ClaimRule, base: str) -> str:
    scanner = claims.Scanner(rule, base)
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish()
    return scanner.unclaimed


# ---- genuine claims ----

GENUINE = {
    "alone": TAG,
    "inside a line": f"some output {TAG} more text",
    "last line": f"All tests pass.\n\n{TAG}\n",
    "first line": f"{TAG}\nHere is what I did: everything.",
    "indented": f"   {TAG}",
    "indented like code": f"All tests pass.\n\n    {TAG}",
    "indented by a tab": f"All tests pass.\n\t{TAG}",
    "bold": f"**{TAG}**",
    "list item": f"- {TAG}",
    "windows line ends": f"Finished.\r\n{TAG}\r\n",
    "tag in other case": "<RESPONSE>DONE</Response>",
    "spaces around the text": "<response>  DONE\t</response>",
    "text on its own line": "<response>\nDONE\n</response>",
    "text over blank lines": "<response>\n\n  DONE\n\n</response>",
    "after a closed fence": f"```python\nprint(1)\n```\n{TAG}",
    "after a tilde fence": f"~~~\nprint(1)\n~~~\n{TAG}",
    "after a fence closed by a longer one": f"```\nprint(1)\n`````\n{TAG}",
    "after a fence with windows line ends": f"```\r\nprint(1)\r\n```\r\n{TAG}",
    "after a decoy in a fence": f"```\n{TAG.replace('DONE', 'NO')}\n```\n{TAG}",
    "after a decoy in inline code": f"I print `<response>NO</response>` so: {TAG}",
    "after a quoted decoy": f"> <response>NO</response>\n{TAG}",
    "after a denial": f"I could not print {TAG} at first.\nNow I can.\n{TAG}",
    "after a denial in the same line": f"I would not print {TAG} early, but now: {TAG}",
    "after an unclosed opening tag": f"The <response> tag is asked for.\n{TAG}",
    "after an unclosed opening tag in the same line": f"The <response> tag: {TAG}",
    "after a stray closing tag": f"</response>\n{TAG}",
    "after a tag open for too long": "<response>\n" + "x\n" * claims.LONGEST_TAG + TAG,
    "after an opening tag closed by a fence": f"<response>\n```\n</response>\n```\n{TAG}",
    "after an odd backtick": f"A single ` is not code. {TAG}",
    "after three backticks inside a line": f"Use ``` to fence. {TAG}",
    "after a sentence that denies something else": f"It did not work. Now it does. {TAG}",
    "after a clause that denies something else": f"There was a bug that I could not see; fixed: {TAG}",
    "before a sentence that denies something else": f"{TAG}. It was not easy.",
    "a word that only contains a denial": f"The notification knots are done {TAG}",
    "an empty line after a command": f"$ make\n\n{TAG}",
    "a paragraph after command output": f"$ make\nok\n\nAll is good.\nFinished\n{TAG}",
    "an empty line after an unfinished sentence": f"I removed what the agent must print\n\n{TAG}",
    "after a time": f"Finished at 10:12:30: {TAG}",
    "after a date": f"Finished on 2026-11-19: {TAG}",
    "after a ticket": f"Fixed AUTH-12: {TAG}",
}

LOST = [
    case(f"{TAG} Let me know if you need more.", id="a polite ending"),
    case(f"I fixed what did not work - {TAG}", id="after a dash"),
    case(f"- ```\n  make\n  ```\n\n{TAG}", id="fence in a list"),
]


@pytest.mark.parametrize("text", [*cases(GENUINE), *LOST])
def test_a_genuine_tag_is_a_claim(text: str) -> None:
    """A tag in the agent's own text is found, whatever precedes it, in one piece or line by line."""
    assert (claims.find(text, RULE), scan(text.splitlines(keepends=True), RULE)) == ("DONE", "DONE")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<promise>COMPLETE</promise>", "COMPLETE"),
        ("all done <Promise>complete</PROMISE>.", "complete"),
        (TAG, None),
        (f"{TAG} <promise>COMPLETE</promise>", "COMPLETE"),
    ],
)
def test_only_the_expected_tag_counts(text: str, found: str | None) -> None:
    """A run that expects a promise tag ignores other tags."""
    assert claims.find(text, PROMISE) == found


@pytest.mark.parametrize(
    ("found", "matches"),
    [
        (None, False),
        ("", False),
        ("DONE", True),
        ("done", True),
        (" \n Done\t", True),
        ("DONE.", False),
        ("NOT DONE", False),
        ("DONE DONE", False),
    ],
)
def test_the_text_must_be_the_promised_one(found: str | None, matches: bool) -> None:
    """The whole text is compared, trimmed and ignoring case."""
    assert claims.matches(found, RULE) is matches


def test_the_promised_text_is_trimmed_too() -> None:
    """A promised text with spaces and non-English letters still matches."""
    assert claims.matches("straße fertig", ClaimRule(text=" STRASSE FERTIG "))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<response>NOT YET</response>", "NOT YET"),
        (f"<response>NOT YET</response>\n{TAG}", "NOT YET"),
        (f"<response>NOT YET</response> {TAG}", "NOT YET"),
        ("<response></response>", ""),
        ("<response>`DONE`</response>", "`DONE`"),
        ("<response>ALL\nDONE</response>", "ALL\nDONE"),
    ],
)
def test_the_first_tag_wins(text: str, found: str) -> None:
    """The first tag decides even if its text is wrong and the right one follows."""
    assert (claims.find(text, RULE), claims.claimed(text, RULE)) == (found, False)


# ---- decoys ----

DECOYS = {
    "nothing": "",
    "only words": "DONE",
    "opening tag only": "<response>DONE",
    "closing tag only": "DONE</response>",
    "tags the wrong way round": "</response>DONE<response>",
    "space inside the tag": "< response>DONE</ response>",
    "attribute": '<response id="1">DONE</response>',
    "escaped": "&lt;response&gt;DONE&lt;/response&gt;",
    "quoted": f"> {TAG}",
    "quoted without a space": f">{TAG}",
    "quoted twice": f"  > > {TAG}",
    "quoted text between tags": "<response>\n> DONE\n</response>",
    "table": f"| {TAG} |",
    "cat -n": f"     7\t{TAG}",
    "numbered with an arrow": f"     7→{TAG}",
    "numbered with a bar": f" 7 | {TAG}",
    "grep -n": f"12:{TAG}",
    "grep in files": f"docs/PROMPT.md:12:{TAG}",
    "grep in files with a column": f"docs/PROMPT.md:12:5: print {TAG}",
    "added line of a diff": f"+{TAG}",
    "removed line of a diff": f"-{TAG}",
    "backtick fence": f"```\n{TAG}\n```",
    "fence with a language": f"```xml\n{TAG}\n```",
    "tilde fence": f"~~~\n{TAG}\n~~~",
    "indented fence": f"   ```\n   {TAG}\n   ```",
    "longer fence around a shorter one": f"````\n```\n{TAG}\n```\n````",
    "fence not closed by the other kind": f"```\n~~~\n{TAG}\n~~~\n```",
    "fence not closed by a language": f"```\nmake\n```sh\n{TAG}\n```",
    "unclosed fence": f"```\n{TAG}",
    "fence in one line": f"```{TAG}```",
    "inline code": f"`{TAG}`",
    "inline code in a sentence": f"At the end I print `{TAG}` as asked.",
    "inline code with two backticks": f"``{TAG}``",
    "inline code with a backtick in it": f"``a ` {TAG}``",
    "half of it in inline code": "`<response>`DONE</response>",
    "cannot": f"I cannot print {TAG} yet",
    "will not": f"So I will not print {TAG}",
    "won't": f"So I won't print {TAG} now",
    "won't with a curly apostrophe": f"So I won’t print {TAG} now",
    "never": f"Never print {TAG} too early",
    "would be wrong": f"{TAG} would be wrong",
    "is not right": f"{TAG} is not right, as a test fails",
    "if everything were finished": f"If everything were finished I would print {TAG}",
    "when": f"When all tests pass I print {TAG}",
    "once": f"I print {TAG} once all tests pass",
    "until": f"Until all tests pass no {TAG}",
    "before": f"Before printing {TAG} I run the tests",
    "unless": f"Unless all tests pass {TAG} must wait",
    "without": f"I stop without {TAG} for now",
    "instead of": f"Instead of {TAG} here is a list of open points",
    "instead of, over two spaces": f"Instead  of {TAG} here is a list of open points",
    "denied, text on its own line": "I cannot print <response>\nDONE\n</response>",
    "denied in capitals": f"I CANNOT PRINT {TAG}",
    "inline code over two lines": f"`{TAG}\n`",
    "a command": f"$ echo {TAG}",
}

MISSED = [
    case(
        f"1.  x\n\n    ```\n    {TAG}\n    ```",
        id="fence in list",
    ),
    case(f"\t```\n\t{TAG}\n\t```", id="fence behind a tab"),
    case(f"- ```\n  {TAG}\n  ```", id="fence behind a list marker"),
    case(f"I cannot say that main.py is {TAG}", id="denied before a name"),
    case(f"I will print {TAG} after the tests pass", id="after"),
    case(f"I print {TAG} as soon as the tests pass", id="as soon as"),
    case(f"There is no {TAG} yet", id="no ... yet"),
    case(f"+    {TAG}", id="indented line of a diff"),
    case(f"It says:\n\n    {TAG}\n", id="indented code"),
    case(f"It says:\n\n\t{TAG}\n", id="code indented by a tab"),
    case(f"$ cat docs/loop.md\nIt ends with\n{TAG}\n\nNotes missing.", id="command output"),
    case(f"++{TAG}", id="line of a merge's diff"),
    case(f"my notes.md:12:{TAG}", id="grep in a file with a space"),
    case(f"notes.md-12-{TAG}", id="context line of grep"),
    case(f"│ {TAG}", id="drawn quotation bar"),
    case("> " + "x" * 1_000_000 + TAG, id="quoted line of a megabyte"),
    case("`" + "x" * 1_000_000 + TAG + "`", id="inline code of a megabyte"),
]


@pytest.mark.parametrize("text", [*cases(DECOYS), *MISSED])
def test_a_decoy_is_not_a_claim(text: str) -> None:
    """A quoted, denied or broken tag, or one shown as code, is not a claim, in one piece or line by line."""
    assert (claims.find(text, RULE), scan(text.splitlines(keepends=True), RULE)) == (None, None)


ECHOES = {
    "sentence": f"Fix the bug and print {TAG} at the end.",
    "two words are enough": f"Finally print {TAG}",
    "words behind the tag": f"{TAG} is what to print",
    "bare tag on its own line": f"Fix the bug. At the end print\n\n{TAG}",
    "bare tag in the middle": f"At the end print\n{TAG}\nand nothing else.",
    "bare tag twice": f"Print this:\n{TAG}\nAgain, this:\n{TAG}",
    "bare tag behind a list marker": f"Print one of\n- {TAG}\n- <response>STUCK</response>",
    "one word next to the tag": f"Fix the bug.\nPrint {TAG}",
    "tag over three lines": "At the end print\n<response>\nDONE\n</response>",
    "tag over three lines in a sentence": "At the end print <response>\nDONE\n</response> please",
    "other case": f"At the end print {TAG.upper()}",
    "completion instruction": prompt.instruction(RULE),
    "base with the completion instruction": f"Fix the bug.\n\n{prompt.instruction(RULE)}",
}

MISSED_ECHOES = [
    case(f"Print {TAG}", f"Print {TAG}", id="one word in the first line"),
    case(
        f"At the end print\u2028{TAG}",
        f"At the end print\u2028{TAG}",
        id="another line separator",
    ),
    case(
        f"Fix all the tests and print {TAG} as the last line of your answer",
        f"Fix all the tests and print\n{TAG} as the last\nline of your answer",
        id="wrapped by the agent",
    ),
]


@pytest.mark.parametrize(
    ("base", "output"),
    [
        *(pytest.param(base, base, id=name) for name, base in ECHOES.items()),
        *(
            pytest.param(base, f"user\n{base}\n\nthinking\n", id=f"{name}, framed")
            for name, base in ECHOES.items()
        ),
        *(pytest.param(base, f"user:\r\n{base}\r\n", id=f"{name}, CRLF") for name, base in ECHOES.items()),
        *MISSED_ECHOES,
    ],
)
def test_an_echoed_prompt_is_not_a_claim(base: str, output: str) -> None:
    """An agent that repeats its prompt does not claim anything."""
    assert claims.find(output, RULE, base) is None


@pytest.mark.parametrize("base", [*ECHOES.values()], ids=[*ECHOES])
def test_a_claim_after_the_echoed_prompt_is_found(base: str) -> None:
    """An echo of the prompt does not hide the claim that follows it."""
    assert claims.find(f"{base}\n\nI fixed the bug.\n\n{TAG}\n", RULE, base) == "DONE"


def test_a_bare_tag_is_an_echo_only_after_the_same_line() -> None:
    """A bare tag from the prompt counts as a claim unless it follows the same line as in the prompt."""
    base = f"At the end print\n{TAG}"
    assert claims.find(f"All tests pass.\n{TAG}", RULE, base) == "DONE"


def test_the_echoed_instruction_is_not_a_claim_even_without_the_prompt() -> None:
    """The sentence before the tag says that it is to be printed later."""
    assert [claims.find(prompt.instruction(rule), rule) for rule in (RULE, PROMISE)] == [None, None]


# ---- why a tag does not count ----

REASONS = {
    "no tag": ("All is done.", ""),
    "a claim": (f"At the end I print `{TAG}`.\n\nNow all is done.\n{TAG}", ""),
    "inline code": (f"Done: `{TAG}`", claims.CODE),
    "half in inline code": ("`<response>`DONE</response>", claims.CODE),
    "fence": (f"It says:\n```\n{TAG}\n```\n", claims.BLOCK),
    "fence over lines": ("~~~\n<response>\nDONE\n</response>\n~~~\n", claims.BLOCK),
    "long fence": ("```\n" + "x\n" * 50_000 + f"{TAG}\n```\n", claims.BLOCK),
    "quotation": (f"> {TAG}", claims.QUOTATION),
    "diff": (f"+{TAG}", claims.LISTING),
    "unchanged line of a diff": (f"@@ -1 +1,2 @@\n {TAG}\n+more", claims.LISTING),
    "search hit": (f"docs/loop.md:2:{TAG}", claims.LISTING),
    "command output": (f"$ cat notes\n{TAG}", claims.LISTING),
    "later": (f"I will print {TAG}", claims.MENTIONED),
    "denied": (f"I cannot print {TAG} yet", claims.MENTIONED),
    "mentioned": (f"The notes say: {TAG}", claims.MENTIONED),
    "echo": (f"You asked: Fix it and print {TAG}", claims.ECHO),
    "another text": ("<response>NOT YET</response>", 'its text is "NOT YET", not "DONE"'),
    "another text first": (f"<response>NO\nNO</response>\n{TAG}", 'its text is "NO NO", not "DONE"'),
    "never closed": ("All is done. <response>DONE", claims.UNCLOSED),
    "never closed and not the text": ("The <response> tag is not due yet.", ""),
    "the promised text before another": (f"`<response>NO</response>`\n> {TAG}", claims.QUOTATION),
    "the first of two": (f"`{TAG}`\n> {TAG}", claims.CODE),
    "an own tag before an echo": (f"Fix it and print {TAG}\n`{TAG}`", claims.CODE),
}
STRICT_REASONS = {
    "alone": (TAG, ""),
    "not last": (f"{TAG}\nOne more thing.", claims.NOT_ALONE),
    "not alone": (f"All done: {TAG}", claims.NOT_ALONE),
    "bold": (f"**{TAG}**", claims.NOT_ALONE),
    "over lines": ("<response>\nDONE\n</response>", claims.NOT_ALONE),
    "another text in a sentence": ("I say <response>NO</response>", 'its text is "NO", not "DONE"'),
    "another text": ("<response>NO</response>", 'its text is "NO", not "DONE"'),
    "inline code": (f"`{TAG}`", claims.CODE),
    "fence": (f"```\n{TAG}\n```", claims.BLOCK),
    "indented": (f"Done.\n\n    {TAG}", claims.INDENTED),
    "echo": (f"Fix it and print\n{TAG}", claims.ECHO),
}


@pytest.mark.parametrize(
    ("rule", "text", "why"),
    [
        *(case(RULE, text, why, id=name) for name, (text, why) in REASONS.items()),
        *(case(STRICT, text, why, id=f"strict, {name}") for name, (text, why) in STRICT_REASONS.items()),
    ],
)
def test_the_reason_why_a_tag_does_not_count(rule: ClaimRule, text: str, why: str) -> None:
    """It is about the first tag with the promised text, or else the first tag, however the text arrives."""
    base = f"Fix it and print {TAG}"
    scanner = claims.Scanner(rule, base)
    for line in text.splitlines(keepends=True):
        scanner.feed(line)
    claimed = claims.matches(scanner.finish(), rule)
    assert (claims.ClaimSeen(claimed, scanner.unclaimed), why) == (
        claims.look(text, rule, base),
        scanner.unclaimed,
    )


def test_the_text_in_a_reason_is_one_short_line() -> None:
    """A long text over many lines is cut."""
    why = claims.look("<response>" + "no way\n" * 500 + "</response>", RULE).unclaimed
    assert why == f'its text is "{"no way " * 8}no w...", not "DONE"'


# ---- the strict rule ----


@pytest.mark.parametrize(
    "text",
    [
        TAG,
        f"  {TAG}\t\r\n",
        f"All tests pass.\n\n{TAG}\n\n   \n",
        f"I cannot believe it is finished:\n{TAG}",
        f"<response>NO</response>\n{TAG}",
        f"```\nmake\n```\n{TAG}",
        "<RESPONSE> done </RESPONSE>",
    ],
)
def test_a_strict_claim_stands_alone_on_the_last_line(text: str) -> None:
    """Under the strict rule, the tag must stand alone on the last non-empty line."""
    assert claims.claimed(text, STRICT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"some output {TAG}",
        f"{TAG} more text",
        f"{TAG}.",
        f"**{TAG}**",
        f"{TAG}{TAG}",
        f"{TAG}\nOne more thing.",
        f"{TAG}\n```\nmake\n```",
        f"{TAG}\n> quoted",
        f"{TAG}\n```",
        f"> {TAG}",
        f"+{TAG}",
        f"`{TAG}`",
        f"```\n{TAG}\n```",
        f"```\n{TAG}",
        f"{TAG}\n<response>NO</response>",
        "<response>\nDONE\n</response>",
        "</response>DONE<response>",
        case(f"`make` {TAG}", id="inline code next to the tag"),
    ],
)
def test_anything_else_is_not_a_strict_claim(text: str) -> None:
    """Under the strict rule, a tag with anything around or after it is not a claim."""
    assert not claims.claimed(text, STRICT)


def test_a_strict_echo_is_not_a_claim() -> None:
    """An echo of a prompt that ends with the bare tag is not a claim under the strict rule either."""
    base = f"Fix the bug. At the end print\n{TAG}"
    assert claims.find(base, STRICT, base) is None


# ---- the commit message ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ""),
        (" \n\t\n", ""),
        ("Fix the parser", "Fix the parser"),
        ("\n\n  Fix the parser  \n\nIt was wrong.", "Fix the parser"),
        ("Here it is: <response>Fix the parser</response>", "Fix the parser"),
        ("<RESPONSE>\nFix the parser\n\nIt was wrong.\n</RESPONSE>", "Fix the parser\n\nIt was wrong."),
        ("<response>First</response><response>Second</response>", "First"),
        ("<response></response>", ""),
        ("<response>unclosed", "<response>unclosed"),
    ],
)
def test_the_commit_message(text: str, message: str) -> None:
    """The commit message is the text of the first tag, or else the first non-empty line."""
    assert claims.message(text) == message


# ---- neutralised tags ----


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        (TAG, "&lt;response&gt;DONE&lt;/response&gt;"),
        ("<Promise>x</PROMISE >", "&lt;Promise&gt;x&lt;/PROMISE &gt;"),
        ('<response id="1">', '&lt;response id="1"&gt;'),
        ("<respo<response>nse>", "<respo&lt;response&gt;nse>"),
        ("<<response>response>", "<&lt;response&gt;response>"),
        ("<responses> <div> a<b", "<responses> <div> a<b"),
        ("", ""),
    ],
)
def test_tags_are_made_harmless(text: str, harmless: str) -> None:
    """Both tags lose their angle brackets and nothing else changes."""
    assert claims.neutralise(text) == harmless


PIECES = (
    *(
        "<response>",
        "</response>",
        "<RESPONSE>",
        "<promise>",
        "</promise>",
        TAG,
        "<promise>COMPLETE</promise>",
    ),
    *("<", ">", "/", "<respo", "nse>", "<prom", "ise>", "ſ", "&lt;"),
    *("```", "~~~", "````", "`", "``", "```sh", "> ", "| ", "+", "   ", "\t", "12:", "a.md:3:", "7→"),
    *("DONE", "COMPLETE", "not ", "would ", "if ", ". ", ", ", "words ", "end your answer with "),
    *("\n", "\n", "\n", "\n\n", "\r\n", " "),
)
texts = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@given(st.one_of(texts, st.text()))
def test_harmless_text_is_never_a_claim(text: str) -> None:
    """Neutralised text contains no claim under any rule, and neutralising it again changes nothing."""
    harmless = claims.neutralise(text)
    found = [claims.find(harmless, rule) for rule in RULES]
    assert (found, claims.neutralise(harmless)) == ([None] * len(RULES), harmless)


# ---- properties of the scanner ----


@given(texts, texts, st.sampled_from(RULES), st.data())
def test_the_scanner_finds_the_same_in_pieces(
    text: str, base: str, rule: ClaimRule, data: st.DataObject
) -> None:
    """A scanner fed in pieces finds the same as in the whole text, wherever the text is cut."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found, whole = claims.find(text, rule, base), claims.look(text, rule, base).unclaimed
    assert (scan(pieces, rule, base), scan([*text], rule, base)) == (found, found)
    assert (reason(pieces, rule, base), reason([*text], rule, base)) == (whole, whole)


@given(st.one_of(texts, st.text()), st.text(), st.sampled_from(RULES))
def test_any_text_can_be_searched(text: str, base: str, rule: ClaimRule) -> None:
    """Whatever the output and the prompt, nothing is found unless the output contains both tags."""
    tags = {f"<{rule.tag}>", f"</{rule.tag}>"}
    assert claims.find(text, rule, base) is None or all(tag in text.casefold() for tag in tags)


@given(texts, st.sampled_from(RULES))
def test_a_quoted_text_is_never_a_claim(text: str, rule: ClaimRule) -> None:
    """Text with every line quoted is never a claim."""
    assert claims.find("\n".join(f"> {line}" for line in text.split("\n")), rule) is None


@given(texts, st.sampled_from(RULES), st.sampled_from("`~"))
def test_a_fenced_text_is_never_a_claim(text: str, rule: ClaimRule, mark: str) -> None:
    """Text inside a fence longer than any fence in it is never a claim."""
    fence = mark * 200
    assert claims.find(f"{fence}\n{text}\n{fence}\n", rule) is None


@given(texts, st.sampled_from(RULES))
def test_an_echo_after_the_first_line_is_never_a_claim(text: str, rule: ClaimRule) -> None:
    """Repeating a prompt whose first line has no tag is never a claim."""
    base = f"Do this:\n{text}"
    assert claims.find(base, rule, base) is None


@given(texts.map(lambda text: text.replace("`", "")))
def test_the_strict_rule_finds_only_a_whole_last_line(text: str) -> None:
    """In text without code, the strict rule only finds a tag that fills the last non-empty line."""
    found = claims.find(text, STRICT)
    last = next((line for line in reversed(text.split("\n")) if line.strip()), "")
    content = re.fullmatch(r"<response>(.*)</response>", last.strip(), re.IGNORECASE)
    assert found is None or (content is not None and content[1].strip() == found)


# ---- endless output ----


def test_a_claim_after_an_endless_line_is_found() -> None:
    """A claim after a line of five megabytes is found, in one piece or in many."""
    text = "x" * 5_000_000 + f"\n{TAG}\n"
    pieces = [text[at : at + 65_536] for at in range(0, len(text), 65_536)]
    assert (claims.find(text, RULE), scan(pieces, RULE), scan(pieces, STRICT)) == ("DONE",) * 3


def test_a_claim_at_the_end_of_an_endless_line_is_found() -> None:
    """The end of an endless line is kept, so a claim there is found."""
    pieces = ["words and " * 6_000] * 40
    assert scan([*pieces, TAG], RULE) == "DONE"


@pytest.mark.parametrize("start", some(["<response>", "", "```\n", "> "], 1))
@pytest.mark.parametrize("piece", some(["x" * 65_536, "x\n" * 32_768, "\n" * 65_536], 2))
def test_memory_is_bounded(start: str, piece: str) -> None:
    """Three megabytes of output, with or without line breaks, are never held in memory at once."""
    scanner = claims.Scanner(RULE)
    scanner.feed(start)
    tracemalloc.start()
    for _ in range(48):
        scanner.feed(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_400_000


def search(text: str) -> str | None:
    return claims.find(text, RULE)


SLOW = [
    case(search, "<response>" * 1_500, id="a line of opening tags"),
    case(search, "<response>x</response> not " * 3_000, id="a line of denied tags"),
    case(search, "```\n" + "<response>x</response>\n" * 4_000, id="a code block of tags"),
    case(search, "<response> " + " ".join("`" * n for n in range(450)), id="a line of backticks"),
    case(claims.message, "<response>" * 3_500, id="an answer of opening tags"),
]
QUICK = [
    pytest.param(search, "a.md:1" * 20_000 + "<response>", id="a line that may be a search hit"),
    pytest.param(search, " " * 100_000 + "<response>", id="a line of spaces"),
    pytest.param(search, "<response>\n" * 10_000, id="lines of opening tags"),
    pytest.param(claims.neutralise, "<response" * 20_000, id="opening tags made harmless"),
    pytest.param(claims.neutralise, "</" + " " * 100_000, id="spaces made harmless"),
]


@pytest.mark.parametrize(("function", "text"), [*QUICK, *SLOW])
def test_searching_is_fast(function: Callable[[str], object], text: str) -> None:
    """A degenerate answer of a hundred kilobytes is searched in a fraction of a second."""
    began = time.thread_time()
    function(text)
    assert time.thread_time() - began < 0.25
