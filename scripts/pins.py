"""Pin the newest versions: resolve without constraints and write the result into pyproject.toml.

    scripts/uv run python scripts/pins.py

A lock file would name download hosts, so `constraint-dependencies` holds the versions instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = re.compile(r"constraint-dependencies = \[[^\]]*\]")


def resolve(pyproject: str) -> list[str]:
    """Return the newest compatible versions, as `name==version`."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        (copy / "pyproject.toml").write_text(LIST.sub("constraint-dependencies = []", pyproject))
        (copy / "src" / "ralph").mkdir(parents=True)
        (copy / "src" / "ralph" / "__init__.py").write_text('__version__ = "0"\n')
        for name in ("README.md", "LICENSE"):
            (copy / name).touch()
        command = [
            str(ROOT / "scripts" / "uv"),
            "export",
            "-q",
            "--no-hashes",
            "--no-emit-project",
            "--no-annotate",
        ]
        command += ["--no-header", "--all-groups", "--all-extras", "--upgrade"]
        output = subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True).stdout
    return sorted({line.split(";")[0].strip() for line in output.splitlines() if "==" in line})


def main() -> int:
    path = ROOT / "pyproject.toml"
    old = path.read_text()
    pins = resolve(old)
    lines = "".join(f'    "{pin}",\n' for pin in pins)
    path.write_text(LIST.sub(f"constraint-dependencies = [\n{lines}]", old))
    print(f"{len(pins)} versions pinned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
