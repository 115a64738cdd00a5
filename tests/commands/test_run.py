"""`ralph run` as a user sees it."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, wait_until
from ralph.cli import main
from ralph.core.model import Limits, Plan

TAG = "<response>DONE</response>"
INSTRUCTION = f"When everything is done, and only then, end your answer with this line:\n\n{TAG}"
PROVED = "Done: all checks passed"
UNPROVED = "Unverified: no checks configured"


def prompt(project: Project, iteration: int) -> str:
    return (project.path / f".ralph/prompt_{iteration:03d}.txt").read_text()


def run_id(result: Result) -> str:
    """The id of the run that just finished."""
    found = re.search(r"^  run (\S+): ", result.out, re.MULTILINE)
    assert found is not None
    return found[1]


def plan(project: Project) -> Plan:
    """The plan of the only run, from the store."""
    runs = project.home.runs()
    with closing(runs.db):
        (run,) = runs.all()
        found = runs.plan(run.id)
        assert found is not None
        return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def feedback(
    command: str,
    slug: str,
    output: str,
    *,
    code: int = 1,
    hint: str = "",
    iteration: int = 1,
    label: str = "Output:",
) -> str:
    """What a failed guardrail adds to the next prompt, in the documented format."""
    return (
        f'Guardrail "{command}" failed with exit code {code}.\n'
        + (f"Hint: {hint}\n" if hint else "")
        + f"Output file: .ralph/guardrail_{iteration:03d}_{slug}.log\n"
        + f"{label}\n{output}"
    )


def test_a_run_is_complete_when_claimed_and_proved(project: Project) -> None:
    """The story of the demo: a claim is refuted by a failed guardrail, fed back, fixed, proved."""
    project.agent(
        """
        echo "iteration $RALPH_ITERATION"
        [ "$RALPH_ITERATION" = 2 ] && touch fixed
        echo '<response>DONE</response>'
        """,
        guardrails=[{"command": "test -f fixed", "hint": "Make the file."}],
    )
    result = project.run("run", "-p", "Fix it")
    assert (result.code, result.out.splitlines()[0]) == (0, PROVED)
    second = (project.path / ".ralph/prompt_002.txt").read_text()
    assert second == (
        "Fix it\n\n"
        'Guardrail "test -f fixed" failed with exit code 1.\n'
        "Hint: Make the file.\n"
        "Output file: .ralph/guardrail_001_test_f_fixed.log\n"
        "Output:\n\n\n"
        f"{INSTRUCTION}"
    )


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "No prompt."),
        (["-p", "a", "-f", "PROMPT.md"], "--prompt and --prompt-file cannot be used together."),
        (["-p", ""], "The prompt is empty."),
        (["-f", "EMPTY.md"], "EMPTY.md is empty."),
        (["-f", "none.md"], "none.md: prompt file not found."),
        (["-f", "."], "the prompt file is not a regular file."),
        (["-f", "-"], "The prompt cannot be read from stdin"),
        (["-p", "a", "-m", "0"], "must be 1 or more, not '0'."),
        (["-p", "a", "--max-cost-usd", "-1"], "must be 0 or more, not '-1'."),
        (["-p", "a", "--max-tokens", "1e6"], "must be a whole number, not '1e6'."),
        (["-p", "a", "--max-duration-seconds", "nan"], "must be a number, not 'nan'."),
        (["-p", "a", "-c", ""], "completionResponse"),
        (["-p", "a", "--settings", "none.json"], "none.json: settings file not found."),
        (["-p", "a", "--agent", ""], "No agent is configured."),
        (["-p", "a", "--agent", "claude 'x"], "No closing quotation."),
        (["-p", "a", "stray"], "unexpected extra argument (stray)"),
        (["-p", "a", "--max-iterations", "3"], "--maximum-iterations"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_command_line_is_refused(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    """Exit 2 with one error, before anything is written, also for a dry run."""
    project.agent("touch started")
    (project.path / "PROMPT.md").write_text("x")
    (project.path / "EMPTY.md").write_text("\n")
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("RALPH_STATE_DIR", str(project.home.path))
    assert main(["run", "--dry-run", *arguments]) == 2
    out, err = capsys.readouterr()
    first, *rest = err.splitlines()
    assert (out, first.startswith("ralph: error: "), complaint in first) == ("", True, True)
    assert all(line.startswith("  ") for line in rest)
    assert list(project.home.path.iterdir()) == []


def test_a_refused_command_starts_nothing(project: Project) -> None:
    """The same in a real process: no agent, no run, nothing on stdout."""
    project.agent("touch started")
    result = project.run("run", "-p", " \n")
    assert (result.code, result.out, result.err.splitlines()) == (
        2,
        "",
        ["ralph: error: The prompt is empty.", "  Say what the agent should do."],
    )
    assert not (project.path / "started").exists()
    assert list(project.home.path.iterdir()) == []


def test_a_missing_agent_is_reported_with_the_next_step(project: Project) -> None:
    """Without settings and without --agent, the error names both ways to choose one."""
    result = project.run("run", "-p", "x")
    assert (result.code, result.err.splitlines()) == (
        2,
        [
            "ralph: error: No agent is configured.",
            '  Run `ralph init`, or set "agent": {"command": …} in .ralph/settings.json.',
        ],
    )


def test_run_is_the_default_command(project: Project) -> None:
    """`ralph -p …` and `ralph --agent … -p …` mean `ralph run …`."""
    agent = project.script("agent.sh", f"echo '{TAG}'")
    for arguments in (["-p", "x", "--agent", agent], ["--agent", agent, "--prompt", "x"]):
        result = project.run(*arguments)
        assert (result.code, result.out.splitlines()[0]) == (0, UNPROVED)


def test_flags_win_over_settings(project: Project) -> None:
    """-m, -c and --no-stream-agent-output override the settings."""
    project.agent(
        "echo x >> starts; echo chatter; echo '<response>FERTIG</response>'",
        maximumIterations=7,
        completionResponse="NIE",
        guardrails=[{"command": "test $RALPH_ITERATION = 2"}],
    )
    result = project.run("run", "-p", "x", "-m", "3", "-c", "fertig", "--no-stream-agent-output")
    assert (result.code, lines(project.path / "starts")) == (0, ["x", "x"])
    assert "=== Ralph iteration 2/3 ===" in result.err
    assert "chatter" not in result.err


def test_agent_output_is_streamed_unless_disabled(project: Project) -> None:
    """streamAgentOutput and its two flags decide whether agent output is shown."""
    project.agent("echo words; echo aside >&2", streamAgentOutput=False)
    quiet = project.run("run", "-p", "x", "-m", "1")
    loud = project.run("run", "-p", "x", "-m", "1", "--stream-agent-output")
    assert ["words" in quiet.err, "aside" in quiet.err, "words" in loud.err, "aside" in loud.err] == [
        False,
        False,
        True,
        True,
    ]


def test_output_is_shown_while_the_agent_works(project: Project) -> None:
    """Streaming does not wait for the agent to exit."""
    project.agent("echo early; while [ ! -f go ]; do sleep 0.02; done")
    process = project.start("run", "-p", "x", "-m", "1")
    assert process.stderr is not None
    for line in process.stderr:
        if line == "early\n":
            break
    (project.path / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_settings_from_another_file(project: Project) -> None:
    """--settings names the file; the local file next to it is merged into it."""
    agent = project.script("agent.sh", 'echo "$@"')
    (project.path / "other").mkdir()
    (project.path / "other/loop.json").write_text(
        json.dumps({"agent": {"command": agent, "flags": ["--model opus"]}, "maximumIterations": 3})
    )
    (project.path / "other/loop.local.json").write_text(
        json.dumps({"agent": {"flags": ["--title 'a b'", "-x"]}, "maximumIterations": 1})
    )
    result = project.run("run", "-p", "hello", "--settings", "other/loop.json")
    assert (result.code, "--title a b -x hello" in result.err) == (1, True)
    assert "up to 1 iteration, no command guard\n" in result.err


CONFIGURED = {"flags": ["--model opus"], "promptVia": "stdin", "env": {"TOKEN": "s3cret"}}


def test_another_agent_inherits_nothing(project: Project) -> None:
    """--agent replaces the whole agent: flags, promptVia and environment are the new agent's own."""
    project.agent("touch started", agent=CONFIGURED, includeCompletionInstruction=False)
    project.script("other.sh", 'printf "%s|" "$@" "TOKEN=$TOKEN" "stdin=$(cat)"; echo')
    result = project.run("run", "-p", "x", "-m", "1", "--agent", "./other.sh")
    assert "x|TOKEN=|stdin=|\n" in result.err
    assert not (project.path / "started").exists()


def test_naming_the_configured_agent_changes_nothing(project: Project) -> None:
    """It does not count as another agent."""
    project.agent(
        'printf "%s|" "$@" "TOKEN=$TOKEN" "stdin=$(cat)"; echo',
        agent=CONFIGURED,
        includeCompletionInstruction=False,
    )
    result = project.run("run", "-p", "x", "-m", "1", "--agent", f"{project.path}/agent.sh")
    assert "--model|opus|TOKEN=s3cret|stdin=x|\n" in result.err


def test_another_agent_may_have_flags(project: Project) -> None:
    """--agent is split once, as a shell would split it: quoted text stays one word."""
    project.script("other.sh", 'printf "%s|" "$@"; echo')
    agent = "./other.sh --model opus --title 'a  \"b\"' \"it's\" --empty '' \\$HOME '*'"
    result = project.run("run", "-p", "x", "-m", "1", "--agent", agent)
    assert '--model|opus|--title|a  "b"|it\'s|--empty||$HOME|*|x' in result.err
    assert "agent ./other.sh, no checks" in result.err


def test_the_scripted_agent_by_name(project: Project) -> None:
    """A built-in agent with its script is named in the same way."""
    (project.path / "script.yaml").write_text(f"turns: [{{say: '{TAG}'}}]")
    assert project.run("run", "-p", "x", "--agent", "scripted script.yaml").code == 0


# ---- the agent's input ----


@pytest.mark.parametrize("via", ["stdin", "argument", "file"])
def test_the_prompt_reaches_the_agent(project: Project, via: str) -> None:
    """By stdin, as the last argument, or as the path of a file; never in two ways."""
    project.agent(
        'cat > stdin.seen; printf "%s|" "$@" > arguments.seen',
        agent={"promptVia": via, "flags": ["--flag"]},
        includeCompletionInstruction=False,
    )
    project.run("run", "-p", "The work.", "-m", "1")
    seen = ((project.path / "stdin.seen").read_text(), (project.path / "arguments.seen").read_text())
    assert (
        seen
        == {
            "stdin": ("The work.", "--flag|"),
            "argument": ("", "--flag|The work.|"),
            "file": ("", "--flag|.ralph/prompt_001.txt|"),
        }[via]
    )
    assert prompt(project, 1) == "The work."


def test_the_environment(project: Project) -> None:
    """Agent and guardrail know run, iteration and limit; agent.env is only for the agent."""
    show = 'echo "$RALPH_RUN_ID $RALPH_ITERATION $RALPH_MAX_ITERATIONS $TOKEN"'
    project.agent(
        f"{show} >> agent.seen",
        agent={"env": {"TOKEN": "s3cret", "RALPH_ITERATION": "99"}},
        guardrails=[{"command": f"{show} >> guardrail.seen"}],
    )
    run = run_id(project.run("run", "-p", "x", "-m", "2"))
    assert lines(project.path / "agent.seen") == [f"{run} 1 2 s3cret", f"{run} 2 2 s3cret"]
    assert lines(project.path / "guardrail.seen") == [f"{run} 1 2 ", f"{run} 2 2 "]


def test_the_agent_is_looked_up_in_its_own_path(project: Project) -> None:
    """A PATH in agent.env is used to find the command too."""
    (project.path / "bin").mkdir()
    project.script("bin/my-agent", f"echo '{TAG}'")
    path = f"{project.path}/bin:/usr/bin:/bin"
    project.settings(agent={"command": "my-agent", "env": {"PATH": path}}, snapshots=False)
    assert project.run("run", "-p", "x").code == 0


def test_agent_and_guardrails_run_where_ralph_was_started(repository: Project) -> None:
    """In a subdirectory of the repository, everything happens there."""
    below = repository.path / "below"
    below.mkdir()
    inner = Project(below, repository.home)
    inner.agent("pwd > agent.seen", guardrails=[{"command": "pwd > guardrail.seen"}])
    inner.run("run", "-p", "x", "-m", "1")
    assert {(below / name).read_text().strip() for name in ("agent.seen", "guardrail.seen")} == {str(below)}
    assert (below / ".ralph/prompt_001.txt").exists()


def test_the_prompt_file_is_read_again_each_iteration(project: Project) -> None:
    """Changes to the prompt file count from the next iteration on."""
    (project.path / "PROMPT.md").write_text("first")
    project.agent('echo "after $RALPH_ITERATION" > PROMPT.md', includeCompletionInstruction=False)
    project.run("run", "-f", "PROMPT.md", "-m", "3")
    assert [prompt(project, n) for n in (1, 2, 3)] == ["first", "after 1\n", "after 2\n"]


def test_a_missing_prompt_file_ends_the_run(project: Project) -> None:
    """Without its prompt file a run ends as fatal, exit 2, and names the file."""
    (project.path / "PROMPT.md").write_text("x")
    project.agent("rm PROMPT.md")
    result = project.run("run", "-f", "PROMPT.md", "-m", "3")
    assert (result.code, result.out.splitlines()[0]) == (
        2,
        f"Failed: {project.path}/PROMPT.md: prompt file not found.",
    )


# ---- the prompt ----


@pytest.mark.parametrize(
    ("base", "settings", "sent"),
    [
        ("Fix it", {}, f"Fix it\n\n{INSTRUCTION}"),
        ("Fix it", {"includeCompletionInstruction": False}, "Fix it"),
        ("Print <Response>DONE</Response>.", {}, "Print <Response>DONE</Response>."),
        ("Fix it", {"completionResponse": "ALL OK"}, f"Fix it\n\n{INSTRUCTION.replace('DONE', 'ALL OK')}"),
        (
            "Fix it",
            {"includeIterationCountInPrompt": True, "maximumIterations": 4},
            f"Iteration 1 of 4, 3 remaining.\n\nFix it\n\n{INSTRUCTION}",
        ),
    ],
)
def test_additions_to_the_prompt(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    base: str,
    settings: dict[str, Any],
    sent: str,
) -> None:
    """The completion instruction unless the tag is already there, the count if enabled, and nothing else."""
    project.agent("true", **settings)
    monkeypatch.chdir(project.path)
    assert main(["run", "--dry-run", "--json", "-p", base]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == sent


def test_the_count_goes_down(project: Project) -> None:
    """In the last iteration, none is left."""
    project.agent("true", includeIterationCountInPrompt=True, includeCompletionInstruction=False)
    project.run("run", "-p", "x", "-m", "3")
    assert [prompt(project, n).splitlines()[0] for n in (1, 2, 3)] == [
        "Iteration 1 of 3, 2 remaining.",
        "Iteration 2 of 3, 1 remaining.",
        "Iteration 3 of 3, 0 remaining.",
    ]


A = feedback("echo a; false", "echo_a_false", "a\n")
B = feedback("echo b; exit 2", "echo_b_exit_2", "b\n", code=2, hint="Do b.")


@pytest.mark.parametrize(
    ("actions", "sent"),
    [
        (("APPEND", "APPEND"), f"Fix it\n\n{A}\n\n{B}"),
        (("PREPEND", "PREPEND"), f"{B}\n\n{A}\n\nFix it"),
        (("REPLACE", "APPEND"), f"{A}\n\n{B}"),
        (("APPEND", "REPLACE"), B),
        (("append", "Prepend"), f"{B}\n\nFix it\n\n{A}"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_feedback_of_several_guardrails(project: Project, actions: tuple[str, str], sent: str) -> None:
    """In configured order, each by its action; REPLACE replaces all before it; the instruction stays last."""
    project.agent(
        "true",
        guardrails=[
            {"command": "echo a; false", "failAction": actions[0]},
            {"command": "true"},
            {"command": "echo b; exit 2", "failAction": actions[1], "hint": "Do b."},
        ],
    )
    project.run("run", "-p", "Fix it", "-m", "2")
    assert prompt(project, 2) == f"{sent}\n\n{INSTRUCTION}"


def test_feedback_is_of_the_last_iteration_only(project: Project) -> None:
    """A guardrail that passes now is not mentioned again."""
    project.agent(
        "touch done.$RALPH_ITERATION",
        guardrails=[{"command": "test -f done.2"}],
        includeCompletionInstruction=False,
    )
    project.run("run", "-p", "Fix it", "-m", "3")
    told = feedback("test -f done.2", "test_f_done_2", "")
    first, second, third = (prompt(project, n) for n in (1, 2, 3))
    assert (first, second) == ("Fix it", f"Fix it\n\n{told}")
    assert third.startswith("Fix it\n\nAll required checks passed") and "done.2" not in third


def test_replace_brings_the_instruction_back(project: Project) -> None:
    """When the prompt that named the tag is replaced, the instruction is added."""
    project.agent("true", guardrails=[{"command": "false", "failAction": "REPLACE"}])
    project.run("run", "-p", f"Fix it, then say {TAG}", "-m", "2")
    assert prompt(project, 2) == f"{feedback('false', 'false', '')}\n\n{INSTRUCTION}"


def test_output_is_truncated_but_the_hint_is_not(project: Project) -> None:
    """outputTruncateChars truncates the output that the agent sees; hint and log stay complete."""
    hint = "Look at the first line. " * 20
    project.agent(
        "true",
        outputTruncateChars=100,
        includeCompletionInstruction=False,
        guardrails=[{"command": "seq 100; false", "hint": hint}],
    )
    project.run("run", "-p", "x", "-m", "2")
    numbers = "".join(f"{n}\n" for n in range(1, 101))
    shown = "[... 79 lines omitted ...]\n" + numbers.partition("79\n")[2]
    assert prompt(project, 2) == "x\n\n" + feedback(
        "seq 100; false", "seq_100_false", shown, hint=hint, label="Output (truncated):"
    )
    assert (project.path / ".ralph/guardrail_001_seq_100_false.log").read_text() == numbers


def test_without_a_limit_all_output_is_shown(project: Project) -> None:
    """outputTruncateChars 0 means no limit."""
    project.agent(
        "true",
        outputTruncateChars=0,
        agent={"promptVia": "stdin"},
        guardrails=[{"command": "yes | head -c 2000000; echo the end; false"}],
    )
    project.run("run", "-p", "x", "-m", "2")
    shown = prompt(project, 2).partition("Output:\n")[2].partition("\n\n")[0]
    assert shown == "y\n" * 1_000_000 + "the end"


# ---- guardrails ----


def test_every_guardrail_runs_in_every_iteration(project: Project) -> None:
    """A failed guardrail does not stop the others, nor does a failed agent."""
    project.agent(
        "exit 1",
        guardrails=[
            {"command": "echo one >> ran; exit 1"},
            {"command": "echo two >> ran"},
            {"command": "echo three >> ran; exit 3"},
        ],
    )
    project.run("run", "-p", "x", "-m", "2")
    assert lines(project.path / "ran") == ["one", "two", "three"] * 2


def test_start_and_end_of_guardrails_are_printed(project: Project) -> None:
    """Start, end, exit status, and for a failed one what happens with its output, the failing lines and the log."""
    command = "echo 'error: no such thing'; exit 3"
    project.agent("true", guardrails=[{"command": "true"}, {"command": command, "failAction": "PREPEND"}])
    shown = re.sub(r"\d\.\ds", "N", project.run("run", "-p", "x", "-m", "2").err).splitlines()
    start = shown.index("=== Ralph iteration 1/2 ===")
    assert shown[start + 2 : start + 8] == [
        "Running true",
        "✓ true passed (N)",
        f"Running {command}",
        f"✗ {command} failed (exit 3); output goes first in the next prompt",
        "    error: no such thing",
        "  full output: .ralph/guardrail_001_echo_error_no_such_thing_exit_3.log",
    ]


def test_guardrail_logs(project: Project) -> None:
    """One log per guardrail and iteration, also if it passed, with stdout and stderr in the order printed."""
    long = "echo " + "x" * 80
    project.agent(
        "true",
        guardrails=[
            {"command": "./check.sh -T 2C"},
            {"command": "echo out; echo err >&2; echo out"},
            {"command": "true"},
            {"command": "true"},
            {"command": " true;"},
            {"command": long},
            {"command": ":"},
        ],
    )
    project.script("check.sh", 'echo "$@"; exit 1')
    project.run("run", "-p", "x", "-m", "2")
    names = [
        "check_sh_T_2C",
        "echo_out_echo_err_2_echo_out",
        "true",
        "true.2",
        "true.3",
        ("echo_" + "x" * 80)[:50],
        "command",
    ]
    logs = {path.name: path.read_text() for path in (project.path / ".ralph").glob("guardrail_*.log")}
    assert set(logs) == {f"guardrail_{n:03d}_{name}.log" for n in (1, 2) for name in names}
    assert logs["guardrail_001_check_sh_T_2C.log"] == "-T 2C\n"
    assert logs["guardrail_002_echo_out_echo_err_2_echo_out.log"] == "out\nerr\nout\n"


def test_the_same_guardrail_twice_is_run_twice(project: Project) -> None:
    """Two entries with one command are two checks, each with its own hint."""
    command = "echo x >> ran; test $(wc -l < ran) -gt 3"
    project.agent(
        "true", guardrails=[{"command": command, "hint": "first"}, {"command": command, "hint": "second"}]
    )
    result = project.run("run", "-p", "x", "-m", "2")
    assert lines(project.path / "ran") == ["x"] * 4
    assert "Hint: first" in prompt(project, 2) and "Hint: second" in prompt(project, 2)
    assert f"Running {command} #2" in result.err


def test_a_guardrail_that_hangs_times_out(project: Project) -> None:
    """timeoutSeconds makes it fail, and the agent is told so."""
    project.agent("true", guardrails=[{"command": "echo slow; sleep 60", "timeoutSeconds": 0.3}])
    result = project.run("run", "-p", "x", "-m", "2")
    assert result.code == 1
    assert (
        'Guardrail "echo slow; sleep 60" failed with a timeout after 0.3 s.\n'
        "Output file: .ralph/guardrail_001_echo_slow_sleep_60.log\n"
        "Output:\nslow\n" in prompt(project, 2)
    )
    assert "failed (timed out after 0.3 s)" in result.err


def test_a_guardrail_has_empty_stdin(project: Project) -> None:
    """A command that asks does not hang."""
    project.agent(f"echo '{TAG}'", guardrails=[{"command": 'test -z "$(cat)"'}])
    assert project.run("run", "-p", "x").code == 0


def test_the_files_of_an_earlier_run_are_kept_apart(project: Project) -> None:
    """Prompts and logs in .ralph belong to the current run; older ones move to .ralph/old."""
    project.agent("true", guardrails=[{"command": "false"}])
    first = run_id(project.run("run", "-p", "first", "-m", "2"))
    project.run("run", "-p", "second", "-m", "1")
    here = {path.name for path in (project.path / ".ralph").iterdir() if path.suffix in (".txt", ".log")}
    assert here == {"prompt_001.txt", "guardrail_001_false.log"}
    assert {path.name for path in (project.path / ".ralph/old" / first).iterdir()} == {
        "prompt_001.txt",
        "prompt_002.txt",
        "guardrail_001_false.log",
        "guardrail_002_false.log",
    }


def test_git_does_not_see_the_runtime_files(repository: Project) -> None:
    """After a run, only the settings are new to git."""
    repository.agent("true", guardrails=[{"command": "false"}])
    repository.run("run", "-p", "x", "-m", "1")
    seen = repository.git("status", "--porcelain", "--untracked-files=all").splitlines()
    assert sorted(seen) == ["?? .ralph/settings.json", "?? agent.sh"]


# ---- limits ----


@pytest.mark.parametrize(("arguments", "limit"), [(["-m", "1"], 1), ([], 10)])
def test_the_limit_is_exact(project: Project, arguments: list[str], limit: int) -> None:
    """N iterations are N starts of the agent, then exit 1 and the next step; the default is 10."""
    project.agent("echo x >> starts")
    result = project.run("run", "-p", "x", *arguments)
    assert (result.code, lines(project.path / "starts")) == (1, ["x"] * limit)
    first, _, hint = result.out.splitlines()
    assert first == f"Stopped: {limit} of {limit} iterations used; last result: the agent printed nothing"
    assert hint == f"  To continue: ralph resume {run_id(result)} -m N"


def test_a_claim_in_the_last_iteration_counts(project: Project) -> None:
    """Completing at the limit counts as complete."""
    project.agent(f"[ $RALPH_ITERATION = 3 ] && echo '{TAG}'; true")
    assert project.run("run", "-p", "x", "-m", "3").code == 0


def test_the_limits_of_the_command_line_reach_the_plan(project: Project) -> None:
    """Each option is the limit of the whole run, and overrides its setting."""
    project.agent("true", maximumIterations=9, maxCostUsd=9, maxTokens=9, maxDurationSeconds=9)
    project.run(
        *("run", "-p", "x", "-m", "1"),
        *("--max-cost-usd", "2.5", "--max-tokens", "1000000", "--max-duration-seconds", "90"),
    )
    assert plan(project).limits == Limits(iterations=1, cost_usd=2.5, tokens=1_000_000, seconds=90.0)


def test_a_limit_can_be_removed(project: Project) -> None:
    """0 on the command line means no limit, whatever the settings say."""
    project.agent("true", maxCostUsd=9, maxTokens=9, maxDurationSeconds=9)
    project.run("run", "-p", "x", "-m", "1", "--max-cost-usd", "0", "--max-duration-seconds", "0")
    assert plan(project).limits == Limits(iterations=1, tokens=9)


def test_the_whole_run_can_be_limited_in_time(project: Project) -> None:
    """--max-duration-seconds stops the current agent and the run, as a limit that resume can raise."""
    project.agent("echo x >> starts; sleep 60", maxDurationSeconds=600)
    result = project.run("run", "-p", "x", "--max-duration-seconds", "0.5")
    first, _, hint = result.out.splitlines()
    assert (result.code, first) == (1, "Stopped: time budget used up")
    assert hint == f"  To continue: ralph resume {run_id(result)} --max-duration-seconds S"
    assert lines(project.path / "starts") == ["x"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("iterationTimeoutSeconds", "Agent timed out"),
        ("idleTimeoutSeconds", "Agent was stopped after printing nothing for too long"),
    ],
)
def test_one_iteration_can_be_limited_in_time(project: Project, setting: str, words: str) -> None:
    """An agent that takes too long, or is silent for too long, times out; the next iteration starts."""
    project.agent("echo x >> starts; sleep 60", **{setting: 0.3})
    result = project.run("run", "-p", "x", "-m", "2")
    assert (result.code, lines(project.path / "starts"), result.err.count(words)) == (1, ["x", "x"], 2)


@pytest.mark.parametrize(
    "settings",
    ['"maxDurationSeconds": 1e400', '"guardrails": [{"command": "true", "timeoutSeconds": 1e400}]'],
)
def test_a_limit_must_be_finite(project: Project, settings: str) -> None:
    """An infinite or invalid number is one clear error, before the agent is started."""
    agent = project.script("agent.sh", "touch started")
    (project.path / ".ralph").mkdir()
    (project.path / ".ralph/settings.json").write_text(f'{{"agent": {{"command": "{agent}"}}, {settings}}}')
    result = project.run("run", "-p", "x", "-m", "1")
    key = re.findall(r'"(\w+)"', settings)[-1]
    first = result.err.splitlines()[0]
    assert (
        result.code,
        first.endswith(f"{key}: the number is too large."),
        "settings.json:1: " in first,
    ) == (
        2,
        True,
        True,
    )
    assert not (project.path / "started").exists()


# ---- failing agents ----


def test_a_bad_iteration_is_reported_and_the_run_continues(project: Project) -> None:
    """A failure, silence, a kill: one line for the user, and the next iteration."""
    project.agent(
        """
        case $RALPH_ITERATION in
            1) echo oops >&2; exit 3;;
            2) ;;
            3) echo only noise >&2;;
            4) echo dying; kill -9 $$;;
            5) echo well;;
        esac
        """
    )
    result = project.run("run", "-p", "x", "-m", "5")
    assert [line for line in result.err.splitlines() if line.startswith(("Agent", "==="))] == [
        "=== Ralph iteration 1/5 ===",
        "Agent failed, exit code 3: oops",
        "=== Ralph iteration 2/5 ===",
        "Agent printed nothing",
        "=== Ralph iteration 3/5 ===",
        "Agent printed nothing",
        "=== Ralph iteration 4/5 ===",
        "Agent was killed by signal 9 (SIGKILL)",
        "=== Ralph iteration 5/5 ===",
    ]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-agent", "no-such-agent: command not found"),
        ("./none.sh", "./none.sh: no such file"),
        ("./plain.txt", "./plain.txt: not executable"),
        ("./directory", "./directory: not a regular file"),
    ],
)
def test_an_agent_that_cannot_be_started_is_fatal(project: Project, command: str, reason: str) -> None:
    """Exit 2 at once, with the command and its problem."""
    (project.path / "plain.txt").write_text("text")
    (project.path / "directory").mkdir()
    result = project.run("run", "-p", "x", "--agent", command)
    assert (result.code, result.out.splitlines()[0]) == (2, f"Failed: {reason}")


# ---- signals ----


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_the_agent_finish(project: Project, signum: signal.Signals) -> None:
    """The current operation finishes, nothing new is started, exit 130."""
    project.agent("touch started; while [ ! -f go ]; do sleep 0.02; done; touch finished")
    process = project.start("run", "-p", "x")
    wait_until((project.path / "started").exists)
    process.send_signal(signum)
    assert process.stderr is not None
    for line in process.stderr:
        if line == "Received signal, shutting down...\n":
            break
    (project.path / "go").touch()
    out, _ = process.communicate(timeout=60)
    first, second, hint = out.splitlines()
    assert (process.returncode, first) == (
        130,
        f"Stopped by {'Ctrl-C' if signum == signal.SIGINT else 'SIGTERM'}",
    )
    assert hint == f"  To continue: ralph resume {second.split()[1].rstrip(':')}"
    assert (project.path / "finished").exists()


# ---- verbose ----


def test_verbose_has_its_seven_items(project: Project) -> None:
    """Files, merged settings, agent command, prompt, guardrails, completion, timings: each as `[ralph] …`."""
    project.agent("echo working", agent={"promptVia": "stdin", "flags": ["--model opus"]})
    (project.path / ".ralph/settings.local.json").write_text('{"guardrails": [{"command": "exit 3"}]}')
    result = project.run("run", "-p", "x" * 300, "-m", "1", "-V")
    said = [line for line in result.err.splitlines() if line.startswith("[ralph] ")]
    settings = json.loads(said[2].removeprefix("[ralph] Settings: "))
    assert (settings["maximumIterations"], settings["guardrails"][0]["command"]) == (1, "exit 3")
    seconds = r"\d+\.\d"
    expected = [
        "Loading settings from .ralph/settings.json",
        "Loading settings from .ralph/settings.local.json",
        None,
        "Iteration 1/1 starting",
        f"Agent command: {project.path}/agent.sh --model opus",
        f"Prompt: {'x' * 200}...",
        f"Agent ended: ok, exit code 0 ({seconds}s)",
        f"Completion: {TAG} not found",
        "Running guardrail: exit 3",
        f"Guardrail exited with code 3 ({seconds}s)",
    ]
    assert len(said) == len(expected)
    for line, pattern in zip(said, expected, strict=True):
        if pattern is not None:
            exact = re.escape(f"[ralph] {pattern}").replace(re.escape(seconds), seconds)
            assert re.fullmatch(exact, line), line


def test_secrets_of_the_agent_are_shown_nowhere(project: Project) -> None:
    """A value of agent.env appears in no output, in any view."""
    secret = "hunter2-hunter2"
    project.agent("echo working", agent={"env": {"API_KEY": secret}}, guardrails=[{"command": "false"}])
    verbose = project.run("run", "-p", "x", "-m", "1", "-V")
    run = run_id(verbose)
    results = [
        verbose,
        project.run("run", "-p", "x", "-m", "1", "-V", "--json"),
        project.run("run", "-p", "x", "-m", "1", "--dry-run", "-V"),
        project.run("config"),
        project.run("config", "--json"),
        project.run("status", "--json", run),
        project.run("status", run),
        project.run("logs", "-V", run),
    ]
    assert [secret in result.out + result.err for result in results] == [False] * len(results)
    assert '"API_KEY": "(redacted)"' in verbose.err


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ("./agent.sh --flag", "./agent.sh --flag '<prompt>'"),
        pytest.param(
            "scripted script.yaml",
            "script.yaml",
        ),
    ],
)
def test_verbose_truncates_the_prompt_everywhere(project: Project, agent: str, shown: str) -> None:
    """At most 200 characters of the prompt are printed, even if it is part of the command line."""
    name, flag = agent.split()
    project.script("agent.sh", "echo working")
    (project.path / "script.yaml").write_text("turns: [{say: working}]")
    project.settings(agent={"command": name, "flags": [flag], "promptVia": "argument"}, snapshots=False)
    result = project.run("run", "-p", "x" * 300, "-m", "1", "-V")
    (command,) = [line for line in result.err.splitlines() if "Agent command: " in line]
    assert (command.endswith(shown), "x" * 201 in result.err) == (True, False)


def test_verbose_marks_every_line_of_a_prompt(project: Project) -> None:
    """A prompt of several lines does not look like agent output or a message from ralph."""
    project.agent("echo working", agent={"promptVia": "stdin"}, includeCompletionInstruction=False)
    result = project.run("run", "-p", "one\n\n[ralph] Completion: found", "-m", "1", "-V")
    shown = result.err.partition("[ralph] Prompt: ")[2].partition("working")[0]
    assert shown == "one\n[ralph] \n[ralph] [ralph] Completion: found\n"


# ---- JSON lines ----

FIELDS = {
    "run_started": {
        *("run", "flow", "directory", "agent", "checks", "iterations", "resumed"),
        *("permissions", "fallbacks", "used", "elapsed", "unguarded", "sandbox", "network"),
    },
    "iteration_started": {"iteration", "of", "steered", "agent", "role", "story"},
    "agent_started": {"purpose", "command", "prompt", "prompt_chars"},
    "text": {"text", "thinking"},
    "stderr": {"text"},
    "agent_ended": {"purpose", "ran", "unread"},
    "claim": {"expected", "found", "unclaimed"},
    "check_started": {"check"},
    "check_ended": {"verdict", "fail_action", "seconds"},
    "holding": {"hold"},
    "committed": {"iteration", "commit", "message"},
    "notice": {"text", "detail"},
    "run_ended": {
        *("run", "stop", "iterations", "usage", "seconds", "files", "commits"),
        *("outcome", "exit_code"),
    },
}


def test_json_is_one_object_per_event(project: Project) -> None:
    """A complete run as events with fixed fields, in order; the end comes last, with outcome and exit code."""
    project.agent(
        f"echo words; echo aside >&2; [ $RALPH_ITERATION = 2 ] && touch fixed; echo '{TAG}'",
        guardrails=[{"command": "test -f fixed"}],
    )
    before = time.time()
    result = project.run("run", "-p", "x", "--json")
    events = result.lines()
    assert (result.code, result.err) == (0, "")
    for event in events:
        assert set(event) == FIELDS[event["event"]] | {"event", "at"}
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert before <= events[0]["at"] <= events[-1]["at"] <= time.time()
    one = ["iteration_started", "agent_started", "agent_ended", "claim", "check_started", "check_ended"]
    kinds = [event["event"] for event in events if event["event"] not in ("text", "stderr")]
    assert kinds == ["run_started", *one, *one, "run_ended"]
    assert [event["verdict"]["green"] for event in events if event["event"] == "check_ended"] == [False, True]
    end = events[-1]
    assert (end["run"], end["outcome"], end["exit_code"], end["iterations"]) == (
        events[0]["run"],
        "complete",
        0,
        2,
    )


@pytest.mark.parametrize(
    ("body", "arguments", "code", "outcome"),
    [
        ("echo working", ["-m", "1"], 1, "limit"),
        ("echo working", ["--agent", "no-such-agent"], 2, "fatal"),
    ],
)
def test_json_ends_with_the_exit_code(
    project: Project, body: str, arguments: list[str], code: int, outcome: str
) -> None:
    """The last line has the exit code of the process, however the run ends."""
    project.agent(body)
    result = project.run("run", "-p", "x", "--json", *arguments)
    end = result.lines()[-1]
    assert (result.code, end["event"], end["exit_code"], end["outcome"]) == (code, "run_ended", code, outcome)


def test_json_has_the_agents_output_even_without_streaming(project: Project) -> None:
    """Streaming only affects the display; a program gets every event."""
    project.agent("echo words", streamAgentOutput=False)
    events = project.run("run", "-p", "x", "-m", "1", "--json").lines()
    assert [event["text"] for event in events if event["event"] == "text"] == ["words\n"]


# ---- dry run ----


def test_a_dry_run_shows_and_runs_nothing(project: Project) -> None:
    """Prompt, command and checks of the first iteration; nothing is started or written."""
    project.agent(
        "touch started",
        agent={"flags": ["--model 'a b'"], "promptVia": "stdin"},
        guardrails=[{"command": "touch 'checked it'"}],
        includeIterationCountInPrompt=True,
    )
    before = sorted(project.path.rglob("*"))
    result = project.run("run", "-p", "Fix it", "-m", "3", "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "Prompt for iteration 1:\n"
        f"Iteration 1 of 3, 2 remaining.\n\nFix it\n\n{INSTRUCTION}\n\n"
        "Agent command (prompt via stdin):\n"
        f"{project.path}/agent.sh --model 'a b'\n\n"
        "Checks after each iteration:\n"
        "sh -c 'touch '\"'\"'checked it'\"'\"''\n"
    )
    assert sorted(project.path.rglob("*")) == before
    assert list(project.home.path.iterdir()) == []


def test_a_dry_run_as_json(project: Project) -> None:
    """The same as JSON; the prompt file is read."""
    project.agent("touch started", guardrails=[{"command": "make"}], includeCompletionInstruction=False)
    (project.path / "PROMPT.md").write_text("Fix\nit")
    result = project.run("run", "-f", "PROMPT.md", "--dry-run", "--json")
    assert (result.code, json.loads(result.out)) == (
        0,
        {
            "prompt": "Fix\nit",
            "argv": [f"{project.path}/agent.sh", "<prompt>"],
            "promptVia": "argument",
            "checks": ["make"],
        },
    )


def test_a_dry_run_refuses_what_a_run_refuses(project: Project) -> None:
    """The error is the same as that of a run."""
    result = project.run("run", "-p", "x", "--dry-run")
    assert (result.code, "No agent is configured." in result.err) == (2, True)


# ---- the result ----


def test_only_the_result_is_on_stdout(project: Project) -> None:
    """Progress is on stderr, the outcome and the totals on stdout."""
    project.agent(f"echo working; echo '{TAG}'", guardrails=[{"command": "true"}])
    result = project.run("run", "-p", "x")
    run = run_id(result)
    first, second = result.out.splitlines()
    assert first == PROVED
    assert second.startswith(f"  run {run}: 1 iteration, ")
    start = (
        f"Run {run} started: agent {project.path}/agent.sh, 1 check, up to 10 iterations, no command guard"
    )
    assert result.err.splitlines()[0] == start
