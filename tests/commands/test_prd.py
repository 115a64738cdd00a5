"""`ralph prd run`: stories implemented, reviewed, fixed and approved, with real git and real processes."""

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

TOLD = "The harness about the iteration before this one:"


@pytest.fixture
def loop(project: Project) -> Loop:
    return make_loop(project)


def outcome(loop: Loop) -> dict[str, Any]:
    found: dict[str, Any] = loop.project.status()[0]
    return found


def hold_agent(loop: Loop, then: str = "play()", before: str = "") -> None:
    """An agent that says that it is at work, and goes on when it is let."""
    wait = "(OUTSIDE / 'at-work').touch()\nwhile not (OUTSIDE / 'go').exists(): time.sleep(0.01)"
    loop.agent(f"{before}\n{wait}\n{then}")


def is_at_work(loop: Loop) -> bool:
    return (loop.outside / "at-work").exists()


@contextmanager
def paused(loop: Loop) -> Iterator[str]:
    """A loop that is paused after its first iteration, and goes on to its end afterwards; its run."""
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
    """How that loop ended."""
    code, out, err = json.loads((loop.outside / "ended").read_text())
    return code, out, err


# ---- the whole way ----


def test_a_story_is_implemented_reviewed_fixed_reviewed_again_and_approved(loop: Loop) -> None:
    """The lifecycle with the counts of every iteration: only a review counts, only a review approves."""
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
    """Two stories; the one that others wait for comes first; the counts in the end are those of the reviews."""
    loop = make_loop(project, story("US-001", dependsOn=["US-002"]), story("US-002", priority=9))
    loop.agent("reject() if mode == 'review' and n == 2 else play()")
    assert loop.run().code == 0
    reviews = [each for each in loop.modes if each.startswith("review ")]
    assert reviews == ["review US-002", "review US-002", "review US-001"]
    assert {id: each["reviewCount"] for id, each in loop.stories.items()} == {"US-001": 1, "US-002": 2}


def test_the_marker_tells_the_hooks_what_this_iteration_may_do(loop: Loop) -> None:
    """The payload as the plugin reads it, anew before every iteration, and gone in the end."""
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
    """From outside of the project, switched on whatever it says; unless the user has settings of their own."""
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
    """Whatever the agent prints; and at the limit of iterations the exit code is 1."""
    loop.agent("print('<promise>COMPLETE</promise>')")
    done = loop.run("-n", "2")
    assert done.code == 1
    assert "2 of 2 iterations used without completion" in done.out
    assert loop.standing() == (False, None, 0)


def test_all_approved_is_complete_without_the_tag(loop: Loop) -> None:
    """An agent that forgets to say so is believed by the list; a run that begins there starts no agent."""
    loop.write(loop.tasks | {"verifyCommands": ["true"]})
    first = loop.run()
    assert first.code == 0 and "complete: every story is done; 1 verify command passed\n" in first.out
    again = loop.run()
    assert (again.code, len(loop.prompts)) == (0, 2)
    assert "Every story is done already: there is only something to verify." in again.err


def test_a_loop_without_a_repository(project: Project) -> None:
    """Everything but commits: what is illegal is undone there too, and empty answers are known."""
    loop = make_loop(project)
    shutil.rmtree(project.path / ".git")
    (project.path / ".gitignore").unlink()
    loop.agent("sys.exit() if n == 1 else None\napprove() if n == 2 else play()")
    agent = loop.outside / "agent"
    agent.write_text(agent.read_text().replace('print("I do", mode', 'n == 1 or print("I do", mode'))
    done = loop.run("--no-sandbox", "-n", "3")
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001"] * 3 + ["review US-001"]
    assert "Undone: Story US-001 was put back" in done.err


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


# ---- what an iteration may not do ----


def test_an_implementation_that_approves_itself_is_undone_and_told(loop: Loop) -> None:
    """Put back, committed as undone, in the journal and the outcome, and told to the next iteration."""
    loop.agent("approve(); commit('feat: approved by myself')")
    done = loop.run("-n", "2")
    assert done.code == 1
    assert loop.standing() == (False, None, 0)
    assert "Undone: Story US-001 was put back (passes true → false" in done.err
    assert loop.subjects[:2] == [
        "chore: [ralph] undo what an iteration may not do",
        "feat: approved by myself",
    ]
    body = loop.project.git("log", "-1", "--format=%b")
    assert "- Story US-001 was put back" in body and "only review iterations may" in body
    assert TOLD not in loop.prompts[0]
    assert f"{TOLD}\n- Story US-001 was put back" in loop.prompts[1]
    assert outcome(loop)["notes"][0].startswith("undone: Story US-001 was put back")
    run = outcome(loop)["id"]
    assert "Undone: Story US-001 was put back" in loop.project.run("logs", run).out


def test_what_is_legal_beside_it_stays(loop: Loop) -> None:
    """Only what is illegal is undone: notes, new stories and the submission stay."""
    loop.agent("implement(); add('US-002'); edit(verifyCommands=['true']); change(passes=True)")
    loop.run("-n", "1")
    assert loop.standing() == (False, None, 0), "a story that passes itself is not submitted either"
    assert loop.stories["US-001"]["notes"] == "done"
    assert (loop.standing("US-002"), loop.tasks["verifyCommands"]) == ((False, None, 0), [])


def test_an_iteration_on_several_stories_is_told_so(project: Project) -> None:
    """One story per iteration: working on the notes of another is legal, and said."""
    loop = make_loop(project, story(), story("US-002", priority=2))
    loop.agent("implement(); change('US-002', notes='begun') if n == 1 else None")
    loop.run("-n", "2")
    assert (
        f"{TOLD}\n- It worked on several stories (US-001, US-002): one story per iteration" in loop.prompts[1]
    )


@pytest.mark.parametrize("snapshots", some([True, False], 1))
def test_whoever_reviews_hears_of_tests_that_are_gone(loop: Loop, snapshots: bool) -> None:
    """Committed or not; a test that has another name now is not gone, and what is no test is nobody's business."""
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
    words = "It removed tests (src/b.test.js, tests/test_a.py): see whether that was right"
    assert done.code == 0 and f"For the next iteration: {words}." in done.err, done.err
    assert loop.modes[1] == "review US-001" and f"{TOLD}\n- {words}\n" in f"{loop.prompts[1]}\n"
    assert words in loop.project.run("logs", outcome(loop)["id"]).out


@pytest.mark.parametrize("snapshots", some([True, False], 1))
def test_whoever_reviews_hears_of_tests_that_have_lost_lines(loop: Loop, snapshots: bool) -> None:
    """A test that was weakened may be; one that only grew, or is new, is not worth a word."""
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
    words = (
        "It changed or removed lines of tests (tests/test_a.py): see whether they still test what they did"
    )
    assert done.code == 0 and f"For the next iteration: {words}." in done.err, done.err
    assert loop.modes[1] == "review US-001" and f"{TOLD}\n- {words}\n" in f"{loop.prompts[1]}\n"


def test_a_review_that_decides_nothing_is_told_so(project: Project) -> None:
    """It is repeated, and hears why."""
    loop = make_loop(project, story(reviewStatus="needs_review", notes="done"))
    loop.agent("play() if n == 2 else log('I looked')")
    assert loop.run("-n", "2").code == 0
    assert "It was a review and decided nothing about US-001" in loop.prompts[1]


def test_a_branch_that_nobody_has_named(loop: Loop) -> None:
    """A list with the branch of the template is no other branch's: it is said what to do."""
    loop.write(board(branchName="ralph/feature-name"))
    done = loop.run()
    assert "tasks.json has the branch of its template, ralph/feature-name: put the one there" in done.err
    assert "You are on" not in done.err


def test_a_detached_head_is_told(loop: Loop) -> None:
    """Commits that belong to no branch are soon lost: the start and `status` say so."""
    loop.project.git("checkout", "-q", "--detach")
    words = "You are on no branch (a detached HEAD), and tasks.json names"
    assert words in loop.project.run("prd", "status").out
    assert words in loop.run("-n", "1").err


def test_a_branch_that_was_left_is_told(loop: Loop) -> None:
    """Ralph switches no branches; work that goes elsewhere is said. To the branch of the list anybody may go."""
    loop.write(board(branchName="ralph/calc"))
    loop.agent("git('checkout', '-q', '-b', {1: 'other', 2: 'ralph/calc'}[n])")
    loop.run("-n", "3")
    assert "It left branch main and stayed on other" in loop.prompts[1]
    assert TOLD not in loop.prompts[2]


def test_the_log_of_progress_only_grows(loop: Loop) -> None:
    """Its head may be curated, entries may be added, none may go."""
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
    assert done.err.count("progress.txt only grows below its line") == 1


# ---- verification, the cap, no reviews ----


def test_red_verify_commands_send_a_story_back_to_be_mended(loop: Loop) -> None:
    """An approval that verification refutes is a request for changes, and its output is in the next prompt."""
    loop.write(board(verifyCommands=["true", "test -e mended || (echo it is not mended; exit 3)"]))
    loop.agent("(ROOT / 'mended').touch() if mode == 'review-fix' else None\nplay()")
    done = loop.run()
    assert done.code == 0, done.err
    assert loop.modes == ["implement US-001", "review US-001", "review-fix US-001", "review US-001"]
    assert "it is not mended" in loop.prompts[2] and TOLD in loop.prompts[2]
    assert loop.standing() == (True, "approved", 1), "the review that was refuted does not count"
    assert "chore: [ralph] take back what verification has refuted" in loop.subjects
    assert any("an approval that verification has refuted" in note for note in outcome(loop)["notes"])


def test_the_cap_approves_with_a_note(loop: Loop) -> None:
    """`--review-cap 1`: outcome, status and list say that it was approved only at the cap."""
    loop.agent("reject('no tests') if mode == 'review' else play()")
    done = loop.run("--review-cap", "1")
    assert done.code == 0
    assert loop.standing() == (True, "approved", 1)
    assert loop.stories["US-001"]["reviewFeedback"] == f"{AT_CAP} no tests"
    assert "every story approved, some only at the review cap" in done.out
    assert "note: auto-approved at the review cap: US-001" in done.out
    found = outcome(loop)
    assert (found["outcome"], found["cause"]) == ("complete", "auto_approved")
    status = loop.project.run("prd", "status")
    assert "US-001 only because the review cap was reached" in status.out
    assert json.loads(loop.project.run("prd", "status", "--json").out)["approvedAtCap"] == ["US-001"]


@pytest.mark.slow
def test_red_verify_commands_prevent_an_approval_at_the_cap_too(loop: Loop) -> None:
    """The iterations are used up by fixes and reviews, and the exit code is 1."""
    loop.write(board(verifyCommands=["false"]))
    loop.agent("reject() if mode == 'review' else play()")
    done = loop.run("--review-cap", "1", "-n", "5")
    assert done.code == 1
    assert loop.modes[1:] == ["review US-001", "review-fix US-001", "review US-001", "review-fix US-001"]
    assert not loop.stories["US-001"]["passes"]
    assert "approved at" not in done.out.partition("\n")[0]


def test_a_list_that_is_approved_and_red_ends_the_run(loop: Loop) -> None:
    """Nobody has anything left to do: exit 1, with what is red; no agent is started."""
    done_story = story(passes=True, reviewStatus="approved", reviewCount=1, notes="x")
    loop.write(board(done_story, verifyCommands=["false"]))
    done = loop.run(timeout=20)
    assert (done.code, loop.prompts) == (1, [])
    assert "every story was approved before, but verifyCommands: false: exit code 1" in done.out
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
    assert "Every story is done." in status.out
    assert UNVERIFIED not in (loop.folder / "tasks.json").read_text()


def test_a_list_that_was_made_without_reviews(loop: Loop) -> None:
    """In the middle of it `status` sees it as its run did; a run with reviews says how to go on."""
    loop.write(board(story("US-001"), story("US-002"), verifyCommands=[]))
    loop.agent("change(passes=True, notes='made')")
    done = loop.run("--skip-review", "-n", "1")
    assert done.code == 1 and "done by the word of its agent alone" in done.err
    status = loop.project.run("prd", "status")
    assert status.code == 0, status.err
    assert "Next: implement US-002, with: ralph prd run --skip-review" in status.out
    refused = loop.run()
    assert (
        refused.code == 2 and "A story finished with --skip-review needs --skip-review again" in refused.err
    )


def test_status_sees_the_review_cap_of_the_last_run(loop: Loop) -> None:
    """A count that this cap allowed is no problem of the list."""
    loop.agent("change(reviewStatus='needs_review')")
    loop.run("--review-cap", "9", "-n", "1")
    loop.write(board(story("US-001", reviewStatus="needs_review", reviewCount=8), verifyCommands=[]))
    assert loop.project.run("prd", "status").code == 0
    assert "the review cap is 5" in loop.project.run("prd", "status", "--review-cap", "5").err


# ---- people ----


@pytest.mark.slow
def test_what_people_edit_during_a_pause_counts(loop: Loop) -> None:
    """Task list, PRD and prompt are read anew; nothing of it is taken for the agent's."""
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
    """Between two iterations: exit 2, with what is wrong and how to go on; nothing is changed."""
    with paused(loop) as run:
        (loop.folder / "tasks.json").write_bytes(text.encode("latin-1"))
    code, out, _ = ended(loop)
    assert code == 2
    assert words in out and f"Mend that, then: ralph resume {run}" in out
    assert (loop.folder / "tasks.json").read_bytes() == text.encode("latin-1")
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ("rm -r ralph", "There is no folder"),
        ("rm ralph/prompt.md", "prompt.md is missing"),
        ("rm ralph/tasks.json", "tasks.json is missing"),
        ("mv ralph other; ln -s other ralph", "ralph is no folder (a file, or a link)"),
        ("rm -r ralph; touch ralph", "ralph is no folder (a file, or a link)"),
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
def test_the_folder_is_inside_of_the_project(loop: Loop, folder: str) -> None:
    """Anything else is refused."""
    done = loop.run("--ralph-dir", folder)
    assert done.code == 2 and "is no folder inside of" in done.err


def test_the_folder_may_be_deeper(loop: Loop) -> None:
    """And named by an absolute path; a link on the way is not followed later."""
    (loop.project.path / "docs").mkdir()
    loop.folder.rename(loop.project.path / "docs" / "loop")
    loop.agent("RALPH = ROOT / 'docs/loop'; TASKS = RALPH / 'tasks.json'\napprove() if n == 1 else play()")
    done = loop.run("--ralph-dir", str(loop.project.path / "docs" / "loop"), "-n", "3")
    assert done.code == 0, done.err
    assert "Undone: Story US-001 was put back" in done.err


# ---- one at a time, and the marker ----


def test_a_second_loop_is_refused(loop: Loop) -> None:
    """With the run that holds the directory; the marker of the first stays."""
    hold_agent(loop)
    with loop.project.start("prd", "run") as process:
        wait_until(lambda: is_at_work(loop))
        marker = (loop.project.path / ".ralph-active").read_text()
        second = loop.run()
        assert second.code == 2 and "Another run works in" in second.err
        assert (loop.project.path / ".ralph-active").read_text() == marker
        (loop.outside / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_marker_of_somebody_elses_loop_is_respected(loop: Loop) -> None:
    """A live process of a loop that knows no lock of ours: refused, and its marker stays."""
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
def test_a_stale_marker_is_swept(loop: Loop, left: str) -> None:
    """Whatever a killed loop, or its agent, has left there."""
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
def test_an_interrupted_loop_leaves_no_marker_and_nothing_illegal(loop: Loop, signals: int) -> None:
    """Once lets the agent finish, twice ends it: either way what it did and may not is undone, and it can go on."""
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
    """Also of a half iteration nothing illegal is left, it is committed as undone, and told."""
    run = killed(loop, "approve(); PRD.write_text('nothing'); commit('feat: cheating')")
    assert loop.standing()[0]
    done = loop.project.run("resume")
    assert done.code == 0, done.err
    assert "Undone: Story US-001 was put back" in done.err
    assert "Undone: ralph/prd.md is not the agent's to change" in done.err
    assert loop.modes[1:] == ["implement US-001", "review US-001"]
    assert TOLD in loop.prompts[1] and "prd.md" in loop.prompts[1]
    assert "chore: [ralph] undo what an iteration may not do" in loop.subjects
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
    """Whoever works on the folder next settles it first, and says so; the stale marker is swept."""
    killed(loop, cheat)
    done = loop.run()
    assert done.code == 0, done.err
    assert "Undone, from a loop that was killed:" in done.err
    assert loop.modes[1:] == ["implement US-001", "review US-001"]
    assert not (loop.project.path / ".ralph-active").exists()


@pytest.mark.slow
def test_what_was_killed_is_settled_once(loop: Loop) -> None:
    """Status says that it is not settled; an import settles it first, so that nobody undoes the import later."""
    killed(loop, "approve()")
    assert json.loads(loop.project.run("prd", "status", "--json").out)["unsettled"]
    (loop.outside / "todo.md").write_text("- [ ] Another story\n")
    done = loop.project.run("prd", "import", "--force", str(loop.outside / "todo.md"))
    assert done.code == 0 and "Undone, from a loop that was killed" in done.err
    assert not json.loads(loop.project.run("prd", "status", "--json").out)["unsettled"]
    done = loop.run()
    assert done.code == 0 and "Undone" not in done.err, done.err
    assert loop.stories.keys() == {"US-001"} and loop.stories["US-001"]["title"] == "Another story"


@pytest.mark.parametrize(
    "command", some([("run", "--skip-review"), ("archive",), ("import", "--force", "README.md")], 1)
)
def test_an_agent_cannot_use_the_commands_on_its_own_loop(loop: Loop, command: tuple[str, ...]) -> None:
    """Not even without the marker: the loop is at work there."""
    words = ", ".join(repr(word) for word in (RALPH, "prd", *command))
    (loop.project.path / "README.md").write_text("- [ ] Nothing\n")
    loop.agent(
        "MARKER.unlink() if n == 1 else None\n"
        f"done = subprocess.run([{words}], capture_output=True, text=True) if n == 1 else None\n"
        "(OUTSIDE / 'said').write_text(done.stderr) if done else play()"
    )
    assert loop.run().code == 0
    assert "A loop is at work in ralph (process" in (loop.outside / "said").read_text()
    assert ".ralph-active is not the agent's to change" in loop.prompts[1]
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
    """Verification runs what the agent has written: if that edits the list and kills Ralph, the edit is undone."""
    loop = make_loop(project, story(reviewStatus="needs_review", notes="x"), story("US-002", priority=2))
    loop.write(loop.tasks | {"verifyCommands": [f"{sys.executable} check.py"]})
    (project.path / "check.py").write_text(KILLER)
    with project.start("prd", "run") as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: loop.standing("US-002")[0])
    done = project.run("resume")
    assert done.code == 0, done.err
    assert "ralph/tasks.json was changed by what was run to verify or commit" in done.err
    assert loop.modes == ["review US-001", "implement US-002", "review US-002"]


# ---- empty answers ----


@pytest.mark.slow
def test_empty_answers_are_asked_again_three_times(loop: Loop) -> None:
    """They cost no iteration; the fourth does."""
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
def test_four_empty_answers_are_an_iteration(loop: Loop) -> None:
    """An agent that never says anything does not run for ever."""
    agent = loop.outside / "agent"
    text = agent.read_text().replace('print("I do", mode, id, flush=True)', "").replace("\nplay()\n", "\n")
    agent.write_text(text)
    assert loop.run("-n", "1").code == 1
    assert len(loop.prompts) == 4


# ---- what was put back is not lost ----


def test_copies_of_what_was_put_back_are_kept(loop: Loop) -> None:
    """A person may have edited the PRD while the agent was at work."""
    loop.agent("PRD.write_text('written by a person') if n == 1 else None\nplay()")
    done = loop.run()
    place = Path(done.err.partition("Copies of what was put back are in ")[2].partition("\n")[0])
    assert [path.read_text() for path in place.iterdir() if path.name.endswith("prd.md")] == [
        "written by a person"
    ]


@pytest.mark.slow
def test_a_planted_commit_hook_of_the_user_cannot_approve(project: Project) -> None:
    """The user's own hook runs what the agent has written: what it does to the folder is undone, and told."""
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
    assert "ralph/prd.md was changed by what was run to verify or commit" in loop.prompts[1]
    assert (loop.folder / "prd.md").read_text().endswith("It adds.\n")
