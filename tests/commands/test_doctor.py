"""`ralph doctor` as a user sees it, with small shell scripts as agents."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte
import pytest

from conftest import RALPH, Project, Recorded, Result, some, wait_until
from ralph.agents.registry import AGENTS
from ralph.doctor.environments import environment_findings
from ralph.doctor.finding import Finding, FindingState
from ralph.doctor.installed import unknown_flags, used_flags, version_in
from ralph.environments.base import Copy, Tools

KNOWN = [name for name, agent in AGENTS.items() if agent.about is not None]
KEYS = {key for agent in AGENTS.values() if agent.about for key in agent.about.keys}
SECRET = "sk-ant-secret-0123456789abcdef"


class Machine:
    """A project on a machine that has only git, a few tools and what a test installs."""

    def __init__(self, project: Project, tools: Path) -> None:
        self.project = project
        self.bin = tools
        self.home = tools.parent / "home"
        self.bin.mkdir()
        self.home.mkdir()
        for tool in ("git", "sleep", "env", "yes", "cat"):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        (self.home / ".gitconfig").write_text("[user]\nname = Test\nemail = test@localhost\n")
        self.set(PATH=str(self.bin), HOME=str(self.home), **dict.fromkeys(KEYS, ""))

    def set(self, **variables: str) -> None:
        self.project.extra_env |= variables

    def install(self, name: str, body: str, interpreter: str = "/bin/sh") -> Path:
        path = self.bin / name
        path.write_text(f"#!{interpreter}\n{body}\n")
        path.chmod(0o755)
        return path

    def install_agent(self, name: str = "claude", version: str = "", without: str = "") -> Path:
        """An agent that answers correctly; `version` replaces the version that Ralph was tested with."""
        about = AGENTS[name].about
        assert about is not None
        flags = [flag for flag in (*about.flags, *used_flags(AGENTS[name])) if flag != without]
        return self.install(
            name,
            f"""case "$*" in
            --version) echo '{version or about.seen or "0.1.2"} ({about.title})';;
            '{" ".join(about.help)}') echo 'Options: {", ".join(flags)}';;
            *) exit 64;;
            esac""",
        )

    def doctor(self, *arguments: str) -> Result:
        return self.project.run("doctor", *arguments)

    def findings(self, *arguments: str) -> dict[str, dict[str, str]]:
        """The findings by name; `code` is the expected exit code."""
        result = self.doctor("--json", *arguments)
        self.code = result.code
        return {each["name"]: each for each in json.loads(result.out)}


@pytest.fixture
def machine(repository: Project, tmp_path: Path) -> Machine:
    """A repository with claude configured, on an empty machine."""
    repository.settings(agent={"command": "claude"})
    return Machine(repository, tmp_path / "bin")


@pytest.fixture
def healthy(machine: Machine) -> Machine:
    """The same with claude installed and a key set."""
    machine.install_agent()
    machine.set(ANTHROPIC_API_KEY=SECRET)
    return machine


# ---- output ----


def test_all_is_well(healthy: Machine) -> None:
    """One line each, the configured agent first; exit code 0, and no secret anywhere."""
    result = healthy.doctor()
    lines = [re.split(r"\s{2,}", line.replace("] ", "]  ", 1))[:2] for line in result.out.splitlines()]
    others = [["[--]", name] for name in KNOWN if name != "claude"]
    rest = ("guard", "settings", "git", "state directory", "processes", "python", "terminal")
    (sandbox,) = [line for line in lines if line[1] == "sandbox"]
    lines.remove(sandbox)  # depends on this machine
    assert lines == [["[OK]", "agent claude"], *others, *(["[OK]", name] for name in rest)]
    assert (result.code, result.err) == (0, "Ready to run.\n")
    assert result.out.splitlines()[0].split(None, 3)[3] == (
        f"Claude Code 2.1.325 at {healthy.bin}/claude; tested with Ralph;"
        " supports all flags that Ralph uses; probably logged in (ANTHROPIC_API_KEY is set)"
    )
    assert SECRET not in result.out


def test_json_says_the_same(healthy: Machine) -> None:
    """A list of objects with name, state, found and advice."""
    result = healthy.doctor("--json")
    found = json.loads(result.out)
    assert (result.code, result.err) == (0, "")
    assert {tuple(each) for each in found} == {("name", "state", "found", "advice")}
    assert {each["state"] for each in found} <= {"ok", "absent"}
    assert {"name": "amp", "state": "absent", "found": "Amp is not on PATH", "advice": ""} in found


def test_on_a_terminal_it_is_wrapped(machine: Machine) -> None:
    """80 columns, emoji, the advice on a separate line; no line is too long."""
    project = machine.project
    env = project.env | {"TERM": "xterm-256color", "NO_COLOR": "", "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    master, slave = pty.openpty()
    process = subprocess.Popen([RALPH, "doctor"], cwd=project.path, env=env, stdout=slave, stderr=slave)
    os.close(slave)
    screen, raw = pyte.Screen(80, 60), b""
    while data := _read(master):
        raw += data
        pyte.ByteStream(screen).feed(data)
    os.close(master)
    shown = [line.rstrip() for line in screen.display]
    assert (process.wait(), "\x1b[31m❌ agent claude".encode() in raw) == (2, True)
    assert shown[:3] == [
        "❌ agent claude     not on PATH",
        "                    → Install Claude Code, or set its full path in",
        "                    agent.command.",
    ]
    assert "Not ready: 1 problem." in shown


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.parametrize("encoding", some(["ascii", "latin-1", "utf-8"], 1))
def test_any_encoding_will_do(healthy: Machine, encoding: str) -> None:
    """A name that cannot be printed does not make the command fail."""
    healthy.project.settings(agent={"command": "./mein-ägent-🤖"})
    healthy.set(PYTHONIOENCODING=encoding)
    for arguments in ([], ["--json"]):
        done = subprocess.run(
            [RALPH, "doctor", *arguments],
            cwd=healthy.project.path,
            env=healthy.project.env,
            capture_output=True,
        )
        assert (done.returncode, b"no such file" in done.stdout) == (2, True)


# ---- agents ----

HANGS = "sleep 30"
BROKEN: dict[str, tuple[Callable[[Machine], object], str, str]] = {
    # name: (setup, finding, advice)
    "missing": (
        lambda machine: None,
        "not on PATH",
        "Install Claude Code, or set its full path in agent.command.",
    ),
    "directory": (
        lambda machine: (machine.bin / "claude").mkdir(),
        "not a regular file ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "not executable": (
        lambda machine: (machine.bin / "claude").write_text("#!/bin/sh\n"),
        "not executable ({program})",
        "Make it executable: chmod +x {program}",
    ),
    "dangling link": (
        lambda machine: (machine.bin / "claude").symlink_to("nowhere"),
        "no such file ({program})",
        "Correct the path in agent.command.",
    ),
    "lost interpreter": (
        lambda machine: machine.install("claude", "", interpreter="/no/such"),
        "cannot be started: No such file or directory ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "hang": (
        lambda machine: machine.install("claude", HANGS),
        "`claude --version` timed out after 1 s ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "flood": (
        lambda machine: machine.install("claude", "exec yes"),
        "`claude --version` printed more than 1 MB ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "flood on stderr": (
        lambda machine: machine.install("claude", "exec yes >&2"),
        "`claude --version` printed more than 1 MB ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "failure": (
        lambda machine: machine.install("claude", "printf 'a\\n\\033[31mno licence\\n' >&2; exit 3"),
        "`claude --version` failed (exit 3): no licence ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
    "killed": (
        lambda machine: machine.install("claude", "kill -SEGV $$"),
        "`claude --version` failed (signal 11) ({program})",
        "Run `claude --version` to see the problem, or set another command in agent.command.",
    ),
}


@pytest.mark.parametrize("kind", some(BROKEN, 6))
def test_an_agent_that_cannot_work_is_one_line(machine: Machine, kind: str) -> None:
    """Every kind of problem: an error, advice, exit code 2."""
    make, found, advice = BROKEN[kind]
    make(machine)
    result = machine.doctor("--json", "--timeout", "1")
    program = f"{machine.bin}/claude"
    assert (result.code, result.err) == (2, "")
    assert json.loads(result.out)[0] == {
        "name": "agent claude",
        "state": "error",
        "found": found.format(program=program),
        "advice": advice.format(program=program),
    }


def test_a_broken_agent_that_is_not_configured_is_a_warning(healthy: Machine) -> None:
    """So is a broken fallback: a run works without it."""
    healthy.install("amp", "exit 1")
    assert (healthy.findings()["amp"]["state"], healthy.code) == ("warning", 0)
    healthy.project.settings(agent={"command": "claude", "fallbacks": [{"command": "amp"}]})
    found = healthy.findings()
    assert list(found)[:2] == ["agent claude", "fallback amp"]
    assert (found["fallback amp"]["state"], healthy.code) == ("warning", 0)


@pytest.mark.parametrize("output", ["", "no number", "\\377\\000\\033]0;title\\007", "1", "99999999999.1"])
def test_garbage_does_not_count_as_a_version(healthy: Machine, output: str) -> None:
    """The version is unknown; the agent may still work."""
    healthy.install("claude", f"printf '{output}'")
    found = healthy.findings()["agent claude"]
    assert (found["state"], "Claude Code (unknown version) at" in found["found"]) == ("warning", True)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.325 (Claude Code)", "2.1.325"),
        ("codex-cli 0.166.0\n", "0.166.0"),
        ("v20.20.2", "20.20.2"),
        ("tool 1.2.3-rc.1+build", "1.2.3-rc.1+build"),
        ("git version 2.39.5 (Apple Git-154)", "2.39.5"),
        ("at 127.0.0.1.5.6", ""),
    ],
)
def test_a_version_in_words(text: str, version: str) -> None:
    """The first dotted number that stands by itself."""
    assert version_in(text) == version


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("2.1.326", "ok", "newer than 2.1.325, the version tested with Ralph"),
        ("10.0.0", "ok", "newer than 2.1.325, the version tested with Ralph"),
        ("2.1.99", "warning", "older than 2.1.325, the version tested with Ralph"),
        ("2.1.325-beta", "ok", "tested with Ralph"),
    ],
)
def test_other_versions(healthy: Machine, version: str, state: str, words: str) -> None:
    """A newer version is fine as long as it has the flags; an older one is a warning."""
    healthy.install_agent(version=version)
    found = healthy.findings()["agent claude"]
    assert (found["state"], found["found"].split("; ")[1]) == (state, words)


def test_an_agent_that_was_never_tested(healthy: Machine) -> None:
    """Amp is reported as not tested."""
    healthy.install_agent("amp")
    healthy.set(AMP_API_KEY=SECRET)
    found = healthy.findings()["amp"]
    assert (found["state"], "; not tested with Ralph; " in found["found"]) == (
        "warning",
        True,
    )


def test_a_flag_that_is_gone(healthy: Machine) -> None:
    """The help does not list a flag that Ralph uses: a run might fail."""
    healthy.install_agent(without="--permission-mode")
    found = healthy.findings()["agent claude"]
    assert (found["state"], found["advice"]) == (
        "warning",
        "Update the agent or Ralph: a run might fail with an unknown option.",
    )
    assert "; its help does not list --permission-mode; " in found["found"]


@pytest.mark.slow
def test_a_help_that_cannot_be_read(healthy: Machine) -> None:
    """The flags are unknown, which is not an error."""
    healthy.install("claude", '[ "$1" = --version ] && echo 2.1.325 || exec sleep 30')
    result = healthy.doctor("--timeout", "1")
    assert "flags not checked: `claude --help` timed out after 1 s;" in result.out
    assert result.code == 0


@pytest.mark.parametrize("name", KNOWN)
def test_the_list_of_flags_is_not_stale(name: str) -> None:
    """The flags that an adapter lists are those in its command lines, by their long names."""
    about, used = AGENTS[name].about, used_flags(AGENTS[name])
    assert about is not None
    long, short = {f for f in used if f.startswith("--")}, {f for f in used if not f.startswith("--")}
    assert long <= set(about.flags)
    assert len(set(about.flags) - long - short) <= len(short), "a flag that is not used any more"


def test_a_flag_is_a_whole_word() -> None:
    """`--print-logs` does not match `--print`, nor `--no-verbose` `--verbose`."""
    help = (
        "-p, --print-logs --no-verbose --output-format=<x> [--permission-mode] --dangerously-skip-permissions"
        " --model --tools --strict-mcp-config --no-session-persistence"
    )
    assert unknown_flags(AGENTS["claude"], help) == ("--print", "--verbose")


# ---- logins ----


def test_a_login_file(machine: Machine) -> None:
    """It is enough that the file exists; it is not read, so it need not be readable."""
    machine.install_agent()
    assert machine.findings()["agent claude"] == {
        "name": "agent claude",
        "state": "warning",
        "found": f"Claude Code 2.1.325 at {machine.bin}/claude; tested with Ralph;"
        " supports all flags that Ralph uses; login status unknown",
        "advice": "To log in: run `claude` and type /login, or set ANTHROPIC_API_KEY.",
    }
    login = machine.home / ".claude" / ".credentials.json"
    login.parent.mkdir()
    login.write_text(SECRET)
    login.chmod(0)
    found = machine.findings()["agent claude"]
    assert (found["state"], found["found"].split("; ")[-1]) == (
        "ok",
        "probably logged in (~/.claude/.credentials.json exists)",
    )


def test_a_key_in_the_settings(machine: Machine) -> None:
    """`agent.env` counts too, and is not shown."""
    machine.install_agent()
    machine.project.settings(agent={"command": "claude", "env": {"ANTHROPIC_API_KEY": SECRET}})
    result = machine.doctor()
    assert ("(ANTHROPIC_API_KEY is set)" in result.out, SECRET in result.out) == (True, False)


# ---- how agents are asked ----


def test_agents_are_asked_harmlessly(healthy: Machine, tmp_path: Path) -> None:
    """An empty directory, an empty home, no key, no input; files that the agent writes there are removed."""
    log = tmp_path / "log"
    healthy.install(
        "claude",
        f"""{{ env; pwd; cat; echo *; }} >> {log} 2>&1
        echo mess > "$HOME/mess"
        echo 2.1.325""",
    )
    healthy.set(MY_SERVICE_TOKEN="hush-hush-hush", XDG_CONFIG_HOME=str(healthy.home))
    before = sorted(healthy.home.rglob("*"))
    healthy.doctor()
    said = log.read_text()
    home = Path(re.findall(r"^HOME=(.*)$", said, re.MULTILINE)[0])
    assert home.name.startswith("ralph-doctor-") and not home.exists()
    for secret in (SECRET, "hush-hush", "ANTHROPIC_API_KEY", "XDG_CONFIG_HOME"):
        assert secret not in said
    assert sorted(healthy.home.rglob("*")) == before
    assert {path.name for path in healthy.project.path.iterdir()} == {".git", ".ralph", "README.md"}


def test_a_launcher_that_needs_the_home_directory(healthy: Machine) -> None:
    """The shim of a version manager finds the real program through its settings in the home directory."""
    (healthy.home / ".tool-versions").write_text("claude 2.1.325\n")
    real = healthy.install_agent()
    real.rename(healthy.bin / "real-claude")
    healthy.install("claude", '[ -e "$HOME/.tool-versions" ] || exit 126\nexec real-claude "$@"')
    assert healthy.findings()["agent claude"]["state"] == "ok"


def test_nothing_is_left_running(healthy: Machine, tmp_path: Path) -> None:
    """Neither a child that stays behind, nor an agent that does not answer and ignores SIGTERM."""
    pids = tmp_path / "pids"
    healthy.install(
        "claude",
        f"(trap '' HUP; sleep 30) & echo $! >> {pids}; echo $$ >> {pids}\n"
        '[ "$1" = --version ] && echo 2.1.325 && exit 0\nsleep 30',
    )
    assert healthy.doctor("--timeout", "1").code == 0
    recorded = Recorded(pids)
    assert (len(recorded.pids()), recorded.alive()) == (4, [])


def test_an_interrupt_stops_it(healthy: Machine, tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, nothing is printed, no process is left."""
    pids = tmp_path / "pids"
    healthy.install("claude", f"echo $$ >> {pids}\n{HANGS}")
    process = healthy.project.start("doctor")
    wait_until(lambda: Recorded(pids).pids())
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10) == ("", "")
    assert (process.returncode, Recorded(pids).alive()) == (130, [])


def test_agents_are_asked_at_the_same_time(healthy: Machine, tmp_path: Path) -> None:
    """Two agents that wait for each other both answer."""
    for name, other in (("claude", "codex"), ("codex", "claude")):
        healthy.install(
            name,
            f"""touch() {{ : > "$1"; }}
            touch {tmp_path}/{name}
            while [ ! -e {tmp_path}/{other} ]; do sleep 0.05; done
            [ "$1" = --version ] && echo 99.0.0""",
        )
    healthy.project.settings(agent={"command": "claude", "fallbacks": [{"command": "codex"}]})
    found = healthy.findings()
    assert "99.0.0" in found["agent claude"]["found"] and "99.0.0" in found["fallback codex"]["found"]


# ---- custom commands ----


def test_a_custom_command_is_looked_up_and_never_started(machine: Machine) -> None:
    """There is no telling what it would do with --version."""
    script = machine.project.script("agent.sh", "touch started")
    machine.project.settings(agent={"command": "./agent.sh"})
    result = machine.doctor()
    assert (result.code, result.out.splitlines()[0]) == (0, f"[OK]   agent ./agent.sh  {script}")
    assert not (machine.project.path / "started").exists()


def test_a_wrapper_of_a_known_agent_is_asked(healthy: Machine) -> None:
    """With agent.type it counts as that agent; the path may be relative."""
    (healthy.bin / "claude").rename(healthy.project.path / "my-claude")
    healthy.project.settings(agent={"command": "./my-claude", "type": "claude"})
    assert healthy.findings()["agent ./my-claude"]["state"] == "ok"


def test_the_scripted_agent_is_always_there(machine: Machine) -> None:
    """It comes with Ralph, so there is nothing to install."""
    machine.project.settings(agent={"command": "scripted", "flags": ["script.yaml"]})
    assert machine.findings()["agent scripted"]["state"] == "ok"


# ---- settings ----


def test_no_agent_is_configured(healthy: Machine) -> None:
    """An error that suggests an installed agent."""
    (healthy.project.path / ".ralph" / "settings.json").unlink()
    found = healthy.findings()
    assert (healthy.code, found["agent"], found["settings"]["state"]) == (
        2,
        {
            "name": "agent",
            "state": "error",
            "found": "no agent configured",
            "advice": "Run `ralph init`, or name one: ralph run --agent claude",
        },
        "ok",
    )


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({"agent": {"comand": "x"}}, "settings", ".ralph/settings.json:1: unknown key 'agent.comand'."),
        ({"agent": {"command": "x", "type": "y"}}, "agent", "agent.type: unknown agent 'y'."),
        ({"agent": {"command": "x", "flags": ["'"]}}, "agent", "agent.flags: No closing quotation."),
    ],
)
def test_settings_that_are_not_valid(
    machine: Machine, settings: dict[str, Any], name: str, words: str
) -> None:
    """They are one error, with file and line; everything else is still checked."""
    machine.project.settings(**settings)
    found = machine.findings()
    errors = [each["name"] for each in found.values() if each["state"] == "error"]
    assert (machine.code, errors, found[name]["found"]) == (2, [name], words)
    assert found["git"]["state"] == "ok"


def test_another_settings_file(healthy: Machine) -> None:
    """`--settings` names it; a missing one is an error."""
    (healthy.project.path / "mine.json").write_text('{"agent": {"command": "amp"}}')
    assert "agent amp" in healthy.findings("--settings", "mine.json")
    missing = healthy.doctor("--settings", "none.json")
    assert (missing.code, "[ERR]  settings" in missing.out) == (2, True)


# ---- git, node, the store, the system ----


def test_git_is_missing(healthy: Machine) -> None:
    """An error if snapshots are enabled, otherwise a warning."""
    (healthy.bin / "git").unlink()
    found = healthy.findings()["git"]
    assert (healthy.code, found["state"], found["found"]) == (2, "error", "not on PATH")
    healthy.project.settings(agent={"command": "claude"}, snapshots=False)
    assert (healthy.findings()["git"]["state"], healthy.code) == ("warning", 0)
    healthy.project.settings(agent={"command": "claude"}, snapshots=False, scm={"command": "git"})
    assert (healthy.findings()["git"]["state"], healthy.code) == ("error", 2)


def test_no_git_identity(healthy: Machine) -> None:
    """A warning with the command to run."""
    (healthy.home / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    found = healthy.findings()["git"]
    assert (found["state"], found["found"].split("; ")[-1]) == ("warning", "git identity not set")
    assert found["advice"].startswith("Set it: git config --global user.email")


def test_no_repository(healthy: Machine) -> None:
    """A warning, unless neither snapshots nor commits are enabled."""
    shutil.rmtree(healthy.project.path / ".git")
    found = healthy.findings()["git"]
    assert (found["state"], found["found"].split("; ")[-1]) == ("warning", "not a git repository")
    healthy.project.settings(agent={"command": "claude"}, snapshots=False)
    assert healthy.findings()["git"]["state"] == "ok"


@pytest.mark.slow
def test_a_git_that_hangs(healthy: Machine) -> None:
    """It times out like an agent."""
    (healthy.bin / "git").unlink()
    healthy.install("git", '[ "$1" = --version ] && exec sleep 30; exit 1')
    found = healthy.findings("--timeout", "1")["git"]
    assert (found["state"], found["found"]) == ("error", "`git --version` timed out after 1 s")


def test_a_program_from_npm_needs_node(healthy: Machine) -> None:
    """Without node, one line has the agent's own error and another what to install."""
    healthy.install("claude", "", interpreter=f"{shutil.which('env')} node")
    found = healthy.findings()
    assert found["agent claude"]["state"] == "error"
    assert "`claude --version` failed (exit 127): " in found["agent claude"]["found"]
    assert (found["node"]["found"], found["node"]["advice"]) == (
        "not on PATH",
        "Install Node.js, which claude needs.",
    )
    healthy.install("node", "echo v20.1.2")
    assert healthy.findings()["node"]["found"] == f"20.1.2 at {healthy.bin}/node"


def test_a_state_directory_that_cannot_be_used(healthy: Machine) -> None:
    """An error: without a journal there is no run."""
    healthy.set(RALPH_STATE_DIR="/dev/null/ralph")
    result = healthy.doctor()
    assert (result.code, "[ERR]  state directory  RALPH_STATE_DIR: /dev/null/ralph" in result.out) == (
        2,
        True,
    )


def test_a_damaged_store(healthy: Machine) -> None:
    """The same, with advice."""
    healthy.project.home.database.write_bytes(b"no database" * 1000)
    found = healthy.findings()["state directory"]
    assert (found["state"], found["advice"][:23]) == ("error", "It is not a Ralph store")


def test_the_store_is_where_it_is(healthy: Machine) -> None:
    """Its path, its size and the free space."""
    found = healthy.findings()["state directory"]
    number = r"\d+(\.\d)? (bytes|KB|MB|GB|TB)"
    path = re.escape(str(healthy.project.home.path))
    assert re.fullmatch(rf"{path} is writable; {number} used, {number} free", found["found"])


# ---- worktrees ----


def test_a_lock_file_that_was_never_installed(healthy: Machine) -> None:
    """A warning, until it is installed or `ralph.setup` is set, which is then shown."""
    project = healthy.project
    assert "ralph.setup" not in healthy.findings()
    (project.path / "package-lock.json").write_text("{}")
    assert healthy.findings()["ralph.setup"] == {
        "name": "ralph.setup",
        "state": "warning",
        "found": "not set, and package-lock.json is not installed here: there is no node_modules",
        "advice": 'Run `npm ci`. If worktrees of tasks need it too, set ralph.setup to "npm ci".',
    }
    assert healthy.code == 0
    (project.path / "node_modules").mkdir()
    assert "ralph.setup" not in healthy.findings()
    project.settings(agent={"command": "claude"}, ralph={"setup": "npm ci"})
    found = healthy.findings()["ralph.setup"]
    assert (found["state"], found["found"]) == ("ok", "npm ci: runs in every new worktree of a task")


class Wheels:
    """An ecosystem that is found in projects with a file `wheels`."""

    sources: Sequence[str] = ()
    name = "Wheels"

    def detect(self, copy: Copy, environment: Mapping[str, str]) -> bool:
        return (copy.origin_directory / "wheels").exists()

    def prepare(self, copy: Copy, tools: Tools) -> None:
        raise AssertionError

    def variables(self, copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
        return {}

    def leads_out(self, copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
        return ()

    def describe(self, copy: Copy, environment: Mapping[str, str]) -> str:
        return "worktrees get their own wheels"

    def reads(self, copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
        return ()


def test_the_ecosystems_of_a_project_are_found(repository: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python by its environment, the others by their files in the checkout."""
    venv.create(repository.path / ".venv", symlinks=True)
    for name in ("package.json", "package-lock.json", "go.mod", "Cargo.toml", "pom.xml", "build.gradle"):
        (repository.path / name).write_text("{}")
    monkeypatch.chdir(repository.path)
    found = [finding.name for finding in environment_findings("")]
    names = ("Python", "Node", "Go", "Cargo", "Maven", "Gradle")
    assert [name for name in found if name.startswith("worktrees ")] == [
        f"worktrees {name}" for name in names
    ]


def test_what_worktrees_get(repository: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for each ecosystem of the project; none outside git."""
    monkeypatch.chdir(repository.path)
    assert environment_findings("", (Wheels(),)) == []
    (repository.path / "wheels").touch()
    expected = Finding("worktrees Wheels", FindingState.OK, "worktrees get their own wheels")
    assert environment_findings("", (Wheels(),)) == [expected]
    monkeypatch.chdir(repository.path.parent)
    assert environment_findings("", (Wheels(),)) == []
