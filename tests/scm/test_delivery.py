"""What is committed is what was checked, through `ralph run` with real git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import product

import pytest

from conftest import Project, some, some_rows
from scm.test_commits import ASKED, committing, files_of, hook, last_message, place

__all__ = ["place"]


def told(project: Project, iteration: int) -> str:
    return (project.path / f".ralph/prompt_{iteration:03d}.txt").read_text()


def tree_of(project: Project, name: str = "HEAD") -> str:
    return project.git("rev-parse", f"{name}^{{tree}}").strip()


# ---- the call for a message ----

MEDDLING = {
    "in its directory": "echo broken > value",
    "by the full path": "echo broken > {top}/value",
    "commits it": "cd {top}; echo broken > value; git commit -qam Mine",
    "amends": "cd {top}; echo broken > value; git commit -q --amend -am Mine",
    "stages it": "cd {top}; echo broken > value; git add value; git update-index --assume-unchanged value",
    "deletes the work": "rm {top}/value {top}/other",
    "another branch": "cd {top}; git checkout -q -b elsewhere; echo broken > value; git commit -qam Mine",
    "a hook": "printf '#!/bin/sh\\necho broken > value; git add value\\n' > {top}/.git/hooks/pre-commit;"
    " chmod +x {top}/.git/hooks/pre-commit",
    "resets": "git -C {top} reset -q --hard",
    "an ignored file": "cd {top}; echo value > .gitignore; git rm -q --cached value",
}


@pytest.mark.parametrize("name", some(MEDDLING, 4))
def test_the_call_for_a_message_changes_nothing_but_the_message(place: Project, name: str) -> None:
    """An agent that breaks its work when asked for a message gets what was checked committed, or nothing completes."""
    act = MEDDLING[name].replace("{top}", str(place.path))
    body = f"""
        case "$1" in
            {ASKED}) {act}; echo Message;;
            *) echo good > value; echo more > other; echo '<response>DONE</response>';;
        esac
    """
    (place.path / "value").write_text("old\n")
    place.git("add", "value")
    place.git("commit", "-qm", "Value")
    guardrails = [{"command": "grep -q good value"}]
    place.agent(body, guardrails=guardrails, scm={"command": "git", "tasks": ["commit"]})
    result = place.run("run", "-p", "x", "-m", "3")
    assert (result.code == 0) == (place.git("show", "HEAD:value") == "good\n")
    if name not in (
        "commits it",
        "amends",
        "another branch",
    ):  # these move HEAD, so the result is checked again
        assert (result.code, last_message(place).split("\n")[0]) == (0, "Message")
        assert files_of(place) == ["other", "value"]
    is_left = place.git("status", "--porcelain", "--", "value", "other", ".gitignore") != ""
    is_told = "note: changed since the checks, not part of the proof:" in result.out
    assert is_told == (is_left and result.code == 0)


def test_a_commit_on_another_branch_is_told(place: Project) -> None:
    """An agent that changes the branch, even when asked for a message, does not hide where its work is."""
    body = f"""
        case "$1" in
            {ASKED}) git -C {place.path} checkout -q -b elsewhere; echo Message;;
            *) echo new > new.txt; echo '<response>DONE</response>';;
        esac
    """
    place.agent(body, guardrails=[{"command": "true"}], scm={"command": "git", "tasks": ["commit"]})
    result = place.run("run", "-p", "x")
    assert (result.code, files_of(place, "elsewhere")) == (0, ["new.txt"])
    assert "note: The commit is on elsewhere; the run started on main." in result.out


def test_a_message_is_asked_for_in_an_empty_directory(place: Project) -> None:
    """The prompt is the question and the changes as text; there is nothing to read and nothing to change."""
    note = place.home.path / "asked"
    committing(place, "echo new > new.txt")
    script = place.path / "agent.sh"
    record = f"pwd > {note}; ls -A >> {note}; printf '%s' \"$1\" > {note}.prompt; printf '%s' 'Add work'"
    script.write_text(script.read_text().replace("printf '%s' 'Add work'", record))
    assert place.run("run", "-p", "x").code == 0
    (directory,) = note.read_text().split()
    assert not directory.startswith(str(place.path))
    question, _, changes = note.with_suffix(".prompt").read_text().partition("\n")
    assert question.startswith("Provide a short imperative commit message for the changes. Output only")
    assert "+new" in changes and "new.txt" in changes


def test_a_git_that_fails_once_before_the_message_is_asked_for(place: Project) -> None:
    """The agent has not been asked yet, so the step is repeated like any other."""
    git, failed = shutil.which("git"), place.home.path / "failed"
    tools = place.home.path / "bin"
    tools.mkdir()
    (tools / "git").write_text(
        f'#!/bin/sh\n[ "$1" = diff ] && mkdir {failed} 2> /dev/null && exit 128\nexec {git} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    place.extra_env["PATH"] = f"{tools}:{os.environ['PATH']}"
    committing(place, "echo new > new.txt")
    result = place.run("run", "-p", "x")
    assert (result.code, failed.exists(), last_message(place).split("\n")[0]) == (0, True, "Add work")


@pytest.mark.slow
def test_a_long_diff_is_shortened(place: Project) -> None:
    """A diff of megabytes still fits into one argument, and every file is named."""
    committing(place, "seq 900000 > long.txt; echo new > new.txt")
    assert place.run("run", "-p", "x").code == 0
    prompt = (place.path / ".ralph/prompt_001_message.txt").read_text()
    assert len(prompt) < 30_000 and "long.txt" in prompt and "new.txt" in prompt
    assert files_of(place) == ["long.txt", "new.txt"]


# ---- checks and hooks that change files ----


def test_checks_run_again_on_what_a_formatter_made(place: Project) -> None:
    """A guardrail that formats the work is followed by one more round of all guardrails, and that is committed."""
    note = place.home.path / "rounds"
    checks = [
        {"command": f"echo x >> {note}; tr a-z A-Z < work > w; mv w work"},
        {"command": "grep -qi done work"},
    ]
    committing(place, "echo done > work", guardrails=checks)
    result = place.run("run", "-p", "x")
    assert (result.code, note.read_text(), place.git("show", "HEAD:work")) == (0, "x\nx\n", "DONE\n")
    assert "Running the required checks again" in result.err


def test_a_formatting_hook_without_checks(place: Project) -> None:
    """What the hook made of the files is committed, and the claim still counts: there is nothing to run again."""
    hook(place, "pre-commit", "grep -q DONE work || { tr a-z A-Z < work > w; mv w work; exit 1; }")
    committing(place, "echo done > work", guardrails=[])
    result = place.run("run", "-p", "x", "-m", "2")
    assert (result.code, place.git("show", "HEAD:work")) == (0, "DONE\n")
    assert place.status()[0]["iteration"] == 1
    assert "Committing them as they are now" in result.err and "checks again" not in result.err


def test_a_formatter_that_breaks_the_work_is_red(place: Project) -> None:
    """Checks that passed before the files were changed prove nothing: the result is checked, and fed back."""
    checks = [{"command": "grep -q good work"}, {"command": "[ $RALPH_ITERATION = 2 ] || echo bad > work"}]
    committing(place, "echo good > work", guardrails=checks)
    result = place.run("run", "-p", "x", "-m", "2")
    assert (result.code, place.git("log", "--format=%s")) == (0, "Add work\nFirst\n")
    assert 'Guardrail "grep -q good work" failed' in told(place, 2)
    assert "the checks changed work, so they ran again on the result" in told(place, 2)


def test_a_check_that_writes_something_new_each_time(place: Project) -> None:
    """The last checked tree is committed, and the difference is named; that ends after one more round."""
    note = place.home.path / "rounds"
    check = f"echo x >> {note}; date +%s%N > report.txt"
    committing(place, "echo good > work", guardrails=[{"command": check}])
    result = place.run("run", "-p", "x")
    assert (result.code, note.read_text(), files_of(place)) == (0, "x\nx\n", ["report.txt", "work"])
    assert "changed by the checks each time they run: report.txt" in result.out


def test_caches_left_by_checks_are_ignored(place: Project) -> None:
    """Caches of tools never belong to the work, so the checks run once."""
    note = place.home.path / "rounds"
    check = f"echo x >> {note}; mkdir -p src/__pycache__ .pytest_cache; date +%N > src/__pycache__/a.pyc"
    committing(place, "mkdir src; echo good > src/work", guardrails=[{"command": check}])
    result = place.run("run", "-p", "x")
    assert (result.code, note.read_text(), files_of(place)) == (0, "x\n", ["src/work"])


REFORMAT = "tr a-z A-Z < work > w; cmp -s w work && rm w || { mv w work; %s; }"
HOOKS = {
    "adds what it formats": (REFORMAT % "git add work", 0),
    "refuses after it has formatted": (REFORMAT % "exit 1", 0),
    "formats without adding": ("tr a-z A-Z < work > w; mv w work", 0),
    "adds another file": ("[ -e version ] || { echo 1 > version; git add version; }", 0),
    "breaks the work": ("echo bad > work; git add work", 1),
    "changes only the index": (
        "echo bad > w; b=$(git hash-object -w w); rm w; git update-index --cacheinfo 100644,$b,work",
        1,
    ),
    "changes it each time": ("date +%N > stamp; git add stamp", 1),
}


@pytest.mark.parametrize("kind", ["pre-commit", "post-commit"])
@pytest.mark.parametrize("name", some(HOOKS, 4))
def test_what_a_commit_hook_makes_of_the_work_is_checked(place: Project, name: str, kind: str) -> None:
    """A commit that is not what was checked is taken back; the checks run again, once, on what the hook made of it."""
    body, code = HOOKS[name]
    note = place.home.path / "seen"
    if kind == "post-commit":
        body = f"{body.replace('exit 1', 'true')}\n[ -e {note} ] || {{ touch {note}; git commit -q --amend --no-edit; }}"
        code = code if name != "changes it each time" else 0
    hook(place, kind, body)
    committing(place, "echo good > work", guardrails=[{"command": "grep -qi good work"}])
    result = place.run("run", "-p", "x", "-m", "1")
    committed = place.git("log", "--format=%s").split()
    assert (result.code, committed[-1]) == (code, "First")
    if result.code:
        assert "work" not in place.git("ls-tree", "--name-only", "HEAD")
    else:
        (run,) = json.loads(place.run("status", "--json").out)
        assert "good" in place.git("show", "HEAD:work").lower() and run["outcome"] == "complete"


def test_a_hook_that_refuses_in_silence(place: Project) -> None:
    """The agent is told that it was a hook."""
    hook(place, "pre-commit", "exit 1")
    committing(place, "echo new > new.txt")
    assert place.run("run", "-p", "x", "-m", "2").code == 1
    assert "a commit hook refused it without a message" in told(place, 2)


def test_a_commit_by_someone_else_meanwhile_is_kept(place: Project) -> None:
    """If the branch moves while the agent is asked for a message, nothing of it is undone by the commit."""
    theirs = f"cd {place.path}; echo theirs > theirs; git add theirs; git commit -qm Theirs"
    committing(place, "echo new > new.txt")
    script = place.path / "agent.sh"
    script.write_text(script.read_text().replace("printf '%s' 'Add work'", f"({theirs}); echo Add work"))
    assert place.run("run", "-p", "x").code == 0
    assert place.git("log", "--format=%s") == "Add work\nTheirs\nFirst\n"
    assert {"theirs", "new.txt"} <= set(place.git("ls-tree", "--name-only", "HEAD").split())


HIDING = {
    "a mode": ("git config core.fileMode false; chmod +x script", "[ -x script ]"),
    "line ends": (
        "git config core.autocrlf true; printf 'new\\r\\n' > script",
        "[ $(wc -c < script) = 5 ]",
    ),
    "a change": (
        "sleep 1.1; git config core.trustctime false; git config core.checkStat minimal; touch -r script ../then;"
        " echo new > script; touch -r ../then script",
        "grep -q new script",
    ),
}


@pytest.mark.parametrize("name", some(HIDING, 2))
def test_configuration_that_an_agent_sets_hides_nothing(place: Project, name: str) -> None:
    """What the checks saw is what is committed, as git was configured when the run started."""
    work, check = HIDING[name]
    place.git("config", "core.fileMode", "true")
    (place.path / "script").write_text("old\n")
    place.git("add", "script")
    os.utime(place.path / "script", (1e9, 1e9))
    place.git("commit", "-qm", "Script")
    committing(place, work, guardrails=[{"command": check}])
    assert place.run("run", "-p", "x").code == 0
    fresh = place.path.with_name("fresh")
    place.git("-c", "core.autocrlf=false", "clone", "-q", str(place.path), str(fresh))
    subprocess.run(["sh", "-c", check], cwd=fresh, check=True)


# ---- what is left out ----


def test_what_was_checked_but_not_committed_is_listed(place: Project) -> None:
    """Files that were there before, and nested repositories, are checked but not committed, and the outcome says so."""
    (place.path / ".env").write_text("TOKEN=1\n")
    committing(place, "echo new > new.txt; git init -q lib; touch lib/file")
    result = place.run("run", "-p", "x")
    assert (result.code, files_of(place)) == (0, ["new.txt"])
    (note,) = (
        line
        for line in result.out.splitlines()
        if "checked but not committed, because not part of the work" in line
    )
    assert note.partition("work: ")[2].split(", ") == [".env", ".ralph/settings.json", "agent.sh", "lib/file"]


def test_ignored_files_of_the_user_are_not_committed(place: Project) -> None:
    """An agent that edits `.gitignore` does not make Ralph commit the user's keys, however large; its own files are work."""
    (place.path / ".gitignore").write_text(".env\nkeys/\n*.bin\n.ralph/\n")
    place.git("add", ".gitignore")
    place.git("commit", "-qm", "Ignore")
    (place.path / ".env").write_text("TOKEN=1\n")
    (place.path / "keys").mkdir()
    (place.path / "keys/a\nb.pem").write_text("key\n")
    with (place.path / "data.bin").open("wb") as file:
        file.truncate(60 << 20)
    committing(place, "rm .gitignore; echo new > keys/new; echo new > new.txt")
    result = place.run("run", "-p", "x")
    assert (result.code, files_of(place)) == (0, [".gitignore", "keys/new", "new.txt"])
    assert "not part of the work: .env, .ralph/" in result.out


def test_a_file_that_no_snapshot_can_hold_is_not_delivered(place: Project) -> None:
    """The checked tree lacks new files over the size limit: the agent is told, and nothing is complete."""
    committing(
        place, "[ $RALPH_ITERATION = 1 ] && truncate -s 60M big.bin || rm -f big.bin; echo new > new.txt"
    )
    result = place.run("run", "-p", "x", "-m", "2")
    assert (result.code, files_of(place)) == (0, ["new.txt"])
    assert "big.bin is larger than 50 MB: remove it, or let git ignore it" in told(place, 2)


def test_a_filter_stores_what_it_stores(place: Project) -> None:
    """Git's clean filters (as of Git LFS) apply to what is committed, as the user configured them."""
    place.git("config", "filter.rot.clean", "tr a-z n-za-m")
    place.git("config", "filter.rot.smudge", "tr a-z n-za-m")
    (place.path / ".gitattributes").write_text("*.secret filter=rot\n")
    place.git("add", "-A")
    place.git("commit", "-qm", "Attributes")
    old = "touch -t 202001010000 a.secret plain"  # so that git knows by the time that they are as committed
    committing(place, f"echo hello > a.secret; echo hello > plain; {old}")
    result = place.run("run", "-p", "x")
    assert (result.code, "changed since the checks" in result.out) == (0, False)
    assert (place.git("cat-file", "blob", "HEAD:a.secret"), place.git("show", "HEAD:plain")) == (
        "uryyb\n",
        "hello\n",
    )
    assert place.git("status", "--porcelain", "--", "a.secret", "plain") == ""


def test_another_command_is_exempt_and_the_outcome_says_so(place: Project) -> None:
    """What a command other than git records cannot be compared with what was checked."""
    tool = place.script("jj", "exit 0")
    committing(place, "echo new > new.txt", scm={"command": tool, "tasks": ["commit"]})
    result = place.run("run", "-p", "x")
    assert result.code == 0 and f"what {tool} recorded was not compared with the checked files" in result.out


def test_a_task_after_the_commit_is_checked_too(place: Project) -> None:
    """A merge among the tasks puts something else on the branch, so the checks run again on that."""
    place.git("checkout", "-q", "-b", "other")
    (place.path / "theirs").write_text("theirs\n")
    place.git("add", "theirs")
    place.git("commit", "-qm", "Theirs")
    place.git("checkout", "-q", "main")
    note = place.home.path / "rounds"
    check = f"ls theirs >> {note} 2>/dev/null || echo no >> {note}"
    committing(
        place, "echo new > new.txt", tasks="commit,merge --no-edit other", guardrails=[{"command": check}]
    )
    assert place.run("run", "-p", "x").code == 0
    assert note.read_text().split() == ["no", "theirs"]


# ---- git that fails ----

DYING = {
    "says so": "echo 'fatal: out of luck' >&2; exit 128",
    "is killed": "kill -9 $$",
}


@pytest.mark.real_process
@pytest.mark.parametrize(
    ("what", "how", "times"),
    some_rows(
        [
            ("status", "is killed", 1),
            ("write-tree", "says so", 99),
            *product(
                ("status", "write-tree", "diff-tree", "read-tree", "commit", "rev-parse", "ls-files"),
                DYING,
                (1, 2, 99),
            ),
        ],
        2,
    ),
)
def test_git_errors_are_never_answers(place: Project, how: str, what: str, times: int) -> None:
    """A git that dies after the agent has worked never makes a run complete without a commit; resumed, it is committed."""
    git, bin, marks = shutil.which("git"), place.home.path / "bin", place.home.path / "marks"
    bin.mkdir()
    marks.mkdir()
    wrapper = bin / "git"
    wrapper.write_text(
        f"""#!/bin/sh
        for word in "$@"; do case "$word" in -*|*=*) ;; *) break;; esac; done
        if [ "$word" = {what} ] && [ -e {marks}/worked ] && [ "$(ls {marks} | wc -l)" -le {times} ]; then
            mktemp {marks}/XXXXXX > /dev/null; {DYING[how]}
        fi
        exec {git} "$@"
        """
    )
    wrapper.chmod(0o755)
    place.extra_env["PATH"] = f"{bin}:{place.env['PATH']}"
    committing(place, f"echo new > new.txt; touch {marks}/worked")
    result = place.run("run", "-p", "x")
    is_committed = place.git("log", "-1", "--format=%s") == "Add work\n"
    assert (result.code == 0) == is_committed
    assert result.code in (0, 2) and (times == 1) <= is_committed, result.err
    (marks / "worked").unlink()
    if not is_committed:
        assert place.status()[0]["cause"] == "git"
        assert place.run("resume").code == 0
    assert files_of(place) == ["new.txt"]
