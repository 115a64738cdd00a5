"""The container backend with a real engine: podman from the system's packages, and a small image.

`RALPH_TEST_ENGINE=docker` uses the docker at DOCKER_HOST instead.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Project, wait_until
from faults.fault_support import REPEATED, RUNS
from podman_support import ENGINE, IMAGE, with_image
from ralph.core.model import Ended, Network
from ralph.sandbox import container, outside
from ralph.sandbox.base import Boundary, Mounts
from ralph.sandbox.container import Container
from real.real_support import REAL
from sandbox.engine_support import DRIVER, Bench, benched, kill_tree, lives

pytestmark = REAL

BACKEND = Container(IMAGE)

ONCE = """
import sys, urllib.request, os
host = os.environ["HTTP_PROXY"].removeprefix("http://")
import socket
address, _, port = host.partition(":")
for target in sys.argv[1:]:
    with socket.create_connection((address, int(port))) as proxy:
        proxy.sendall(f"GET http://{target}/ HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
        print(proxy.makefile("rb").readline().split()[1].decode())
try:
    socket.create_connection((sys.argv[1].partition(":")[0], int(sys.argv[1].partition(":")[2])), 2)
except OSError as error:
    print("no way around")
"""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """The engine with the image; yields the podman configuration needed here."""
    with with_image(tmp_path_factory.mktemp("image")) as settings:
        yield settings


@pytest.fixture
def bench(tmp_path: Path, engine: Path | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if engine is not None:
        monkeypatch.setenv("CONTAINERS_CONF", str(engine))
    monkeypatch.setenv("PATH", outside.USUAL)
    monkeypatch.setattr(container, "ENGINES", (ENGINE,))
    with benched(tmp_path) as bench:
        yield bench
    assert _left(bench) == []


def boundary(bench: Bench, **more: object) -> Boundary:
    return Boundary(f"run-{os.getpid()}", str(bench.state), (str(bench.work),), **more)  # type: ignore[arg-type]


def _left(bench: Bench) -> list[str]:
    """All containers of this test, running or not."""
    state = f"label={container.STATE}={bench.state}"
    words = [ENGINE, "ps", "--all", "--quiet", "--filter", state]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_the_engine_has_no_problem(bench: Bench) -> None:
    """The engine works and has the image; for a missing image the problem says how to get it."""
    assert BACKEND.problem(bench.run) == ""
    assert f"{ENGINE} pull localhost/none:1" in Container("localhost/none:1").problem(bench.run)


def test_the_sandbox_denies_every_probe(bench: Bench) -> None:
    """Each probe is denied, the worktree is writable, and new files belong to the user."""
    read, secret = bench.state / "read", bench.work / "secret"
    read.mkdir()
    (read / "file").write_text("readable")
    secret.mkdir()
    (secret / "token").write_text("honey")
    outside = bench.state.parent / "outside"
    outside.write_text("honey")
    mounts = bench.mounts(read_only=(str(read),), hidden=(str(secret),))
    denied = [
        "echo x > /etc/probe",
        "echo x > /usr/probe",
        f"echo x > {read}/file",
        f"cat {outside}",
        f"cat {secret}/token",
        f"echo x > {secret}/new",
        "cat /etc/shadow",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sysrq-trigger",
        f"ls {bench.state.parent}/engine",
        "ls /var/run/docker.sock",
        "ls /run/podman/podman.sock",
        f"cat /proc/{os.getpid()}/environ",
        f"kill -0 {os.getpid()}",
        "cat /dev/sda /dev/vda",
        'test "$HONEY" = honey',
        "test -e /sys/class/net/eth0",
    ]
    lines = [f"({probe}) >/dev/null 2>&1 && echo 'allowed: {probe}'" for probe in denied]
    script = "\n".join([*lines, "echo written > result", f"cat {read}/file", "echo; cat /proc/self/status"])
    os.environ["HONEY"] = "honey"
    try:
        with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
            exit, heard = bench.step(box, "/bin/sh", "-c", script, mounts=mounts)
    finally:
        del os.environ["HONEY"]
    words = heard.out.decode()
    assert [line for line in words.splitlines() if line.startswith("allowed")] == []
    assert words.startswith("readable\n")
    status = dict(line.split(":", 1) for line in words.splitlines() if ":" in line)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    written = (bench.work / "result").stat()
    assert (written.st_uid, written.st_gid) == (os.getuid(), os.getgid())
    assert exit.code == 0


def test_an_ordinary_user_can_write_to_the_private_home(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private home is writable even if it contains the worktree, and its files stay inside."""
    if os.geteuid() == 0:
        monkeypatch.setattr(container, "_users", lambda is_podman, is_rootless: ("--user", "65534:65534"))
    home = bench.work.parent
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
        exit, heard = bench.step(box, "/bin/sh", "-c", "pwd; touch ~/made /tmp/made; ls ~", HOME=str(home))
    assert (exit.code, heard.err) == (0, b"")
    assert heard.out.decode().split() == [str(bench.work), "made", bench.work.name]
    assert not (home / "made").exists()


def test_stdin_variables_and_exit_code_go_through(bench: Bench) -> None:
    """Stdin, variables and exit codes pass through the container unchanged."""
    prompt = bench.work / "prompt"
    prompt.write_text("from stdin\n")
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
        exit, heard = bench.step(
            box, "/bin/sh", "-c", 'cat; echo "$KEY"; exit 7', stdin=prompt, KEY="two\nlines"
        )
        died, _ = bench.step(box, "/bin/sh", "-c", "kill -9 $$")
        absent, _ = bench.step(box, "/opt/none")
    assert (exit.code, heard.out) == (7, b"from stdin\ntwo\nlines\n")
    assert (died.code, died.signal) == (None, 9)
    assert absent.code == 127


def test_limits_hold(bench: Bench) -> None:
    """Starting too many processes fails, and using too much memory kills the command."""
    with BACKEND.opened(
        boundary(bench, network=Network.OFF, memory_mb=64, processes=20), bench.run, bench.tell
    ) as box:
        _, heard = bench.step(box, "/bin/sh", "-c", "for i in $(seq 60); do sleep 2 & done; wait")
        exit, _ = bench.step(box, "/usr/bin/python3", "-c", "x = bytearray(256 << 20)")
    assert b"ork" in heard.err
    assert exit.signal == signal.SIGKILL


def test_git_commits_in_a_worktree(bench: Bench) -> None:
    """A commit in a worktree works, but the repository's hooks and configuration cannot be changed."""
    main, tree = bench.state.parent / "main", bench.work / "tree"
    git = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q", main], check=True)
    subprocess.run([*git, "-C", main, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "-C", main, "worktree", "add", "-q", tree], check=True)
    common = main / ".git"
    writable = (str(tree), *(str(common / name) for name in ("objects", "refs", "logs", "worktrees/tree")))
    mounts = Mounts(str(tree), writable, read_only=(str(common),))
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
        script = f"echo x > new && {' '.join(git)} add -A && {' '.join(git)} commit -qm inside"
        exit, heard = bench.step(box, "/bin/sh", "-c", script, mounts=mounts)
        bench.step(
            box,
            "/bin/sh",
            "-c",
            f"echo evil > {common}/hooks/pre-commit; echo evil >> {common}/config",
            mounts=mounts,
        )
    assert (exit.code, heard.err) == (0, b"")
    log = subprocess.run(
        ["git", "-C", tree, "log", "-1", "--format=%s"], capture_output=True, text=True, check=True
    )
    assert log.stdout == "inside\n"
    assert not (common / "hooks" / "pre-commit").exists() and "evil" not in (common / "config").read_text()


def test_term_reaches_the_command_and_kill_ends_it(bench: Bench) -> None:
    """SIGTERM lets the command clean up; if it does not exit, its container is killed."""
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
        for trap in ("trap 'echo heard; exit 0' TERM", "trap '' TERM"):
            script = f"{trap}; echo up; while :; do sleep 0.1; done"
            exit, heard = bench.step(
                box,
                "/bin/sh",
                "-c",
                script,
                watch=lambda seconds, idle: Ended.TIMEOUT if seconds > 2 else None,
            )
            assert heard.out == (b"up\nheard\n" if "heard" in trap else b"up\n")
            assert exit.ended is Ended.TIMEOUT
            assert _left(bench) == []


@REPEATED
def test_kills_of_the_client_leave_no_container(bench: Bench) -> None:
    """P13: Killing the client at any moment leaves no container or process."""
    pids: list[int] = []
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell) as box:
        for number in range(RUNS):
            killer = threading.Thread(
                target=_kill_client, args=(f"-{os.getpid()}-{number + 1}", number / RUNS * 0.6, pids)
            )
            killer.start()
            bench.step(box, "/bin/sleep", "600")
            killer.join()
        assert _left(bench) == []
    assert len(pids) >= RUNS
    assert not any(_runs_sleep(pid) for pid in pids)


@REPEATED
def test_a_killed_ralph_leaves_nothing_behind_for_long(bench: Bench) -> None:
    """The next start removes the containers of a killed ralph, whether or not its warden was killed too."""
    inner: list[int] = []
    for number in range(RUNS):
        state = bench.state / str(number)
        state.mkdir()
        (bench.work / "pid").unlink(missing_ok=True)
        ralph = subprocess.Popen([sys.executable, "-c", DRIVER, state, bench.work, IMAGE, ENGINE])
        wait_until(lambda: (bench.work / "pid").exists() and (bench.work / "pid").read_text())
        inner += _of_container(str(state))
        if number % 2:
            kill_tree(ralph.pid)
        else:
            os.kill(ralph.pid, signal.SIGKILL)
        ralph.wait()
    with BACKEND.opened(boundary(bench, network=Network.OFF), bench.run, bench.tell):
        mine = f"label={container.OWNER}={container.owner()}"
        words = [ENGINE, "ps", "--all", "--quiet", "--filter", mine, "--format", "{{.Labels}}"]
        left = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert str(bench.state) not in left
    wait_until(lambda: not any(lives(pid) for pid in inner))


def test_an_allow_list_lets_only_its_hosts_through(bench: Bench) -> None:
    """The container has no network except the proxy, which allows only the listed hosts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    limited = boundary(bench, network=Network.ALLOW_LIST, hosts=(f"localhost:{port}",))
    try:
        with BACKEND.opened(limited, bench.run, bench.tell) as box:
            targets = (f"localhost:{port}", f"127.0.0.1:{port}", "example.org", "169.254.169.254")
            _, heard = bench.step(box, "/usr/bin/python3", "-c", ONCE, *targets)
    finally:
        server.shutdown()
        server.server_close()
    assert heard.out.decode().split("\n") == ["200", "403", "403", "403", "no way around", ""], heard.err
    assert len(bench.told) == 3


@pytest.fixture
def sealed(repository: Project, engine: Path | None) -> Project:
    """A repository whose agent runs in containers."""
    if engine is not None:
        repository.extra_env["CONTAINERS_CONF"] = str(engine)
    agent = """
echo "$RALPH_SANDBOX" >"where.$RALPH_ITERATION"; echo x >/etc/x; echo x >"$HOME/x"
git add -A; git -c user.name=T -c user.email=t@localhost commit -qm "Iteration $RALPH_ITERATION"
echo '<response>DONE</response>'
"""
    guardrails = [{"command": 'test "$RALPH_SANDBOX" = container && echo x >checked && test -e where.2'}]
    repository.agent(agent, guardrails=guardrails, sandbox={"rung": "container", "image": IMAGE})
    return repository


def test_a_whole_run_in_containers(sealed: Project) -> None:
    """Agent and checks run inside, a failed check leads to another iteration, and no container is left."""
    done = sealed.run("run", "-p", "x", "-m", "3", "--json")
    assert done.code == 0, done.err
    begun = next(line for line in done.lines() if line["event"] == "run_started")
    assert begun["sandbox"] == "container"
    assert (sealed.path / "where.2").read_text() == "container\n" and (sealed.path / "checked").exists()
    assert sealed.git("log", "--format=%s").splitlines() == ["Iteration 2", "Iteration 1", "First"]
    assert not (sealed.home.path / "x").exists() and not Path("/etc/x").exists()
    label = f"label={container.RUN}={begun['run']}"
    left = subprocess.run([ENGINE, "ps", "-aq", "--filter", label], capture_output=True, check=True)
    assert left.stdout == b""


def test_s1_every_probe_is_denied_in_a_container(sealed: Project) -> None:
    """`ralph doctor --sandbox container` passes with the configured image."""
    done = sealed.run("doctor", "--sandbox", "container", "--json")
    proof = json.loads(done.out)
    wrong = [probe for probe in proof["probes"] if not probe["ok"]]
    assert (done.code, proof["rung"], wrong) == (0, "container", [])
    assert len(proof["probes"]) >= 37


def _kill_client(name: str, delay: float, pids: list[int]) -> None:
    (client, *_) = wait_until(lambda: _with_words(ENGINE.encode(), name.encode()), every=0.002)
    threading.Event().wait(delay)
    pids += [*_children(client), client]
    try:
        os.kill(client, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _with_words(program: bytes, end: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(program) and any(word.endswith(end) for word in words):
            found.append(int(path.parent.name))
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _runs_sleep(pid: int) -> bool:
    try:
        return b"sleep\x00600" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _of_container(state: str) -> list[int]:
    """The PIDs of a run's containers."""
    words = [ENGINE, "ps", "--quiet", "--filter", f"label={container.STATE}={state}"]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    done = subprocess.run(
        [ENGINE, "inspect", "--format", "{{.State.Pid}}", *names], capture_output=True, text=True
    )
    return [int(word) for word in done.stdout.split()]
