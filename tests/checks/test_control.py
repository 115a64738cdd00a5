"""The control: a green check that could look at the user's checkout has to notice an unparsable file in its copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Project
from environments.python_support import make_venv, path_line, site_of
from ralph.environments.base import Copy
from ralph.loop.controls import UNPARSABLE, broken, leads_of, not_shown, to_break
from ralph.loop.copies import PreparedCopy

NOTICED = "It looks at other code: "
SEES_THE_CHECKOUT = ".venv/bin/python -c 'import demo; demo.answer()'"
SEES_THE_COPY = f"PYTHONPATH=src {SEES_THE_CHECKOUT}"


@pytest.fixture
def checkout(repository: Project) -> Project:
    """A package with an editable install in `.venv`."""
    top = repository.path
    (top / "src" / "demo").mkdir(parents=True)
    (top / "src" / "demo" / "__init__.py").write_text("def answer():\n    return 42\n")
    (top / "check.py").write_text("import sys\nsys.path.insert(0, sys.path[0] + '/src')\nimport demo\n")
    (top / ".gitignore").write_text(".venv\n.ralph/\n__pycache__/\n")
    path_line(site_of(make_venv(top / ".venv")), top / "src")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "Package")
    return repository


def run(checkout: Project, command: str, setup: str = "", body: str = "echo x > new.txt") -> tuple[int, str]:
    """A clean guardrail of `ralph run`. The command is counted by a line in a file outside."""
    count = checkout.path.parent / "count"
    checkout.agent(
        f"{body}; echo '<response>DONE</response>'",
        guardrails=[{"command": f"echo 1 >> {count}; {command}", "clean": True}],
        maximumIterations=1,
        ralph={"setup": setup},
    )
    ended = checkout.run("run", "-p", "x")
    return ended.code, ended.err


def runs(checkout: Project) -> int:
    """How often the command ran."""
    return len((checkout.path.parent / "count").read_text().split())


def linked(checkout: Project) -> str:
    return f"ln -s '{checkout.path}/.venv' .venv"


def test_a_check_that_looks_at_the_checkout_is_red(checkout: Project) -> None:
    """The setup command links the user's environment, which imports the user's sources."""
    code, err = run(checkout, SEES_THE_CHECKOUT, linked(checkout))
    assert code == 1
    assert f"{NOTICED}.venv imports from" in err
    assert "Set ralph.setup to the command that installs the project in a copy." in err
    assert runs(checkout) == 2


def test_a_check_that_sees_the_copy_is_green(checkout: Project) -> None:
    """With the same link, but the copy's own sources before the user's."""
    code, err = run(checkout, SEES_THE_COPY, linked(checkout))
    assert (code, runs(checkout)) == (0, 2), err


def test_a_layer_needs_no_control(checkout: Project) -> None:
    """Ralph's own environment for the copy leads nowhere else: the check runs once."""
    code, err = run(checkout, SEES_THE_CHECKOUT)
    assert (code, runs(checkout)) == (0, 1), err


@pytest.mark.parametrize(
    "command",
    [
        "grep -q 42 src/demo/__init__.py",
        "test -f check.py && ! grep -rq TODO src",
        "cat src/demo/__init__.py | wc -l",
        "git diff --stat HEAD",
    ],
)
def test_a_check_that_runs_no_code_has_no_control(checkout: Project, command: str) -> None:
    """It looks at files by their relative paths."""
    code, err = run(checkout, command, linked(checkout))
    assert (code, runs(checkout)) == (0, 1), err


def test_a_red_check_has_no_control(checkout: Project) -> None:
    """Red is red, wherever it looked."""
    code, _ = run(checkout, f"{SEES_THE_CHECKOUT}; exit 3", linked(checkout))
    assert (code, runs(checkout)) == (1, 1)


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_command_that_names_the_checkout(checkout: Project, is_linked: bool) -> None:
    """A script of the checkout by its absolute path looks at the checkout."""
    path = checkout.path
    if is_linked:
        path = checkout.path.parent / "link"
        path.symlink_to(checkout.path)
    code, err = run(checkout, f"python3 {path}/check.py")
    assert code == 1, err
    assert f"{NOTICED}the command names " in err


def test_a_command_that_names_the_checkout_by_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~/app`, `$HOME/app` and `${HOME}/app` are the same directory."""
    monkeypatch.setenv("HOME", "/home/ada")
    copy = copy_of(tmp_path)
    for path in ("~/app", "$HOME/app", "${HOME}/app", '"$HOME"/app', "../x:~/app"):
        assert "the command names /home/ada/app" in leads_of(copy, f"python {path}/x.py"), path
    for path in ("~/app2", "$HOMES/app", "x~/app", "./~/app"):
        assert "the command names /home/ada/app" not in leads_of(copy, f"python {path}/x.py"), path


def test_a_command_that_names_the_checkout_and_sees_the_copy(checkout: Project) -> None:
    """Its configuration file is named by an absolute path, the code is that of the copy."""
    code, err = run(checkout, f"python3 check.py --config {checkout.path}/setup.cfg")
    assert (code, runs(checkout)) == (0, 2), err


def test_the_control_leaves_no_trace(checkout: Project) -> None:
    """The files of the copy are as they were for the next command, and those of the user were never touched."""
    body = "sed -i 's/42/41 + 1/' src/demo/__init__.py"
    code, err = run(checkout, f"{SEES_THE_COPY} && git diff --exit-code", linked(checkout), body)
    assert code == 0, err
    text = (checkout.path / "src" / "demo" / "__init__.py").read_text()
    assert text == "def answer():\n    return 41 + 1\n"


# ---- the parts ----


def copy_of(tmp_path: Path, *names: str) -> PreparedCopy:
    for name in names:
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_text("pass\n")
    copy = Copy(tmp_path / "copy", Path("/home/ada/app"), ".", tmp_path / "own")
    return PreparedCopy(tmp_path, copy, {}, (), ("x leads out",), dict.fromkeys(names, (5, 0)))


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "sh -c 'python x'",
        "./check.sh",
        "xargs python < x",
        "make",
        "cd x && npm test",
        "echo $(python x)",
        "env python x",
        "((",
    ],
)
def test_commands_that_run_code(tmp_path: Path, command: str) -> None:
    """Anything but the usual utilities, also when they start it, and what cannot be read."""
    assert leads_of(copy_of(tmp_path), command) == ["x leads out"]


@pytest.mark.parametrize(
    "command", ["true", "grep -r x .", "! grep x y", "test -f x && cat y | sort", "ls; pwd"]
)
def test_commands_that_run_no_code(tmp_path: Path, command: str) -> None:
    """Utilities that only read files."""
    assert leads_of(copy_of(tmp_path), command) == []


@pytest.mark.parametrize(
    ("command", "is_named"),
    [
        ("python /home/ada/app/x.py", True),
        ("cd /home/ada/app && make", True),
        ("python /home/ada/app-wt/x.py", False),
        ("python /srv/home/ada/app/x.py", False),
        ("PYTHONPATH=/home/ada/app python x.py", True),
        ("python 'a b'/home/ada/app.old/x", False),
    ],
)
def test_commands_that_name_the_checkout(tmp_path: Path, command: str, is_named: bool) -> None:
    """By its path, not by one that only looks like it."""
    found = leads_of(copy_of(tmp_path), command)
    assert ("the command names /home/ada/app" in found) is is_named


def test_what_is_made_unparsable(tmp_path: Path) -> None:
    """The changed sources without tests, or all of them if none has changed."""
    copy = copy_of(tmp_path, "a.py", "b.py", "tests/test_a.py", "notes.txt")
    assert to_break(copy, ["b.py", "tests/test_a.py", "notes.txt"]) == ["b.py"]
    assert to_break(copy, ["notes.txt"]) == ["a.py", "b.py"]
    assert to_break(copy_of(tmp_path, "notes.txt"), ["notes.txt"]) == []


def test_files_are_restored(tmp_path: Path) -> None:
    """Content, time and mode, also after an error, and a file that the check has removed."""
    copy = copy_of(tmp_path, "a.py", "b/c.py")
    paths = [copy.copy.top / name for name in ("a.py", "b/c.py")]
    for path in paths:
        os.utime(path, (1, 1))
        path.chmod(0o755)
    with pytest.raises(RuntimeError), broken(copy, ["a.py", "b/c.py", "gone.py"]):
        assert paths[0].read_bytes() == UNPARSABLE
        paths[1].unlink()
        paths[1].parent.rmdir()
        raise RuntimeError
    assert [(path.read_text(), path.stat().st_mtime) for path in paths] == [("pass\n", 1.0)] * 2
    assert paths[0].stat().st_mode & 0o777 == 0o755


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link that leads out of the copy is not written through."""
    copy = copy_of(tmp_path, "a.py")
    (tmp_path / "elsewhere.py").write_text("pass\n")
    (copy.copy.top / "link.py").symlink_to(tmp_path / "elsewhere.py")
    with broken(copy, ["link.py"]):
        assert (tmp_path / "elsewhere.py").read_text() == "pass\n"


def test_the_reason_names_what_leads_out() -> None:
    """One line on what leads out, one on what was seen, one on what to do."""
    lines = not_shown(["x leads out"]).splitlines()
    assert lines[0] == "It looks at other code: x leads out."
    assert [line.partition(" ")[0] for line in lines[1:]] == ["It", "Set"]
