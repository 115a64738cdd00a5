"""Write docs/benchmarks.md and its figures from the kept results, without measuring anything.

A suite without kept results appears as not measured, with the command that measures it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import cheating, plot, results, work_page
from bench.harness.ralph import OURS
from bench.harness.registry import HARNESSES
from bench.harness.restarters import RESTARTERS, SUPERVISE, UNTIL
from bench.harness.shell import TAG_GREP, ShellLoop
from bench.plot import Bar
from bench.restarts import PATIENCE, SAID
from bench.results import Kept
from bench.survival import KINDS

DOCS = Path(__file__).parents[1] / "docs"
SPEED = (
    *("speed", "snapshots", "streams", "many", "bus", "supervise", "tasks", "jobs", "hooks"),
    *("guard", "sandbox", "tui"),
)
TITLES = {
    "speed": "Speed and memory of the loop",
    "snapshots": "Snapshots",
    "streams": "Parsing agent output",
    "many": "Many agents in parallel",
    "bus": "Message bus",
    "supervise": "Supervision",
    "tasks": "Many tasks",
    "jobs": "Many tasks in parallel",
    "hooks": "Plugin hooks",
    "guard": "Command guard",
    "tui": "Dashboard",
    "sandbox": "Sandbox",
}
ABOUT = {
    "jobs": (
        "Trivial tasks with `ralph work`, compared with a shell script that gives each task a worktree, the agent, its "
        "check, a commit and a merge. Ralph also keeps a journal that survives a kill, takes a snapshot before and after, "
        "protects files, and repeats the check on the merged tree."
    ),
}
COMMAND = "python -m bench {} --keep"
RATIOS = ("speed", "snapshots", "jobs", "guard")
"""The suites whose ratios are in the summary."""

Rows = Sequence[dict[str, Any]]

TRUTH = {
    "false": "reported complete, but the committed work is not done",
    "missed": "the work was done and claimed, but not accepted within one more iteration",
    "unfinished": "the agent would have finished within the iteration limit, but was stopped earlier",
    "harmed": "a file of the user that git ignores was lost, changed or committed",
    "asks": "stopped, and left it to the user whether changed tests are right",
}
SURVIVAL = {
    "lost": "finished work is gone, or acknowledged iterations were repeated",
    "orphans": "processes still alive two seconds after the harness exited",
    "hung": "twenty seconds without any progress (five minutes after 500 MB)",
    "unfinished": "the work was not finished, even after a restart as documented",
    "together": "two agents worked in one directory at the same time",
}
RESTARTS = {
    "false": "reported complete without DONE, a regular file of that name in the task folder",
    "missed": "the agent left DONE, but it was not accepted, or the agent was started again",
    "hung": f"still running after {PATIENCE:.0f} seconds",
    "unfinished": "the agent would have left DONE in a later attempt, but was stopped earlier",
    "orphans": "processes still alive two seconds after the harness exited",
}


CHEATING = {
    "accepted": "the run completed, an unreviewed story passes, or a file has a forbidden change",
}


def write(docs: Path = DOCS) -> Path:
    docs.mkdir(exist_ok=True)
    for name, text in figures():
        (docs / name).write_text(text)
    path = docs / "benchmarks.md"
    path.write_text("\n\n".join(sections()) + "\n")
    return path


def sections() -> Iterator[str]:
    yield "# Benchmarks"
    yield (
        "How often Ralph and other harnesses report unfinished work as complete, lose work or leave processes behind, "
        "and how fast Ralph is. Every harness runs the same scripted agents, with a private home and no network. "
        "Each figure has the command that repeats it."
    )
    yield (
        "`python -m bench page` generates this page from the raw results in `bench/results/`; do not edit it by hand."
    )
    yield "## Summary"
    yield from summary_section()
    yield "## Goals"
    yield markdown(("measurement", "goal", "ralph", "floor", "best peer", "command"), list(goals()))
    yield (
        "The floor for truth and survival is a shell loop that greps the output for the tag; for restarts, "
        f"{UNTIL.title}; for speed, the cheapest way to do the same, measured in the same run. Without a peer "
        f"({results.NO_PEER}), the suite runs only Ralph and the floor."
    )
    yield from _counted_section("Truth", "truth", TRUTH, truth_section)
    yield from _counted_section("Survival", "survival", SURVIVAL, survival_section)
    yield from _counted_section("Restarts", "restarts", RESTARTS, restarts_section)
    yield from work_page.sections(_missing("work"), markdown)
    yield from _counted_section("Cheating in a PRD loop", "cheating", CHEATING, cheating_section)
    yield "## Speed"
    for suite in SPEED:
        yield from speed_sections(suite)
    yield "## Machine and versions"
    yield conditions()


# ---- summary ----


def summary_section() -> Iterator[str]:
    """Yield one table of failures per harness, ours first, and one of our speed ratios."""
    columns = {
        "false completions": ("truth", "false"),
        "missed completions": ("truth", "missed"),
        "lost work": ("survival", "lost"),
        "orphans": ("survival", "orphans"),
        "hangs": ("survival", "hung"),
    }
    found = {suite: kept for suite in ("truth", "survival") if (kept := results.kept(suite))}
    names = dict.fromkeys(name for kept in found.values() for name in harnesses(kept))
    if names:
        lines: list[Sequence[str]] = [
            (
                _titled(found, name),
                *(_cell_of(found.get(suite), name, kind) for suite, kind in columns.values()),
            )
            for name in names
        ]
        yield "Runs with a failure, of all runs:"
        yield markdown(("harness", *columns), lines)
    ratios = [row for suite in RATIOS if (kept := results.kept(suite)) for row in kept.results]
    if ratios := [row for row in ratios if row["unit"] == "×"]:
        yield "Speed of Ralph, as a multiple of the time of the cheapest alternative:"
        lines = [(row["name"], row["goal"], _result(row)) for row in ratios]
        yield markdown(("operation", "goal", "ratio"), lines)
    if not names and not ratios:
        yield "not measured: no kept results"


def _titled(found: dict[str, Kept], name: str) -> str:
    if name == OURS.name:
        return f"**{name}**"
    if _is_peer(name) or name not in HARNESSES:
        return next(_named(kept, name) for kept in found.values() if name in harnesses(kept))
    return f"{name} ({HARNESSES[name].title})"


def _result(row: dict[str, Any]) -> str:
    return figure(row["value"], row["unit"]) + ("" if row["met"] else " (missed)")


def _cell_of(kept: Kept | None, name: str, kind: str) -> str:
    share = _share(kept, name, kind) if kept else (0, 0)
    return _of(share) if share[1] else results.NO_PEER


# ---- goals ----


def goals() -> Iterator[Sequence[str]]:
    names = {
        "false completions": "false",
        "missed completions": "missed",
        "runs with a harmed file": "harmed",
    }
    yield from _counted("truth", names)
    names = {"runs with lost work": "lost", "runs with orphans": "orphans", "hangs": "hung"}
    more = {"unfinished runs": "unfinished", "runs with two agents at once": "together"}
    yield from _counted("survival", names | more)
    names = {"complete without DONE": "false", "DONE missed": "missed", "endless restarts": "hung"}
    more = {"restarts with orphans": "orphans"}
    yield from _counted("restarts", names | more, SUPERVISE.name, UNTIL.name)
    yield from work_page.goals(_missing("work"))
    yield cheating_goal()
    for suite in SPEED:
        kept = results.kept(suite)
        if kept is None:
            yield (TITLES[suite], "", _missing(suite), "", "", f"`{COMMAND.format(suite)}`")
            continue
        for row in kept.results:
            floor = figure(row["floor"], row["unit"]) if row["floor"] is not None else "–"
            command = f"`{kept.command}`"
            peer = results.NO_PEER
            yield (row["name"], row["goal"], _result(row), floor, peer, command)


def _counted(
    suite: str, kinds: dict[str, str], ours: str = OURS.name, floor: str = TAG_GREP.name
) -> Iterator[Sequence[str]]:
    kept = results.kept(suite)
    for title, kind in kinds.items():
        if kept is None:
            yield (f"{title}", "0", _missing(suite), "", "", f"`{COMMAND.format(suite)}`")
            continue
        shares = {name: _share(kept, name, kind) for name in harnesses(kept)}
        peers = {name: share for name, share in shares.items() if _is_peer(name)}
        best = min(peers.values(), key=lambda share: share[0] / share[1], default=None)
        names = ", ".join(name for name, share in peers.items() if share == best)
        peer = f"{_of(best)} ({names})" if best else "not measured: no peer available"
        found = (_of(shares[name]) if name in shares else "not measured" for name in (ours, floor))
        yield (title, "0", *found, peer, f"`{kept.command}`")


def _share(kept: Kept, name: str, kind: str) -> tuple[int, int]:
    rows = [row for row in measured(kept) if row["harness"] == name]
    return sum(_harmed(row, kind) for row in rows), len(rows)


def _harmed(row: dict[str, Any], kind: str) -> bool:
    return bool(row["gone"] + row["again"] if kind == "lost" else row[kind])


def _of(share: tuple[int, int]) -> str:
    return f"{share[0]} of {share[1]}"


def _is_peer(name: str) -> bool:
    return not (_is_ours(name) or isinstance(HARNESSES.get(name), ShellLoop) or name == UNTIL.name)


def _is_ours(name: str) -> bool:
    found = HARNESSES.get(name) or RESTARTERS.get(name)
    return found is not None and found.is_ours


# ---- truth and survival ----


def _counted_section(
    title: str, suite: str, meanings: dict[str, str], told: Callable[[Kept], Iterator[str]]
) -> Iterator[str]:
    yield f"## {title}"
    if kept := results.kept(suite):
        yield _words(meanings)
        yield from told(kept)
    else:
        yield _missing(suite)


def truth_section(kept: Kept) -> Iterator[str]:
    yield from _figure("benchmarks-truth.svg", "False and missed completions", kept)
    yield f"By family, {' / '.join(TRUTH)}:"
    yield _by(kept, "family", tuple(TRUTH))
    yield (
        "Totals, with starts of the agent, the calls for a commit message among them, wasted starts (after the last useful "
        "one), and the scripted cost of both:"
    )
    lines = []
    for name in harnesses(kept):
        rows = [row for row in measured(kept) if row["harness"] == name]
        totals = [str(_total(rows, kind)) for kind in (*TRUTH, "starts", "messages")]
        costs = [f"${sum(row[kind] for row in rows):.2f}" for kind in ("cost", "cost_wasted")]
        ends = [str(_total(rows, kind)) for kind in ("orphans", "hung")]
        wasted = str(_total(rows, "wasted"))
        lines.append((_named(kept, name), str(len(rows)), *totals, costs[0], wasted, costs[1], *ends))
    starts = ("starts", "messages", "cost", "wasted", "cost wasted")
    yield markdown(("harness", "runs", *TRUTH, *starts, "orphans", "hung"), lines)
    yield (
        "The unfinished runs of `ralph` ended as `all checks green, never claimed`: the agent was asked for the claim, and then "
        "neither changed nor claimed anything. A scripted agent does not read its prompt; it would have claimed later."
    )
    yield (
        "Where an agent leaves its work uncommitted, as the task forbids, a harness that neither commits nor checks it is "
        "wrong when it reports completion, whatever the family."
    )
    yield (
        "`ralph` runs its guardrail in a clean copy and protects the tests with a second one; `ralph-bare` has only the "
        "first, in the tree. Waste alone does not rank a harness: one that accepts a false claim stops early, and one that "
        "never reports completion accepts none."
    )
    yield from _absent(kept)


def survival_section(kept: Kept) -> Iterator[str]:
    yield from _figure("benchmarks-survival.svg", "Runs with a failure", kept)
    yield f"Number of runs by case, {' / '.join(KINDS)}:"
    yield _by(kept, "case", KINDS)
    lines = []
    for name in harnesses(kept):
        shares = [_share(kept, name, kind) for kind in KINDS]
        lines.append((_named(kept, name), str(shares[0][1]), *(str(share[0]) for share in shares)))
    yield "Totals:"
    yield markdown(("harness", "runs", *KINDS), lines)
    yield from _absent(kept)


def restarts_section(kept: Kept) -> Iterator[str]:
    yield from _figure("benchmarks-restarts.svg", "Runs with a failure", kept)
    yield f"Number of runs by family, {' / '.join(RESTARTS)}:"
    yield _by(kept, "family", tuple(RESTARTS))
    lines = []
    for name in harnesses(kept):
        rows = [row for row in measured(kept) if row["harness"] == name]
        shares = [str(_share(kept, name, kind)[0]) for kind in RESTARTS]
        lines.append((name, RESTARTERS[name].title, str(len(rows)), *shares, f"{_total(rows, 'starts'):,}"))
    yield "Totals, with the number of agent starts:"
    yield markdown(("harness", "command", "runs", *RESTARTS, "starts"), lines)
    left = [row for row in measured(kept) if row["harness"] == SUPERVISE.name and row["unfinished"]]
    if left and all(row["code"] == SAID for row in left):
        yield (
            f"In the unfinished runs of `{SUPERVISE.name}`, DONE is something other than a file "
            f"({', '.join(row['agent'] for row in left)}): it stops with exit code {SAID} and reports what it found, "
            "so that a person can check; a loop keeps running."
        )
    yield (
        "All of them accept DONE itself without proof; verifying the work is up to the checks of `ralph run`."
    )
    yield from _absent(kept)


def _total(rows: Rows, kind: str) -> int:
    return sum(row[kind] for row in rows)


def cheating_goal() -> Sequence[str]:
    title, kept = "accepted cheats in PRD loops", results.kept("cheating")
    if kept is None:
        return (title, "0", _missing("cheating"), "", "", f"`{COMMAND.format('cheating')}`")
    shares = [_of(_share(kept, name, "accepted")) for name in (cheating.OURS, cheating.FLOOR)]
    return (title, "0", *shares, results.NO_PEER, f"`{kept.command}`")


def cheating_section(kept: Kept) -> Iterator[str]:
    yield (
        f"The floor, `{cheating.FLOOR}`, runs the agent and then checks whether all stories are approved. Number of "
        f"accepted cheats by the mode of the cheating iteration. Repeat: `{kept.command}`"
    )
    yield _by(kept, "mode", ("accepted",))


def _by(kept: Kept, column: str, kinds: Sequence[str]) -> str:
    names = harnesses(kept)
    lines = []
    for value in dict.fromkeys(row[column] for row in measured(kept)):
        cells = []
        for name in names:
            rows = [row for row in measured(kept) if (row[column], row["harness"]) == (value, name)]
            cells.append("/".join(str(sum(_harmed(row, kind) for row in rows)) for kind in kinds))
        runs = sum(row[column] == value for row in measured(kept)) // len(names)
        lines.append((value, str(runs), *cells))
    return markdown((column, "runs", *names), lines)


def _words(meanings: dict[str, str]) -> str:
    return "\n".join(f"- **{kind}**: {meaning};" for kind, meaning in meanings.items())[:-1] + "."


def _absent(kept: Kept) -> Iterator[str]:
    found = [row for row in kept.results if "reason" in row]
    if found:
        lines = [f"- {row.get('harness') or row['case']}: not measured: {row['reason']}" for row in found]
        yield "\n".join(lines)


def harnesses(kept: Kept) -> list[str]:
    return list(dict.fromkeys(row["harness"] for row in measured(kept)))


def measured(kept: Kept) -> list[dict[str, Any]]:
    return [row for row in kept.results if "reason" not in row]


def _named(kept: Kept, name: str) -> str:
    version = kept.versions.get(name, "").removeprefix(f"{name} ")
    return f"{name} {version}".strip()


# ---- speed ----


def speed_sections(suite: str) -> Iterator[str]:
    yield f"### {TITLES[suite]}"
    if suite in ABOUT:
        yield ABOUT[suite]
    kept = results.kept(suite)
    if kept is None:
        yield _missing(suite)
        return
    if any(_allowed(row) for row in kept.results):
        yield from _figure(f"benchmarks-{suite}.svg", "Share of the goal used", kept)
    else:
        yield f"Repeat: `{kept.command}`"
    yield markdown(
        ("measurement", "goal", "result", "detail"),
        [
            (row["name"], row["goal"], figure(row["value"], row["unit"]), row["detail"])
            for row in kept.results
        ],
    )


def _allowed(row: dict[str, Any]) -> float | None:
    """Return the share of the goal that is used; the goal is met if it is at most 1."""
    found = re.fullmatch(r"([≤≥]) ([\d.]+).*", row["goal"])
    if not found or not row["value"]:
        return None
    goal = float(found[2])
    return float(row["value"] / goal if found[1] == "≤" else goal / row["value"])


# ---- figures ----


def figures() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the SVG files."""
    wrong: dict[str, Callable[[dict[str, Any]], bool]] = {
        "truth": lambda row: row["false"] or row["missed"],
        "survival": lambda row: any(_harmed(row, kind) for kind in KINDS),
        "restarts": lambda row: any(row[kind] for kind in RESTARTS),
    }
    titles = {
        "truth": "Truth: false and missed completions",
        "survival": "Survival: runs with a failure",
        "restarts": "Restarts: runs with a failure",
    }
    for suite, is_wrong in wrong.items():
        if kept := results.kept(suite):
            yield f"benchmarks-{suite}.svg", plot.bars(titles[suite], list(_shares(kept, is_wrong)))
    yield from work_page.figures()
    for suite in SPEED:
        if kept := results.kept(suite):
            found = [(row, share) for row in kept.results if (share := _allowed(row)) is not None]
            drawn = [Bar(row["name"], share, figure(row["value"], row["unit"])) for row, share in found]
            if drawn:
                title = f"{TITLES[suite]}: share of the goal used"
                yield f"benchmarks-{suite}.svg", plot.bars(title, drawn, limit=1.0)


def _shares(kept: Kept, is_wrong: Callable[[dict[str, Any]], bool]) -> Iterator[Bar]:
    for name in harnesses(kept):
        rows = [row for row in measured(kept) if row["harness"] == name]
        share = (sum(map(bool, map(is_wrong, rows))), len(rows))
        yield Bar(name, share[0] / share[1], _of(share), _is_ours(name))


def _figure(name: str, title: str, kept: Kept) -> Iterator[str]:
    yield f"![{title}]({name})"
    yield f"Repeat: `{kept.command}`"


# ---- texts and tables ----


def conditions() -> str:
    lines = []
    for suite in ("truth", "survival", "restarts", "work", "cheating", *SPEED):
        if kept := results.kept(suite):
            place = ", ".join(f"{name} {value}" for name, value in kept.machine.items())
            versions = ", ".join(f"{name} {value}" for name, value in kept.versions.items())
            lines.append((suite, kept.date, place, versions))
    return markdown(("suite", "date", "machine", "versions"), lines)


def figure(value: float, unit: str) -> str:
    text = f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    return f"{text}×" if unit == "×" else f"{text} {unit}"


def _missing(suite: str) -> str:
    return f"not measured: no kept results; run `{COMMAND.format(suite)}`"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(_cell(word) for word in line)} |" for line in (head, rule, *lines))


def _cell(word: str) -> str:
    return word.replace("|", "\\|").replace("\n", " ")
