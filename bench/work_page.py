"""The part of the page that is about `ralph work`: what was believed, by which verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench import plot, results
from bench.agents.scenes import FAMILIES
from bench.plot import Bar
from bench.work import FLOOR, MEASURED

SUITE, FIGURE, TITLE = "work", "benchmarks-work.svg", "Tasks: called done and not, or done and not called so"
KINDS = {
    "false": "the task is done, and the work is not in the branch that it was merged into",
    "missed": "all the work was done and promised in the end, and the task was not completed",
    "beyond": "false, and nothing that this method runs or reads could have told",
}
Rows = Sequence[dict[str, Any]]
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def goals(missing: str) -> Iterator[Sequence[str]]:
    """`missing`: what stands there where nothing was measured."""
    kept = results.kept(SUITE)
    titles = {"tasks called done that are not": "false", "tasks done and not called so": "missed"}
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
        "`ralph work` takes one task through its roles, with agents that are honest and agents that are not. The task "
        "is verified by a command (`external`), by a judge (`semantic`; a small program that reads the diff strictly, "
        "in the place of a model) or by both (`multi_stage`); `string_match` believes the promise and is the floor. "
        "An oracle of its own looks at the branch that the task was merged into."
    )
    yield "\n".join(f"- **{kind}**: {meaning};" for kind, meaning in KINDS.items())[:-1] + "."
    yield f"![{TITLE}]({FIGURE})"
    yield f"Repeat: `{kept.command}`"
    yield f"By family, {' / '.join(KINDS)}:"
    methods = _methods(rows)
    yield table(("family", "runs", *methods), list(_by_family(rows, methods)))
    yield from _beyond(rows, table)


def _by_family(rows: Rows, methods: Sequence[str]) -> Iterator[Sequence[str]]:
    for family in [*FAMILIES, None]:
        found = [row for row in rows if family in (None, row["family"])]
        cells = [
            "/".join(str(sum(row[kind] for row in found if row["method"] == method)) for kind in KINDS)
            for method in methods
        ]
        if found:
            yield (family or "all", str(len(found) // len(methods)), *cells)


def _beyond(rows: Rows, table: Table) -> Iterator[str]:
    """What cannot be caught is named, one by one."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["beyond"]:
            found.setdefault((row["family"], row["agent"]), []).append(row["method"])
    if found:
        yield (
            "A check says nothing of what it does not look at. These got through, by the methods named; the others "
            "caught them. An agent that can write outside of the project, to the programs that verification uses, gets "
            "through everything: that is for a sandbox."
        )
        lines = [(agent, family, ", ".join(methods)) for (family, agent), methods in found.items()]
        yield table(("what the agent does", "family", "gets through"), lines)


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
