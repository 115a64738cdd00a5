"""Shared by fault tests of `ralph work`: a git that can be trapped, and invariants that must always hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import Any

from conftest import Result
from faults.fault_support import assert_sound
from work_support import ALL_MET, Site

GIT = shutil.which("git") or "git"

FINDS_RALPH = """
p=$PPID gits=
until [ "$(cat /proc/$p/comm)" = ralph ]; do
    [ "$(cat /proc/$p/comm)" = git ] && gits="$gits $p"
    while read -r name value; do [ "$name" = PPid: ] && p=$value; done < /proc/$p/status
done
"""
"""Shell: the ralph process above us, as $p, and each git in between."""

KILL_BEFORE = f"{FINDS_RALPH} kill -9 $p; sleep 60"
KILL_AFTER = f'{GIT} "$@"; {FINDS_RALPH} kill -9 $p; sleep 60'
KILL_HARD = f"{FINDS_RALPH} kill -9 $p $gits; sleep 60"
"""For a filter: kills git too, so that it cannot clean up."""


def coder_only(site: Site, body: str, judge: str = f"echo '{ALL_MET}'", **settings: Any) -> None:
    """Tasks go only through the coder."""
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    judged = {"agent": str(site.outside / "judge.sh")}
    ralph = {"agents": off, "judge": judged} | settings.pop("ralph", {})
    site.agents(body, judge, ralph=ralph, **settings)


def script(site: Site, name: str, body: str) -> str:
    """An executable outside the project."""
    path = site.outside / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def trap(site: Site, words: str, deed: str, armed_by: str = "", nth: int = 1) -> None:
    """A git on the PATH that runs a command on the nth call with these words (a shell pattern).

    With `armed_by`, only calls after one with those words count.
    """
    met, armed = site.outside / "met", site.outside / "armed"
    arm = f'case "$*" in {armed_by}) touch {armed};; esac' if armed_by else ""
    spring = f"[ -e {armed} ] && echo >> {met} && [ $(wc -l < {met}) = {nth} ] && mkdir {site.outside}/sprung"
    script(site, "bin/git", f'case "$*" in {words}) {spring} && {{ {deed}; }};; esac\n{arm}\nexec {GIT} "$@"')
    if not armed_by:
        armed.touch()
    site.project.extra_env["PATH"] = f"{site.outside}/bin:{os.environ['PATH']}"


def is_sprung(site: Site) -> bool:
    return (site.outside / "sprung").exists()


def killed_work(site: Site, *arguments: str) -> None:
    """`ralph work`, killed by the trap."""
    result = site.work(*arguments)
    assert (result.code, is_sprung(site)) == (-9, True), result.err


# ---- invariants ----


def worktrees(site: Site) -> list[str]:
    """The branches of all registered worktrees except the user's own; a missing one has no directory."""
    listing = site.project.git("worktree", "list", "--porcelain").strip().split("\n\n")[1:]
    assert "prunable" not in "".join(listing), listing
    return sorted(
        line.rpartition("/")[2] for entry in listing for line in entry.splitlines() if "branch" in line
    )


def assert_intact(site: Site) -> None:
    """Repository and store are intact, and the user's checkout matches its branch."""
    assert site.project.git("fsck", "--no-dangling", "--strict") == ""
    assert site.project.git("status", "--porcelain") == ""
    locks = [str(path) for path in site.project.path.glob(".git/**/*.lock")]
    assert locks == [], locks
    assert_sound(site.project.home)


def assert_clean(site: Site) -> None:
    """Repository and store are intact, and nothing is left of finished tasks."""
    assert_intact(site)
    assert worktrees(site) == []
    assert (
        site.project.git("for-each-ref", "refs/heads/ralph", "refs/ralph/advancing", "refs/ralph/proved")
        == ""
    )


def first_parents(site: Site, branch: str = "main") -> list[str]:
    """Commits of a branch as the user sees them, oldest first."""
    return site.project.git("rev-list", "--first-parent", "--reverse", branch).split()


def assert_green(site: Site, command: str) -> None:
    """Every commit added to the user's branch passes the check on its own tree."""
    for commit in first_parents(site)[1:]:
        with tempfile.TemporaryDirectory() as tree:
            archive = subprocess.run(
                [GIT, "archive", commit], cwd=site.project.path, capture_output=True, check=True
            )
            subprocess.run(["tar", "x"], cwd=tree, input=archive.stdout, check=True)
            done = subprocess.run(["sh", "-c", command], cwd=tree, capture_output=True, check=False)
            assert done.returncode == 0, f"{commit}: {done.stdout.decode()}{done.stderr.decode()}"


def roles_of(site: Site, id: str = "T-1") -> list[str]:
    """The runs of a task by role, without merges, which are only checks and may be repeated."""
    return [run["role"] for run in site.state(id)["runs"] if run["role"] != "merge"]


def assert_stopped(result: Result, code: int, *said: str) -> None:
    """Assert a clean stop: the exit code, the message, and no traceback."""
    everything = result.out + result.err
    assert "Traceback" not in everything and "This is a bug" not in everything, everything
    assert result.code == code, everything
    for words in said:
        assert words in everything


def filtered(site: Site, place: str, deed: str) -> None:
    """A user's filter for `*.txt` that runs a command when it first writes a file at a place (a pattern)."""
    spring = f'case "$PWD/$1" in {place}) mkdir {site.outside}/sprung 2> /dev/null && {{ {deed}; }};; esac'
    smudge = script(site, "smudge", f"{spring}\ncat")
    site.project.git("config", "filter.trap.smudge", f"{smudge} %f")
    site.project.git("config", "filter.trap.clean", "cat")
    (site.project.path / ".gitattributes").write_text("*.txt filter=trap\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "Texts")
