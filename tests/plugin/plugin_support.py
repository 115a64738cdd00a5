"""The hooks of the plugin as Claude Code runs them: a script, JSON on stdin, JSON on stdout."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ralph

PLUGIN = Path(ralph.__file__).parent / "plugin"
SCRIPTS = PLUGIN / "hooks" / "scripts"


@dataclass(frozen=True)
class Said:
    """How a hook ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        return json.loads(self.out)

    @property
    def approves(self) -> bool:
        return (self.code, self.out) == (0, '{"decision": "approve"}\n')

    @property
    def reason(self) -> str:
        """Why the stop is blocked."""
        assert self.code == 0 and self.answer.keys() == {"decision", "reason"}, self
        assert self.answer["decision"] == "block"
        reason = self.answer["reason"]
        assert isinstance(reason, str) and "Traceback" not in reason + self.err
        return reason


def run_hook(
    script: Path,
    given: Any,
    *arguments: str,
    python: str = sys.executable,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Said:
    """`given` is bytes, or a value that becomes JSON as written by Claude Code."""
    text = given if isinstance(given, bytes) else json.dumps(given, separators=(",", ":")).encode()
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("RALPH", "CLAUDE", "GIT_"))
    }
    done = subprocess.run(
        [python, "-I", "-S", str(script), *arguments],
        input=text,
        cwd=cwd,
        env=clean | (env or {}),
        capture_output=True,
        timeout=60,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def loaded(name: str) -> ModuleType:
    """A script of the plugin as a module, without its folder on the path; nothing is written next to it."""
    spec = importlib.util.spec_from_file_location(f"plugin_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


EVERY_PYTHON = pytest.mark.parametrize("minor", range(8, 15), ids="3.{}".format)
"""The versions a hook may meet; the test is skipped if this machine does not have one."""


@cache
def interpreter(minor: int) -> str:
    """The Python 3.`minor` of this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        *map(str, pyenv.glob(f"versions/3.{minor}.*/bin/python3")),
        shutil.which(f"python3.{minor}"),
    ]
    for path in filter(None, candidates):
        if subprocess.run([path, "-I", "-S", "-c", "pass"], capture_output=True).returncode == 0:
            return path
    pytest.skip(f"there is no Python 3.{minor}")


def hook_inputs() -> dict[str, Any]:
    """The recorded hook input of Claude Code 2.1.325."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "hook_inputs.json").read_text())
    return found
