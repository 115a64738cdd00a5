"""Commits of verified work, through `ralph run` with real git."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from conftest import Project, some, wait_until
from ralph.scm.stale import is_held

ASKED = '*"commit message"*'


def committing(
    project: Project, work: str, message: str = "Add work", tasks: str = "commit", **more: object
) -> None:
    """An agent that does `work`, claims to be done, and answers with a message when asked for one."""
    body = f"""
        case "$1" in
            {ASKED}) printf '%s' {shlex.quote(message)};;
            *) {work}
               echo '<response>DONE</response>';;
        esac
    """
    settings = {"guardrails": [{"command": "true"}], "scm": {"command": "git", "tasks": tasks.split(",")}}
    project.agent(body, **(settings | more))


@pytest.fixture
def place(repository: Project) -> Project:
    """A repository with a configured user."""
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@localhost")
    return repository


def last_message(project: Project) -> str:
    return project.git("log", "-1", "--format=%B").rstrip("\n")


def files_of(project: Project, commit: str = "HEAD") -> list[str]:
    return sorted(project.git("show", "--format=", "--name-only", commit).split())


def test_the_agents_work_is_committed(place: Project) -> None:
    """New and changed files are in one commit with the agent's message, the user's name, and the run."""
    committing(place, "echo new > new.txt; echo more >> README.md")
    result = place.run("run", "-p", "x")
    run = place.status()[0]["id"]
    assert (result.code, files_of(place)) == (0, ["README.md", "new.txt"])
    assert last_message(place) == f"Add work\n\nRalph-Run: {run}/1"
    assert place.git("log", "-1", "--format=%an <%ae>").strip() == "Ada <ada@localhost>"


def test_earlier_untracked_files_are_not_committed(place: Project) -> None:
    """A `.env` and notes that were untracked when the run started stay untracked; touching them changes nothing."""
    (place.path / ".env").write_text("TOKEN=1\n")
    (place.path / "notes.txt").write_text("mine\n")
    (place.path / "odd\nname").write_text("odd\n")
    committing(place, "touch .env; echo new > new.txt")
    place.run("run", "-p", "x")
    assert files_of(place) == ["new.txt"]
    assert (place.path / ".env").read_text() == "TOKEN=1\n"


def test_tool_caches_are_not_committed(place: Project) -> None:
    """No matter who made them, a check or the agent; but where the repository has such files, new ones are added."""
    (place.path / "vendored/node_modules").mkdir(parents=True)
    (place.path / "vendored/node_modules/a.js").touch()
    place.git("add", ".")
    place.git("commit", "-qm", "Vendored")
    check = "mkdir -p src/__pycache__ && touch src/__pycache__/a.pyc .coverage"
    work = "mkdir -p src/node_modules/b && touch src/a.py src/node_modules/b/c.js vendored/node_modules/b.js"
    committing(place, work, guardrails=[{"command": check}])
    assert place.run("run", "-p", "x").code == 0
    assert files_of(place) == ["src/a.py", "vendored/node_modules/b.js"]


@pytest.mark.parametrize("path", ["deep/__pycache__", "deep/nested"])
def test_nothing_committable_needs_no_message(place: Project, path: str) -> None:
    """With only caches, or another repository, the agent is not asked."""
    (place.path / path).mkdir(parents=True)
    work = f"git init -q {path}; touch {path}/file" if path.endswith("nested") else f"touch {path}/a.pyc"
    committing(place, work)
    assert place.run("run", "-p", "x").code == 0
    assert sorted(file.name for file in place.path.glob(".ralph/prompt_*")) == ["prompt_001.txt"]


def test_an_earlier_untracked_file_that_was_changed_is_committed(place: Project) -> None:
    """An untracked file that the agent worked on is its work."""
    (place.path / "draft.txt").write_text("draft\n")
    committing(place, "echo done >> draft.txt")
    place.run("run", "-p", "x")
    assert files_of(place) == ["draft.txt"]


def test_red_guardrails_commit_nothing(place: Project) -> None:
    """No commit and no request for a message while a guardrail fails."""
    committing(place, "echo new > new.txt", guardrails=[{"command": "false"}])
    before = place.git("rev-parse", "HEAD")
    place.run("run", "-p", "x", "-m", "2")
    assert (place.git("rev-parse", "HEAD"), (place.path / ".ralph/prompt_001_message.txt").exists()) == (
        before,
        False,
    )


def test_nothing_to_commit_asks_for_no_message(place: Project) -> None:
    """Without changes there is no request, no error and no commit."""
    committing(place, "true")
    before = place.git("rev-parse", "HEAD")
    result = place.run("run", "-p", "x")
    assert (result.code, place.git("rev-parse", "HEAD")) == (0, before)
    assert not (place.path / ".ralph/prompt_001_message.txt").exists()


def test_every_green_iteration_is_committed(place: Project) -> None:
    """Iterations before the last one are committed too, each with its own mark."""
    body = f"""
        case "$1" in
            {ASKED}) echo "Work $RALPH_ITERATION";;
            *) echo $RALPH_ITERATION > work$RALPH_ITERATION
               [ $RALPH_ITERATION = 3 ] && echo '<response>DONE</response>';;
        esac
        true
    """
    place.agent(body, guardrails=[{"command": "true"}], scm={"command": "git", "tasks": ["commit"]})
    place.run("run", "-p", "x")
    run = place.status()[0]["id"]
    log = place.git("log", "-3", "--reverse", "--format=%s %(trailers:key=Ralph-Run,valueonly)").split("\n")
    assert [line for line in log if line] == [f"Work {n} {run}/{n}" for n in (1, 2, 3)]


SILENT = {
    "says nothing": "true",
    "dies": "echo A message; kill -9 $$",
    "fails": "echo A message; exit 1",
    "answers as usual": "echo '<response>DONE</response>'",
}


@pytest.mark.parametrize("name", SILENT)
def test_without_a_message_one_is_made_from_the_prompt(place: Project, name: str) -> None:
    """What is green is committed, whatever the call for a message comes to."""
    committing(place, "echo new > new.txt", message="")
    script = place.path / "agent.sh"
    script.write_text(script.read_text().replace("printf '%s' ''", SILENT[name]))
    result = place.run("run", "-p", "# Write a new file\n\nIt has one line.")
    assert (result.code, last_message(place).split("\n")[0]) == (0, "Write a new file")
    assert "commit message of iteration 1 made from the prompt" in result.out


HOSTILE = {
    "quotes": """Say "it's" done""",
    "substitution": "Add $(touch PWNED) `touch PWNED` ${HOME}",
    "a leading dash": "--amend -m evil",
    "several lines": "<response>Subject\n\n- body one\n- body two</response>",
    "a comment": "# not a comment",
    "emoji": "Add 🎉 née",
    "long": "x" * 100_000,
    "a trailer": "Add\n\nRalph-Run: other/1",
}


@pytest.mark.parametrize("name", some(HOSTILE, 4))
def test_a_message_is_data(place: Project, name: str) -> None:
    """The agent's answer is the message and nothing else."""
    message = HOSTILE[name]
    (place.path / "message").write_text(message)
    body = f"""
        case "$1" in
            {ASKED}) cat {place.path}/message;;
            *) echo new > new.txt; echo '<response>DONE</response>';;
        esac
    """
    place.agent(body, scm={"command": "git", "tasks": ["commit"]})
    result = place.run("run", "-p", "x")
    wanted = message.removeprefix("<response>").removesuffix("</response>")
    subject = wanted if name == "several lines" else wanted.split("\n")[0]
    run = place.status()[0]["id"]
    assert (result.code, last_message(place)) == (
        0,
        f"{subject[:16000] if name != 'long' else last_message(place).split(chr(10))[0]}\n\nRalph-Run: {run}/1",
    )
    assert not (place.path / "PWNED").exists()


def test_tasks_run_in_order(place: Project, tmp_path: Path) -> None:
    """Commit, then push, to a real remote."""
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    place.git("remote", "add", "origin", str(remote))
    place.git("push", "-q", "-u", "origin", "main")
    committing(place, "echo new > new.txt", tasks="commit,push")
    result = place.run("run", "-p", "x")
    pushed = subprocess.run(
        ["git", "-C", str(remote), "log", "-1", "--format=%s", "main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.code, pushed.stdout) == (0, "Add work\n")


def test_a_failing_push_is_shown_and_stops_nothing(place: Project) -> None:
    """Git's message is shown, with what to do next."""
    committing(place, "echo new > new.txt", tasks="commit,push")
    result = place.run("run", "-p", "x")
    assert (result.code, last_message(place).split("\n")[0]) == (0, "Add work")
    assert "git push failed: fatal: No configured push destination" in result.err
    assert "remote add origin" in result.err


def test_another_command_gets_its_tasks_unchanged(place: Project) -> None:
    """`hg`, `jj` or any other command: `commit -m MESSAGE`, then each task as given."""
    log = place.home.path / "calls"
    tool = place.script("jj", f'printf "%s|" "$@" >> {log}; echo >> {log}')
    committing(
        place, "true", message="Say $(hi)", scm={"command": tool, "tasks": ["commit", "git push --all"]}
    )
    place.run("run", "-p", "x")
    assert log.read_text() == "commit|-m|Say $(hi)|\ngit|push|--all|\n"


def test_no_repository_is_reported_once(project: Project) -> None:
    """Without git there are no commits and no snapshots, and that is not an error."""
    committing(project, "echo new > new.txt", snapshots=True)
    result = project.run("run", "-p", "x")
    assert (result.code, result.err.count("Not a git repository")) == (0, 1)


# ---- hooks and planted things ----


def hook(project: Project, name: str, body: str) -> None:
    path = project.path / ".git/hooks" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_the_hooks_of_husky_run(place: Project) -> None:
    """They start the file of the same name one directory up; links that lead nowhere hide no hook."""
    mark = place.home.path / "mark"
    husky = place.path / ".husky"
    (husky / "_").mkdir(parents=True)
    (husky / "pre-commit").write_text(f"echo ran >> {mark}\n")
    (husky / "_/h").write_text(
        'n=$(basename "$0"); s=$(dirname "$(dirname "$0")")/$n; [ ! -f "$s" ] || sh -e "$s"\n'
    )
    for number in range(9):
        (husky / f"_/broken-{number}").symlink_to("nowhere")
    (husky / "_/pre-commit").write_text('#!/bin/sh\n. "$(dirname "$0")/h"\n')
    (husky / "_/pre-commit").chmod(0o755)
    place.git("add", "-A")
    place.git("commit", "-qm", "Hooks")
    place.git("config", "core.hooksPath", ".husky/_")
    committing(place, f"echo new > new.txt; echo 'echo agent >> {mark}' > .husky/pre-commit")
    assert place.run("run", "-p", "x").code == 0
    assert mark.read_text() == "ran\n"


def test_the_users_hooks_run_as_they_were(place: Project) -> None:
    """A hook runs as it was when the run started; the agent's changes to it do not count."""
    mark = place.home.path / "mark"
    hook(place, "pre-commit", f"echo mine >> {mark}")
    planted = f"printf '#!/bin/sh\\necho planted >> {mark}\\n'"
    work = f"echo new > new.txt; {planted} > .git/hooks/pre-commit; {planted} > .git/hooks/post-commit; chmod +x .git/hooks/*"
    committing(place, work)
    result = place.run("run", "-p", "x")
    assert (result.code, mark.read_text()) == (0, "mine\n")


def test_a_hook_that_refuses_is_fed_back(place: Project) -> None:
    """What a hook refuses is not delivered, so the run is not complete; the agent gets the hook's own output."""
    hook(place, "pre-commit", "grep -q tabs new.txt && exit 0; echo no tabs please >&2; exit 1")
    committing(place, "[ $RALPH_ITERATION = 1 ] && echo new > new.txt || echo tabs > new.txt")
    result = place.run("run", "-p", "x", "-m", "3")
    assert (result.code, "Not committed: git commit failed: no tabs please" in result.err) == (0, True)
    assert "no tabs please" in (place.path / ".ralph/prompt_002.txt").read_text()
    assert place.git("log", "--format=%s") == "Add work\nFirst\n"


HUSKY = """
    script=$(dirname "$(dirname "$0")")/$(basename "$0")
    [ ! -f "$script" ] && exit 0
    exec sh -e "$script"
"""


def test_a_hook_that_runs_the_file_next_to_its_folder(place: Project) -> None:
    """The hooks of husky 9 run a script next to their folder; the one from the start of the run is meant."""
    mark = place.home.path / "ran"
    for folder in (".husky/_", ".husky/lib"):
        (place.path / folder).mkdir(parents=True)
    place.script(".husky/_/pre-commit", HUSKY)
    place.script(".husky/pre-commit", f'. "$(dirname "$0")/lib/say.sh"; say mine >> {mark}')
    place.script(".husky/lib/say.sh", 'say() { echo "$1"; }')
    place.git("config", "core.hooksPath", ".husky/_")
    place.git("add", ".husky")
    place.git("commit", "-q", "--no-verify", "-m", "Husky")
    committing(place, f"echo new > new.txt; echo 'echo planted >> {mark}' > .husky/pre-commit")
    assert place.run("run", "-p", "x").code == 0
    assert mark.read_text() == "mine\n"


PLANTED = {
    "hooks path": "mkdir h; cp evil.sh h/pre-commit; git config core.hooksPath h",
    "fsmonitor": "git config core.fsmonitor ./evil.sh",
    "filter": "git config filter.e.clean ./evil.sh; echo '*.txt filter=e' > .git/info/attributes",
    "external diff": "git config diff.external ./evil.sh",
    "ssh command": "git config core.sshCommand ./evil.sh; git config remote.origin.url ssh://localhost/x",
    "gpg program": "git config gpg.program ./evil.sh; git config commit.gpgSign true",
    "editor": "git config core.editor ./evil.sh",
    "credential helper": "git config credential.helper ./evil.sh",
    "push to elsewhere": "git config remote.origin.pushurl ../elsewhere.git",
    "nested filter": "git init -q in; git -C in -c user.name=x -c user.email=x commit -q --allow-empty -m x; git add in;"
    " touch in/f; git -C in add f; git -C in config filter.e.clean $PWD/evil.sh; echo 'f filter=e' >in/.gitattributes;"
    " echo more >in/f",
    "instead of": "git config url.../elsewhere.git.insteadOf ../remote.git",
}


@pytest.mark.parametrize("name", some(PLANTED, 5))
def test_nothing_planted_runs_in_a_commit_or_push(place: Project, tmp_path: Path, name: str) -> None:
    """Whatever the agent plants while it works, none of its programs runs and nothing is pushed elsewhere."""
    mark, remote = place.home.path / "ran", tmp_path / "remote.git"
    for bare in ("remote.git", "elsewhere.git"):
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / bare)], check=True)
    place.git("remote", "add", "origin", "../remote.git")
    place.git("push", "-q", "-u", "origin", "main")
    place.script("evil.sh", f"echo {name} >> {mark}; cat 2>/dev/null")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "Tools")
    committing(place, f"echo new > new.txt; {PLANTED[name]}", tasks="commit,push")
    place.run("run", "-p", "x")
    elsewhere = subprocess.run(
        ["git", "-C", str(tmp_path / "elsewhere.git"), "for-each-ref"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (mark.exists(), elsewhere.stdout, remote.exists()) == (False, "", True)


def test_the_commit_of_a_submodule_is_committed(place: Project, tmp_path: Path) -> None:
    """Its new commit, and its removal, but none of its uncommitted changes."""
    place.git("init", "-q", "in")
    for words in (["commit", "-q", "--allow-empty", "-m", "1"], ["commit", "-q", "--allow-empty", "-m", "2"]):
        place.git("-C", "in", *words)
    place.git("-C", "in", "reset", "-q", "--hard", "HEAD~1")
    place.git("add", "in")
    place.git("commit", "-qm", "A submodule")
    committing(place, "echo x > in/dirty; git -C in reset -q --hard ORIG_HEAD; echo new > new.txt")
    assert place.run("run", "-p", "x").code == 0
    now = place.git("-C", "in", "rev-parse", "HEAD").strip()
    assert now in place.git("ls-tree", "HEAD", "in") and "new.txt" in place.git("ls-tree", "HEAD")
    committing(place, "rm -r in")
    assert place.run("run", "-p", "x").code == 0
    assert place.git("ls-tree", "HEAD", "in") == ""


# ---- states of git ----


def test_no_identity(repository: Project) -> None:
    """Without an identity the run stops with what to do next; resumed, it commits without another iteration."""
    repository.extra_env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "EMAIL": ""}
    repository.git("config", "user.useConfigOnly", "true")
    committing(repository, "echo new > new.txt")
    result = repository.run("run", "-p", "x")
    assert (result.code, "user.email" in result.out) == (2, True)
    assert (repository.path / "new.txt").read_text() == "new\n"
    repository.git("config", "user.email", "ada@localhost")
    repository.git("config", "user.name", "Ada")
    assert (repository.run("resume").code, files_of(repository)) == (0, ["new.txt"])


def test_signing_that_fails(place: Project) -> None:
    """A missing signing key is reported, with a way out."""
    place.git("config", "commit.gpgSign", "true")
    place.git("config", "user.signingKey", "nobody")
    place.git("config", "gpg.program", "false")
    committing(place, "echo new > new.txt")
    result = place.run("run", "-p", "x")
    assert (result.code, "commit.gpgSign false" in result.out) == (2, True)


def test_an_unborn_branch_gets_its_first_commit(project: Project) -> None:
    """A fresh repository works from the first commit on."""
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@localhost")
    committing(project, "echo new > new.txt", snapshots=True)
    result = project.run("run", "-p", "x")
    assert (result.code, project.git("log", "--format=%s")) == (0, "Add work\n")


def test_a_detached_head_is_committed_to(place: Project) -> None:
    """The commit is made where HEAD is; no branch moves."""
    place.git("checkout", "-q", "--detach")
    committing(place, "echo new > new.txt")
    place.run("run", "-p", "x")
    assert (last_message(place).split("\n")[0], place.git("log", "-1", "--format=%s", "main")) == (
        "Add work",
        "First\n",
    )


def test_a_stale_lock_is_removed(place: Project) -> None:
    """An index.lock that a killed git left behind does not stop the commit."""
    lock = place.path / ".git/index.lock"
    lock.touch()
    os.utime(lock, (time.time() - 60, time.time() - 60))
    committing(place, "echo new > new.txt")
    result = place.run("run", "-p", "x")
    assert (result.code, lock.exists(), last_message(place).split("\n")[0]) == (0, False, "Add work")


def test_a_stale_lock_of_a_branch_is_removed(place: Project) -> None:
    """The same for the lock of the branch being committed to."""
    lock = place.path / ".git/refs/heads/main.lock"
    lock.touch()
    os.utime(lock, (time.time() - 60, time.time() - 60))
    committing(place, "echo new > new.txt")
    result = place.run("run", "-p", "x")
    assert (result.code, lock.exists(), last_message(place).split("\n")[0]) == (0, False, "Add work")


@pytest.mark.slow
def test_a_lock_that_is_held_is_respected(place: Project) -> None:
    """While a live process has the lock open it is left alone, and the message says so."""
    lock = place.path / ".git/index.lock"
    holder = subprocess.Popen(
        ["sh", "-c", f"exec 9> {shlex.quote(str(lock))}; echo ready; exec sleep 60"], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        assert is_held(lock)
        committing(place, "echo new > new.txt")
        result = place.run("run", "-p", "x")
        assert (result.code, lock.exists(), "index.lock" in result.out) == (2, True, True)
    finally:
        holder.kill()
        holder.communicate()


def test_a_nested_repository_is_not_added(place: Project) -> None:
    """A repository that the agent cloned inside ours is not committed as a broken link."""
    committing(
        place,
        "git init -q lib; git -C lib -c user.name=A -c user.email=a@b commit -q --allow-empty -m x; echo n > n",
    )
    place.run("run", "-p", "x")
    assert files_of(place) == ["n"]


def test_a_commit_made_before_a_kill_is_not_made_again(place: Project) -> None:
    """After kill -9 between the commit and its journal row, the same iteration is not committed twice."""
    hook(place, "post-commit", f"touch {place.home.path}/committed; sleep 1")
    committing(place, "echo $RALPH_ITERATION > new.txt")
    process = place.start("run", "-p", "x")
    wait_until((place.home.path / "committed").exists)
    process.kill()
    process.communicate()
    hook(place, "post-commit", "true")
    result = place.run("resume")
    assert result.code == 0
    assert place.git("log", "--format=%s").split("\n")[:-1] == ["Add work", "First"]
    assert place.git("fsck", "--no-dangling") == ""


def test_an_unresolved_merge_is_named_and_left_as_it_is(place: Project) -> None:
    """During a conflict nothing is committed over it; the message says what is wrong."""
    place.git("checkout", "-q", "-b", "other")
    (place.path / "README.md").write_text("theirs\n")
    place.git("commit", "-qam", "Theirs")
    place.git("checkout", "-q", "main")
    (place.path / "README.md").write_text("ours\n")
    place.git("commit", "-qam", "Ours")
    subprocess.run(["git", "merge", "-q", "other"], cwd=place.path, env=place.env, capture_output=True)
    committing(place, "echo new > new.txt")
    result = place.run("run", "-p", "x", "-m", "1")
    assert (result.code, last_message(place)) == (1, "Ours")
    assert (place.path / ".git/MERGE_HEAD").exists() and (place.path / "new.txt").exists()
    assert "Not committed: README.md has a merge conflict." in result.err
    committing(place, "echo both > README.md")
    assert (place.run("run", "-p", "x").code, place.git("show", "HEAD:README.md")) == (0, "both\n")


def test_a_shallow_clone_is_committed_to(place: Project, tmp_path: Path) -> None:
    """A clone without history works like any other."""
    (place.path / "more").write_text("more\n")
    place.git("add", "-A")
    place.git("commit", "-qm", "More")
    clone = Project(tmp_path / "clone", place.home)
    place.git("clone", "-q", "--depth", "1", f"file://{place.path}", str(clone.path))
    clone.git("config", "user.name", "Ada")
    clone.git("config", "user.email", "ada@localhost")
    committing(clone, "echo new > new.txt")
    assert (clone.run("run", "-p", "x").code, files_of(clone)) == (0, ["new.txt"])
