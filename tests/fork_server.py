"""A process that has imported all of ralph and forks itself for each call, which saves the start of Python.

`fork_support` starts it and talks to it over descriptor `int(sys.argv[1])`; when that closes, it exits. A message
is a length (8 bytes) and a pickled tuple:
    ("start", argv, environment, umask)   with descriptors for stdin, stdout, stderr and the directory -> PID
    ("poll", PID)                         -> its status as in waitpid(2), or None while it runs

A fork must look like a new interpreter: it keeps nothing of the server but the modules. The server has one thread,
so that no lock can be held by a thread that does not exist in the fork.
"""

from __future__ import annotations

import ast
import atexit
import ctypes
import gc
import importlib
import io
import os
import pickle
import pkgutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_HEADER = 8
_MAX_DESCRIPTORS = 4
_PR_SET_NAME = 15
_LEAVE_TRACES = {"readline"}
"""Modules that change the process when they are imported, here its signal handlers."""

_OUTPUT_LOST = 120
"""The exit code of a Python that could not flush its stdout."""

_interrupts: Any = signal.default_int_handler
"""The SIGINT handler of a new process; SIGINT is ignored if the tests were started that way."""


def main(control: socket.socket, program: str) -> None:
    import ralph

    _import_all(ralph)
    sys.path[0] = str(Path(program).parent)
    assert threading.active_count() == 1, threading.enumerate()
    global _interrupts
    _interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise copy every page
    while request := receive(control):
        (verb, *arguments), descriptors = request
        if verb == "start":
            send(control, _start(control, program, arguments, descriptors))
        else:
            pid, status = os.waitpid(arguments[0], os.WNOHANG)
            send(control, status if pid else None)


def receive(control: socket.socket) -> tuple[Any, list[int]] | None:
    """Return a message and its descriptors, or None if the other end has closed."""
    head, descriptors, _, _ = socket.recv_fds(control, _HEADER, _MAX_DESCRIPTORS)
    if not head:
        return None
    head += _exactly(control, _HEADER - len(head))
    return pickle.loads(_exactly(control, int.from_bytes(head, "big"))), descriptors


def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            raise EOFError("the other end closed in the middle of a message")
        data += part
    return bytes(data)


def send(control: socket.socket, message: object, descriptors: tuple[int, ...] = ()) -> None:
    body = pickle.dumps(message)
    head = len(body).to_bytes(_HEADER, "big")
    sent = socket.send_fds(control, [head], descriptors)
    control.sendall(head[sent:] + body)


# ---- imports before the first call ----


def _import_all(package: ModuleType) -> None:
    """Import every module of the package, and everything its functions import when called."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(".__main__"):
            for name in _imported_by(importlib.import_module(found.name)):
                if name not in _LEAVE_TRACES:
                    with suppress(ImportError):
                        importlib.import_module(name)


def _imported_by(module: ModuleType) -> Iterator[str]:
    source = module.__file__
    if source is None:
        return
    for node in ast.walk(ast.parse(Path(source).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


# ---- a call ----


def _start(control: socket.socket, program: str, arguments: list[Any], descriptors: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        control.close()
        argv, environment, umask = arguments
        _run([program, *argv], environment, umask, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _run(argv: list[str], environment: dict[bytes, bytes], umask: int, descriptors: list[int]) -> NoReturn:
    """Run ralph in the fork and exit."""
    code = 1
    try:
        _become_new(environment, umask, descriptors)
        sys.argv = argv
        from ralph.cli import main as ralph

        code = _exit_code_of(ralph)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _become_new(environment: dict[bytes, bytes], umask: int, descriptors: list[int]) -> None:
    directory = descriptors.pop()
    os.fchdir(directory)
    os.close(directory)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number, inheritable=True)
    for descriptor in descriptors:
        os.close(descriptor)
    os.umask(umask)
    os.environb.clear()
    os.environb.update(environment)
    sys.dont_write_bytecode = bool(environment.get(b"PYTHONDONTWRITEBYTECODE"))
    time.tzset()
    tempfile.tempdir = None  # found again in this environment
    signal.signal(signal.SIGINT, _interrupts)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"ralph", 0, 0, 0)
    _reopen_streams()


def _reopen_streams() -> None:
    """Open the streams as the interpreter would, with the server's encoding and error handlers."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            _buffered(raw, number > 0 and unbuffered),
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=not unbuffered and (number == 2 or raw.isatty()),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _buffered(raw: io.FileIO, unbuffered: bool) -> Any:
    if unbuffered:
        return raw
    return io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)


def _exit_code_of(ralph: Any) -> int:
    """Do the same as `sys.exit(main())` and the interpreter's shutdown, and return the exit code."""
    try:
        code = _as_code(ralph())
    except SystemExit as end:
        code = _as_code(end.code)
    except KeyboardInterrupt:
        traceback.print_exc()
        _flushed()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code if _flushed() else _OUTPUT_LOST


def _as_code(result: object) -> int:
    if result is None:
        return 0
    if isinstance(result, int):
        return result & 0xFF
    print(result, file=sys.stderr)
    return 1


def _flushed() -> bool:
    done = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            done = done and stream is not sys.stdout
    return done


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
