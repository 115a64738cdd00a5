"""`ralph run` with tests that the agent changes: the work must also pass them as they were when the run started."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, some, some_rows, wait_until

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
CLAIM = "echo '<response>DONE</response>'"
FIX = "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"
WEAKEN = "printf 'def test_add():\\n    pass\\n' > tests/test_calc.py"
FILES = {
    ".gitignore": ".ralph/\n__pycache__/\nagent.sh\n",
    "calc.py": "def add(a, b):\n    return 0\n",
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\ndependencies = []\n\n'
    '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "tests/test_other.py": "from helpers import check\n\n\ndef test_other():\n    check(0)\n",
    "tests/helpers.py": "import calc\n\n\ndef check(n):\n    assert calc.add(1, 0) in (n, 1)\n",
    "check.sh": "set -e\n. ./lib.sh\nrun_tests\necho checked\n",
    "lib.sh": f"run_tests() {{ {PYTEST}; }}\n",
}


@pytest.fixture
def calc(project: Project) -> Project:
    """A project whose tests fail, because addition is missing. Plugins would triple the time that pytest takes to start."""
    project.extra_env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name, text in FILES.items():
        path = project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Test")
    project.git("config", "user.email", "test@localhost")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    return project


def agent(calc: Project, body: str, command: str = PYTEST, **settings: Any) -> None:
    scm = {"command": "git", "tasks": ["commit"]}
    usual = {"guardrails": [{"command": command}], "scm": scm, "snapshots": True}
    calc.agent(
        f"echo x >> ../starts\n{body}",
        **(usual | settings),
    )


def starts(calc: Project) -> int:
    """How often the agent has worked on the prompt, and not only named a commit."""
    return len(list((calc.path / ".ralph").glob("prompt_???.txt")))


def run(calc: Project, *options: str) -> Result:
    return calc.run("run", "-p", "Make add work.", "-m", "4", *options)


def run_id(result: Result) -> str:
    found = re.search(r"^  run (\S+): ", result.out, re.MULTILINE)
    assert found is not None
    return found[1]


def commits(calc: Project) -> int:
    return len(calc.git("log", "--oneline").splitlines())


def test_tests_hidden_from_git_excuse_nothing(calc: Project) -> None:
    """A copy lacks tests that git ignores, so nothing passes there: that is the agent's doing."""
    hide = "echo tests/ >> .gitignore; git rm -rq --cached tests"
    agent(calc, f"{hide}; rm tests/test_other.py; {WEAKEN}; {CLAIM}")
    result = run(calc)
    assert (result.code, commits(calc)) == (3, 1), result.out


def test_a_weakened_test_waits_for_the_user(calc: Project) -> None:
    """The agent is told once with the way out; the second claim stops the run, with nothing committed."""
    agent(calc, f"{WEAKEN}; {CLAIM}")
    result = run(calc)
    assert (result.code, commits(calc), starts(calc)) == (3, 1, 2)
    lines = result.out.splitlines()
    assert lines[0] == "Waiting: tests fail with these files as they were: tests/test_calc.py"
    assert "  note: changed tests: tests/test_calc.py" in lines
    assert f"ralph resume {run_id(result)} --allow tests/test_calc.py" in lines[-1]
    told = (calc.path / ".ralph/prompt_002.txt").read_text()
    assert "git checkout " in told and "-- tests/test_calc.py" in told and "assert 0 == 3" in told
    assert "\n<refuse>why the old test must change</refuse>\n" in told
    assert "failed (exit 1: tests/test_calc.py as it was when the run started)" in result.err


def test_the_user_allows_a_change_after_it_was_made(calc: Project) -> None:
    """`ralph resume --allow` checks again, commits and completes without another iteration; without it, the run waits."""
    agent(calc, f"{WEAKEN}; {CLAIM}")
    run = calc.run("run", "-p", "x", "-m", "2")
    name = run_id(run)
    assert run.code == 3
    assert (calc.run("resume", name).code, starts(calc), commits(calc)) == (3, 2, 1)
    other = calc.run("resume", name, "--allow", "tests/test_other.py")
    assert (other.code, starts(calc)) == (3, 2)
    done = calc.run("resume", name, "--allow", "tests/*_calc.py")
    assert (done.code, done.out.splitlines()[0]) == (0, "Done: all checks passed")
    assert (starts(calc), commits(calc)) == (2, 2)
    assert "def test_add():\n    pass\n" in calc.git("show", "HEAD:tests/test_calc.py")
    report = calc.run("report", name)
    assert "**Note**: changed tests: tests/test" in report.out


def test_an_agent_that_restores_its_tests_completes(calc: Project) -> None:
    """Told of the old tests, it puts them back and does the work."""
    honest = f"git checkout -q HEAD -- tests; {FIX}"
    agent(calc, f"[ $RALPH_ITERATION = 1 ] && {{ {WEAKEN}; }} || {{ {honest}; }}\n{CLAIM}")
    result = run(calc)
    assert (result.code, starts(calc), "tests" in result.out) == (0, 2, False)


def test_a_reason_stops_at_once_but_only_after_the_agent_was_told(calc: Project) -> None:
    """The tag counts when old tests are red; its reason is in the outcome."""
    refuse = "echo '<refuse>add is now called plus</refuse>'"
    agent(calc, f"{WEAKEN}\n[ $RALPH_ITERATION = 2 ] && {CLAIM} || {refuse}", maximumIterations=9)
    result = run(calc)
    assert (result.code, starts(calc)) == (3, 3)
    assert "  note: why the agent changed tests: add is now called plus" in result.out.splitlines()
    assert calc.run("resume", run_id(result), "--allow", "tests/").code == 1, (
        "it has not said that it is done"
    )
    assert "All required checks passed" in (calc.path / ".ralph/prompt_004.txt").read_text()


CHEATS = {
    "deleted": "rm -f tests/test_calc.py",
    "marked": "sed -i '1i import pytest\\npytestmark = pytest.mark.skip' tests/test_calc.py",
    "configured": "sed -i 's/^pythonpath/addopts = \"-k other\"\\npythonpath/' pyproject.toml",
    "new pytest.ini": "printf '[pytest]\\npythonpath = .\\naddopts = -k other\\n' > pytest.ini",
    "ignored": "echo 'collect_ignore = [\"test_calc.py\"]' > tests/conftest.py",
    "hooked": "printf 'def pytest_collection_modifyitems(items):\\n    del items[:-1]\\n' > conftest.py",
    "weakened helper": "rm tests/test_calc.py; printf 'def check(n):\\n    pass\\n' > tests/helpers.py",
    "sitecustomize": "printf 'import os, sys\\nif \"pytest\" in sys.orig_argv:\\n    os._exit(0)\\n' > sitecustomize.py",
    "shadow": "echo 'raise SystemExit(0)' > pytest.py",
    "renamed": "git mv tests/test_calc.py tests/calc_cases.py 2>/dev/null",
    "expected failure": "sed -i 's/^def test_add/import pytest\\n@pytest.mark.xfail\\ndef test_add/' tests/test_calc.py",
    "new package file": "rm -f tests/test_other.py; echo 'import calc; calc.add = lambda a, b: a + b' > tests/__init__.py",
}


@pytest.mark.parametrize("name", some(list(CHEATS), 3))
def test_no_way_around_the_tests_completes(calc: Project, name: str) -> None:
    """Weak work with tests that are changed, gone, skipped or configured away stops as waiting."""
    agent(calc, f"[ $RALPH_ITERATION = 1 ] && {{ {CHEATS[name]}; }}\n{CLAIM}", f"PYTHONPATH=. {PYTEST}")
    result = run(calc)
    assert (result.code, commits(calc)) == (3, 1), result
    assert result.out.startswith("Waiting: tests fail with these files")


@pytest.mark.slow
@pytest.mark.parametrize("cheat", ["echo 'run_tests() { :; }' > lib.sh", "echo true > check.sh", WEAKEN])
def test_no_way_around_a_check_script(calc: Project, cheat: str) -> None:
    """The script, what it sources, and the tests behind it are as they were."""
    agent(calc, f"{cheat}; {CLAIM}", "sh check.sh")
    assert run(calc).code == 3


@pytest.mark.parametrize(
    "body",
    some(
        [
            f"{FIX}; printf 'def test_new():\\n    assert 1\\n' > tests/test_new.py",
            f"{FIX}; sed -i 's/^dependencies.*/dependencies = [\"rich\"]/' pyproject.toml",
            FIX,
        ],
        2,
    ),
)
def test_work_that_leaves_old_tests_alone_completes_at_once(calc: Project, body: str) -> None:
    """New tests and new dependencies need no second look."""
    agent(calc, f"{body}; {CLAIM}")
    result = run(calc)
    assert (result.code, starts(calc)) == (0, 1), result
    assert "old tests passed (0" in result.err and "tests:" not in result.out
    assert not list((calc.path / ".ralph").glob("guardrail_*_old_tests.log"))


@pytest.mark.slow
def test_a_changed_test_that_the_old_one_agrees_with_completes(calc: Project) -> None:
    """The old tests pass too, so the change is only named."""
    agent(calc, f"{FIX}; echo '# more' >> tests/test_calc.py; rm tests/test_other.py; {CLAIM}")
    result = run(calc)
    assert (result.code, starts(calc)) == (0, 1), result
    assert "  note: changed tests: tests/test_calc.py" in result.out.splitlines()
    assert "  note: deleted tests: tests/test_other.py" in result.out.splitlines()


@pytest.mark.parametrize(
    ("options", "settings"),
    some_rows(
        [
            (("--allow", "tests/**"), {}),
            ((), {"protect": False}),
            ((), {"protect": ["tests/test_other.py"]}),
            ((), {"ralph": {"protect": []}}),
        ],
        1,
    ),
)
def test_allowed_changes_complete(calc: Project, options: tuple[str, ...], settings: dict[str, Any]) -> None:
    """By the command line or the settings; the changed tests are named in any case."""
    agent(calc, f"{WEAKEN}; {CLAIM}", **settings)
    result = run(calc, *options)
    assert (result.code, starts(calc)) == (0, 1), result
    assert "  note: changed tests: tests/test_calc.py" in result.out.splitlines()


@pytest.mark.slow
def test_globs_of_the_settings_protect(calc: Project) -> None:
    """`ralph.protect` means the same as `protect`, and `--allow` goes with either."""
    agent(calc, f"{WEAKEN}; {CLAIM}", ralph={"protect": ["tests/"]})
    assert run(calc).code == 3
    assert run(calc, "--allow", "test_calc.py").code == 0


def test_a_linter_has_no_second_look(calc: Project) -> None:
    """A command that executes no tests does not care; the change is named all the same."""
    agent(calc, f"{WEAKEN}; {CLAIM}", "test -s calc.py")
    result = run(calc)
    assert (result.code, "old tests" in result.err) == (0, False)
    assert "  note: changed tests: tests/test_calc.py" in result.out.splitlines()


@pytest.mark.slow
def test_a_copy_in_which_nothing_works_shows_nothing(calc: Project) -> None:
    """Tests that need an ignored file fail in a copy, whichever version they have: the outcome says so."""
    (calc.path / "local.pyc").write_text("x")
    (calc.path / ".gitignore").write_text(FILES[".gitignore"] + "*.pyc\n")
    agent(calc, f"{WEAKEN}; {CLAIM}", f"test -f local.pyc && {PYTEST}")
    result = run(calc)
    assert (result.code, starts(calc)) == (0, 1), result
    why = "fails with the new tests too (exit code 1)"
    assert any(
        "old tests were not compared (tests/test_calc.py)" in line and why in line
        for line in result.out.splitlines()
    )


@pytest.mark.slow
def test_at_the_last_iteration_the_run_waits_at_once(calc: Project) -> None:
    """Nobody could be told any more, so the user decides; with more iterations, the agent is told first."""
    agent(
        calc,
        f"[ $RALPH_ITERATION = 2 ] && {{ git checkout -q HEAD -- tests; {FIX}; }} || {{ {WEAKEN}; }}\n{CLAIM}",
    )
    first = calc.run("run", "-p", "x", "-m", "1")
    assert first.code == 3
    assert calc.run("resume", run_id(first), "-m", "3").code == 0
    assert "Tests that existed" in (calc.path / ".ralph/prompt_002.txt").read_text()


@pytest.mark.slow
def test_a_project_inside_a_repository(calc: Project) -> None:
    """Commands run in the project's directory, and globs may start there."""
    inner = calc.path / "app"
    inner.mkdir()
    calc.git("mv", "calc.py", "tests", "pyproject.toml", "app")
    calc.git("commit", "-qm", "Move")
    app = Project(inner, calc.home)
    agent(app, f"{WEAKEN}; {CLAIM}")
    result = run(app)
    assert (result.code, "these files as they were: app/tests/test_calc.py" in result.out) == (3, True)
    assert app.run("resume", run_id(result), "--allow", "tests/test_*.py").code == 0


@pytest.mark.slow
def test_a_run_without_snapshots_compares_too(calc: Project) -> None:
    """The tree at the start is kept in the journal."""
    agent(calc, f"{WEAKEN}; {CLAIM}", snapshots=False)
    result = run(calc)
    assert (result.code, "note: changed tests: tests/test_calc.py" in result.out) == (3, True)
    agent(calc, f"{FIX}; {CLAIM}")
    calc.git("checkout", "-q", "--", ".")
    assert run(calc).code == 0


@pytest.mark.slow
def test_a_run_that_is_killed_during_the_second_look_continues(calc: Project) -> None:
    """Resumed, it takes the second look again, without another iteration."""
    block = calc.path.parent / "block"
    slow = f"{PYTEST}; code=$?; case $PWD in */copies/*) touch {block}.there; while [ -f {block} ]; do sleep 0.05; done;; esac; exit $code"
    agent(calc, f"{WEAKEN}; {CLAIM}", slow)
    block.touch()
    with calc.start("run", "-p", "x", "-m", "1", real_process=True) as process:
        wait_until(Path(f"{block}.there").exists, 60)
        os.kill(process.pid, signal.SIGKILL)
    block.unlink()
    result = calc.run("resume")
    assert (result.code, starts(calc)) == (3, 1), result
    assert calc.run("resume", "--allow", "tests/").code == 0


def test_two_different_settings_are_refused(calc: Project) -> None:
    """The error names both keys."""
    agent(calc, CLAIM, protect=["a"], ralph={"protect": ["b"]})
    result = run(calc)
    assert (result.code, starts(calc)) == (2, 0)
    assert "protect and ralph.protect are both set, to different values." in result.err
    agent(calc, CLAIM, "true", protect=["a"], ralph={"protect": ["a"]})
    assert run(calc).code == 0


@pytest.mark.real
def test_a_node_project(calc: Project) -> None:
    """`npm test` with `node --test`: a test, and the script that runs it."""
    package = {"name": "x", "scripts": {"test": "node --test"}, "dependencies": {}}
    (calc.path / "package.json").write_text(json.dumps(package))
    (calc.path / "add.js").write_text("exports.add = () => 0;\n")
    (calc.path / "add.test.js").write_text(
        "const test = require('node:test'); const assert = require('node:assert');\n"
        "test('add', () => assert.equal(require('./add').add(1, 2), 3));\n"
    )
    calc.git("add", "-A")
    calc.git("commit", "-qm", "Node")
    weak = json.dumps({**package, "scripts": {"test": "true"}})
    for cheat in ("echo > add.test.js", f"echo '{weak}' > package.json", "rm -f add.test.js"):
        calc.git("checkout", "-q", "--", ".")
        agent(calc, f"{cheat}; {CLAIM}", "npm test")
        assert run(calc).code == 3, cheat
    calc.git("checkout", "-q", "--", ".")
    more = json.dumps({**package, "dependencies": {"left-pad": "1"}})
    agent(
        calc,
        f"echo 'exports.add = (a, b) => a + b;' > add.js; echo '{more}' > package.json; {CLAIM}",
        "npm test",
    )
    assert run(calc).code == 0
