"""Docker Sandbox against a fake CLI: its command lines, its faults, and how files get in and out (S5)."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import wait_until
from ralph.core.model import Ended, Network
from ralph.errors import RalphError
from ralph.sandbox import docker_sandbox
from ralph.sandbox.base import Boundary, Mounts, WrappedCommand
from ralph.sandbox.docker_sandbox import Cli, DockerSandbox, prepare_login, sandbox_name
from sandbox.engine_support import Bench, faked, golden, lives

pytestmark = pytest.mark.slow  # each test is a dozen processes of a fake

BACKEND = DockerSandbox(settle=0.01)
SETUP = Path(docker_sandbox.__file__).parents[1] / "plugin" / "sandbox" / "setup.sh"
DESKTOP = Cli(("docker", "sandbox"), is_sbx=False)
SBX = Cli(("sbx",), is_sbx=True)


@pytest.fixture(params=["docker", "sbx"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with faked(tmp_path, monkeypatch, request.param) as bench:
        yield bench


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with faked(tmp_path, monkeypatch, "docker") as bench:
        yield bench


def boundary(bench: Bench, **more: object) -> Boundary:
    return Boundary("run-1", str(bench.state), (str(bench.work),), **more)  # type: ignore[arg-type]


def verbs(bench: Bench) -> list[str]:
    """Return the subcommands that the CLI received, without read-only ones."""
    words = [line[2:] if line[:2] == ["docker", "sandbox"] else line[1:] for line in bench.log()]
    quiet = ("version", "ls")
    return [_verb(each) for each in words if each[0] not in quiet and "--help" not in each]


def _verb(words: list[str]) -> str:
    for kind in ("setup.sh", "signal", "write"):
        if words[0] == "exec" and kind in words:
            return kind.removesuffix(".sh")
    return words[0]


# ---- command lines ----


@pytest.mark.parametrize("network", [Network.OPEN, Network.OFF])
def test_the_command_lines_are_the_golden_ones(bench: Bench, network: Network) -> None:
    """The first run creates a sandbox, and the second starts the same one again."""
    limited = boundary(bench, network=network, memory_mb=2048, read_only=("/usr/share/doc",))
    for _ in range(2):
        with BACKEND.opened(limited, bench.run, bench.tell) as machine:
            bench.step(machine, "/opt/bin/echo", "-p", "a b", TERM="xterm")
    name = f"{bench.log()[0][0]}-sandbox-{network}"
    places = {"tmp": str(bench.work.parent), "pid": f"-{os.getpid()}-", "plugin": str(SETUP.parents[1])}
    told = {"setup": shlex.quote(docker_sandbox._SETUP), "signal": shlex.quote(docker_sandbox._SIGNAL)}
    sandbox = sandbox_name(SBX if name.startswith("sbx") else DESKTOP, limited)
    golden(name, bench.log(), sandbox=sandbox, **places, **told)


@pytest.mark.parametrize(
    ("path", "desktop", "sbx"),
    [
        ("/work/my project", "ralph-_work_my_project", "ralph--work-my-project"),
        ("/Users/é/a.b-c_d", "ralph-_Users___a.b-c_d", "ralph--Users---a.b-c-d"),
    ],
)
def test_a_sandbox_is_named_after_its_project(path: str, desktop: str, sbx: str) -> None:
    """sbx does not accept underscores."""
    project = Boundary("r", "/state", (path,))
    assert (sandbox_name(DESKTOP, project), sandbox_name(SBX, project)) == (desktop, sbx)


def test_another_agent_gets_another_sandbox() -> None:
    """Each agent has its own image, so each has its own sandbox."""
    here = Boundary("run-1", "/state", ("/work",))
    assert [sandbox_name(SBX, here, agent) for agent in ("claude", "codex")] == [
        "ralph--work",
        "ralph--work-codex",
    ]


@pytest.mark.parametrize(("agent", "image"), [("codex", "codex"), ("claude", "claude"), ("custom", "claude")])
def test_the_image_is_that_of_the_agent(bench: Bench, agent: str, image: str) -> None:
    """Docker has images for some agents; all others use the one for Claude Code."""
    with DockerSandbox(agent, settle=0.01).opened(boundary(bench), bench.run, bench.tell):
        assert [each["agent"] for each in bench.sandboxes().values()] == [image]


def test_what_cannot_be_hidden_is_an_error(bench: Bench) -> None:
    """A workspace is always visible as a whole; other paths are not visible at all."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        bench.step(machine, "true", mounts=bench.mounts(hidden=("/elsewhere",)))
        with pytest.raises(RalphError, match="cannot be hidden"):
            bench.step(machine, "true", mounts=bench.mounts(hidden=(str(bench.work / ".env"),)))


def test_a_run_without_network_gets_another_sandbox() -> None:
    """Its network rules therefore do not affect the next run."""
    every = [Boundary("r", "/state", ("/a",), network, hosts) for network, hosts in NETWORKS]
    assert len({sandbox_name(DESKTOP, each) for each in every}) == len(every)


NETWORKS = [
    (Network.OPEN, ()),
    (Network.OFF, ()),
    (Network.ALLOW_LIST, ("a.org",)),
    (Network.ALLOW_LIST, ("a.org", "b.org")),
]


def test_an_allow_list_is_passed_to_the_proxy_of_the_sandbox(desktop: Bench) -> None:
    """Everything else is denied."""
    with BACKEND.opened(
        boundary(desktop, network=Network.ALLOW_LIST, hosts=("a.org", "b.org:443")), desktop.run, desktop.tell
    ):
        pass
    (words,) = desktop.said("docker", "sandbox", "network", "proxy")
    assert words[5:] == ["--policy", "deny", "--allow-host", "a.org", "--allow-host", "b.org:443"]


def test_sbx_has_no_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy applies to all sandboxes, so it cannot isolate one."""
    with (
        faked(tmp_path, monkeypatch, "sbx") as bench,
        pytest.raises(RalphError, match="allow-list"),
        BACKEND.opened(boundary(bench, network=Network.ALLOW_LIST), bench.run, bench.tell),
    ):
        pass


def test_unsupported_limits_are_reported(desktop: Bench) -> None:
    """A notice says which limits have no effect."""
    with BACKEND.opened(boundary(desktop, memory_mb=100, processes=5), desktop.run, desktop.tell):
        pass
    assert [text for text in desktop.told if "ignores sandbox.processes" in text]


# ---- the login ----


@pytest.mark.parametrize(
    ("before", "aside"), [(None, None), ("", None), ("{broken", "{broken"), ('{"a": 1}', None)]
)
def test_the_login_directory_has_json(tmp_path: Path, before: str | None, aside: str | None) -> None:
    """Claude does not start with an empty file; existing content stays."""
    auth = tmp_path / "auth"
    auth.mkdir()
    if before is not None:
        (auth / ".claude.json").write_text(before)
    prepare_login(str(auth))
    assert (auth / ".claude.json").read_text().strip() == (before if before == '{"a": 1}' else "{}")
    assert (auth / ".claude").is_dir()
    broken = auth / ".claude.json.broken"
    assert (broken.read_text() if broken.exists() else None) == aside


@pytest.mark.parametrize("by", ["argument", "stdin"])
def test_setup_links_the_login_and_sets_the_git_identity(tmp_path: Path, by: str) -> None:
    """Running it twice does no harm, and existing files are replaced."""
    home, state = tmp_path / "home", tmp_path / "state"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text("{}")
    state.mkdir()
    (state / ".claude.json").touch()
    text = SETUP.read_text()
    words = ["bash", "-c", text, "setup.sh"] if by == "argument" else ["bash", "-s", "--"]
    for _ in range(2):
        subprocess.run([*words, state, "agent", home], input=text, text=True, check=True)
    assert (home / ".claude").readlink() == state / ".claude"
    assert (home / ".claude.json").readlink() == state / ".claude.json"
    assert (state / ".claude.json").read_text() == "{}\n"
    config = (home / ".gitconfig").read_text()
    assert "ralph@localhost" in config and "Ralph Loop" in config


def test_setup_fails_where_the_login_is_not_mounted(tmp_path: Path) -> None:
    """Otherwise Claude would ask for a login in every iteration."""
    done = subprocess.run(["bash", SETUP, tmp_path / "nowhere"], capture_output=True, text=True)
    assert (done.returncode, "is not in this sandbox" in done.stderr) == (3, True)


# ---- commands ----


def test_streams_and_exit_code_pass_through(bench: Bench) -> None:
    """stdin, both outputs, variables and the exit code pass through, and no value is on a command line."""
    prompt = bench.work / "prompt"
    prompt.write_text("from stdin")
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        exit, heard = bench.step(
            machine,
            "sh",
            "-c",
            'cat; echo "$KEY" >&2; pwd; exit 7',
            stdin=prompt,
            KEY="sk-secret",
            HTTPS_PROXY="x",
        )
        _, nothing = bench.step(machine, "sh", "-c", 'echo "$HTTPS_PROXY$USER$HOME"', USER="me")
    assert (exit.code, heard.out, heard.err) == (7, f"from stdin{bench.work}\n".encode(), b"sk-secret\n")
    assert nothing.out == b"\n"
    assert "sk-secret" not in str(bench.log())
    assert list(bench.state.glob("*.env")) == []


def test_a_program_of_this_machine_is_looked_up_by_name(bench: Bench) -> None:
    """A program in the worktree keeps its path."""
    own = bench.work / "own.sh"
    own.write_text("#!/bin/sh\necho own\n")
    own.chmod(0o755)
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        assert bench.step(machine, "/opt/elsewhere/echo", "hello")[1].out == b"hello\n"
        assert bench.step(machine, str(own))[1].out == b"own\n"


def test_a_separate_directory_is_created_inside(bench: Bench) -> None:
    """A directory with content is missing inside, so it is an error, not an empty directory."""
    own = bench.state / "own"
    own.mkdir()
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        mounts = Mounts(str(own), (str(own),))
        assert bench.step(machine, "pwd", mounts=mounts)[1].out == f"{own}\n".encode()
        (own / "needed").touch()
        with pytest.raises(RalphError, match="is needed, but is not part of the sandbox"):
            machine.wrap(["pwd"], {}, mounts)


def test_term_reaches_the_inner_process_and_all_that_it_started(bench: Bench) -> None:
    """The client does not forward it, so the processes are found by their mark."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        script = "trap 'echo heard > heard; exit 3' TERM; echo $$ > pid; while :; do sleep 0.05; done"
        exit, _ = bench.step(
            machine, "sh", "-c", script, watch=lambda seconds, idle: Ended.TIMEOUT if seconds > 1 else None
        )
    assert (bench.work / "heard").read_text() == "heard\n"
    assert exit.ended is Ended.TIMEOUT


@pytest.mark.parametrize("script", ["trap '' TERM; {}", "setsid sh -c '{}' & sleep 0.3"])
def test_leftovers_inside_are_killed(desktop: Bench, script: str) -> None:
    """Even those that ignore TERM or run in their own session."""
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        forever = "echo $$ > pid; while :; do sleep 0.05; done"
        desktop.step(
            machine,
            *("sh", "-c", script.format(forever)),
            watch=lambda seconds, idle: Ended.TIMEOUT if seconds > 1 else None,
        )
        pid = int((desktop.work / "pid").read_text())
        wait_until(lambda: not lives(pid))


def test_an_empty_answer_is_reported_as_empty(bench: Bench) -> None:
    """Exit code 0 without output: the driver of the run tries again."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        exit, heard = bench.step(machine, "true")
    assert (exit.code, heard.out) == (0, b"")


def test_parallel_commands_kill_only_their_own_leftovers(bench: Bench) -> None:
    """Each command has its own mark, by which its processes are found."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        mine = machine.wrap(["true"], {}, bench.mounts())
        exit, _ = bench.step(machine, "true")
        assert not bench_has(bench, mine)
        machine.after(exit, mine)
        assert bench_has(bench, mine)


def bench_has(bench: Bench, wrapped: WrappedCommand) -> bool:
    """Whether processes with the mark of this command were searched for inside."""
    return any(f"{docker_sandbox.MARK}={wrapped.mark}" in line for line in bench.log())


# ---- files ----


def test_files_have_time_to_settle_after_a_command(desktop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two to three seconds pass before the task list is read; sbx copies nothing."""
    slept: list[float] = []
    monkeypatch.setattr("ralph.sandbox.docker_sandbox.time.sleep", slept.append)
    with DockerSandbox().opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.step(machine, "true")
    assert slept == [2.5]


def test_changes_made_outside_are_written_through_exec(desktop: Bench) -> None:
    """Files that were copied before are not copied again; new ones are."""
    tasks, old = desktop.work / "tasks.json", desktop.work / "old"
    tasks.write_text("{}")
    old.touch()
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.step(machine, "true")
        desktop.forget()
        tasks.write_text('{"restored": true}')
        old.unlink()
        (desktop.work / "new").touch()
        desktop.step(machine, "true")
        desktop.step(machine, "true")
    assert verbs(desktop) == ["write", "exec", "signal", "exec", "signal", "stop"]
    (words,) = [line for line in desktop.log() if "write" in line]
    assert words[words.index("write") :][1:3] == ["1", str(old)]
    assert tasks.read_text() == '{"restored": true}'


def test_after_a_pause_the_sandbox_is_stopped_and_started(
    desktop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who edits files while a run is paused need not know about the copying."""
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.step(machine, "true")
        desktop.forget()
        monkeypatch.setattr(docker_sandbox, "PAUSE_SECONDS", -1.0)
        (desktop.work / "edited").touch()
        desktop.step(machine, "true")
    assert verbs(desktop) == ["stop", "run", "exec", "signal", "stop"]
    assert desktop.said("docker", "sandbox", "run")[0][4:] == ["--", "--version"]


def test_too_much_for_exec_is_copied_by_a_restart(desktop: Bench) -> None:
    """One command line holds at most a megabyte."""
    big = desktop.work / "big"
    big.write_bytes(os.urandom(10))
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.forget()
        big.write_bytes(os.urandom(1 << 20))
        desktop.step(machine, "true")
    assert verbs(desktop) == ["stop", "run", "exec", "signal", "stop"]


def test_sbx_passes_files_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written and nothing is restarted."""
    with (
        faked(tmp_path, monkeypatch, "sbx") as bench,
        BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine,
    ):
        bench.forget()
        (bench.work / "tasks.json").write_text("{}")
        bench.step(machine, "true")
        assert verbs(bench) == ["exec", "signal"]


def test_a_file_named_on_the_command_line_is_copied_in(desktop: Bench) -> None:
    """Ralph keeps it where the sandbox does not see it."""
    file = desktop.state / "settings.json"
    file.write_text("{}")
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.forget()
        desktop.step(machine, "true", str(file), mounts=desktop.mounts(read_only=(str(file),)))
    assert verbs(desktop)[0] == "write"


# ---- existing sandboxes ----


def test_an_existing_sandbox_is_reused(bench: Bench) -> None:
    """It is stopped, started and set up again, but not created a second time."""
    for _ in range(3):
        with BACKEND.opened(boundary(bench), bench.run, bench.tell):
            pass
    assert verbs(bench).count("create") == 1
    assert verbs(bench).count("setup") == 3
    assert [row["status"] for row in bench.sandboxes().values()] == ["stopped"]


def test_a_sandbox_that_lacks_a_workspace_is_recreated(bench: Bench) -> None:
    """Its workspaces are fixed when it is created."""
    more = bench.work.parent / "more"
    more.mkdir()
    with BACKEND.opened(boundary(bench), bench.run, bench.tell):
        pass
    wider = Boundary("run-2", str(bench.state), (str(bench.work), str(more)))
    with BACKEND.opened(wider, bench.run, bench.tell):
        pass
    assert verbs(bench).count("create") == 2 and verbs(bench).count("rm") == 1


def test_a_sandbox_of_another_directory_is_not_touched(bench: Bench) -> None:
    """Two paths can give the same name."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell):
        pass
    (name,) = bench.sandboxes()
    (bench.place / "sandboxes" / name).write_text('{"status": "running", "workspaces": ["/elsewhere"]}')
    bench.forget()
    with (
        pytest.raises(RalphError, match="another directory"),
        BACKEND.opened(boundary(bench), bench.run, bench.tell),
    ):
        pass
    assert verbs(bench) == []


def test_a_sandbox_in_use_is_refused(bench: Bench) -> None:
    """Two runs would kill each other's commands."""
    with (
        BACKEND.opened(boundary(bench), bench.run, bench.tell),
        pytest.raises(RalphError, match="Another ralph"),
        BACKEND.opened(boundary(bench), bench.run, bench.tell),
    ):
        pass


def test_sandboxes_of_a_killed_ralph_are_stopped(bench: Bench) -> None:
    """This applies to any project; sandboxes in use and those of others are left alone."""
    locks = Path(f"{os.environ['HOME']}/{docker_sandbox.AUTH}.locks")
    locks.mkdir()
    for name in ("ralph-dead", "ralph-used", "ralph-foreign"):
        (bench.place / "sandboxes" / name).write_text('{"status": "running", "workspaces": ["/x"]}')
    (locks / "ralph-dead").touch()
    with open(locks / "ralph-used", "w") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        with BACKEND.opened(boundary(bench), bench.run, bench.tell):
            pass
    states = {name: row["status"] for name, row in bench.sandboxes().items() if "work" not in name}
    assert states == {"ralph-dead": "stopped", "ralph-used": "running", "ralph-foreign": "running"}


# ---- faults ----


def test_without_any_cli_the_problem_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem names both programs."""
    with faked(tmp_path, monkeypatch) as bench:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        assert BACKEND.problem(bench.run) == "sbx is not installed; docker is not installed"


DETECTION = [
    ("version", "hang", "does not respond"),
    ("version", "crash", "something is wrong"),
    ("version", "silent", "exit code 1"),
    ("exec --help", "nothing", "too old"),
    ("ls", "garbage", "Cannot parse"),
    ("exec --help", "hang", "too old"),
    ("exec --help", "garbage", "too old"),
    ("exec --help", "crash", "too old"),
    ("ls", "hang", "does not respond"),
    ("ls", "crash", "something is wrong"),
    ("ls", "silent", "exit code 1"),
    ("ls", "nothing", "Cannot parse"),
]


@pytest.mark.parametrize(("at", "what", "words"), DETECTION)
def test_a_cli_that_does_not_work_is_a_problem(bench: Bench, at: str, what: str, words: str) -> None:
    """The problem is reported in time, and the run does not start."""
    _fault(bench, at, what, 2)
    assert words in BACKEND.problem(bench.run)
    with (
        pytest.raises(RalphError, match="cannot be used"),
        BACKEND.opened(boundary(bench), bench.run, bench.tell),
    ):
        pass
    assert verbs(bench) == []


def test_an_unreadable_version_does_not_matter(bench: Bench) -> None:
    """Only the subcommands that it supports count."""
    _fault(bench, "version", "garbage", 1)
    assert BACKEND.problem(bench.run) == ""


def test_an_empty_list_may_be_null(desktop: Bench) -> None:
    """An empty list can be printed as null."""
    _fault(desktop, "ls", "null", 1)
    assert BACKEND.problem(desktop.run) == ""


def test_the_older_cli_is_used_if_the_newer_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbx can be installed without being signed in."""
    with faked(tmp_path, monkeypatch, "sbx", "docker") as bench:
        bench.fault("sbx ls", "crash", 9)
        with BACKEND.opened(boundary(bench), bench.run, bench.tell):
            pass
        assert bench.said("docker", "sandbox", "create") and not bench.said("sbx", "create")


OPENING = [
    ("create", "crash", "something is wrong", []),
    ("create", "half", "Cannot create the sandbox", ["rm"]),
    ("exec -u root", "crash", "`exec` failed", ["setup"]),
    ("create", "hang", "it does not respond", []),
    ("create", "silent", "exit code 1", []),
    ("create", "nothing", "does not exist afterwards", []),
    ("create", "garbage", "does not exist afterwards", []),
    ("exec -u root", "hang", "`exec` failed", ["setup"]),
    ("exec -u root", "silent", "`exec` failed", ["setup"]),
]


@pytest.mark.parametrize(("at", "what", "words", "then"), OPENING)
def test_a_sandbox_that_cannot_be_created_is_an_error(
    bench: Bench, at: str, what: str, words: str, then: list[str]
) -> None:
    """The run does not start; a half-created sandbox is removed, or set up by the next run."""
    _fault(bench, at, what, 1)
    with pytest.raises(RalphError) as raised, BACKEND.opened(boundary(bench), bench.run, bench.tell):
        pass
    words = words.replace("`exec`", f"`{bench.log()[0][0].replace('docker', 'docker sandbox')} exec`")
    assert words in raised.value.message
    assert verbs(bench) == ["create", *then]
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        assert bench.step(machine, "echo", "works")[1].out == b"works\n"


@pytest.mark.parametrize("what", ["crash", "hang", "silent"])
@pytest.mark.parametrize("at", ["stop", "run"])
def test_a_sandbox_that_cannot_be_restarted_is_an_error(desktop: Bench, at: str, what: str) -> None:
    """The run does not start, because the agent would see old files."""
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell):
        pass
    _fault(desktop, at, what, 1)
    with (
        pytest.raises(RalphError, match=f"sandbox {at}` failed"),
        BACKEND.opened(boundary(desktop), desktop.run, desktop.tell),
    ):
        pass


@pytest.mark.parametrize("what", ["hang", "crash"])
def test_unreachable_leftovers_are_killed_with_the_machine(bench: Bench, what: str) -> None:
    """It is stopped, and started again for the next command."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        _fault(bench, "exec -u root", what, 1)
        bench.step(machine, "true")
        assert [row["status"] for row in bench.sandboxes().values()] == ["stopped"]
        assert bench.step(machine, "echo", "again")[1].out == b"again\n"


@pytest.mark.parametrize("what", ["hang", "crash"])
def test_a_machine_that_does_not_stop_is_reported(bench: Bench, what: str) -> None:
    """The run still finishes."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell):
        _fault(bench, "stop", what, 1)
    assert len(bench.told) == 2 and "It may still be running" in bench.told[1]


@pytest.mark.parametrize("what", ["hang", "crash"])
def test_a_file_that_cannot_be_written_through_exec_is_copied_by_a_restart(desktop: Bench, what: str) -> None:
    """A restart copies it, so that it is not missing inside."""
    (desktop.work / "tasks.json").write_text("{}")
    with BACKEND.opened(boundary(desktop), desktop.run, desktop.tell) as machine:
        desktop.forget()
        name = next(iter(desktop.sandboxes()))
        _fault(desktop, f"exec {name}", what, 1)
        (desktop.work / "tasks.json").write_text("{ }")
        desktop.step(machine, "true")
    assert verbs(desktop) == ["write", "stop", "run", "exec", "signal", "stop"]


@pytest.mark.parametrize("what", ["crash", "silent", "nothing", "garbage"])
def test_a_failed_exec_has_the_exit_code_of_the_cli(bench: Bench, what: str) -> None:
    """An agent that could not be started does not mean that the sandbox is gone."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as machine:
        _fault(bench, "exec -i", what, 1)
        exit, heard = bench.step(machine, "echo", "never")
    assert exit.code == (1 if what in ("crash", "silent") else 0)
    assert b"never" not in heard.out


def test_a_network_that_cannot_be_closed_is_an_error(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The run does not start if its network could stay open."""
    for at in ("network", "policy"):
        _fault(bench, at, "crash", 1)
    off = boundary(bench, network=Network.OFF)
    with pytest.raises(RalphError, match="failed for the"), BACKEND.opened(off, bench.run, bench.tell):
        pass
    assert verbs(bench)[-1] == {"docker": "network", "sbx": "policy"}[request.node.callspec.params["bench"]]


def test_a_path_with_a_colon_is_refused(bench: Bench) -> None:
    """It would be parsed as a mode."""
    odd = Boundary("r", str(bench.state), ("/a:b",))
    with pytest.raises(RalphError, match="colon"), BACKEND.opened(odd, bench.run, bench.tell):
        pass


def _fault(bench: Bench, at: str, what: str, times: int) -> None:
    names = [file.name for file in (bench.place.parent / "bin").iterdir()]
    for name in names:
        bench.fault(f"{name} {at}", what, times)
