"""D12: stores of other versions, files that are not stores, damaged stores, stores that vanish."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from conftest import Project, Result
from faults.fault_support import DONE, assert_clear, assert_sound, contents, newest
from ralph.store.database import VERSION

COMMANDS = {
    "run": ["run", "-p", "x"],
    "status": ["status"],
    "status RUN": ["status", "RUN"],
    "resume": ["resume"],
    "resume RUN": ["resume", "RUN", "-m", "9"],
    "cancel": ["cancel", "RUN"],
    "steer": ["steer", "RUN", "hm"],
    "logs": ["logs", "RUN"],
    "prune": ["prune", "--older-than", "0h", "--yes"],
}


@pytest.fixture
def used(project: Project) -> tuple[Project, str]:
    """A project with a store and an unfinished run; returns the run's id too."""
    project.agent("echo hm")
    assert project.run("run", "-p", "x", "-m", "2").code == 1
    return project, newest(project).id


def run_command(project: Project, run: str, name: str) -> Result:
    return project.run(*(run if word == "RUN" else word for word in COMMANDS[name]))


def each_command(project: Project, run: str, *names: str) -> Iterator[tuple[str, Result]]:
    for name in names or COMMANDS:
        yield name, run_command(project, run, name)


def change(project: Project, *statements: str) -> None:
    with closing(sqlite3.connect(project.home.database)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


# ---- other versions ----


def test_d12_a_newer_store_is_refused_and_left_alone(used: tuple[Project, str]) -> None:
    """Every command refuses a store of a newer format, names both versions, and changes no byte."""
    project, run = used
    change(project, "PRAGMA user_version = 99")
    before = contents(project.home.path)
    for name, result in each_command(project, run):
        assert result.out == "", name
        assert_clear(result, str(project.home.database), "99", f"this Ralph supports {VERSION}")
        assert contents(project.home.path) == before, name


def test_d12_additions_of_a_later_version_do_not_matter(used: tuple[Project, str]) -> None:
    """Schema changes only add: with another table and more columns, everything still works."""
    project, run = used
    change(
        project,
        "CREATE TABLE added (x)",
        "ALTER TABLE runs ADD COLUMN colour TEXT",
        "ALTER TABLE journal ADD COLUMN colour TEXT",
        "ALTER TABLE commands ADD COLUMN colour TEXT",
    )
    assert project.run("status", run).code == 0
    project.agent(DONE)
    assert project.run("resume", run, "-m", "3").code == 0
    assert project.run("run", "-p", "x").code == 0


# ---- not a store ----


def make_directory(path: Path) -> None:
    path.mkdir()


def make_garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))


def make_cut_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\0" * 100)


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE precious (x)")
        db.execute("INSERT INTO precious VALUES (1)")
        db.commit()


def make_foreign_runs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (x)")
        db.execute(f"PRAGMA user_version = {VERSION}")


@pytest.mark.parametrize(
    "make", [make_directory, make_garbage, make_cut_header, make_foreign, make_foreign_runs]
)
def test_a_file_that_is_not_a_store_is_refused_and_left_alone(
    project: Project, make: Callable[[Path], None]
) -> None:
    """Anything else called `ralph.db` gives one clear error and is not touched."""
    project.agent(DONE)
    make(project.home.database)
    before = contents(project.home.path)
    for name, result in each_command(project, "x", "run", "status", "resume"):
        assert_clear(result, str(project.home.database))
        assert contents(project.home.path) == before, name


def test_an_empty_file_becomes_a_store(project: Project) -> None:
    """An empty file, as left by `touch` or a full disk, becomes a new store."""
    project.agent(DONE)
    project.home.database.touch()
    assert project.run("run", "-p", "x").code == 0
    assert_sound(project.home)


# ---- damage ----


def damage_pages(project: Project) -> None:
    with closing(sqlite3.connect(project.home.database)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'journal'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with project.home.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def damage_states(project: Project) -> None:
    change(project, "UPDATE journal SET state = '{' WHERE state IS NOT NULL")


def damage_plan(project: Project) -> None:
    change(project, "UPDATE journal SET body = '{}' WHERE seq = 0")


def damage_bytes(project: Project) -> None:
    change(project, "UPDATE journal SET state = CAST(x'fffe7b7d' AS TEXT) WHERE state IS NOT NULL")


Damage = Callable[[Project], None]


def damaged(command: str, *damages: Damage) -> list[ParameterSet]:
    return [pytest.param(command, damage) for damage in damages]


@pytest.mark.parametrize(
    ("command", "damage"),
    [
        *damaged("status", damage_pages, damage_states, damage_bytes),
        *damaged("status RUN", damage_pages, damage_states, damage_plan, damage_bytes),
        *damaged("resume RUN", damage_pages, damage_states, damage_plan, damage_bytes),
        *damaged("cancel", damage_pages, damage_states, damage_plan, damage_bytes),
        *damaged("logs", damage_pages, damage_plan, damage_bytes),
    ],
)
def test_damage_is_one_clear_error(used: tuple[Project, str], command: str, damage: Damage) -> None:
    """An unreadable page or row is one clear error in every command."""
    project, run = used
    damage(project)
    assert_clear(run_command(project, run, command))


def test_a_damaged_run_can_be_pruned(used: tuple[Project, str]) -> None:
    """The advice in the error works: `ralph prune` removes the damaged run, and the rest is visible again."""
    project, run = used
    damage_states(project)
    assert "`ralph prune` removes old ones" in project.run("status", run).err
    result = run_command(project, run, "prune")
    assert result.code == 0, result.err
    assert project.status() == []


def test_a_store_that_is_deleted_under_a_run(project: Project) -> None:
    """A run whose store is removed stops with an error, and the next command creates a new store."""
    project.agent(f"rm -rf {project.home.path}/*; echo hm; [ $RALPH_ITERATION = 2 ] && {DONE}; true")
    assert_clear(project.run("run", "-p", "x"), str(project.home.database), "removed")
    assert project.status() == []
