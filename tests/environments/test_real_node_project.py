"""A published Node project with its own tests and dependencies, worked on by an agent that breaks it and one that does not."""

from __future__ import annotations

import tarfile

from conftest import Project
from environments.environment_support import REGISTRY, installed_here, published
from environments.package_support import Checkout, Package, hashes
from work_support import Site

pytestmark = REGISTRY

INSTALL = "npm install --no-audit --no-fund --prefer-offline"
QUOTES_EMPTY = """test "$(node -p "require('./').quote(['', 'a'])")" = "'' a\""""
BREAKS = "sed -i 's/map(xs, function/filter(xs, function/' index.js"
FIXES = """sed -i "s/xs, function (s) {/&\\n        if (s === '') return \\"''\\";/" index.js"""


def test_shell_quote(project: Project) -> None:
    """Work that breaks its tests is not merged, a fix is; the user's node_modules stays as it is."""
    installed_here("npm")
    with tarfile.open(published("shell-quote", "1.6.1")) as archive:
        archive.extractall(project.path, filter="data")
    top = Project(project.path / "package", project.home, project.extra_env)
    (top.path / ".gitignore").write_text("node_modules\n.ralph/\n")
    made = Checkout(Site(top), Package({}, INSTALL, check="npm test", code="index.js"))
    top.git("init", "-q", "-b", "main")
    top.git("config", "user.name", "Ada")
    top.git("config", "user.email", "ada@localhost")
    made.shell(INSTALL)
    made.commit({}, "As published")
    before, code = hashes(top.path / "node_modules"), top.git("show", "main:index.js")
    assert len(before) > 100

    broken = made.work(BREAKS)
    assert broken.code == 1, broken.err
    assert "not ok" in broken.out + broken.err
    assert top.git("show", "main:index.js") == code

    fixed = made.work(FIXES, f"{QUOTES_EMPTY} && npm test")
    assert "→ done ===" in fixed.err
    assert "if (s === '') return" in top.git("show", "main:index.js")
    assert hashes(top.path / "node_modules") == before
