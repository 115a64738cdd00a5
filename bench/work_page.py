"""The section of the page on `ralph work`: completions by verification method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench import plot, results
from bench.agents.scenes import FAMILIES
from bench.plot import Bar
from bench.tables import NOT_RUN
from bench.work import FLOOR, MEASURED

SUITE, FIGURE, TITLE = "work", "benchmarks-work.svg", "Tasks: false and missed completions"
KINDS = {
    "false": "the task was completed, but the work is not in the branch it was merged into",
    "missed": "in the end all work was done and promised, but the task was not completed",
    "harmed": "a file of the user that git ignores was lost or changed",
    "beyond": "false, but undetectable by anything this method runs or reads",
}
Rows = Sequence[dict[str, Any]]
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def goals(missing: str) -> Iterator[Sequence[str]]:
    """Yield the rows of the goal table; `missing` is the text used without kept results."""
    kept = results.kept(SUITE)
    titles = {
        "tasks falsely completed": "false",
        "finished tasks not completed": "missed",
        "tasks that harm a file": "harmed",
    }
    for title, kind in titles.items():
        if kept is None:
            yield (title, "0", missing, "", "", f"`python -m bench {SUITE} --keep`")
            continue
        ours = [row for row in kept.results if row["method"] in MEASURED]
        floor = [row for row in kept.results if row["method"] == FLOOR]
        peer = results.NO_PEER
        yield (title, "0", _share(ours, kind), _share(floor, kind), peer, f"`{kept.command}`")


def sections(missing: str, table: Table) -> Iterator[str]:
    yield "## Tasks"
    kept = results.kept(SUITE)
    if kept is None:
        yield missing
        return
    rows = kept.results
    yield (
        "`ralph work` takes one task through its roles, with honest and dishonest agents. The task is verified by a "
        "command (`external`), by a judge (`semantic`; a small program that reads the diff strictly, in place of a model) "
        "or by both (`multi_stage`); `string_match` accepts the promise and is the floor. A separate oracle inspects the "
        "branch the task was merged into."
    )
    yield "\n".join(f"- **{kind}**: {meaning};" for kind, meaning in KINDS.items())[:-1] + "."
    yield f"![{TITLE}]({FIGURE})"
    yield f"Repeat: `{kept.command}`"
    yield (
        "In the families `installed`, the project is installed into a virtual environment that imports it from the user's "
        "checkout. Only a check that runs something can take one tree for another, so they run with `external` and the floor."
    )
    yield f"By family, {' / '.join(KINDS)}:"
    methods = _methods(rows)
    yield table(("family", "runs", *methods), list(_by_family(rows, methods)))
    yield from _beyond(rows, table)


def _by_family(rows: Rows, methods: Sequence[str]) -> Iterator[Sequence[str]]:
    for family in [*FAMILIES, None]:
        found = [row for row in rows if family in (None, row["family"])]
        parts = [[row for row in found if row["method"] == method] for method in methods]
        cells = [
            "/".join(str(sum(row[kind] for row in part)) for kind in KINDS) if part else NOT_RUN
            for part in parts
        ]
        if found:
            yield (family or "all", str(max(map(len, parts))), *cells)


def _beyond(rows: Rows, table: Table) -> Iterator[str]:
    """Yield the list of cases that a method cannot detect."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["beyond"]:
            found.setdefault((row["family"], row["agent"]), []).append(row["method"])
    if found:
        yield (
            "A check cannot detect what it does not inspect. These cases passed the methods named and were caught by the "
            "others. An agent that can write outside the project, to the programs that verification uses, passes "
            "everything: use a sandbox."
        )
        lines = [(agent, family, ", ".join(methods)) for (family, agent), methods in found.items()]
        yield table(("agent", "family", "passes"), lines)


def figures() -> Iterator[tuple[str, str]]:
    if kept := results.kept(SUITE):
        drawn = []
        for method in _methods(kept.results):
            rows = [row for row in kept.results if row["method"] == method]
            wrong = [row for row in rows if row["false"] or row["missed"]]
            text = f"{len(wrong)} of {len(rows)}"
            drawn.append(Bar(method, len(wrong) / len(rows), text, method in MEASURED))
        yield FIGURE, plot.bars(TITLE, drawn)


def _methods(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _share(rows: Rows, kind: str) -> str:
    return f"{sum(row[kind] for row in rows)} of {len(rows)}"
