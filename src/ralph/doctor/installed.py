"""An agent as it is installed here: where, which version, which flags it knows, whether it is logged in.

All of it is found out without a call to its provider. The program is asked for its version and its help, with
a time limit, in an empty directory, with an empty home and without any secret; nothing it starts is left.
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
"""A program that prints more than so many bytes when asked for its version or its help is ended."""

_MAX_WORDS = 120
_QUIET = {"NO_COLOR": "1", "TERM": "dumb", "CI": "1", "DO_NOT_TRACK": "1", "NO_UPDATE_NOTIFIER": "1"}
_VERSION = re.compile(r"(?<![\w.])v?(\d{1,9}(?:\.\d{1,9}){1,3}(?:[-+][\w.+-]{1,40})?)(?![\w.])")
_NODE_SCRIPT = re.compile(rb"#![^\n]*\bnode\b")


class Installed(Struct, frozen=True):
    """What was found of an agent. `program` is "" if it is nowhere; `problem`: it cannot be started.

    `unknown` are flags that Ralph uses and its help does not name; `unread`: why its help says nothing.
    `login` is what speaks for a login, "" if nothing does.
    """

    program: str = ""
    problem: str = ""
    version: str = ""
    unknown: tuple[str, ...] = ()
    unread: str = ""
    login: str = ""
    is_node_script: bool = False


def inspect(spec: AgentSpec, wakeup: Wakeup, seconds: float) -> Installed:
    """Look an agent up and, if Ralph knows its kind, ask it; each answer may take so many seconds."""
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
    """Where a run in this directory would find a program."""
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
    """What speaks for a login: the name of a variable or of a file. Neither is read."""
    for key in about.keys:
        if environment.get(key):
            return f"{key} is set"
    home = Path(environment.get("HOME") or Path.home())
    for login in about.logins:
        if os.path.isfile(home / login):
            return f"~/{login} is there"
    return ""


# ---- which flags ----


def unknown_flags(agent: Agent, help: str) -> tuple[str, ...]:
    """The flags of Ralph that a help text does not name."""
    assert agent.about is not None
    flags = dict.fromkeys((*agent.about.flags, *used_flags(agent)))
    return tuple(flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help))


def used_flags(agent: Agent) -> tuple[str, ...]:
    """The flags that stand in the command lines Ralph makes for it, for every purpose and permission."""
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


# ---- what it says ----


def version_in(text: str) -> str:
    """The first version number in what a program says of itself."""
    match = _VERSION.search(clean(text))
    return match[1] if match else ""


class AgentAnswer(Struct, frozen=True):
    """What a program printed. `problem`: why that is no answer. `failed`: it ran and said that it failed."""

    out: str
    err: str
    problem: str = ""
    failed: bool = False


def ask(
    owner: Warden, argv: Sequence[str], environment: Mapping[str, str], directory: int, seconds: float
) -> AgentAnswer:
    """Start a program that should soon be done, and collect what it prints; an interrupt ends it."""
    heard = _Heard()

    def watch(elapsed: float, idle: float) -> Ended | None:
        if owner.wakeup.count:
            return Ended.INTERRUPTED
        return Ended.TIMEOUT if heard.is_full or elapsed >= seconds else None

    exit = owner.run(ProcessCommand(argv, environment, directory), heard, watch)
    out, err = (text.decode(errors="replace") for text in (heard.out, heard.err))
    question = f"`{' '.join([os.path.basename(argv[0]), *argv[1:]])}`"
    if exit.error is not None:
        return AgentAnswer(out, err, f"it cannot be started: {os.strerror(exit.error)}")
    if heard.is_full:
        return AgentAnswer(out, err, f"{question} printed more than {MAX_ANSWER >> 20} MB")
    if exit.ended is not None or exit.lost:
        late = exit.ended is Ended.TIMEOUT
        return AgentAnswer(
            out, err, f"{question} {f'gave no answer in {seconds:g} s' if late else 'was ended'}"
        )
    if exit.code == 0:
        return AgentAnswer(out, err)
    how = f"signal {exit.signal}" if exit.code is None else f"exit {exit.code}"
    complaint = _last_line(err or out, Secrets(secret_values(environment)))
    return AgentAnswer(out, err, f"{question} failed ({how}){complaint}", failed=True)


def _last_line(text: str, secrets: Secrets) -> str:
    """The last line of a complaint, short and without secrets."""
    lines = [line.strip() for line in clean(secrets.text(text)).splitlines() if line.strip()]
    return f": {lines[-1][:_MAX_WORDS]}" if lines else ""


class Interview:
    """Asks a program harmless questions, one after the other. A context: leaving ends what it started."""

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
        """Some programs write to the home directory even for this, so they get an empty one.

        One that fails then may be a launcher that finds the real program by the home directory.
        """
        elsewhere = {k: v for k, v in self._environment.items() if not k.startswith("XDG_")}
        answer = self._ask(arguments, elsewhere | {"HOME": self._place.name})
        return self._ask(arguments, self._environment) if answer.failed else answer

    def _ask(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> AgentAnswer:
        with opened_directory(self._place.name) as directory:
            argv = [self._program, *arguments]
            return ask(self._warden, argv, environment, directory, self._seconds)


def harmless(environment: Mapping[str, str], keys: tuple[str, ...] = ()) -> dict[str, str]:
    """An environment without secrets, so that no answer can cost or tell anything."""
    secret = set(secret_values(environment))
    kept = {n: v for n, v in environment.items() if n not in keys and v not in secret}
    return kept | _QUIET


class _Heard:
    """What a program printed, up to a size."""

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
