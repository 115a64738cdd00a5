"""A store with many real runs of scripted agents, whose ids and times are then made the same every time."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.app import App
from textual.pilot import Pilot

from conftest import Project, wait_until
from ralph.commands.tui import make_app
from ralph.core.task_model import TaskStatus
from ralph.runs.location import here
from ralph.store.home import Home
from ralph.store.runs import process_start
from ralph.views.agent import ViewOptions
from ralph.views.tui.app import RalphApp
from ralph.views.tui.screen import Polled
from work_support import Site, external, make_site, task

NOW = 1_800_000_000.0
"""The time on the dashboard's clock: 2027-01-15 08:00 UTC."""

SIZES = [(80, 24), (120, 40), (200, 60)]
HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 [red]markup[/red] \u202edlrow \x00 [@click=app.quit]here[/]"


# ---- an agent that prints the stream of Claude Code ----


def says(text: str) -> str:
    return _message([{"type": "text", "text": text}])


def calls(id: str, name: str, **given: Any) -> str:
    return _message([{"type": "tool_use", "id": id, "name": name, "input": given}])


def answers(id: str, text: str, *, is_error: bool = False) -> str:
    content = [{"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}]
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}})


def plans(id: str, **items: str) -> str:
    todos = [{"content": text.replace("_", " "), "status": status} for text, status in items.items()]
    return calls(id, "TodoWrite", todos=todos) + "\n" + answers(id, "Todos have been modified.")


def ends(text: str, cost: float, tokens: int) -> str:
    usage = {"input_tokens": tokens, "output_tokens": tokens // 20, "cache_read_input_tokens": 3 * tokens}
    used = {
        "inputTokens": tokens,
        "outputTokens": tokens // 20,
        "cacheReadInputTokens": 3 * tokens,
        "costUSD": cost,
    }
    about = {
        "is_error": False,
        "result": text,
        "total_cost_usd": cost,
        "modelUsage": {"claude-opus-5-5": used},
    }
    return json.dumps({"type": "result", "subtype": "success", "usage": usage} | about)


def limited(until: float) -> str:
    about = {"status": "rejected", "resetsAt": int(until), "rateLimitType": "five_hour"}
    refusal = {"type": "rate_limit_event", "rate_limit_info": about}
    last = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429}
    return (
        json.dumps(refusal)
        + "\n"
        + json.dumps(last | {"result": "You've hit your session limit", "usage": {}})
    )


def _message(content: list[dict[str, Any]]) -> str:
    number = content[0].get("id", "msg")
    message = {
        "id": f"m{number}",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": content,
        "usage": {},
    }
    return json.dumps({"type": "assistant", "message": message})


BEGINS = json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "claude-opus-5-5"})


@dataclass(frozen=True)
class Place:
    """A project in the user's home directory, with its scripted agent."""

    project: Project

    def agent(
        self, *turns: tuple[list[str], str], checks: tuple[str, ...] = (), kind: str = "claude", **more: Any
    ) -> None:
        """Set the output and the shell script of each iteration; the last turn repeats."""
        outside = self.project.home.path / "agents" / self.project.path.name
        shutil.rmtree(outside, ignore_errors=True)
        outside.mkdir(parents=True)
        for number, (lines, script) in enumerate(turns, 1):
            (outside / f"{number}.ndjson").write_text(
                "\n".join([BEGINS, *lines]) + "\n" if kind == "claude" else "\n".join(lines) + "\n"
            )
            (outside / f"{number}.sh").write_text(script + "\n")
        body = f"n=$RALPH_ITERATION; [ -f {outside}/$n.sh ] || n={len(turns)}\n. {outside}/$n.sh\ncat {outside}/$n.ndjson\n"
        command = outside / ("claude" if kind == "claude" else "agent")
        command.write_text(
            f'#!/bin/sh\n{body}[ -z "$WAITS" ] || {{ touch {outside}/waits; while :; do sleep 0.1; done; }}\n'
        )
        command.chmod(0o755)
        guardrails = [{"command": check} for check in checks]
        self.project.settings(
            **{"agent": {"command": command.name, "type": kind}, "guardrails": guardrails} | more
        )

    @property
    def waits(self) -> bool:
        """Whether the agent has reached the turn that hangs."""
        return (self.project.home.path / "agents" / self.project.path.name / "waits").exists()

    def killed(self, *arguments: str) -> None:
        """Start ralph, wait until its agent hangs, and kill it."""
        process = self.project.start(*arguments)
        try:
            wait_until(lambda: self.waits or process.poll() is not None)
            time.sleep(0.2)
        finally:
            process.kill()
            process.communicate(timeout=30)


HANGS = "WAITS=1"


@dataclass
class World:
    """A user's home directory and the store of all runs in it. `ids`: the id of each run by name."""

    base: Path
    home: Home
    ids: dict[str, str] = field(default_factory=dict)

    def place(self, name: str, *, is_repository: bool = True) -> Place:
        path = self.base / "ada" / name
        path.mkdir(parents=True)
        agents = f"{self.home.path / 'agents' / path.name}:{os.environ['PATH']}"
        project = Project(path, self.home, {"HOME": str(self.base / "ada"), "TZ": "UTC", "PATH": agents})
        if is_repository:
            (path / "README.md").write_text(f"# {name}\n")
            (path / ".gitignore").write_text(".ralph/\n")
            project.git("init", "-q", "-b", "main")
            project.git("add", "-A")
            project.git("commit", "-q", "-m", "First")
        return Place(project)

    def newest(self, name: str) -> None:
        """Give the newest run this name."""
        with closing(sqlite3.connect(self.home.database)) as db:
            (self.ids[name],) = db.execute("SELECT id FROM runs ORDER BY rowid DESC LIMIT 1").fetchone()

    @property
    def webshop(self) -> str:
        return here(self.base / "ada" / "webshop").project

    def app(self, *, theme: str = "dark", first: tuple[str, ...] = (), emoji: bool = True) -> RalphApp:
        """The dashboard as started in the webshop."""
        return make_app(
            self.home, ViewOptions(), lambda: NOW, emoji=emoji, theme=theme, project=self.webshop, first=first
        )


def make_world(base: Path) -> World:
    """Make all kinds of runs, tasks and stories."""
    state = base / "ada" / ".local" / "state" / "ralph"
    state.mkdir(parents=True)
    world = World(base, Home(state))
    for make in (_complete, _limit, _stories, _tasks, _crashed, _waiting, _children, _running):
        make(world)
    Normal(world).write()
    return world


def _complete(world: World) -> None:
    """A claim that a check refutes, then one that passes."""
    place = world.place("greeter")
    check = place.project.script(
        "check.sh",
        'test "$(sh greet.sh)" = "Hello, Ada!" || { echo "expected: Hello, Ada!"; echo "got:      $(sh greet.sh)"; exit 1; }',
    )
    place.project.git("add", "-A")
    place.project.git("commit", "-q", "-m", "A check")
    first = [
        says("I'll write a first version of greet.sh."),
        calls("t1", "Write", file_path="greet.sh", content="echo Hello, Ada"),
        answers("t1", "File created successfully at: greet.sh"),
        says("That should work. <response>DONE</response>"),
        ends("That should work. <response>DONE</response>", 0.11, 21_400),
    ]
    second = [
        says("The check says the exclamation mark is missing. Adding it."),
        calls("t2", "Edit", file_path="greet.sh", old_string="Ada", new_string="Ada!"),
        answers("t2", "The file greet.sh has been updated."),
        calls("t3", "Bash", command="sh ./check.sh"),
        answers("t3", "ok"),
        says("The greeting is correct now. <response>DONE</response>"),
        ends("The greeting is correct now. <response>DONE</response>", 0.14, 30_100),
    ]
    place.agent(
        (first, "echo 'echo Hello, Ada' > greet.sh"),
        (second, "echo 'echo Hello, Ada!' > greet.sh"),
        checks=("./check.sh",),
    )
    assert Path(check).exists()
    result = place.project.run("run", "-p", "Greet Ada.", "-m", "5")
    assert result.code == 0, result
    world.newest("complete")


def _limit(world: World) -> None:
    """An agent that never says it is done and prints hostile text."""
    place = world.place("blog")
    place.agent(
        ([HOSTILE, "Reading the posts."], "true"), checks=(f"echo '{HOSTILE[:20]}'; false",), kind="custom"
    )
    assert place.project.run("run", "-p", "Fix the feed.", "-m", "2").code == 1
    world.newest("limit")


def _stories(world: World) -> None:
    import prd_support

    path = world.base / "ada" / "notes"
    path.mkdir(parents=True)
    project = Project(path, world.home, {"HOME": str(world.base / "ada"), "TZ": "UTC"})
    titles = (
        "Notes can be written",
        "Notes can be searched",
        "Notes have tags",
        "Notes are synced",
        "Notes are exported as Markdown",
    )
    found = [prd_support.story(f"US-{n:03d}", title=title, priority=n) for n, title in enumerate(titles, 1)]
    found[2] |= {
        "reviewStatus": "changes_requested",
        "reviewCount": 2,
        "reviewFeedback": "Tags are lost when a note is renamed.",
        "notes": "first try",
    }
    loop = prd_support.make_loop(project, *found)
    loop.agent("change(priority=0) if mode == 'review-fix' else None\nplay()")
    assert loop.run("-n", "4").code == 1
    world.newest("prd")


def _tasks(world: World) -> None:
    """One task is verified and merged, one fails, one is with its coder, others wait."""
    path = world.base / "ada" / "webshop"
    path.mkdir(parents=True)
    project = Project(path, world.home, {"HOME": str(world.base / "ada"), "TZ": "UTC"})
    site = make_site(project)
    titles = {
        "SHOP-1": "The sum of a basket is right",
        "SHOP-2": "A basket survives a restart",
        "SHOP-3": "Prices in other currencies",
    }
    more = {
        "SHOP-4": "Orders can be cancelled",
        "SHOP-5": "Invoices as PDF",
        "SHOP-6": "A discount for regulars",
        "SHOP-7": "Two-factor login",
    }
    for id, title in titles.items():
        site.add(replace(task(id, coder=external("python3 check.py")), title=title))
    for id, title in more.items():
        site.add(
            replace(
                task(
                    id, coder=external("python3 check.py"), dependencies=("SHOP-3",) if id == "SHOP-5" else ()
                ),
                title=title,
            )
        )
    body = f"""
case $RALPH_TASK_ID.$RALPH_ROLE.$RALPH_ITERATION in
SHOP-1.coder.1) echo "I think I am done."; promise CODED;;
SHOP-2.coder.*) echo "I cannot find the basket."; promise CODED;;
SHOP-3.coder.3) echo "Now the rates."; touch {site.outside}/waits; while :; do sleep 0.1; done;;
SHOP-3.coder.*) echo "Not yet.";;
*.coder.*) sed -i 's/a - b/a + b/' calc.py; promise CODED;;
*.reviewer.*) promise REVIEW_PASSED;;
*.tester.*) promise TESTS_PASSED;;
*.qa.*) promise QA_PASSED;;
esac
"""
    site.agents(body, ralph={"agents": {"coder": {"maxIterations": 4}}})
    _worked(site, "SHOP-1", 0)
    site.project.git("revert", "--no-edit", "HEAD")
    _worked(site, "SHOP-2", 1)
    process = project.start("work", "--task", "SHOP-3")
    wait_until(lambda: (site.outside / "waits").exists() or process.poll() is not None)
    time.sleep(0.2)
    process.kill()
    process.communicate(timeout=30)
    world.newest("task")
    tasks = site.tasks
    with closing(tasks.db):
        tasks.move("SHOP-4", TaskStatus.REVIEWING, tasks.progress("SHOP-4"), 3)
        tasks.move("SHOP-5", TaskStatus.BLOCKED, tasks.progress("SHOP-5"))
        tasks.move("SHOP-7", TaskStatus.CANCELLED, tasks.progress("SHOP-7"), 2)


def _worked(site: Site, id: str, code: int) -> None:
    result = site.work("--task", id)
    assert result.code == code, result


def _crashed(world: World) -> None:
    place = world.place("weather", is_repository=False)
    place.agent(([says("Fetching the forecast.")], HANGS), snapshots=False)
    place.killed("run", "-p", "Show the forecast.", "-m", "8")
    world.newest("crashed")


def _waiting(world: World) -> None:
    """A run that waits for a usage limit to reset."""
    place = world.place("compiler", is_repository=False)
    done = [says("The parser is half done."), ends("The parser is half done.", 1.9, 310_000)]
    place.agent((done, "true"), ([limited(time.time() + 3600)], "true"), snapshots=False)
    process = place.project.start("run", "-p", "Write the parser.", "-m", "20")
    wait_until(lambda: '"state": "waiting"' in place.project.run("status", "--json").out, seconds=60)
    process.kill()
    process.communicate(timeout=30)
    world.newest("waiting")


def _children(world: World) -> None:
    """An agent that starts another run."""
    place = world.place("orchard", is_repository=False)
    below = world.place("orchard/apples", is_repository=False)
    below.agent((["<response>DONE</response>"], "true"), kind="custom", snapshots=False)
    ralph = f"{sys.executable} -m ralph"
    path = below.project.env["PATH"]
    starts = f"unset WAITS; (cd apples && PATH={path} {ralph} run -p 'Pick the apples.' -m 3 >/dev/null 2>&1); {HANGS}"
    place.agent(([says("The apples come first.")], starts), snapshots=False)
    place.killed("run", "-p", "Harvest.", "-m", "6")
    world.newest("child")
    with closing(sqlite3.connect(world.home.database)) as db:
        (world.ids["parent"],) = db.execute(
            "SELECT parent FROM runs WHERE id = ?", (world.ids["child"],)
        ).fetchone()


def _running(world: World) -> None:
    """A run in its second iteration, in the middle of a command."""
    place = world.place("tracker")
    place.project.script("check.sh", "echo '2 failed, 41 passed'; exit 1")
    first = [
        plans("t1", Read_the_failing_tests="in_progress", Fix_the_parser="pending", Run_all_tests="pending"),
        calls("t2", "Bash", command="pytest -q tests/test_parser.py"),
        answers(
            "t2",
            "FAILED tests/test_parser.py::test_empty\nFAILED tests/test_parser.py::test_nested\n2 failed, 41 passed",
            is_error=True,
        ),
        says("Both failures are in the parser. I'll fix it next."),
        ends("Both failures are in the parser.", 0.42, 88_000),
    ]
    second = [
        says("Continuing with the failing tests."),
        plans(
            "t3",
            Read_the_failing_tests="completed",
            Fix_the_parser="in_progress",
            Run_all_tests="pending",
            Explain_the_cause="pending",
        ),
        calls("t4", "Read", file_path="src/tracker/parser.py"),
        answers(
            "t4",
            "def parse(text):\n    depth = 0\n    for line in text.splitlines():\n        depth += line.count('(')\n    return depth",
        ),
        calls(
            "t5", "Edit", file_path="src/tracker/parser.py", old_string="depth = 0", new_string="depth = 1"
        ),
        answers("t5", "The file src/tracker/parser.py has been updated."),
        calls("t6", "Bash", command="pytest -q tests/test_parser.py -k nested"),
    ]
    writes = "mkdir -p src/tracker; echo 'def parse(text):' > src/tracker/parser.py; echo '    return 0' >> src/tracker/parser.py"
    place.agent((first, writes), (second, HANGS), checks=("./check.sh",))
    place.killed("run", "-p", "Make the tests pass.", "-m", "10")
    world.newest("running")


# ---- fixed ids and times ----

LIVE = ("running", "waiting", "task", "parent")
"""Runs that were killed midway, leaving no processes, and are shown as if still running."""

_TIMES = {"at", "now", "limited_since", "unstartable_since"}
_SPANS = {"took"}


@dataclass
class Normal:
    """Gives the runs fixed ids and times in the store, in file names and in snapshot names."""

    world: World

    def write(self) -> None:
        with closing(sqlite3.connect(self.world.home.database)) as db:
            runs = db.execute("SELECT id, parent FROM runs ORDER BY rowid").fetchall()
            ids = {
                old: f"20270115-0{number // 6}{number % 6}000-{0xA000 + 0x111 * number:04x}"
                for number, (old, _) in enumerate(runs)
            }
            for number, (old, parent) in enumerate(runs):
                self._run(db, old, ids[old], ids.get(parent), NOW - 600.0 * (len(runs) - number) - 40)
            self._tasks(db, ids)
            db.commit()
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.world.ids = {name: ids[old] for name, old in self.world.ids.items()}
        self._live()
        for old, new in ids.items():
            streams = self.world.home.streams(old)
            if streams.exists():
                streams.rename(self.world.home.streams(new))
        self._refs(ids)

    def _run(self, db: sqlite3.Connection, old: str, new: str, parent: str | None, began: float) -> None:
        db.execute(
            "UPDATE runs SET id = ?, parent = ?, created = ?, pid = NULL, pid_start = NULL WHERE id = ?",
            (new, parent, began, old),
        )
        rows = db.execute(
            "SELECT seq, body, result, state, ended FROM journal WHERE run = ? ORDER BY seq", (old,)
        ).fetchall()
        elapsed = 0.0
        for seq, body, result, state, ended in rows:
            at = began + 12.0 * seq
            elapsed += 8.0 if result else 0.0
            texts = [self._text(text, old, new, at + 8.0, elapsed) for text in (body, result, state)]
            db.execute(
                "UPDATE journal SET run = ?, body = ?, result = ?, state = ?, started = ?, ended = ? WHERE run = ? AND seq = ?",
                (new, *texts, at, at + 8.0 if ended else None, old, seq),
            )
        db.execute("UPDATE commands SET run = ? WHERE run = ?", (new, old))

    def _text(self, text: str | None, old: str, new: str, at: float, elapsed: float) -> str | None:
        if text is None:
            return None
        return json.dumps(_changed(json.loads(text.replace(old, new)), at, elapsed))

    def _tasks(self, db: sqlite3.Connection, ids: dict[str, str]) -> None:
        for rowid, progress in db.execute("SELECT rowid, progress FROM tasks").fetchall():
            values = json.loads(progress) if progress else {}
            values |= {
                name: "c0ffee" * 6 + "c0de" for name in ("began", "trusted", "merged") if values.get(name)
            }
            values["after"] = ids.get(values.get("after", ""), "")
            db.execute(
                "UPDATE tasks SET progress = ?, created_at = ?, updated_at = ? WHERE rowid = ?",
                (json.dumps(values) if progress else None, NOW - 86400, NOW - 300, rowid),
            )

    def _live(self) -> None:
        """Use the process of the tests as theirs."""
        with closing(sqlite3.connect(self.world.home.database)) as db:
            for name in LIVE:
                mine = (os.getpid(), process_start(os.getpid()), self.world.ids[name])
                db.execute("UPDATE runs SET pid = ?, pid_start = ? WHERE id = ?", mine)
            dead = (99_999_999, "gone", self.world.ids["crashed"])
            db.execute("UPDATE runs SET pid = ?, pid_start = ? WHERE id = ?", dead)
            db.commit()

    def _refs(self, ids: dict[str, str]) -> None:
        for path in (self.world.base / "ada").iterdir():
            project = Project(path, self.world.home)
            if (path / ".git").exists():
                for line in project.git(
                    "for-each-ref", "--format=%(objectname) %(refname)", "refs/ralph/"
                ).splitlines():
                    commit, _, ref = line.partition(" ")
                    run = ref.split("/")[2]
                    project.git("update-ref", ref.replace(run, ids[run]), commit)


def _changed(value: Any, at: float, elapsed: float) -> Any:
    if isinstance(value, list):
        return [_changed(each, at, elapsed) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, inner in value.items():
        if key in _TIMES and isinstance(inner, int | float):
            inner = at
        elif key in _SPANS and isinstance(inner, int | float):
            inner = 8.0
        elif key == "elapsed" and isinstance(inner, int | float):
            inner = elapsed
        elif key in ("until", "retry_at") and isinstance(inner, int | float):
            inner = NOW + 2520.0
        elif key == "limited":
            inner = [[name, NOW + 2520.0] for name, _ in inner]
        else:
            inner = _changed(inner, at, elapsed)
        found[key] = inner
    return found


def settle_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the dashboard: the user's home, UTC, with colours."""
    monkeypatch.setenv("HOME", str(world.base / "ada"))
    monkeypatch.setenv("RALPH_STATE_DIR", str(world.home.path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


async def settle(pilot: Pilot[None]) -> None:
    """Wait until the screen has stopped changing."""
    app, seen = pilot.app, [""]
    looked = [screen.looks for screen in app.screen_stack if isinstance(screen, Polled)]
    while len(seen) < 4 or len(set(seen[-4:])) > 1 or looked[-1:] == [0]:
        await app.workers.wait_for_complete()
        await pilot.pause(0.05)
        looked = [screen.looks for screen in app.screen_stack if isinstance(screen, Polled)]
        seen.append(_picture(app))


async def until(pilot: Pilot[None], condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for a condition while the app keeps running."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        await pilot.pause(0.05)
    raise AssertionError(f"not true within {seconds} s; the screen:\n{screen_text(pilot.app)}")


def _picture(app: App[Any]) -> str:
    """The screen with its colours: a scrollbar is visible only by colour."""
    return repr([list(strip) for strip in app.screen._compositor.render_strips()])


def screen_text(app: App[Any]) -> str:
    """The text on the screen."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines)
