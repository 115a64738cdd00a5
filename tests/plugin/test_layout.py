"""The plugin folder has what Claude Code needs, and matches the package."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugin.plugin_support import PLUGIN, SCRIPTS
from ralph import __version__
from ralph.runs.agent_hooks import GUARDED_TOOLS
from ralph.stories import rules

ROOT = Path(__file__).parents[2]
UPDATE = "`make plugin` brings the plugin up to date"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_rules_are_those_of_the_package() -> None:
    """One file, next to the stop hook."""
    assert (SCRIPTS / "story_rules.py").samefile(rules.__file__)


@pytest.mark.parametrize("path", [*SCRIPTS.glob("*.py"), Path(rules.__file__)], ids=lambda path: path.name)
def test_scripts_are_python_3_8(path: Path) -> None:
    """Their syntax is valid 3.8, annotations are not evaluated, and they import only the standard library."""
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            assert not isinstance(node.args[1], ast.BinOp), ast.unparse(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert "ralph" not in ast.unparse(node)


def test_one_version() -> None:
    """The manifest and both marketplaces have the version of the package."""
    manifest = read(PLUGIN / ".claude-plugin/plugin.json")
    assert (manifest["name"], manifest["version"], "hooks" in manifest) == ("ralph", __version__, False), (
        UPDATE
    )
    for place, source in ((PLUGIN, "./"), (ROOT, "./src/ralph/plugin")):
        (entry,) = read(place / ".claude-plugin/marketplace.json")["plugins"]
        expected = ("ralph", source, __version__, manifest["description"])
        assert (entry["name"], entry["source"], entry["version"], entry["description"]) == expected, UPDATE
        assert (place / entry["source"] / ".claude-plugin/plugin.json").is_file()


GUARD = (
    '[ -z "$RALPH_RUN_ID" ] || [ -n "$RALPH_GUARDED" ] || ralph guard --hook ||'
    ' { [ $? -eq 2 ] || echo "Ralph\'s guard is missing or failed, so this was not run." >&2; exit 2; }'
)


def test_hooks_are_wired() -> None:
    """Each event runs its script with an isolated interpreter, from a path that may contain spaces."""
    hooks = read(PLUGIN / "hooks/hooks.json")["hooks"]
    found = {
        event: (entry.get("matcher"), command["command"])
        for event, (entry,) in hooks.items()
        for command in entry["hooks"]
    }
    python = 'python3 -I -S "${CLAUDE_PLUGIN_ROOT}/hooks/scripts/'
    assert found == {
        "SessionStart": ("startup|resume|clear", f'{python}context_monitor.py" rearm'),
        "PreToolUse": (GUARDED_TOOLS, GUARD),
        "PostToolUse": (".*", f'{python}context_monitor.py"'),
        "PostToolUseFailure": (".*", f'{python}context_monitor.py"'),
        "Stop": (None, f'{python}stop_loop_reminder.py"'),
    }
    for _, command in found.values():
        if command == GUARD:
            continue
        (script,) = re.findall(r"\$\{CLAUDE_PLUGIN_ROOT\}/([^\"]+)", command)
        assert (PLUGIN / script).is_file()


def guard(env: dict[str, str]) -> tuple[int, str, str]:
    """The guard's hook with a dangerous command, as Claude Code would run it."""
    given = json.dumps({"tool_name": "Bash", "tool_input": {"command": "rm -rf /"}})
    done = subprocess.run(["/bin/sh", "-c", GUARD], input=given, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_guard_outside_a_run_and_without_ralph() -> None:
    """No output outside a run or if Ralph already guards; denied in a run without Ralph."""
    inside = {"PATH": "/nonexistent", "RALPH_RUN_ID": "x"}
    assert guard({"PATH": "/nonexistent"}) == (0, "", "")
    code, out, err = guard(inside)
    assert (code, out) == (2, "") and "guard is missing or failed" in err
    assert guard(inside | {"RALPH_GUARDED": "1"}) == (0, "", "")


def test_the_guard_inside_a_run() -> None:
    """Ralph is called and denies."""
    place = str(Path(sys.executable).parent)
    code, out, err = guard({"PATH": f"{place}:/usr/bin:/bin", "RALPH_RUN_ID": "x", "HOME": "/home/dev"})
    assert (code, json.loads(out)["hookSpecificOutput"]["permissionDecision"]) == (2, "deny")
    assert "delete-root" in err
