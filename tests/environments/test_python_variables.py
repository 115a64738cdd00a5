"""Which environments a copy needs, and the variables with which its commands find them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from environments.package_support import hashes
from environments.python_support import (
    BASE,
    LocalTools,
    Place,
    finder,
    installed,
    make_venv,
    output,
    path_line,
    place,
    program,
    site_of,
)
from ralph.environments import prepare, python
from ralph.environments.base import Copy, directories, inside, repointed_list
from ralph.environments.python_installed import RECORD, import_roots, of_venv, probed

REPORT = "import os, sys, demo; print(demo.where, sys.prefix)"


@pytest.fixture
def made(tmp_path: Path) -> Place:
    return place(tmp_path)


def outer_layer(made: Place) -> Path:
    """The layer of an environment outside the tree."""
    (found,) = list((made.copy.own / "python").iterdir())
    return found


def test_an_activated_environment_in_the_tree(made: Place) -> None:
    """PATH and VIRTUAL_ENV lead to the layer at the same place in the copy."""
    path_line(made.site, made.source)
    path = os.pathsep.join([str(made.venv / "bin"), str(BASE.parent), "/usr/bin"])
    made.prepare(PATH=path, VIRTUAL_ENV=str(made.venv))
    found = prepare.variables(made.copy, made.environment(PATH=path, VIRTUAL_ENV=str(made.venv)))
    assert found["VIRTUAL_ENV"] == str(made.layer)
    assert found["PATH"].split(os.pathsep) == [str(made.layer / "bin"), str(BASE.parent), "/usr/bin"]
    assert made.where("python", REPORT, PATH=path, VIRTUAL_ENV=str(made.venv)) == f"copy {made.layer}"


def test_an_active_environment_outside_the_tree(made: Place, tmp_path: Path) -> None:
    """Its layer lies outside the tree; the environment is not changed and no longer on the path."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "envs" / "app")
    finder(site_of(venv), made.source)
    program(venv, "tool", f"#!{venv}/bin/python\n{REPORT}\n")
    before = hashes(venv)
    path = os.pathsep.join([str(venv / "bin"), "/usr/bin"])
    made.prepare(PATH=path, VIRTUAL_ENV=str(venv))
    layer = outer_layer(made)
    environment = prepare.variables(made.copy, made.environment(PATH=path, VIRTUAL_ENV=str(venv)))
    assert environment["VIRTUAL_ENV"] == str(layer)
    assert str(venv / "bin") not in environment["PATH"].split(os.pathsep)
    for argv in (["python", "-c", REPORT], ["tool"]):
        assert (
            output([shutil.which(argv[0], path=environment["PATH"]) or "", *argv[1:]], made.top, environment)
            == f"copy {layer}"
        )
    user = made.environment(PATH=path, VIRTUAL_ENV=str(venv))
    assert python.reads(made.copy, user) == [str(site_of(venv)), str(BASE.resolve().parent.parent)]
    assert not python.leads_out(made.copy, environment)
    assert hashes(venv) == before


def test_a_layer_in_the_git_directory_of_the_checkout(made: Place, tmp_path: Path) -> None:
    """Layers of worktrees lie in `.git/worktrees` of the checkout: their programs start their own interpreter."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "envs" / "app")
    path_line(site_of(venv), made.source)
    program(venv, "tool", f"#!{venv}/bin/python\n{REPORT}\n")
    own = made.origin / ".git" / "worktrees" / "T-1" / "ralph"
    own.mkdir(parents=True)
    copy = Copy(made.top, made.origin, ".", own)
    user = made.environment(PATH=f"{venv}/bin:/usr/bin", VIRTUAL_ENV=str(venv))
    python.prepare(copy, LocalTools(copy, tmp_path / "cache", user))
    environment = prepare.variables(copy, user)
    found = output([shutil.which("tool", path=environment["PATH"]) or ""], made.top, environment)
    assert found == f"copy {environment['VIRTUAL_ENV']}"
    assert not python.leads_out(copy, environment)


def test_an_environment_on_the_path_alone(made: Place, tmp_path: Path) -> None:
    """Without VIRTUAL_ENV, as when a service starts Ralph with a PATH."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "envs" / "app")
    path_line(site_of(venv), made.source)
    path = os.pathsep.join([str(venv / "bin"), "/usr/bin"])
    made.prepare(PATH=path)
    assert made.where("python", REPORT, PATH=path) == f"copy {outer_layer(made)}"
    assert "VIRTUAL_ENV" not in prepare.variables(made.copy, made.environment(PATH=path))


def test_an_active_environment_of_another_project(made: Place, tmp_path: Path) -> None:
    """An environment that does not lead to the project stays as it is."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "other" / ".venv")
    path_line(site_of(venv), tmp_path / "other" / "src")
    path = os.pathsep.join([str(venv / "bin"), "/usr/bin"])
    environment = made.environment(PATH=path, VIRTUAL_ENV=str(venv))
    assert not python.detect(made.copy, environment)
    made.prepare(PATH=path, VIRTUAL_ENV=str(venv))
    assert prepare.variables(made.copy, environment) == environment


def test_a_link_to_an_environment_elsewhere(made: Place, tmp_path: Path) -> None:
    """The user's `.venv` is a link: the copy gets a layer at its place."""
    shutil.rmtree(made.venv)
    venv = make_venv(tmp_path / "envs" / "app")
    made.venv.symlink_to(venv)
    path_line(site_of(venv), made.source)
    program(venv, "tool", f"#!{venv}/bin/python\n{REPORT}\n")
    before = hashes(venv)
    made.prepare()
    assert output([str(made.layer / "bin" / "tool")], made.top, made.environment()) == f"copy {made.layer}"
    assert hashes(venv) == before


def test_two_environments_in_the_tree(made: Place) -> None:
    """Each of them gets a layer."""
    venv = make_venv(made.origin / "envs" / "docs")
    for site in (made.site, site_of(venv)):
        path_line(site, made.source)
    made.prepare()
    for layer in (made.layer, made.top / "envs" / "docs"):
        assert made.where(layer / "bin" / "python") == "copy"


def test_a_pythonpath(made: Place, tmp_path: Path) -> None:
    """Directories of the checkout lead to the copy, others stay, an empty part stays empty."""
    value = f"{made.source}::/usr/lib/x:{made.origin}-wt/src:src"
    expected = f"{made.top}/src::/usr/lib/x:{made.origin}-wt/src:src"
    assert prepare.variables(made.copy, made.environment(PYTHONPATH=value))["PYTHONPATH"] == expected
    assert repointed_list(made.copy, "") == ""
    shutil.rmtree(made.venv)
    python_path = {"PYTHONPATH": str(made.source)}
    assert made.where(BASE, **python_path) == "copy"


def test_a_user_site(made: Place, tmp_path: Path) -> None:
    """`pip install --user -e .` leads to the checkout; the copy gets a layer over the interpreter."""
    shutil.rmtree(made.venv)
    base = tmp_path / "user"
    site = base / "lib" / BASE.name / "site-packages"
    site.mkdir(parents=True)
    (base / "bin").mkdir()
    tool = base / "bin" / "tool"
    tool.write_text(f"#!{BASE}\nimport demo\nprint(demo.where)\n")
    tool.chmod(0o755)
    path_line(site, made.source)
    more = {"PYTHONUSERBASE": str(base), "PATH": f"{BASE.parent}:{base}/bin:/usr/bin"}
    made.prepare(**more)
    assert made.where("python3", **more) == "copy"
    environment = prepare.variables(made.copy, made.environment(**more))
    assert output([shutil.which("tool", path=environment["PATH"]) or ""], made.top, environment) == "copy"


def test_bytecode_is_not_written_into_the_environment(made: Place) -> None:
    """Commands in a copy read the user's packages and leave no bytecode there."""
    path_line(made.site, made.source)
    (made.site / "plain.py").write_text("x = 1\n")
    made.prepare()
    before = hashes(made.venv)
    environment = made.environment()
    del environment["PYTHONDONTWRITEBYTECODE"]
    found = prepare.variables(made.copy, environment)
    assert (
        output([str(made.layer / "bin" / "python"), "-c", "import plain; print(plain.x)"], made.top, found)
        == "1"
    )
    assert hashes(made.venv) == before


# ---- what leads out ----


def test_a_link_to_the_environment_leads_out(made: Place) -> None:
    """A copy whose `.venv` is a link to the user's imports the checkout, and Ralph says so."""
    path_line(made.site, made.source)
    made.layer.symlink_to(made.venv)
    made.prepare()
    assert made.where() == "checkout"
    assert python.leads_out(made.copy, made.environment()) == [f".venv imports from {made.origin}"]


def test_a_relocated_environment_leads_out(made: Place) -> None:
    """A copy of the user's `.venv`, as `cp -a` in `ralph.setup` makes it, still has its entries."""
    finder(made.site, made.source)
    shutil.copytree(made.venv, made.layer, symlinks=True)
    made.prepare()
    assert len(python.leads_out(made.copy, made.environment())) == 1


def test_what_setup_has_made_stays(made: Place) -> None:
    """An environment that is already there is not replaced by a layer."""
    path_line(made.site, made.source)
    make_venv(made.layer)
    path_line(site_of(made.layer), made.top / "src")
    before = hashes(made.layer)
    made.prepare()
    assert hashes(made.layer) == before
    assert made.where() == "copy"
    assert not python.leads_out(made.copy, made.environment())


def test_an_active_environment_gets_its_layer_before_setup(made: Place, tmp_path: Path) -> None:
    """`ralph.setup` with `pip install` must not write into it; without one nothing is made before setup."""
    path_line(made.site, made.source)
    made.copy.own.mkdir()
    python.prepare_active(made.copy, made.tools())
    assert not made.layer.exists()
    for more in ({"VIRTUAL_ENV": str(made.venv)}, {"PATH": f"{made.venv}/bin:/usr/bin"}):
        environment = prepare.variables(made.copy, made.environment(**more))
        python.prepare_active(made.copy, LocalTools(made.copy, tmp_path / "cache", environment))
        assert (made.layer / RECORD).is_file(), more
        shutil.rmtree(made.layer)


def test_an_agent_cannot_add_to_what_is_read(made: Place, tmp_path: Path) -> None:
    """What it writes into an environment of its worktree does not open other directories of the user."""
    path_line(made.site, made.source)
    made.prepare()
    expected = python.reads(made.copy, made.environment())
    secret = tmp_path / "secret" / "lib" / "python3.11" / "site-packages"
    secret.mkdir(parents=True)
    for venv in (made.layer, made.top / "forged"):
        site_of(venv).mkdir(parents=True, exist_ok=True)
        (venv / "pyvenv.cfg").write_text(f"home = {tmp_path}/secret/bin\n")
        (venv / RECORD).write_text(json.dumps({"sites": [str(secret)], "skipped": []}))
    assert python.reads(made.copy, made.environment()) == expected


# ---- finding things ----


def test_environments_are_found_by_their_configuration(tmp_path: Path) -> None:
    """Without a `pyvenv.cfg`, without packages, or with an unreadable one, there is no environment."""
    assert of_venv(tmp_path) is None
    (tmp_path / "pyvenv.cfg").write_bytes(b"\xff\xfe")
    assert of_venv(tmp_path) is None
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert of_venv(tmp_path) is None
    (tmp_path / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    found = installed(tmp_path)
    assert (found.version, found.scripts) == ("3.12", (tmp_path / "bin",))


def test_an_interpreter_that_does_not_answer(tmp_path: Path) -> None:
    """A program named python that fails is not an environment."""
    for name, text in (("python3", "#!/bin/sh\nexit 1\n"), ("python", "#!/bin/sh\necho hello\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
        assert probed(str(tmp_path / name), ()) is None
    assert probed(str(tmp_path / "nothing"), ()) is None


def test_roots_of_imports(made: Place) -> None:
    """The directories that an environment imports from, whatever kind of entry leads there."""
    for entry in (path_line, finder):
        entry(made.site, made.source)
    assert made.source in import_roots(made.copy, made.installed) or made.source / "demo" in import_roots(
        made.copy, made.installed
    )


def test_compiled_extensions_in_the_sources(made: Place) -> None:
    """Those that the environment imports from the checkout, not those in an environment."""
    path_line(made.site, made.source)
    (made.source / "demo" / "fast.so").touch()
    (made.site / "x.so").touch()
    assert python.compiled(made.copy, made.environment()) == ["src/demo/fast.so"]


def test_how_deep_environments_are_searched_for(tmp_path: Path) -> None:
    """Four levels, not below skipped names, not into `.git`, and not through links."""
    for name in ("a/b/c/d/e", ".git/x", "node_modules/y"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    found = {str(each.relative_to(tmp_path)) for each in directories(tmp_path, frozenset({"node_modules"}))}
    assert found == {".", "a", "a/b", "a/b/c", "node_modules"}


def test_inside(tmp_path: Path) -> None:
    """By name or by the real path, and never by a common prefix."""
    (tmp_path / "app").mkdir()
    (tmp_path / "link").symlink_to("app")
    assert inside(tmp_path / "link" / "x", tmp_path / "app") == Path("x")
    assert inside(tmp_path / "app-wt", tmp_path / "app") is None
    copy = Copy(Path("/copy"), tmp_path / "app", ".", tmp_path)
    assert copy.moved(tmp_path / "app" / "x" / ".." / "y") == "/copy/y"
    assert copy.moved("/elsewhere") == "/elsewhere"
