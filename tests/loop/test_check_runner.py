"""Running checks in the loop: commands, logs, clean copies, reused results and parallel stages."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Project
from loop.loop_support import Checking, command_check, once_there, opened_loop, waiting
from ralph.core.model import Check, Flow
from ralph.errors import RalphError
from ralph.loop import output
from ralph.loop.check_runner import CheckOutcome
from ralph.scm.git import GitError


@contextmanager
def checking(project: Project, *checks: Check, **values: Any) -> Iterator[Checking]:
    with opened_loop(project, checks=checks, **values) as loop:
        yield Checking(loop)


def noting(path: Path, more: str = "true") -> str:
    """A command that records each of its runs in a file outside the project."""
    return f"echo run >> {path}; {more}"


def runs(path: Path) -> int:
    return path.read_text().count("run") if path.exists() else 0


def stages(*commands: str, name: str = "all", **values: Any) -> Check:
    """Stages a, b, … that each run one command."""
    found = [
        {"name": f"stage {chr(97 + number)}", "method": "command", "config": {"command": command}}
        for number, command in enumerate(commands)
    ]
    return Check(name, "multi_stage", json.dumps({"stages": found, "require_all": False} | values))


# ---- commands ----


def test_a_command_gets_the_variables_of_its_iteration(project: Project) -> None:
    """A check's command runs in the project with the agent's variables and an empty stdin."""
    command = 'echo "$RALPH_ITERATION/$RALPH_MAX_ITERATIONS in $(pwd -P)$(cat)"'
    check = command_check(command, "c")
    with checking(project, check) as found:
        assert found.verdict(check, 2).green
        assert found.logs() == {"guardrail_002_c.log": f"2/3 in {project.path}\n"}


def test_a_command_that_takes_too_long_is_red(project: Project) -> None:
    """The command is stopped, the check fails, and there is still a log."""
    check = command_check("exec sleep 60", "slow", timeout=0.01)
    with checking(project, check) as found:
        verdict = found.verdict(check)
        assert (verdict.green, verdict.reason) == (False, "a timeout after 0.01 s")
        assert verdict.log == ".ralph/guardrail_001_slow.log"
        assert found.logs() == {"guardrail_001_slow.log": ""}


def test_stdout_and_stderr_are_one_log(project: Project) -> None:
    """The log has both streams in the order of printing."""
    check = command_check("echo a; echo b >&2; echo c", "c")
    with checking(project, check) as found:
        found.verdict(check)
        assert list(found.logs().values()) == ["a\nb\nc\n"]


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        ("sub", "External verification passed"),
        ("gone", "gone: No such file"),
        ("link", "link is not a directory"),
    ],
)
def test_a_command_in_a_directory_of_the_project(project: Project, directory: str, reason: str) -> None:
    """A missing directory or a link to another place fails the check without stopping the loop."""
    (project.path / "sub").mkdir()
    (project.path / "link").symlink_to("/tmp")
    config = {"command": 'test "$(basename "$(pwd -P)")" = sub', "working_dir": directory}
    check = Check("c", "external", json.dumps(config))
    with checking(project, check) as found:
        verdict = found.verdict(check)
    told = f"{verdict.reason} {verdict.feedback.text if verdict.feedback else ''}"
    assert verdict.green == (directory == "sub") and reason in told


def test_text_in_a_long_output_is_found_in_its_log(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the start and the end are kept in memory; text between is searched in the file, and nothing across the gap."""
    monkeypatch.setattr(output, "MAX_HEAD_BYTES", 10)
    monkeypatch.setattr(output, "MAX_TAIL_BYTES", 10)
    filler = "head -c 50000 /dev/zero | tr '\\0' x"
    command = f"printf 'start some'; {filler}; echo; echo needle; {filler}; printf 'where ends'"

    def contains(text: str) -> Check:
        return Check(text, "external", json.dumps({"command": command, "output_contains": text}))

    checks = [contains(text) for text in ("start", "needle", "where ends", "somewhere")]
    with checking(project, *checks) as found:
        assert [found.verdict(check).green for check in checks] == [True, True, True, False]


@pytest.mark.slow
def test_the_end_of_a_very_long_output_is_shown(project: Project) -> None:
    """The agent sees the last lines, however much came before, and how many lines are missing."""
    check = command_check("seq 1000000; false", "long")
    with checking(project, check) as found:
        verdict = found.verdict(check)
    assert verdict.feedback is not None
    shown = verdict.feedback.text.partition("\nOutput (truncated):\n")[2].splitlines()
    mark = next(line for line in shown if line.startswith("["))
    assert (shown[0], shown[-1]) == ("1", "1000000")
    assert mark == f"[... {1_000_000 - len(shown) + 1:,} lines omitted ...]"
    assert verdict.excerpt == ("999996", "999997", "999998", "999999", "1000000")


def test_an_incomplete_log_is_reported(project: Project) -> None:
    """The verdict counts, and a notice says that the log is incomplete."""
    check = command_check("head -c 9000 /dev/zero", "big")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with checking(project, check) as found:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        try:
            assert found.verdict(check).green
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert found.loop.notices == [".ralph/guardrail_001_big.log is incomplete: File too large"]


def test_a_check_knows_the_claim_the_answer_and_the_board(project: Project) -> None:
    """A promise is searched in the answer, and verify commands come from the story list."""
    promise = Check("p", "string_match", '{"promise": "COMPLETE"}')
    claimed, verify = Check("c", "string_match"), Check("v", "stories")
    board = json.dumps({"verifyCommands": ["true", "exit 3", "echo never"]})
    with checking(project, promise, claimed, verify) as found:
        assert found.verdict(promise, answer="<promise>COMPLETE</promise>").green
        assert not found.verdict(promise, answer="nothing").green
        assert not found.verdict(claimed, is_claimed=False).green
        assert found.verdict(verify, board=board).reason == "exit 3: exit code 3"


# ---- the names of logs ----


def test_each_command_of_a_check_has_its_own_log(project: Project) -> None:
    """Logs are named after check and stage, and equal names are numbered."""
    named = [
        {"name": name, "method": "command", "config": {"command": "true"}} for name in ("a b", "a-b", "c")
    ]
    check = Check("all", "multi_stage", json.dumps({"stages": named}))
    with checking(project, check) as found:
        found.verdict(check)
        names = ["guardrail_001_all_a_b.2.log", "guardrail_001_all_a_b.log", "guardrail_001_all_c.log"]
        assert sorted(found.logs()) == names


def test_checks_with_equal_names_in_logs_are_told_apart(project: Project) -> None:
    """Two checks whose names give the same file name do not overwrite each other's log."""
    checks = command_check("echo one | cat", "echo cat"), command_check("echo two", "echo: cat")
    with checking(project, *checks) as found:
        for check in checks:
            found.verdict(check)
        assert list(found.logs().values()) == ["two\n", "one\n"]


# ---- reused results ----


def test_a_command_of_several_checks_is_run_once_in_an_iteration(project: Project, tmp_path: Path) -> None:
    """If the plan allows it, the second check reuses the result and the log of the first."""
    note = tmp_path / "note"
    checks = command_check(noting(note), "a"), command_check(noting(note), "b")
    with checking(project, *checks, flow=Flow.WORK) as found:
        first, second = (found.verdict(check) for check in checks)
        assert runs(note) == 1 and first.log == second.log
        found.verdict(checks[0], iteration=2)
        assert runs(note) == 2, "results of another iteration do not count"


def test_a_result_of_another_tree_is_not_reused(project: Project, tmp_path: Path) -> None:
    """A result is not reused after the project has changed."""
    note = tmp_path / "note"
    command = noting(note, "touch made; test -e other")
    checks = command_check(command, "a"), command_check(command, "b")
    with checking(project, *checks, flow=Flow.WORK) as found:
        assert not found.verdict(checks[0]).green
        (project.path / "other").touch()
        assert found.verdict(checks[1]).green and runs(note) == 2


@pytest.mark.parametrize(
    ("flow", "second"),
    [
        (Flow.RUN, {}),
        (Flow.WORK, {"timeout": 99.0}),
        (Flow.WORK, {"is_clean": True}),
    ],
)
def test_a_result_is_not_reused_elsewhere(
    repository: Project, tmp_path: Path, flow: Flow, second: dict[str, Any]
) -> None:
    """The command runs again in other flows, with another timeout, or in a clean copy."""
    note = tmp_path / "note"
    checks = command_check(noting(note), "a"), command_check(noting(note), "b", **second)
    with checking(repository, *checks, flow=flow) as found:
        assert [found.verdict(check).green for check in checks] == [True, True]
    assert runs(note) == 2


def test_a_check_has_no_verdict_if_the_tree_is_unknown(repository: Project, tmp_path: Path) -> None:
    """When git fails, it is unknown whether anything changed: that is an error, not a verdict."""
    checks = command_check("true", "a"), command_check("true", "b")
    with checking(repository, *checks, flow=Flow.WORK) as found:
        (repository.path / ".git").rename(tmp_path / "away")
        with pytest.raises(GitError):
            found.verdict(checks[0])


def test_a_clean_check_without_its_copy_has_no_verdict(repository: Project, tmp_path: Path) -> None:
    """A clean check whose copy git cannot write is an error of git, not a failed check."""
    check = command_check("true", is_clean=True)
    with checking(repository, check) as found:
        (repository.path / ".git").rename(tmp_path / "away")
        with pytest.raises(GitError):
            found.verdict(check)


def test_a_command_that_timed_out_is_not_reused(project: Project, tmp_path: Path) -> None:
    """The result of a command that timed out is not reused."""
    command = f"test -e {tmp_path}/quick || exec sleep 60"
    checks = command_check(command, "a", timeout=0.5), command_check(command, "b", timeout=0.5)
    with checking(project, *checks, flow=Flow.WORK) as found:
        assert not found.verdict(checks[0]).green
        (tmp_path / "quick").touch()
        assert found.verdict(checks[1]).green


# ---- clean copies and changes ----


def test_a_clean_copy_has_the_files_git_would_have(repository: Project) -> None:
    """A clean copy has new files but no ignored ones, and is removed afterwards."""
    (repository.path / ".gitignore").write_text("built\n")
    for name in ("built", "new"):
        (repository.path / name).touch()
    check = command_check("test -e new && ! test -e built && touch written && pwd -P", "c", is_clean=True)
    with checking(repository, check) as found:
        assert found.verdict(check).green
        copy = Path(found.logs()["guardrail_001_c.log"].strip())
    assert copy != repository.path and not copy.exists()
    assert not (repository.path / "written").exists()


def test_a_clean_copy_begins_in_the_directory_of_the_run(repository: Project) -> None:
    """A project inside a repository is checked there, with the rest of the repository around it."""
    (inner := repository.path / "inner").mkdir()
    (inner / "file").touch()
    check = command_check("test -e file && test -e ../README.md", "c", is_clean=True)
    with checking(Project(inner, repository.home), check) as found:
        assert found.verdict(check).green


def test_without_a_repository_a_clean_check_is_red(project: Project) -> None:
    """A clean check outside a repository fails with the reason."""
    check = command_check("true", "c", is_clean=True)
    with checking(project, check) as found:
        verdict = found.verdict(check)
    assert not verdict.green and verdict.feedback is not None
    assert "A clean guardrail needs a git repository." in verdict.feedback.text


def test_changes_are_counted_from_the_base_of_the_plan(repository: Project) -> None:
    """The diff starts at the base, and protected files are compared with the trusted commit."""
    base = repository.git("rev-parse", "HEAD").strip()
    changes = Check("changes", "changes")
    protected = Check("protected", "protected", json.dumps({"globs": ["*.md"], "trusted": base}))
    with checking(repository, changes, protected, base=base) as found:
        assert [found.verdict(check).green for check in (changes, protected)] == [False, True]
        (repository.path / "README.md").write_text("Another.\n")
        assert found.verdict(changes).green
        assert found.verdict(protected).reason == "Protected files were changed: README.md"


def test_a_git_failure_in_a_check_is_an_error_unless_interrupted(repository: Project, tmp_path: Path) -> None:
    """A git error gives no verdict: it is raised, or ignored if the run is being stopped."""
    base = repository.git("rev-parse", "HEAD").strip()
    check = Check("changes", "changes")
    with checking(repository, check, base=base) as found:
        (repository.path / ".git").rename(tmp_path / "away")
        with pytest.raises(RalphError, match="git directory"):
            found.outcome(check)
        found.loop.interrupt(2)
        assert found.outcome(check) == CheckOutcome(None)


# ---- stages ----


def test_parallel_stages_run_at_once_and_are_reported_in_order(project: Project, tmp_path: Path) -> None:
    """Verdicts are in the order of the stages, not in the order of their ends."""

    def meet(mine: str, other: str) -> str:
        return f"touch {tmp_path}/{mine}; until test -e {tmp_path}/{other}; do sleep 0.005; done"

    check = stages(f"{meet('a', 'b')}; sleep 0.05; exit 3", meet("b", "a"), parallel=True)
    with checking(project, check) as found:
        verdict = found.verdict(check)
        assert [(part.check, part.green) for part in verdict.parts] == [("stage a", False), ("stage b", True)]
        assert sorted(found.logs()) == ["guardrail_001_all_stage_a.log", "guardrail_001_all_stage_b.log"]


def test_parallel_stages_are_interrupted_together(project: Project, tmp_path: Path) -> None:
    """A second signal stops all stages, and none has a verdict."""
    check = stages(
        f"until test -e {tmp_path}/b; do sleep 0.005; done; {waiting(tmp_path / 'a')}",
        waiting(tmp_path / "b"),
        parallel=True,
    )
    with checking(project, check) as found, once_there(tmp_path / "a", lambda: found.loop.interrupt(2)):
        assert found.outcome(check) == CheckOutcome(None)


def test_stages_one_after_another_end_with_the_first_red_one(project: Project) -> None:
    """If all stages are required, the stages after a failed one do not run."""
    check = stages("true", "exit 3", "echo never", require_all=True)
    with checking(project, check) as found:
        assert [part.green for part in found.verdict(check).parts] == [True, False]
        assert len(found.logs()) == 2
