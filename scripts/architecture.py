"""Write the table of rooms and the state diagram of a run into docs/architecture.md.

scripts/uv run python scripts/architecture.py [--check]

The purpose of a room is the docstring of its package; the diagram comes from the machine's own table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ralph.core.machine import ARROWS
from ralph.core.model import Phase

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "ralph"

STEPS = {
    Phase.BEFORE: "Look",
    Phase.WORK: "RunAgent",
    Phase.AFTER: "Look",
    Phase.RESTORE: "Restore",
    Phase.CHECK: "RunChecks",
    Phase.CHANGES: "Look",
    Phase.MESSAGE: "RunAgent (message)",
    Phase.COMMIT: "Commit",
    Phase.CHILDREN: "Hold (children)",
}


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.BEFORE}"]
    lines += [f"    {phase}: {phase} · {step}" for phase, step in STEPS.items()]
    lines += [f"    {start} --> {end}: {why.replace(':', ' –')}" for start, why, end in ARROWS]
    return "\n".join([*lines, "```"])


def rooms() -> str:
    """Return the table of packages with their purpose, files and lines; linked files count once."""
    lines = ["| room | purpose | files | lines |", "| --- | --- | ---: | ---: |"]
    total = [0, 0]
    for name, purpose, sizes in _rooms():
        lines.append(f"| `{name}` | {purpose} | {len(sizes)} | {sum(sizes):,} |")
        total = [total[0] + len(sizes), total[1] + sum(sizes)]
    return "\n".join([*lines, f"| total | | {total[0]} | {total[1]:,} |"])


def _rooms() -> Iterator[tuple[str, str, list[int]]]:
    for package in sorted(path.parent for path in SOURCE.glob("*/__init__.py")):
        yield f"{package.name}/", _purpose(package / "__init__.py"), _sizes(package.rglob("*.py"))
    yield (
        "plugin/",
        "The Claude Code plugin as installed; its hooks are standalone.",
        _sizes((SOURCE / "plugin").rglob("*.py")),
    )
    for path in sorted(SOURCE.glob("*.py")):
        if not path.name.startswith("__"):
            yield path.name, _purpose(path), _sizes([path])


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _sizes(paths: Iterable[Path]) -> list[int]:
    return [len(path.read_text().splitlines()) for path in paths if not path.is_symlink()]


def written(page: str) -> str:
    """Return the page with its generated parts up to date."""
    for name, text in (("diagram", diagram()), ("rooms", rooms())):
        page = replaced(page, name, text)
    return page


def page_with_diagram(page: str) -> str:
    return replaced(page, "diagram", diagram())


def replaced(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def main(arguments: list[str]) -> int:
    old = PAGE.read_text()
    new = written(old)
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
