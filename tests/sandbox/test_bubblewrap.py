"""Runs inside bubblewrap: what an agent and a check see there, and how they exit."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, Result, some, wait_until
from faults.fault_support import RUNS
from sandbox_support import BUBBLEWRAP

pytestmark = BUBBLEWRAP

DONE = 'echo "<response>DONE</response>"'
SANDBOX = {"rung": "bubblewrap"}


def run(
    project: Project, body: str, *words: str, sandbox: dict[str, Any] | None = None, **settings: Any
) -> Result:
    """Run one iteration with a shell script as the agent."""
    agent = project.script("agent.sh", body)
    mine = {"agent": {"command": agent}, "maximumIterations": 1, "sandbox": SANDBOX | (sandbox or {})}
    project.settings(**(mine | settings))
    return project.run("run", "-p", "x", *words)


def identify(project: Project) -> None:
    project.git("config", "user.name", "Test")
    project.git("config", "user.email", "test@localhost")


def notices(result: Result) -> str:
    return "\n".join(line["text"] for line in result.lines() if line["event"] == "notice")


def test_an_agent_writes_in_the_worktree_and_nowhere_else(repository: Project) -> None:
    """Nothing appears next to it, in the store or in the home directory."""
    sibling, store = repository.path.parent / "sibling", repository.home.path / "planted"
    done = run(repository, f"echo 1 >made; echo 1 >{sibling}; echo 1 >{store}; echo 1 >~/planted; {DONE}")
    assert done.code == 0, done.err
    assert (repository.path / "made").exists()
    assert not sibling.exists() and not store.exists()


def test_a_commit_works_inside_and_is_not_signed(repository: Project) -> None:
    """The signing keys are hidden, so a signing setting does not stop an agent's commit."""
    identify(repository)
    repository.git("config", "commit.gpgSign", "true")
    done = run(repository, f"echo 1 >made; git add -A && git commit -qm inside && {DONE}")
    assert done.code == 0, done.err
    assert repository.git("log", "-1", "--format=%s").strip() == "inside"


def test_secrets_of_the_environment_stay_outside(repository: Project) -> None:
    """An agent gets the default variables, its own variables and those that the settings name."""
    repository.extra_env = {
        "AWS_SECRET_ACCESS_KEY": "s1",
        "GH_TOKEN": "s2",
        "SSH_AUTH_SOCK": "/tmp/s3",
        "MY_OWN": "o",
    }
    run(
        repository,
        f"env >environment; {DONE}",
        sandbox={"variables": ["MY_*"]},
        agent={"command": str(repository.path / "agent.sh"), "env": {"GIVEN": "g"}},
    )
    found = (repository.path / "environment").read_text()
    assert "MY_OWN=o" in found and "GIVEN=g" in found and "RALPH_SANDBOX=bubblewrap" in found
    assert not any(f"={secret}\n" in found for secret in ("s1", "s2", "/tmp/s3"))


def test_checks_run_inside_without_the_agents_login(repository: Project) -> None:
    """A check runs code that the agent wrote, so it can reach neither the outside nor the login."""
    login = repository.home.path / ".codex"
    login.mkdir()
    (login / "auth.json").write_text("secret")
    sibling = repository.path.parent / "sibling"
    look = "if cat ~/.codex/auth.json; then exit 3; fi"
    done = run(
        repository,
        f"cat ~/.codex/auth.json >seen; {DONE}",
        "--json",
        agent={"command": str(repository.path / "agent.sh"), "type": "custom"},
        guardrails=[{"command": f"{look}; echo 1 >{sibling}; test -n $RALPH_SANDBOX; touch checked"}],
    )
    assert done.code == 0, done.out
    assert (repository.path / "checked").exists() and not sibling.exists()


def test_a_clean_check_runs_inside_as_well(repository: Project) -> None:
    """It runs in the copy, which is writable; the worktree is read-only there."""
    (repository.path / "kept").write_text("as it was")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "kept")
    command = f"test -f kept && echo 1 >in_copy && ! echo changed >{repository.path}/kept && cat {repository.path}/kept"
    done = run(repository, DONE, guardrails=[{"command": command, "clean": True}])
    assert done.code == 0, done.err
    assert (repository.path / "kept").read_text() == "as it was"


def test_an_agents_login_is_there_and_its_hooks_cannot_be_planted(repository: Project) -> None:
    """The login is writable; settings that start programs can be neither changed nor created."""
    login = repository.home.path / ".codex"
    login.mkdir()
    (login / "auth.json").write_text("old")
    (login / "config.toml").write_text("mine")
    body = f"echo new >~/.codex/auth.json; echo evil >~/.codex/config.toml; echo evil >~/.codex/hooks.json; {DONE}"
    agent = repository.script("codex", body)
    repository.settings(agent={"command": agent, "type": "codex"}, maximumIterations=1, sandbox=SANDBOX)
    done = repository.run("run", "-p", "x", "--json")
    assert (login / "auth.json").read_text() == "new\n"
    assert (login / "config.toml").read_text() == "mine"
    assert not (login / "hooks.json").exists() and "hooks.json was created inside" in notices(done)


@pytest.mark.slow
def test_bypass_is_the_default_inside(repository: Project) -> None:
    """What an agent can do without asking: everything in a sandbox, edit files without one, or as configured."""
    agent = repository.script("codex", 'echo "$@" >arguments')
    for sandbox, more, flag in (
        (SANDBOX, {}, "--dangerously-bypass-approvals-and-sandbox"),
        ({"rung": "direct"}, {}, "workspace-write"),
        (SANDBOX, {"permissions": "edit"}, "workspace-write"),
    ):
        repository.settings(agent={"command": agent} | more, maximumIterations=1, sandbox=sandbox)
        repository.run("run", "-p", "x")
        assert flag in (repository.path / "arguments").read_text()


def test_p8_killing_everything_kills_only_the_sandbox(repository: Project) -> None:
    """`kill -9 -1` and `pkill python` inside kill only processes inside, repeatedly; ralph and its warden
    keep running."""
    times = max(5, RUNS)
    body = "sleep 60 & pkill -9 python; kill -9 -1; echo working"
    done = run(repository, body, "--json", maximumIterations=times, snapshots=False)
    ends = [line["ran"]["ended"] for line in done.lines() if line["event"] == "agent_ended"]
    assert (done.code, ends) == (1, ["ok"] * times)


def test_a_stopped_agent_may_exit_cleanly(repository: Project) -> None:
    """TERM reaches the inner process, which gets time to exit, and its exit code is reported."""
    body = "trap 'sleep 0.5; echo bye >farewell; exit 7' TERM; while :; do sleep 0.05; done"
    done = run(repository, body, "--json", iterationTimeoutSeconds=1)
    ended = next(line["ran"] for line in done.lines() if line["event"] == "agent_ended")
    assert (ended["ended"], ended["exit"]) == ("timeout", 7)
    assert (repository.path / "farewell").read_text() == "bye\n"


def newest(project: Project) -> str:
    return str(project.home.runs().all()[0].id)


def test_a_death_by_signal_is_reported(repository: Project) -> None:
    """bubblewrap turns it into an exit code, and the run turns it back."""
    done = run(repository, "kill -9 $$", "--json")
    ended = next(line["ran"] for line in done.lines() if line["event"] == "agent_ended")
    assert (ended["ended"], ended["exit"]) == ("killed", None)


def test_nothing_outlives_its_command(repository: Project) -> None:
    """A daemon that left its session, its parent and its pipes is gone with the sandbox."""
    mark = f"{os.getpid()}{time.monotonic_ns()}"
    run(repository, f"setsid sh -c 'exec -a x{mark} sleep 300' >/dev/null 2>&1 & sleep 0.2; {DONE}")
    cmdlines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(mark.encode() in each for each in cmdlines)


def test_resume_uses_the_same_sandbox(repository: Project) -> None:
    """It is part of the plan, and settings are not read again."""
    done = run(repository, "env >environment", "--json")
    assert done.code == 1
    (repository.path / "environment").unlink()
    repository.settings(sandbox={"rung": "direct"})
    again = repository.run("resume", "-m", "2", "--json")
    assert next(line for line in again.lines() if line["event"] == "run_started")["sandbox"] == "bubblewrap"
    assert "RALPH_SANDBOX=bubblewrap" in (repository.path / "environment").read_text()


def test_sockets_outside_cannot_be_reached(repository: Project) -> None:
    """This holds for names with spaces and for abstract sockets, if the kernel is new enough."""
    place, abstract = repository.path.parent / "read only", f"\0ralph-test-{os.getpid()}"
    place.mkdir()
    names = [str(place / "a b.sock"), *([abstract] if scopes_sockets() else [])]
    code = f"""
import socket
for name in {names!r}:
    with socket.socket(socket.AF_UNIX) as client:
        print(client.connect_ex(name) and "denied")
"""
    with ExitStack() as stack:
        for name in (str(place / "a b.sock"), abstract):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
        (repository.path / "connect.py").write_text(code)
        run(
            repository,
            f"{sys.executable} connect.py >said 2>&1; ls '{place}' >>said",
            sandbox={"readOnly": [str(place)]},
        )
    assert (repository.path / "said").read_text().split("\n")[:-1] == ["denied"] * len(names) + ["a b.sock"]


def scopes_sockets() -> bool:
    """Whether the kernel can block abstract sockets: Landlock since ABI version 6."""
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1)) >= 6


def test_limits_hold_inside(repository: Project) -> None:
    """A process that asks for more memory than allowed does not get it."""
    python = f"{sys.executable} -c 'bytearray(300 << 20)' 2>error || touch refused"
    run(repository, f"{python}; {DONE}", sandbox={"memoryMb": 100})
    assert (repository.path / "refused").exists() and "MemoryError" in (repository.path / "error").read_text()


@pytest.mark.parametrize(
    "plant",
    some(
        [
            "printf '#!/bin/sh\\ntouch OUT\\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
            "git config core.hooksPath hooks; mkdir hooks; printf '#!/bin/sh\\ntouch OUT\\n' >hooks/pre-commit;"
            " chmod +x hooks/pre-commit",
            "git config core.fsmonitor 'touch OUT; false'",
            "git config diff.external 'touch OUT; true'",
            "git config filter.x.clean 'touch OUT; cat'; echo '* filter=x' >.gitattributes",
            "git config core.sshCommand 'touch OUT; false'",
        ],
        2,
    ),
)
def test_t2_planted_files_do_not_run_outside(repository: Project, plant: str) -> None:
    """Planted files run neither in Ralph's git, which commits afterwards, nor in the user's: they are restored."""
    identify(repository)
    out = repository.path.parent / "escaped"
    body = f"{plant.replace('OUT', str(out))}; echo $RANDOM$$ >made; {DONE}"
    done = run(repository, body, "--json", scm={"command": "git", "tasks": ["commit"]})
    assert done.code == 0, done.out
    repository.git("status")
    repository.git("diff", "HEAD")
    repository.git("commit", "--allow-empty", "-qm", "mine")
    assert not out.exists()
    assert "and restored" in notices(done)
    assert json.loads(repository.run("status", newest(repository), "--json").out)["sandbox"].startswith(
        "bubble"
    )


def test_git_does_not_write_through_planted_links(repository: Project) -> None:
    """Otherwise Ralph's next commit would append a line of the agent's choice to a linked file."""
    identify(repository)
    out = repository.path.parent / "escaped"
    out.touch()
    branch = f"git checkout -qb hooks/x; ln -sf {out} .git/logs/refs/heads/hooks/x"
    body = f"{branch}; ln -sf {out} .git/logs/HEAD; mkfifo .git/FETCH_HEAD; echo 1 >made; {DONE}"
    done = run(repository, body, "--json", scm={"command": "git", "tasks": ["commit"]})
    assert repository.git("status", "--porcelain", "made") == "", done.out
    assert out.read_text() == ""
    assert "logs/HEAD was changed" in notices(done) and "FETCH_HEAD was changed" in notices(done)


def test_the_git_directory_cannot_be_replaced(repository: Project) -> None:
    """This holds for a plain checkout, for the file that points to a worktree's git directory, and for its
    content."""
    evil = "git init -q evil; git -C evil config core.fsmonitor 'touch OUT; false'; mv .git gone; rm -f .git;"
    evil += " echo 'gitdir: evil/.git' >.git"
    out, tree = repository.path.parent / "escaped", repository.path.parent / "tree"
    done = run(repository, f"{evil.replace('OUT', str(out))}; {DONE}", "--json")
    repository.git("status")
    assert (done.code, out.exists(), (repository.path / "gone").exists()) == (0, False, False)
    repository.git("worktree", "add", "-q", str(tree))
    linked = replace(repository, path=tree)
    more = "echo $PWD/evil/.git >$(git rev-parse --git-dir)/commondir"
    done = run(linked, f"{evil.replace('OUT', str(out))}; {more}; {DONE}", "--json")
    linked.git("status")
    assert (done.code, out.exists()) == (0, False)
    assert "commondir was changed" in notices(done)


def test_a_prompt_file_replaced_by_a_link_is_not_read(repository: Project) -> None:
    """Otherwise Ralph would read a file that the agent cannot see, and put it into the prompt."""
    (repository.home.path.parent / "secret").write_text("honey")
    (repository.path / "PROMPT.md").write_text("first")
    body = f'echo "$1" >>said; ln -sf {repository.home.path.parent}/secret PROMPT.md'
    agent = repository.script("agent.sh", body)
    repository.settings(agent={"command": agent}, sandbox=SANDBOX)
    done = repository.run("run", "-f", "PROMPT.md", "-m", "2")
    assert (done.code, "it was not read" in done.out) == (2, True), done.err
    assert "first" in (repository.path / "said").read_text()
    assert "honey" not in (repository.path / "said").read_text()


def test_ralphs_own_settings_are_restored(repository: Project) -> None:
    """An agent cannot turn off the sandbox or add a guardrail for the next run, not even through a new file."""
    evil = """echo '{"sandbox": {"rung": "direct"}}'"""
    body = f"{evil} >.ralph/settings.json; {evil} >.ralph/settings.local.json; {DONE}"
    done = run(repository, body, "--json")
    assert json.loads((repository.path / ".ralph" / "settings.json").read_text())["sandbox"] == SANDBOX
    assert not (repository.path / ".ralph" / "settings.local.json").exists()
    assert notices(done).count("and restored") == 2


def test_changes_of_a_killed_iteration_are_undone_by_resume(repository: Project) -> None:
    """Files that could not be restored when ralph was killed are restored first when the run resumes."""
    identify(repository)
    body = "git config core.fsmonitor evil; touch planted; [ -e second ] || sleep 60"
    agent = repository.script("agent.sh", f"{body}; {DONE}")
    repository.settings(agent={"command": agent}, sandbox=SANDBOX)
    process = repository.start("run", "-p", "x")
    wait_until((repository.path / "planted").exists)
    process.kill()
    process.communicate()
    assert repository.git("config", "core.fsmonitor").strip() == "evil"
    repository.script("agent.sh", DONE)
    done = repository.run("resume", "--json")
    assert done.code == 0 and "and restored" in notices(done)
    assert "fsmonitor" not in (repository.path / ".git" / "config").read_text()
