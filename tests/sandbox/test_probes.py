"""`ralph doctor --sandbox`: 37 probes on this machine, as the user who runs the tests and as an ordinary
user."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import Project
from sandbox_support import BUBBLEWRAP, NOBODY, as_nobody, python_path

pytestmark = BUBBLEWRAP


def assert_sound(text: str) -> None:
    proof = json.loads(text)
    wrong = [probe for probe in proof["probes"] if not probe["ok"]]
    assert (proof["rung"], proof["sound"], wrong) == ("bubblewrap", True, [])
    allowed = {probe["name"] for probe in proof["probes"] if probe["expected"] == "allowed"}
    assert allowed == {"worktree", "commit", "login", "proxy: allowed host"}
    assert len(proof["probes"]) - len(allowed) >= 20


def test_s1_every_probe_is_denied_and_the_worktree_is_not(project: Project) -> None:
    """Writes outside, credentials, processes, devices, kernel settings, sockets, network."""
    done = project.run("doctor", "--sandbox", "bubblewrap", "--json")
    assert done.code == 0, done.err
    assert_sound(done.out)


def test_the_table_names_what_was_tried(project: Project) -> None:
    """The same as a table, without a name: the best backend that works here."""
    done = project.run("doctor", "--sandbox")
    assert done.code == 0
    assert "read an SSH key" in done.out and "FAIL" not in done.out
    assert "all passed" in done.err


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="whoever runs the tests is an ordinary user already")
def test_s1_an_ordinary_user_is_protected_as_well(tmp_path: Path) -> None:
    """The same probes without root privileges, after a change of the user ID."""
    home = Path("/tmp") / f"ralph-nobody-{os.getpid()}"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": python_path(), "LANG": "C.UTF-8"}
    try:
        words = as_nobody("doctor", "--sandbox", "bubblewrap", "--json")
        done = subprocess.run(words, cwd="/", env=env, capture_output=True, text=True, timeout=100)
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)
    assert done.returncode == 0, done.stderr
    assert_sound(done.stdout)


def test_nothing_is_proved_without_a_sandbox(project: Project) -> None:
    """`direct` is refused, because the probes would succeed."""
    done = project.run("doctor", "--sandbox", "direct")
    assert done.code == 2 and "it protects nothing" in done.err


def test_an_unknown_backend_is_named(project: Project) -> None:
    """One clear error lists the known ones."""
    done = project.run("doctor", "--sandbox", "moat")
    assert done.code == 2 and "'moat'" in done.err and "bubblewrap" in done.err
