"""Run the measurements and print them; results as JSON with --json FILE.

scripts/uv run python -m bench [NAME…]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench import snapshots, speed
from bench.measure import Measurement

SUITES = {"speed": speed.suite, "snapshots": snapshots.suite}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help=f"which: {', '.join(SUITES)} (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    results: list[Measurement] = []
    for name in options.suite or SUITES:
        for result in SUITES[name]():
            mark = "met " if result.met else "MISS"
            value = f"{result.value:.2f} {result.unit}" if result.unit != "×" else f"{result.value:.2f}×"
            print(
                f"{mark}  {result.name:<52} {value:>12}  goal {result.goal:<10} {result.detail}", flush=True
            )
            results.append(result)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
