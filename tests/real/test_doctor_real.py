"""`ralph doctor` with the real agents: what the adapters say of them is true."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conftest import Project
from ralph.agents.registry import AGENTS
from real.real_support import NAMES, REAL, installed

pytestmark = REAL


@pytest.mark.parametrize("name", [name for name in NAMES if name in AGENTS])
def test_the_real_agent_has_every_flag(project: Project, tmp_path: Path, name: str) -> None:
    """The version is the one that Ralph was tried with, its help names every flag, its home stays empty."""
    about = AGENTS[name].about
    assert about is not None
    home = tmp_path / "home"
    home.mkdir()
    keys = dict.fromkeys(about.keys, "")
    project.extra_env = {"HOME": str(home), "PATH": f"{installed(name).parent}:{os.environ['PATH']}"} | keys
    project.settings(agent={"command": name})
    result = project.run("doctor", "--json", "--timeout", "60")
    assert (result.code, json.loads(result.out)[0]["found"]) == (
        0,
        f"{about.title} {about.seen} at {installed(name)}; tested with Ralph;"
        " supports all flags that Ralph uses; login status unknown",
    )
    assert list(home.iterdir()) == []
