"""A container for every command: the engine's command lines, and what is left after a kill. The engine is
fake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import some, some_rows, wait_until
from faults.fault_support import REPEATED, RUNS
from ralph.core.model import Ended, Network
from ralph.errors import RalphError
from ralph.process.client import Wakeup, Warden
from ralph.sandbox import container
from ralph.sandbox.base import Boundary, Mounts, Sandbox
from ralph.sandbox.container import Container
from ralph.sandbox.registry import NAMES
from sandbox.engine_support import DRIVER, Bench, faked, golden, kill_tree, lives

IMAGE = "example/image:1"
BACKEND = Container(IMAGE)


@pytest.fixture(params=some(["podman", "docker"], 1))
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with faked(tmp_path, monkeypatch, request.param) as bench:
        yield bench


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with faked(tmp_path, monkeypatch, "docker") as bench:
        yield bench


def boundary(bench: Bench, **more: object) -> Boundary:
    return Boundary("run-1", str(bench.state), (str(bench.work),), **more)  # type: ignore[arg-type]


def test_it_comes_after_the_better_backends() -> None:
    """Backends are tried in this order, the best one first."""
    assert NAMES == ("docker-sandbox", "bubblewrap", "container", "direct")


def test_a_command_line_is_the_golden_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has labels, limits, mounts and the names of variables, but no values."""
    monkeypatch.setattr(container, "owner", lambda: "1000@machine")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    hidden, read, copy = bench.work / "hidden", bench.state / "read", bench.state / "copy"
    for each in (hidden, read):
        each.mkdir()
    copy.write_text("{}")
    target = str(Path(os.environ["HOME"]) / ".claude.json")
    mounts = bench.mounts(
        read_only=(str(read),), hidden=(str(hidden), "/nowhere"), copied=((str(copy), target),)
    )
    limits = boundary(bench, network=Network.OFF, memory_mb=512, processes=64)
    with BACKEND.opened(limits, bench.run, bench.tell) as box:
        exit, _ = bench.step(
            box, "/opt/claude/bin/true", "-p", "a b", mounts=mounts, ANTHROPIC_API_KEY="sk-secret\nline"
        )
    assert exit.code == 0
    assert "sk-secret" not in str(bench.log())
    places = {"tmp": str(bench.work.parent), "pid": f"-{os.getpid()}-"}
    golden(f"container-{bench.log()[0][0]}", bench.log(), **places)


def test_streams_and_exit_code_pass_through(bench: Bench) -> None:
    """stdin, both outputs, variables and the exit code pass through."""
    prompt = bench.work / "prompt"
    prompt.write_text("from stdin")
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as box:
        script = 'cat; echo "$SECRET" >&2; pwd; exit 7'
        exit, heard = bench.step(box, "sh", "-c", script, stdin=prompt, SECRET="two\nlines")
    assert (exit.code, heard.out, heard.err) == (7, f"from stdin{bench.work}\n".encode(), b"two\nlines\n")
    assert bench.containers() == []


def test_a_death_by_signal_is_reported(bench: Bench) -> None:
    """128 + 9 is signal 9."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as box:
        exit, _ = bench.step(box, "sh", "-c", "kill -9 $$")
    assert (exit.code, exit.signal) == (None, 9)


def test_term_reaches_the_inner_process(bench: Bench) -> None:
    """The client forwards it, and the command exits as it likes."""
    with BACKEND.opened(boundary(bench), bench.run, bench.tell) as box:
        script = "trap 'echo heard; exit 3' TERM; echo up; while :; do sleep 0.05; done"
        exit, heard = bench.step(
            box, "sh", "-c", script, watch=lambda seconds, idle: Ended.TIMEOUT if seconds > 1 else None
        )
    assert heard.out == b"up\nheard\n"
    assert exit.ended is Ended.TIMEOUT
    assert bench.containers() == []


@pytest.mark.slow
def test_a_command_that_ignores_term_is_killed_with_its_container(docker: Bench) -> None:
    """KILL kills only the client; `rm --force` kills what is left inside."""
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done"
        exit, _ = docker.step(
            box, "sh", "-c", script, watch=lambda seconds, idle: Ended.TIMEOUT if seconds > 1 else None
        )
        assert exit.signal == signal.SIGKILL
        assert docker.containers() == []
        wait_until(lambda: not lives(int((docker.work / "pid").read_text())))


@pytest.mark.slow
@REPEATED
def test_kills_of_the_client_leave_nothing(docker: Bench) -> None:
    """P13: the client is killed at some moment, and the container is found and removed."""
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        for number in range(RUNS):
            file = docker.work / f"{number}.pid"
            script = f"echo $$ > {file}; exec sleep 60"
            killer = threading.Thread(target=_kill_client, args=(docker, file, number))
            killer.start()
            docker.step(box, "sh", "-c", script)
            killer.join()
            assert docker.containers() == []
    pids = [int(file.read_text()) for file in docker.work.glob("*.pid") if file.read_text()]
    wait_until(lambda: not any(lives(pid) for pid in pids))


@pytest.mark.slow
@REPEATED
def test_containers_of_a_killed_ralph_are_removed_at_the_next_start(docker: Bench) -> None:
    """Ralph and its warden are killed repeatedly, and no container is left once the next run has started."""
    for number in range(RUNS):
        state = docker.state / str(number)
        state.mkdir()
        (docker.work / "pid").unlink(missing_ok=True)
        ralph = subprocess.Popen([sys.executable, "-c", DRIVER, state, docker.work, IMAGE, "docker"])
        wait_until(lambda: (docker.work / "pid").exists() and (docker.work / "pid").read_text())
        kill_tree(ralph.pid)
        ralph.wait()
        assert [each["labels"][container.RUN] for each in docker.containers()] == [str(number)]
    with BACKEND.opened(boundary(docker), docker.run, docker.tell):
        assert docker.containers() == []


def test_containers_of_a_live_run_are_left_alone(docker: Bench) -> None:
    """A run whose lock is held is alive."""
    other = docker.state / "other"
    other.mkdir()
    with BACKEND.opened(Boundary("run-2", str(other), (str(docker.work),)), docker.run, docker.tell) as box:
        waiting = threading.Thread(target=_own_step, args=(docker, box))
        waiting.start()
        wait_until(docker.containers)
        with BACKEND.opened(boundary(docker), docker.run, docker.tell):
            assert [each["labels"][container.RUN] for each in docker.containers()] == ["run-2"]
        assert len(docker.containers()) == 1
        (docker.work / "go").touch()
        waiting.join()


@pytest.mark.slow
def test_containers_of_other_people_are_left_alone(docker: Bench) -> None:
    """An engine can serve several machines, and the label names the owner."""
    labels = {container.OWNER: "0@elsewhere", container.STATE: "/gone", container.RUN: "run-1"}
    record = docker.place / "containers" / ("f" * 64)
    record.write_text(f'{{"name": "x", "pid": 0, "labels": {str(labels).replace(chr(39), chr(34))}}}')
    with BACKEND.opened(boundary(docker), docker.run, docker.tell):
        pass
    assert record.exists()


@pytest.mark.slow
def test_a_second_ralph_for_the_same_run_is_refused(docker: Bench) -> None:
    """It would remove the containers of the first."""
    with (
        BACKEND.opened(boundary(docker), docker.run, docker.tell),
        pytest.raises(RalphError, match="Another ralph"),
        BACKEND.opened(boundary(docker), docker.run, docker.tell),
    ):
        pass


@pytest.mark.slow
def test_parallel_commands_remove_only_their_own_container(docker: Bench) -> None:
    """Each thread has its own container, and removing one does not affect the other."""
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        waiting = threading.Thread(target=_own_step, args=(docker, box))
        waiting.start()
        wait_until(docker.containers)
        docker.step(box, "true")
        assert len(docker.containers()) == 1
        (docker.work / "go").touch()
        waiting.join()
    assert docker.containers() == []


@pytest.mark.parametrize(
    ("at", "what", "words"),
    some_rows(
        [
            ("docker --version", "crash", "something is wrong"),
            ("docker --version", "hang", "does not respond"),
            ("docker info", "crash", "something is wrong"),
            ("docker info", "hang", "does not respond"),
            ("docker info", "silent", "exit code 1"),
            ("docker image", "crash", "docker pull example/image:1"),
            ("docker image", "hang", "is missing"),
        ],
        3,
    ),
)
def test_an_engine_that_does_not_work_is_a_problem(docker: Bench, at: str, what: str, words: str) -> None:
    """The problem is reported, and nothing is started."""
    docker.fault(at, what, 2)
    assert words in BACKEND.problem(docker.run)
    with (
        pytest.raises(RalphError, match="Containers cannot be used"),
        BACKEND.opened(boundary(docker), docker.run, docker.tell),
    ):
        pass
    assert docker.said("docker", "run") == []


@pytest.mark.parametrize("what", some(["crash", "hang", "silent"], 1))
def test_a_run_does_not_start_if_leftovers_are_unknown(docker: Bench, what: str) -> None:
    """Running containers could be overlooked, so it is an error."""
    docker.fault("docker ps", what)
    with (
        pytest.raises(RalphError, match="cannot list"),
        BACKEND.opened(boundary(docker), docker.run, docker.tell),
    ):
        pass


@pytest.mark.slow
def test_a_container_that_cannot_be_removed_is_reported(docker: Bench) -> None:
    """The run continues, and the next one removes it."""
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        docker.fault("docker rm", "hang", 1)
        exit, _ = docker.step(box, "true")
    assert exit.code == 0
    assert ["Could not remove a container (it does not respond)" in text for text in docker.told] == [True]


@pytest.mark.slow
def test_garbage_about_an_image_or_containers_does_no_harm(docker: Bench) -> None:
    """Output that cannot be parsed is ignored."""
    docker.fault("docker image", "garbage")
    docker.fault("docker ps", "garbage")
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        exit, _ = docker.step(box, "true")
    assert exit.code == 0


def test_an_allow_list_goes_through_a_program_inside(docker: Bench) -> None:
    """There is no network but a socket, and python in the image forwards to it."""
    limited = boundary(docker, network=Network.ALLOW_LIST, hosts=("example.org",))
    with BACKEND.opened(limited, docker.run, docker.tell) as box:
        words = list(box.wrap(["claude", "-p"], {}, docker.mounts()).argv)
        assert words[words.index("--network") + 1] == "none"
        first = ["python3", "-I", "-S", "/run/ralph/inside.py", "0", "0", "/run/ralph/proxy.sock"]
        assert words[-10:] == [*first, "--", "claude", "-p"]


@pytest.mark.slow
def test_an_engine_that_cannot_start_a_container_is_a_problem(docker: Bench) -> None:
    """It is not used, although it responds and has the image."""
    docker.fault("docker run", "crash")
    assert "cannot start a container: error: something is wrong" in BACKEND.problem(docker.run)
    assert BACKEND.problem(docker.run) == ""


def test_an_image_without_python_has_no_allow_list(docker: Bench) -> None:
    """The error comes before the run starts."""
    docker.fault("docker run --rm --pull never --network none --entrypoint python3", "crash")
    limited = boundary(docker, network=Network.ALLOW_LIST)
    with pytest.raises(RalphError, match="has no python3"), BACKEND.opened(limited, docker.run, docker.tell):
        pass


def test_odd_paths_are_quoted(docker: Bench) -> None:
    """Commas and quotes do not end a mount option."""
    odd = docker.work / 'a,"b: c'
    odd.mkdir()
    with BACKEND.opened(boundary(docker), docker.run, docker.tell) as box:
        words = list(box.wrap(["true"], {}, Mounts(str(odd), (str(odd),))).argv)
    quoted = str(odd).replace('"', '""')
    assert f'type=bind,"source={quoted}","target={quoted}"' in words


def _kill_client(bench: Bench, file: Path, number: int) -> None:
    """Kill the client at once, or when the inner process is running."""
    name = f"-{number + 1}"
    clients = wait_until(lambda: _clients(bench, name), every=0.001)
    if number % 2:
        wait_until(lambda: file.exists() and file.read_text())
    for pid in clients:
        os.kill(pid, signal.SIGKILL)


def _clients(bench: Bench, name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            str(bench.place).encode() in words
            and any(w.endswith(name.encode()) for w in words)
            and b"run" in words
        ):
            found.append(int(path.parent.name))
    return found


def _own_step(bench: Bench, box: Sandbox) -> None:
    with Warden(Wakeup()) as warden:
        mine = Bench(bench.work, bench.state, bench.place, warden, bench.directory)
        mine.step(box, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
