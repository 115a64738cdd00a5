"""Running one agent process: its input, the refusals before it starts, its end, and the kept output."""

from __future__ import annotations

import os
import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.loop_support import CLAIM, Loop, opened_loop, shell_agent
from ralph.agents.base import Prompt
from ralph.core.events import AgentEnded, AgentStarted, Event, Text, UsageReported
from ralph.core.model import (
    AgentSpec,
    Ended,
    Flow,
    Left,
    PromptSource,
    PromptVia,
    Purpose,
    Ran,
    RunAgent,
    TaskBrief,
    TaskFolder,
)
from ralph.errors import RalphError
from ralph.loop.agent_runner import MAX_ANSWER, MAX_ARGUMENT_BYTES, MAX_JUDGED_ANSWER, AgentCall, AgentRunner
from ralph.store.files import opened_directory

NO_LIMITS = Left()
STREAMS = Path(__file__).parents[1] / "agents/streams"


@pytest.fixture
def loop(project: Project) -> Iterator[Loop]:
    with opened_loop(project) as found:
        yield found


def call(
    loop: Loop,
    agent: str | AgentSpec,
    *,
    prompt: str = "Do it.",
    purpose: Purpose = Purpose.WORK,
    limits: Left = NO_LIMITS,
    directory: int | None = None,
) -> Ran:
    """Run an agent in the second of three iterations and return the result."""
    spec = agent if isinstance(agent, AgentSpec) else shell_agent(loop.project, agent)
    file = loop.context.runtime.write_prompt("002", prompt)
    step = RunAgent(purpose, 2, spec.name, "", limits)
    found = AgentCall(step, spec, Prompt(prompt, file), f"002-5.{purpose}")
    return AgentRunner(loop.context).call(found, 3, directory)


def environment(ran: Ran) -> dict[str, str]:
    lines = (line.partition("=") for line in ran.text.splitlines())
    return {name: value for name, _, value in lines if name.startswith(("RALPH_", "TASK_", "MINE"))}


# ---- input ----


def test_the_variables_of_an_agent(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent gets its run, its iteration and the variables from its settings, but not RALPH_GUARDED."""
    monkeypatch.delenv("RALPH_TEST_EXEC", raising=False)
    spec = shell_agent(loop.project, "env", env=(("MINE", "a b"),))
    assert environment(call(loop, spec)) == {
        "MINE": "a b",
        "RALPH_RUN_ID": loop.plan.run,
        "RALPH_PARENT_RUN_ID": loop.plan.run,
        "RALPH_ITERATION": "2",
        "RALPH_MAX_ITERATIONS": "3",
    }


def test_the_variables_of_a_role_and_of_a_supervised_task(project: Project, tmp_path: Path) -> None:
    """A role gets its task id, and a supervised agent gets its folder and its attempt."""
    folder = tmp_path / "tasks/job"
    folder.mkdir(parents=True)
    task = TaskFolder(str(folder), "p", "job")
    with opened_loop(project, task=task, task_id="T-1", role="tester") as loop:
        found = environment(call(loop, "env"))
    assert (found["RALPH_TASK_ID"], found["RALPH_ROLE"]) == ("T-1", "tester")
    assert (found["TASK_FOLDER"], found["RALPH_ATTEMPT"]) == (str(folder), "2")


def test_settings_cannot_override_ralphs_variables(loop: Loop) -> None:
    """An agent's own environment cannot override its run id."""
    spec = shell_agent(loop.project, "env", env=(("RALPH_RUN_ID", "mine"),))
    assert environment(call(loop, spec))["RALPH_RUN_ID"] == loop.plan.run


def test_hooks_are_passed_to_an_agent_that_takes_them(loop: Loop) -> None:
    """An agent that supports hooks gets their path and RALPH_GUARDED; another agent does not."""
    loop.use(hooks="/elsewhere/hooks.json")
    body = 'echo "${RALPH_GUARDED:-not guarded} $*" >&2; exit 1'
    with_hooks = shell_agent(loop.project, body, PromptVia.STDIN, type="claude")
    assert call(loop, with_hooks).detail.startswith("1 -p ")
    assert call(loop, with_hooks).detail.endswith("--settings /elsewhere/hooks.json")
    assert call(loop, body).detail == "not guarded Do it."


@pytest.mark.parametrize(
    ("via", "body"),
    [
        (PromptVia.ARGUMENT, 'printf %s "$1"'),
        (PromptVia.STDIN, "cat"),
        (PromptVia.FILE, 'cat "$1"'),
    ],
)
def test_the_prompt_arrives_whole(loop: Loop, via: PromptVia, body: str) -> None:
    """Each way of passing the prompt keeps characters that a shell or text mode could spoil."""
    prompt = "ä\r\n$HOME `id` '\"\\ \x7f\n\n"
    ran = call(loop, shell_agent(loop.project, f"{body} | base64", via), prompt=prompt)
    assert b64decode(ran.text).decode() == prompt


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files cannot be listed")
def test_an_agent_leaves_no_open_file(loop: Loop) -> None:
    """The number of open files does not grow, however the agents end."""
    counts = []
    for body in ("cat", "exit 1", "cat", "kill -9 $$", "cat"):
        call(loop, shell_agent(loop.project, body, PromptVia.STDIN))
        counts.append(len(os.listdir("/proc/self/fd")))
    assert len(set(counts)) == 1


def test_without_a_prompt_stdin_is_empty(loop: Loop) -> None:
    """An agent that reads stdin without a prompt does not hang."""
    assert call(loop, "cat; echo read").text == "read\n"


def test_an_agent_starts_in_the_project_or_a_given_directory(loop: Loop, tmp_path: Path) -> None:
    """An agent starts in the project unless another directory is given, as for a judge."""
    (other := tmp_path / "other").mkdir()
    assert call(loop, "pwd -P").text.strip() == str(loop.project.path)
    with opened_directory(str(other)) as directory:
        assert call(loop, "pwd -P", directory=directory).text.strip() == str(other)


def test_events_do_not_repeat_the_whole_prompt(loop: Loop) -> None:
    """The event shows the start of a long prompt, and a placeholder for it in the command line."""
    prompt = "word " * 100
    call(loop, "echo on", prompt=prompt)
    (started,) = loop.told(AgentStarted)
    assert started.command[1:] == ("<prompt>",)
    assert (started.prompt, started.prompt_chars) == (prompt[:200], len(prompt))


# ---- refusals ----


def test_an_argument_has_a_maximum_size(loop: Loop) -> None:
    """The largest argument arrives; one byte more is an error with a hint."""
    assert call(loop, 'printf %s "$1" | wc -c', prompt="x" * MAX_ARGUMENT_BYTES).text.strip() == str(
        MAX_ARGUMENT_BYTES
    )
    with pytest.raises(RalphError, match="131,072 bytes") as caught:
        call(loop, "echo never", prompt="ä" * (MAX_ARGUMENT_BYTES // 2 + 1))
    assert "promptVia" in caught.value.hint


def test_a_prompt_with_a_nul_cannot_be_an_argument(loop: Loop) -> None:
    """A prompt with a NUL arrives through stdin and is refused as an argument."""
    with pytest.raises(RalphError, match="NUL"):
        call(loop, "echo never", prompt="a\0b")
    assert call(loop, shell_agent(loop.project, "wc -c", PromptVia.STDIN), prompt="a\0b").text.strip() == "3"


UNSTARTABLE: dict[str, tuple[str, int, str]] = {
    "missing": ("", 0, "no such file"),
    "not executable": ("echo", 0o600, "not executable"),
    "no program": ("\x7fELF rubbish", 0o755, "Exec format error"),
    "no interpreter": ("#!/elsewhere/python\n", 0o755, "No such file or directory"),
}


@pytest.mark.parametrize(("content", "mode", "detail"), UNSTARTABLE.values(), ids=UNSTARTABLE)
def test_a_program_that_cannot_be_started(loop: Loop, content: str, mode: int, detail: str) -> None:
    """The result names the command as the user wrote it, and no stream file is left."""
    path = loop.project.path / "program"
    if mode:
        path.write_text(content)
        path.chmod(mode)
    ran = call(loop, AgentSpec("a", "custom", "./program"))
    assert (ran.ended, ran.detail, ran.exit) == (Ended.UNSTARTABLE, f"./program: {detail}", None)
    assert not list(loop.streams.glob("002-5*"))


def test_a_command_is_looked_up_on_the_path_of_its_settings(loop: Loop, tmp_path: Path) -> None:
    """An agent can have its own PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mine").symlink_to("/bin/echo")
    spec = AgentSpec("a", "custom", "mine", prompt_via=PromptVia.ARGUMENT)
    assert call(loop, spec).detail == "mine: command not found"
    found = call(loop, AgentSpec("a", "custom", "mine", ("-n",), (("PATH", f"{tmp_path}/bin"),)))
    assert found.ended in (Ended.OK, Ended.EMPTY)


def test_an_invalid_variable_name(loop: Loop) -> None:
    """An invalid variable name is reported as a failed start."""
    spec = shell_agent(loop.project, "echo never", env=(("A=B", "x"),))
    ran = call(loop, spec)
    assert ran.ended is Ended.UNSTARTABLE and ran.detail.endswith("Invalid argument")


# ---- results ----

TERMINATED = "by signal 15 (SIGTERM)"
ENDS: dict[str, tuple[str, Left, Ended, str, int | None]] = {
    "well": ("echo done", NO_LIMITS, Ended.OK, "", 0),
    "without a word": ("true", NO_LIMITS, Ended.EMPTY, "", 0),
    "badly": ("echo first >&2; echo final message >&2; exit 7", NO_LIMITS, Ended.FAILED, "final message", 7),
    "killed": ("kill -9 $$", NO_LIMITS, Ended.KILLED, "by signal 9 (SIGKILL)", None),
    "too long": ("exec sleep 60", Left(iteration_seconds=0.01), Ended.TIMEOUT, TERMINATED, None),
    "silent": ("exec sleep 60", Left(idle_seconds=0.01), Ended.IDLE, TERMINATED, None),
    "out of time": ("exec sleep 60", Left(seconds=0.01), Ended.BUDGET, TERMINATED, None),
    "without its warden": (
        "kill -9 $PPID; exec sleep 60",
        Left(),
        Ended.KILLED,
        "its warden was killed",
        None,
    ),
}


@pytest.mark.parametrize(("body", "limits", "ended", "detail", "code"), ENDS.values(), ids=ENDS)
def test_how_an_agent_ends(
    loop: Loop, body: str, limits: Left, ended: Ended, detail: str, code: int | None
) -> None:
    """The result shows the exit code, or the reason why Ralph stopped the agent rather than its signal."""
    ran = call(loop, body, limits=limits)
    assert (ran.ended, ran.detail, ran.exit) == (ended, detail, code)
    assert loop.told(AgentEnded) == [AgentEnded(Purpose.WORK, ran)]


def test_a_claim_counts_even_if_the_agent_was_stopped(loop: Loop) -> None:
    """The result contains the claim even if the agent was interrupted."""

    def heard(loop: Loop, event: Event) -> None:
        if isinstance(event, Text):
            loop.interrupt(2)

    loop.heard = heard
    ran = call(loop, f"{CLAIM}; exec sleep 60")
    assert (ran.ended, ran.claim) == (Ended.INTERRUPTED, True)


def test_an_agent_that_stays_after_its_result_succeeds(loop: Loop) -> None:
    """An agent that has to be stopped after it reported its result counts as successful."""
    body = f"cat {STREAMS}/claude_work.ndjson; exec sleep 60"
    spec = shell_agent(loop.project, body, PromptVia.STDIN, type="claude")
    ran = call(loop, spec, limits=Left(exit_grace_seconds=0.0))
    assert ran.ended is Ended.OK and ran.exit is None


def test_a_supervised_agent_that_stays_after_done_succeeds(project: Project, tmp_path: Path) -> None:
    """An agent that keeps running after DONE is killed, which is reported, and counts as successful."""
    folder = tmp_path / "tasks/job"
    folder.mkdir(parents=True)
    (folder / "DONE").touch()
    with opened_loop(project, task=TaskFolder(str(folder), "p", "job"), flow=Flow.SUPERVISE) as loop:
        ran = call(loop, "exec sleep 60", limits=Left(done_seconds=0.0))
        assert (ran.ended, ran.detail) == (Ended.OK, "finished but did not exit, so it was killed")
        asked = call(loop, "echo done", purpose=Purpose.MESSAGE, limits=Left(done_seconds=0.0))
        assert asked.ended is Ended.OK and asked.exit == 0, "DONE says nothing about a message"


def test_usage_is_reported_and_kept(loop: Loop) -> None:
    """Usage is reported while the agent works, and the total goes into the journal."""
    spec = shell_agent(loop.project, f"cat {STREAMS}/claude_work.ndjson", PromptVia.STDIN, type="claude")
    ran = call(loop, spec)
    told = loop.told(UsageReported)
    assert ran.usage.tokens > 0 and told[-1].usage == ran.usage
    assert len(told) == len(set(told)), "each value is reported once"


def test_a_usage_limit_has_a_reset_time(loop: Loop) -> None:
    """The time of the reset is computed with the run's clock."""
    ran = call(loop, "echo 'rate limit exceeded, try again in 90 seconds' >&2; exit 1")
    assert ran.ended is Ended.LIMIT
    assert ran.retry_at is not None and 90 <= ran.retry_at - loop.clock.wall() <= 150


def test_failures_that_look_the_same_have_one_fingerprint(loop: Loop) -> None:
    """The fingerprint depends on the words and the exit code, but not on numbers in the message."""

    def fingerprint(message: str, code: int = 1) -> str:
        return call(loop, f"echo '{message}' >&2; exit {code}").fingerprint

    first = fingerprint("crash at line 12")
    assert first == fingerprint("crash at line 97")
    assert len({first, fingerprint("crash at line 12", 2), fingerprint("stuck at line 12")}) == 3


# ---- kept output ----


def printed(characters: int) -> str:
    return f"printf BEGIN; head -c {characters} /dev/zero | tr '\\0' x; echo END"


@pytest.mark.parametrize(
    ("flow", "purpose", "most"),
    [
        (Flow.RUN, Purpose.WORK, MAX_ANSWER),
        (Flow.WORK, Purpose.WORK, MAX_JUDGED_ANSWER),
        (Flow.RUN, Purpose.MESSAGE, None),
    ],
)
def test_the_start_and_end_of_a_long_answer_are_kept(
    project: Project, flow: Flow, purpose: Purpose, most: int | None
) -> None:
    """Checks get more of a long answer, and a commit message is kept whole."""
    with opened_loop(project, flow=flow) as loop:
        text = call(loop, printed(3 * MAX_JUDGED_ANSWER), purpose=purpose).text
        short = call(loop, printed(100), purpose=purpose).text
    assert text.startswith("BEGINx") and text.endswith("xEND\n")
    assert len(text) == (2 * most + len("\n[...]\n") if most else 3 * MAX_JUDGED_ANSWER + len("BEGINEND\n"))
    assert len(short) == 100 + len("BEGINEND\n")


def brief(*, may_refuse: bool) -> PromptSource:
    text = dict.fromkeys(("title", "description", "outcome", "role", "duty", "criteria", "method"), "x")
    return PromptSource(task=TaskBrief(id="T", acceptance_criteria=(), may_refuse=may_refuse, **text))


def test_why_a_tag_is_not_a_claim_is_part_of_the_result(loop: Loop) -> None:
    """The tag in backticks is not a claim, and the result of the process says so."""
    ran = call(loop, "echo 'Done: `<response>DONE</response>`'")
    assert (ran.claim, ran.unclaimed) == (False, "in backticks")


@pytest.mark.parametrize(
    ("source", "purpose", "heard"),
    [
        (brief(may_refuse=True), Purpose.WORK, "it is wrong"),
        (brief(may_refuse=True), Purpose.MESSAGE, ""),
        (brief(may_refuse=False), Purpose.WORK, ""),
        (PromptSource("x"), Purpose.WORK, ""),
    ],
)
def test_a_refusal_counts_only_where_it_is_allowed(
    project: Project, source: PromptSource, purpose: Purpose, heard: str
) -> None:
    """Only a role that may refuse its task can do so, and only in its work."""
    with opened_loop(project, prompt=source) as loop:
        assert call(loop, "echo '<refuse>it is wrong</refuse>'", purpose=purpose).refusal == heard


def test_the_raw_stream_is_kept_under_the_name_in_the_journal(loop: Loop) -> None:
    """Stdout and stderr are kept in separate files; an empty stream leaves no file."""
    ran = call(loop, "echo out; echo err >&2")
    assert ran.stream == "002-5.work"
    assert {path.name: path.read_text() for path in loop.streams.glob("002-5*")} == {
        "002-5.work.stdout": "out\n",
        "002-5.work.stderr": "err\n",
    }


def test_a_stream_that_cannot_be_kept_is_reported(loop: Loop) -> None:
    """A raw stream that cannot be kept is a notice, and the agent's output is still read."""
    shutil.rmtree(loop.streams)
    assert call(loop, CLAIM).claim
    (notice,) = loop.notices
    assert notice.startswith("Raw output of this iteration is incomplete: ")


def test_sandbox_notices_are_reported_when_the_agent_has_ended(loop: Loop) -> None:
    """Refusals of the sandbox are reported as notices."""
    loop.context.confinement.tell("a.test was refused")
    call(loop, "echo on")
    assert loop.notices == ["a.test was refused"]


def test_secrets_are_in_neither_the_stream_nor_the_answer(loop: Loop) -> None:
    """A key printed by an agent reaches neither a file nor the journal."""
    key = "sk-ant-" + "a1B2" * 10
    ran = call(loop, f"echo my key is {key}; echo {key} >&2")
    kept: list[Any] = [ran.text, *(path.read_text() for path in loop.streams.glob("002-5*"))]
    assert len(kept) == 3 and not any(key in text for text in kept)
