"""The first program inside a sandbox, which then executes the command.

Usage: `python -I -S inside.pyc MB PROCESSES SOCKET -- ARGV…`. It imports no module of ralph. It
- starts a forwarder from a loopback port to SOCKET, which leads to the proxy outside ("" for none), and sets the usual
  proxy variables for the command;
- blocks abstract Unix sockets outside the sandbox, which an open network shares, if the kernel can (Linux 6.12);
- limits the memory of each process (its data, in MB) and the number of processes (0: no limit; the latter does not
  apply to root);
- resets every signal to its default action, because the wrapper around it ignores termination signals and leaves
  them to the command.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing it from typing would be slow
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # without enum, which takes longer to import than everything else

CANNOT_START = 127
_CREATE_RULESET, _RESTRICT_SELF, _ABSTRACT_SOCKETS = 444, 446, 1
"""Landlock constants, the same on every architecture."""

_NO_PROXY = "localhost,127.0.0.1,::1"


def forward(path: str) -> int:
    """Start the forwarder and return its port."""
    import socket

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port: int = listener.getsockname()[1]
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            _serve(listener, path)
        os._exit(0)
    os.waitpid(child, 0)
    listener.close()
    return port


def _serve(listener: object, path: str) -> None:
    import socket
    import threading

    assert isinstance(listener, socket.socket)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def both(inner: socket.socket) -> None:
        with inner, socket.socket(socket.AF_UNIX) as outer:
            try:
                outer.connect(path)
            except OSError:
                return
            back = threading.Thread(target=pump, args=(outer, inner), daemon=True)
            back.start()
            pump(inner, outer)
            back.join()

    while True:
        inner, _ = listener.accept()
        threading.Thread(target=both, args=(inner,), daemon=True).start()


def proxied(port: int) -> dict[str, str]:
    """Return the variables that point programs to a proxy."""
    url = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    usual = dict.fromkeys(names, url) | {"NO_PROXY": _NO_PROXY}
    return usual | {name.lower(): value for name, value in usual.items()} | {"NODE_USE_ENV_PROXY": "1"}


def keep_from_abstract_sockets() -> None:
    try:
        import ctypes
    except ImportError:  # some Python builds lack it
        return
    call = ctypes.CDLL(None).syscall
    ruleset = call(_CREATE_RULESET, (ctypes.c_uint64 * 3)(0, 0, _ABSTRACT_SOCKETS), 24, 0)
    if ruleset >= 0:
        call(_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)


def limit(megabytes: int, processes: int) -> None:
    import resource

    for kind, most in ((resource.RLIMIT_DATA, megabytes << 20), (resource.RLIMIT_NPROC, processes)):
        if most:
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def main() -> None:
    megabytes, processes, path, _, *argv = sys.argv[1:]
    if path:
        os.environ.update(proxied(forward(path)) | {k: v for k, v in os.environ.items() if k == "NO_PROXY"})
    keep_from_abstract_sockets()
    if megabytes != "0" or processes != "0":
        limit(int(megabytes), int(processes))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        hint = " (inside the sandbox; add its directory to sandbox.readOnly to make it visible)"
        sys.stderr.write(f"{argv[0]}: {error.strerror}{hint}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)


if __name__ == "__main__":
    main()
