"""`ralph prd run`: implement, review, fix and approve stories, with real git and real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ralph
from conftest import RALPH, Project, some, some_rows, wait_until
from prd_support import Loop, board, make_loop, story
from ralph.stories.enforce import UNVERIFIED
from ralph.stories.rules import AT_CAP

TOLD = "Ralph about the previous iteration:"


@pytest.fixture
def loop(project: Project) -> Loop:
    return make_loop(project)


def outcome(loop: Loop) -> dict[str, Any]:
    found: dict[str, Any] = loop.project.status()[0]
    return found


def hold_agent(loop: Loop, then: str = "play()", before: str = "") -> None:
    """An agent that reports that it has started, and waits until the test lets it continue."""
    wait = "(OUTSIDE / 'at-work').touch()\nwhile not (OUTSIDE / 'go').exists(): time.sleep(0.01)"
    loop.agent(f"{before}\n{wait}\n{then}")


def is_at_work(loop: Loop) -> bool:
    return (loop.outside / "at-work").exists()


@contextmanager
def paused(loop: Loop) -> Iterator[str]:
    """A loop that is paused after its first iteration and then runs to its end; yields its run."""
    hold_agent(loop)
    with loop.project.start("prd", "run") as process:
        wait_until(lambda: is_at_work(loop))
        run: str = outcome(loop)["id"]
        loop.project.run("pause", run)
        (loop.outside / "go").touch()
        wait_until(lambda: outcome(loop)["state"] == "paused")
        yield run
        loop.project.run("resume", run)
        out, err = process.communicate(timeout=60)
    (loop.outside / "ended").write_text(json.dumps([process.returncode, out, err]))


def ended(loop: Loop) -> tuple[int, str, str]:
    """The result of that loop."""
    code, out, err = json.loads((loop.outside / "ended").read_text())
    return code, out, err


# ---- the whole cycle ----


def test_a_story_is_implemented_reviewed_fixed_reviewed_again_and_approved(loop: Loop) -> None:
    """The lifecycle with the counts after every iteration: only a review counts, only a review approves."""
    loop.agent(
        "(OUTSIDE / f'before-{n}').write_text(json.dumps(story()))\n"
        "reject('no tests') if mode == 'review' and story()['reviewCount'] == 0 else play()\n"
        "log(f'## {id} - {mode}')\ncommit(f'{mode}: [{id}]')"
    )
    done = loop.run()
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001", "review US-001", "review-fix US-001", "review US-001"]
    seen = [json.loads((loop.outside / f"before-{n}").read_text()) for n in (1, 2, 3, 4)]
    fields = ("passes", "reviewStatus", "reviewCount", "reviewFeedback")
    assert [tuple(each[field] for field in fields) for each in seen] == [
        (False, None, 0, ""),
        (False, "needs_review", 0, ""),
        (False, "changes_requested", 1, "no tests"),
        (False, "needs_review", 1, ""),
    ]
    assert loop.standing() == (True, "approved", 2)
    words = ["review: [US-001]", "review-fix: [US-001]", "review: [US-001]", "implement: [US-001]", "First"]
    assert loop.subjects == words, "nothing was left for Ralph to commit"
    assert "=== Ralph iteration 3/15: review-fix US-001 ===" in done.err
    assert outcome(loop)["cause"] == "proved"
    assert not (loop.project.path / ".ralph-active").exists()


def test_stories_come_by_dependency_and_priority_and_each_is_counted(project: Project) -> None:
    """Two stories; the one that others depend on comes first; the final counts are those of the reviews."""
    loop = make_loop(project, story("US-001", dependsOn=["US-002"]), story("US-002", priority=9))
    loop.agent("reject() if mode == 'review' and n == 2 else play()")
    assert loop.run().code == 0
    reviews = [each for each in loop.modes if each.startswith("review ")]
    assert reviews == ["review US-002", "review US-002", "review US-001"]
    assert {id: each["reviewCount"] for id, each in loop.stories.items()} == {"US-001": 1, "US-002": 2}


def test_the_marker_tells_the_hooks_what_this_iteration_is_allowed_to_do(loop: Loop) -> None:
    """The payload as the plugin reads it, rewritten before every iteration, and removed at the end."""
    loop.agent("(OUTSIDE / f'marker-{n}').write_text(MARKER.read_text())\nplay()")
    assert loop.run("-n", "7", "--review-cap", "3").code == 0
    first, second = (json.loads((loop.outside / f"marker-{n}").read_text()) for n in (1, 2))
    assert {key: first[key] for key in ("max_iterations", "mode", "skipReview", "reviewCap", "ralphDir")} == {
        "max_iterations": 7,
        "mode": "direct",
        "skipReview": False,
        "reviewCap": 3,
        "ralphDir": "ralph",
    }
    assert (first["iterationMode"], second["iterationMode"]) == ("implement", "review")
    assert second["preIterationSnapshot"] == {
        "US-001": {"passes": False, "reviewStatus": "needs_review", "reviewCount": 0}
    }
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.parametrize("own", [(), ("--settings", "mine.json"), ("--settings=mine.json",)])
def test_claude_code_gets_the_hooks(loop: Loop, own: tuple[str, ...]) -> None:
    """From outside the project, enabled whatever the project says; unless the user passes their own settings."""
    said = loop.outside / "said"
    claude = loop.outside / "claude"
    claude.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {said}\n')
    claude.chmod(0o755)
    direct = {"rung": "direct"}
    loop.project.settings(agent={"command": str(claude), "flags": list(own)}, snapshots=False, sandbox=direct)
    loop.run("-n", "1")
    words = said.read_text().splitlines()
    assert sum(word.startswith("--settings") for word in words) == 1
    if own:
        assert words[-len(own) :] == list(own)
        return
    path = Path(words[words.index("--settings") + 1])
    assert path.is_relative_to(loop.project.home.path)
    settings = json.loads(path.read_text())
    assert settings["disableAllHooks"] is False
    assert settings["hooks"].keys() == {"PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop"}
    (stop,) = settings["hooks"]["Stop"][0]["hooks"]
    assert stop["command"].startswith(f"{sys.executable} -I -S ")
    assert "stop_loop_reminder.py" in stop["command"]


def test_the_loop_is_not_complete_before_all_are_approved(loop: Loop) -> None:
    """Whatever the agent prints, the loop continues; at the iteration limit the exit code is 1."""
    loop.agent("print('<promise>COMPLETE</promise>')")
    done = loop.run("-n", "2")
    assert done.code == 1
    assert "2 of 2 iterations used" in done.out
    assert loop.standing() == (False, None, 0)


def test_all_approved_is_complete_without_the_tag(loop: Loop) -> None:
    """If the agent forgets the tag, the list decides; a run of a finished list starts no agent."""
    loop.write(loop.tasks | {"verifyCommands": ["true"]})
    first = loop.run()
    assert first.code == 0 and "Done: all stories done; 1 verify command passed\n" in first.out
    again = loop.run()
    assert (again.code, len(loop.prompts)) == (0, 2)
    assert "All stories are already done. Only verification is left." in again.err


def test_a_loop_without_a_repository(project: Project) -> None:
    """Everything but commits works: forbidden changes are undone, and empty answers are detected."""
    loop = make_loop(project)
    shutil.rmtree(project.path / ".git")
    (project.path / ".gitignore").unlink()
    loop.agent("sys.exit() if n == 1 else None\napprove() if n == 2 else play()")
    agent = loop.outside / "agent"
    agent.write_text(agent.read_text().replace('print("I do", mode', 'n == 1 or print("I do", mode'))
    done = loop.run("--no-sandbox", "-n", "3")
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001"] * 3 + ["review US-001"]
    assert "Undone: Story US-001 was reverted" in done.err


def test_the_plugins_script_runs_a_loop(loop: Loop) -> None:
    """`ralph.sh --no-sandbox --max-iterations 1`: one iteration, exit code 1, and the story waits for its review."""
    script = Path(ralph.__file__).parent / "plugin" / "scripts" / "ralph.sh"
    done = subprocess.run(
        ["sh", script, "--no-sandbox", "--max-iterations", "1"],
        cwd=loop.project.path,
        env=loop.project.env | {"PATH": f"{Path(RALPH).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert loop.modes == ["implement US-001"] and loop.standing() == (False, "needs_review", 0)


# ---- forbidden changes ----


def test_an_implementation_that_approves_itself_is_undone_and_reported(loop: Loop) -> None:
    """Restored, committed as undone, in the journal and the outcome, and reported to the next iteration."""
    loop.agent("approve(); commit('feat: approved by myself')")
    done = loop.run("-n", "2")
    assert done.code == 1
    assert loop.standing() == (False, None, 0)
    assert "Undone: Story US-001 was reverted (passes true → false" in done.err
    assert loop.subjects[:2] == [
        "chore: [ralph] undo forbidden changes of an iteration",
        "feat: approved by myself",
    ]
    body = loop.project.git("log", "-1", "--format=%b")
    assert "- Story US-001 was reverted" in body and "only review iterations may" in body
    assert TOLD not in loop.prompts[0]
    assert f"{TOLD}\n- Story US-001 was reverted" in loop.prompts[1]
    assert outcome(loop)["notes"][0].startswith("undone: Story US-001 was reverted")
    run = outcome(loop)["id"]
    assert "Undone: Story US-001 was reverted" in loop.project.run("logs", run).out


def test_allowed_changes_are_kept(loop: Loop) -> None:
    """Only forbidden changes are undone: notes, new stories and the submission stay."""
    loop.agent("implement(); add('US-002'); edit(verifyCommands=['true']); change(passes=True)")
    loop.run("-n", "1")
    assert loop.standing() == (False, None, 0), "a story that passes itself is not submitted either"
    assert loop.stories["US-001"]["notes"] == "done"
    assert (loop.standing("US-002"), loop.tasks["verifyCommands"]) == ((False, None, 0), [])


def test_an_iteration_on_several_stories_is_reported(project: Project) -> None:
    """One story per iteration: editing the notes of another is allowed, but reported."""
    loop = make_loop(project, story(), story("US-002", priority=2))
    loop.agent("implement(); change('US-002', notes='begun') if n == 1 else None")
    loop.run("-n", "2")
    assert (
        f"{TOLD}\n- several stories were changed (US-001, US-002); work on one story per iteration"
        in loop.prompts[1]
    )


@pytest.mark.parametrize("snapshots", some([True, False], 1))
def test_a_review_is_told_about_deleted_tests(loop: Loop, snapshots: bool) -> None:
    """Committed or not; a renamed test does not count as deleted, and files that are not tests are ignored."""
    for name in ("tests/test_a.py", "src/b.test.js", "tests/test_c.py", "d.py"):
        path = loop.project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name} is long enough to be known again\n" * 9)
    loop.project.git("add", "-A")
    loop.project.git("commit", "-qm", "Tests")
    loop.agent(
        "if n == 1:\n"
        "    git('rm', '-q', 'tests/test_a.py', 'd.py'); git('mv', 'tests/test_c.py', 'tests/test_e.py'); commit()\n"
        "    (ROOT / 'src/b.test.js').unlink()\n"
        "play()",
        snapshots=snapshots,
    )
    done = loop.run()
    words = "tests were removed (src/b.test.js, tests/test_a.py); check whether that was right"
    assert done.code == 0 and f"Next prompt will mention: {words}." in done.err, done.err
    assert loop.modes[1] == "review US-001" and f"{TOLD}\n- {words}\n" in f"{loop.prompts[1]}\n"
    assert words in loop.project.run("logs", outcome(loop)["id"]).out


@pytest.mark.parametrize("snapshots", some([True, False], 1))
def test_a_review_is_told_about_tests_that_lost_lines(loop: Loop, snapshots: bool) -> None:
    """A test with fewer lines might be weaker; one that only grew, or is new, is not reported."""
    for name in ("tests/test_a.py", "tests/test_b.py", "src/code.py"):
        path = loop.project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("assert f(1) == 1\nassert f(2) == 4\n")
    loop.project.git("add", "-A")
    loop.project.git("commit", "-qm", "Tests")
    loop.agent(
        "if n == 1:\n"
        "    (ROOT / 'tests/test_a.py').write_text('assert f(1) == 1\\nassert True\\n')\n"
        "    with (ROOT / 'tests/test_b.py').open('a') as file: file.write('assert f(3) == 9\\n')\n"
        "    (ROOT / 'src/code.py').write_text('')\n"
        "    (ROOT / 'tests/test_c.py').write_text('assert True\\n')\n"
        "play()",
        snapshots=snapshots,
    )
    done = loop.run()
    words = "lines of tests were changed or removed (tests/test_a.py); check whether they still test the same things"
    assert done.code == 0 and f"Next prompt will mention: {words}." in done.err, done.err
    assert loop.modes[1] == "review US-001" and f"{TOLD}\n- {words}\n" in f"{loop.prompts[1]}\n"


@pytest.mark.parametrize("globs", some([None, ["tests/"]], 2))
def test_a_review_is_told_that_old_tests_fail(loop: Loop, globs: list[str] | None) -> None:
    """After an approval: the next prompt and the outcome say so; with globs in `protect`, the approval is revoked."""
    test = loop.project.path / "tests/test_a.py"
    test.parent.mkdir()
    test.write_text(
        "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        open('made')\n"
    )
    loop.project.git("add", "-A")
    loop.project.git("commit", "-qm", "Tests")
    command = f"{sys.executable} -W ignore -m unittest discover tests"
    loop.write(board(story("US-001"), story("US-002"), verifyCommands=[command]))
    weak = "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        pass\n"
    loop.agent(f"(ROOT / 'tests/test_a.py').write_text({weak!r}) if n == 1 else None\nplay()", protect=globs)
    done = loop.run("-n", "4")
    told = "Changed: tests/test_a.py\nCheck whether changing them was right."
    assert told in loop.prompts[2], loop.prompts[2]
    assert "changed tests: tests/test_a.py" in done.out
    if globs is None:
        assert (done.code, loop.modes[2]) == (0, "implement US-002")
        assert "note: old tests fail: tests/test_a.py as it was when the run started" in done.out
    else:
        assert (done.code, loop.modes[2]) == (1, "review-fix US-001")


def test_a_review_without_a_decision_is_repeated(project: Project) -> None:
    """The next one is told why."""
    loop = make_loop(project, story(reviewStatus="needs_review", notes="done"))
    loop.agent("play() if n == 2 else log('I looked')")
    assert loop.run("-n", "2").code == 0
    assert "the review made no decision about US-001" in loop.prompts[1]


def test_a_branch_without_a_name(loop: Loop) -> None:
    """A list with the branch name of the template does not name another branch: a notice says what to do."""
    loop.write(board(branchName="ralph/feature-name"))
    done = loop.run()
    assert "branchName in tasks.json is still the template's ralph/feature-name." in done.err
    assert "You are on" not in done.err


def test_a_detached_head_is_reported(loop: Loop) -> None:
    """Commits without a branch are easily lost: the start and `status` say so."""
    loop.project.git("checkout", "-q", "--detach")
    words = "You are on no branch (a detached HEAD), but tasks.json names"
    assert words in loop.project.run("prd", "status").out
    assert words in loop.run("-n", "1").err


def test_a_wrong_branch_is_reported(loop: Loop) -> None:
    """Ralph never switches branches; work on another branch than the list's is reported."""
    loop.write(board(branchName="ralph/calc"))
    loop.agent("git('checkout', '-q', '-b', {1: 'other', 2: 'ralph/calc'}[n])")
    loop.run("-n", "3")
    assert "the iteration left branch main for other" in loop.prompts[1]
    assert TOLD not in loop.prompts[2]


def test_the_progress_log_only_grows(loop: Loop) -> None:
    """Its head can be edited and entries can be added, but none removed."""
    loop.agent(
        "text = PROGRESS.read_text()\n"
        "log('## one') if n == 1 else None\n"
        "PROGRESS.write_text(text.replace('- none', '- tabs') + '## two\\n') if n == 2 else None\n"
        "PROGRESS.write_text(text.replace('## one\\n', '') + '## three\\n') if n == 3 else None\n"
    )
    done = loop.run("-n", "3")
    text = (loop.folder / "progress.txt").read_text()
    assert text.count("- This was planned.") == 1 and "- tabs" in text
    assert [line for line in text.splitlines() if line[:5] in ("## on", "## tw", "## th")] == [
        "## one",
        "## two",
        "## two",
        "## three",
    ]
    assert done.err.count("progress.txt is append-only below its line") == 1


# ---- verification, the cap, no reviews ----


def test_failed_verify_commands_send_a_story_back_to_be_fixed(loop: Loop) -> None:
    """An approval that verification refutes becomes a request for changes, with the output in the next prompt."""
    loop.write(board(verifyCommands=["true", "test -e fixed || (echo it is not fixed; exit 3)"]))
    loop.agent("(ROOT / 'fixed').touch() if mode == 'review-fix' else None\nplay()")
    done = loop.run()
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001", "review US-001", "review-fix US-001", "review US-001"]
    assert "it is not fixed" in loop.prompts[2] and TOLD in loop.prompts[2]
    assert loop.standing() == (True, "approved", 1), "the review that was refuted does not count"
    assert "chore: [ralph] revoke approvals that verification refuted" in loop.subjects
    assert any("an approval although verification failed" in note for note in outcome(loop)["notes"])


def test_the_cap_approves_with_a_note(loop: Loop) -> None:
    """`--review-cap 1`: outcome, status and list say that it was approved only at the cap."""
    loop.agent("reject('no tests') if mode == 'review' else play()")
    done = loop.run("--review-cap", "1")
    assert done.code == 0
    assert loop.standing() == (True, "approved", 1)
    assert loop.stories["US-001"]["reviewFeedback"] == f"{AT_CAP} no tests"
    assert "all stories approved, some only because they reached the review limit" in done.out
    assert "note: auto-approved at the review limit: US-001" in done.out
    found = outcome(loop)
    assert (found["outcome"], found["cause"]) == ("complete", "auto_approved")
    status = loop.project.run("prd", "status")
    assert "US-001 approved only because the review cap was reached" in status.out
    assert json.loads(loop.project.run("prd", "status", "--json").out)["approvedAtCap"] == ["US-001"]


@pytest.mark.slow
def test_failed_verify_commands_prevent_an_approval_at_the_cap_too(loop: Loop) -> None:
    """Fixes and reviews use up the iterations, and the exit code is 1."""
    loop.write(board(verifyCommands=["false"]))
    loop.agent("reject() if mode == 'review' else play()")
    done = loop.run("--review-cap", "1", "-n", "5")
    assert done.code == 1
    assert loop.modes[1:] == ["review US-001", "review-fix US-001", "review US-001", "review-fix US-001"]
    assert not loop.stories["US-001"]["passes"]
    assert "approved at" not in done.out.partition("\n")[0]


def test_an_approved_list_that_fails_verification_ends_the_run(loop: Loop) -> None:
    """There is nothing left to do: exit 1, with the failed commands; no agent is started."""
    done_story = story(passes=True, reviewStatus="approved", reviewCount=1, notes="x")
    loop.write(board(done_story, verifyCommands=["false"]))
    done = loop.run(timeout=20)
    assert (done.code, loop.prompts) == (1, [])
    assert "all stories were already approved, but verifyCommands: false: exit code 1" in done.out
    assert loop.stories["US-001"]["passes"], "what people have approved stays"


def test_without_reviews_an_implementation_passes_itself(loop: Loop) -> None:
    """`--skip-review`: status null, count 0, one iteration; verify commands still decide."""
    loop.write(board(verifyCommands=["test -e made"]))
    loop.agent("(ROOT / 'made').touch() if n == 2 else None\nchange(passes=True, notes='made')")
    done = loop.run("--skip-review")
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001", "implement US-001"]
    assert loop.standing() == (True, None, 0)
    status = loop.project.run("prd", "status")
    assert (status.code, status.err) == (0, "")
    assert "All stories are done." in status.out
    assert UNVERIFIED not in (loop.folder / "tasks.json").read_text()


def test_a_list_that_was_made_without_reviews(loop: Loop) -> None:
    """In the middle, `status` sees the list as its run did; a run with reviews says how to continue."""
    loop.write(board(story("US-001"), story("US-002"), verifyCommands=[]))
    loop.agent("change(passes=True, notes='made')")
    done = loop.run("--skip-review", "-n", "1")
    assert done.code == 1 and "nothing checks that stories are done" in done.err
    status = loop.project.run("prd", "status")
    assert status.code == 0, status.err
    assert "Next: implement US-002. To start: ralph prd run --skip-review" in status.out
    refused = loop.run()
    assert (
        refused.code == 2 and "A story finished with --skip-review needs --skip-review again" in refused.err
    )


def test_status_sees_the_review_cap_of_the_last_run(loop: Loop) -> None:
    """A count that this cap allowed is not a problem of the list."""
    loop.agent("change(reviewStatus='needs_review')")
    loop.run("--review-cap", "9", "-n", "1")
    loop.write(board(story("US-001", reviewStatus="needs_review", reviewCount=8), verifyCommands=[]))
    assert loop.project.run("prd", "status").code == 0
    assert "the review cap is 5" in loop.project.run("prd", "status", "--review-cap", "5").err


# ---- edits by people ----


@pytest.mark.slow
def test_edits_during_a_pause_count(loop: Loop) -> None:
    """Task list, PRD and prompt are read again; the edits are not attributed to the agent."""
    with paused(loop):
        edited = board(story("US-002"), verifyCommands=["true"])
        edited["userStories"] += [loop.stories["US-001"] | {"acceptanceCriteria": ["Only this"]}]
        loop.write(edited)
        (loop.folder / "prd.md").write_text("# Another PRD\n")
        (loop.folder / "prompt.md").write_text("New: $RALPH_ITERATION: $RALPH_MODE $RALPH_STORY, cap 5.\n")
    code, _, err = ended(loop)
    assert code == 0, err
    assert "Undone" not in err
    assert loop.prompts[1].startswith("New: 2: review US-001")
    assert loop.stories["US-001"]["acceptanceCriteria"] == ["Only this"]
    assert loop.standing("US-002")[0] and (loop.folder / "prd.md").read_text() == "# Another PRD\n"


@pytest.mark.parametrize(
    ("text", "words"),
    some_rows(
        [
            ('{"project": "x",}', "ralph/tasks.json:1: not valid JSON"),
            ('{"project": "x", "project": "y"}', "ralph/tasks.json:1: duplicate key 'project'"),
            ('{"project": "x"}', "ralph/tasks.json: tasks.json: the field 'branchName' is missing"),
            (json.dumps(board(story(passes=True, notes="x"))), "passes=true but reviewStatus is 'null'"),
            ("\xff", "ralph/tasks.json is not UTF-8 text"),
        ],
        2,
    ),
)
def test_a_list_that_people_broke_stops_the_run(loop: Loop, text: str, words: str) -> None:
    """Between two iterations: exit 2, with the problem and how to continue; nothing is changed."""
    with paused(loop) as run:
        (loop.folder / "tasks.json").write_bytes(text.encode("latin-1"))
    code, out, _ = ended(loop)
    assert code == 2
    assert words in out and f"Fix this, then: ralph resume {run}" in out
    assert (loop.folder / "tasks.json").read_bytes() == text.encode("latin-1")
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ("rm -r ralph", "ralph not found"),
        ("rm ralph/prompt.md", "prompt.md is missing"),
        ("rm ralph/tasks.json", "tasks.json is missing"),
        ("mv ralph other; ln -s other ralph", "ralph is not a folder (it is a file or a link)"),
        ("rm -r ralph; touch ralph", "ralph is not a folder (it is a file or a link)"),
        ("echo '{' > ralph/tasks.json", "tasks.json:2: not valid JSON"),
        (f"echo '{json.dumps(board() | {'userStories': []})}' > ralph/tasks.json", "has no stories"),
    ],
)
def test_a_folder_that_is_not_ready_is_refused(loop: Loop, break_it: str, words: str) -> None:
    """Exit 2 before anything is started, and no run is left in the store."""
    subprocess.run(break_it, shell=True, cwd=loop.project.path, check=True)
    done = loop.run()
    assert (done.code, loop.prompts) == (2, [])
    assert words in done.err
    assert loop.project.status() == []


@pytest.mark.parametrize("folder", ["..", ".", "../other", "/elsewhere"])
def test_the_folder_is_inside_the_project(loop: Loop, folder: str) -> None:
    """A folder outside the project is refused."""
    done = loop.run("--ralph-dir", folder)
    assert done.code == 2 and "is not a folder inside" in done.err


def test_the_folder_may_be_deeper(loop: Loop) -> None:
    """It can also be given as an absolute path; a link on the way is not followed later."""
    (loop.project.path / "docs").mkdir()
    loop.folder.rename(loop.project.path / "docs" / "loop")
    loop.agent("RALPH = ROOT / 'docs/loop'; TASKS = RALPH / 'tasks.json'\napprove() if n == 1 else play()")
    done = loop.run("--ralph-dir", str(loop.project.path / "docs" / "loop"), "-n", "3")
    assert done.code == 0, done.err
    assert "Undone: Story US-001 was reverted" in done.err


# ---- one at a time, and the marker ----


def test_a_second_loop_is_refused(loop: Loop) -> None:
    """The error names the run that holds the directory; the marker of the first stays."""
    hold_agent(loop)
    with loop.project.start("prd", "run") as process:
        wait_until(lambda: is_at_work(loop))
        marker = (loop.project.path / ".ralph-active").read_text()
        second = loop.run()
        assert second.code == 2 and "Another run is working in" in second.err
        assert (loop.project.path / ".ralph-active").read_text() == marker
        (loop.outside / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_marker_of_another_loop_is_respected(loop: Loop) -> None:
    """A live process of a loop that does not use our lock: refused, and its marker stays."""
    marker = loop.project.path / ".ralph-active"
    marker.write_text(json.dumps({"pid": os.getpid()}))
    done = loop.run()
    assert done.code == 2 and f"according to .ralph-active (process {os.getpid()})" in done.err
    assert marker.exists() and loop.project.status() == []


@pytest.mark.parametrize(
    "left",
    some(
        [
            '{"pid": 4000000}',
            "no json",
            '{"pid": 1, "pidStart": "another/boot"}',
            '{"pid": "x"}',
            "[]",
            "fifo",
            "dir",
        ],
        2,
    ),
)
def test_a_stale_marker_is_removed(loop: Loop, left: str) -> None:
    """Whatever a killed loop or its agent left in its place is removed."""
    marker = loop.project.path / ".ralph-active"
    if left == "fifo":
        os.mkfifo(marker)
    elif left == "dir":
        marker.mkdir()
    else:
        marker.write_text(left)
    assert loop.run(timeout=30).code == 0
    assert not marker.exists()


@pytest.mark.parametrize("signals", some([1, 2], 1))
def test_an_interrupted_loop_leaves_no_marker_and_no_forbidden_change(loop: Loop, signals: int) -> None:
    """One signal lets the agent finish, two stop it; forbidden changes are undone, and the loop can be resumed."""
    hold_agent(loop, "implement()", before="approve()")
    with loop.project.start("prd", "run") as process:
        wait_until(lambda: is_at_work(loop) and loop.standing()[0])
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Received signal" not in process.stderr.readline():
            pass
        if signals == 2:
            process.send_signal(signal.SIGINT)
        else:
            (loop.outside / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not (loop.project.path / ".ralph-active").exists()
    assert not loop.standing()[0]
    loop.agent()
    assert loop.project.run("resume").code == 0
    assert loop.standing() == (True, "approved", 1)


# ---- kill -9 ----


def killed(loop: Loop, cheat: str) -> str:
    """A loop that is killed while its agent cheats; returns the run."""
    hold_agent(loop, before=cheat)
    with loop.project.start("prd", "run") as process:
        wait_until(lambda: is_at_work(loop))
        process.kill()
    assert (loop.project.path / ".ralph-active").exists()
    found: str = outcome(loop)["id"]
    loop.agent()
    return found


def test_resume_undoes_what_a_killed_iteration_did(loop: Loop) -> None:
    """Forbidden changes of an interrupted iteration are undone too, committed as undone, and reported."""
    run = killed(loop, "approve(); PRD.write_text('nothing'); commit('feat: cheating')")
    assert loop.standing()[0]
    done = loop.project.run("resume")
    assert done.code == 0, done.err
    assert "Undone: Story US-001 was reverted" in done.err
    assert "Undone: ralph/prd.md must not be changed by the agent" in done.err
    assert loop.modes[1:] == ["implement US-001", "review US-001"]
    assert TOLD in loop.prompts[1] and "prd.md" in loop.prompts[1]
    assert "chore: [ralph] undo forbidden changes of an iteration" in loop.subjects
    assert loop.standing() == (True, "approved", 1)
    assert outcome(loop)["id"] == run
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.parametrize(
    "cheat",
    some(
        [
            "approve()",
            "TASKS.unlink(); TASKS.mkdir()",
            "shutil.rmtree(RALPH)",
            "approve(); RALPH.rename(ROOT / 'other'); RALPH.symlink_to('other')",
        ],
        1,
    ),
)
def test_a_new_run_undoes_what_a_killed_iteration_did(loop: Loop, cheat: str) -> None:
    """The next command on the folder undoes them first, and says so; the stale marker is removed."""
    killed(loop, cheat)
    done = loop.run()
    assert done.code == 0, done.err
    assert "A killed loop left forbidden changes. Undone:" in done.err
    assert loop.modes[1:] == ["implement US-001", "review US-001"]
    assert not (loop.project.path / ".ralph-active").exists()


def test_a_killed_iteration_without_forbidden_changes_is_not_accused(loop: Loop) -> None:
    """The marker that it left is removed, and nothing is reported as undone."""
    killed(loop, "pass")
    done = loop.run()
    assert done.code == 0 and "Undone" not in done.err and "killed loop" not in done.err, done.err
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.slow
def test_a_killed_iteration_is_settled_once(loop: Loop) -> None:
    """Status says that it is not settled; an import settles it first, so that the import is not undone later."""
    killed(loop, "approve()")
    assert json.loads(loop.project.run("prd", "status", "--json").out)["unsettled"]
    (loop.outside / "todo.md").write_text("- [ ] Another story\n")
    done = loop.project.run("prd", "import", "--force", str(loop.outside / "todo.md"))
    assert done.code == 0 and "A killed loop left forbidden changes" in done.err
    assert not json.loads(loop.project.run("prd", "status", "--json").out)["unsettled"]
    done = loop.run()
    assert done.code == 0 and "Undone" not in done.err, done.err
    assert loop.stories.keys() == {"US-001"} and loop.stories["US-001"]["title"] == "Another story"


@pytest.mark.parametrize(
    "command", some([("run", "--skip-review"), ("archive",), ("import", "--force", "README.md")], 1)
)
def test_an_agent_cannot_use_the_commands_on_its_own_loop(loop: Loop, command: tuple[str, ...]) -> None:
    """Not even without the marker: the loop is active there."""
    words = ", ".join(repr(word) for word in (RALPH, "prd", *command))
    (loop.project.path / "README.md").write_text("- [ ] Nothing\n")
    loop.agent(
        "MARKER.unlink() if n == 1 else None\n"
        f"done = subprocess.run([{words}], capture_output=True, text=True) if n == 1 else None\n"
        "(OUTSIDE / 'said').write_text(done.stderr) if done else play()"
    )
    assert loop.run().code == 0
    assert "Another loop is running in ralph (process" in (loop.outside / "said").read_text()
    assert ".ralph-active must not be changed by the agent" in loop.prompts[1]
    assert not (loop.project.path / "ralph-archive").exists()


KILLER = """
import json, os, time
if not os.path.exists("killed"):
    open("killed", "w").close()
    board = json.load(open("ralph/tasks.json"))
    board["userStories"][1].update(passes=True, reviewStatus="approved", reviewCount=1, notes="x")
    json.dump(board, open("ralph/tasks.json", "w"))
    os.kill(json.load(open(".ralph-active"))["pid"], 9)
    time.sleep(9)
"""


def test_a_check_that_kills_the_loop_approves_nothing(project: Project) -> None:
    """Verification runs files that the agent wrote: if they edit the list and kill Ralph, the edit is undone."""
    loop = make_loop(project, story(reviewStatus="needs_review", notes="x"), story("US-002", priority=2))
    loop.write(loop.tasks | {"verifyCommands": [f"{sys.executable} check.py"]})
    (project.path / "check.py").write_text(KILLER)
    with project.start("prd", "run") as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: loop.standing("US-002")[0])
    done = project.run("resume")
    assert done.code == 0, done.err
    assert "ralph/tasks.json was changed by a check or a commit hook" in done.err
    assert loop.modes == ["review US-001", "implement US-002", "review US-002"]


# ---- empty answers ----


@pytest.mark.slow
def test_empty_answers_are_asked_again_three_times(loop: Loop) -> None:
    """They do not count as iterations; the fourth does."""
    agent = loop.outside / "agent"
    loop.agent()
    text = agent.read_text().replace('print("I do", mode, id, flush=True)', "")
    agent.write_text(text.replace("\nplay()\n", "\nif n > 3: play(); print('done')\n"))
    assert loop.run("-n", "2").code == 0
    assert [prompt.partition(":")[0] for prompt in loop.prompts] == ["Iteration 1 of 2"] * 4 + [
        "Iteration 2 of 2"
    ]
    assert outcome(loop)["iteration"] == 2


@pytest.mark.slow
def test_four_empty_answers_count_as_an_iteration(loop: Loop) -> None:
    """An agent that never answers does not run forever."""
    agent = loop.outside / "agent"
    text = agent.read_text().replace('print("I do", mode, id, flush=True)', "").replace("\nplay()\n", "\n")
    agent.write_text(text)
    assert loop.run("-n", "1").code == 1
    assert len(loop.prompts) == 4


# ---- backups of undone changes ----


def test_copies_of_undone_changes_are_kept(loop: Loop) -> None:
    """A person may have edited the PRD while the agent was working."""
    loop.agent("PRD.write_text('written by a person') if n == 1 else None\nplay()")
    done = loop.run()
    place = Path(done.err.partition("Undone changes are kept in ")[2].partition("\n")[0])
    assert [path.read_text() for path in place.iterdir() if path.name.endswith("prd.md")] == [
        "written by a person"
    ]


@pytest.mark.slow
def test_a_planted_commit_hook_of_the_user_cannot_approve(project: Project) -> None:
    """The user's own hook runs what the agent wrote: its changes to the folder are undone and reported."""
    loop = make_loop(project, story(reviewStatus="needs_review", notes="x"), story("US-002", priority=2))
    hook = project.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n[ ! -e lint.sh ] || sh lint.sh\n")
    hook.chmod(0o755)
    loop.agent(
        "(ROOT / 'lint.sh').write_text('echo >> ralph/prd.md; rm ralph/tasks.json') if n == 1 else None\nplay()"
    )
    done = loop.run()
    assert done.code == 0, done.err
    assert "ralph/prd.md was changed by a check or a commit hook" in loop.prompts[1]
    assert (loop.folder / "prd.md").read_text().endswith("It adds.\n")
