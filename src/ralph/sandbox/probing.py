"""The program that `ralph doctor --sandbox` runs inside, to try everything that should be impossible there.

Usage: `python -I -S probing.py ARGUMENTS`, with arguments as JSON. It prints one line of JSON per probe: [name, whether
it succeeded or null if it could not be tried, details]. It imports no module of ralph. No probe does harm if it
succeeds: files have unique names, no process is killed, and system settings are opened for writing but not written.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_SECONDS = 5.0
_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17
_CLONE_NEWUSER = 0x10000000

Seen = tuple[bool, str]


def _first(tries: Iterator[Seen]) -> Seen:
    """Return the first attempt that succeeds, or the last one that failed."""
    last: Seen = (False, "nothing to try")
    for last in tries:
        if last[0]:
            return last
    return last


def _write(path: str) -> Seen:
    try:
        with open(path, "w") as file:
            file.write("ralph was here\n")
    except OSError as error:
        return False, error.strerror or str(error)
    return True, f"{path} was written"


def _read(path: str) -> Seen:
    try:
        with open(path, "rb") as file:
            data = file.read(200)
    except OSError as error:
        return False, error.strerror or str(error)
    return bool(data), f"{path} was read" if data else "empty file"


def _read_same(path: str, secret: str, digest: str) -> Seen:
    """Try to read a file and compare it with ours. A different file belongs to the image and is not a secret."""
    came, seen = _read(path)
    if came:
        with open(path, "rb") as file:
            is_same = hashlib.sha256(secret.encode() + file.read()).hexdigest() == digest
        return is_same, seen if is_same else "the image has its own file"
    return came, seen


def _read_any(paths: list[str]) -> Seen:
    return _first(_read(path) for path in paths)


def _open_to_write(path: str) -> Seen:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        return False, error.strerror or str(error)
    return True, f"{path} is writable"


def _connect(path: str) -> Seen:
    return _reach(socket.AF_UNIX, path, path)


def _reach(family: socket.AddressFamily, address: Any, name: str) -> Seen:
    with socket.socket(family) as client:
        client.settimeout(_SECONDS)
        try:
            client.connect(address)
        except OSError as error:
            return False, error.strerror or str(error)
    return True, f"connected to {name}"


def _ask_proxy(request: str) -> Seen:
    """Send a request to the proxy, the only way out, and return its answer."""
    url = os.environ.get("HTTP_PROXY", "")
    if not url:
        return False, "there is no proxy"
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        with socket.create_connection((host, int(port)), _SECONDS) as client:
            client.sendall(request.encode())
            status = client.recv(4096).split(b"\r\n")[0].decode(errors="replace")
    except OSError as error:
        return False, error.strerror or str(error)
    return " 200 " in f"{status} ", status


def _run(*argv: str) -> Seen:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    said = (done.stderr or done.stdout).strip().splitlines()
    return done.returncode == 0, said[-1] if said else f"exit code {done.returncode}"


def _system_call(name: str, *arguments: Any) -> Seen:
    import ctypes  # some Python builds lack it

    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        return False, os.strerror(ctypes.get_errno())
    return True, f"{name} was allowed"


def _ptrace(pid: int) -> Seen:
    came, seen = _system_call("ptrace", _PTRACE_SEIZE, pid, None, None)
    if came:
        _system_call("ptrace", _PTRACE_DETACH, pid, None, None)
    return came, seen


def _signal(pid: int) -> Seen:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return False, error.strerror or str(error)
    return True, f"process {pid} could be signalled"


def _processes(mark: str) -> Seen:
    """Look for a process with this secret in its environment. There is one outside."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    for pid in pids:
        for file in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{file}", "rb") as found:
                    if mark.encode() in found.read():
                        return True, f"/proc/{pid}/{file}"
            except OSError:
                pass
    return False, f"{len(pids)} processes, all from this sandbox"


def _make_device(path: str) -> Seen:
    try:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(8, 0))
        os.unlink(path)
    except OSError as error:
        return False, error.strerror or str(error)
    return True, "a disk device was created"


def _devices() -> Iterator[Seen]:
    disks = os.listdir("/sys/block") if os.path.isdir("/sys/block") else []
    for name in (*disks, "mem", "kmsg", "port", "kvm", "fuse"):
        path = f"/dev/{name}"
        if os.path.exists(path):
            yield _read(path)
    yield False, "no host devices"


def _mount(directory: str) -> Seen:
    came, seen = _system_call("mount", b"none", directory.encode(), b"tmpfs", 0, None)
    if came:
        _system_call("umount", directory.encode())
    return came, seen


def probes(at: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Seen]]]:
    """Yield every probe with the name that `doctor/sandbox.py` uses for it."""
    yield "worktree", lambda: _write(f"{at['worktree']}/written")
    yield "commit", lambda: _run("git", "-C", at["worktree"], "commit", "-q", "--allow-empty", "-m", "inside")
    yield "login", lambda: _read(at["login"])
    for name, paths in at["reads"].items():
        yield name, partial(_read_any, paths)
    for name, path in at["writes"].items():
        yield name, partial(_write, path)
    secret = "".join(at["secret"])
    yield "passwords", lambda: _read_same("/etc/shadow", secret, at["passwords"])
    yield "environment", lambda: (any(secret in value for value in os.environ.values()), "")
    yield "proc environ", lambda: _processes(secret)
    yield "signal", lambda: _signal(at["pid"])
    yield "ptrace", lambda: _ptrace(at["pid"])
    yield "devices", lambda: _first(_devices())
    yield "mknod", lambda: _make_device(f"{at['worktree']}/device")
    yield "proc sys", lambda: _open_to_write("/proc/sys/kernel/core_pattern")
    yield "sys", lambda: _first(_open_to_write(path) for path in at["settings"] if os.path.exists(path))
    yield "docker", lambda: _first(_connect(path) for path in at["docker"])
    yield "ssh agent", lambda: _connect(at["ssh_agent"])
    yield "mount", lambda: _mount(at["worktree"])
    yield "user namespace", lambda: _system_call("unshare", _CLONE_NEWUSER)
    if at["network"] == "off":
        yield "no network", lambda: _first(_ways_out(at))
        return
    yield "address", lambda: _first(_ways_out(at))
    yield "proxy: other host", lambda: _ask_proxy("CONNECT example.org:443 HTTP/1.1\r\n\r\n")
    yield (
        "proxy: address",
        lambda: _first(
            _ask_proxy(f"CONNECT {address}:443 HTTP/1.1\r\n\r\n")
            for address in ("1.1.1.1", "[::1]", "2130706433")
        ),
    )
    yield "proxy: metadata", lambda: _ask_proxy("GET http://169.254.169.254/ HTTP/1.1\r\n\r\n")
    yield "proxy: other port", lambda: _ask_proxy("CONNECT localhost:22 HTTP/1.1\r\n\r\n")
    yield "proxy: allowed host", lambda: _ask_proxy(f"CONNECT localhost:{at['port']} HTTP/1.1\r\n\r\n")


def _ways_out(at: dict[str, Any]) -> Iterator[Seen]:
    for host, port in (("127.0.0.1", at["port"]), ("1.1.1.1", 443), ("2606:4700:4700::1111", 443)):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        yield _reach(family, (host, port), f"{host} port {port}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        try:
            client.sendto(b"\0", ("1.1.1.1", 53))
        except OSError as error:
            yield False, error.strerror or str(error)
        else:
            yield True, "a packet was sent"


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name, probe in probes(json.loads(sys.argv[1])):
        try:
            told: tuple[bool | None, str] = probe()
        except Exception as error:
            told = None, f"{type(error).__name__}: {error}"
        print(json.dumps([name, *told]), flush=True)


if __name__ == "__main__":
    main()
