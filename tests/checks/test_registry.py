"""Methods by name: Ralph's own, and those from other packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph.checks.registry import METHODS, VERIFICATION, config_problem, find_method
from ralph.core.task_model import VerificationMethod
from ralph.errors import RalphError

EXAMPLE = Path(__file__).parent / "example_package"
TESTS = EXAMPLE.parents[1]

Python = Callable[[str], str]


def install(target: Path, name: str, entry_points: dict[str, str]) -> None:
    """What an installer creates for a package: its name and its entry points."""
    info = target / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = "".join(f"{key} = {value}\n" for key, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[ralph.checks]\n{points}")


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Evaluates an expression with the example package and some broken ones installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copy(EXAMPLE / "ralph_small_change.py", tmp_path)
    install(tmp_path, project["name"], project["entry-points"]["ralph.checks"])
    (tmp_path / "unimportable.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "no_method.py").write_text("METHOD = {'run': print}\n")
    broken = {
        "unimportable": "unimportable:METHOD",
        "missing": "no_method:NOTHING",
        "no_method": "no_method:METHOD",
        "external": "ralph_small_change:METHOD",
    }
    install(tmp_path, "broken-checks", broken)

    def evaluate(expression: str) -> str:
        program = (
            "from ralph.checks.registry import *\n"
            "from ralph.core.model import *\n"
            "from ralph.errors import RalphError\n"
            "from checks.check_support import Bench\n"
            f"try: print({expression})\n"
            "except RalphError as error: print(error.message, error.hint, sep='|')\n"
        )
        path = os.pathsep.join([str(tmp_path), str(TESTS)])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return evaluate


def test_every_method_that_a_task_may_name_is_there() -> None:
    """The names in tasks, in the registry and in the list of known methods are the same."""
    assert tuple(VerificationMethod) == VERIFICATION
    assert set(VERIFICATION) <= set(METHODS)


def test_an_unknown_method_is_one_clear_error() -> None:
    """It names the known methods."""
    with pytest.raises(RalphError) as raised:
        find_method("magic")
    assert (raised.value.message, raised.value.hint) == (
        "There is no verification method 'magic'.",
        "Known: string_match, semantic, external, multi_stage.",
    )


def test_a_problem_says_where_it_is() -> None:
    """The path of the key comes first."""
    assert config_problem("semantic", {"check_for": ["a", 1]}) == "check_for[1]: Expected `str`, got `int`"


def test_a_method_of_another_package_is_listed(python: Python) -> None:
    """It comes after Ralph's own, and one with the name of one of Ralph's is not listed twice."""
    assert python("verification_methods()") == str(
        [*VERIFICATION, "missing", "no_method", "small_change", "unimportable"]
    )


@pytest.mark.parametrize(
    ("most", "verdict"),
    [(2, "(True, '2 lines were added')"), (1, "(False, '2 lines were added, at most 1 are allowed')")],
)
def test_a_method_of_another_package_works(python: Python, most: int, verdict: str) -> None:
    """It is found by name, gets the context, and returns a verdict."""
    diff = r"--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    run = f"""find_method("small_change").run(Check("x", "small_change", '{{"most": {most}}}'), Bench(difference="{diff}"))"""
    assert python(f"(lambda verdict: (verdict.green, verdict.reason))({run})") == verdict


def test_it_may_be_a_stage(python: Python) -> None:
    """A stage names it like any other method, and its config is checked there too."""
    stages = [{"name": "small", "method": "small_change", "config": {"most": 0}}]
    assert python(f"config_problem('multi_stage', {{'stages': {stages}}})") == (
        "stage 'small': most: must be 1 or more"
    )
    config = '{"stages": [{"name": "small", "method": "small_change"}]}'
    run = f"find_method('multi_stage').run(Check('x', 'multi_stage', '{config}'), Bench()).reason"
    assert python(run) == "All 1 verification stages passed"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{}", ""),
        ("{'most': 0}", "most: must be 1 or more"),
        ("{'most': 'x'}", "most: Expected `int`, got `str`"),
        ("{'least': 1}", "Object contains unknown field `least`"),
    ],
)
def test_its_config_is_checked_like_any_other(python: Python, config: str, problem: str) -> None:
    """Keys, types, and the package's own problems."""
    assert python(f"config_problem('small_change', {config})") == problem


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "unimportable",
            "The verification method 'unimportable' cannot be loaded: ModuleNotFoundError: No module named"
            " 'not_installed_anywhere'.|Fix or remove the package that provides it.",
        ),
        (
            "missing",
            "The verification method 'missing' cannot be loaded: AttributeError: module 'no_method' has no"
            " attribute 'NOTHING'.|Fix or remove the package that provides it.",
        ),
        (
            "no_method",
            "The verification method 'no_method' must be a ralph.checks.base.Method, not dict."
            "|Fix or remove the package that provides it.",
        ),
    ],
)
def test_a_broken_one_is_one_clear_error(python: Python, name: str, error: str) -> None:
    """It says what is wrong and what to do; the others keep working."""
    assert python(f"find_method({name!r})") == error


def test_no_package_replaces_one_of_ralphs_methods(python: Python) -> None:
    """`external` stays the same, whatever is installed."""
    assert python("find_method('external') is METHODS['external']") == "True"
