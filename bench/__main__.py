"""Run benchmarks and print the results; --json FILE also writes them as JSON.

scripts/uv run python -m bench [SUITE…] [--keep]
scripts/uv run python -m bench truth [--harness NAME…] [--family NAME…]
scripts/uv run python -m bench survival [--harness NAME…] [--case NAME…]
scripts/uv run python -m bench restarts [--harness NAME…] [--family NAME…]
scripts/uv run python -m bench work [--family NAME…]
scripts/uv run python -m bench cheating [--case NAME…]
scripts/uv run python -m bench quick
scripts/uv run python -m bench page
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import (
    bus,
    cheating,
    guard,
    hooks,
    jobs,
    many,
    page,
    quick,
    restarts,
    results,
    sandbox,
    snapshots,
    speed,
    streams,
    supervise,
    survival,
    tasks,
    truth,
    tui,
    work,
)
from bench.harness.registry import HARNESSES
from bench.harness.restarters import RESTARTERS
from bench.measure import Measurement


@dataclass(frozen=True, slots=True)
class Options:
    harness: list[str]
    family: list[str]
    case: list[str]


@dataclass(frozen=True, slots=True)
class Result:
    """Rows for JSON, whether our own results are good, and the versions that were measured."""

    values: list[dict[str, Any]]
    good: bool = True
    versions: dict[str, str] = field(default_factory=dict)


def measurements(suite: Callable[[], Iterator[Measurement]]) -> Callable[[Options], Result]:
    def run(options: Options) -> Result:
        values = []
        for result in suite():
            mark = "met " if result.met else "MISS"
            value = f"{result.value:.2f} {result.unit}" if result.unit != "×" else f"{result.value:.2f}×"
            print(
                f"{mark}  {result.name:<52} {value:>12}  goal {result.goal:<10} {result.detail}", flush=True
            )
            values.append(asdict(result))
        return Result(values)

    return run


def run_truth(options: Options) -> Result:
    names = _known(options.harness, HARNESSES)
    report = truth.measure(names, truth.chosen(options.family), each=truth.show)
    print(truth.by_family(report), truth.summary(report), sep="\n\n")
    return Result(_rows(report), versions=report.versions)


def run_survival(options: Options) -> Result:
    cases = survival.chosen(options.case)
    report = survival.measure(_known(options.harness, survival.NAMES), cases, each=survival.show)
    print(survival.by_case(report), survival.summary(report), sep="\n\n")
    skipped = [{"case": case, "reason": reason} for case, reason in report.skipped.items()]
    return Result(_rows(report) + skipped, versions=report.versions)


def run_restarts(options: Options) -> Result:
    agents = restarts.chosen(options.family)
    report = restarts.measure(_known(options.harness, RESTARTERS), agents, each=restarts.show)
    print(restarts.by_family(report), restarts.summary(report), sep="\n\n")
    return Result(_rows(report), versions=report.versions)


def run_work(options: Options) -> Result:
    report = work.measure(work.chosen(options.family), each=work.show)
    print(work.by_family(report), work.summary(report), sep="\n\n")
    good = bool(report.rows) and not any(row.is_bad for row in report.rows)
    return Result([asdict(row) for row in report.rows], good, {"ralph": report.version})


def run_cheating(options: Options) -> Result:
    rows = cheating.measure(cheats=cheating.chosen(options.case), each=cheating.show)
    print(cheating.summary(rows))
    return Result([asdict(row) for row in rows])


def run_quick(options: Options) -> Result:
    report, survived, restarted = quick.measure(), quick.survive(), quick.restart()
    print(truth.by_family(report), truth.summary(report), sep="\n\n", end="\n\n")
    print(survival.by_case(survived), survival.summary(survived), sep="\n\n", end="\n\n")
    print(restarts.by_family(restarted), restarts.summary(restarted), sep="\n\n")
    caught = quick.catch()
    good = quick.is_good(report) and quick.has_survived(survived) and quick.is_good(restarted)
    rows = _rows(report) + _rows(survived) + _rows(restarted) + [asdict(row) for row in caught]
    return Result(rows, good and quick.has_caught(caught))


def _known(wanted: list[str], names: Iterable[str]) -> list[str]:
    """Return the wanted names of a suite, or all if none is given."""
    return [name for name in names if not wanted or name in wanted]


def _rows(report: truth.Report | survival.Report | restarts.Report) -> list[dict[str, Any]]:
    measured = [asdict(row) | {"version": report.versions[row.harness]} for row in report.rows]
    return measured + [asdict(absent) for absent in report.absent]


def run_page(options: Options) -> Result:
    print(page.write())
    return Result([])


SUITES: dict[str, Callable[[Options], Result]] = {
    "speed": measurements(speed.suite),
    "sandbox": measurements(sandbox.suite),
    "snapshots": measurements(snapshots.suite),
    "streams": measurements(streams.suite),
    "many": measurements(many.suite),
    "bus": measurements(bus.suite),
    "supervise": measurements(supervise.suite),
    "tasks": measurements(tasks.suite),
    "jobs": measurements(jobs.suite),
    "hooks": measurements(hooks.suite),
    "guard": measurements(guard.suite),
    "tui": measurements(tui.suite),
    "truth": run_truth,
    "survival": run_survival,
    "restarts": run_restarts,
    "work": run_work,
    "cheating": run_cheating,
    "quick": run_quick,
    "page": run_page,
}
ALL = (*page.SPEED, "truth", "survival", "restarts", "work", "cheating")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    suites = ", ".join(SUITES)
    parser.add_argument(
        "suite",
        nargs="*",
        choices=[*SUITES, []],
        help=f"Suites to run: {suites} (default: all but the last two).",
    )
    parser.add_argument(
        "--harness",
        action="extend",
        nargs="+",
        default=[],
        choices=[*HARNESSES, *RESTARTERS],
        metavar="NAME",
    )
    parser.add_argument("--family", action="extend", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--case", action="extend", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--keep", action="store_true", help="Keep the raw results for the page.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Also write the results to this file.")
    given = parser.parse_args(arguments)
    options = Options(given.harness, given.family, given.case)
    done = {name: SUITES[name](options) for name in given.suite or ALL}
    if given.keep:
        for name in done.keys() & set(ALL):
            results.keep(name, _command(name, options), done[name].versions, done[name].values)
    if given.json:
        rows = [value for result in done.values() for value in result.values]
        given.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    return 0 if all(result.good for result in done.values()) else 1


def _command(suite: str, options: Options) -> str:
    """Return the command that repeats a suite."""
    words = [f"--{name} {shlex.join(values)}" for name, values in asdict(options).items() if values]
    return " ".join(["python -m bench", suite, *words, "--keep"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
