"""Write the package version into the manifests of the Claude Code plugin."""

from __future__ import annotations

import json
from pathlib import Path

from ralph import __version__

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "src/ralph/plugin"
MANIFESTS = (
    PLUGIN / ".claude-plugin/plugin.json",
    PLUGIN / ".claude-plugin/marketplace.json",
    ROOT / ".claude-plugin/marketplace.json",
)


def main() -> None:
    for path in MANIFESTS:
        manifest = json.loads(path.read_text())
        for each in manifest.get("plugins", [manifest]):
            each["version"] = __version__
        path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
