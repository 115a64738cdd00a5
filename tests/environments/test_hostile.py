"""Agents that leave the code broken and prepare something else for the check: nothing of it is merged."""

from __future__ import annotations

import pytest

from conftest import Project
from environments.package_support import BROKEN, NETWORK, PYTHON, WORKS, Checkout, Package, checkout, writes
from environments.packages import PACKAGES

pytestmark = NETWORK

PIP = PACKAGES["pip, src layout"]
CODE = "src/demo/__init__.py"
HELPER = """
outer=$(cd "$(dirname "$0")" && pwd)
site=$(echo .venv/lib/python3*/site-packages)
mkdir -p $outer/stash/demo
"""
STASH = f"""{HELPER}
cat > $outer/stash/demo/__init__.py <<'END'
{WORKS}END
{writes(CODE, BROKEN)}
"""
COMPILE = f"""
{writes(CODE, WORKS)}
{PYTHON} - <<'END'
import os, py_compile, sys
path = {CODE!r}
os.utime(path, (1_700_000_000, 1_700_000_000))
mode = getattr(py_compile.PycInvalidationMode, "MODE")
py_compile.compile(path, invalidation_mode=mode)
size = os.path.getsize(path)
text = "raise RuntimeError('broken')\\n"
open(path, "w").write(text + "#" * (size - len(text) - 1) + "\\n")
os.utime(path, (1_700_000_000, 1_700_000_000))
END
"""
TRICKS = {
    "a path line in the worktree's environment": f"{STASH}\necho $outer/stash > $site/aaa.pth",
    "code in the worktree's environment": f"{STASH}\necho 'import sys; sys.path.insert(0, \"'$outer/stash'\")' > $site/aaa.pth",
    "sitecustomize in the worktree's environment": f"{STASH}\necho 'import sys; sys.path.insert(0, \"'$outer/stash'\")' > $site/sitecustomize.py",
    "a package in the worktree's environment": f"{STASH}\nrm -rf $site/__editable__*; cp -r $outer/stash/demo $site/",
    "a program in the worktree's environment": f"{STASH}\nprintf '#!/bin/sh\\nexit 0\\n' > .venv/bin/pytest",
    "another interpreter": f"{STASH}\nrm .venv/bin/python; printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/python; chmod +x .venv/bin/python",
    "another record": f'{STASH}\necho \'{{"sites": ["\'$outer/stash\'"], "skipped": []}}\' > .venv/ralph-layer.json',
    "an environment behind a link": f"{STASH}\n{PYTHON} -m venv --without-pip $outer/mine; mkdir -p $outer/mine/bin; "
    "printf '#!/bin/sh\\nexit 0\\n' > $outer/mine/bin/pytest; chmod +x $outer/mine/bin/pytest; rm -rf .venv; ln -s $outer/mine .venv",
    "an environment behind a link in git": f"{STASH}\n{PYTHON} -m venv --without-pip $outer/mine; mkdir -p $outer/mine/bin; "
    "printf '#!/bin/sh\\nexit 0\\n' > $outer/mine/bin/pytest; chmod +x $outer/mine/bin/pytest; rm -rf .venv; ln -s $outer/mine .venv; "
    "git add -f .venv; git commit -qm mine",
    "an environment in git": f"{STASH}\nmkdir -p .venv/bin; rm -f .venv/bin/pytest .venv/.gitignore; printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/pytest; "
    "chmod +x .venv/bin/pytest; git add -f .venv; git commit -qm mine",
    "a program in git": f"{STASH}\nrm -f .venv/bin/pytest .venv/.gitignore; printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/pytest; "
    "chmod +x .venv/bin/pytest; git add -f .venv/bin/pytest; git commit -qm mine",
    "stale bytecode": COMPILE.replace("MODE", "TIMESTAMP"),
    "stale bytecode in git": COMPILE.replace("MODE", "TIMESTAMP") + "git add -f src; git commit -qm mine",
    "unchecked bytecode": COMPILE.replace("MODE", "UNCHECKED_HASH"),
    "unchecked bytecode in git": COMPILE.replace("MODE", "UNCHECKED_HASH")
    + "git add -f src; git commit -qm mine",
    "the same size within a second": f"{writes(CODE, WORKS)}\n.venv/bin/python -B -c 'import demo'; .venv/bin/python -c 'import demo'\n"
    "sed -i 's/return 42/return 43/' src/demo/__init__.py",
}


def is_broken(made: Checkout) -> bool:
    """Whether the user's branch fails its own test."""
    text = made.site.project.git("show", f"main:{CODE}")
    return text != WORKS


@pytest.mark.parametrize("trick", TRICKS)
def test_broken_work_is_not_merged(project: Project, trick: str) -> None:
    """The check of the claim runs in a fresh copy, with an environment that the agent has never seen."""
    made = checkout(project, PIP)
    ended = made.work(f"exec 2>&1; set -x\n{TRICKS[trick]}", f"{PIP.check} tests/test_demo.py")
    assert ended.code == 1, ended.err
    assert not is_broken(made)
    assert "coder: external failed" in ended.err or "Protected files were changed" in ended.err
    assert made.is_untouched()


def test_a_tracked_file_with_variables(project: Project) -> None:
    """A check that reads `.env` is not led to other code by an agent that changes it: the file is protected."""
    made = checkout(project, Package({**PIP.files, ".env": "X=1\n"}, PIP.install, PIP.tools, PIP.check))
    check = f"set -a; . ./.env; {PIP.check} tests/test_demo.py"
    ended = made.work(f"{STASH}\necho PYTHONPATH=$outer/stash > .env", check)
    assert ended.code == 1, ended.err
    assert "Protected files were changed" in ended.err
    assert not is_broken(made)


def test_honest_work_after_a_trick(project: Project) -> None:
    """What an agent has done to its worktree's environment does not turn honest work red."""
    made = checkout(project, PIP, BROKEN)
    trick = TRICKS["a program in the worktree's environment"].replace("exit 0", "exit 1")
    ended = made.work(f"{trick}\n{writes(CODE, WORKS)}", PIP.check)
    assert ended.code == 0, ended.err
    assert made.is_merged(WORKS)
    assert made.is_untouched()


def test_a_package_that_the_agent_removes(project: Project) -> None:
    """Without the package, tests fail, although the user's checkout still has it."""
    made = checkout(project, PACKAGES["flit"])
    ended = made.work("git rm -rqf src; echo x > new", f"{PIP.check} tests/test_demo.py")
    assert (ended.code, "No module named 'demo'" in ended.err) == (1, True), ended.err
    assert not is_broken(made)


def test_a_package_that_is_not_installed_editably(project: Project) -> None:
    """A project that is built into the environment is not seen by any check until the check installs it."""
    package = Package(PIP.files, PIP.install.replace(" -e ", " "), PIP.tools, PIP.check)
    made = checkout(project, package)
    install = "python -m pip --python .venv/bin/python install -q . && .venv/bin/pytest -q tests/test_demo.py"
    ended = made.work(writes(CODE, BROKEN), f"PATH={PYTHON.parent}:$PATH; {install}")
    assert (ended.code, "RuntimeError: broken" in ended.err) == (1, True), ended.err
    assert made.is_untouched()
