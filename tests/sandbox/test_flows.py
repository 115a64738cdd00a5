"""The other flows inside bubblewrap: tasks in their worktrees, a supervised command, a PRD loop."""

from __future__ import annotations

import json

import pytest

from conftest import Project
from prd_support import make_loop
from sandbox_support import BUBBLEWRAP
from supervise_support import LEAVES_DONE
from supervise_support import Task as Supervised
from work_support import HONEST, make_site, task

pytestmark = BUBBLEWRAP

SANDBOX = {"rung": "bubblewrap"}


@pytest.mark.slow
def test_a_task_is_worked_on_in_its_worktree_alone(project: Project) -> None:
    """Roles, judge, checks, setup and merge work; the main checkout, its hooks, its config and the store are
    safe."""
    site = make_site(project)
    main, store = project.path, project.home.path
    config = (main / ".git" / "config").read_bytes()
    evil = (
        f"echo x >{main}/evil; echo x >{main}/.git/hooks/post-merge; echo x >>{main}/.git/config;"
        f" rm -rf {main}/.git/refs/ralph {main}/.git/hooks; echo x >{store}/ralph.db; env >environment"
    )
    site.agents(
        f"{evil}\n{HONEST}",
        sandbox=SANDBOX,
        ralph={"setup": f"test -n $RALPH_SANDBOX; echo x >{main}/evil; true"},
    )
    site.add(task())
    done = site.work()
    assert done.code == 0, done.err
    assert site.is_fixed()
    assert not (main / "evil").exists() and not (main / ".git" / "hooks" / "post-merge").exists()
    assert (main / ".git" / "config").read_bytes() == config
    assert "RALPH_SANDBOX=bubblewrap" in project.git("show", "main:environment")


@pytest.mark.slow
def test_the_users_hooks_do_not_run_what_an_agent_wrote(project: Project) -> None:
    """Commit and merge hooks that run the project's code are skipped outside, with a notice."""
    site = make_site(project)
    out = project.path.parent / "escaped"
    for name in ("pre-commit", "post-merge", "post-checkout"):
        hook = project.path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nsh lint.sh\n")
        hook.chmod(0o755)
    site.agents(f"echo 'touch {out}' >lint.sh\n{HONEST}", sandbox=SANDBOX)
    site.add(task())
    done = site.work()
    assert done.code == 0, done.err
    assert site.is_fixed() and not out.exists()
    assert "Git hooks are disabled" in done.err


def test_a_supervised_command_leaves_done(project: Project) -> None:
    """Its task folder is writable wherever it is; exit codes and attempts are as outside."""
    supervised = Supervised(project)
    body = f'test "$RALPH_SANDBOX" = bubblewrap || exit 9; test "$RALPH_ATTEMPT" = 2 || exit 1; {LEAVES_DONE}'
    done = supervised.run(body, "--sandbox", "--json")
    assert done.code == 0, done.err
    assert supervised.done.exists()
    exits = [line["ran"]["exit"] for line in done.lines() if line["event"] == "agent_ended"]
    assert exits == [1, 0]


def test_a_task_folder_outside_of_the_project(project: Project) -> None:
    """It is the only other writable directory."""
    folder = project.path.parent / "elsewhere" / "job"
    folder.mkdir(parents=True)
    script = project.script("agent.sh", f"touch {folder.parent}/sibling; {LEAVES_DONE}")
    done = project.run("supervise", str(folder), "--sandbox", "--", script)
    assert done.code == 0 and (folder / "DONE").exists() and not (folder.parent / "sibling").exists()


def test_a_prd_loop_uses_the_best_backend_by_default(project: Project) -> None:
    """The marker tells the hooks, everything is allowed, and the stories are approved."""
    loop = make_loop(project)
    body = "(PROJECT / 'marker').write_text((PROJECT / '.ralph-active').read_text())\nplay()"
    body = body.replace("PROJECT", "pathlib.Path.cwd()")
    loop.agent(f"import pathlib\n{body}", sandbox={"writable": [str(loop.outside / "calls")]})
    (loop.outside / "calls").mkdir(exist_ok=True)
    done = loop.run("--json")
    assert done.code == 0, done.err
    begun = next(line for line in done.lines() if line["event"] == "run_started")
    assert begun["sandbox"] == "bubblewrap"
    assert json.loads((project.path / "marker").read_text())["mode"] == "sandbox"


@pytest.mark.parametrize("option", ["--no-sandbox", "--sandbox"])
def test_a_prd_loop_follows_the_sandbox_options(project: Project, option: str) -> None:
    """With `--no-sandbox` it runs directly; a required sandbox that is missing is an error."""
    loop = make_loop(project)
    loop.agent(sandbox={"writable": [str(loop.outside / "calls")]})
    (loop.outside / "calls").mkdir(exist_ok=True)
    done = loop.run("--json", option)
    backend = next(line for line in done.lines() if line["event"] == "run_started")["sandbox"]
    assert (done.code, backend) == (0, "direct" if option == "--no-sandbox" else "bubblewrap"), done.err
