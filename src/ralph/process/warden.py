"""The warden: a small process that starts the commands of one run and kills their leftover processes.

It runs as `python -I -S warden.pyc [lock]`, imports no module of ralph, and is a child subreaper: a process that
outlives its parent is reparented to the warden, however it detached itself. No children therefore means that the
whole tree is gone. Descriptor 0 is the control socket and also the lifeline: when it closes, the warden kills the
tree and exits. Descriptor 3, if present, is the run's lock. The warden only holds it, so that the directory of a
killed ralph stays locked until its process tree is gone.

A message is a length (4 bytes, big-endian) and fields joined by NUL. To the warden:
    run [keep] ARGC ARG… NAME=VALUE…   start a command, with descriptors for stdin, stdout, stderr, directory
    end GRACE PID…                      TERM now and KILL after GRACE seconds, except these
    sweep PID…                          kill leftover processes of earlier commands, except these
    count                               count the leftover processes
    inherit PID…                        kill these too if ralph dies: a lost warden left them to it
    ping                                answer with pong
From the warden:
    started PID · failed ERRNO · exited STATUS · kept · swept PASSES LEFT · children NUMBER · pong
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Iterable
else:
    try:  # the C modules: the Python ones build enums on import, which takes longer than starting Python
        import _signal as signal
        import _socket as socket
    except ImportError:
        import signal
        import socket

LEFTOVER_GRACE = 0.5
"""Seconds between TERM and KILL for leftover processes of a finished command."""

LIVE_GRACE = 5.0
"""Seconds between TERM and KILL for a command that is still running."""

GIVE_UP = 10.0
"""Seconds after KILL until surviving processes (another user's, or stuck in the kernel) are given up."""

LINUX = sys.platform.startswith("linux")
CONTROL_FD = 0
LOCK_FD = 3
PROGRAM_FD = 4

_PR_SET_CHILD_SUBREAPER = 36
DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Every signal whose disposition a new process could inherit from us."""


def become_subreaper() -> bool:
    """Make the kernel reparent orphaned descendants to this process. Return whether the system supports it."""
    if not LINUX:
        return False
    arguments = (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        import _ctypes  # the C module under ctypes, imported in a tenth of the time

        here = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        prctl = _ctypes.dlsym(here, "prctl")
        return bool(_ctypes.call_function(prctl, arguments) == 0)
    except (ImportError, AttributeError):
        import ctypes

        return bool(ctypes.CDLL(None).prctl(*arguments) == 0)


def pack(*fields: bytes) -> bytes:
    body = b"\0".join(fields)
    return len(body).to_bytes(4, "big") + body


def receive_fds(control: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Return the received data and the descriptors that came with it."""
    width = 4
    data, ancillary, _, _ = control.recvmsg(size, socket.CMSG_LEN(most * width))
    found: list[int] = []
    for level, kind, packed in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            starts = range(0, len(packed) - len(packed) % width, width)
            found += (int.from_bytes(packed[at : at + width], sys.byteorder) for at in starts)
    return data, found


def children_by_parent() -> dict[int, list[int]]:
    """Return all processes of the system by parent, newest first."""
    tree: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return tree
    for name in reversed(names):
        if name.isdigit() and (parent := parent_of(int(name))):
            tree.setdefault(parent, []).append(int(name))
    return tree


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def spared_branches(tree: dict[int, list[int]], spare: frozenset[int], main: int) -> set[int]:
    """Return the spared processes and their ancestors below us, such as a waiting shell, but never `main`."""
    parents = {child: parent for parent, children in tree.items() for child in children} if spare else {}
    branches: set[int] = set()
    for pid in spare:
        while pid and pid not in branches and pid not in (main, os.getpid()):
            branches.add(pid)
            pid = parents.get(pid, 0)
    return branches


def signal_tree(signum: int, spare: frozenset[int] = frozenset(), main: int = 0) -> None:
    """Signal every descendant of this process except the branches with `spare` and everything below them.

    Only we can reap our own children, so their PIDs cannot be reused. The PID of a deeper descendant could be
    reused by an unrelated process, so it is pinned with a pidfd and its parent is checked again.
    """
    if not has_children():
        return
    tree = children_by_parent()
    spared = spared_branches(tree, spare, main)
    below: list[tuple[int, int]] = []
    for child in tree.get(os.getpid(), ()):
        if child not in spared:
            _kill(child, signum)
            if signum == signal.SIGKILL and not spared:
                _kill_group_of(child)
            below += ((child, grandchild) for grandchild in tree.get(child, ()))
    while below:
        parent, pid = below.pop()
        if pid in spared:
            continue
        below += ((pid, child) for child in tree.get(pid, ()))
        _kill_pinned(pid, parent, signum)


def signal_group(group: int, signum: int) -> bool:
    """Signal a process group, for systems without subreaper and /proc. Return whether it still exists."""
    try:
        os.killpg(group, signum)
    except OSError:
        return False
    return True


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
        if signum == signal.SIGTERM:
            os.kill(pid, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        pass


def _kill_group_of(child: int) -> None:
    """Kill the process group of a child, to catch a chain of processes that fork and exit faster than we can list.

    The group ID cannot have been reused, because the unreaped `child` is in it. Our own session is never killed.
    """
    try:
        group = os.getpgid(child)
        if os.getsid(child) != os.getsid(0):
            os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


def _kill_pinned(pid: int, parent: int, signum: int) -> None:
    try:
        pin = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if parent_of(pid) in (parent, os.getpid()):
            _kill_by(pin, signum)
    finally:
        os.close(pin)


def _kill_by(pin: int, signum: int) -> None:
    try:
        signal.pidfd_send_signal(pin, signum)
        if signum == signal.SIGTERM:
            signal.pidfd_send_signal(pin, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        pass


def reap(spare: frozenset[int] = frozenset(), main: int = 0) -> tuple[dict[int, int], bool]:
    """Reap dead children. Return their exit statuses and whether a child outside `spare`'s branches is left."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses, False
        if pid == 0:
            return statuses, not spare or bool(children_without(spare, main))
        statuses[pid] = status


def has_children() -> bool:
    """Return whether this process has any child, dead or alive. True if the system cannot tell."""
    if not LINUX:
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children_without(spare: frozenset[int], main: int = 0) -> list[int]:
    """Return our children whose branches contain none of `spare`. `main` is always included if it is a child."""
    tree = children_by_parent()
    spared = spared_branches(tree, spare, main)
    return [pid for pid in tree.get(os.getpid(), ()) if pid not in spared]


class Wards:
    """Processes that are not our children, pinned by pidfds so that they can still be killed safely."""

    def __init__(self) -> None:
        self._pins: dict[int, int] = {}

    def add(self, pids: Iterable[int], parents: frozenset[int]) -> None:
        """Pin these processes. A PID that was reused meanwhile has a parent outside `parents` and is skipped."""
        for pid in pids:
            try:
                pin = os.pidfd_open(pid)
            except OSError:
                continue
            if parent_of(pid) in parents:
                self._pins[pid] = pin
            else:
                os.close(pin)

    def add_neighbours(self) -> None:
        """Pin the other descendants of processes that wait for a run. A run kills its own processes itself."""
        if not self._pins:
            return
        tree = children_by_parent()
        above = [pid for pid in self._pins if not self._pins.keys().isdisjoint(tree.get(pid, ()))]
        while above:
            parent = above.pop()
            found = [pid for pid in tree.get(parent, ()) if pid not in self._pins]
            self.add(found, frozenset([parent]))
            above += found

    def signal(self, signum: int) -> None:
        for pin in self._pins.values():
            _kill_by(pin, signum)

    def are_left(self) -> bool:
        for pid, pin in list(self._pins.items()):
            if select.select([pin], [], [], 0)[0]:
                os.close(self._pins.pop(pid))
        return bool(self._pins)


class WardenProcess:
    """Runs one command at a time: starts it, watches it, stops it and sweeps its leftover processes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._descriptors: list[int] = []
        self._main = 0
        self._group = 0
        self._keeps = False
        self._sweeping = False
        self._kill_at = 0.0
        self._passes = 0
        self._given_up: frozenset[int] = frozenset()
        self._spared: frozenset[int] = frozenset()
        self._wards = Wards()
        self._alive = True
        self._wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(self._wakeup, select.POLLIN)

    def serve(self) -> None:
        """Serve until ralph closes the socket or dies, and leave no process behind."""
        while self._alive or self._main or self._sweeping:
            ready = {fd for fd, _ in self._poll.poll(self._timeout())}
            if self._wakeup in ready:
                os.read(self._wakeup, 4096)
            if self._control.fileno() in ready and self._alive:
                self._receive()
            self._reap()
            self._sweep()

    def _timeout(self) -> int | None:
        """Return the milliseconds until the next action that no message or signal triggers."""
        if not self._kill_at:
            return None
        wait = self._kill_at - time.monotonic()
        if wait > 0:
            return int(wait * 1000) + 1 if self._alive else min(int(wait * 1000) + 1, 50)
        return 0 if self._passes < 3 else 2 if self._passes < 100 else 50

    # ---- messages ----

    def _receive(self) -> None:
        try:
            data, descriptors = receive_fds(self._control, 1 << 20, 8)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._orphaned()
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            message, self._received = self._received[4:end], self._received[end:]
            self._handle(message.split(b"\0"))

    def _handle(self, fields: list[bytes]) -> None:
        verb = fields[0]
        if verb == b"run":
            self._keeps = fields[1] == b"keep"
            self._run(fields[2:])
        elif verb == b"sweep":
            self._sweep_all_but(fields[1:])
        elif verb == b"count":
            self._tell(b"children", str(self._count()).encode())
        elif verb == b"end":
            self._spared = _pids(fields[2:])
            self._end(float(fields[1]))
        elif verb == b"inherit":
            wards = _pids(fields[1:])
            self._wards.add(wards, wards | {os.getppid()})
        elif verb == b"ping":
            self._tell(b"pong")

    def _tell(self, *fields: bytes) -> None:
        if self._alive:
            try:
                self._control.sendall(pack(*fields))
            except OSError:
                self._orphaned()

    def _orphaned(self) -> None:
        """Kill the process tree and then exit, because ralph is gone."""
        if self._alive:
            self._alive = False
            self._poll.unregister(self._control.fileno())
            self._spared, self._sweeping = frozenset(), True
            self._wards.add_neighbours()
            self._end(LIVE_GRACE if self._main or self._wards.are_left() else LEFTOVER_GRACE)

    # ---- the current command ----

    def _run(self, fields: list[bytes]) -> None:
        argc = int(fields[0])
        argv, environment = fields[1 : 1 + argc], fields[1 + argc :]
        stdio, directory = self._descriptors[:3], self._descriptors[3]
        try:
            os.fchdir(directory)
            self._main = os.posix_spawn(
                argv[0],
                argv,
                dict(pair.split(b"=", 1) for pair in environment),
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(stdio)],
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULTED,
            )
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) else errno.EINVAL
            self._tell(b"failed", str(number).encode())
        else:
            self._group = self._main
            self._tell(b"started", str(self._main).encode())
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)
            self._descriptors = []

    def _end(self, grace: float) -> None:
        """Send TERM to the whole tree now, and KILL to what is left of it after `grace` seconds."""
        if not self._main and not self._sweeping:
            return
        deadline = time.monotonic() + grace
        self._kill_at = min(self._kill_at or deadline, deadline)
        if grace:
            self._signal(signal.SIGTERM)

    def _signal(self, signum: int) -> None:
        signal_tree(signum, self._untouched, self._main)
        if not self._alive:
            self._wards.signal(signum)
        if not LINUX:
            signal_group(self._group, signum)

    def _reap(self) -> None:
        statuses, left = reap(self._untouched)
        self._given_up = self._given_up.difference(statuses)
        self._spared = self._spared.difference(statuses)
        left = left or (not LINUX and self._sweeping and signal_group(self._group, 0))
        left = left or (not self._alive and self._wards.are_left())
        if self._main in statuses:
            self._tell(b"exited", str(statuses[self._main]).encode())
            self._main, self._passes = 0, 0
            if self._keeps and not self._kill_at:
                self._tell(b"kept")
            else:
                self._begin_sweep(left)
        is_late = self._kill_at and time.monotonic() > self._kill_at + GIVE_UP
        if self._sweeping and (not left or is_late):
            if left:
                self._given_up |= frozenset(self._leftovers())
            self._sweeping, self._kill_at = False, 0.0
            self._tell(b"swept", str(self._passes).encode(), b"1" if left else b"0")

    def _begin_sweep(self, left: bool) -> None:
        self._sweeping = True
        if left:
            self._end(LEFTOVER_GRACE)

    def _sweep_all_but(self, spared: list[bytes]) -> None:
        """Kill the leftover processes of earlier commands, except these."""
        self._spared = _pids(spared)
        self._passes = 0
        self._begin_sweep(True)

    def _count(self) -> int:
        """Count the leftover processes. A chain that forks and exits faster than we can list counts as one."""
        self._reap()
        return len(self._leftovers()) or int(LINUX and not self._untouched and has_children())

    def _leftovers(self) -> list[int]:
        return children_without(self._untouched)

    @property
    def _untouched(self) -> frozenset[int]:
        """Return the processes that a sweep skips: given up, or spared on request."""
        return self._given_up | self._spared

    def _sweep(self) -> None:
        if self._kill_at and time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._passes += 1


def _pids(fields: list[bytes]) -> frozenset[int]:
    return frozenset(int(pid) for pid in fields)


def main() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    become_subreaper()
    os.set_inheritable(CONTROL_FD, False)
    if len(sys.argv) > 1:
        os.set_inheritable(LOCK_FD, False)
    os.closerange(LOCK_FD + 1 if len(sys.argv) > 1 else LOCK_FD, os.sysconf("SC_OPEN_MAX"))
    WardenProcess(socket.socket(fileno=CONTROL_FD)).serve()


if __name__ == "__main__":
    main()
