"""Inspect an installed agent: its path, its version, its flags and its login.

This never calls the provider. The program only prints its version and its help, with a timeout, in an empty
directory, with an empty home directory and no secrets. Nothing it starts keeps running.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ralph.agents.base import About, Agent, Prompt
from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec, Ended, Permissions, Purpose
from ralph.core.text import clean
from ralph.process.client import ProcessCommand, Wakeup, Warden, child_environment, find_program
from ralph.redact import Secrets, secret_values
from ralph.store.files import opened_directory

MAX_ANSWER = 1 << 20
"""Maximum output for a version or a help, in bytes; a program that prints more is stopped."""

_MAX_WORDS = 120
_QUIET = {"NO_COLOR": "1", "TERM": "dumb", "CI": "1", "DO_NOT_TRACK": "1", "NO_UPDATE_NOTIFIER": "1"}
_VERSION = re.compile(r"(?<![\w.])v?(\d{1,9}(?:\.\d{1,9}){1,3}(?:[-+][\w.+-]{1,40})?)(?![\w.])")
_NODE_SCRIPT = re.compile(rb"#![^\n]*\bnode\b")


class Installed(Struct, frozen=True):
    """The facts about an installed agent.

    `program` is its path, "" if it was not found. `problem` is why it cannot be started. `unknown` are flags that
    Ralph uses but its help does not list. `unread` is why its help could not be read. `login` is the evidence for a
    login, "" if there is none.
    """

    program: str = ""
    problem: str = ""
    version: str = ""
    unknown: tuple[str, ...] = ()
    unread: str = ""
    login: str = ""
    is_node_script: bool = False


def inspect(spec: AgentSpec, wakeup: Wakeup, seconds: float) -> Installed:
    """Find an agent and, if Ralph supports it, ask for its version and help, each with a timeout in seconds."""
    agent = AGENTS[spec.type]
    environment = child_environment(dict(spec.env))
    found = look_up(_argv(agent, spec, Purpose.WORK)[0], environment)
    if found.problem or agent.about is None:
        return found
    found = replace(found, login=login_of(agent.about, environment))
    with Interview(found.program, harmless(environment, agent.about.keys), wakeup, seconds) as interview:
        version = interview.ask("--version")
        if version.problem:
            return replace(found, problem=version.problem)
        help = interview.ask(*agent.about.help)
    return replace(
        found,
        version=version_in(version.out) or version_in(version.err),
        unread=help.problem,
        unknown=() if help.problem else unknown_flags(agent, help.out + help.err),
    )


# ---- where it is ----


def look_up(name: str, environment: Mapping[str, str]) -> Installed:
    """Find a program as a run in this directory would."""
    path = environment.get("PATH", os.defpath)
    with opened_directory(".") as here:
        program, problem = find_program(name, path, here)
        if not problem:
            program = os.path.abspath(program)
            return Installed(program, is_node_script=_is_node_script(program))
        if "/" in name:
            return Installed(os.path.abspath(name), problem)
        for place in path.split(":"):
            candidate, problem = find_program(f"{place or '.'}/{name}", path, here)
            if os.path.lexists(candidate):
                return Installed(os.path.abspath(candidate), problem)
    return Installed(problem="not on PATH")


def _is_node_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return _NODE_SCRIPT.match(file.read(256)) is not None
    except OSError:
        return False


def login_of(about: About, environment: Mapping[str, str]) -> str:
    """Return the evidence for a login, the name of a variable or a file. Neither is read."""
    for key in about.keys:
        if environment.get(key):
            return f"{key} is set"
    home = Path(environment.get("HOME") or Path.home())
    for login in about.logins:
        if os.path.isfile(home / login):
            return f"~/{login} exists"
    return ""


# ---- which flags ----


def unknown_flags(agent: Agent, help: str) -> tuple[str, ...]:
    """Return the flags that Ralph uses but a help text does not list."""
    assert agent.about is not None
    flags = dict.fromkeys((*agent.about.flags, *used_flags(agent)))
    return tuple(flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help))


def used_flags(agent: Agent) -> tuple[str, ...]:
    """Return the flags in Ralph's command lines for an agent, for every purpose and permission."""
    flags: dict[str, None] = {}
    for purpose in Purpose:
        for permissions in Permissions:
            spec = AgentSpec("", "", "agent", prompt_via=agent.prompt_via, permissions=permissions)
            if purpose is Purpose.JUDGE:
                spec = agent.disarmed(replace(spec, flags=tuple(agent.model_flags("model"))))
            words = _argv(agent, spec, purpose)[1:]
            flags |= dict.fromkeys(word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word))
    return tuple(flags)


def _argv(agent: Agent, spec: AgentSpec, purpose: Purpose) -> list[str]:
    return agent.argv(spec, purpose, Prompt("prompt", "prompt.txt"))


# ---- version and help ----


def version_in(text: str) -> str:
    """Return the first version number in a program's output, or ""."""
    match = _VERSION.search(clean(text))
    return match[1] if match else ""


class AgentAnswer(Struct, frozen=True):
    """The output of a program. `problem` is why it is not usable; `failed` means the program exited with an error."""

    out: str
    err: str
    problem: str = ""
    failed: bool = False


def ask(
    owner: Warden, argv: Sequence[str], environment: Mapping[str, str], directory: int, seconds: float
) -> AgentAnswer:
    """Run a short-lived program and collect its output; a timeout or an interrupt stops it."""
    output = _Output()

    def watch(elapsed: float, idle: float) -> Ended | None:
        if owner.wakeup.count:
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if output.is_full or elapsed >= seconds else None

    exit = owner.run(ProcessCommand(argv, environment, directory), output, watch)
    out, err = (text.decode(errors="replace") for text in (output.out, output.err))
    question = f"`{' '.join([os.path.basename(argv[0]), *argv[1:]])}`"
    if exit.error is not None:
        return AgentAnswer(out, err, f"cannot be started: {os.strerror(exit.error)}")
    if output.is_full:
        return AgentAnswer(out, err, f"{question} printed more than {MAX_ANSWER >> 20} MB")
    if exit.ended is not None or exit.lost:
        late = exit.ended is Ended.TIMEOUT
        return AgentAnswer(
            out, err, f"{question} {f'timed out after {seconds:g} s' if late else 'was stopped'}"
        )
    if exit.code == 0:
        return AgentAnswer(out, err)
    how = f"signal {exit.signal}" if exit.code is None else f"exit {exit.code}"
    complaint = _last_line(err or out, Secrets(secret_values(environment)))
    return AgentAnswer(out, err, f"{question} failed ({how}){complaint}", failed=True)


def _last_line(text: str, secrets: Secrets) -> str:
    """Return the last line of an error output, shortened and without secrets."""
    lines = [line.strip() for line in clean(secrets.text(text)).splitlines() if line.strip()]
    return f": {lines[-1][:_MAX_WORDS]}" if lines else ""


class Interview:
    """Asks a program for its version and help. As a context manager, it stops everything it started on exit."""

    def __init__(self, program: str, environment: Mapping[str, str], wakeup: Wakeup, seconds: float) -> None:
        self._program = program
        self._environment = environment
        self._wakeup = wakeup
        self._seconds = seconds

    def __enter__(self) -> Interview:
        self._place = tempfile.TemporaryDirectory(prefix="ralph-doctor-", ignore_cleanup_errors=True)
        self._warden = Warden(self._wakeup)
        return self

    def __exit__(self, *_: object) -> None:
        self._warden.close()
        self._place.cleanup()

    def ask(self, *arguments: str) -> AgentAnswer:
        """Run the program in an empty home directory, since some write to it even for `--version`.

        If that fails, try the real one: the program may be a launcher that finds the agent in the home directory.
        """
        elsewhere = {k: v for k, v in self._environment.items() if not k.startswith("XDG_")}
        answer = self._ask(arguments, elsewhere | {"HOME": self._place.name})
        return self._ask(arguments, self._environment) if answer.failed else answer

    def _ask(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> AgentAnswer:
        with opened_directory(self._place.name) as directory:
            argv = [self._program, *arguments]
            return ask(self._warden, argv, environment, directory, self._seconds)


def harmless(environment: Mapping[str, str], keys: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the environment without secrets, so that no answer can cost money or leak anything."""
    secret = set(secret_values(environment))
    kept = {n: v for n, v in environment.items() if n not in keys and v not in secret}
    return kept | _QUIET


class _Output:
    """The output of a program, up to a maximum size."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    @property
    def is_full(self) -> bool:
        return len(self.out) > MAX_ANSWER or len(self.err) > MAX_ANSWER

    def stdout(self, data: bytes) -> None:
        self.out += data[: MAX_ANSWER + 1 - len(self.out)]

    def stderr(self, data: bytes) -> None:
        self.err += data[: MAX_ANSWER + 1 - len(self.err)]
