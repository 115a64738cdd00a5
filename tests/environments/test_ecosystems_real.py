"""Checks of `ralph work` in a worktree, and of `ralph run` in a clean copy, see the code of the copy in every ecosystem."""

from __future__ import annotations

import pytest

from conftest import Project
from environments.ecosystems import NAMES, kind_of
from environments.environment_support import REGISTRY
from environments.package_support import writes

pytestmark = REGISTRY

KINDS = pytest.mark.parametrize("name", NAMES)


def output_of_checks(project: Project) -> str:
    """The logs of all checks in the checkout and in worktrees."""
    places = (project.path / ".ralph", project.home.path / "worktrees")
    return "\n".join(log.read_text() for place in places for log in place.rglob("*.log"))


@KINDS
def test_a_breaking_change_in_a_worktree_is_red(project: Project, name: str) -> None:
    """The user's package works, but it is not what the check sees."""
    kind = kind_of(name)
    made = kind.checkout(project, kind.right)
    before = kind.state(project)
    ended = made.work(writes(kind.package.code, kind.wrong))
    assert ended.code == 1, ended.err
    assert kind.complaint in output_of_checks(project)
    assert made.is_merged(kind.right)
    assert kind.state(project) == before


@KINDS
def test_a_fixing_change_in_a_worktree_is_green(project: Project, name: str) -> None:
    """The user's package is broken, but it is not what the check sees."""
    kind = kind_of(name)
    made = kind.checkout(project, kind.wrong)
    before = kind.state(project)
    ended = made.work(writes(kind.package.code, kind.right))
    assert ended.code == 0, ended.err
    assert made.is_merged(kind.right)
    assert kind.state(project) == before


@KINDS
def test_a_breaking_change_in_a_clean_copy_is_red(project: Project, name: str) -> None:
    """The check fails on the broken package, and not because something is missing in the copy."""
    kind = kind_of(name)
    made = kind.checkout(project, kind.right)
    before = kind.state(project)
    ended = made.run(writes(kind.package.code, kind.wrong))
    assert ended.code == 1, ended.err
    assert kind.complaint in output_of_checks(project)
    assert kind.state(project) == before


@KINDS
def test_a_fixing_change_in_a_clean_copy_is_green(project: Project, name: str) -> None:
    """The check runs the package of the copy that it runs in."""
    kind = kind_of(name)
    made = kind.checkout(project, kind.wrong)
    before = kind.state(project)
    ended = made.run(writes(kind.package.code, kind.right))
    assert ended.code == 0, ended.err
    assert kind.state(project) == before
