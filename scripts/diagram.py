"""Write the state diagram of a run into docs/architecture.md, from the machine's own table.

scripts/uv run python scripts/diagram.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from ralph.core.machine import ARROWS
from ralph.core.model import Phase

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BEGIN, END = "<!-- diagram: begin -->", "<!-- diagram: end -->"

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


def page_with_diagram(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{diagram()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    old = PAGE.read_text()
    new = page_with_diagram(old)
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
