"""Verdicts that need more than the corpus: other directories, custom rules."""

from __future__ import annotations

from guard.guard_support import CONTEXT, GUARD, denied_by
from ralph.guard.judge import Guard
from ralph.shell.context import ShellContext


def test_two_here_documents_in_a_line() -> None:
    """The grammar cannot parse this, but bash can."""
    text = "cat <<'A' > x && cat <<'B' > y\none\nA\ntwo\nB\nrm -rf /"
    assert denied_by(text) == "delete-root"
    assert denied_by(text.removesuffix("rm -rf /")) == ""


def test_a_run_in_a_worktree_of_the_state_directory() -> None:
    """`ralph work` keeps its worktrees there: they belong to the agent, but their surroundings do not."""
    home = "/home/dev"
    context = ShellContext(f"{home}/.local/state/ralph/worktrees/app-1/T1", home)
    assert denied_by("rm -rf build; echo x > src/y", context) == ""
    assert denied_by("rm -rf ../T2", context) == "harness-files"
    assert denied_by("rm -rf .", context) == "delete-repository"


def test_in_a_directory_of_the_repository() -> None:
    """The top level of the repository must not be deleted."""
    context = ShellContext("/home/dev/work/app/src", "/home/dev", "/home/dev/work/app")
    assert denied_by("rm -rf ../build *", context) == ""
    assert denied_by("rm -rf ..", context) == "delete-repository"


def test_custom_rules() -> None:
    """Allowing one part does not allow the others."""
    guard = Guard([("git push --force*", "")], [("curl *", "No network.")])
    assert guard.judge("git push --force origin x", CONTEXT).allowed
    assert not guard.judge("git push --force; rm -rf /", CONTEXT).allowed
    assert guard.judge("sh -c 'curl https://x'", CONTEXT).reason == "No network."


def test_a_denial_names_the_part() -> None:
    """The denial names the simple command as written."""
    verdict = GUARD.judge("make && sh -c 'rm -rf \"$HOME\"'", CONTEXT)
    assert (verdict.rule, verdict.category, verdict.part) == ("delete-home", "deletion", 'rm -rf "$HOME"')
