"""The user's repository and one of Ralph's worktrees in it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import Project
from ralph.scm.baseline import Baseline
from ralph.scm.checkout import Checkout
from ralph.scm.git import Git, GitOutput, Runner
from ralph.scm.repository import Repository, find_repository
from ralph.scm.tree import Tree
from ralph.scm.worktrees import Worktrees


class Place:
    """The user's repository and one of Ralph's worktrees, on `ralph/T` from `main`."""

    def __init__(self, project: Project, tmp_path: Path) -> None:
        self.project = project
        self.project.git("config", "user.name", "Ada")
        self.project.git("config", "user.email", "ada@localhost")
        found = find_repository(project.path)
        assert found is not None
        self.baseline = Baseline(Git(found, self._runner(project.path)), tmp_path / "record")
        self.baseline.record()
        self.trees = Worktrees(found, self._runner(project.path), self.baseline)
        self.path = tmp_path / "trees" / "T"
        self.began = self.trees.branch_commit("main")
        self.repository = self.trees.add(self.path, "ralph/T", self.began)

    def _runner(self, directory: Path) -> Runner:
        def run(argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
            env = self.project.env | dict(variables)
            done = subprocess.run(argv, cwd=directory, env=env, input=stdin, capture_output=True, check=False)
            return GitOutput(
                done.returncode, done.stdout, done.stderr.decode(errors="replace"), died=done.returncode < 0
            )

        return run

    @property
    def tree(self) -> Tree:
        return self.tree_of(self.repository)

    def tree_of(self, repository: Repository) -> Tree:
        return Tree(repository, self._runner(repository.top), self.baseline)

    @property
    def checkout(self) -> Checkout:
        """The user's own working tree."""
        user = self.trees.git.repository
        return Checkout(user, self._runner(user.top), self.baseline)

    def git(self, *arguments: str) -> str:
        """Run git in the worktree."""
        return self.project.git("-C", str(self.path), *arguments)

    def commit(self, name: str, text: str) -> str:
        """Commit in the worktree."""
        (self.path / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD").strip()

    def base_commit(self, name: str, text: str) -> str:
        (self.project.path / name).write_text(text)
        self.project.git("add", "-A")
        self.project.git("commit", "-qm", f"base {name}")
        return self.project.git("rev-parse", "HEAD").strip()


@pytest.fixture
def place(repository: Project, tmp_path: Path) -> Place:
    return Place(repository, tmp_path)
