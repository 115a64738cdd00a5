"""Every kind of editable install: checks of a worktree and of a clean copy import its files, not the user's."""

from __future__ import annotations

import pytest

from conftest import Project
from environments.package_support import BROKEN, NETWORK, WORKS, checkout, writes
from environments.packages import PACKAGES

pytestmark = NETWORK

KINDS = pytest.mark.parametrize("kind", PACKAGES)
HERE = "tests/test_demo.py"


@KINDS
def test_a_breaking_change_in_a_worktree_is_red(project: Project, kind: str) -> None:
    """The package of the user's checkout works, but it is not what the check sees."""
    made = checkout(project, package := PACKAGES[kind])
    ended = made.work(writes(package.code, BROKEN), f"{package.check} {HERE}")
    assert ended.code == 1, ended.err
    assert "RuntimeError: broken" in ended.out + ended.err
    assert made.is_merged(WORKS)
    assert made.is_untouched()


@KINDS
def test_a_fixing_change_in_a_worktree_is_green(project: Project, kind: str) -> None:
    """The package of the user's checkout is broken, but it is not what the check sees."""
    made = checkout(project, package := PACKAGES[kind], BROKEN)
    ended = made.work(writes(package.code, WORKS))
    assert ended.code == 0, ended.err
    assert made.is_merged(WORKS)
    assert made.is_untouched()


@KINDS
def test_a_breaking_change_in_a_clean_copy_is_red(project: Project, kind: str) -> None:
    """The check fails on the broken package, and not because something is missing in the copy."""
    made = checkout(project, package := PACKAGES[kind])
    ended = made.run(writes(package.code, BROKEN), f"{package.check} {HERE}")
    assert ended.code == 1, ended.err
    assert "RuntimeError: broken" in ended.out + ended.err
    assert made.is_untouched()


@KINDS
def test_a_fixing_change_in_a_clean_copy_is_green(project: Project, kind: str) -> None:
    """The check imports the package of the copy that it runs in."""
    made = checkout(project, package := PACKAGES[kind], BROKEN)
    ended = made.run(writes(package.code, WORKS))
    assert ended.code == 0, ended.err
    assert made.is_untouched()
