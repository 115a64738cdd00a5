"""`ralph work`: tasks through their roles, with real git and real processes."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys

import pytest
from msgspec.structs import replace

from conftest import Project, some, wait_until
from ralph.core.task_model import CompletionCriteria, Task, TaskStatus
from terminal_support import terminal
from work_support import (
    ALL_MET,
    BREAKS,
    CHECK,
    FIXES,
    HONEST,
    NOT_MET,
    Site,
    external,
    make_site,
    reviewed,
    task,
    with_reviewer,
)


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def only(role: str, **settings: object) -> dict[str, object]:
    """Settings in which the coder is the only enabled role."""
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa") if name != role}
    return {"ralph": {"agents": off} | settings}


def coder_only(site: Site, body: str, judge: str = f"echo '{ALL_MET}'") -> None:
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    site.agents(body, judge, ralph={"agents": off, "judge": {"agent": str(site.outside / "judge.sh")}})


# ---- the whole cycle ----


def test_a_task_goes_through_all_roles_and_is_merged(site: Site) -> None:
    """Coder, reviewer, tester and qa each prove their part; then the user's branch has the work."""
    site.add(task())
    done = site.work()
    assert done.code == 0, done.err
    assert site.is_fixed()
    assert "a + b" in (site.project.path / "calc.py").read_text(), "the checkout follows its branch"
    assert site.project.git("status", "--porcelain") == ""
    state = site.state()
    assert [run["role"] for run in state["runs"]] == ["coder", "reviewer", "tester", "qa", "merge"]
    assert (state["status"], state["base"]) == ("done", "main")
    assert state["merged"] == site.project.git("rev-parse", "main").strip()
    assert not site.worktree.exists()
    assert site.project.git("branch", "--list", "ralph/*") == ""
    assert done.out.startswith("done: T-1 Make add add (4 iterations), merged into main as ")


def test_the_prompt_tells_the_task_first_and_then_what_done_means(site: Site) -> None:
    """Id, title and description come first, then status, outcome, criteria, requirements and the method."""
    site.add(task(description="calc.py is wrong."))
    site.work()
    prompt = site.prompts("T-1.coder")[0]
    order = [
        "# T-1: Make add add",
        "calc.py is wrong.",
        "- **Iteration**: 1/15\n- **Agent**: coder",
        '## Task Outcome (What "Done" Means)\nadd adds',
        "## Acceptance Criteria\n- [ ] add(2, 3) is 5",
        "**Success Criteria for coder:**\nadd adds",
        "\n\n<promise>CODED</promise>\n\n",
        "verified using: external",
    ]
    places = [prompt.index(words) for words in order]
    assert places == sorted(places)
    assert "refuse" not in prompt and "<refuse>" in site.prompts("T-1.reviewer")[0]


def test_a_false_promise_is_caught_and_reported(site: Site) -> None:
    """A promise that the check refutes costs its iteration, and the next prompt says what failed."""
    coder_only(site, f"[ $RALPH_ITERATION = 1 ] && echo x > new.txt || {FIXES}\npromise CODED")
    site.add(task())
    assert site.work().code == 0
    promised = site.history("coder")
    assert [(found, verified) for found, verified, _ in promised] == [(True, False), (True, True)]
    assert promised[0][2] == "coder: external: Command exited with 1, expected 0"
    second = site.prompts("T-1.coder")[1]
    assert "## What Failed Last Time" in second and "AssertionError" in second


@pytest.mark.slow
def test_a_missing_promise_is_reported_too(site: Site) -> None:
    """After an iteration without a promise, the next prompt says so; nothing is verified."""
    coder_only(site, f"{FIXES}\n[ $RALPH_ITERATION = 1 ] || promise CODED")
    site.add(task())
    assert site.work().code == 0
    assert site.history("coder")[0] == (False, False, "No completion promise found")
    assert "No completion promise was found" in site.prompts("T-1.coder")[1]


def test_a_role_that_never_proves_its_part_fails_the_task(site: Site) -> None:
    """At the coder's limit the task fails with the last reason; its work stays on its branch; exit 1."""
    coder_only(site, "echo more >> notes.txt; promise CODED")
    site.add(task(coder=replace(external(), max_iterations=2)))
    done = site.work()
    assert done.code == 1
    state = site.state()
    assert state["status"] == "failed"
    assert state["reason"].startswith(
        "2 of 2 iterations used; last result: coder: external: Command exited with 1"
    )
    assert site.project.git("show", "ralph/T-1:notes.txt") == "more\nmore\n"
    assert not site.is_fixed() and site.worktree.exists()
    assert "branch: ralph/T-1" in done.out


@pytest.mark.slow
def test_a_failed_task_is_started_again_when_it_is_named(site: Site) -> None:
    """`ralph work` leaves failed tasks alone; `--task` tries again, from the existing work."""
    coder_only(site, "promise CODED")
    site.add(task(coder=replace(external(), max_iterations=1)))
    assert site.work().code == 1
    coder_only(site, f"{FIXES}; promise CODED")
    again = site.work()
    assert again.code == 1 and "\n  To retry: ralph work --task T-1\n" in again.out, "it stays failed"
    assert site.work("--task", "T-1").code == 0
    assert site.is_fixed()


def test_guidance_that_came_too_late_is_in_the_first_prompt_of_the_next_attempt(site: Site) -> None:
    """The ending names it, in the list of parallel tasks too, and the next run of the role gets it."""
    ralph = f"{sys.executable} -c 'from ralph.cli import main; main()'"
    steers = f'{ralph} steer "$RALPH_RUN_ID" "Use tabs." 2>/dev/null; {CHECK}'
    coder_only(site, "promise CODED")
    site.add(task(coder=replace(external(f"sh -c {shlex.quote(steers)}"), max_iterations=1)))
    assert "guidance not delivered yet: Use tabs." in site.work("-j", "2").err
    coder_only(site, f"{FIXES}; promise CODED")
    assert site.work("--task", "T-1").code == 0
    assert ["Use tabs." in prompt for prompt in site.prompts("T-1.coder")] == [False, True]


# ---- the judge ----


@pytest.mark.slow
def test_a_judge_that_says_no_and_then_yes(site: Site) -> None:
    """A no costs the reviewer's iteration and is fed back with its reason; a yes proves the promise."""
    with_reviewer(site, f"[ $n = 0 ] && echo '{NOT_MET}' || echo '{ALL_MET}'")
    site.add(task(reviewer=reviewed()))
    assert site.work().code == 0
    assert [verified for _, verified, _ in site.history("reviewer")] == [False, True]
    assert "it subtracts" in site.prompts("T-1.reviewer")[1]
    assert "+    return a + b" in site.prompts("judge")[0], "the judge sees the diff against the base"


@pytest.mark.slow
def test_a_judge_that_hits_a_limit_is_asked_again(site: Site) -> None:
    """A limited judge costs no iteration: the run waits, then repeats that check."""
    limited = "echo 'rate limit exceeded, retry after 1 seconds' >&2; exit 1"
    with_reviewer(site, f"[ $n = 0 ] && {{ {limited}; }}\necho '{ALL_MET}'")
    site.add(task(reviewer=reviewed()))
    assert site.work().code == 0
    assert [verified for _, verified, _ in site.history("reviewer")] == [True]
    assert len(site.prompts("T-1.reviewer")) == 1


@pytest.mark.slow
def test_a_negative_pattern_is_caught(site: Site) -> None:
    """A TODO in an added line refutes the promise before any judge is asked."""
    with_reviewer(
        site,
        f"echo '{ALL_MET}'",
        HONEST.replace(
            "reviewer) ",
            "reviewer) [ $RALPH_ITERATION = 1 ] && echo '# TODO' >> calc.py || sed -i /TODO/d calc.py; ",
        ),
    )
    site.add(task(reviewer=reviewed(negative_patterns=["todo"])))
    assert site.work().code == 0
    first, second = site.history("reviewer")
    assert not first[1] and "todo" in first[2].lower() and second[1]
    assert len(site.prompts("judge")) == 2, "one for the review, one for the merged tree"


@pytest.mark.slow
def test_required_and_optional_stages(site: Site) -> None:
    """A failed optional stage is a warning; a failed required one refutes the promise and ends the verification."""
    stages = [
        {"name": "works", "method": "external", "config": {"command": CHECK}},
        {"name": "nice", "method": "external", "config": {"command": "false"}, "required": False},
        {"name": "last", "method": "string_match"},
    ]
    criteria = CompletionCriteria("CODED", "", "multi_stage", {"stages": stages})
    coder_only(site, f"[ $RALPH_ITERATION = 1 ] && echo x > new.txt || {FIXES}\npromise CODED")
    site.add(task(coder=criteria))
    assert site.work().code == 0
    first, second = site.history("coder")
    assert first[:2] == (True, False) and "works" in first[2]
    assert second[1] and "nice" in second[2]


# ---- going back ----


def test_a_review_sends_the_task_back_with_its_reason(site: Site) -> None:
    """A reviewer that refuses ends its run at once; the coder is told why, and the cycle starts again."""
    body = HONEST.replace(
        "reviewer) ",
        "reviewer) [ $n = 0 ] && { echo 'It has no comment.'; echo '<refuse>add a comment</refuse>'; exit; }; ",
    ).replace("coder) ", "coder) [ $n = 0 ] || echo '# adds' >> calc.py; ")
    with_reviewer(site, f"echo '{ALL_MET}'", body)
    site.add(task())
    assert site.work().code == 0
    state = site.state()
    assert [run["role"] for run in state["runs"]] == ["coder", "reviewer", "coder", "reviewer", "merge"]
    assert state["sent_back"] == 1
    again = site.prompts("T-1.coder")[1]
    assert "## Why The Task Came Back To You" in again
    assert "add a comment" in again and "It has no comment." in again


@pytest.mark.slow
def test_a_task_goes_back_at_most_three_times(site: Site) -> None:
    """The fourth refusal fails the task."""
    with_reviewer(site, "true", HONEST.replace("promise REVIEW_PASSED", "echo '<refuse>never</refuse>'"))
    site.add(task())
    assert site.work().code == 1
    state = site.state()
    assert (state["status"], state["sent_back"], state["reason"]) == (
        "failed",
        3,
        "never\n\n<refuse>never</refuse>\n",
    )
    assert [run["role"] for run in state["runs"]].count("reviewer") == 4


@pytest.mark.slow
def test_a_role_that_runs_out_of_iterations_sends_the_task_back(site: Site) -> None:
    """A reviewer whose promise is never verified counts as a refusal too."""
    with_reviewer(site, f"[ $n = 0 ] && echo '{NOT_MET}' || echo '{ALL_MET}'")
    site.add(task(reviewer=replace(reviewed(), max_iterations=1)))
    assert site.work().code == 0
    assert "it subtracts" in site.prompts("T-1.coder")[1]


def test_the_coder_cannot_refuse(site: Site) -> None:
    """There is no role to send the task back to, so the coder's refusal is ignored."""
    coder_only(
        site, f"[ $RALPH_ITERATION = 1 ] && {{ echo '<refuse>no</refuse>'; exit; }}\n{FIXES}; promise CODED"
    )
    site.add(task())
    assert site.work().code == 0


# ---- settings ----


@pytest.mark.slow
def test_settings_of_the_roles(site: Site) -> None:
    """A role can be skipped, or have another promise, another limit and another agent."""
    other = site.project.script(
        "other.sh", "cat > /dev/null; touch other.txt; echo '<promise>TESTED</promise>'"
    )
    site.agents(
        ralph={
            "agents": {
                "reviewer": {"enabled": False},
                "tester": {
                    "agent": other,
                    "promise": "TESTED",
                    "maxIterations": 3,
                    "verification": "string_match",
                },
                "qa": {"enabled": False},
            }
        }
    )
    site.add(task())
    assert site.work().code == 0
    runs = {run["role"]: run["max_iterations"] for run in site.state()["runs"]}
    assert runs == {"coder": 15, "tester": 3, "merge": 1}
    assert site.project.git("show", "main:other.txt") == ""


def test_disabled_means_one_verified_pass(site: Site) -> None:
    """`ralph.enabled: false` gives every role one iteration, which is still verified."""
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    site.agents("promise CODED", ralph={"enabled": False, "agents": off})
    site.add(task())
    assert site.work().code == 1
    assert len(site.prompts("T-1.coder")) == 1


@pytest.mark.slow
def test_an_old_task_without_a_spec(site: Site) -> None:
    """It is worked on with a warning: default promises, verified by string_match."""
    site.agents(HONEST.replace("CODED", "IMPLEMENTATION_COMPLETE"))
    site.add(Task("T-1", "calc", "Make add add"))
    done = site.work()
    assert done.code == 0, done.err
    assert "T-1 has no completion spec: only its promises are checked." in done.err


def test_a_setup_command_prepares_every_worktree(site: Site) -> None:
    """`ralph.setup` creates git-ignored files that tests need, for the merged tree too."""
    (site.project.path / ".gitignore").write_text("__pycache__/\n.ralph/\nneeded\n")
    site.project.git("commit", "-qam", "Ignore it")
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    site.agents(ralph={"agents": off, "setup": "touch needed"})
    site.add(task(coder=external(f"test -f needed && {CHECK}")))
    assert site.work().code == 0


def test_a_file_with_a_filter_is_committed_work(site: Site) -> None:
    """A file that git stores through a filter (as of Git LFS) is not taken for uncommitted because git compares it again: its time is late."""
    for name, command in (("clean", "sed s/content/pointer/"), ("smudge", "sed s/pointer/content/")):
        site.project.git("config", f"filter.big.{name}", command)
    (site.project.path / ".gitattributes").write_text("*.big filter=big\n")
    (site.project.path / "a.big").write_text("content\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "A large file")
    coder_only(site, f"echo more content >> a.big; touch -d tomorrow a.big; {FIXES}; promise CODED")
    site.add(task())
    assert site.work().code == 0
    assert site.project.git("cat-file", "blob", "main:a.big") == "pointer\nmore pointer\n"


def test_a_setup_command_that_fails_says_why(site: Site) -> None:
    """The first lines of its output, which often have the reason, are shown along with the last ones."""
    site.agents(ralph={"setup": "{ printf 'no lock %s\\n' file; seq 1000 2000; } >&2; exit 1"})
    site.add(task())
    done = site.work()
    assert done.code == 2 and "no lock file" in done.err and "2000" in done.err


# ---- protected files ----


@pytest.mark.parametrize("deed", some(["echo > check.py", "rm check.py", "echo 'import os' >> check.py"], 1))
def test_the_coder_cannot_change_what_verifies_it(site: Site, deed: str) -> None:
    """A change to a tracked file that verification runs is a failure, with the diff, until it is undone."""
    coder_only(
        site,
        f"[ $RALPH_ITERATION = 1 ] && {{ {deed}; }} || {{ git checkout main -- check.py; {FIXES}; }}\npromise CODED",
    )
    site.add(task())
    assert site.work().code == 0
    assert "protected files" in site.history("coder")[0][2]
    assert "check.py" in site.prompts("T-1.coder")[1]
    assert site.project.git("show", "main:check.py") == "from calc import add\n\nassert add(2, 3) == 5\n"


@pytest.mark.slow
def test_a_committed_change_still_fails(site: Site) -> None:
    """Committing the change, or waiting an iteration, does not help."""
    coder_only(site, "echo > check.py; git commit -qam sneak; promise CODED")
    site.add(task(coder=replace(external(), max_iterations=3)))
    assert site.work().code == 1
    assert all("protected files" in reason for _, _, reason in site.history("coder"))


@pytest.mark.slow
def test_the_tester_can_change_tests_and_its_result_is_protected(site: Site) -> None:
    """Tests belong to the tester; after that, qa cannot change them either."""
    body = HONEST.replace("tester) ", "tester) echo 'assert add(1, 1) == 2' >> check.py; ").replace(
        "qa) ", "qa) [ $n = 0 ] && echo > check.py || git checkout HEAD -- check.py; "
    )
    site.agents(body)
    site.add(task())
    assert site.work().code == 0
    assert "protected files" in site.history("qa")[0][2]
    assert site.project.git("show", "main:check.py").endswith("assert add(1, 1) == 2\n")


def test_globs_of_the_task_win(site: Site) -> None:
    """`protect` of a task decides what is protected; an empty list protects nothing."""
    coder_only(site, "echo > check.py; promise CODED")
    site.add(task(protect=()))
    assert site.work().code == 0


# ---- merging ----


@pytest.mark.slow
def test_the_users_branch_has_moved(site: Site) -> None:
    """Commits of the user are merged with the task's work, by a merge commit."""
    move = f"(cd {site.project.path} && echo mine > mine.txt && git add mine.txt && git commit -qm Mine)"
    coder_only(site, f"{FIXES}; {move}; promise CODED")
    site.add(task())
    done = site.work()
    assert done.code == 0, done.err
    assert site.is_fixed() and site.project.git("show", "main:mine.txt") == "mine\n"
    assert len(site.project.git("log", "-1", "--format=%P", "main").split()) == 2


@pytest.mark.slow
def test_a_checkout_with_changes_in_the_way_is_not_touched(site: Site) -> None:
    """The proved task is blocked, with the command to run; when the way is clear, `ralph work` merges it."""
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    (site.project.path / "calc.py").write_text("# mine\n")
    done = site.work()
    assert done.code == 1
    assert (site.project.path / "calc.py").read_text() == "# mine\n"
    state = site.state()
    assert state["status"] == "blocked" and "git merge --ff-only ralph/T-1" in state["reason"]
    assert "overwritten by merge: calc.py. Next: Commit, stash or move these files." in state["reason"]
    site.project.git("checkout", "--", "calc.py")
    assert site.work().code == 0
    assert site.is_fixed() and len(site.prompts("T-1.coder")) == 1, "nothing was done twice"


@pytest.mark.slow
def test_changes_that_are_not_in_the_way_do_not_matter(site: Site) -> None:
    """An untracked file, and a changed one that the task did not touch, stay as they are."""
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    (site.project.path / "mine.txt").write_text("mine\n")
    (site.project.path / ".gitignore").write_text("__pycache__/\n.ralph/\n*.tmp\n")
    assert site.work().code == 0
    assert "a + b" in (site.project.path / "calc.py").read_text()
    assert "*.tmp" in (site.project.path / ".gitignore").read_text()


@pytest.mark.slow
def test_work_that_needs_an_ignored_file_is_not_done(site: Site) -> None:
    """Work that passes only in the agent's worktree is red in the copy that its claim is checked in."""
    coder_only(
        site,
        "echo '*.txt' >> .gitignore; echo 5 > answer.txt; echo 'def add(a, b): return int(open(\"answer.txt\").read())' > calc.py; promise CODED",
    )
    site.add(task(coder=replace(external(), max_iterations=2)))
    assert site.work().code == 1
    state = site.state()
    assert state["status"] == "failed"
    assert [run["role"] for run in state["runs"]] == ["coder"]
    assert "No such file or directory: 'answer.txt'" in site.prompts("T-1.coder")[1]
    assert site.project.git("rev-list", "--count", "main").strip() == "1"


# ---- dependencies ----


def test_a_dependent_task_starts_from_its_dependency(site: Site) -> None:
    """Tasks run in the order of their dependencies, whatever their priority."""
    coder_only(site, f"echo $RALPH_TASK_ID >> order.txt; [ -s order.txt ] && {FIXES}; promise CODED")
    site.add(task("T-1", dependencies=("T-2",), priority=-5), task("T-2"))
    assert site.work().code == 0
    assert site.project.git("show", "main:order.txt") == "T-2\nT-1\n"


def test_dependents_of_a_failed_task_are_blocked(site: Site) -> None:
    """They are not started, and the reason names the failed task."""
    coder_only(site, "promise CODED")
    site.add(task("T-1", dependencies=("T-2",)), task("T-2", coder=replace(external(), max_iterations=1)))
    assert site.work().code == 1
    assert site.state("T-1")["reason"] == "depends on T-2 (failed)"
    assert site.prompts("T-1.coder") == []


# ---- stopping and resuming ----


def test_an_interrupt_leaves_the_task_where_it_is(site: Site) -> None:
    """Ctrl-C stops after the current operation with 130; `ralph work` continues with the same run."""
    coder_only(
        site, f"[ $n = 0 ] && {{ touch {site.outside}/started; sleep 1; exit; }}\n{FIXES}; promise CODED"
    )
    site.add(task())
    ralph = site.project.start("work")
    wait_until((site.outside / "started").exists)
    ralph.send_signal(signal.SIGINT)
    assert ralph.wait(timeout=20) == 130
    ralph.communicate()
    assert site.tasks.find("T-1").status is TaskStatus.IMPLEMENTING
    assert site.work().code == 0
    assert [run["role"] for run in site.state()["runs"]] == ["coder", "merge"]


@pytest.mark.slow
def test_an_interrupted_iteration_is_undone_first(site: Site) -> None:
    """After kill -9 the worktree is restored to its state before the iteration, including commits of the agent."""
    half = f"echo half > half.txt; git add -A; git commit -qm half; echo {BREAKS} > more.txt"
    coder_only(
        site,
        f"[ $n = 0 ] && {{ {half}; touch {site.outside}/started; sleep 60; }}\nls > {site.outside}/seen; {FIXES}; promise CODED",
    )
    site.add(task())
    ralph = site.project.start("work")
    wait_until((site.outside / "started").exists)
    ralph.kill()
    ralph.communicate()
    done = site.work()
    assert done.code == 0, done.err
    assert (site.outside / "seen").read_text().split() == ["calc.py", "check.py"]
    assert "half" not in site.project.git("log", "--format=%s", "main")


def test_cancelling_a_task(site: Site) -> None:
    """`ralph cancel TASK` stops its run; the work continues with the others, and `--task` starts it again."""
    coder_only(
        site,
        f"[ $RALPH_TASK_ID.$n = T-1.0 ] && {{ touch {site.outside}/started; sleep 60; }}\n{FIXES}; promise CODED",
    )
    site.add(task("T-1", priority=1), task("T-2", priority=2))
    ralph = site.project.start("work")
    wait_until((site.outside / "started").exists)
    assert site.project.run("cancel", "T-1").code == 0
    assert ralph.wait(timeout=30) == 1
    ralph.communicate()
    assert site.state("T-1")["status"] == "cancelled" and site.state("T-2")["status"] == "done"
    assert site.work("--task", "T-1").code == 0


@pytest.mark.slow
def test_an_agent_that_cannot_be_started_stops_the_work(site: Site) -> None:
    """It is not the fault of the task: exit 2 with the reason, and the task stays where it is."""
    site.agents()
    site.project.settings(agent={"command": "no-such-agent"})
    site.add(task())
    done = site.work()
    assert done.code == 2 and "no-such-agent: command not found" in done.err
    site.agents()
    assert site.work().code == 0


def test_two_works_at_once_are_refused(site: Site) -> None:
    """One `ralph work` per project."""
    coder_only(site, f"touch {site.outside}/started; sleep 60")
    site.add(task())
    ralph = site.project.start("work")
    wait_until((site.outside / "started").exists)
    second = site.work()
    assert second.code == 2 and "Another `ralph work` is running in this project." in second.err
    ralph.send_signal(signal.SIGINT)
    ralph.send_signal(signal.SIGTERM)
    ralph.communicate(timeout=20)


# ---- refusals ----


def test_without_a_repository(project: Project) -> None:
    """Tasks need git: one error says so."""
    project.settings(agent={"command": "true"})
    done = project.run("work")
    assert done.code == 2 and "`ralph work` needs a git repository." in done.err


def test_without_a_branch(site: Site) -> None:
    """There is no branch to merge into with a detached HEAD."""
    site.add(task())
    site.project.git("checkout", "-q", "--detach")
    done = site.work()
    assert done.code == 2 and "No branch is checked out" in done.err


def test_in_a_directory_of_the_repository(site: Site) -> None:
    """The settings at its top count there too: what a role has to prove, and which agent works."""
    site.add(task())
    site.agents(ralph={"agents": {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}})
    below = dataclasses.replace(site.project, path=site.project.path / "sub")
    below.path.mkdir()
    assert "qa  (skipped: disabled in the settings)" in below.run("task", "show", "T-1").out
    assert below.run("work").code == 0
    assert site.is_fixed() and [run["role"] for run in site.state()["runs"]] == ["coder", "merge"]


@pytest.mark.slow
def test_caches_of_tools_do_not_count_as_work(site: Site) -> None:
    """They are neither changes, nor shown to a judge, nor merged; other new files are."""
    leaves = "mkdir -p node_modules; echo TODO > node_modules/a.js"
    coder_only(site, f"{leaves}; [ $RALPH_ITERATION = 1 ] || {FIXES}\npromise CODED")
    semantic = CompletionCriteria(
        "CODED", "", "semantic", {"check_for": ["It."], "negative_patterns": ["TODO"]}
    )
    site.add(task(coder=semantic))
    assert site.work().code == 0
    assert site.history("coder")[0] == (True, False, "changes: nothing was changed")
    (shown, *_) = [prompt for prompt in site.prompts("judge") if "calc.py" in prompt]
    assert "node_modules" not in shown
    assert site.project.git("ls-tree", "-r", "--name-only", "main", "node_modules") == ""


def test_a_spec_without_tasks(site: Site) -> None:
    """A typo is an error, not a night without work."""
    site.add(task())
    done = site.work("--spec", "calk")
    assert done.code == 2 and "no task of spec 'calk'; did you mean 'calc'?" in done.err


def test_a_task_that_was_set_to_done(site: Site) -> None:
    """It was not merged by Ralph, and the output does not claim so."""
    site.add(task(status=TaskStatus.DONE))
    assert site.work().out == "done: T-1 Make add add (0 iterations)\n"


@pytest.mark.slow
def test_a_branch_of_the_same_name(site: Site) -> None:
    """Its commits count, and a notice says so."""
    site.project.git("switch", "-q", "-c", "ralph/T-1")
    (site.project.path / "notes").write_text("of the user\n")
    site.project.git("add", "notes")
    site.project.git("commit", "-q", "-m", "Notes")
    site.add(task())
    refused = site.work()
    assert refused.code == 2 and "ralph/T-1 is the branch of task T-1" in refused.err
    site.project.git("switch", "-q", "main")
    site.project.git("worktree", "add", "-q", "../elsewhere", "ralph/T-1")
    stopped = site.work()
    assert stopped.code == 2 and "Check out another branch there." in stopped.err
    assert "The branch ralph/T-1 already exists. Continuing from it." in stopped.err
    site.project.git("worktree", "remove", "../elsewhere")
    assert site.work().code == 0
    assert site.is_fixed() and site.project.git("show", "main:notes") == "of the user\n"


@pytest.mark.slow
def test_a_branch_that_blocks_the_task_branches(site: Site) -> None:
    """Git cannot have ralph/T-1 next to a branch `ralph`; the error says what to do."""
    site.project.git("branch", "ralph")
    site.add(task())
    done = site.work()
    assert done.code == 2 and "git branch -m ralph OTHER-NAME" in done.err


def test_nothing_to_do(site: Site) -> None:
    """Without tasks there is a hint and exit 0."""
    done = site.work()
    assert done.code == 0 and "Nothing to do." in done.err


def test_an_unknown_task(site: Site) -> None:
    """The error names it, exit 2."""
    done = site.work("--task", "T-9")
    assert done.code == 2 and "There is no task 'T-9' in this project." in done.err


# ---- output ----


def test_json_lines(site: Site) -> None:
    """Every event has the id of its task; the last object is the summary."""
    site.add(task())
    done = site.work("--json")
    events = done.lines()
    assert {event.get("task") for event in events if event["event"] == "iteration_started"} == {"T-1"}
    moves = [(e["status"], e["role"]) for e in events if e["event"] == "task_moved"]
    assert moves == [
        ("implementing", "coder"),
        ("reviewing", "reviewer"),
        ("testing", "tester"),
        ("qa", "qa"),
        ("qa", "merge"),
        ("done", "merge"),
    ]
    assert events[-1]["event"] == "work_ended" and events[-1]["tasks"][0]["status"] == "done"


def test_in_the_background(site: Site) -> None:
    """`--detach` returns at once and says where to look; the work continues to its end."""
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    done = site.work("--detach")
    assert done.code == 0 and "Working in the background." in done.err
    wait_until(lambda: site.tasks.find("T-1").status is TaskStatus.DONE)
    assert site.is_fixed()


def test_on_a_terminal_every_task_has_one_line(site: Site) -> None:
    """Active tasks are updated at the bottom; at the end there is one line per task, and the total."""
    coder_only(site, f"echo noise; echo $RALPH_TASK_ID > $RALPH_TASK_ID.txt; {FIXES}; promise CODED")
    site.add(task("T-1"), task("T-2"))
    with terminal(site.project, "work", "-j", "2") as screen:
        assert screen.finish() == 0
        lines = screen.screen.splitlines()
    moved = [line.split()[:2] for line in lines if line.startswith("T-")]
    assert sorted(moved) == [["T-1", "done"], ["T-2", "done"]]
    assert "noise" not in screen.screen and "implementing" not in screen.screen


@pytest.mark.slow
def test_parallel_tasks_have_a_line_each(site: Site) -> None:
    """With -j there are no streams, but a line for every change of every task."""
    coder_only(site, f"echo noise; echo $RALPH_TASK_ID > $RALPH_TASK_ID.txt; {FIXES}; promise CODED")
    site.add(task("T-1"), task("T-2"))
    done = site.work("-j", "2")
    assert done.code == 0, done.err
    assert "noise" not in done.err
    assert {line.split()[0] for line in done.err.splitlines() if line} == {"T-1", "T-2"}
    assert site.project.git("show", "main:T-1.txt", "main:T-2.txt") == "T-1\nT-2\n"
