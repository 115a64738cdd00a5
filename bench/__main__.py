"""Run the measurements and print them; results as JSON with --json FILE.

scripts/uv run python -m bench [SUITE…]
scripts/uv run python -m bench truth [--harness NAME…] [--family NAME…]
scripts/uv run python -m bench quick
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import quick, snapshots, speed, streams, truth
from bench.harness.registry import HARNESSES
from bench.measure import Measurement


@dataclass(frozen=True, slots=True)
class Options:
    harness: list[str]
    family: list[str]


@dataclass(frozen=True, slots=True)
class Result:
    """Rows for JSON, and whether ours was good enough to go on."""

    values: list[dict[str, Any]]
    good: bool = True


def measurements(suite: Callable[[], Iterator[Measurement]]) -> Callable[[Options], Result]:
    def run(options: Options) -> Result:
        results = []
        for result in suite():
            mark = "met " if result.met else "MISS"
            value = f"{result.value:.2f} {result.unit}" if result.unit != "×" else f"{result.value:.2f}×"
            print(
                f"{mark}  {result.name:<52} {value:>12}  goal {result.goal:<10} {result.detail}", flush=True
            )
            results.append(asdict(result))
        return Result(results)

    return run


def run_truth(options: Options) -> Result:
    report = truth.measure(options.harness or HARNESSES, truth.chosen(options.family), each=truth.show)
    print(truth.by_family(report), truth.summary(report), sep="\n\n")
    return Result(_rows(report))


def run_quick(options: Options) -> Result:
    report = quick.measure()
    print(truth.by_family(report), truth.summary(report), sep="\n\n")
    return Result(_rows(report), quick.is_good(report))


def _rows(report: truth.Report) -> list[dict[str, Any]]:
    measured = [asdict(row) | {"version": report.versions[row.harness]} for row in report.rows]
    return measured + [asdict(absent) for absent in report.absent]


SUITES: dict[str, Callable[[Options], Result]] = {
    "speed": measurements(speed.suite),
    "snapshots": measurements(snapshots.suite),
    "streams": measurements(streams.suite),
    "truth": run_truth,
    "quick": run_quick,
}
ALL = ("speed", "snapshots", "streams", "truth")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    suites = ", ".join(SUITES)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help=f"which: {suites} (all but quick)")
    parser.add_argument(
        "--harness", action="extend", nargs="+", default=[], choices=HARNESSES, metavar="NAME"
    )
    parser.add_argument("--family", action="extend", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    given = parser.parse_args(arguments)
    options = Options(given.harness, given.family)
    results = [SUITES[name](options) for name in given.suite or ALL]
    if given.json:
        rows = [value for result in results for value in result.values]
        given.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
