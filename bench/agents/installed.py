"""The project as a package that is installed into a virtual environment, which imports it from the user's checkout.

A check that runs in another copy of the files, but with that environment, tests the user's checkout instead.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.agents.calculator import FILES, PLAIN, Layout

VENV = ".venv"
PTH = "_calc.pth"
BY_PATH = ".venv/bin/python -m unittest discover -s tests"
BY_NAME = "python -m unittest discover -s tests"

RIGHT = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"
RAISES = "raise RuntimeError\n"
_TEST = (
    "import unittest\n\nimport calc\n\n\n"
    "class TestCalc(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(calc.add(10, 7), 17)\n\n"
    "    def test_mul(self):\n        self.assertEqual(calc.mul(10, 7), 70)\n"
)
_FILES = {
    "src/calc.py": RIGHT,
    "tests/test_calc.py": _TEST,
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1.0"\n',
    "NOTES.md": "# Notes\n",
    ".gitignore": f"{FILES['.gitignore']}{VENV}/\n",
}
_KEPT = ("tests/test_calc.py", "pyproject.toml")

WORKS = Layout(_FILES, _KEPT, "src")
BROKEN = Layout(_FILES | {"src/calc.py": RAISES}, _KEPT, "src")
"""Where the code does not work when the task starts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """`environment`: where the virtual environment lies, relative to the project; "" for none.

    `is_active`: the user has activated it. `uncommitted`: the text of src/calc.py in the user's checkout.
    """

    layout: Layout = PLAIN
    environment: str = ""
    is_active: bool = False
    uncommitted: str = ""


def prepare(stage: Stage, project: Path, home: Path) -> dict[str, str]:
    """Make the environment of the user's checkout, and return the variables of a user who has activated it."""
    if stage.uncommitted:
        (project / "src" / "calc.py").write_text(stage.uncommitted)
    if not stage.environment:
        return {}
    prefix = (home if stage.environment.startswith("~") else project) / stage.environment.removeprefix("~/")
    make_venv(prefix, project / "src")
    return {"VIRTUAL_ENV": str(prefix)} if stage.is_active else {}


def make_venv(prefix: Path, source: Path) -> None:
    """A virtual environment with an editable install of the project: a path to its sources."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True, capture_output=True
    )
    (site,) = prefix.glob("lib/python*/site-packages")
    (site / PTH).write_text(f"{source}\n")
