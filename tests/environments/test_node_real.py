"""Copies of a workspace run their own code with npm, pnpm, Yarn and Bun, and share no file with the user's checkout."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from environments.environment_support import REGISTRY, Checkout, Subprocesses, from_npm, write
from ralph.environments import node
from ralph.environments.base import Copy, NotPrepared

pytestmark = REGISTRY


@dataclass(frozen=True)
class Manager:
    """A package manager at a pinned version, and how a project is set up for it."""

    name: str
    package: str = ""
    version: str = ""
    workspace: str = "workspace:*"
    configuration: str = ""

    @property
    def command(self) -> str:
        return self.name.split("-")[0]

    @property
    def is_plug_and_play(self) -> bool:
        return self.name.startswith("yarn-pnp")


BERRY = ("@yarnpkg/cli-dist", "4.18.1")
MANAGERS = [
    Manager("npm", workspace="*"),
    Manager("pnpm-9", "pnpm", "9.15.9"),
    Manager("pnpm-12", "pnpm", "12.21.0"),
    Manager("pnpm-hoisted", "pnpm", "10.33.0", configuration="nodeLinker: hoisted\n"),
    Manager("yarn-classic", "yarn", "1.22.22", workspace="*"),
    Manager("yarn-berry", *BERRY, configuration="nodeLinker: node-modules\n"),
    Manager("yarn-berry-pnpm", *BERRY, configuration="nodeLinker: pnpm\n"),
    Manager("yarn-pnp", *BERRY),
    Manager("yarn-pnp-local", *BERRY, configuration="enableGlobalCache: false\n"),
    Manager("bun", "bun", "1.4.4"),
    Manager("bun-hoisted", "bun", "1.4.4", configuration='[install]\nlinker = "hoisted"\n'),
]

IGNORED = "node_modules\n.pnp.*\n.yarn/cache\n.yarn/unplugged\n.yarn/install-state.gz\n"
RIGHT = "module.exports = () => require('is-number')(42) ? 42 : 0\n"
WRONG = "module.exports = () => 0\n"
CHECK = "process.exit(require('@x/a')() === 42 && require('is-odd')(3) ? 0 : 1)\n"


def project(manager: Manager) -> dict[str, str]:
    """The files of a workspace: `b` tests `a`."""
    top = {
        "name": "top",
        "private": True,
        "workspaces": ["packages/*"],
        "scripts": {"test": "node packages/b/check.js"},
        "dependencies": {"semver": "7.6.0"},
    }
    a = {"name": "@x/a", "version": "1.0.0", "dependencies": {"is-number": "7.0.0"}}
    b = {
        "name": "@x/b",
        "version": "1.0.0",
        "dependencies": {"@x/a": manager.workspace, "is-odd": "3.0.1"},
    }
    files = {
        "package.json": json.dumps(top),
        "packages/a/package.json": json.dumps(a),
        "packages/a/index.js": RIGHT,
        "packages/b/package.json": json.dumps(b),
        "packages/b/check.js": CHECK,
        ".gitignore": IGNORED,
    }
    if manager.command == "pnpm":
        files["pnpm-workspace.yaml"] = f"packages:\n  - 'packages/*'\n{manager.configuration}"
    elif manager.command == "bun":
        files["bunfig.toml"] = manager.configuration
    elif manager.package == BERRY[0]:
        files |= {".yarnrc.yml": f"enableTelemetry: false\n{manager.configuration}", "yarn.lock": ""}
    return files


@pytest.fixture(params=MANAGERS, ids=lambda manager: manager.name)
def manager(request: pytest.FixtureRequest) -> Manager:
    found = request.param
    assert isinstance(found, Manager)
    return found


@pytest.fixture
def checkout(tmp_path: Path, manager: Manager) -> Checkout:
    """The user's checkout with everything installed."""
    tools = [from_npm(manager.package, manager.version)] if manager.package else []
    made = Checkout(tmp_path, project(manager), *tools)
    made.must(manager.command, "install")
    made.commit(made.origin)
    assert made.run(manager.command, "run", "test").code == 0
    return made


def prepared(checkout: Checkout, name: str, start: str = "HEAD") -> tuple[Copy, Subprocesses]:
    copy, tools = checkout.copy(name, start=start)
    assert node.detect(copy, checkout.environment)
    node.prepare(copy, tools)
    return copy, tools


def is_green(checkout: Checkout, copy: Copy, manager: Manager) -> bool:
    done = checkout.check(copy, node, manager.command, "run", "test")
    print(done.output)
    return done.code == 0


def installed_files(top: Path) -> Iterator[Path]:
    """The regular files that a package manager has made in a checkout."""
    for directory, _, names in os.walk(top):
        if {"node_modules", ".yarn"} & set(Path(directory).relative_to(top).parts):
            yield from (path for name in names if not (path := Path(directory, name)).is_symlink())


def test_a_copy_runs_its_own_code(checkout: Checkout, manager: Manager) -> None:
    """A check is red if the copy is broken, and green if it is fixed, whatever the user's checkout has."""
    copy, tools = prepared(checkout, "one")
    assert tools.installs() == []
    assert is_green(checkout, copy, manager)
    write(copy.top, {"packages/a/index.js": WRONG})
    assert not is_green(checkout, copy, manager)
    assert checkout.run(manager.command, "run", "test").code == 0
    write(copy.top, {"packages/a/index.js": RIGHT})
    write(checkout.origin, {"packages/a/index.js": WRONG})
    assert is_green(checkout, copy, manager)
    assert checkout.run(manager.command, "run", "test").code != 0
    assert node.leads_out(copy, checkout.environment) == []


def test_a_copy_works_without_the_user_checkout(checkout: Checkout, manager: Manager) -> None:
    """Nothing in a copy needs the user's checkout."""
    copy, _ = prepared(checkout, "one")
    shutil.rmtree(checkout.origin / "packages")
    shutil.rmtree(checkout.origin / "node_modules", ignore_errors=True)
    for path in checkout.origin.glob(".pnp*"):
        path.unlink()
    assert is_green(checkout, copy, manager)


def test_an_edit_of_an_installed_package_stays_in_the_copy(checkout: Checkout, manager: Manager) -> None:
    """No file in a copy is the same file as one of the user or of a global store."""
    copy, _ = prepared(checkout, "one")
    users = {(s.st_dev, s.st_ino) for s in (path.stat() for path in installed_files(checkout.origin))}
    copied = list(installed_files(copy.top))
    assert copied
    within = {(s.st_dev, s.st_ino) for s in (path.stat() for path in copied)}
    assert not users & within
    names = [path for path in copied if path.name == "index.js" and "is-odd" in str(path)]
    assert len(names) >= (0 if manager.is_plug_and_play else 1)
    for path in names:
        before = (checkout.origin / path.relative_to(copy.top)).read_bytes()
        path.chmod(0o644)
        path.write_text("throw new Error('edited')")
        assert (checkout.origin / path.relative_to(copy.top)).read_bytes() == before
    assert checkout.run(manager.command, "run", "test").code == 0


def changed_dependencies(checkout: Checkout, manager: Manager) -> None:
    """Commit on a branch that `b` needs one more package, with the lock file for it."""
    other = checkout.scratch / "other"
    checkout.git("worktree", "add", "-q", "-b", "more", str(other))
    package = json.loads((other / "packages/b/package.json").read_text())
    package["dependencies"]["is-even"] = "1.0.0"
    check = "process.exit(require('@x/a')() === 42 && require('is-even')(2) ? 0 : 1)\n"
    write(other, {"packages/b/package.json": json.dumps(package), "packages/b/check.js": check})
    checkout.must(manager.command, "install", directory=other)
    checkout.commit(other)
    checkout.git("worktree", "remove", "--force", str(other))


def test_changed_dependencies_are_installed_once(checkout: Checkout, manager: Manager) -> None:
    """A copy with another lock file gets what it says; the next one shares it, without a common file."""
    changed_dependencies(checkout, manager)
    first, tools = prepared(checkout, "one", "more")
    assert len(tools.installs()) == 1
    assert "differ from those in your checkout" in tools.told[0]
    assert is_green(checkout, first, manager)
    shutil.rmtree(first.own)
    second, again = prepared(checkout, "two", "more")
    assert len(again.installs()) == (1 if manager.is_plug_and_play else 0)
    checkout.git("worktree", "remove", "--force", str(first.top))
    assert is_green(checkout, second, manager)
    write(second.top, {"packages/a/index.js": WRONG})
    assert not is_green(checkout, second, manager)
    own = {(s.st_dev, s.st_ino) for s in (path.stat() for path in installed_files(second.top))}
    for path in installed_files(second.top):
        assert path.stat().st_nlink == 1 or path.stat().st_nlink <= len(own)
    assert node.leads_out(second, checkout.environment) == []
    assert (
        checkout.run("git", "status", "--porcelain", directory=second.top).output
        == " M packages/a/index.js\n"
    )


def test_an_install_that_fails_is_one_sentence(checkout: Checkout, manager: Manager) -> None:
    """A package.json that does not fit its lock file: the command, why it failed, and what to do."""
    other = json.loads((checkout.origin / "packages/b/package.json").read_text())
    other["dependencies"]["is-even"] = "1.0.0"
    copy, tools = checkout.copy("one")
    write(copy.top, {"packages/b/package.json": json.dumps(other)})
    if manager.name == "yarn-classic":  # it does not look at the lock file of workspaces
        node.prepare(copy, tools)
        return
    with pytest.raises(NotPrepared) as raised:
        node.prepare(copy, tools)
    assert str(raised.value).startswith(f"`{manager.command} ")
    assert str(raised.value).endswith("; set ralph.setup")
    assert not (copy.top / "node_modules").exists()


def test_changed_dependencies_without_a_lock_file(checkout: Checkout, manager: Manager) -> None:
    """They are installed without writing a lock file, and not shared."""
    if manager.is_plug_and_play:
        pytest.skip("Plug'n'Play without a lock file is not a project that Yarn can install")
    for name in ("package-lock.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock"):
        (checkout.origin / name).unlink(missing_ok=True)
    top = json.loads((checkout.origin / "package.json").read_text())
    top["packageManager"] = f"{manager.command}@{manager.version or '11.0.0'}"
    write(checkout.origin, {"package.json": json.dumps(top)})
    checkout.commit(checkout.origin)
    copy, tools = checkout.copy("one")
    package = json.loads((copy.top / "packages/b/package.json").read_text())
    package["dependencies"]["is-even"] = "1.0.0"
    check = "process.exit(require('is-even')(2) && require('@x/a')() === 42 ? 0 : 1)\n"
    write(copy.top, {"packages/b/package.json": json.dumps(package), "packages/b/check.js": check})
    checkout.commit(copy.top)
    node.prepare(copy, tools)
    assert len(tools.installs()) == 1
    assert not tools.cache.exists()
    assert checkout.run("git", "status", "--porcelain", directory=copy.top).output == ""
    assert checkout.run("node", "packages/b/check.js", directory=copy.top).code == 0
    copied = [path for path in copy.top.rglob("node_modules/is-even/*") if path.is_file()]
    assert copied
    assert {path.stat().st_nlink for path in copied} == {1}


def test_an_installation_that_runs_scripts_of_the_project_is_not_shared(tmp_path: Path) -> None:
    """What an agent lets an installation do to node_modules is in its own copy alone; git hooks are not installed."""
    package = {
        "name": "top",
        "dependencies": {"is-number": "7.0.0"},
        "scripts": {"postinstall": "echo $HUSKY > node_modules/is-number/husky"},
    }
    made = Checkout(tmp_path, {"package.json": json.dumps(package), ".gitignore": IGNORED})
    made.must("npm", "install")
    made.commit(made.origin)
    package["dependencies"] = {"is-number": "6.0.0"}
    write(made.origin, {"package.json": json.dumps(package)})
    made.must("npm", "install", "--package-lock-only")
    made.git("commit", "-qam", "x")
    made.git("stash")
    copy, tools = made.copy("one")
    write(made.origin, {"package.json": "{}"})
    node.prepare(copy, tools)
    assert tools.installs() == ["npm ci --prefer-offline --no-audit --no-fund"]
    assert not tools.cache.exists()
    assert (copy.top / "node_modules/is-number/husky").read_text() == "0\n"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """In a sandbox that keeps the home directory read-only, packages go through a cache next to the copy."""
    package = {"name": "top", "dependencies": {"is-number": "7.0.0"}}
    made = Checkout(tmp_path, {"package.json": json.dumps(package), ".gitignore": IGNORED})
    made.must("npm", "install")
    made.commit(made.origin)
    write(tmp_path, {"home": "not a directory"})
    copy, tools = made.copy("one")
    tools.environment = {
        **tools.environment,
        "HOME": str(tmp_path / "home"),
        "npm_config_userconfig": os.devnull,
    }
    write(made.origin, {"package.json": "{}"})
    node.prepare(copy, tools)
    assert (copy.top / "node_modules/is-number/index.js").exists()
    assert (copy.own / "packages").is_dir()
