"""Watch and steer runs from another terminal: status, cancel, pause, resume, steer, config, completion, demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
import pytest

from conftest import RALPH, Project, Recorded, wait_until
from ralph.cli import main, make_group
from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    Did,
    Ended,
    Flow,
    Limits,
    Look,
    Plan,
    PromptSource,
    Ran,
    Result,
    RunAgent,
    Seen,
    Step,
    Stop,
    Usage,
)
from ralph.settings import Settings
from ralph.store.journal import Journal
from ralph.views.status import Summary, summaries

TAG = "<response>DONE</response>"
WAIT = (
    "echo x >> starts; while [ ! -f go.$RALPH_ITERATION ] && [ ! -f go ]; do sleep 0.02; done; echo working"
)
"""An agent that works until the test lets it continue: `go.N` for one iteration, `go` for all."""


def starts(project: Project) -> int:
    path = project.path / "starts"
    return len(path.read_text().split()) if path.exists() else 0


def prompt(project: Project, iteration: int) -> str:
    return (project.path / f".ralph/prompt_{iteration:03d}.txt").read_text()


def all_runs(project: Project) -> list[Summary]:
    """The list of `ralph status`, without a separate process."""
    runs = project.home.runs()
    with closing(runs.db):
        return summaries(runs)


def only(project: Project) -> Summary:
    """The only run."""
    (run,) = all_runs(project)
    return run


def wait_for(project: Project, state: str) -> None:
    wait_until(lambda: only(project).state == state)


def wait_for_starts(project: Project, number: int) -> None:
    wait_until(lambda: starts(project) == number)


@contextmanager
def live(project: Project, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A live run in its first iteration; it is stopped with the test."""
    process = project.start("run", "-p", "The work.", *arguments)
    try:
        wait_until(lambda: starts(project) or process.poll() is not None)
        yield process, all_runs(project)[0].id
    finally:
        (project.path / "go").touch()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def crashed(project: Project, *arguments: str) -> str:
    """A run whose ralph was killed in its first iteration."""
    process = project.start("run", "-p", "The work.", *arguments)
    wait_until(lambda: starts(project))
    process.kill()
    process.communicate(timeout=30)
    return all_runs(project)[0].id


def ended(project: Project, limits: Limits, ran: Ran) -> str:
    """A finished run in the store, as if its agent had done this in each iteration."""
    agent = project.script("agent.sh", "echo x >> starts")

    def plan(run: str) -> Plan:
        spec = AgentSpec(agent, "custom", agent)
        return Plan(
            run, Flow.RUN, str(project.path), (spec,), PromptSource("x"), limits=limits, snapshots=False
        )

    runs = project.home.runs()
    with closing(runs.db):
        run = runs.create(plan(""), str(project.path), str(project.path))
        state, journal = machine.start(plan(run.id), run.created), Journal(runs.db, runs.path, run.id)
        results: dict[type, Result] = {Look: Seen(run.created), RunAgent: ran, Stop: Did(run.created)}
        step: Step | None = None
        while not isinstance(step, Stop):
            step = machine.next_step(state)
            journal.begin(step, run.created)
            state = machine.apply(state, results[type(step)])
            journal.complete(step, results[type(step)], state)
        journal.flush()
        runs.let_go(run.id)
        return run.id


ITERATIONS = Limits(iterations=2), Ran(0.0, Ended.OK)
COST = Limits(iterations=3, cost_usd=1.0), Ran(0.0, Ended.OK, usage=Usage(cost_usd=1.5))
TOKENS = (
    Limits(iterations=3, tokens=1000),
    Ran(0.0, Ended.OK, usage=Usage(input_tokens=1000, output_tokens=200)),
)
MANY_TOKENS = Limits(iterations=3, tokens=1000), Ran(0.0, Ended.OK, usage=Usage(input_tokens=1_234_567))
DURATION = Limits(iterations=3, seconds=60.0), Ran(0.0, Ended.OK, took=90.0)
COMPLETE = Limits(), Ran(0.0, Ended.OK, claim=True)


# ---- status ----


def test_status_without_runs(project: Project) -> None:
    """An empty store is not an error: an empty list, and how to start."""
    result = project.run("status")
    assert (result.code, result.out, result.err) == (0, "", 'No runs yet. Start one with: ralph run -p "…"\n')
    assert project.run("status", "--json").out == "[]\n"


def test_status_as_json(project: Project) -> None:
    """Every run is an object with the documented fields."""
    project.agent("true")
    project.run("run", "-p", "x", "-m", "2")
    (run,) = project.status()
    assert list(run) == [
        "id",
        "project",
        "directory",
        "flow",
        "state",
        "outcome",
        "cause",
        "reason",
        "notes",
        "iteration",
        "max_iterations",
        "cost",
        "tokens",
        "elapsed",
        "waiting_until",
        "created",
        "updated",
        "pid",
        "parent",
        "task",
        "role",
        "tree",
    ]
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run["id"])
    fixed = {
        "project": str(project.path),
        "directory": str(project.path),
        "flow": "run",
        "state": "ended",
        "outcome": "limit",
        "cause": "iterations",
        "reason": "2 of 2 iterations used; last result: the agent printed nothing",
        "notes": [],
        "iteration": 2,
        "max_iterations": 2,
        "cost": 0.0,
        "tokens": 0,
        "waiting_until": None,
        "pid": None,
        "parent": None,
    }
    assert {key: run[key] for key in fixed} == fixed
    assert run["elapsed"] >= 0 and run["created"] <= run["updated"] <= time.time()


def test_status_shows_all_projects_live_ones_first(project: Project, tmp_path: Path) -> None:
    """Runs in all directories, the live one first although it is the oldest."""
    project.agent(WAIT)
    with live(project) as (process, first):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            ended(Project(tmp_path / name, project.home), *ITERATIONS)
        runs = project.status()
        assert [Path(run["directory"]).name for run in runs] == ["project", "two", "one"]
        assert (runs[0]["id"], runs[0]["state"], runs[0]["outcome"]) == (first, "running", None)
        assert runs[0]["pid"] == process.pid
        table = project.run("status").out.splitlines()
        assert table[0].split() == ["run", "state", "iteration", "time", "cost", "started", "directory"]
        states = [re.split(" {2,}", line)[1] for line in table[1:]]
        assert states == ["running", "limit (iterations)", "limit (iterations)"]


def test_status_of_one_run(project: Project) -> None:
    """In detail: how each iteration ended, each verdict, and the guidance it got."""
    project.agent(
        f"touch done.$RALPH_ITERATION; echo '{TAG}'",
        guardrails=[{"command": "true"}, {"command": "test -f done.2"}],
    )
    project.run("run", "-p", "Make it so", "-m", "3")
    run = only(project).id
    shown = re.sub(r"\d+\.\ds", "N", project.run("status", run).out)
    assert shown.splitlines() == [
        f"run        {run} (run, started N ago)",
        "state      Done: all checks passed",
        f"directory  {project.path}",
        f"agent      {project.path}/agent.sh",
        "sandbox    none",
        "prompt     Make it so",
        "guardrails true, test -f done.2",
        "iterations 2 of 3, N",
        "    1  agent ok, N, said it was done",
        "       passed  true (exit code 0)",
        "       failed  test -f done.2 (exit code 1)",
        "    2  agent ok, N, said it was done",
        "       passed  true (exit code 0)",
        "       passed  test -f done.2 (exit code 0)",
    ]
    one = json.loads(project.run("status", run, "--json").out)
    assert (one["id"], one["outcome"], one["checks"]) == (run, "complete", ["true", "test -f done.2"])
    assert [
        (i["iteration"], i["ended"], i["exit"], i["claim"], [v["green"] for v in i["verdicts"]])
        for i in one["iterations"]
    ] == [(1, "ok", 0, True, [True, False]), (2, "ok", 0, True, [True, True])]


def test_status_of_a_live_run_shows_what_it_is_doing(project: Project) -> None:
    """The process and the current step."""
    project.agent(WAIT)
    with live(project) as (process, run):
        shown = project.run("status", run).out
        assert re.search(
            rf"state +running \(process {process.pid}; agent running since \d\d:\d\d:\d\d\)", shown
        )


def test_a_run_is_found_by_a_unique_prefix_or_suffix(project: Project) -> None:
    """A prefix or suffix is enough if it matches only one run."""
    first = ended(project, *ITERATIONS)
    assert json.loads(project.run("status", first[:8], "--json").out)["id"] == first
    ended(project, *ITERATIONS)
    several = project.run("status", first[:4])
    assert (several.code, "matches several runs" in several.err, first in several.err) == (2, True, True)
    none = project.run("status", "%")
    assert (none.code, none.err.splitlines()) == (
        2,
        ["ralph: error: There is no run '%'.", "  To list the runs: ralph status"],
    )


def test_a_killed_run_is_shown_as_crashed(project: Project) -> None:
    """A run whose ralph was killed is distinguished from a live and from a finished one."""
    project.agent(WAIT)
    run = crashed(project)
    (found,) = project.status()
    assert (found["id"], found["state"], found["outcome"], found["pid"]) == (run, "crashed", None, None)
    assert f"to continue: ralph resume {run}" in project.run("status", run).out


# ---- cancel ----


def test_cancel_stops_a_live_run_and_its_processes(project: Project) -> None:
    """From another terminal: the agent and what it started are gone, exit 130, state interrupted."""
    project.agent("sleep 300 & echo $! >> pids; echo $$ >> pids; echo x >> starts; wait")
    with live(project) as (process, run):
        result = project.run("cancel", run[-4:])
        assert (result.code, result.err.splitlines()[-1]) == (0, f"Run {run} cancelled.")
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.splitlines()[0] == "Stopped by `ralph cancel`"
    assert Recorded(project.path / "pids").alive() == []
    assert (only(project).outcome, only(project).cause, only(project).iteration) == (
        "interrupted",
        "cancelled",
        0,
    )


def test_cancel_of_a_killed_run(project: Project) -> None:
    """No process drives it any more, so only its state changes."""
    project.agent(WAIT)
    run = crashed(project)
    result = project.run("cancel", run)
    assert (result.code, result.err) == (0, f"Run {run} cancelled; no process was running it.\n")
    assert only(project).cause == "cancelled"


def test_cancel_of_a_finished_run(project: Project) -> None:
    """There is nothing to cancel: exit 2, with its outcome."""
    run = ended(project, *ITERATIONS)
    result = project.run("cancel", run)
    assert (result.code, result.err) == (2, f"ralph: error: Run {run} has already stopped: limit.\n")


def test_a_cancelled_run_can_be_resumed(project: Project) -> None:
    """The interrupted iteration is repeated and does not count twice."""
    project.agent(WAIT)
    with live(project, "-m", "2") as (_, run):
        project.run("cancel", run)
    result = project.run("resume", run)
    assert (result.code, starts(project), only(project).iteration) == (1, 3, 2)


# ---- pause and resume ----


def test_pause_holds_and_resume_continues(project: Project) -> None:
    """The current step finishes, the next one waits until `ralph resume`, in the same process."""
    project.agent(WAIT)
    with live(project, "-m", "2") as (process, run):
        paused = project.run("pause", run)
        assert (paused.code, paused.err) == (
            0,
            f"Run {run} pauses after the current step. To continue: ralph resume {run}\n",
        )
        (project.path / "go.1").touch()
        wait_for(project, "paused")
        assert starts(project) == 1
        (project.path / "go").touch()
        resumed = project.run("resume", run)
        assert (resumed.code, resumed.err) == (0, f"Run {run} continues.\n")
        process.communicate(timeout=30)
    assert (process.returncode, starts(project)) == (1, 2)


def test_a_paused_run_can_be_cancelled(project: Project) -> None:
    """A pause does not block a cancel."""
    project.agent(WAIT)
    with live(project) as (process, run):
        project.run("pause", run)
        (project.path / "go.1").touch()
        wait_for(project, "paused")
        assert project.run("cancel", run).code == 0
        process.communicate(timeout=30)
    assert (process.returncode, starts(project)) == (130, 1)


def test_a_paused_run_can_get_a_new_limit(project: Project) -> None:
    """Plain `ralph resume -m` in the same directory finds the paused live run, and the new limit applies."""
    project.agent(WAIT)
    with live(project, "-m", "1") as (process, run):
        project.run("pause", run)
        (project.path / "go").touch()
        wait_for(project, "paused")
        resumed = project.run("resume", "-m", "3")
        assert (resumed.code, resumed.err) == (0, f"Run {run} continues.\n")
        process.communicate(timeout=30)
    assert (process.returncode, starts(project)) == (1, 3)


def test_pause_of_a_stopped_run(project: Project) -> None:
    """Only a live run can be paused."""
    run = ended(project, *ITERATIONS)
    result = project.run("pause", run)
    assert (result.code, result.err.splitlines()[0]) == (2, f"ralph: error: Run {run} is not running.")


def test_resume_of_a_live_run(project: Project) -> None:
    """A live run that is not paused cannot be driven twice."""
    project.agent(WAIT)
    with live(project) as (_, run):
        result = project.run("resume", run)
        assert (result.code, result.err.splitlines()[0]) == (
            2,
            f"ralph: error: Run {run} is already running.",
        )
        assert starts(project) == 1


# ---- resume ----


def test_resume_without_an_unfinished_run(project: Project) -> None:
    """No run to resume here: exit 2, whatever exists in other directories."""
    (project.path / "below").mkdir()
    ended(Project(project.path / "below", project.home), *ITERATIONS)
    ended(project, *COMPLETE)
    result = project.run("resume")
    assert (result.code, result.err.splitlines()) == (
        2,
        [
            f"ralph: error: No unfinished run in {project.path}.",
            "  Start one with `ralph run`. To list the runs: ralph status",
        ],
    )


def test_resume_takes_the_newest_unfinished_run_of_this_directory(project: Project, tmp_path: Path) -> None:
    """Complete runs and runs in other directories are skipped."""
    ended(project, *ITERATIONS)
    newest = ended(project, *ITERATIONS)
    ended(project, *COMPLETE)
    (tmp_path / "other").mkdir()
    ended(Project(tmp_path / "other", project.home), *ITERATIONS)
    result = project.run("resume", "-m", "3")
    assert (result.code, result.err.splitlines()[0].startswith(f"Run {newest} resumed: ")) == (1, True)


def test_resume_after_a_kill(project: Project) -> None:
    """The interrupted iteration is repeated with the same number, and the user is notified."""
    project.agent(WAIT)
    run = crashed(project, "-m", "2")
    (project.path / "go").touch()
    result = project.run("resume")
    assert result.code == 1
    assert result.err.splitlines()[:2] == [
        f"Run {run} resumed: agent {project.path}/agent.sh, no checks, up to 2 iterations, no command guard",
        "Repeating the interrupted iteration.",
    ]
    assert (starts(project), only(project).iteration) == (3, 2)


def test_resume_from_another_directory(project: Project, tmp_path: Path) -> None:
    """By its id, a run is resumed in its own directory; -m is the total limit."""
    run = ended(project, *ITERATIONS)
    project.script("agent.sh", 'echo "$PWD $RALPH_ITERATION/$RALPH_MAX_ITERATIONS" >> places')
    (tmp_path / "elsewhere").mkdir()
    assert Project(tmp_path / "elsewhere", project.home).run("resume", run, "-m", "3").code == 1
    assert (project.path / "places").read_text() == f"{project.path} 3/3\n"
    assert (only(project).iteration, only(project).max_iterations) == (3, 3)


@pytest.mark.parametrize(
    ("how", "arguments", "complaint", "hint"),
    [
        (ITERATIONS, [], "2 of 2 iterations", "-m 4"),
        (ITERATIONS, ["-m", "1"], "2 of 1 iterations", "-m 4"),
        (ITERATIONS, ["--max-cost-usd", "5"], "2 of 2 iterations", "-m 4"),
        (COST, ["-m", "9"], "1.5 of 1 USD", "--max-cost-usd 3"),
        (COST, ["--max-cost-usd", "1.5"], "1.5 of 1.5 USD", "--max-cost-usd 3"),
        (TOKENS, [], "1200 of 1000 tokens", "--max-tokens 2400"),
        pytest.param(
            MANY_TOKENS,
            [],
            "1234567 of 1000 tokens",
            "--max-tokens 2469134",
        ),
        (DURATION, ["--max-duration-seconds", "30"], "90 of 30 seconds", "--max-duration-seconds 180"),
    ],
)
def test_an_exhausted_limit_is_refused(
    project: Project, how: tuple[Limits, Ran], arguments: list[str], complaint: str, hint: str
) -> None:
    """Without a higher limit it would stop again: exit 2, with a command that raises the limit."""
    run = ended(project, *how)
    result = project.run("resume", *arguments)
    assert (result.code, result.err.splitlines(), starts(project)) == (
        2,
        [
            f"ralph: error: Run {run} has used {complaint} and would stop at once.",
            f"  Raise the limit: ralph resume {run} {hint}",
        ],
        0,
    )


def test_a_run_that_never_claimed_cannot_continue_without_an_iteration(project: Project) -> None:
    """If its iterations are used up, resume says how to allow more instead of stopping at once."""
    project.agent("echo nothing to add", guardrails=[{"command": "true"}])
    project.run("run", "-p", "x", "-m", "2")
    run = only(project)
    result = project.run("resume")
    assert (run.reason, result.code, result.err.splitlines()[-1]) == (
        "all checks green, never claimed",
        2,
        f"  Raise the limit: ralph resume {run.id} -m 4",
    )


@pytest.mark.parametrize(
    ("how", "arguments", "more"),
    [
        (ITERATIONS, ["-m", "3"], 1),
        (COST, ["--max-cost-usd", "3"], 2),
        (COST, ["--max-cost-usd", "0"], 2),
        (TOKENS, ["--max-tokens", "3600"], 2),
        (DURATION, ["--max-duration-seconds", "0", "-m", "2"], 1),
    ],
)
def test_a_higher_limit_resumes_the_run(
    project: Project, how: tuple[Limits, Ran], arguments: list[str], more: int
) -> None:
    """Each budget is raised by its option, and 0 removes it; earlier iterations count."""
    run = ended(project, *how)
    result = project.run("resume", run, *arguments)
    assert (result.code, starts(project), only(project).cause) == (1, more, "iterations")


def test_a_complete_run_is_not_resumed(project: Project) -> None:
    """There is nothing to resume."""
    run = ended(project, *COMPLETE)
    result = project.run("resume", run, "-m", "20")
    assert (result.code, result.err) == (
        2,
        f"ralph: error: Run {run} is complete. There is nothing to resume.\n"
        '  To start a new run: ralph run -p "…"\n',
    )
    assert starts(project) == 0


def test_a_run_out_of_time_can_be_resumed(project: Project) -> None:
    """A run whose agent was stopped by the time limit completes when it gets more time."""
    project.agent(f"echo x >> starts; [ -f go ] || sleep 60; echo '{TAG}'", maxDurationSeconds=0.2)
    project.run("run", "-p", "x")
    assert (only(project).cause, starts(project)) == ("duration", 1)
    (project.path / "go").touch()
    assert project.run("resume", "--max-duration-seconds", "600").code == 0


def test_resume_in_a_directory_that_is_gone(project: Project) -> None:
    """One clear error names the directory."""
    below = project.path / "below"
    below.mkdir()
    run = ended(Project(below, project.home), *ITERATIONS)
    shutil.rmtree(below)
    result = project.run("resume", run, "-m", "9")
    assert (result.code, result.err.splitlines()) == (
        2,
        [f"ralph: error: {below} no longer exists.", "  A run can only continue in its own directory."],
    )


# ---- steer ----


def test_guidance_goes_into_the_next_prompt(project: Project) -> None:
    """Not the current iteration but the next one sees it, once; --wait says which."""
    project.agent(WAIT, includeCompletionInstruction=False)
    with live(project, "-m", "3") as (process, run):
        waiting = project.start("steer", run, "Use Tabs.", "--wait")
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "Queued for the next prompt (iteration 2).\n"
        (project.path / "go").touch()
        _, said = waiting.communicate(timeout=30)
        assert (waiting.returncode, said) == (0, "Delivered with the prompt of iteration 2.\n")
        process.communicate(timeout=30)
    assert [prompt(project, n) for n in (1, 2, 3)] == [
        "The work.",
        "The work.\n\nGuidance from the user: Use Tabs.",
        "The work.",
    ]
    assert "guidance   Use Tabs. (iteration 2)" in project.run("status", run).out


def test_guidance_for_a_stopped_run(project: Project) -> None:
    """It is queued and delivered with the first prompt after the resume, in order."""
    project.agent("true", includeCompletionInstruction=False)
    project.run("run", "-p", "The work.", "-m", "1")
    run = only(project).id
    for text in ("First.", "Second\nline."):
        result = project.run("steer", run, text)
        assert (result.code, result.err) == (
            0,
            f"Queued: delivered when the run continues. To continue: ralph resume {run}\n",
        )
    assert "guidance   First. (not delivered yet)" in project.run("status", run).out
    resumed = project.run("resume", "-m", "2")
    assert "2 messages from `ralph steer` added to the prompt" in resumed.err
    assert prompt(project, 2) == (
        "The work.\n\nGuidance from the user: First.\n\nGuidance from the user: Second\nline."
    )


def test_guidance_during_the_last_iteration(project: Project) -> None:
    """The answer says that it may come too late, and so does the outcome, on one line."""
    project.agent(WAIT)
    with live(project, "-m", "1") as (process, run):
        assert project.run("steer", run, "Use\nTabs.").err == (
            "Queued, but iteration 1 is the last one: delivered if the run continues.\n"
        )
        (project.path / "go").touch()
        out, _ = process.communicate(timeout=30)
    assert "  note: guidance not delivered yet: Use Tabs.\n" in out
    assert "guidance   Use Tabs. (not delivered yet)" in project.run("status", run).out


def test_guidance_comes_after_feedback(project: Project) -> None:
    """After a resume, the prompt has the last guardrail's feedback, then the guidance, then the rest."""
    project.agent("true", guardrails=[{"command": "echo broken; false", "failAction": "REPLACE"}])
    project.run("run", "-p", "The work.", "-m", "1")
    project.run("steer", only(project).id, "Look again.")
    project.run("resume", "-m", "2")
    sent = prompt(project, 2)
    assert sent.startswith('Guardrail "echo broken; false" failed')
    assert "Output:\nbroken\n\n\nGuidance from the user: Look again.\n\nWhen everything" in sent


def test_guidance_of_an_interrupted_iteration_is_not_lost(project: Project) -> None:
    """Guidance delivered to an iteration that was killed is in the prompt that repeats it."""
    project.agent(WAIT, includeCompletionInstruction=False)
    process = project.start("run", "-p", "The work.", "-m", "2")
    wait_for_starts(project, 1)
    run = only(project).id
    project.run("steer", run, "Use tabs.")
    (project.path / "go.1").touch()
    wait_for_starts(project, 2)
    process.kill()
    process.communicate(timeout=30)
    (project.path / "go").touch()
    project.run("resume")
    assert prompt(project, 2) == "The work.\n\nGuidance from the user: Use tabs."


@pytest.mark.slow
def test_guidance_given_just_before_the_end_of_an_iteration(project: Project) -> None:
    """Queued before the agent's exit, it is in the very next prompt, however short the iterations are."""
    project.agent(
        f'exec {RALPH} steer $RALPH_RUN_ID "from $RALPH_ITERATION"', includeCompletionInstruction=False
    )
    project.run("run", "-p", "The work.", "-m", "4")
    assert [prompt(project, n) for n in range(2, 5)] == [
        f"The work.\n\nGuidance from the user: from {n - 1}" for n in range(2, 5)
    ]


@pytest.mark.slow
def test_a_pause_just_before_the_end_of_an_iteration(project: Project) -> None:
    """`ralph pause` reports that the run pauses after the current step, and no further agent is started."""
    project.agent(f"echo x >> starts; exec {RALPH} pause $RALPH_RUN_ID")
    process = project.start("run", "-p", "The work.", "-m", "3")
    try:
        for iteration in (1, 2):
            wait_until(lambda: all_runs(project) and only(project).state == "paused")
            assert starts(project) == iteration
            project.run("resume")
            wait_for_starts(project, iteration + 1)
    finally:
        project.run("cancel", only(project).id)
        process.communicate(timeout=30)


def test_empty_guidance_is_refused(project: Project) -> None:
    """Guidance must not be empty."""
    run = ended(project, *ITERATIONS)
    for text in ("", " \n"):
        result = project.run("steer", run, text)
        assert (result.code, result.err.splitlines()[0]) == (2, "ralph: error: The guidance is empty.")


def test_a_complete_run_takes_no_guidance(project: Project) -> None:
    """There is no next prompt."""
    run = ended(project, *COMPLETE)
    result = project.run("steer", run, "x")
    assert (result.code, result.err) == (
        2,
        f"ralph: error: Run {run} is complete: there is no next prompt for the guidance.\n",
    )


def test_guidance_may_begin_with_a_dash(project: Project) -> None:
    """A list item is guidance, not an option."""
    run = ended(project, *ITERATIONS)
    assert project.run("steer", run, "- use tabs").code == 0
    assert project.run("steer", run, "--wait for the lock").code == 0
    shown = project.run("status", run).out
    assert "guidance   - use tabs (" in shown and "guidance   --wait for the lock (" in shown


# ---- the background ----


@pytest.fixture
def background(project: Project) -> Iterator[Project]:
    """A project whose agents are released at the end, so that no detached run outlives its test."""
    yield project
    (project.path / "go").touch()


def test_detach_returns_at_once_and_the_run_continues(background: Project) -> None:
    """stdout has only the id; the run continues without its caller and ends by itself."""
    background.agent(f"{WAIT}; echo '{TAG}'")
    result = background.run("run", "-p", "x", "--detach")
    run = result.out.strip()
    assert (result.code, result.err) == (
        0,
        f"Running in the background. To watch: ralph logs -f {run}\n",
    )
    wait_until(lambda: starts(background))
    assert (only(background).id, only(background).state) == (run, "running")
    (background.path / "go").touch()
    wait_until(lambda: only(background).outcome == "complete")
    wait_until(lambda: only(background).pid is None)


def test_a_detached_run_can_be_cancelled(background: Project) -> None:
    """It can be steered like any other run, and leaves no process behind."""
    background.agent(f"echo $$ >> pids; {WAIT}")
    run = background.run("run", "-p", "x", "--detach").out.strip()
    wait_until(lambda: starts(background))
    assert background.run("cancel", run).code == 0
    assert (only(background).cause, Recorded(background.path / "pids").alive()) == ("cancelled", [])


def test_a_detached_run_holds_no_descriptor_of_its_caller(background: Project) -> None:
    """A script that reads `$(ralph run --detach …)` does not wait for the run."""
    background.agent(WAIT)
    done = subprocess.run(
        ["sh", "-c", 'run=$("$0" run -p x --detach 2>&1); echo "got $run"', RALPH],
        cwd=background.path,
        env=background.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.startswith("got ")
    wait_until(lambda: starts(background))
    background.run("cancel", only(background).id)


SLOW = """
CREATE TRIGGER slow BEFORE UPDATE OF pid ON runs BEGIN
  SELECT max(n) FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000)
  SELECT n FROM c);
END
"""
"""A store in which it takes a while until a process has taken over a run."""


def test_a_detached_run_is_live_as_soon_as_the_caller_returns(background: Project) -> None:
    """The id is usable at once: the run does not count as crashed, however slow its start is."""
    background.agent(WAIT)
    runs = background.home.runs()
    with closing(runs.db):
        runs.db.execute(SLOW)
    run = background.run("run", "-p", "x", "--detach").out.strip()
    assert (only(background).id, only(background).state) == (run, "running")
    assert background.run("cancel", run).code == 0


def test_what_cannot_run_is_refused_before_detaching(background: Project) -> None:
    """An error is reported to the caller, not to a log that no one reads."""
    result = background.run("run", "-p", "x", "--detach")
    assert (result.code, "No agent is configured." in result.err) == (2, True)


def test_a_resumed_run_can_be_detached(background: Project) -> None:
    """`resume --detach` continues in the background too."""
    background.agent("echo x >> starts")
    background.run("run", "-p", "x", "-m", "1")
    run = only(background).id
    result = background.run("resume", "-m", "2", "--detach")
    assert (result.code, result.out) == (0, f"{run}\n")
    wait_until(lambda: only(background).iteration == 2 and only(background).state == "ended")


# ---- config ----


def test_config_says_where_each_value_comes_from(project: Project) -> None:
    """File, local file or default, for every key; the agent's secrets are not shown."""
    project.settings(maximumIterations=3, agent={"command": "a", "env": {"KEY": "secret"}})
    (project.path / ".ralph/settings.local.json").write_text('{"agent": {"flags": ["-x"]}, "guardrails": []}')
    lines = [re.split(r"\s{2,}", line.strip()) for line in project.run("config").out.splitlines()]
    rows = {key: values for key, *values in lines}
    assert rows["setting"] == ["value", "source"]
    assert rows["maximumIterations"] == ["3", ".ralph/settings.json"]
    assert rows["agent.flags"] == ['["-x"]', ".ralph/settings.local.json"]
    assert rows["agent.env.KEY"] == ['"(redacted)"', ".ralph/settings.json"]
    assert rows["completionResponse"] == ['"DONE"', "default"]
    found = json.loads(project.run("config", "--json").out)
    assert {key: [json.dumps(row["value"]), row["source"]] for key, row in found.items()} == {
        key: row for key, row in rows.items() if key != "setting"
    }


def test_config_with_another_file(project: Project) -> None:
    """--settings names the file; a missing one is exit 2."""
    (project.path / "loop.json").write_text('{"maxTokens": 5}')
    found = json.loads(project.run("config", "--json", "--settings", "loop.json").out)
    assert found["maxTokens"] == {"value": 5, "source": "loop.json"}
    assert project.run("config", "--settings", "none.json").code == 2


def test_config_of_a_wrong_file(project: Project) -> None:
    """An unknown key is reported with file and line, and a suggestion."""
    (project.path / ".ralph").mkdir()
    (project.path / ".ralph/settings.json").write_text('{\n  "agent": {\n    "comand": "x"\n  }\n}')
    result = project.run("config")
    assert (result.code, result.out, result.err.splitlines()) == (
        2,
        "",
        ["ralph: error: .ralph/settings.json:3: unknown key 'agent.comand'.", "  Did you mean 'command'?"],
    )


def test_config_schema(project: Project) -> None:
    """The schema for editors has every key with a description; files written by ralph match it."""
    schema = json.loads(project.run("config", "--schema").out)
    properties = schema["$defs"]["Settings"]["properties"]
    assert set(properties) == {*_camel(Settings.__struct_fields__), "$schema"}
    bare = {"agent", "guard", "guardrails", "notify", "ralph", "sandbox", "scm", "supervise", "$schema"}
    assert [
        name for name, value in properties.items() if "description" not in value and name not in bare
    ] == []
    assert schema["$defs"]["Settings"]["additionalProperties"] is False


def _camel(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        first, *rest = name.split("_")
        yield first + "".join(word.capitalize() for word in rest)


# ---- completion ----


def complete(project: Project, words: str, number: int) -> list[str]:
    """What the shell would offer for the word at this index."""
    project.extra_env = {"_RALPH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    try:
        return [line.partition(",")[2] for line in project.run().out.splitlines()]
    finally:
        project.extra_env = {}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts(project: Project, shell: str) -> None:
    """Each shell gets its own script."""
    result = project.run("completion", shell)
    assert (result.code, result.err, f"_RALPH_COMPLETE={shell}_complete" in result.out) == (0, "", True)


def test_bash_completes_with_the_script(project: Project) -> None:
    """Sourced into a real bash, the function offers `resume` for `ralph res`."""
    script = project.run("completion", "bash").out
    ask = 'COMP_WORDS=(ralph res); COMP_CWORD=1; _ralph_completion ralph; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{ask}"],
        cwd=project.path,
        env=project.env | {"PATH": f"{Path(RALPH).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.strip() == "resume"


def test_what_is_completed(project: Project) -> None:
    """Commands, options and run ids."""
    run = ended(project, *ITERATIONS)
    assert complete(project, "ralph re", 1) == ["resume", "report", "rewind"]
    assert complete(project, "ralph run --dr", 2) == ["--dry-run"]
    assert complete(project, f"ralph status {run[:4]}", 2) == [run]


def test_every_run_argument_can_be_completed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command with a RUN argument completes run ids."""
    run = ended(project, *ITERATIONS)
    monkeypatch.setenv("RALPH_STATE_DIR", str(project.home.path))
    group = make_group()
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    offered = {
        name: [item.value for item in param.shell_complete(context, run[:4])]
        for name, command in commands.items()
        for param in (command.params if command else ())
        if param.name == "run"
    }
    asking = ("resume", "tui", "status", "logs", "diff", "rewind", "steer", "pause", "cancel")
    assert offered == {name: [run] for name in asking}


def test_an_unknown_shell(project: Project) -> None:
    """The error lists the supported shells."""
    result = project.run("completion", "tcsh")
    assert (result.code, "'tcsh' is not one of 'bash', 'fish', 'zsh'" in result.err) == (2, True)


# ---- the demo ----


def test_the_demo(project: Project) -> None:
    """A complete run in a scratch repository: refuted, fed back, proved; the printed command can be repeated."""
    project.extra_env = {"TMPDIR": str(project.path)}
    result = project.run("demo")
    assert (result.code, result.out.splitlines()[0]) == (
        0,
        "Done: all checks passed",
    )
    (scratch,) = [path for path in project.path.iterdir() if path.name.startswith("ralph-demo-")]
    command = f'cd {scratch} && ralph run -p "Write greet.sh so that ./check.sh passes."'
    assert f"$ {command}" in result.err.splitlines()
    assert result.err.splitlines()[-1] == '  ralph run -p "Make the tests pass" -m 5'
    assert "expected: Hello, Ada!" in (scratch / ".ralph/prompt_002.txt").read_text()
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=scratch, capture_output=True, text=True, check=True
    )
    assert log.stdout.splitlines()[-1] == "A check to pass"
    assert (only(project).directory, only(project).iteration) == (str(scratch), 2)
    path = f"{Path(RALPH).parent}:{os.environ['PATH']}"
    again = subprocess.run(
        ["sh", "-c", command], env=project.env | {"PATH": path}, capture_output=True, timeout=60, check=False
    )
    assert again.returncode == 0


# ---- unknown commands and options ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["log"],
            [
                "ralph: error: No such command 'log'. Did you mean 'logs'?",
                "  For help, run: ralph --help",
            ],
        ),
        (["undo"], ["ralph: error: No such command 'undo'.", "  For help, run: ralph --help"]),
        (
            ["stats"],
            [
                "ralph: error: No such command 'stats'. (Did you mean one of: 'status', 'task'?)",
                "  For help, run: ralph --help",
            ],
        ),
        (
            ["run", "--promt", "x"],
            [
                "ralph: error: No such option '--promt'. (Did you mean one of: '--prompt', '--prompt-file'?)",
                "  For help, run: ralph run --help",
            ],
        ),
        (
            ["steer"],
            ["ralph: error: Missing argument 'RUN'.", "  For help, run: ralph steer --help"],
        ),
        (
            ["--frob"],
            ["ralph: error: No such option '--frob'.", "  For help, run: ralph run --help"],
        ),
    ],
    ids=["log", "undo", "stats", "--promt", "steer", "--frob"],
)
def test_a_typo(capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]) -> None:
    """An unknown command or option is exit 2, one line, a suggestion if there is one, and a hint."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", said)
