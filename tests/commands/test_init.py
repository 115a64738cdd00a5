"""`ralph init`: the questions in a real terminal, and the same without one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, some
from terminal_support import CTRL_C, CTRL_D, Terminal, terminal

AGENT = "Agent command (e.g., claude, codex, amp, or other LLM CLI)"
FLAGS = "Agent flags (comma-separated, optional):"
PERMISSIONS = "Permissions (edit|bypass|none) [edit]:"
ITERATIONS = "Maximum iterations [10]:"
RESPONSE = "Completion response [DONE]:"
GUARDRAIL = "Add guardrail command (leave blank to finish):"
ACTION = "  Fail action (APPEND|PREPEND|REPLACE):"
HINT = "  Hint (optional, guidance for agent on failure):"
SCM = "Configure SCM? (y/N):"
CHANGES = "May the agent change existing tests? (y/N):"
SCM_COMMAND = "  SCM command (e.g., git):"
SCM_TASKS = "  SCM tasks (comma-separated, e.g., commit,push):"
OVERWRITE = "Overwrite? (y/N):"

ENOUGH = [(FLAGS, ""), (ITERATIONS, ""), (RESPONSE, ""), (GUARDRAIL, ""), (SCM, "")]
"""Only Enter, after an agent that Ralph does not know."""

SPEC = [
    (f"{AGENT}:", "other"),
    (FLAGS, "--model,opus"),
    (ITERATIONS, ""),
    (RESPONSE, ""),
    (GUARDRAIL, "make lint"),
    (ACTION, "APPEND"),
    (HINT, "Fix lint errors only. Do not change behavior."),
    (GUARDRAIL, "make test"),
    (ACTION, "APPEND"),
    (HINT, ""),
    (GUARDRAIL, ""),
    (SCM, "y"),
    (SCM_COMMAND, "git"),
    (SCM_TASKS, "commit"),
]

NEXT = 'Next: ralph run -p "What the agent should do"'
NONE_WRITTEN = "Aborted. Nothing was written."


@pytest.fixture
def empty(project: Project, tmp_path: Path) -> Project:
    """A project on a machine with an unknown agent and nothing else on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    project.extra_env = {"PATH": str(programs)}
    install(project, "other")
    return project


def install(project: Project, *names: str) -> None:
    for name in names:
        program = Path(project.extra_env["PATH"]) / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


def written(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / ".ralph/settings.json").read_text())
    return found


def usual(command: str, /, **others: Any) -> dict[str, Any]:
    """The settings of a user who only presses Enter."""
    return {
        "maximumIterations": 10,
        "completionResponse": "DONE",
        "outputTruncateChars": 5000,
        "streamAgentOutput": True,
        "includeIterationCountInPrompt": False,
        "agent": {"command": command, "flags": []},
        "guardrails": [],
    } | others


def answer_all(found: Terminal, answers: list[tuple[str, str]]) -> int:
    for prompt, answer in answers:
        found.answer(prompt, answer)
    return found.finish()


def transcript(*lines: str) -> str:
    return "\n".join(lines)


def names(project: Project) -> list[str]:
    return sorted(str(path.relative_to(project.path)) for path in project.path.rglob("*"))


# ---- the dialogue ----


def test_the_dialogue_is_as_specified(empty: Project) -> None:
    """Prompts, their order and the file are those of the specification, word for word."""
    with terminal(empty, "init") as found:
        assert answer_all(found, SPEC) == 0
        shown = [f"{prompt} {answer}".rstrip() for prompt, answer in SPEC]
        assert found.screen == transcript(*shown, "", "Settings written to .ralph/settings.json", NEXT)
    assert (empty.path / ".ralph/settings.json").read_text() == (
        """{
  "maximumIterations": 10,
  "completionResponse": "DONE",
  "outputTruncateChars": 5000,
  "streamAgentOutput": true,
  "includeIterationCountInPrompt": false,
  "agent": {
    "command": "other",
    "flags": ["--model", "opus"]
  },
  "guardrails": [
    {
      "command": "make lint",
      "failAction": "APPEND",
      "hint": "Fix lint errors only. Do not change behavior."
    },
    {
      "command": "make test",
      "failAction": "APPEND"
    }
  ],
  "scm": {
    "command": "git",
    "tasks": ["commit"]
  }
}
"""
    )
    assert names(empty) == [".ralph", ".ralph/.gitignore", ".ralph/settings.json"]
    config = empty.run("config")
    assert (config.code, config.err) == (0, "")


def test_enter_is_enough_where_everything_is_found(repository: Project, empty: Project) -> None:
    """With an agent, checks and git in place, each default is what most people want."""
    install(empty, "claude")
    (empty.path / "Makefile").write_text("lint:\ntest:\n")
    answers = [
        (f"{AGENT} [claude]:", ""),
        (FLAGS, ""),
        (PERMISSIONS, ""),
        (ITERATIONS, ""),
        (RESPONSE, ""),
        ("Add guardrail command [make lint]:", ""),
        ("Add guardrail command [make test]:", ""),
        (GUARDRAIL, ""),
        (CHANGES, ""),
        (SCM, "y"),
        (f"{SCM_COMMAND[:-1]} [git]:", ""),
        (f"{SCM_TASKS[:-1]} [commit]:", ""),
    ]
    with terminal(empty, "init") as found:
        assert answer_all(found, answers) == 0
        assert found.screen == transcript(
            "Installed here: claude (Claude Code)",
            f"{AGENT} [claude]:",
            FLAGS,
            "What may Claude Code do without asking?",
            "  edit    change files here; its own rules apply to everything else",
            "  bypass  anything, including any command; best inside a sandbox",
            "  none    only what its own configuration allows",
            PERMISSIONS,
            ITERATIONS,
            RESPONSE,
            'Checks found in this project: Enter adds one, "-" skips it, another command replaces it.',
            "Add guardrail command [make lint]:",
            "Add guardrail command [make test]:",
            GUARDRAIL,
            CHANGES,
            "Configure SCM? (y/N): y",
            "  SCM command (e.g., git) [git]:",
            "  SCM tasks (comma-separated, e.g., commit,push) [commit]:",
            "",
            "Settings written to .ralph/settings.json",
            NEXT,
        )
    checks = [{"command": f"make {name}", "failAction": "APPEND"} for name in ("lint", "test")]
    assert written(empty) == usual("claude", guardrails=checks, scm={"command": "git", "tasks": ["commit"]})
    repository.extra_env = {}
    assert "?? .ralph/settings.json" in repository.git("status", "--porcelain", "-uall").splitlines()


def test_the_agent_may_be_allowed_to_change_tests(repository: Project, empty: Project) -> None:
    """By an answer or an option; the question comes only if a guardrail runs tests and git knows how they were."""
    install(empty, "claude")
    for option, value in (("--no-protect", False), ("--protect", None)):
        done = empty.run("init", "--yes", "--force", "--guardrail", "pytest", option)
        assert done.code == 0, done
        assert json.loads((empty.path / ".ralph/settings.json").read_text()).get("protect") is value


def test_every_invalid_answer_is_asked_again(empty: Project) -> None:
    """Missing answers, invalid numbers, unknown words: one line says why, then the question is repeated."""
    answers = [
        (f"{AGENT}:", ""),
        (f"{AGENT}:", "  "),
        (f"{AGENT}:", "it's"),
        (f"{AGENT}:", "claude"),
        (FLAGS, "--say 'it"),
        (FLAGS, " --model opus , ,--x"),
        (PERMISSIONS, "all"),
        (PERMISSIONS, "Bypass"),
        (ITERATIONS, "0"),
        (ITERATIONS, "-3"),
        (ITERATIONS, "many"),
        (ITERATIONS, " 7 "),
        (RESPONSE, "Fertig"),
        (GUARDRAIL, "make test"),
        (ACTION, ""),
        (ACTION, "later"),
        (ACTION, "prepend"),
        (HINT, ""),
        (GUARDRAIL, ""),
        (SCM, "perhaps"),
        (SCM, "Yes"),
        (SCM_COMMAND, ""),
        (SCM_COMMAND, "hg"),
        (SCM_TASKS, " , "),
        (SCM_TASKS, "commit, push"),
    ]
    with terminal(empty, "init") as found:
        assert answer_all(found, answers) == 0
        errors = [line for line in found.screen.splitlines() if line.startswith("Error: ")]
    assert errors == [
        "Error: the agent command is required.",
        "Error: the agent command is required.",
        'Error: The agent "it\'s": No closing quotation.',
        "Error: agent.flags: No closing quotation.",
        "Error: please answer one of edit, bypass, none.",
        *(f"Error: must be 1 or more, not {text!r}." for text in ("0", "-3")),
        "Error: must be a whole number, not 'many'.",
        "Error: please answer one of APPEND, PREPEND, REPLACE.",
        "Error: please answer one of APPEND, PREPEND, REPLACE.",
        "Error: please answer y or n.",
        "Error: the command is required.",
        "Error: a task is required.",
    ]
    assert written(empty) == usual(
        "claude",
        maximumIterations=7,
        completionResponse="Fertig",
        agent={"command": "claude", "flags": ["--model opus", "--x"], "permissions": "bypass"},
        guardrails=[{"command": "make test", "failAction": "PREPEND"}],
        scm={"command": "hg", "tasks": ["commit", "push"]},
    )


def test_an_agent_with_its_flags_in_one_answer(empty: Project) -> None:
    """They are split; flags that set permissions skip that question; a missing agent is reported."""
    answers = [
        (f"{AGENT}:", "claude --permission-mode plan --name 'a b'"),
        *ENOUGH[1:],
    ]
    with terminal(empty, "init") as found:
        assert answer_all(found, answers) == 0
        note = "  claude: command not found. Install it before you start `ralph run`."
        assert found.screen.splitlines()[1:3] == [note, ITERATIONS]
    flags = ["--permission-mode", "plan", "--name", "'a b'"]
    assert written(empty)["agent"] == {"command": "claude", "flags": flags}


def test_an_answer_can_be_edited(empty: Project) -> None:
    """Arrow keys and backspace work; their escape sequences never end up in an answer."""
    with terminal(empty, "init") as found:
        answer_all(found, [(f"{AGENT}:", "othr\x1b[De\x1b[Cx\x7f"), *ENOUGH])
    assert written(empty)["agent"]["command"] == "other"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_invalid_text_is_asked_again(empty: Project, errors: str) -> None:
    """Neither invalid UTF-8, however Python reads it, nor control characters get into the settings."""
    empty.extra_env |= {"PYTHONIOENCODING": f"utf-8:{errors}"}
    with terminal(empty, "init", "--agent", "other") as found:
        answers = [(RESPONSE, "A\x16\x1b[31mB"), (RESPONSE, "A\udcffB"), (RESPONSE, "Ä")]
        assert answer_all(found, [*ENOUGH[:2], *answers, *ENOUGH[3:]]) == 0
        problem = "Error: the answer contains characters that are not text; please type it again."
        assert [line for line in found.screen.splitlines() if line.startswith("Error")] == [problem] * 2
    assert written(empty)["completionResponse"] == "Ä"


def test_installed_agents_are_offered(empty: Project) -> None:
    """The agents that Ralph was tested with come first; for Amp, edit is explained as the same as bypass."""
    install(empty, "amp", "claude")
    with terminal(empty, "init", "-m", "5") as found:
        answers = [(f"{AGENT} [claude]:", "amp"), (FLAGS, ""), (PERMISSIONS, "none")]
        assert answer_all(found, [*answers, *ENOUGH[2:]]) == 0
        assert "Installed here: claude (Claude Code), amp (Amp)" in found.screen
        assert "  edit    same as bypass: this agent has no files-only mode" in found.screen
    agent = {"command": "amp", "flags": [], "permissions": "none"}
    assert written(empty) == usual("amp", agent=agent, maximumIterations=5)


def test_proposals_are_taken_left_out_or_replaced(empty: Project) -> None:
    """Enter and y add a proposal, a dash and n skip it, a command replaces it and gets the follow-up questions."""
    targets = ["lint", "check", "build"]
    (empty.path / "Makefile").write_text("".join(f"{target}:\n" for target in targets))
    (empty.path / "go.mod").touch()
    answers = [
        ("[make lint]:", "-"),
        ("[make check]:", "make build"),
        (ACTION, "REPLACE"),
        (HINT, "Try again"),
        ("[go test ./...]:", "y"),
        (GUARDRAIL, "./more.sh"),
        (ACTION, "append"),
        (HINT, ""),
        *ENOUGH[3:],
    ]
    with terminal(empty, "init", "--agent", "other") as found:
        assert answer_all(found, [*ENOUGH[:3], *answers]) == 0
    assert written(empty)["guardrails"] == [
        {"command": "make build", "failAction": "REPLACE", "hint": "Try again"},
        {"command": "go test ./...", "failAction": "APPEND"},
        {"command": "./more.sh", "failAction": "APPEND"},
    ]


def test_the_dialogue_is_seen_when_stdout_is_a_file(empty: Project) -> None:
    """Questions still go to the terminal; the file gets the result."""
    with open(empty.path / "out", "wb") as out, terminal(empty, "init", stdout=out.fileno()) as found:
        assert answer_all(found, [(f"{AGENT}:", "other"), *ENOUGH]) == 0
    assert (empty.path / "out").read_text() == f"\nSettings written to .ralph/settings.json\n{NEXT}\n"


# ---- leaving ----


@pytest.mark.parametrize(
    "number", some(range(len(SPEC)), 3), ids=[prompt.split("(")[0].strip() for prompt, _ in SPEC]
)
def test_ctrl_c_leaves_nothing(empty: Project, number: int) -> None:
    """At every question Ctrl-C exits with 130, and no file or directory is created."""
    with terminal(empty, "init") as found:
        for prompt, answer in SPEC[:number]:
            found.answer(prompt, answer)
        found.expect(SPEC[number][0])
        found.type(CTRL_C)
        assert (found.finish(), found.screen.splitlines()[-1]) == (130, NONE_WRITTEN)
    assert names(empty) == []


@pytest.mark.parametrize("number", [0, 6, 11])
def test_the_end_of_input_leaves_nothing(empty: Project, number: int) -> None:
    """Ctrl-D does the same."""
    with terminal(empty, "init") as found:
        for prompt, answer in SPEC[:number]:
            found.answer(prompt, answer)
        found.expect(SPEC[number][0])
        found.type(CTRL_D)
        assert (found.finish(), found.screen.splitlines()[-1]) == (130, NONE_WRITTEN)
    assert names(empty) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(empty: Project, number: int) -> None:
    """A signal from outside works like Ctrl-C."""
    with terminal(empty, "init") as found:
        found.expect(f"{AGENT}:")
        found.process.send_signal(number)
        assert (found.finish(), found.screen.splitlines()[-1]) == (130, NONE_WRITTEN)
    assert names(empty) == []


# ---- settings that exist ----


def test_existing_settings_are_shown_and_kept(empty: Project) -> None:
    """They are shown merged, without secrets; Enter means no: exit 0, nothing changes."""
    empty.settings(agent={"command": "old", "env": {"KEY": "sk-123"}}, maxCostUsd=5)
    before = (empty.path / ".ralph/settings.json").read_bytes()
    with terminal(empty, "init") as found:
        assert answer_all(found, [(OVERWRITE, "")]) == 0
        shown, loaded, question = found.screen.rsplit("\n", 2)
        assert (loaded, question) == ("Loaded from .ralph/settings.json", OVERWRITE)
    agent = {"command": "old", "flags": [], "env": {"KEY": "(redacted)"}}
    assert json.loads(shown) == usual("old", agent=agent, maxCostUsd=5.0)
    assert (empty.path / ".ralph/settings.json").read_bytes() == before
    assert names(empty) == [".ralph", ".ralph/settings.json"]


def test_the_local_file_is_laid_over(empty: Project) -> None:
    """The settings in force are shown, with the files they come from."""
    empty.settings(agent={"command": "old"}, maximumIterations=3)
    (empty.path / ".ralph/settings.local.json").write_text('{"maximumIterations": 4}')
    with terminal(empty, "init") as found:
        assert answer_all(found, [(OVERWRITE, "n")]) == 0
        shown, loaded, _ = found.screen.rsplit("\n", 2)
    assert loaded == "Loaded from .ralph/settings.json (with local overlay from settings.local.json)"
    assert json.loads(shown) == usual("old", maximumIterations=4)


def test_overwritten_settings_are_kept_aside(empty: Project) -> None:
    """Yes writes new settings; each old file is kept under a name that is printed, with its mode."""
    empty.settings(agent={"command": "first"})
    path = empty.path / ".ralph/settings.json"
    path.chmod(0o600)
    for agent, kept in (("second", ".bak"), ("third", ".bak.2")):
        with terminal(empty, "init", "--agent", agent) as found:
            assert answer_all(found, [(OVERWRITE, "y"), *ENOUGH]) == 0
            said = f"Old settings saved as .ralph/settings.json{kept}"
            assert found.screen.splitlines()[-2:] == [said, NEXT]
    agents = [json.loads(Path(f"{path}{end}").read_text())["agent"] for end in (".bak", ".bak.2", "")]
    assert [agent["command"] for agent in agents] == ["first", "second", "third"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_broken_settings_can_be_overwritten(empty: Project) -> None:
    """The problem is shown, then the question; the old file is kept."""
    (empty.path / ".ralph").mkdir()
    path = empty.path / ".ralph/settings.json"
    path.write_text('{\n  "agent": \n}')
    with terminal(empty, "init", "--agent", "other") as found:
        assert answer_all(found, [(OVERWRITE, "y"), *ENOUGH]) == 0
        problem = (
            "The existing settings are invalid: .ralph/settings.json:3: not valid JSON: Expecting value."
        )
        assert found.screen.splitlines()[:2] == [problem, f"{OVERWRITE} y"]
    assert written(empty) == usual("other")
    assert Path(f"{path}.bak").read_text() == '{\n  "agent": \n}'


def test_ctrl_c_at_the_overwrite_question_changes_nothing(empty: Project) -> None:
    """At this or any later question: the old file stays as it is, without a copy."""
    empty.settings(agent={"command": "old"})
    for answers in ([], [(OVERWRITE, "y")]):
        with terminal(empty, "init") as found:
            for prompt, answer in answers:
                found.answer(prompt, answer)
            found.expect(f"{AGENT}:" if answers else OVERWRITE)
            found.type(CTRL_C)
            assert found.finish() == 130
    assert written(empty) == {"agent": {"command": "old"}}
    assert names(empty) == [".ralph", ".ralph/settings.json"]


# ---- without a terminal ----


def test_without_a_terminal_it_says_how(empty: Project) -> None:
    """Questions need a terminal; a script uses --yes."""
    result = empty.run("init", stdin="claude\n\n\n\n\n\n")
    assert (result.code, result.out, result.err) == (
        2,
        "",
        "ralph: error: `ralph init` asks questions, but stdin is not a terminal.\n"
        '  In a script, run: ralph init --yes --agent claude --guardrail "make test"\n',
    )
    assert names(empty) == []


def test_yes_takes_what_it_finds(empty: Project) -> None:
    """The first installed agent, the project's own checks; the settings and the next step are printed."""
    install(empty, "claude")
    (empty.path / "Cargo.toml").touch()
    result = empty.run("init", "--yes")
    checks = [{"command": f"cargo {name}", "failAction": "APPEND"} for name in ("clippy", "test")]
    shown, _, rest = result.out.partition("Settings")
    assert (result.code, result.err, rest) == (0, "", f" written to .ralph/settings.json\n{NEXT}\n")
    assert json.loads(shown) == written(empty) == usual("claude", guardrails=checks)


def test_yes_uses_the_options(empty: Project) -> None:
    """Every answer has its option; a missing agent is a warning."""
    (empty.path / "Cargo.toml").touch()
    words = ["-m", "3", "-c", "FINISHED", "--permissions", "bypass"]
    words += ["--agent", "claude --x", "--flag", "--model opus", "--flag", "--y"]
    words += ["--guardrail", "make a", "--guardrail", "make b", "--scm", "git", "--scm-task", "commit"]
    result = empty.run("init", "--yes", *words, "--scm-task", "push")
    assert (result.code, result.err) == (0, "ralph: warning: claude: command not found.\n")
    assert written(empty) == usual(
        "claude",
        maximumIterations=3,
        completionResponse="FINISHED",
        agent={"command": "claude", "flags": ["--x", "--model opus", "--y"], "permissions": "bypass"},
        guardrails=[{"command": f"make {name}", "failAction": "APPEND"} for name in "ab"],
        scm={"command": "git", "tasks": ["commit", "push"]},
    )
    assert empty.run("config").code == 0


def test_the_built_in_agent_is_always_there(empty: Project) -> None:
    """It is part of Ralph: it is not searched on PATH, and no warning is printed."""
    result = empty.run("init", "--yes", "--agent", "scripted turns.yaml")
    assert (result.code, result.err) == (0, "")
    assert written(empty)["agent"] == {"command": "scripted", "flags": ["turns.yaml"]}
    (empty.path / "turns.yaml").write_text('{"turns": [{"say": "<response>DONE</response>"}]}')
    assert empty.run("run", "-p", "x").code == 0


def test_no_guardrails(empty: Project) -> None:
    """--no-guardrails skips all proposals."""
    (empty.path / "Cargo.toml").touch()
    assert empty.run("init", "--yes", "--agent", "other", "--no-guardrails").code == 0
    assert written(empty) == usual("other")


def test_what_it_writes_can_be_run(repository: Project) -> None:
    """`ralph init --yes` and `ralph run` are all it takes."""
    command = repository.script("agent.sh", "echo x > made; echo '<response>DONE</response>'")
    options = ["--guardrail", "test -f made", "--scm-task", "commit"]
    assert repository.run("init", "--yes", "--agent", command, *options).code == 0
    repository.git("config", "user.email", "test@localhost")
    repository.git("config", "user.name", "Test")
    assert repository.run("run", "-p", "Make it").code == 0
    assert "made" in repository.git("show", "--stat", "HEAD")


ERRORS = [
    (
        ["--agent", ""],
        "Invalid value for '--agent': must not be empty.",
        "For help, run: ralph init --help",
    ),
    (
        ["--guardrail", " "],
        "Invalid value for '--guardrail': must not be empty.",
        "For help, run: ralph init --help",
    ),
    (
        ["--agent", "''"],
        "The agent command is empty.",
        "Name a command, for example claude.",
    ),
    (
        ["-m", "0"],
        "Invalid value for '-m' / '--maximum-iterations': must be 1 or more, not '0'.",
        "For help, run: ralph init --help",
    ),
    (
        ["--agent", "other", "--flag", "'"],
        "agent.flags: No closing quotation.",
        "Each entry is split like a shell command line.",
    ),
    (
        ["--guardrail", "make", "--no-guardrails"],
        "--guardrail and --no-guardrails cannot be used together.",
        "Remove one of them.",
    ),
    (
        ["--agent", "other", "--permissions", "bypass"],
        "--permissions has no effect for other: Ralph does not know this agent, or its flags already set the permissions.",
        "Remove --permissions, and pass the agent's own flags with --flag.",
    ),
    (
        ["--agent", "other", "--scm", "hg"],
        "--scm hg: no task given.",
        "Add one, for example: --scm-task commit",
    ),
    (
        ["--agent", "other", "--scm-task", "commit"],
        "--scm-task: this is not a git repository.",
        "Add the command too: --scm COMMAND",
    ),
]


@pytest.mark.parametrize(("words", "message", "hint"), ERRORS, ids=[" ".join(row[0]) for row in ERRORS])
def test_invalid_options_are_one_error(empty: Project, words: list[str], message: str, hint: str) -> None:
    """The error names the option and what to do; nothing is written."""
    result = empty.run("init", "--yes", *words)
    assert (result.code, result.out, result.err) == (2, "", f"ralph: error: {message}\n  {hint}\n")
    assert names(empty) == []


def test_without_any_agent_there_is_nothing_to_take(empty: Project) -> None:
    """--yes alone needs an installed agent."""
    result = empty.run("init", "--yes")
    first, second = result.err.splitlines()
    assert (result.code, second) == (2, "  Install one, or name another: ralph init --yes --agent COMMAND")
    assert first.startswith("ralph: error: No agent found: none of claude")
    assert names(empty) == []


def test_force_overwrites(empty: Project) -> None:
    """Existing settings stop --yes; --force overwrites them with a backup, unless they are identical."""
    empty.settings(agent={"command": "old"})
    refused = empty.run("init", "--yes", "--agent", "other")
    assert (refused.code, refused.err) == (
        2,
        "ralph: error: .ralph/settings.json already exists.\n"
        "  To overwrite it and keep a backup, add --force.\n",
    )
    assert written(empty) == {"agent": {"command": "old"}}
    forced = empty.run("init", "--yes", "--agent", "other", "--force")
    said = "Old settings saved as .ralph/settings.json.bak"
    assert (forced.code, forced.out.splitlines()[-2]) == (0, said)
    assert written(empty) == usual("other")
    again = empty.run("init", "--yes", "--agent", "other", "--force")
    assert (again.code, "kept" in again.out) == (0, False)
    assert [name for name in names(empty) if "bak" in name] == [".ralph/settings.json.bak"]


# ---- paths that are not writable ----


@pytest.mark.parametrize("arguments", some([[], ["--yes", "--agent", "other", "--force"]], 1))
def test_an_unusable_path_is_reported_before_any_question(
    empty: Project, tmp_path: Path, arguments: list[str]
) -> None:
    """A link or a file instead of .ralph, a directory instead of the file: exit 2, nothing is touched."""
    outside, ralph = tmp_path / "outside", empty.path / ".ralph"
    outside.mkdir()

    def problem() -> str:
        with terminal(empty, "init", *arguments) as found:
            assert found.finish() == 2
            return found.screen.splitlines()[0]

    ralph.symlink_to(outside)
    assert problem().startswith("ralph: error: .ralph is not a directory but a file or a symbolic link")
    ralph.unlink()
    ralph.write_text("a file")
    assert problem().startswith("ralph: error: .ralph is not a directory but a file or a symbolic link")
    ralph.unlink()
    (ralph / "settings.json").mkdir(parents=True)
    assert problem() == "ralph: error: .ralph/settings.json is a directory."
    assert (names(empty), os.listdir(outside)) == ([".ralph", ".ralph/settings.json"], [])
