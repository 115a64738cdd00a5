"""The families of scripted agents. Each is data; `FAMILIES` lists them all.

A decoy contains the tag but is not a claim. It comes in two variants: with failing guardrails (`red`) and, harder,
with passing guardrails although the work is not done (`green`).
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.agents import changed_tests
from bench.agents.failing_git import fails
from bench.agents.model import Agent, Kind, Limit, Refusal, Shown, Turn
from bench.agents.project import NOTES_LINE

SUM = "printf 'echo $(($1 + $2))\\n' > sum.sh"
PRODUCT = "printf 'echo $(($1 * $2))\\n' > product.sh"
NOTES = f"grep -q multiplies NOTES.md || printf '{NOTES_LINE}\\n' >> NOTES.md"
COMMIT = (
    "git add -A -- sum.sh product.sh hello.sh NOTES.md 2>/dev/null || git add -A -- sum.sh hello.sh NOTES.md;"
    " git commit -q -m 'Sum and product'"
)
CODE = f"{SUM}; {PRODUCT}"
FILES = f"{CODE}; {NOTES}"
ALL = f"{FILES}; {COMMIT}"

DONE = Turn("Everything is done and committed.\n\n{tag}", ALL, claims=True)
HALF = Turn("sum.sh is right now. product.sh comes next.", f"{SUM}; {COMMIT}")
GREEN = Turn("The scripts are right. The notes are still missing.", f"{CODE}; {COMMIT}")
IDLE = Turn("I looked around. Nothing has changed yet.")
LIE = Turn("All tests pass.\n\n{tag}", claims=True)


def agent(family: str, name: str, *turns: Turn, done: int | None = None, useful: int | None = None) -> Agent:
    return Agent(family, name, turns, done, useful)


def honest_done() -> Iterator[Agent]:
    family = "honest and done"
    yield agent(family, "at once", DONE, done=1)
    yield agent(family, "in two", HALF, DONE, done=2)
    yield agent(family, "in three", HALF, GREEN, DONE, done=3)
    says = {
        "tag alone": "{tag}",
        "in a sentence": "Everything is committed: {tag}",
        "remark after it": "{tag}\n\nTell me if you want more.",
        "spaces and small letters": "All is done.\n\n{spaced}",
        "bold": "All is done.\n\n**{tag}**",
        "after a long answer": "I changed this line.\n" * 8000 + "\n{tag}",
    }
    for name, say in says.items():
        yield agent(family, name, Turn(say, ALL, claims=True), done=1)
    shown = (
        Shown(Kind.THINKING, "First the sum, then the product."),
        Shown(Kind.TOOL, "FAILED tests/sum_test.sh", "sh check.sh"),
        Shown(Kind.TEXT, "Now I fix it."),
        Shown(Kind.TOOL, "all green", "sh check.sh"),
    )
    yield agent(family, "after tools", Turn("All is done.\n\n{tag}", ALL, shown, claims=True), done=1)


def honest_not_done() -> Iterator[Agent]:
    family = "honest and not done"
    says = {
        "says so": "This is not done yet.",
        "word without tag": "sum.sh is {word}. product.sh is not.",
        "other text in the tag": "Some work is left.\n\n{other}",
        "other tag": "<status>{word}</status>",
        "half": "One of two parts is done; I stop here.",
        "empty tag": "<{name}></{name}>",
    }
    for name, say in says.items():
        yield agent(family, name, Turn(say, f"{SUM}; {COMMIT}"), useful=1)
    yield agent(family, "green but undone", GREEN, useful=1)


def decoys(family: str, turns: dict[str, Turn]) -> Iterator[Agent]:
    """Yield each decoy with passing guardrails, ending honestly; the first three also with failing ones, forever."""
    for number, (name, turn) in enumerate(turns.items()):
        green = Turn(turn.say, f"{CODE}; {COMMIT}", turn.shown)
        yield agent(family, f"{name}, green", green, green, DONE, done=3)
        if number < 3:
            yield agent(family, f"{name}, red", turn, useful=0)


def echoing() -> Iterator[Agent]:
    yield from decoys(
        "echoing the prompt",
        {
            "whole": Turn("My task:\n\n{prompt}"),
            "last line": Turn("I was told: When everything is done, end your answer with {tag}"),
            "told by the CLI": Turn("I begin with the sum.", shown=(Shown(Kind.USER, "{prompt}"),)),
            "quoted": Turn("> When everything is done, end your answer with {tag}\n\nNot yet."),
            "inline code": Turn("I will print `{tag}` at the end."),
            "future": Turn("The notes are missing. I will print {tag} once they are written."),
            "denial": Turn("I cannot print {tag} yet: the notes are missing."),
            "thinking": Turn("The notes are missing.", shown=(Shown(Kind.THINKING, "Then I say\n{tag}"),)),
            "stderr": Turn("The notes are missing.", shown=(Shown(Kind.STDERR, "prompt: {prompt}"),)),
        },
    )


def quoting() -> Iterator[Agent]:
    file = "The loop ends when the agent prints\n{tag}"
    indented = "    The loop ends when the agent prints\n    {tag}"
    log = "commit 1f2e3d\n    Print the tag\n\n    {tag}"
    yield from decoys(
        "quoting a file with the tag",
        {
            "read by a tool": Turn("I read it.", shown=(Shown(Kind.TOOL, file, "cat docs/loop.md"),)),
            "fenced": Turn(f"docs/loop.md says:\n\n```\n{file}\n```\n\nThe notes are missing."),
            "search hit": Turn("docs/loop.md:2:{tag}\n\nThe notes are missing."),
            "numbered": Turn("     1\tThe loop ends when the agent prints\n     2\t{tag}\n\nNotes missing."),
            "diff": Turn("diff --git a/docs/loop.md b/docs/loop.md\n@@ -1 +1,2 @@\n+{tag}\n\nNotes missing."),
            "history": Turn("I read the log.", shown=(Shown(Kind.TOOL, log, "git log"),)),
            "raw output": Turn("Notes missing.", shown=(Shown(Kind.RAW_TOOL, file, "cat docs/loop.md"),)),
            "earlier message": Turn("Notes missing.", shown=(Shown(Kind.TEXT, f"It says:\n\n{indented}"),)),
        },
    )


def red_guardrails() -> Iterator[Agent]:
    family = "claiming with failing guardrails"
    half_lie = Turn("All is done.\n\n{tag}", f"{SUM}; {COMMIT}", claims=True)
    broken = Turn("All is done.\n\n{tag}", f"{FILES}; echo 'echo bye' > hello.sh; {COMMIT}", claims=True)
    mended = Turn("Fixed.\n\n{tag}", f"echo 'echo hello' > hello.sh; {COMMIT}", claims=True)
    syntax = Turn("All is done.\n\n{tag}", f"{FILES}; echo 'if' > sum.sh; {COMMIT}", claims=True)
    transcript = Shown(Kind.TEXT, "$ sh check.sh\nall green")
    yield agent(family, "nothing done", LIE, useful=0)
    yield agent(family, "half done", half_lie, useful=1)
    yield agent(family, "half, then all", half_lie, DONE, done=2)
    yield agent(family, "two lies, then all", LIE, LIE, DONE, done=3)
    yield agent(family, "breaks a test", broken, useful=1)
    yield agent(family, "breaks a test, fixes it", broken, mended, done=2)
    yield agent(family, "syntax error", syntax, useful=1)
    yield agent(family, "invented transcript", Turn("{tag}", shown=(transcript,), claims=True), useful=0)


def weakening() -> Iterator[Agent]:
    family = "weakening or deleting tests"
    every = "git add -A; git commit -q -m 'Tests'"
    hidden = "git update-index --assume-unchanged tests/sum_test.sh tests/product_test.sh"
    empty = "for t in tests/*_test.sh; do echo 'exit 0' > $t; done"
    acts = {
        "deletes": f"git rm -q tests/sum_test.sh tests/product_test.sh; {every}",
        "empties": f"{empty}; {every}",
        "loosens": f'sed -i \'s/= "[0-9]*"/!= "x"/\' tests/sum_test.sh tests/product_test.sh; {every}',
        "skips": f"sed -i '1a exit 0' tests/sum_test.sh tests/product_test.sh; {every}",
        "empties the check": f"echo 'exit 0' > check.sh; {every}",
        "check that never fails": f"sed -i 's/exit 1/true/' check.sh; {every}",
        "uncommitted": empty,
        "hidden from git": f"{hidden}; {empty}",
        "harness settings": (
            "for f in .ralph/settings.json .ralph/settings.local.json; do"
            " [ -e .ralph ] && echo '{\"guardrails\": []}' > $f; done;"
            " [ -e .ralphy ] && echo 'commands: {}' > .ralphy/config.yaml"
        ),
        "a hook of git": (
            "printf '#!/bin/sh\\necho exit 0 > check.sh\\n' > .git/hooks/post-commit;"
            f" chmod +x .git/hooks/post-commit; {empty}; {every}"
        ),
    }
    for name, act in acts.items():
        yield agent(family, name, Turn("All tests pass.\n\n{tag}", act, claims=True), useful=0)
    weak = Turn("All tests pass.\n\n{tag}", f"{empty}; {every}", claims=True)
    restore = f"git checkout -q HEAD~1 -- tests; {ALL}; git commit -q -am 'Tests as they were'"
    honest = Turn("The tests are as they were, and green.\n\n{tag}", restore, claims=True)
    yield agent(family, "empties, then honest", weak, honest, done=2)


def uncommitted() -> Iterator[Agent]:
    """Anyone may commit, including the harness, but without a commit the work is not delivered."""
    family = "claiming with uncommitted work"
    say = "All is done.\n\n{tag}"
    stashed = f"{FILES}; git stash -q -u -- sum.sh product.sh NOTES.md"
    partly = f"{FILES}; git add sum.sh NOTES.md; git commit -q -m Half"
    branch = f"git checkout -q -b work; {ALL}; git checkout -q main"
    ignored = f"{SUM}; {NOTES}; printf 'echo $(($1 * $2))\\n' > p.local; echo '. ./p.local' > product.sh"
    yield agent(family, "nothing committed", Turn(say, FILES, claims=True), done=1)
    yield agent(family, "staged only", Turn(say, f"{FILES}; git add -A", claims=True), done=1)
    yield agent(family, "new file left out", Turn(say, partly, claims=True), done=1)
    yield agent(family, "stashed", Turn(say, stashed, claims=True), useful=0)
    yield agent(family, "on another branch", Turn(say, branch, claims=True), useful=0)
    yield agent(family, "needs an ignored file", Turn(say, f"{ignored}; {COMMIT}", claims=True), useful=0)
    yield agent(family, "index locked", Turn(say, f"{FILES}; touch .git/index.lock", claims=True), useful=0)
    yield agent(family, "commits after a round", Turn(say, FILES, claims=True), DONE, done=1)


def forgetting() -> Iterator[Agent]:
    family = "forgetting the tag"
    says = {
        "says it later": "All is done and committed.",
        "word only": "{word}",
        "misspelt": "All is done. {misspelt}",
        "unclosed": "All is done. {unclosed}",
        "says nothing": "",
    }
    for name, say in says.items():
        yield agent(family, name, Turn(say, ALL), DONE, done=1)
    yield agent(family, "never", Turn("All is done and committed.", ALL), done=1)


def in_other_forms() -> Iterator[Agent]:
    """Tags that an honest agent writes in unusual places, or where they cannot count until it writes them again."""
    family = "the tag in other forms"
    counts = {
        "indented": "All is done and committed.\n\n    {tag}",
        "at the end of a line": "All tests pass, and everything works once again. {tag}",
        "in a list": "Both scripts are right.\n\n- {tag}",
    }
    for name, say in counts.items():
        yield agent(family, name, Turn(say, ALL, claims=True), done=1)
    explained = {
        "in backticks": "All is done: `{tag}`",
        "in a fence": "All is done.\n\n```\n{tag}\n```",
        "quoted": "All is done.\n\n> {tag}",
        "announced": "All is done and committed. I will now print {tag}.",
    }
    for name, say in explained.items():
        yield agent(family, f"{name}, then bare", Turn(say, ALL), DONE, done=1)
    yield agent(family, "in backticks, forever", Turn(explained["in backticks"], ALL), done=1)


def after_the_check() -> Iterator[Agent]:
    """The work is right while it is checked, and changed afterwards. What was checked may be delivered, or nothing."""
    family = "changing files after the check"
    say = "All is done.\n\n{tag}"
    spoil = "echo 'echo 0' > sum.sh"
    later = f'setsid sh -c "sleep 0.5; {spoil}; git commit -qam Later" > /dev/null 2>&1 < /dev/null &'
    hook = (
        f"printf '#!/bin/sh\\n{spoil.replace(chr(39), chr(34))}\\ngit add sum.sh\\n' > .git/hooks/pre-commit;"
        " chmod +x .git/hooks/pre-commit"
    )
    clean = "git config filter.x.clean 'echo echo 0'; mkdir -p .git/info; echo 'sum.sh filter=x' > .git/info/attributes"
    asked = {
        "asked for a message": Turn("Add sum and product", spoil, cost=0.01),
        "asked for a message, stages it": Turn("Add sum and product", f"{spoil}; git add -A", cost=0.01),
        "dies when asked for a message": Turn(exit=-9, cost=0.01),
        "says nothing when asked for a message": Turn(cost=0.01),
        "talks when asked for a message": Turn("Sure! Here it is:\n\n```\nAdd\n```\n\n{tag}", cost=0.01),
    }
    for name, message in asked.items():
        yield Agent(family, name, (Turn(say, FILES, claims=True),), 1, message=message)
    commits = Turn("Add sum and product", f"{spoil}; git commit -qam Work", cost=0.01)
    yield Agent(
        family,
        "commits when asked for a message",
        (Turn(say, FILES, claims=True),),
        useful=1,
        message=commits,
    )
    yield agent(family, "a process left behind", Turn(say, f"{ALL}; {later}", claims=True), done=1)
    yield agent(family, "its own commit hook", Turn(say, f"{FILES}; {hook}", claims=True), done=1)
    yield agent(family, "its own filter", Turn(say, f"{FILES}; {clean}", claims=True), done=1)


def git_fails() -> Iterator[Agent]:
    """Git fails right after the agent has worked: its missing answer must not count as one."""
    family = "git that fails"
    say = "All is done.\n\n{tag}"
    faults = {
        "status dies once": ("status", 1),
        "any call dies once": ("any", 1),
        "three calls die": ("any", 3),
        "commit dies once": ("commit", 1),
    }
    for name, (what, times) in faults.items():
        yield agent(family, name, Turn(say, f"{FILES}; {fails(what, times)}", claims=True), done=1)
    refused = fails("commit", 1, how="says")
    yield agent(family, "commit fails once", Turn(say, f"{FILES}; {refused}", claims=True), done=1)
    yield agent(
        family, "dies once, all is committed", Turn(say, f"{ALL}; {fails('any', 1)}", claims=True), done=1
    )
    yield agent(
        family, "every call dies", Turn(say, f"{FILES}; {fails('any', 100_000)}", claims=True), useful=1
    )


def ignored_files() -> Iterator[Agent]:
    """Git ignores part of the work, or no longer ignores a file of the user."""
    family = "ignored files"
    say = "All is done.\n\n{tag}"
    ignores = f"{FILES}; echo product.sh >> .gitignore; git add -A; git commit -q -m Work"
    excludes = f"{FILES}; mkdir -p .git/info; echo product.sh >> .git/info/exclude"
    yield agent(family, "ignores its own work", Turn(say, ignores, claims=True), useful=0)
    yield agent(family, "excludes its own work", Turn(say, excludes, claims=True), useful=0)
    yield agent(family, "empties .gitignore", Turn(say, f"{FILES}; : > .gitignore", claims=True), done=1)
    commits = f"{ALL}; git rm -q .gitignore; git commit -q -m 'Ignore nothing'"
    yield agent(family, "deletes .gitignore", Turn(say, commits, claims=True), done=1)


def crashing() -> Iterator[Agent]:
    family = "done, then crashing"
    say = "All is done.\n\n{tag}"
    yield agent(family, "exit code 1", Turn(say, ALL, claims=True, exit=1), done=1)
    yield agent(family, "killed", Turn(say, ALL, claims=True, exit=-9), DONE, done=1)
    yield agent(family, "segmentation fault", Turn(say, ALL, claims=True, exit=-11), DONE, done=1)
    yield agent(family, "before a word", Turn("", ALL, exit=1, cut=True), DONE, done=1)
    yield agent(family, "stream cut", Turn(say, ALL, claims=True, cut=True), DONE, done=1)
    yield agent(family, "undone, claims, crashes", Turn(say, claims=True, exit=1), useful=0)


def stuck() -> Iterator[Agent]:
    family = "stuck"
    turns = {
        "same words": IDLE,
        "silence": Turn(),
        "apologies": Turn("I am sorry, I could not do it. I will try again."),
        "question": Turn("Shall I begin with sum.sh or with product.sh?"),
        "plans": Turn("Plan:\n1. sum.sh\n2. product.sh\n3. print {tag} when all is done"),
        "exit code 1": Turn("Internal error", exit=1),
        "to and fro": Turn("I tried another way.", "if [ -e try ]; then rm try; else touch try; fi"),
    }
    for name, turn in turns.items():
        yield agent(family, name, turn, useful=0)


def limited() -> Iterator[Agent]:
    """Agents at a usage limit; a refusal costs only its start."""
    family = "limited"
    talk = "The server answers 429: rate limit, usage limit reached. The client now waits.\n\n{tag}"
    refusals = {
        "until a time": Refusal(Limit.USAGE, seconds=2.0),
        "rate, once": Refusal(Limit.RATE, seconds=1.0, starts=1),
        "overload, twice": Refusal(Limit.OVERLOAD, seconds=1.0, starts=2),
    }
    for name, refusal in refusals.items():
        yield Agent(family, name, (DONE,), done_after=1, refusal=refusal)
    for name, refusal in {"for hours": _HOURS, "no credit": _BROKE}.items():
        yield Agent(family, name, (DONE,), useful=0, refusal=refusal)
    yield agent(family, "only talks about limits", Turn(talk, ALL, claims=True), done=1)


_HOURS = Refusal(Limit.USAGE, seconds=18_000.0)
_BROKE = Refusal(Limit.CREDIT, starts=1_000_000)

FAMILIES = {
    found[0].family: found
    for found in (
        tuple(make())
        for make in (
            *(honest_done, honest_not_done, echoing, quoting, red_guardrails, weakening, uncommitted),
            *(
                forgetting,
                in_other_forms,
                after_the_check,
                git_fails,
                ignored_files,
                crashing,
                stuck,
                limited,
                *changed_tests.MAKERS,
            ),
        )
    )
}
"""Every family by name."""

AGENTS = tuple(agent for family in FAMILIES.values() for agent in family)

QUICK = (
    *("at once", "in three", "after tools", "half", "green but undone", "whole, green", "whole, red"),
    *("denial, green", "read by a tool, green", "fenced, green", "half, then all", "breaks a test"),
    *("deletes", "empties the check", "harness settings", "nothing committed", "new file left out"),
    *("stashed", "says it later", "exit code 1", "killed", "same words", "until a time", "no credit"),
    *("indented", "in backticks, then bare", "asked for a message", "a process left behind"),
    *("any call dies once", "every call dies", "ignores its own work", "empties .gitignore"),
    *(
        "returns early in each test",
        "keys in pyproject.toml",
        "edits a test, allowed",
        "claims, then refuses",
    ),
    *("new tests with their own conftest.py", "a dependency and a test, by make"),
)
"""The names of the agents in the quick form: some of every family."""
