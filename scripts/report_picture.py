"""Make docs/report.png: the report of a real run in a real browser.

scripts/uv run python scripts/report_picture.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser_support import browser
from conftest import Project
from ralph.store.home import Home
from report_support import complete_run

ROOT = Path(__file__).resolve().parent.parent
MAX_HEIGHT = 2200


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ralph-pictures-") as scratch:
        base = Path(scratch)
        project = Project(base / "slugs", Home(base / "state"), {"TZ": "UTC"})
        project.path.mkdir()
        project.home.path.mkdir()
        (project.path / "README.md").write_text("A project.\n")
        project.git("init", "-q", "-b", "main")
        project.git("add", "-A")
        project.git("commit", "-q", "-m", "First")
        complete_run(project)
        page = base / "report.html"
        project.run("report", "--html", str(page))
        page.write_text(page.read_text().replace(str(base), "/home/ada").replace(sys.executable, "python"))
        with browser() as opened:
            opened.open(page, 900)
            opened.photograph(ROOT / "docs" / "report.png", MAX_HEIGHT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
