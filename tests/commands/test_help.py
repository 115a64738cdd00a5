"""The `--help` pages, word for word. After an intended change: RALPH_UPDATE_GOLDEN=1 pytest -k help."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import Project
from ralph import __version__
from ralph.cli import GROUPS, make_group
from ralph.commands.prd import SUBCOMMANDS as PRD
from ralph.commands.task import SUBCOMMANDS as TASK

GOLDEN = Path(__file__).parent / "help"
COMMANDS = [name for commands in GROUPS.values() for name in commands]
SUBCOMMANDS = [*(f"task-{name}" for name in TASK), *(f"prd-{name}" for name in PRD)]


def check(name: str, text: str) -> None:
    """Compare with the golden file, or write it if RALPH_UPDATE_GOLDEN is set."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RALPH_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture
def narrow(project: Project) -> Project:
    """A terminal of 80 columns."""
    project.extra_env = {"COLUMNS": "80"}
    return project


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
def test_each_command_explains_itself(name: str) -> None:
    """`ralph COMMAND --help` fits the terminal and matches its golden file."""
    result = CliRunner().invoke(
        make_group(), [*name.split("-"), "--help"], prog_name="ralph", terminal_width=78
    )
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if len(line) > 80] == []
    check(name, result.output)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_starts_by_itself(narrow: Project, name: str) -> None:
    """In a real process, which imports what the command needs."""
    result = narrow.run(name, "--help", real_process=True)
    assert (result.code, result.err) == (0, "")
    check(name, result.out)


@pytest.mark.real_process
@pytest.mark.parametrize("arguments", [["--help"], []])
def test_ralph_explains_itself(narrow: Project, arguments: list[str]) -> None:
    """`ralph` alone or with --help shows an example, then the commands in groups."""
    result = narrow.run(*arguments)
    assert (result.code, result.err) == (0, "")
    check("ralph", result.out)


def test_help_is_a_result(narrow: Project) -> None:
    """Help goes to stdout, so that it can be paged; `-h` works too."""
    result = narrow.run("run", "-h")
    assert (result.code, result.err) == (0, "")
    check("run", result.out)


def test_no_help_text_is_left_over() -> None:
    """Every golden file belongs to a command that exists."""
    assert {path.stem for path in GOLDEN.iterdir()} == {"ralph", *COMMANDS, *SUBCOMMANDS}


@pytest.mark.real_process
@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_the_version(project: Project, flag: str) -> None:
    """`--version` and `-v` print the version on one line."""
    result = project.run(flag)
    assert (result.code, result.out, result.err) == (0, f"ralph {__version__}\n", "")


@pytest.mark.real_process
def test_help_touches_nothing(narrow: Project) -> None:
    """Help and version create no file, neither in the project nor in the store."""
    for arguments in (["--help"], ["run", "--help"], ["--version"], ["config", "--schema"]):
        narrow.run(*arguments)
    assert (list(narrow.path.iterdir()), list(narrow.home.path.iterdir())) == ([], [])
