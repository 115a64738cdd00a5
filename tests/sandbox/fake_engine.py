"""A fake `docker`, `podman` and `sbx`: a server that runs the requested commands, and a client that only waits.

As with the real ones, a command inside is the server's child, so killing the client does not stop it. The server keeps
its state in a directory: `log` (each command line as JSON), `faults` (the faults to simulate, as JSON), `containers/`
and `sandboxes/`, one file each.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

VALUED = {
    "-u",
    "-w",
    "--env-file",
    "--name",
    "--memory",
    "--label",
    "--network",
    "--user",
    "--userns",
}
VALUED |= {
    "--mount",
    "--tmpfs",
    "--env",
    "--entrypoint",
    "--pull",
    "--security-opt",
    "--cap-drop",
    "--memory-swap",
}
VALUED |= {"--pids-limit", "--stop-timeout"}


def client(place: str, name: str, *argv: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{place}/socket")
        message = json.dumps({"name": name, "argv": argv, "env": dict(os.environ), "cwd": os.getcwd()})
        socket.send_fds(server, [len(message.encode()).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(message.encode())
        if argv[:1] == ("run",):  # `run` forwards signals, `exec` does not
            signal.signal(signal.SIGTERM, lambda *_: server.sendall(b"T"))
        answer = server.recv(1)
        os._exit(answer[0] if answer else 125)


class Engine:
    def __init__(self, place: Path) -> None:
        self.place = place
        for kind in ("containers", "sandboxes"):
            (place / kind).mkdir(exist_ok=True)
        self.lock = threading.Lock()

    def serve(self) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.place / "socket"))
            listener.listen(64)
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self.handle, args=(connection,), daemon=True).start()

    def handle(self, connection: socket.socket) -> None:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        size, data = int.from_bytes(head, "big"), b""
        while len(data) < size:
            data += connection.recv(size - len(data))
        asked = json.loads(data)
        with self.lock, open(self.place / "log", "a") as log:
            log.write(json.dumps([asked["name"], *asked["argv"]]) + "\n")
        try:
            code = self.answer(connection, asked, files)
        except Exception as error:
            os.write(files[2], f"{error!r}\n".encode())
            code = 1
        finally:
            for file in files:
                os.close(file)
        try:
            connection.sendall(bytes([code & 255]))
        except OSError:
            pass
        connection.close()

    def answer(self, connection: socket.socket, asked: dict[str, Any], files: list[int]) -> int:
        name, argv = asked["name"], asked["argv"]
        if name == "docker" and argv[:1] == ["sandbox"]:
            argv = argv[1:]
            is_sandbox = True
        else:
            is_sandbox = name == "sbx"
        fault = self.fault(" ".join([name, *argv]))
        if fault == "hang":
            (self.place / "hangs").touch()
            time.sleep(600)
        if fault == "crash":
            os.write(files[2], b"error: something is wrong\n")
            return 1
        if fault == "silent":
            return 1
        if fault == "garbage":
            os.write(files[1], b"\x00\xff<html>{[\n")
            return 0
        if fault == "nothing":
            return 0
        if fault == "null":
            os.write(files[1], b'{"vms": null}\n')
            return 0
        verbs = self.sandbox if is_sandbox else self.container
        code = verbs(connection, asked, argv, files)
        return 1 if fault == "half" else code

    def fault(self, line: str) -> str:
        """Return the first fault whose prefix matches the command line. Each can be limited to a number of
        times."""
        with self.lock:
            try:
                faults = json.loads((self.place / "faults").read_text())
            except FileNotFoundError:
                return ""
            for each in faults:
                if line.startswith(each["at"]) and each.get("times", 1) > 0:
                    each["times"] = each.get("times", 1) - 1
                    replace(self.place / "faults", faults)
                    return str(each["is"])
        return ""

    # ---- docker sandbox, sbx ----

    def sandbox(
        self, connection: socket.socket, asked: dict[str, Any], argv: list[str], files: list[int]
    ) -> int:
        verb, rest = argv[0], argv[1:]
        options, words = split(rest)
        sandboxes = {file.name: json.loads(file.read_text()) for file in (self.place / "sandboxes").iterdir()}
        if verb == "version":
            return say(
                files[1], "sbx version: v0.40.0" if asked["name"] == "sbx" else "docker sandbox v0.12.0"
            )
        if verb == "exec" and "--help" in rest:
            return say(
                files[1],
                "Usage: exec [OPTIONS] SANDBOX COMMAND\n  --env-file  Read in a file\n  -w, --workdir",
            )
        if verb == "ls":
            rows = [{"name": name} | row for name, row in sandboxes.items()]
            return say(files[1], json.dumps({"sandboxes" if asked["name"] == "sbx" else "vms": rows}))
        if verb == "create":
            name = options["--name"][0]
            if name in sandboxes:
                return say(files[2], f"sandbox {name} already exists", 1)
            self.keep(name, {"agent": words[0], "status": "running", "workspaces": words[1:]})
            return say(files[1], name)
        if verb in ("network", "policy"):
            return 0
        name = words[0]
        if name not in sandboxes:
            return say(files[2], f"no such sandbox: {name}", 1)
        row = sandboxes[name]
        if verb == "rm":
            (self.place / "sandboxes" / name).unlink()
            return 0
        if verb in ("stop", "run"):
            self.keep(name, row | {"status": "stopped" if verb == "stop" else "running"})
            return 0
        if verb == "exec":
            if row["status"] != "running":
                if asked["name"] != "sbx":
                    return say(files[2], f"sandbox {name} is not running", 1)
                self.keep(name, row | {"status": "running"})
            if "setup.sh" in words:
                return 0
            env = {"PATH": os.environ["PATH"]}
            for file in options.get("--env-file", []):
                env |= dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
            where = options.get("-w", [asked["cwd"]])[0]
            return self.started(connection, words[1:], env, where, files, passes=False)
        return say(files[2], f"unknown command: {verb}", 1)

    def keep(self, name: str, row: dict[str, Any]) -> None:
        replace(self.place / "sandboxes" / name, row)

    # ---- docker, podman ----

    def container(
        self, connection: socket.socket, asked: dict[str, Any], argv: list[str], files: list[int]
    ) -> int:
        verb, rest = argv[0], argv[1:]
        options, words = split(rest)
        place = self.place / "containers"
        if verb == "--version":
            return say(files[1], f"{asked['name']} version 28.2.2")
        if verb == "info":
            return say(files[1], "false" if asked["name"] == "podman" else '["name=seccomp,profile=builtin"]')
        if verb == "image":
            return say(files[1], '["PATH=/usr/bin:/bin"]')
        if verb == "ps":
            return say(
                files[1], "\n".join(sorted(file.name for file in place.iterdir() if matches(file, rest)))
            )
        if verb == "container":
            for name in rest[3:]:
                if (place / name).exists():
                    say(files[1], f"{name} {json.dumps(json.loads((place / name).read_text())['labels'])}")
            return 0
        if verb == "rm":
            return self.removed(rest, files)
        identity = f"{time.time_ns():064x}"
        labels = dict(label.split("=", 1) for label in options.get("--label", []))
        record = {"name": options.get("--name", [""])[0], "labels": labels, "pid": 0}
        replace(place / identity, record)
        env = {"PATH": os.environ["PATH"]}
        for each in options.get("--env", []):
            key, equals, value = each.partition("=")
            env[key] = value if equals else asked["env"].get(key, "")
        command = [options["--entrypoint"][0], *words[1:]]

        def note(pid: int) -> None:
            replace(place / identity, record | {"pid": pid})

        code = self.started(connection, command, env, "/", files, passes=True, note=note)
        (place / identity).unlink(missing_ok=True)
        return code

    def removed(self, names: list[str], files: list[int]) -> int:
        code = 0
        for name in [name for name in names if not name.startswith("-")]:
            found = [
                f
                for f in (self.place / "containers").iterdir()
                if name in (f.name, json.loads(f.read_text())["name"])
            ]
            if not found:
                code = say(files[2], f"Error response from daemon: No such container: {name}", 1)
            for file in found:
                pid = json.loads(file.read_text())["pid"]
                if pid:
                    try:
                        os.killpg(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                file.unlink(missing_ok=True)
        return code

    def started(
        self,
        connection: socket.socket,
        command: list[str],
        env: dict[str, str],
        where: str,
        files: list[int],
        *,
        passes: bool,
        note: Callable[[int], None] = lambda pid: None,
    ) -> int:
        """Run it as our own child, which keeps running if the client is killed."""
        try:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=where,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                start_new_session=True,
            )
        except OSError as error:
            return say(files[2], f"{command[0]}: {error.strerror}", 127)
        note(process.pid)

        def listen() -> None:
            with suppress(OSError):
                while connection.recv(1):
                    if passes:
                        process.send_signal(signal.SIGTERM)

        threading.Thread(target=listen, daemon=True).start()
        code = process.wait()
        return code if code >= 0 else 128 - code


def matches(file: Path, words: list[str]) -> bool:
    labels = json.loads(file.read_text())["labels"]
    wanted = [word.removeprefix("label=").split("=", 1) for word in words if word.startswith("label=")]
    return all(labels.get(key) == value for key, value in wanted)


def split(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        if word in VALUED:
            options.setdefault(word, []).append(rest.pop(0))
        else:
            options.setdefault(word, []).append("")
    return options, rest


def replace(file: Path, content: Any) -> None:
    """Write a file as a whole: tests read it at any moment."""
    new = file.parents[1] / f"{file.name}.{threading.get_ident()}"
    new.write_text(json.dumps(content))
    new.rename(file)


def say(file: int, text: str, code: int = 0) -> int:
    if text:
        os.write(file, f"{text}\n".encode())
    return code


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Engine(Path(sys.argv[2])).serve()
    client(*sys.argv[2:])
