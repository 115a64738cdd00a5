"""An agent that is restarted until it leaves DONE. Standard library only; starts fast.

    python -I -S restarted.py SCRIPT

SCRIPT lists the deeds of each attempt, each a verb and optionally a word. The last attempt is repeated forever. Every
process records itself in a ledger outside the project: JSON lines with kind, pid and start time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than everything else
    from collections.abc import Callable

LONG = 90
"""Lifetime in seconds of hung and escaped processes."""

MOMENT = 0.2


def main(path: str) -> int:
    with open(path) as file:
        script = json.load(file)
    agent = Agent(script["ledger"], os.environ["TASK_FOLDER"])
    attempts = script["attempts"]
    number = agent.note("start")
    for deed in attempts[min(number, len(attempts)) - 1]:
        verb, _, word = deed.partition(" ")
        DEEDS[verb](agent, word)
    return 0


class Agent:
    def __init__(self, ledger: str, folder: str) -> None:
        self.ledger = ledger
        self.folder = folder
        self.done = os.path.join(folder, "DONE")

    def note(self, kind: str) -> int:
        """Record an entry; return the number of entries of this kind."""
        with open("/proc/self/stat") as file:
            start = int(file.read().rpartition(")")[2].split()[19])
        with open(self.ledger, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps({"kind": kind, "pid": os.getpid(), "start": start}) + "\n")
            file.flush()
            return self.count(kind)

    def count(self, kind: str) -> int:
        with open(self.ledger) as file:
            return sum(bool(json.loads(line)["kind"] == kind) for line in file)

    def wait_for(self, kind: str, number: int) -> None:
        while self.count(kind) < number:
            time.sleep(0.005)

    # ---- work and exit ----

    def work(self, word: str) -> None:
        """Change something in the project."""
        with open("work", "a") as file:
            file.write("a piece\n")

    def pause(self, word: str) -> None:
        time.sleep(MOMENT)

    def finish(self, word: str) -> None:
        """Leave a proper DONE, optionally with text or unreadable, replacing anything in its place."""
        self.work("")
        self.clear()
        scratch = os.path.join(self.folder, "scratch")
        with open(scratch, "w") as file:
            file.write("all of it\n" if word == "wordy" else "")
        if word == "closed":
            os.chmod(scratch, 0)
        os.rename(scratch, self.done)
        self.note("done")

    def clear(self) -> None:
        if os.path.isdir(self.done) and not os.path.islink(self.done):
            shutil.rmtree(self.done)
        elif os.path.lexists(self.done):
            os.unlink(self.done)

    def exit(self, word: str) -> None:
        sys.exit(int(word))

    def die(self, word: str) -> None:
        """Die of a signal, without a core file."""
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.Signals[f"SIG{word}"])

    def group(self, word: str) -> None:
        """Kill the whole process group."""
        os.killpg(0, signal.SIGKILL)

    # ---- staying ----

    def ignore(self, word: str) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def hang(self, word: str) -> None:
        time.sleep(LONG)

    def stop(self, word: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def talk(self, word: str) -> None:
        for number in range(LONG * 20):
            print(f"still running: {number}", flush=True)
            time.sleep(0.05)

    def hold(self, word: str) -> None:
        """Leave a grandchild that keeps stdout and stderr open."""
        before = self.count("escaped")
        if os.fork() == 0:
            self.stay_away()
        self.wait_for("escaped", before + 1)

    # ---- lies ----

    def lie(self, word: str) -> None:
        self.clear()
        LIES[word](self)

    def misname(self, word: str) -> None:
        """Leave a file with another name."""
        touch(os.path.join(self.folder, word))

    # ---- escaping ----

    def escape(self, word: str) -> None:
        """Escape into its own session, by a double fork, or both as a daemon; return once it is away."""
        before = self.count("escaped")
        if os.fork() == 0:
            if word in ("session", "daemon"):
                os.setsid()
            if word in ("fork", "daemon") and os.fork():
                os._exit(0)
            if word == "daemon":
                os.chdir("/")
                os.environ.clear()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            self.stay_away()
        self.wait_for("escaped", before + 1)

    def stay_away(self) -> None:
        self.note("escaped")
        time.sleep(LONG)
        os._exit(0)


def a_socket(agent: Agent) -> None:
    here = os.getcwd()
    os.chdir(agent.folder)  # a socket path must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("DONE")
    os.chdir(here)


def a_folder_below(agent: Agent) -> None:
    below = os.path.join(agent.folder, "result")
    os.makedirs(below, exist_ok=True)
    touch(os.path.join(below, "DONE"))


def touch(path: str) -> None:
    with open(path, "w"):
        pass


LIES: dict[str, Callable[[Agent], None]] = {
    "directory": lambda agent: os.mkdir(agent.done),
    "pipe": lambda agent: os.mkfifo(agent.done),
    "nowhere": lambda agent: os.symlink("nowhere", agent.done),
    "folder": lambda agent: os.symlink(".", agent.done),
    "socket": a_socket,
    "here": lambda agent: touch("DONE"),
    "below": a_folder_below,
}
DEEDS: dict[str, Callable[[Agent, str], None]] = {
    "work": Agent.work,
    "pause": Agent.pause,
    "finish": Agent.finish,
    "exit": Agent.exit,
    "die": Agent.die,
    "group": Agent.group,
    "ignore": Agent.ignore,
    "hang": Agent.hang,
    "stop": Agent.stop,
    "talk": Agent.talk,
    "hold": Agent.hold,
    "lie": Agent.lie,
    "misname": Agent.misname,
    "escape": Agent.escape,
}

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1]))
