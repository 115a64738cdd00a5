"""The adapters, with fake peers as real processes: outcomes, leftovers, missing programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents import project
from bench.agents.families import FAMILIES
from bench.agents.model import Agent, Shape
from bench.harness import ralph_tui, ralphy
from bench.harness.base import Finished, Harness
from bench.harness.ralph import OURS, unchanged
from bench.harness.registry import HARNESSES

from bench import arena, truth
from conftest import some, wait_until
from ralph.process.client import Wakeup, Warden

AT_ONCE = FAMILIES["honest and done"][0]
NOT_DONE = FAMILIES["honest and not done"][0]

PEERS: dict[str, tuple[str, str, str]] = {
    "ralphy": (f"ralphy-cli-{ralphy.VERSION}", "ralphy", "echo '[OK] All tasks completed!'"),
    "ralph-tui": (f"ralph-tui-{ralph_tui.VERSION}", "ralph-tui", "echo '  Tasks:     1/1 completed'"),
}


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden(Wakeup()) as found:
        yield found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache into which nothing can be installed."""
    monkeypatch.setenv("RALPH_BENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("RALPH_BENCH_INSTALL", "0")
    return tmp_path


def fake(cache: Path, name: str, body: str) -> Harness:
    """Install a peer that is a shell script."""
    folder, program, _ = PEERS[name]
    script = cache / folder / "node_modules" / ".bin" / program
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    (cache / folder / ".complete").touch()
    return HARNESSES[name]


@pytest.mark.parametrize("name", PEERS)
def test_a_peers_report_is_recorded_as_its_own(warden: Warden, cache: Path, name: str) -> None:
    """The peer's report and the oracle are independent: the same report is true with one agent, false with another."""
    peer = fake(cache, name, f"claude -p 'do it' >/dev/null; {PEERS[name][2]}")
    told = {}
    for agent in (AT_ONCE, NOT_DONE):
        row = truth.judge(peer, agent, Shape.CLAUDE, arena.run(warden, peer, agent, Shape.CLAUDE))
        told[agent.name] = (row.complete, row.done, row.false, row.starts)
    assert told == {AT_ONCE.name: (True, True, False, 1), NOT_DONE.name: (True, False, True, 1)}


@pytest.mark.parametrize(
    ("name", "code", "out", "complete"),
    [
        ("ralph", 0, "", True),
        ("ralph", 1, "", False),
        ("ralph", 3, "", False),
        ("ralphy", 0, "[OK] All tasks completed!", True),
        ("ralphy", 0, "Completed: 0\nFailed: 1", False),
        ("ralphy", 1, "[OK] All tasks completed!", False),
        ("ralph-tui", 0, "  Status:   COMPLETED\n  Tasks:      1/1 completed\n", True),
        ("ralph-tui", 0, "  Status:   INTERRUPTED\n  Tasks:      0/1 completed\n", False),
        ("ralph-tui", 0, "", False),
        ("tag-grep", 0, "complete", True),
        ("tag-grep", 1, "", False),
        ("while", 1, "", False),
    ],
)
def test_outcomes_are_read_as_documented(
    tmp_path: Path, name: str, code: int, out: str, complete: bool
) -> None:
    """The outcome is the exit code where it is meaningful, otherwise the text of the summary."""
    assert HARNESSES[name].is_complete(Finished(code, out, "", tmp_path)) is complete


@pytest.mark.parametrize(
    ("name", "code", "out", "asks"),
    [
        ("ralph", 3, "Waiting: old tests fail", True),
        ("ralph", 3, "Waiting until 14:00", False),
        ("ralph", 1, "old tests fail", False),
        ("ralphy", 3, "old tests", False),
    ],
)
def test_only_ours_leaves_changed_tests_to_the_user(
    tmp_path: Path, name: str, code: int, out: str, asks: bool
) -> None:
    """It says so by its exit code and its outcome."""
    assert HARNESSES[name].asks(Finished(code, out, "", tmp_path)) is asks


def test_a_missing_harness_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing harness has a reason and no row."""
    monkeypatch.setenv("PATH", str(cache))
    names = ["ralphy", "ralph-tui", "ralph-go", "ralph-orchestrator"]
    report = truth.measure(names, [AT_ONCE])
    assert report.rows == []
    assert [absent.harness for absent in report.absent] == names
    assert all(absent.reason for absent in report.absent)


def test_leftovers_of_a_harness_are_counted_and_killed(warden: Warden, cache: Path, tmp_path: Path) -> None:
    """An orphan is counted, and is gone after the run."""
    pid_file = tmp_path / "pid"
    leave = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' >/dev/null 2>&1 &"
    peer = fake(cache, "ralphy", f"{leave}\nwhile [ ! -s {pid_file} ]; do sleep 0.01; done")
    trial = arena.run(warden, peer, AT_ONCE, Shape.PLAIN)
    assert trial.orphans == ("sleep 60",)
    wait_until(lambda: not Path(f"/proc/{pid_file.read_text().strip()}").exists())


def test_an_agent_that_outlives_the_sweep_is_identified_by_its_start(tmp_path: Path) -> None:
    """A recorded process that is still alive is killed and reported; a process with a reused pid is left alone."""
    with subprocess.Popen(["sleep", "60"]) as process:
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        record = {"kind": "work", "pid": process.pid}
        lines = [json.dumps(record | {"start": start}) for start in (1, int(ticks))]
        (tmp_path / "starts").write_text("\n".join(lines))
        assert arena.end_survivors(tmp_path) == [f"agent {process.pid} (work)"]
        assert process.wait(10) == -signal.SIGKILL


def test_a_harness_that_never_exits_is_hung(
    warden: Warden, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has a time limit, and a hang is not a completion."""
    monkeypatch.setattr(arena, "PATIENCE", 0.5)
    peer = fake(cache, "ralphy", f"{PEERS['ralphy'][2]}; sleep 60")
    trial = arena.run(warden, peer, AT_ONCE, Shape.PLAIN)
    assert (trial.hung, trial.complete) == (True, False)


def test_a_harness_cannot_see_the_users_environment(
    warden: Warden, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment has a separate home, no network, and none of our variables."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    peer = fake(cache, "ralphy", "env; echo HOME $HOME")
    out = arena.run(warden, peer, AT_ONCE, Shape.PLAIN).finished.out
    assert "SOME_API_KEY" not in out
    assert f"HOME {Path.home()}\n" not in out
    assert "HTTPS_PROXY=http://127.0.0.1:9" in out


@pytest.mark.parametrize("shape", some(Shape, 1))
@pytest.mark.parametrize("agent", [AT_ONCE, NOT_DONE], ids=lambda agent: str(agent.name))
@pytest.mark.parametrize("name", ["tag-grep", "while"])
def test_the_floors_behave_like_common_loops(warden: Warden, name: str, agent: Agent, shape: Shape) -> None:
    """The bare loop never completes; the other one accepts the tag, even in codex's echo of the prompt."""
    trial = arena.run(warden, HARNESSES[name], agent, shape, limit=2)
    believes = name == "tag-grep" and (agent is AT_ONCE or shape is Shape.CODEX)
    assert trial.complete is believes
    assert trial.starts["work"] == (1 if believes else 2)


def test_our_second_guardrail_protects_the_tests() -> None:
    """It passes as long as no kept file is changed or removed and no file is added."""
    with arena.place() as where:
        job = arena.prepare(where, OURS, AT_ONCE, Shape.PLAIN, 5)

        def is_green() -> bool:
            done = subprocess.run(["sh", "-c", unchanged(job)], cwd=where.project, capture_output=True)
            return done.returncode == 0

        assert is_green()
        (where.project / "tests" / "more_test.sh").write_text("exit 0\n")
        assert not is_green()
        (where.project / "tests" / "more_test.sh").unlink()
        for name in project.KEPT:
            text = (where.project / name).read_text()
            (where.project / name).write_text("exit 0\n")
            assert not is_green(), name
            (where.project / name).write_text(text)
        assert is_green()
