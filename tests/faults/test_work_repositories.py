"""G2, G3, G4 for `ralph work`: repositories in odd states, odd texts, worktrees and branches that vanish."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import RALPH, Project, some, wait_until
from faults.fault_support import Watched, finish
from faults.test_full_disk import mounts
from faults.work_fault_support import (
    GIT,
    assert_clean,
    assert_intact,
    assert_stopped,
    coder_only,
    roles_of,
    script,
    trap,
    worktrees,
)
from ralph.core.task_model import TaskCompletionSpec
from ralph.core.text import clean
from work_support import CHECK, FIXES, HONEST, Site, external, make_site, task

__all__ = ["mounts"]


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


# ---- G4: things that vanish under a running loop ----


@pytest.mark.slow
def test_g4_the_worktree_is_removed(site: Site) -> None:
    """The work stops with an error; called again, the worktree is back with everything in it, committed or not."""
    coder_only(
        site,
        "case $n in\n"
        "0) echo precious > precious.txt; promise CODED;;\n"
        '1) rm -rf "$PWD";;\n'
        f"*) {FIXES}; promise CODED;;\n"
        "esac",
    )
    site.add(task())
    assert_stopped(site.work(), 2, "was removed while task T-1 was running there", "To continue: ralph work")
    assert_intact(site)
    result = site.work()
    assert result.code == 0, result.err
    assert site.project.git("show", "main:precious.txt") == "precious\n"
    assert_clean(site)


@pytest.mark.slow
def test_g4_the_worktree_is_removed_between_two_runs(site: Site) -> None:
    """A resumed role finds its worktree as the last iteration left it, and the run is the same."""
    coder_only(
        site,
        "case $n in\n"
        "0) echo precious > precious.txt; promise CODED;;\n"
        f"1) kill -INT {RALPH_PID};;\n"
        f"*) {FIXES}; promise CODED;;\n"
        "esac",
    )
    site.add(task())
    assert site.work().code == 130
    shutil.rmtree(site.worktree)
    result = site.work()
    assert result.code == 0, result.err
    assert site.project.git("show", "main:precious.txt") == "precious\n"
    assert roles_of(site) == ["coder"]
    assert_clean(site)


RALPH_PID = "$(cut -d ' ' -f 4 /proc/$PPID/stat)"
"""In an agent: the parent of its warden."""

DEEDS = {
    "deletes its branch": "git update-ref -d refs/heads/ralph/T-1",
    "works on another branch": "git checkout -q -b mine; git commit -qam mine",
    "works on no branch": "git checkout -q --detach; git commit -qam mine",
    "begins a new history": "git checkout -q --orphan mine; git commit -qam mine",
    "goes back in history": "git commit -qam mine; git reset -q --soft HEAD~2",
}


@pytest.mark.parametrize("deed", some(DEEDS, 1))
def test_g4_an_agent_that_moves_branches(site: Site, deed: str) -> None:
    """Whatever it does to branches and HEAD, the proved work is merged with its history, and nothing else."""
    (site.project.path / "second.txt").write_text("second\n")
    site.project.git("add", "-A")
    site.project.git("commit", "-qm", "Second")
    coder_only(site, f"{FIXES}; {DEEDS[deed]}; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed()
    assert site.project.git("log", "--first-parent", "--format=%s", "main").splitlines()[-2:] == [
        "Second",
        "First",
    ]
    assert site.project.git("diff", "--name-only", "main~1", "main") == "calc.py\n"
    assert_intact(site)
    assert worktrees(site) == []


@pytest.mark.slow
def test_g4_worktree_and_branch_are_deleted_before_the_merge(site: Site) -> None:
    """Proved work that waits for the user is restored from the snapshots."""
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    (site.project.path / "calc.py").write_text("# mine\n")
    assert site.work().code == 1
    shutil.rmtree(site.worktree)
    site.project.git("worktree", "prune")
    site.project.git("branch", "-q", "-D", "ralph/T-1")
    site.project.git("checkout", "--", "calc.py")
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed() and roles_of(site) == ["coder"]
    assert_clean(site)


@pytest.mark.slow
def test_g4_nothing_is_left_of_a_proved_task(site: Site) -> None:
    """Without snapshots a task whose branch was deleted is blocked, not done."""
    coder_only(site, f"{FIXES}; promise CODED", snapshots=False)
    site.add(task())
    (site.project.path / "calc.py").write_text("# mine\n")
    assert site.work().code == 1
    shutil.rmtree(site.worktree)
    site.project.git("worktree", "prune")
    site.project.git("branch", "-q", "-D", "ralph/T-1")
    site.project.git("checkout", "--", "calc.py")
    assert_stopped(site.work(), 1, "blocked: T-1", "The branch ralph/T-1 has no new commits.")
    assert not site.is_fixed()


def test_g4_the_base_branch_is_deleted(site: Site) -> None:
    """The proved task is blocked; the next call says how to restore the branch, and then it is merged."""
    coder_only(site, f"{FIXES}; git update-ref -d refs/heads/main; promise CODED")
    site.add(task())
    assert_stopped(site.work(), 1, "blocked: T-1", "The branch main no longer exists.")
    again = site.work()
    assert_stopped(again, 2, "The branch main has no commit.", "restore it: git update-ref refs/heads/main ")
    mending = again.err.rpartition("restore it: ")[2].strip()
    subprocess.run(shlex.split(mending), cwd=site.project.path, check=True)
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed() and roles_of(site) == ["coder"]
    assert_clean(site)


def test_g4_worktrees_of_the_user_stay(site: Site) -> None:
    """A worktree of the user that is unavailable, on another disk for example, stays registered."""
    site.project.git("worktree", "add", "-q", "-b", "mine", str(site.outside / "mine"))
    (site.outside / "mine").rename(site.outside / "away")
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    assert site.work().code == 0
    (site.outside / "away").rename(site.outside / "mine")
    assert worktrees(site) == ["mine"]
    assert site.project.git("-C", str(site.outside / "mine"), "status", "--porcelain") == ""


@pytest.mark.slow
def test_g4_read_only_directories_are_removed(site: Site) -> None:
    """A worktree with read-only directories is removed too."""
    coder_only(site, f"{FIXES}; mkdir -p deep/er; touch deep/er/file; chmod 500 deep/er deep; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert not site.worktree.exists()
    assert_clean(site)


@pytest.mark.slow
def test_g4_a_full_disk_in_the_commit(site: Site, mounts: list[str], tmp_path: Path) -> None:
    """The work stops with the reason; with space again it continues, and nothing is damaged or lost."""
    disk, keep, filler = site.project.path, tmp_path / "kept", site.project.path / "filler"
    fills = f"head -c 40000000 /dev/zero > {filler} 2> /dev/null"
    hook = site.project.path / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\nmkdir {site.outside}/filled 2> /dev/null && {fills}\nexit 0\n")
    hook.chmod(0o755)
    coder_only(site, f"{FIXES}; head -c 100000 /dev/urandom > big; promise CODED")
    site.add(task())
    twice = f"{RALPH} work; echo first: $?; rm {filler}; {RALPH} work; echo second: $?"
    words = [*mounts, str(disk), str(keep), "8m", "sh", "-c", twice]
    result = Watched(site.project, words, tmp_path / "log").result(90)
    assert "No space left on device" in result.err and "To continue: ralph work" in result.err
    assert "first: 2" in result.err and "second: 0" in result.err, result.err
    kept = Project(keep, site.project.home)
    assert "a + b" in kept.git("show", "main:calc.py")
    assert kept.git("fsck", "--no-dangling", "--strict") == ""


# ---- G2: repositories in odd states ----


def test_g2_no_git_identity(site: Site) -> None:
    """Without an identity no agent is started: the error says how to set one."""
    site.project.git("config", "--unset", "user.email")
    site.project.git("config", "user.useConfigOnly", "true")
    site.add(task())
    assert_stopped(site.work(), 2, "ralph: error: git commit failed", "Next: Set your git identity: git -C ")
    assert site.prompts("T-1.coder") == []


@pytest.mark.slow
def test_g2_an_identity_in_the_environment(site: Site) -> None:
    """Git uses it, and so does Ralph."""
    site.project.git("config", "--unset", "user.email")
    who = {"NAME": "Eve", "EMAIL": "eve@localhost"}
    site.project.extra_env |= {f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in who.items()}
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert site.project.git("log", "-1", "--format=%an %ce", "main") == "Eve eve@localhost\n"


@pytest.mark.slow
def test_g2_commits_that_cannot_be_signed(site: Site) -> None:
    """Signing without a key is detected before any agent starts; without signing the work continues."""
    site.project.git("config", "commit.gpgSign", "true")
    site.project.git("config", "gpg.program", "false")
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    assert_stopped(
        site.work(), 2, "gpg failed to sign the data", "Next: Unlock your signing key, or: git -C "
    )
    assert site.prompts("T-1.coder") == []
    site.project.git("config", "commit.gpgSign", "false")
    assert site.work().code == 0


@pytest.mark.slow
def test_g2_a_signing_key_that_is_locked_later(site: Site) -> None:
    """Work that could not be committed is not done; `ralph work` commits it when the key is there again."""
    gpg = script(
        site,
        "gpg",
        f"[ -e {site.outside}/locked ] && exit 1; cat > /dev/null; echo '[GNUPG:] SIG_CREATED ' >&2; echo x",
    )
    site.project.git("config", "commit.gpgSign", "true")
    site.project.git("config", "gpg.program", gpg)
    coder_only(site, f"touch {site.outside}/locked; {FIXES}; promise CODED")
    site.add(task(coder=replace(external(), max_iterations=1)))
    assert_stopped(site.work(), 2, "gpg failed to sign the data", "To continue: ralph work")
    assert not site.is_fixed()
    (site.outside / "locked").unlink()
    assert site.work().code == 0
    assert site.is_fixed() and roles_of(site) == ["coder"], "the agent is not asked again"


def test_g2_a_hook_that_refuses_commits(site: Site) -> None:
    """The coder gets the message of the hook, and only what the hook accepts is done."""
    hook = site.project.path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntest -e changelog && exit\necho 'no entry in the changelog' >&2\nexit 1\n")
    hook.chmod(0o755)
    coder_only(site, f"{FIXES}; [ $n = 0 ] || touch changelog; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert "no entry in the changelog" in site.prompts("T-1.coder")[1]
    assert site.project.git("ls-tree", "--name-only", "main", "changelog") == "changelog\n"
    assert_clean(site)


def test_g2_a_hook_that_refuses_merges(site: Site) -> None:
    """The proved task waits with the hook's reason; other tasks continue, and when the hook allows it, it is merged."""
    hook = site.project.path / ".git/hooks/pre-merge-commit"
    hook.write_text(
        f"#!/bin/sh\n[ -e {site.outside}/open ] && exit\necho 'error: closed today' >&2\nexit 1\n"
    )
    hook.chmod(0o755)
    coder_only(
        site,
        f"{FIXES}; echo $RALPH_TASK_ID > $RALPH_TASK_ID; git add -A; git commit -qm own; echo >> $RALPH_TASK_ID; promise CODED",
    )
    site.add(task("T-1"), task("T-2"))
    assert_stopped(site.work(), 1, "blocked: T-1", "blocked: T-2", "closed today")
    (site.outside / "open").touch()
    result = site.work()
    assert result.code == 0, result.err
    assert len(site.prompts("T-1.coder") + site.prompts("T-2.coder")) == 2
    assert_clean(site)


@pytest.mark.slow
def test_g2_the_user_commits_at_the_same_time(site: Site) -> None:
    """Ralph waits for a user's commit with a slow hook, and both keep their changes."""
    go, here = site.outside / "go", site.outside / "hook.here"
    hook = site.project.path / ".git/hooks/pre-commit"
    waits = f"touch {here}; until [ -e {go} ]; do sleep 0.05; done; sleep 2.5"
    hook.write_text(f'#!/bin/sh\n[ "$PWD" != {site.project.path} ] || {{ {waits}; }}\n')
    hook.chmod(0o755)
    coder_only(site, f"{FIXES}; until [ -e {here} ]; do sleep 0.05; done; promise CODED")
    site.add(task())
    trap(site, "'merge --ff-only '*", f"touch {go}")
    ralph = site.project.start("work")
    wait_until((site.outside / "calls").exists)
    with (site.project.path / ".gitignore").open("a") as file:
        file.write("mine\n")
    site.project.git("commit", "-qam", "Mine")
    result = finish(ralph)
    assert result.code == 0, result.err
    assert site.is_fixed() and site.project.git("show", "main:.gitignore").endswith("mine\n")
    assert_clean(site)


@pytest.mark.parametrize(
    "lock", some(["index.lock", "refs/heads/main.lock", "HEAD.lock", "packed-refs.lock"], 1)
)
def test_g1_locks_left_by_a_killed_git(site: Site, lock: str) -> None:
    """They are removed when no process holds them, and the task is merged."""
    path = site.project.path / ".git" / lock
    path.touch()
    os.utime(path, (time.time() - 60, time.time() - 60))
    site.project.git("pack-refs", "--no-prune") if lock != "packed-refs.lock" else None
    coder_only(site, f"{FIXES}; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    path.unlink(missing_ok=True)
    assert_clean(site)


def test_g2_an_empty_repository(project: Project) -> None:
    """There is nothing to start from: one error that says how to make a commit."""
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.email", "ada@localhost")
    site = Site(project)
    site.agents()
    site.add(task())
    assert_stopped(
        site.work(), 2, "The branch main has no commit.", 'git commit --allow-empty -m "Initial commit"'
    )


def test_g2_head_is_detached_meanwhile(site: Site) -> None:
    """The branch still gets the work, and the checkout stays where the user moved it."""
    detach = f"(cd {site.project.path} && git checkout -q --detach)"
    coder_only(site, f"{FIXES}; {detach}; promise CODED")
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed()
    assert "a - b" in (site.project.path / "calc.py").read_text()
    assert_clean(site)


@pytest.mark.slow
def test_g2_another_branch_is_checked_out_later(site: Site) -> None:
    """A task is merged into the branch it started from, even if another one is checked out now."""
    coder_only(site, f"kill -INT {RALPH_PID}; {FIXES}")
    site.add(task())
    assert site.work().code == 130
    site.project.git("checkout", "-q", "-b", "other")
    coder_only(site, f"{FIXES}; promise CODED")
    result = site.work()
    assert result.code == 0, result.err
    assert "merged into main as" in result.out
    assert site.is_fixed() and "a - b" in site.project.git("show", "other:calc.py")


@pytest.mark.slow
def test_g2_a_submodule(site: Site) -> None:
    """It is empty in a new worktree until the user's setup fills it; then tasks with it are merged."""
    library = site.outside / "library"
    project = Project(library, site.project.home)
    library.mkdir()
    project.git("init", "-q")
    (library / "five").write_text("5\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "Library")
    allow = ("-c", "protocol.file.allow=always")
    site.project.git(*allow, "submodule", "add", "-q", str(library), "library")
    site.project.git("commit", "-qam", "Use the library")
    setup = "git -c protocol.file.allow=always submodule update -q --init"
    coder_only(site, f"{FIXES}; promise CODED", ralph={"setup": setup})
    site.add(task(coder=external(f"test -s library/five && {CHECK}")))
    result = site.work()
    assert result.code == 0, result.err
    assert site.is_fixed() and (site.project.path / "library/five").exists()
    assert_clean(site)


@pytest.mark.slow
def test_g2_a_shallow_clone(site: Site, tmp_path: Path) -> None:
    """A clone without history works like any other."""
    for number in range(3):
        site.project.git("commit", "-q", "--allow-empty", "-m", f"More {number}")
    clone = tmp_path / "clone"
    subprocess.run([GIT, "clone", "-q", "--depth", "1", f"file://{site.project.path}", clone], check=True)
    shallow = Site(Project(clone, site.project.home))
    shallow.project.git("config", "user.name", "Ada")
    shallow.project.git("config", "user.email", "ada@localhost")
    coder_only(shallow, f"{FIXES}; git commit -qam own; echo >> calc.py; promise CODED")
    shallow.add(task())
    result = shallow.work()
    assert result.code == 0, result.err
    assert shallow.is_fixed()
    assert_clean(shallow)


@pytest.mark.slow
def test_g2_a_state_directory_behind_a_link(site: Site) -> None:
    """Git identifies worktrees by their real paths; a home that is a link does not confuse it."""
    link = site.outside / "link"
    link.symlink_to(site.project.home.path)
    site.project.extra_env["RALPH_STATE_DIR"] = str(link)
    coder_only(
        site, f"[ $n = 0 ] && {{ echo x > kept.txt; kill -INT {RALPH_PID}; exit; }}\n{FIXES}; promise CODED"
    )
    site.add(task())
    assert site.work().code == 130
    result = site.work()
    assert result.code == 0, result.err
    assert site.project.git("show", "main:kept.txt") == "x\n"
    assert_clean(site)


# ---- G2: conflicts ----


@pytest.mark.slow
def test_g2_a_conflict_resolved_for_one_side(site: Site) -> None:
    """A coder that chooses its own side has merged the base too, and no conflict remains."""
    theirs = f"(cd {site.project.path} && echo '# base' >> calc.py && git commit -qam Base)"
    coder_only(
        site,
        f"if [ $n = 0 ]; then {FIXES}; echo '# mine' >> calc.py; {theirs}\n"
        "else git checkout -q --ours calc.py; fi; promise CODED",
    )
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert site.project.git("show", "main:calc.py").endswith("# mine\n")
    assert roles_of(site) == ["coder", "coder"]
    assert_clean(site)


@pytest.mark.slow
def test_g2_a_conflict_that_is_left(site: Site) -> None:
    """Ralph never commits conflict markers: the coder is told, and its work is not done with them."""
    theirs = f"(cd {site.project.path} && echo base >> notes && git add notes && git commit -qm Base)"
    coder_only(
        site,
        f"case $n in 0) {FIXES}; echo mine >> notes; {theirs};; 2) echo both > notes;; esac; promise CODED",
    )
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert "The work could not be committed: notes has a merge conflict" in site.prompts("T-1.coder")[2]
    assert site.project.git("show", "main:notes") == "both\n"


@pytest.mark.slow
def test_g2_a_conflict_whose_coder_is_killed(site: Site) -> None:
    """After kill -9 the conflict is there again, as an unfinished merge."""
    theirs = f"(cd {site.project.path} && echo base >> notes && git add notes && git commit -qm Base)"
    resolves = "echo both > notes; git add -A; git commit -qm resolved"
    coder_only(
        site,
        f"case $n in\n0) {FIXES}; echo mine >> notes; {theirs};;\n"
        f"1) {resolves}; kill -9 {RALPH_PID}; sleep 60;;\n"
        f"2) cp notes {site.outside}/seen; {resolves};;\nesac; promise CODED",
    )
    site.add(task())
    assert site.work().code == -9
    result = site.work()
    assert result.code == 0, result.err
    assert "<<<<<<<" in (site.outside / "seen").read_text()
    assert site.project.git("show", "main:notes") == "both\n"
    assert roles_of(site) == ["coder", "coder"]
    assert_clean(site)


@pytest.mark.slow
def test_g2_a_conflict_with_untracked_files(site: Site) -> None:
    """Untracked files in the worktree do not become part of the merge: no newer change of the base is undone."""
    theirs = f"(cd {site.project.path} && echo base | tee notes > late && git add . && git commit -qm Base)"
    coder_only(
        site,
        f"case $n in 0) {FIXES}; echo mine > notes; {theirs};;"
        f" 1) cp notes {site.outside}/seen; echo both > notes;; esac; promise CODED",
        ralph={"setup": "touch junk late"},
    )
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert "<<<<<<<" in (site.outside / "seen").read_text()
    assert (
        site.project.git("show", "main:late") == "base\n"
        and site.project.git("show", "main:notes") == "both\n"
    )
    assert "junk" not in site.project.git("ls-tree", "--name-only", "main").split()


@pytest.mark.slow
def test_g2_tests_of_the_tester_survive_a_conflict(site: Site) -> None:
    """The tester's additions stay protected and trusted when the base is merged in."""
    theirs = f"(cd {site.project.path} && echo base >> notes && git add notes && git commit -qm Base)"
    body = (
        HONEST.replace(
            "coder) ", "coder) [ $n = 0 ] && echo mine >> notes; [ $n = 0 ] || echo both > notes; "
        )
        .replace(
            "tester) ", "tester) grep -q 'add(1, 1)' check.py || echo 'assert add(1, 1) == 2' >> check.py; "
        )
        .replace("qa) ", f"qa) [ $n = 0 ] && {theirs}; ")
    )
    site.agents(body)
    site.add(task())
    result = site.work()
    assert result.code == 0, result.err
    assert roles_of(site) == ["coder", "reviewer", "tester", "qa"] * 2
    assert site.project.git("show", "main:check.py").endswith("assert add(1, 1) == 2\n")
    assert len(site.prompts("T-1.coder")) == 2


# ---- G3: odd texts ----

ODD = {
    "quotes": "it's \"quoted\" \\ and 'so on'",
    "substitution": "$(touch pwned) `touch pwned` ${HOME} ; touch pwned | touch pwned & touch pwned",
    "newlines": "first line\nsecond line\n\nRalph-Run: fake/1\n# no comment",
    "leading dash": "--amend -m pwned --upload-pack=touch",
    "emoji": "\U0001f680 \u00fc\u4f60\u597d \u202e rtl",
    "controls": "a\x1b[31mred\x07\r\x00end",
    "long": "x" * 100_000,
    "percent": "%s %(refname) %n {0} {title}",
}


def one_line(title: str) -> str:
    return clean(" ".join(f"Merge T-1: {title}".split()))[:200].rstrip()


def messages(site: Site) -> list[str]:
    """The subjects of the commits that Ralph made for the coder."""
    return site.project.git("log", "-z", "--format=%B", "--grep=^T-1: ", "main").split("\0")


@pytest.mark.parametrize("kind", some(ODD, 1))
def test_g3_odd_texts_are_only_texts(site: Site, kind: str) -> None:
    """Title, description, outcome and criteria go into prompts and commits unchanged, and nothing executes them."""
    text = ODD[kind]
    coder_only(
        site, f"{FIXES}; git commit -qam own; echo >> calc.py; cat > {site.outside}/prompt; promise CODED"
    )
    settings = site.project.path / ".ralph/settings.json"
    settings.write_text(settings.read_text().replace('agent.sh"}', 'agent.sh", "promptVia": "stdin"}', 1))
    spec = TaskCompletionSpec(text, (text,), replace(external(), description=text))
    site.add(replace(task(), title=text, description=text, completion_spec=spec))
    result = site.work()
    assert result.code == 0, result.err
    assert not list(site.outside.rglob("pwned"))
    assert (site.outside / "prompt").read_bytes().decode().count(text) >= 4
    assert site.project.git("log", "-1", "--format=%B", "main").rstrip("\n") == one_line(text)
    assert messages(site)[0].startswith(f"T-1: {clean(text).strip()} (coder)\n\nRalph-Run: ")
    assert_clean(site)


@pytest.mark.parametrize(
    "id", ["../../escape", "-rf", "a b", "a/b", "$(touch pwned)", "x.lock", "a..b", ".hidden"]
)
def test_g3_odd_ids_are_refused(site: Site, id: str) -> None:
    """An id that cannot be a branch or a directory is refused before anything is created."""
    site.add(task(id))
    before = sorted(site.outside.rglob("*"))
    assert_stopped(site.work(), 2, f"The id of task {id!r} must")
    assert [
        path for path in sorted(site.outside.rglob("*")) if path not in before and "state" not in str(path)
    ] == []
    assert site.project.git("branch", "--list", "ralph/*") == ""


@pytest.mark.slow
def test_g3_ids_that_look_like_attempts(site: Site) -> None:
    """The second attempt at task 1 and the task 1.2 do not collide."""
    writes = f"{FIXES}; echo $RALPH_TASK_ID > $RALPH_TASK_ID.txt; promise CODED"
    coder_only(site, writes)
    site.add(task("1", attempts=2), task("1.2"))
    result = site.work("-j", "3")
    assert result.code == 0, result.err
    assert site.project.git("show", "main:1.txt", "main:1.2.txt") == "1\n1.2\n"
    assert_clean(site)
