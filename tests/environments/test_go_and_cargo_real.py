"""Copies of projects of Go and Cargo build and test their own code."""

from __future__ import annotations

import os
from pathlib import Path

from environments.environment_support import REGISTRY, Checkout, go_tools, installed_here, write
from ralph.environments import cargo, go
from ralph.environments.base import Ecosystem

pytestmark = REGISTRY

GO_RIGHT = "package library\n\nfunc Answer() int { return 42 }\n"
GO_WRONG = "package library\n\nfunc Answer() int { return 0 }\n"
GO_TEST = """package app

import (
\t"testing"

\t"localhost/library"
)

func TestAnswer(t *testing.T) {
\tif library.Answer() != 42 {
\t\tt.Fatal("wrong")
\t}
}
"""
GO = {
    "library/go.mod": "module localhost/library\n\ngo 1.20\n",
    "library/library.go": GO_RIGHT,
    "app/go.mod": "module localhost/app\n\ngo 1.20\n\nrequire localhost/library v0.0.0\n",
    "app/app_test.go": GO_TEST,
    ".gitignore": "go.work\n",
}
WORKSPACE = "go 1.20\n\nuse (\n\t{top}library\n\t{top}app\n)\n"


def colours(checkout: Checkout, ecosystem: Ecosystem, file: str, right: str, wrong: str, *argv: str) -> None:
    """A check is red if the copy is broken, and green if it is fixed, whatever the user's checkout has."""
    assert checkout.run(*argv, directory=checkout.origin / project(ecosystem)).code == 0
    copy, tools = checkout.copy("one", project=project(ecosystem))
    assert ecosystem.detect(copy, checkout.environment)
    ecosystem.prepare(copy, tools)
    done = checkout.check(copy, ecosystem, *argv)
    assert done.code == 0, done.output
    write(copy.top, {file: wrong})
    assert checkout.check(copy, ecosystem, *argv).code != 0
    assert checkout.run(*argv, directory=checkout.origin / project(ecosystem)).code == 0
    write(copy.top, {file: right})
    write(checkout.origin, {file: wrong})
    assert checkout.check(copy, ecosystem, *argv).code == 0
    assert checkout.run(*argv, directory=checkout.origin / project(ecosystem)).code != 0
    assert ecosystem.leads_out(copy, checkout.environment) == []


def project(ecosystem: Ecosystem) -> str:
    return "app" if ecosystem.name == "Go" else "."


def go_checkout(scratch: Path, files: dict[str, str], **variables: str) -> Checkout:
    offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOENV": "off"}
    return Checkout(scratch, files, go_tools(), variables=offline | variables)


def test_go_with_an_ignored_workspace(tmp_path: Path) -> None:
    """A go.work that git ignores is copied, and its modules are those of the copy."""
    made = go_checkout(tmp_path, GO, GOFLAGS="")
    write(made.origin, {"go.work": WORKSPACE.format(top="./")})
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_a_workspace_of_absolute_paths(tmp_path: Path) -> None:
    """The absolute paths of a go.work lead to the copy."""
    made = go_checkout(tmp_path, GO, GOFLAGS="")
    write(made.origin, {"go.work": WORKSPACE.format(top=f"{made.origin}/")})
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_a_workspace_above_the_checkout(tmp_path: Path) -> None:
    """A go.work above the checkout is used with the modules of the copy, and those next to the checkout."""
    made = go_checkout(tmp_path, GO, GOFLAGS="")
    write(tmp_path, {"other/go.mod": "module localhost/other\n\ngo 1.20\n"})
    write(tmp_path, {"go.work": WORKSPACE.format(top="./user/").replace(")", "\t./other\n)")})
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_a_chosen_workspace(tmp_path: Path) -> None:
    """GOWORK that names a file in the user's checkout leads to the copy."""
    files = GO | {"all.work": WORKSPACE.format(top="./")}
    made = go_checkout(tmp_path, files, GOFLAGS="", GOWORK=str(tmp_path / "user" / "all.work"))
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_a_replaced_module(tmp_path: Path) -> None:
    """A relative `replace` leads to the module of the copy; GOBIN in the checkout to the copy."""
    files = GO | {"app/go.mod": f"{GO['app/go.mod']}\nreplace localhost/library => ../library\n"}
    made = go_checkout(tmp_path, files, GOBIN=str(tmp_path / "user" / "bin"))
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_a_file_of_modules_elsewhere(tmp_path: Path) -> None:
    """A -modfile and an -overlay in GOFLAGS lead to the copy."""
    other = f"{GO['app/go.mod']}\nreplace localhost/library => ../library\n"
    files = GO | {"app/other.mod": other, "app/other.sum": "", "app/overlay.json": "{}"}
    flags = f"-mod=mod -modfile={tmp_path}/user/app/other.mod -overlay={tmp_path}/user/app/overlay.json"
    made = go_checkout(tmp_path, files, GOFLAGS=flags)
    colours(made, go, "library/library.go", GO_RIGHT, GO_WRONG, "go", "test", "./...")


def test_go_with_vendored_modules_that_git_ignores(tmp_path: Path) -> None:
    """A vendor directory that git ignores is copied, as files."""
    files = GO | {"app/go.mod": f"{GO['app/go.mod']}\nreplace localhost/library => ../library\n"}
    files[".gitignore"] = "vendor\n"
    made = go_checkout(tmp_path, files, GOFLAGS="-mod=vendor")
    made.must("go", "mod", "vendor", directory=made.origin / "app")
    vendored = "app/vendor/localhost/library/library.go"
    colours(made, go, vendored, GO_RIGHT, GO_WRONG, "go", "test", "./...")


CARGO_RIGHT = "pub fn answer() -> u32 { 42 }\n"
CARGO_WRONG = "pub fn answer() -> u32 { 0 }\n"
CARGO = {
    "Cargo.toml": '[workspace]\nmembers = ["library", "app"]\nresolver = "2"\n',
    "library/Cargo.toml": '[package]\nname = "library"\nversion = "0.1.0"\nedition = "2021"\n',
    "library/src/lib.rs": CARGO_RIGHT,
    "app/Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
    '[dependencies]\nlibrary = { path = "../library" }\n',
    "app/src/lib.rs": "#[test]\nfn right() { assert_eq!(library::answer(), 42); }\n",
    ".gitignore": "target\n.cargo\nCargo.lock\n",
}
TEST = ("cargo", "test", "-q", "--offline", "--lib")


def cargo_checkout(scratch: Path, **variables: str) -> Checkout:
    return Checkout(scratch, CARGO, installed_here("cargo"), variables=variables)


def test_cargo(tmp_path: Path) -> None:
    """Without settings, build output is in the copy."""
    made = cargo_checkout(tmp_path)
    colours(made, cargo, "library/src/lib.rs", CARGO_RIGHT, CARGO_WRONG, *TEST)


def test_cargo_with_one_target_directory_for_all(tmp_path: Path) -> None:
    """An absolute CARGO_TARGET_DIR becomes one for each copy: no artefact of the user's checkout is taken."""
    made = cargo_checkout(tmp_path, CARGO_TARGET_DIR=str(tmp_path / "target"))
    colours(made, cargo, "library/src/lib.rs", CARGO_RIGHT, CARGO_WRONG, *TEST)
    assert (tmp_path / "copies" / "one" / "own" / "cargo-target-dir").is_dir()


def test_cargo_with_a_configuration_that_git_ignores(tmp_path: Path) -> None:
    """An ignored .cargo/config.toml is copied, and its paths lead to the copy or away from the user's output."""
    made = cargo_checkout(tmp_path)
    configuration = f"[build]\ntarget-dir = '{tmp_path}/target'\nrustflags = ['-L', '{made.origin}/native']\n"
    write(made.origin, {".cargo/config.toml": configuration})
    colours(made, cargo, "library/src/lib.rs", CARGO_RIGHT, CARGO_WRONG, *TEST)
    copied = (tmp_path / "copies" / "one" / "tree" / ".cargo" / "config.toml").read_text()
    assert os.fspath(made.origin) not in copied
    assert (tmp_path / "copies" / "one" / "own" / "cargo-target-dir").is_dir()
