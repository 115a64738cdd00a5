"""Files that the agent must not change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from checks.check_support import Bench
from ralph.checks.base import Changed
from ralph.checks.protected import run
from ralph.checks.registry import METHODS, config_problem
from ralph.core.model import Check, FailAction, Feedback, Verdict

CONFIG = {"globs": ["check.sh", "tests/*"], "trusted": "abc123"}
CHECK = Check("protected files", "protected", json.dumps(CONFIG), hint="Fix the code.")


def test_it_is_in_the_registry() -> None:
    """A check with the method `protected` is this one."""
    assert METHODS["protected"].run is run


def test_untouched_files_are_green() -> None:
    """The context is asked for the globs and the trusted commit."""
    context = Bench()
    assert run(CHECK, context) == Verdict(
        "protected files", green=True, reason="No protected file was changed"
    )
    assert context.looked == [(("check.sh", "tests/*"), "abc123")]


def test_changed_files_are_red() -> None:
    """The agent is told which files, how to restore them, and the changes, without tags to repeat."""
    changes = [Changed("check.sh", "-exit 1\n+exit 0\n"), Changed("tests/a b.py", "+<promise>x</promise>\n")]
    assert run(CHECK, Bench(changes=changes)) == Verdict(
        "protected files",
        green=False,
        reason="Protected files were changed: check.sh, tests/a b.py",
        feedback=Feedback(
            FailAction.APPEND,
            "Files that the verification of this task relies on were changed. You must not change them.\n"
            "Restore them: git checkout abc123 -- check.sh 'tests/a b.py'\n"
            "Hint: Fix the code.\n"
            "Changes:\n"
            "-exit 1\n+exit 0\n+&lt;promise&gt;x&lt;/promise&gt;",
        ),
    )


def test_new_files_that_affect_verification_are_red() -> None:
    """The agent is told to remove them; the context is asked for their names."""
    check = replace(CHECK, config=json.dumps(CONFIG | {"absent": ["conftest.py"]}))
    context = Bench(changes=[Changed("tests/conftest.py", "+hook\n", is_new=True)])
    verdict = run(check, context)
    assert context.looked == [(("check.sh", "tests/*"), "abc123", ("conftest.py",))]
    assert verdict.reason == "Protected files were changed: tests/conftest.py"
    assert verdict.feedback is not None
    assert "git rm -rf -- tests/conftest.py" in verdict.feedback.text
    assert "git checkout" not in verdict.feedback.text


def test_long_changes_are_cut() -> None:
    """Every file gets a share of the limit, which includes escaped tags; only the first files are named."""
    changes = [
        Changed(f"{n}.py", f"--- a/{n}.py\n+++ b/{n}.py\n@@ -1,0 +1,9 @@\n" + "+<promise>x</promise>\n" * 9)
        for n in range(25)
    ]
    verdict = run(CHECK, Bench(changes=changes, truncate=4000))
    assert verdict.reason.endswith(" 18.py, 19.py (and 5 more)")
    assert verdict.feedback is not None
    shown = verdict.feedback.text.partition("\nChanges (truncated):\n")[2]
    assert 3000 < len(shown) <= 4000 and "<promise>" not in shown
    assert [n for n in range(25) if f"+++ b/{n}.py\n" not in shown] == []


def test_without_a_limit_all_changes_are_shown() -> None:
    """A limit of 0 shows everything."""
    verdict = run(CHECK, Bench(changes=[Changed("a.py", "+" * 9000)], truncate=0))
    assert verdict.feedback is not None
    assert verdict.feedback.text.endswith("\nChanges:\n" + "+" * 9000)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (CONFIG, ""),
        (CONFIG | {"globs": []}, "globs: must not be empty"),
        (CONFIG | {"globs": ["a", ""]}, "globs: an entry is empty"),
        (CONFIG | {"globs": [], "absent": ["conftest.py"]}, ""),
        (CONFIG | {"absent": [""]}, "absent: an entry is empty"),
        (CONFIG | {"trusted": ""}, "trusted: must not be empty; give a commit"),
        ({"globs": ["a"]}, "Object missing required field `trusted`"),
    ],
)
def test_its_config(config: dict[str, Any], problem: str) -> None:
    """Something must be protected, and there must be a commit to compare with."""
    assert config_problem("protected", config) == problem
