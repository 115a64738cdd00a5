"""Make the dashboard pictures in docs/ from a store of real scripted runs.

    scripts/uv run python scripts/pictures.py

The runs are those of the snapshot tests (`tests/tui_support.py`), with the same ids and times.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from tui_support import World, make_world, settle  # noqa: E402


@dataclass(frozen=True)
class Picture:
    """The run name or task to open first, the keys to press then, and the terminal size."""

    first: str = ""
    keys: tuple[str, ...] = ()
    theme: str = "dark"
    size: tuple[int, int] = (120, 36)


PICTURES = {
    "tui-runs": Picture(),
    "tui-run": Picture("running"),
    "tui-checks": Picture("complete", ("2", "down", "down")),
    "tui-diff": Picture("complete", ("3",), size=(120, 26)),
    "tui-task": Picture("SHOP-1"),
    "tui-stories": Picture("", ("P", *["down"] * 4, "enter", "tab"), "light"),
    "tui-narrow": Picture("waiting", size=(80, 24)),
}


async def take(world: World, name: str, picture: Picture) -> None:
    is_task = picture.first.startswith("SHOP")
    first = (world.webshop, picture.first) if is_task else tuple(filter(None, [world.ids.get(picture.first)]))
    app = world.app(theme=picture.theme, first=first, emoji=False)  # not every viewer's font has emoji
    async with app.run_test(size=picture.size) as pilot:
        await settle(pilot)
        for key in picture.keys:
            await pilot.press(key)
            await settle(pilot)
        (DOCS / f"{name}.svg").write_text(without_network(app.export_screenshot(title="ralph tui")))


def without_network(svg: str) -> str:
    """The picture without web fonts; an installed monospaced font is used instead."""
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    return svg.replace(
        "font-family: Fira Code, monospace", "font-family: Fira Code, DejaVu Sans Mono, Menlo, monospace"
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        world = make_world(Path(scratch))
        os.environ |= {"HOME": str(world.base / "ada"), "RALPH_STATE_DIR": str(world.home.path), "TZ": "UTC"}
        os.environ.pop("NO_COLOR", None)
        time.tzset()
        for name, picture in PICTURES.items():
            asyncio.run(take(world, name, picture))
            print(f"docs/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
