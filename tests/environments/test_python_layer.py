"""A layer: what it imports, what it runs, and what it leaves alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.package_support import hashes
from environments.python_support import (
    ENTRIES,
    VERSION,
    Place,
    dist_info,
    finder,
    installed,
    link,
    output,
    path_line,
    place,
    program,
    site_of,
    strict,
)
from ralph.environments import python
from ralph.environments.base import Copy
from ralph.environments.python_installed import RECORD, leading_to
from ralph.environments.python_layer import is_untouched, make_layer

Lead = Callable[[Path, Path], None]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_copy_imports_its_package(tmp_path: Path, entry: Lead) -> None:
    """Whatever an installer has written: the copy imports its files, the user its own, and nothing leads back."""
    made = place(tmp_path)
    entry(made.site, made.source)
    before = hashes(made.venv)
    made.prepare()
    assert made.where() == "copy"
    assert made.where(made.venv / "bin" / "python") == "checkout"
    assert not python.leads_out(made.copy, made.environment())
    assert hashes(made.venv) == before


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_removed_package_is_not_imported_from_the_checkout(tmp_path: Path, entry: Lead) -> None:
    """Without the package in the copy, its import fails."""
    made = place(tmp_path)
    entry(made.site, made.source)
    shutil.rmtree(made.top / "src" / "demo")
    made.prepare()
    code = "try:\n import demo.x\nexcept ModuleNotFoundError as error:\n print(error.name)"
    assert made.where(code=code) == "demo"


def test_other_packages_are_those_of_the_user(tmp_path: Path) -> None:
    """PythonEnvironment packages, also namespaces and those of other `.pth` files, and their metadata."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    (made.site / "plain.py").write_text("x = 1\n")
    more = made.site / "more"
    more.mkdir()
    (more / "extra.py").write_text("x = 2\n")
    (made.site / "more.pth").write_text("more\n")
    (made.site / "absolute.pth").write_text(f"{more}\n")
    dist_info(made.site, "plain")
    made.prepare()
    code = "import plain, extra, importlib.metadata as m; print(plain.x, extra.x, m.version('plain'))"
    assert made.where(code=code) == "1 2 1.0"
    assert not (site_of(made.layer) / "absolute.pth").exists()


def test_a_link_inside_the_environment_is_not_a_source(tmp_path: Path) -> None:
    """A link between packages of the environment leads nowhere else."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    (made.venv / "share").mkdir()
    (made.venv / "share" / "data.py").write_text("x = 3\n")
    (made.site / "data.py").symlink_to(made.venv / "share" / "data.py")
    made.prepare()
    assert made.where(code="import data; print(data.x)") == "3"


def test_a_layer_over_a_layer(tmp_path: Path) -> None:
    """A worktree is the checkout of another `ralph work`: its copy imports its own files."""
    made = place(tmp_path)
    finder(made.site, made.source)
    (made.site / "plain.py").write_text("x = 1\n")
    program(made.venv, "tool", f"#!{made.venv}/bin/python\nimport demo, plain\nprint(demo.where, plain.x)\n")
    made.prepare()
    second = tmp_path / "second" / "app"
    shutil.copytree(made.top / "src", second / "src")
    (second / "src" / "demo" / "__init__.py").write_text("where = 'second'\n")
    copy = Copy(second, made.top, ".", tmp_path / "own")
    make_layer(copy, installed(made.layer), second / ".venv", made.layer)
    found = output([str(second / ".venv" / "bin" / "tool")], second, made.environment())
    assert found == "second 1"
    assert output([str(made.layer / "bin" / "tool")], made.top, made.environment()) == "copy 1"


def test_a_link_over_a_layer(tmp_path: Path) -> None:
    """The link of `flit install --symlink` is re-pointed in every layer."""
    made = place(tmp_path)
    link(made.site, made.source)
    made.prepare()
    second = tmp_path / "second" / "app"
    shutil.copytree(made.top / "src", second / "src")
    copy = Copy(second, made.top, ".", tmp_path / "own")
    assert [each.name for each in leading_to(copy, installed(made.layer))] == ["demo"]
    make_layer(copy, installed(made.layer), second / ".venv", made.layer)
    assert (site_of(second / ".venv") / "demo").readlink() == second / "src" / "demo"


def test_a_new_module_is_seen_in_strict_mode(tmp_path: Path) -> None:
    """The directory of links is made of links to packages, so that a new file is imported."""
    made = place(tmp_path)
    strict(made.site, made.source)
    (made.top / "src" / "demo" / "new.py").write_text("x = 1\n")
    made.prepare()
    assert made.where(code="import demo.new; print(demo.where, demo.new.x)") == "copy 1"


# ---- names and places ----


@pytest.mark.parametrize("name", ["my app", "it's", 'a"b', "a$b`c", "日本", "a;b", "a&b(c)", "p#q", "100%s"])
@pytest.mark.parametrize("entry", [path_line, finder, link])
def test_any_name_of_a_checkout(tmp_path: Path, name: str, entry: Lead) -> None:
    """Spaces, quotes and other characters in the paths of the checkout and of the copy."""
    made = place(tmp_path, name, f"{name} 2/{name}")
    entry(made.site, made.source)
    made.prepare()
    assert made.where() == "copy"


@pytest.mark.parametrize("entry", [path_line, finder, link, strict])
def test_a_checkout_by_a_link(tmp_path: Path, entry: Lead) -> None:
    """The environment names the checkout by a link to it, or by its real path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "tmp").symlink_to("real")
    for number, (by_origin, by_source) in enumerate([("tmp", "real"), ("real", "tmp")]):
        made = place(tmp_path, f"{by_origin}/{number}", f"copies/{number}")
        entry(made.site, tmp_path / by_source / str(number) / "src")
        made.prepare()
        assert made.where() == "copy"


def test_a_sibling_with_a_longer_name_is_left_alone(tmp_path: Path) -> None:
    """`/p/app-wt` and `/p/app.old` are not in `/p/app`, neither is `/x/p/app`."""
    made = place(tmp_path)
    lines = [
        f"{made.origin}-wt/src",
        f"{made.origin}.old/src",
        f"{tmp_path}/x{made.origin}/src",
        f"{made.origin} 2",
    ]
    for number, line in enumerate(lines):
        Path(line).mkdir(parents=True)
        (made.site / f"{number}.pth").write_text(f"{line}\n")
    assert not python.detect(Copy(made.top, made.origin, ".", made.copy.own), {}) or not leading_to(
        made.copy, made.installed
    )
    made.prepare()
    assert (
        made.where(code="import sys; print([p for p in sys.path if 'app' in p and 'src' in p][0])")
        == lines[0]
    )


def test_a_path_that_ends_like_the_checkout_is_left_alone(tmp_path: Path) -> None:
    """With a checkout at `/app`, `/srv/app` is another directory."""
    copy = Copy(tmp_path / "copy", Path("/app"), ".", tmp_path)
    text = "MAPPING = {'a': '/srv/app/src/a', 'b': '/app/src/b'}"
    assert copy.repointed(text) == f"MAPPING = {{'a': '/srv/app/src/a', 'b': '{tmp_path}/copy/src/b'}}"


def test_a_project_in_a_subdirectory(tmp_path: Path) -> None:
    """The environment of `backend/` in a repository lies at the same place in the copy."""
    made = place(tmp_path, project="backend")
    path_line(made.site, made.source)
    made.prepare()
    assert made.where() == "copy"
    assert made.layer == made.top / "backend" / ".venv"


# ---- files that are damaged ----


def test_damaged_files_are_passed_over(tmp_path: Path) -> None:
    """Binary, empty and dangling `.pth` files, names that are not UTF-8, and files with a NUL."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    (made.site / "binary.pth").write_bytes(b"\xff\xfe\x00binary\x00" + os.urandom(20).replace(b"\n", b""))
    (made.site / "empty.pth").touch()
    (made.site / "gone.pth").symlink_to("nowhere")
    (made.site / "folder.pth").mkdir()
    (made.site / "loop").symlink_to("loop")
    Path(os.fsdecode(os.fsencode(made.site) + b"/na\xefve.py")).write_text("x = 1\n")
    Path(os.fsdecode(os.fsencode(made.site) + b"/na\xefve.pth")).write_bytes(os.fsencode(made.source) + b"\n")
    (made.venv / "bin" / "gone").symlink_to("nowhere")
    made.prepare()
    assert made.where(code="import demo; print(demo.where)") == "copy"


def test_an_environment_without_its_interpreter(tmp_path: Path) -> None:
    """The interpreter was uninstalled: the layer has none either, and preparing it does not fail."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    config = made.venv / "pyvenv.cfg"
    config.write_text("home = /nowhere/bin\nversion = 3.11\n")
    made.prepare()
    assert os.path.lexists(made.layer / "bin" / "python")
    assert not (made.layer / "bin" / "python").exists()


@pytest.mark.parametrize("damage", ["pyvenv.cfg", "bin", "lib"])
def test_half_an_environment(tmp_path: Path, damage: str) -> None:
    """An environment that is being made, or was half removed, is not an error."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    target = made.venv / damage
    target.unlink() if target.is_file() else shutil.rmtree(target)
    made.prepare()
    assert not python.leads_out(made.copy, made.environment())


def test_half_a_layer_is_made_again(tmp_path: Path) -> None:
    """Ralph was killed while it made a layer: the next call makes it complete."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    (made.site / "plain.py").write_text("x = 1\n")
    made.prepare()
    (made.layer / RECORD).write_text("")
    (site_of(made.layer) / "0-ralph-layer.pth").unlink()
    made.prepare()
    assert made.where(code="import demo, plain; print(demo.where, plain.x)") == "copy 1"


# ---- programs ----


def test_scripts_run_with_the_layer(tmp_path: Path) -> None:
    """A console script starts the interpreter of the layer, so that it imports the copy."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    body = "import sys\nimport demo\nprint(demo.where, sys.prefix)\n"
    program(made.venv, "plain", f"#!{made.venv}/bin/python\n{body}")
    program(made.venv, "three", f"#!{made.venv}/bin/python3\n{body}")
    program(made.venv, "exact", f"#!{made.venv}/bin/python{VERSION}\n{body}")
    program(made.venv, "option", f"#!{made.venv}/bin/python -s\n{body}")
    exec_line = f"#!/bin/sh\n'''exec' \"{made.venv}/bin/python\" \"$0\" \"$@\"\n' '''\n{body}"
    program(made.venv, "by_exec", exec_line)
    program(made.venv, "dotted", f"#!{made.origin}/src/../.venv/bin/python\n{body}")
    made.prepare()
    for name in ("plain", "three", "exact", "option", "by_exec", "dotted"):
        found = output([str(made.layer / "bin" / name)], made.top, made.environment())
        assert found == f"copy {made.layer}", name


@pytest.mark.parametrize("where", ["checkout", "copy", "both"])
def test_scripts_in_a_deep_directory(tmp_path: Path, where: str) -> None:
    """The first line of a script is limited; a longer path is run by the shell, also with a space in it."""
    deep = "/".join(["a long directory"] * 8)
    short, long = "app", f"{deep}/app"
    made = place(
        tmp_path, *{"checkout": (long, "c/app"), "copy": (short, long), "both": (long, f"c/{long}")}[where]
    )
    path_line(made.site, made.source)
    body = "import sys\nimport demo\nprint(demo.where, sys.argv[1:])\n"
    first = (
        f"#!/bin/sh\n'''exec' \"{made.venv}/bin/python\" \"$0\" \"$@\"\n' '''\n"
        if where != "copy"
        else f"#!{made.venv}/bin/python\n"
    )
    program(made.venv, "tool", first + body)
    made.prepare()
    found = output([str(made.layer / "bin" / "tool"), "x y"], made.top, made.environment())
    assert found == "copy ['x y']"


def test_binaries_and_activate_scripts(tmp_path: Path) -> None:
    """A binary runs where it is; `activate` activates the layer."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    shutil.copy("/bin/echo", made.venv / "bin" / "ruff")
    made.prepare()
    assert output([str(made.layer / "bin" / "ruff"), "a  b"], made.top, made.environment()) == "a  b"
    script = '. .venv/bin/activate && echo "$VIRTUAL_ENV" && python -c "import demo; print(demo.where)"'
    found = output(["/bin/sh", "-c", script], made.top, made.environment())
    assert found.splitlines() == [str(made.layer), "copy"]


def test_programs_of_the_checkout(tmp_path: Path) -> None:
    """A script that names the sources of the checkout, as old installers write, runs the copy."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    (made.origin / "run.py").write_text("print('checkout')\n")
    (made.top / "run.py").write_text("print('copy')\n")
    text = f"#!{made.venv}/bin/python\n__file__ = '{made.origin}/run.py'\nexec(open(__file__).read())\n"
    program(made.venv, "develop", text)
    made.prepare()
    assert output([str(made.layer / "bin" / "develop")], made.top, made.environment()) == "copy"


# ---- is_untouched ----


def test_what_was_installed_into_a_layer_is_kept(tmp_path: Path) -> None:
    """A layer with something installed into it, or over another environment, is not replaced."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    made.prepare()
    assert is_untouched(made.layer, made.venv)
    assert not is_untouched(made.layer, tmp_path / "other")
    dist_info(site_of(made.layer), "added")
    assert not is_untouched(made.layer, made.venv)
    assert not is_untouched(tmp_path / "nothing", made.venv)
    assert not is_untouched(made.venv, made.venv)
    (made.layer / RECORD).write_text("{")
    assert not is_untouched(made.layer, made.venv)


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "{}", '{"sites": 3}', "\x00"])
def test_a_damaged_record_is_not_a_layer(tmp_path: Path, text: str) -> None:
    """An agent can write anything into the record of a layer in its worktree."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    made.prepare()
    (made.layer / RECORD).write_text(text)
    assert not is_untouched(made.layer, made.venv)
    python.variables(made.copy, made.environment())
    python.reads(made.copy, made.environment())
    python.leads_out(made.copy, made.environment())


def test_a_layer_is_ignored_by_git(tmp_path: Path) -> None:
    """A layer is never part of an agent's work."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    made.prepare()
    subprocess.run(["git", "init", "-q", made.top], check=True)
    done = subprocess.run(["git", "-C", made.top, "status", "--porcelain"], capture_output=True, text=True)
    assert ".venv" not in done.stdout


def test_a_layer_of_what_a_checkout_lacks(tmp_path: Path) -> None:
    """The environment in use lies elsewhere and does not lead to the project: nothing is made."""
    made = Place(tmp_path / "app", tmp_path / "copy")
    shutil.rmtree(made.venv)
    assert not python.detect(made.copy, made.environment())
    assert python.variables(made.copy, made.environment()) == {}


def test_the_record_names_both_environments(tmp_path: Path) -> None:
    """What a layer lies over, and what commands used before."""
    made = place(tmp_path)
    path_line(made.site, made.source)
    made.prepare()
    record = json.loads((made.layer / RECORD).read_text())
    assert (record["below"], record["instead_of"]) == (str(made.venv), str(made.venv))
    assert record["sites"] == [str(made.site)]
    assert record["skipped"] == [str(made.site / "__editable__.demo-1.0.pth")]
