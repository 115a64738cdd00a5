"""How the dashboard reads the store: no writes, no locks held, and only the end of long files."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from conftest import Project
from ralph.commands.tui import MAX_BYTES, make_app
from ralph.core.model import AgentSpec, Flow, Limits, Plan, PromptSource
from ralph.errors import RalphError
from ralph.store.database import Busy
from ralph.store.home import Home, known_home
from ralph.views.agent import ViewOptions
from ralph.views.status import detail
from ralph.views.tui.feed import Feed, Overview
from ralph.views.tui.run import tail_of
from ralph.views.tui.watch import Watch
from tui_support import HOSTILE, World

DONE = "echo '<response>DONE</response>'"


def feed_of(home: Home) -> Feed:
    return make_app(home, ViewOptions()).feed


def watch_of(home: Home, run: str) -> Watch:
    return Watch(feed_of(home), run, ViewOptions(emoji=False, colour=False), time.time)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def only_run(project: Project) -> str:
    (run,) = project.status()
    return str(run["id"])


# ---- reading only ----


def test_nothing_is_changed(project: Project) -> None:
    """After reading everything, the database is unchanged byte for byte, and no other connection sees a change."""
    project.agent(DONE)
    assert project.run("run", "-p", "The work.").code == 0
    run, before = only_run(project), digest(project.home.database)
    with closing(sqlite3.connect(project.home.database)) as other:
        version = other.execute("PRAGMA data_version").fetchone()
        feed = feed_of(project.home)
        assert [s.id for _, s in feed.overview().runs] == [run]
        feed.boards(feed.overview().projects[0])
        Watch(feed, run, ViewOptions(), time.time).news()
        feed.close()
        assert other.execute("PRAGMA data_version").fetchone() == version
    assert digest(project.home.database) == before


def test_it_cannot_write(project: Project) -> None:
    """Its connection is read-only."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    runs = project.home.to_read()
    with closing(runs.db), pytest.raises(RalphError, match="readonly"):
        runs.let_go(only_run(project))


def test_nobody_waits_for_it(project: Project) -> None:
    """While it is open, others can write, lock the whole store and truncate its log."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    feed.overview()
    with closing(sqlite3.connect(project.home.database, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE runs SET created = created + 1")
        other.execute("COMMIT")
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0
    feed.close()


def test_closing_leaves_the_log_alone(project: Project) -> None:
    """Closing does not checkpoint: the last writes of a run stay in the log."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    feed.overview()
    assert project.run("run", "-p", "More work.").code == 0
    log = project.home.database.with_name("ralph.db-wal")
    before = (log.stat().st_size, digest(project.home.database))
    assert before[0] > 0
    feed.overview()
    feed.close()
    assert (log.stat().st_size, digest(project.home.database)) == before


def test_a_missing_store_is_not_an_error(tmp_path: Path) -> None:
    """The overview is empty, and nothing is created, not even the directory."""
    feed = feed_of(Home(tmp_path / "nowhere"))
    assert feed.overview() == Overview()
    assert not (tmp_path / "nowhere").exists()


def test_the_store_is_located_without_creating_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The location is the same as for the other commands."""
    monkeypatch.delenv("RALPH_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "usual"))
    assert known_home(tmp_path) == Home(tmp_path / "usual" / "ralph")
    (tmp_path / ".ralph" / "state").mkdir(parents=True)
    assert known_home(tmp_path) == Home(tmp_path / ".ralph" / "state")
    (tmp_path / "usual" / "ralph").mkdir(parents=True)
    (tmp_path / "usual" / "ralph" / "ralph.db").touch()
    assert known_home(tmp_path) == Home(tmp_path / "usual" / "ralph")


# ---- unreadable stores ----


def test_a_newer_store(project: Project) -> None:
    """The error names its format."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(RalphError, match="newer Ralph: its version is 7"):
        feed_of(project.home).overview()


def test_an_older_store_without_tasks(project: Project) -> None:
    """Reading does not migrate it: the error says that it is from an older Ralph."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    with closing(sqlite3.connect(project.home.database)) as db:
        for words in ("DROP TABLE tasks", "DROP INDEX runs_task"):
            db.execute(words)
        for column in ("task", "role"):
            db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        db.commit()
    with pytest.raises(RalphError, match="older Ralph"):
        feed_of(project.home).overview()
    project.run("status")
    assert len(feed_of(project.home).overview().runs) == 1


@pytest.mark.parametrize("content", [b"", b"this is not a database, but a text" * 100])
def test_another_file_in_place_of_the_store(project: Project, content: bytes) -> None:
    """An empty file is an empty store; anything else is an error."""
    project.home.database.write_bytes(content)
    feed = feed_of(project.home)
    if content:
        with pytest.raises(RalphError, match="cannot be used"):
            feed.overview()
    else:
        assert feed.overview() == Overview()


def test_a_busy_store_is_retried(project: Project) -> None:
    """A locked store is an error after a short wait, and readable again afterwards."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    with closing(sqlite3.connect(project.home.database, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE runs SET created = created + 1")
        other.execute("COMMIT")
        with pytest.raises(Busy):
            feed.overview()
    assert len(feed.overview().runs) == 1


def test_a_replaced_store_is_reopened(project: Project) -> None:
    """After `rm` and a new run, the new store is read."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    first = feed.overview()
    for name in ("ralph.db", "ralph.db-wal", "ralph.db-shm"):
        (project.home.path / name).unlink(missing_ok=True)
    assert feed.overview() == Overview()
    project.run("run", "-p", "The work.")
    assert feed.overview().runs != first.runs
    assert len(feed.overview().runs) == 1


# ---- changes ----


def test_the_overview_is_reused_if_nothing_has_changed(project: Project) -> None:
    """No row is read twice, and a new run appears immediately."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    first = feed.overview()
    assert feed.overview() is first
    project.run("run", "-p", "The work.")
    assert len(feed.overview().runs) == 2


def test_a_dead_process_is_noticed_without_a_write(project: Project) -> None:
    """A run whose process is gone is shown as crashed."""
    project.agent("touch started; sleep 60")
    process = project.start("run", "-p", "The work.")
    while not (project.path / "started").exists():
        time.sleep(0.02)
    feed = feed_of(project.home)
    ((_, running),) = feed.overview().runs
    assert (running.state, running.iteration) == ("running", 1)
    process.kill()
    process.communicate(timeout=30)
    ((_, crashed),) = feed.overview().runs
    assert crashed.state == "crashed"


def test_a_damaged_run_is_an_error(project: Project) -> None:
    """A row that cannot be decoded raises a `RalphError`."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    with closing(sqlite3.connect(project.home.database)) as db:
        db.execute("UPDATE journal SET state = '{' WHERE state IS NOT NULL")
        db.commit()
    with pytest.raises(RalphError, match="damaged"):
        feed_of(project.home).overview()


# ---- long output ----


def plan_of(directory: Path) -> Plan:
    spec = AgentSpec("agent", "custom", "agent")
    return Plan("", Flow.RUN, str(directory), (spec,), PromptSource("x"), limits=Limits())


def test_only_the_end_of_a_long_stream_is_read(project: Project) -> None:
    """Of 40 MB the last half MB is shown, from the start of a line, with a note about the rest."""
    project.agent("echo begin; sleep 60")
    process = project.start("run", "-p", "The work.")
    while not list(project.home.path.glob("runs/*/*.stdout")):
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=30)
    run = only_run(project)
    (stream,) = project.home.path.glob("runs/*/*.stdout")
    line = b"x" * 99 + b"\n"
    with stream.open("wb") as file:
        for _ in range(40):
            file.write(line * 10_000)
        file.write(b"the end\n")
    watch = watch_of(project.home, run)
    text = watch.news().text
    assert len(text) < MAX_BYTES + 10_000
    assert "bytes not shown" in text
    assert text.rstrip().endswith("the end")
    assert watch.news().text == ""
    with stream.open("ab") as file:
        file.write(line * 10_000 + b"more\n")
    grown = watch.news().text
    assert grown.rstrip().endswith("more")
    assert len(grown) < MAX_BYTES + 10_000


def test_of_many_iterations_the_last_are_shown(project: Project) -> None:
    """As many iterations as fit are shown; the list of iterations has all of them."""
    project.agent(f"head -c 300000 /dev/zero | tr '\\0' x; echo; [ $RALPH_ITERATION -lt 5 ] || {DONE}")
    assert project.run("run", "-p", "The work.", "-m", "5").code == 0
    news = watch_of(project.home, only_run(project)).news()
    assert "iteration 1/5" not in news.text
    assert "iteration 5/5" in news.text
    assert len(news.panel.detail.iterations) == 5


def test_the_end_of_any_kind_of_file(tmp_path: Path) -> None:
    """Reading a check's log follows no link, waits for no pipe, and does not read the whole file."""
    (tmp_path / "log").write_bytes(b"a" * 100 + HOSTILE.encode())
    (tmp_path / "link").symlink_to("log")
    os.mkfifo(tmp_path / "pipe")
    assert "\x1b" not in tail_of(tmp_path / "log")
    assert "not shown" in tail_of(tmp_path / "log", most=20)
    assert "Too many levels" in tail_of(tmp_path / "link")
    assert "not a regular file" in tail_of(tmp_path / "pipe")
    assert "No such file" in tail_of(tmp_path / "gone")


# ---- stories ----


def test_an_unreadable_task_list(project: Project) -> None:
    """The board shows the error; a story with unexpected values is shown as well as possible."""
    project.agent(DONE)
    project.run("run", "-p", "The work.")
    feed = feed_of(project.home)
    place = feed.overview().projects[0]
    (project.path / "ralph").mkdir()
    tasks = project.path / "ralph" / "tasks.json"
    tasks.write_text("{")
    assert "not valid JSON" in feed.boards(place).problem
    tasks.write_text(
        json.dumps({"userStories": [{"id": [1], "reviewStatus": {"a": 1}, "reviewCount": "x"}, 3]})
    )
    (card,) = feed.boards(place).stories
    assert (card.id, card.lane) == ("[1]", "todo")
    tasks.unlink()
    assert feed.boards(place).stories == ()


def test_two_readers_at_once(world: World) -> None:
    """Screens share one connection from several threads."""
    feed = feed_of(world.home)
    problems: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(20):
                feed.boards(feed.overview().projects[0])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_the_checks_of_a_merge_are_listed(world: World) -> None:
    """A merge has no agent, but its checks on the merged tree are shown."""
    runs = world.home.runs()
    with closing(runs.db):
        merge = next(run for run in runs.of_task(world.webshop, "SHOP-1") if run.role == "merge")
        (only,) = detail(runs, merge).iterations
    assert (only.iteration, only.agent) == (0, "")
    assert [verdict.green for verdict in only.verdicts] == [True] * len(only.verdicts)
    assert "coder: external" in [verdict.check for verdict in only.verdicts]
