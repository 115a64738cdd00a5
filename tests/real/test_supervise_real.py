"""Real Claude and Codex under `ralph supervise`: a crash, a hang, a limit, and then DONE."""

from __future__ import annotations

import pytest

from conftest import Project
from ralph.store.bus import read, task_bus
from ralph.store.messages import BusMessage
from real.real_support import REAL, driven, ends, limits, turns

pytestmark = [*REAL, pytest.mark.parametrize("name", ["claude", "codex"])]

HANGS = {"claude": 3, "codex": 6}
"""The number of events before the hang, which include some text."""

RESETS_IN = 3


def test_the_agent_is_restarted_until_done(name: str, repository: Project) -> None:
    """A crash and a hang are failed attempts, a usage limit is waited for, and DONE completes the run."""
    script = turns(
        {"tools": [{"bash": "kill -9 $PPID; sleep 60"}]},
        {"text": "I begin.", "hang_after": HANGS[name]},
        {"usage_limit": {"resets_in": RESETS_IN}},
        {"text": "It is done, I say."},
        {"tools": [{"bash": 'touch "$TASK_FOLDER/DONE"'}]},
        {"text": "Now it is."},
    )
    folder = repository.path / "tasks" / "job"
    folder.mkdir(parents=True)
    settings = {
        "idleTimeoutSeconds": 5,
        "supervise": {"restartDelaySeconds": 0.1},
        "guard": {"enabled": False},  # it would not let the agent kill itself
    }
    with driven(name, repository, script, subscription=name == "claude", **settings) as (project, server):
        result = project.run("supervise", "tasks/job", "-p", "Do it.", "--json", timeout=180)
        assert result.code == 0, result.err
        ended = ends(result)
        assert ended == ["killed", "idle", "limit", "ok", "ok"]
        assert len(limits(result)) == 1
        assert [request.played for request in server.turns()][-3:] == [4, 5, 6]
    started = [line["iteration"] for line in result.lines() if line["event"] == "iteration_started"]
    assert started == [1, 2, 3, 3, 4], "a limit uses no attempt"
    told = [(m.type, m.body) for m in read(task_bus(folder)) if isinstance(m, BusMessage)]
    assert told[-1] == ("FACT", "task completed (DONE marker present, no active children)")
    assert ("WARNING", "attempt 2 failed: idle") in told
