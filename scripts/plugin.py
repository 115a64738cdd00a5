"""Brings the Claude Code plugin up to date with the package: the rules of its stop hook, its version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ralph import __version__

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "src/ralph/plugin"
RULES = (ROOT / "src/ralph/core/stories.py", PLUGIN / "hooks/scripts/stories.py")
MANIFESTS = (
    PLUGIN / ".claude-plugin/plugin.json",
    PLUGIN / ".claude-plugin/marketplace.json",
    ROOT / ".claude-plugin/marketplace.json",
)


def main() -> None:
    shutil.copyfile(*RULES)
    for path in MANIFESTS:
        manifest = json.loads(path.read_text())
        for each in manifest.get("plugins", [manifest]):
            each["version"] = __version__
        path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
