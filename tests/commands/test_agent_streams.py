"""Runs with an agent that prints a structured stream: limits, hangs, budgets, permissions, fallbacks."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from conftest import Project, Recorded, wait_until

DONE = "All done. <response>DONE</response>"


def said(text: str, **tokens: int) -> str:
    message = {"id": f"m{hash(text)}", "content": [{"type": "text", "text": text}], "usage": tokens}
    return json.dumps({"type": "assistant", "message": message})


def called(name: str, id: str = "t1", **values: Any) -> str:
    block = {"type": "tool_use", "id": id, "name": name, "input": values}
    return json.dumps({"type": "assistant", "message": {"id": id, "content": [block]}})


def answered(text: str, id: str = "t1", *, is_error: bool = False) -> str:
    block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}
    return json.dumps({"type": "user", "message": {"content": [block]}})


def result(cost: float = 0.0, **values: Any) -> str:
    return json.dumps({"type": "result", "is_error": False, "total_cost_usd": cost} | values)


def limit(**values: Any) -> str:
    """A refusal as Claude Code reports it."""
    return result(is_error=True, api_error_status=429, result="You've hit your limit", **values)


def claude(project: Project, body: str, **settings: Any) -> None:
    """A stand-in agent that runs the shell code `body`, with its output read as a Claude Code stream."""
    agent = {"type": "claude"} | settings.pop("agent", {})
    project.agent(body, agent=agent, **settings)


def echo(*lines: str) -> str:
    return "".join(f"cat <<'EOF'\n{line}\nEOF\n" for line in lines)


def ends(found: list[dict[str, Any]]) -> list[str]:
    return [line["ran"]["ended"] for line in found if line["event"] == "agent_ended"]


# ---- output ----


def test_a_run_shows_the_work_and_believes_the_final_message(project: Project) -> None:
    """Tools, text and totals are shown; the permissions are announced at the start; the claim completes the run."""
    claude(project, echo(called("Bash", command="ls"), answered("a.txt"), said(DONE), result(0.5)))
    ended = project.run("run", "-p", "x")
    assert ended.code == 0, ended.err
    shown = ended.err.splitlines()
    assert shown[1:] == [
        "May edit files without asking (agent.permissions: edit).",
        "=== Ralph iteration 1/10 ===",
        "[TOOL] Bash(ls)",
        "[OK] Result <- Bash (1 line, 5 chars)",
        "  |  a.txt",
        DONE,
        "",
        shown[-2],
        "",
    ]
    assert shown[-2].startswith("[END] Agent finished (cost: $0.50, tools: 1, errors: 0, time: ")
    assert ", $0.50" in ended.out


def test_a_quoted_tag_completes_nothing(project: Project) -> None:
    """A tag in a tool's input or output, or in a message before more work, does not count as a claim."""
    tag = "<response>DONE</response>"
    lines = [said(tag), called("Bash", command=f"echo '{tag}'"), answered(tag), said("Not yet."), result()]
    claude(project, echo(*lines), maximumIterations=2)
    assert project.run("run", "-p", "x").code == 1


def test_json_has_the_whole_model(project: Project) -> None:
    """`--json` has starts and ends with their ids, inputs and outputs as JSON, usage and unread lines."""
    lines = [called("Bash", command="ls"), answered("a.txt"), "{rubbish", said(DONE, input_tokens=7)]
    claude(project, echo(*lines, result(0.25, usage={"input_tokens": 9})))
    found = project.run("run", "-p", "x", "--json").lines()
    kinds = [line["event"] for line in found]
    begun, over = found[kinds.index("tool_start")], found[kinds.index("tool_end")]
    assert (begun["id"], begun["name"], begun["input"]) == ("t1", "Bash", {"command": "ls"})
    assert (over["id"], over["output"], over["is_error"]) == ("t1", "a.txt", False)
    assert found[kinds.index("unread")]["line"] == "{rubbish"
    final = found[kinds.index("agent_ended")]
    assert (final["unread"], final["ran"]["usage"]["cost_usd"], final["ran"]["usage"]["input_tokens"]) == (
        1,
        0.25,
        9,
    )


def test_a_stream_can_be_shown_again(project: Project) -> None:
    """`logs --replay` shows only the agent's work, through the same formatter."""
    claude(
        project, echo(called("Bash", command="ls"), answered("a.txt"), "{rubbish", said(DONE), result(0.5))
    )
    live = project.run("run", "-p", "x").err.splitlines()
    again = project.run("logs", "--replay").out.splitlines()
    unknown = "[ralph] Unknown line (JSON is malformed: object keys must be strings (byte 1)): {rubbish"
    assert again[1:6] == [*live[2:6], unknown]
    assert again[6] == DONE
    assert again[-1].startswith("[END] Agent finished (cost: $0.50")


# ---- permissions ----


def test_denied_writes_are_fatal(project: Project) -> None:
    """If every write was denied, the run stops at once and names the setting."""
    denials = [{"tool_name": "Write"}]
    lines = [called("Write", file_path="a"), answered("no", is_error=True), said(DONE)]
    claude(project, echo(*lines, result(permission_denials=denials)))
    ended = project.run("run", "-p", "x")
    assert ended.code == 2
    assert 'set "agent": {"permissions": "bypass"}' in ended.out
    assert "denied (Write)" in ended.out


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ({"permissions": "bypass"}, "May do anything without asking (agent.permissions: bypass)."),
        ({"permissions": "none"}, "May only do what its own settings allow (agent.permissions: none)."),
        ({"flags": ["--permission-mode plan"]}, ""),
    ],
)
def test_permissions_are_announced(project: Project, agent: dict[str, Any], told: str) -> None:
    """The permissions are announced at the start; the user's own flags take precedence over Ralph's."""
    claude(project, f'echo "$*" > argv\n{echo(said(DONE), result())}', agent=agent)
    ended = project.run("run", "-p", "x")
    assert ended.code == 0
    assert (told in ended.err) and ("without asking" in ended.err) is ("anything" in told)
    flags = (project.path / "argv").read_text()
    assert ("--dangerously-skip-permissions" in flags) is (agent.get("permissions") == "bypass")
    assert flags.count("--permission-mode") == (1 if "flags" in agent else 0)


# ---- limits ----


@pytest.mark.slow
def test_a_limit_is_waited_for_and_spends_no_iteration(project: Project) -> None:
    """Ralph prints how long it waits, then repeats the same iteration."""
    soon = int(time.time()) + 1
    info = {"status": "rejected", "resetsAt": soon}
    refused = echo(json.dumps({"type": "rate_limit_event", "rate_limit_info": info}), limit())
    claude(
        project,
        f"if [ -e tried ]; then {echo(said(DONE), result())} else touch tried\n{refused} exit 1; fi",
        maximumIterations=1,
    )
    began = time.time()
    ended = project.run("run", "-p", "x", "--json")
    found = ended.lines()
    assert ended.code == 0, ended.err
    assert ends(found) == ["limit", "ok"]
    hold = next(line["hold"] for line in found if line["event"] == "holding")
    assert hold["why"] == "limit" and soon <= hold["until"] <= soon + 10
    assert time.time() >= hold["until"] > began
    assert next(line for line in found if line["event"] == "limit")["kind"] == "usage"


def test_a_limit_that_lasts_too_long_ends_the_run_as_waiting(project: Project) -> None:
    """Beyond `maxLimitWaitSeconds` the run stops with exit code 3 and can be resumed."""
    info = {"status": "rejected", "resetsAt": int(time.time()) + 7200}
    claude(
        project,
        echo(json.dumps({"type": "rate_limit_event", "rate_limit_info": info}), limit()),
        maxLimitWaitSeconds=60,
    )
    ended = project.run("run", "-p", "x")
    assert ended.code == 3
    assert "later than maxLimitWaitSeconds allows" in ended.out and "ralph resume" in ended.out


@pytest.mark.parametrize(
    ("status", "text"), [(401, "Invalid API key · Please run /login"), (400, "Credit balance is too low")]
)
def test_a_problem_that_only_a_person_can_fix_stops_at_once(project: Project, status: int, text: str) -> None:
    """Authentication and credit are fatal: one attempt, exit code 2."""
    claude(project, echo(result(is_error=True, api_error_status=status, result=text)) + "exit 1")
    ended = project.run("run", "-p", "x")
    assert (ended.code, text in ended.out) == (2, True)
    assert ended.err.count("=== Ralph iteration") == 1


@pytest.mark.slow
@pytest.mark.slow
def test_a_fallback_works_while_the_first_is_limited(project: Project) -> None:
    """The fallback takes the iterations; when the first agent is available again, it takes over."""
    info = '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":\'$(date +%s)\'}}'
    other = project.script("other.sh", "touch worked; sleep 0.5; echo still working")
    claude(
        project,
        f"if [ -e worked ]; then {echo(said(DONE), result())} else echo '{info}'\n{echo(limit())} exit 1; fi",
        agent={"fallbacks": [{"command": other}]},
        maximumIterations=60,
    )
    ended = project.run("run", "-p", "x", "--json")
    assert ended.code == 0, ended.err
    by = [line["agent"] for line in ended.lines() if line["event"] == "iteration_started"]
    main = str(project.path / "agent.sh")
    assert by[0] == main and by[-1] == main
    assert set(by[1:-1]) == {other}
    assert ended.lines()[0]["fallbacks"] == [other]


# ---- hangs ----


def test_an_agent_that_stays_after_its_result_is_stopped(project: Project) -> None:
    """The result counts although the process would have kept running; no process is left."""
    claude(
        project,
        f"{echo(said(DONE), result(0.5))} echo $$ > pids; sleep 60 & echo $! >> pids; wait",
        exitGraceSeconds=0.5,
    )
    ended = project.run("run", "-p", "x", "--json")
    assert ended.code == 0, ended.err
    assert ends(ended.lines()) == ["ok"]
    assert Recorded(project.path / "pids").alive() == []


def test_a_stream_that_falls_silent_is_a_hang(project: Project) -> None:
    """A hang in mid-stream hits the idle timeout, and the next iteration starts."""
    hang = f"{echo(called('Bash', command='ls'))} sleep 60"
    claude(
        project,
        f"if [ $RALPH_ITERATION = 1 ]; then {hang}; else {echo(said(DONE), result())} fi",
        idleTimeoutSeconds=0.5,
    )
    ended = project.run("run", "-p", "x", "--json")
    assert (ended.code, ends(ended.lines())) == (0, ["idle", "ok"])


def test_a_missing_result_is_a_failure(project: Project) -> None:
    """Exit code 0 without a result event is a failure, whatever came before; guardrails still check a claim."""
    claude(project, echo(said("Working on it")), maximumIterations=1)
    ended = project.run("run", "-p", "x", "--json")
    assert (ended.code, ends(ended.lines())) == (1, ["failed"])


# ---- budgets ----


def test_a_budget_stops_an_agent_in_the_middle(project: Project) -> None:
    """Tokens are counted while the agent works: over the budget, it is stopped at once."""
    claude(
        project,
        f"{echo(called('Bash', command='ls'), said('hm', input_tokens=600, output_tokens=500))} sleep 60",
        maxTokens=1000,
    )
    ended = project.run("run", "-p", "x", "--json")
    assert (ended.code, ends(ended.lines())) == (1, ["budget"])
    assert ended.lines()[-1]["stop"]["cause"] == "tokens"


def test_an_iteration_that_cannot_be_afforded_is_not_started(project: Project) -> None:
    """After two iterations of $2, a third does not start with $1 left."""
    claude(project, echo(said("More to do."), result(2.0)), maxCostUsd=5.0)
    ended = project.run("run", "-p", "x")
    assert ended.code == 1
    assert ended.err.count("=== Ralph iteration") == 2
    assert "the next iteration would cost about $2.00, but only $1.00 is left" in ended.out
    assert "--max-cost-usd" in ended.out


def test_a_commit_message_is_the_final_message(repository: Project) -> None:
    """The message is read from the stream too; the text of a failed call does not count, but its cost does."""
    project = repository
    project.git("config", "user.name", "Test")
    project.git("config", "user.email", "test@localhost")
    work = f"echo > new$RALPH_ITERATION\n{echo(said('More'), result(1.0))}"
    refused = f"{echo(result(is_error=True, result='API Error: 500'))} exit 1"
    message = f"if [ $RALPH_ITERATION = 1 ]; then {refused}; else {echo(said('Add a file'), result(0.5))} fi"
    claude(
        project,
        f"if grep -q 'commit message'; then {message}\nelse {work} fi",
        scm={"command": "git", "tasks": ["commit"]},
        maximumIterations=2,
    )
    ended = project.run("run", "-p", "x", "--json")
    assert ended.code == 1, ended.err
    assert project.git("log", "--format=%s").split("\n")[:2] == ["Add a file", "x"]
    assert ended.lines()[-1]["usage"]["cost_usd"] == 2.5


def test_ctrl_c_leaves_nothing(project: Project) -> None:
    """Two interrupts stop the agent and everything it started."""
    claude(project, f"{echo(said('hm'))} echo $$ > pids; sleep 60 & echo $! >> pids; touch ready; wait")
    ralph = project.start("run", "-p", "x")
    wait_until((project.path / "ready").exists)
    for _ in range(2):
        ralph.send_signal(2)
        time.sleep(0.3)
    ralph.communicate(timeout=30)
    assert ralph.returncode == 130
    assert Recorded(project.path / "pids").alive() == []
