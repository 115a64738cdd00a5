"""What a copy of a Node project gets, without a package manager."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from environments.environment_support import Checkout, write
from ralph.environments import node
from ralph.environments.node_links import locations, repoint_plug_and_play
from ralph.environments.node_packages import is_changed, manager_of, roots

TOP = {"name": "top", "workspaces": ["packages/*"]}
FILES = {
    "package.json": json.dumps(TOP),
    "package-lock.json": "{}",
    "packages/a/package.json": '{"name": "a"}',
    "packages/a/index.js": "",
    "tools/package.json": '{"name": "tools"}',
    ".gitignore": "node_modules\n.pnp.cjs\n.yarn\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A workspace with installed packages, as npm and pnpm leave them."""
    made = Checkout(tmp_path, FILES)
    modules = made.origin / "node_modules"
    write(modules, {"x/index.js": "x", ".bin/shim": f"exec {modules}/x/cli\n", ".cache/big": "cache"})
    write(
        modules,
        {".state.json": f'{{"{made.origin}/packages/a": 1}}', ".pnpm/x@1/node_modules/x/index.js": "x"},
    )
    write(modules, {".pnpm/x@1/node_modules/x/node_modules/.bin/y": f"NODE_PATH={modules}"})
    (modules / "a").symlink_to("../packages/a")
    (modules / "absolute").symlink_to(made.origin / "packages" / "a")
    (modules / "@scope").mkdir()
    (modules / "@scope" / "absolute").symlink_to(made.origin / "packages" / "a")
    write(tmp_path, {"elsewhere/index.js": ""})
    (modules / "elsewhere").symlink_to("../../elsewhere")
    (modules / "x" / "index.js").chmod(0o444)
    return made


def test_links_lead_to_the_copy(checkout: Checkout) -> None:
    """Links into the checkout lead to the copy, relative or not; a relative link out of it stays what it was."""
    copy, tools = checkout.copy("one")
    assert node.detect(copy, checkout.environment)
    node.prepare(copy, tools)
    modules = copy.top / "node_modules"
    for name in ("a", "absolute", "@scope/absolute"):
        assert (modules / name).resolve() == (copy.top / "packages" / "a").resolve()
    assert os.readlink(modules / "a") == "../packages/a"
    assert (modules / "elsewhere").resolve() == (checkout.scratch / "elsewhere").resolve()
    assert node.leads_out(copy, checkout.environment) == []


def test_texts_lead_to_the_copy(checkout: Checkout) -> None:
    """Commands and state files name the copy; caches of tools are not copied."""
    copy, tools = checkout.copy("one")
    node.prepare(copy, tools)
    modules = copy.top / "node_modules"
    assert (modules / ".bin" / "shim").read_text() == f"exec {modules}/x/cli\n"
    assert json.loads((modules / ".state.json").read_text()) == {f"{copy.top}/packages/a": 1}
    nested = modules / ".pnpm" / "x@1" / "node_modules" / "x" / "node_modules" / ".bin" / "y"
    assert nested.read_text() == f"NODE_PATH={modules}"
    assert not (modules / ".cache").exists()


def test_no_file_is_shared(checkout: Checkout) -> None:
    """A copied file is a new file, also if it is a hard link to a store in the user's checkout."""
    os.link(checkout.origin / "node_modules" / "x" / "index.js", checkout.scratch / "store")
    copy, tools = checkout.copy("one")
    node.prepare(copy, tools)
    copied = copy.top / "node_modules" / "x" / "index.js"
    copied.chmod(0o644)
    copied.write_text("edited")
    assert (checkout.scratch / "store").read_text() == "x"


def test_a_linked_node_modules_is_copied_as_files(checkout: Checkout) -> None:
    """A node_modules that is a link to another directory becomes a directory."""
    moved = checkout.scratch / "moved"
    (checkout.origin / "node_modules").rename(moved)
    (checkout.origin / "node_modules").symlink_to(moved)
    copy, tools = checkout.copy("one")
    node.prepare(copy, tools)
    assert not (copy.top / "node_modules").is_symlink()
    assert (copy.top / "node_modules" / "x" / "index.js").read_text() == "x"


def test_without_cp_the_result_is_the_same(checkout: Checkout) -> None:
    """Where commands cannot read the user's checkout, as in a container, Ralph copies by itself."""
    copy, tools = checkout.copy("one")
    tools.environment = {"PATH": "/nowhere"}
    node.prepare(copy, tools)
    assert (copy.top / "node_modules" / "absolute").resolve() == (copy.top / "packages" / "a").resolve()
    assert not (copy.top / "node_modules" / ".cache").exists()


def test_what_is_there_stays(checkout: Checkout) -> None:
    """A node_modules that `ralph.setup` has made is neither replaced nor installed again."""
    copy, tools = checkout.copy("one")
    write(copy.top, {"node_modules/mine": "", "package-lock.json": "{ }"})
    node.prepare(copy, tools)
    assert os.listdir(copy.top / "node_modules") == ["mine"]
    assert tools.installs() == []


def test_nothing_is_installed_that_the_user_has_not_installed(tmp_path: Path) -> None:
    """A lock file without node_modules in the user's checkout installs nothing."""
    made = Checkout(tmp_path, FILES)
    copy, tools = made.copy("one")
    assert node.detect(copy, made.environment)
    node.prepare(copy, tools)
    assert not (copy.top / "node_modules").exists()
    assert tools.installs() == []


def test_a_link_of_an_agent_is_not_followed(checkout: Checkout) -> None:
    """A committed link in place of a package directory is not written through."""
    write(checkout.origin, {"packages/a/node_modules/z/index.js": ""})
    copy, tools = checkout.copy("one")
    write(copy.top, {"node_modules/mine": ""})
    (copy.top / "packages" / "a").rename(copy.top / "packages" / "b")
    (copy.top / "packages" / "a").symlink_to(checkout.scratch / "elsewhere")
    node.prepare(copy, tools)
    assert os.listdir(checkout.scratch / "elsewhere") == ["index.js"]


def test_detect(tmp_path: Path) -> None:
    """Nothing is detected without packages, or with packages that have neither a lock file nor node_modules."""
    made = Checkout(tmp_path, {"tools/package.json": "{}", ".gitignore": "node_modules\n"})
    assert not node.detect(made.copy("one")[0], {})
    write(made.origin, {"tools/node_modules/x/index.js": ""})
    assert node.detect(made.copy("two")[0], {})


def test_roots(checkout: Checkout) -> None:
    """Workspaces belong to the package that names them; another lock file starts a separate installation."""
    write(
        checkout.origin,
        {"site/package.json": "{}", "site/yarn.lock": "__metadata", "site/deep/package.json": "{}"},
    )
    checkout.commit(checkout.origin)
    copy, _ = checkout.copy("one")
    assert [(str(root.directory), [str(each) for each in root.packages]) for root in roots(copy)] == [
        (".", [".", "tools", "packages/a"]),
        ("site", ["site"]),
        ("site/deep", ["site/deep"]),
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"package-lock.json": "{}"}, "npm"),
        ({"pnpm-lock.yaml": ""}, "pnpm"),
        ({"yarn.lock": "# yarn lockfile v1\n"}, "yarn"),
        ({"yarn.lock": "# x\n\n__metadata:\n  version: 8\n"}, "berry"),
        ({"bun.lock": ""}, "bun"),
        ({"package.json": '{"packageManager": "pnpm@9.0.0"}'}, "pnpm"),
        ({"package.json": '{"packageManager": "yarn@1.22.22"}'}, "yarn"),
        ({"package.json": '{"packageManager": "yarn@4.1.0"}'}, "berry"),
        ({"node_modules/.modules.yaml": ""}, "pnpm"),
        ({"node_modules/x": ""}, "npm"),
    ],
)
def test_the_package_manager(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    """The lock file decides, then package.json, then what is in node_modules."""
    made = Checkout(tmp_path, {"package.json": "{}", ".gitignore": "node_modules\n", **files})
    write(made.origin, files)
    copy, _ = made.copy("one")
    assert manager_of(copy, roots(copy)[0]) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"packages/a/package.json": '{"name": "a", "scripts": {"test": "x"}, "version": "2"}'}, False),
        ({"packages/a/package.json": '{"name": "a", "devDependencies": {"x": "1"}}'}, True),
        ({"package-lock.json": "{ }"}, True),
        ({"package.json": json.dumps({**TOP, "overrides": {"x": "2"}})}, True),
        ({"packages/new/package.json": '{"name": "new"}'}, True),
        ({"patches/x.patch": "+"}, True),
    ],
)
def test_changed_dependencies(checkout: Checkout, files: dict[str, str], expected: bool) -> None:
    """Only what decides about installed packages counts as a change."""
    copy, _ = checkout.copy("one")
    write(copy.top, files)
    assert is_changed(copy, roots(copy)[0]) is expected


def test_variables(checkout: Checkout) -> None:
    """Search paths, commands of packages and options lead to the copy; other directories in PATH stay."""
    copy, _ = checkout.copy("one")
    top = checkout.origin
    environment = {
        "NODE_PATH": f"{top}/lib:/usr/lib/node",
        "NODE_OPTIONS": f"--require {top}/.pnp.cjs",
        "PATH": f"{top}/node_modules/.bin:{top}/bin:/usr/bin",
        "INIT_CWD": f"{top}/packages/a",
        "npm_config_prefix": "/usr",
    }
    assert node.variables(copy, environment) == {
        "NODE_PATH": f"{copy.top}/lib:/usr/lib/node",
        "NODE_OPTIONS": f"--require {copy.top}/.pnp.cjs",
        "PATH": f"{copy.top}/node_modules/.bin:{top}/bin:/usr/bin",
        "INIT_CWD": f"{copy.top}/packages/a",
    }


def test_what_leads_out(checkout: Checkout) -> None:
    """Links, dependencies and configuration that lead to the user's checkout are listed."""
    copy, tools = checkout.copy("one")
    node.prepare(copy, tools)
    top = checkout.origin
    (copy.top / "node_modules" / "out").symlink_to(top / "packages" / "a")
    write(copy.top, {"packages/a/package.json": json.dumps({"dependencies": {"b": f"file:{top}/tools"}})})
    write(copy.top, {".npmrc": f"prefix={top}/x\n"})
    assert node.leads_out(copy, {}) == [
        f"node_modules/out leads to {os.path.realpath(top)}/packages/a",
        f"packages/a/package.json has b from {top}/tools",
        f".npmrc names {top}",
    ]


def test_plug_and_play_locations(checkout: Checkout) -> None:
    """Archives outside the checkout are found again from a copy at another depth, virtual packages too."""
    copy, _ = checkout.copy("one")
    archive = os.path.relpath("/cache/x.zip/node_modules/x", checkout.origin)
    steps = len((checkout.origin / ".yarn").parts) - 1
    virtual = f"./.yarn/__virtual__/x-virtual-1/{steps}/cache/x.zip/node_modules/x/"
    listed = [f"{archive}/", "./packages/a/", virtual, "./.yarn/__virtual__/a-virtual-2/1/packages/a/"]
    file = copy.top / ".pnp.cjs"
    file.write_text("".join(f'"packageLocation": "{location}",\\\n' for location in listed))
    repoint_plug_and_play(copy, file, checkout.origin, copy.top)
    inside = f"{copy.top}/packages/a"
    assert locations(file) == ["/cache/x.zip/node_modules/x", inside, "/cache/x.zip/node_modules/x", inside]
    assert node.reads(copy, {}) == ["/cache"]


def test_reads_a_virtual_store(checkout: Checkout) -> None:
    """A pnpm store that links of the copy lead to is read."""
    write(checkout.origin / "node_modules", {".modules.yaml": '{"virtualStoreDir": "/store/links"}'})
    copy, tools = checkout.copy("one")
    assert node.reads(copy, {}) == []
    node.prepare(copy, tools)
    assert node.reads(copy, {}) == ["/store/links"]
