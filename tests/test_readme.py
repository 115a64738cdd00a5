"""Every command in README.md works, from a fresh clone and in the order of the page.

The shell blocks run as they are, in a clone of the tracked files and with an empty home. SUBSTITUTIONS and PARSED_ONLY list
every exception: placeholders (`<this repository>`, `RUN`), commands that would take too long (`pytest` would run this test
again, so the tests are only collected; benchmarks only check their arguments), and interactive commands. `claude` is a
program that answers as Claude Code does, and an existing uv is used instead of downloading another one.

Commands within sentences and tables are parsed: the command and each of its options exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from conftest import wait_until
from ralph.cli import make_group, with_default_command

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

SUBSTITUTIONS = [
    (r"<this repository>|https?://\S+/ralph(\.git)?(?=\s)", "ORIGIN"),
    (r"^cd \S*(your|my|path)\S*", "cd PROJECT"),
    (r"scripts/uv run pytest\b[^&|;#]*", "scripts/uv run pytest --collect-only -q -n0 tests/core "),
    (r"(python -m bench\b[^&|;#]*)", r"\1 --help "),
    (r"^make test\S*", "make -n test"),
    (r"^(ralph init)\b", r"\1 --yes --force"),
    (r"^(ralph (?:rewind|prune)\b)", r"\1 --yes"),
    (r"^ralph prd plan\b", "ralph prd import prd.json"),
    (r"^(ralph prd run)\b", r"\1 --no-sandbox -n 1"),
    (r"--agent (?:codex|gemini|opencode|amp)\b", "--agent ./my-agent.sh"),
]
"""Patterns in the page, and what runs instead."""

PARSED_ONLY = ("ralph tui", "ralph bus tail", "ralph dev model-server")
"""Interactive commands: they run until someone quits them."""

EXIT_CODES = {
    r"^ralph doctor .*--sandbox": (0, 1, 2),
    r"^ralph run .*--sandbox": (0, 2),
    r"^ralph prd run": (0, 1),
}
"""Commands that may exit with another code than 0: not every machine has a sandbox, and the agent here writes no stories."""

NEEDS_LIVE_RUN = ("steer", "pause", "cancel")
NEEDS_STOPPED_RUN = ("resume",)
LIVE = ("running", "paused", "waiting")

CLAUDE = """#!/bin/sh
# Answers as Claude Code does, and claims to be done.
case " $* " in *" --version "*) echo "2.1.325 (Claude Code)"; exit;; *" --help "*|*" -p "*) ;; *) exit;; esac
promise=$(sed -n 's/.*\\(<promise>.*<.promise>\\).*/\\1/p' | tail -1)
[ -z "${RALPH_ROLE-}" ] || { mkdir -p src/auth; echo "# valid" > src/auth/jwt.py; }
[ -z "${TASK_FOLDER-}" ] || touch "$TASK_FOLDER/DONE"
text="Done.\\n${promise:-<response>DONE</response>}"
echo '{"type":"system","subtype":"init","session_id":"s1","model":"scripted"}'
printf '%s\\n' '{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"'"$text"'"}]}}'
printf '%s\\n' '{"type":"result","subtype":"success","is_error":false,"result":"'"$text"'"}'
"""

STORY = {"id": "S-1", "title": "Log in", "acceptanceCriteria": ["It works"], "passes": False, "priority": 1}

PROJECT = {
    "Makefile": "test lint:\n\ttrue\n",
    "PROMPT.md": "Do something.\n",
    "my-agent": '#!/bin/sh\ntouch "$TASK_FOLDER/DONE"\n',
    "my-agent.sh": '#!/bin/sh\necho "$RALPH_ITERATION" > work.txt\necho "<response>DONE</response>"\n',
    "waits.sh": '#!/bin/sh\n[ -e ../go ] || { touch ../waiting; sleep 600; }\necho "<response>DONE</response>"\n',
    "thrice.sh": "#!/bin/sh\ndate +%N > work.txt\n"
    '[ "$RALPH_ITERATION" -lt 3 ] || echo "<response>DONE</response>"\n',
    "tasks/build/TASK.md": "Build it.\n",
    "plan.yaml": "- {id: T-9, title: Nine, completion: {outcome: Nine, acceptance_criteria: [Nine]}}\n",
    "prd.json": json.dumps({"project": "Login", "branchName": "login", "userStories": [STORY]}),
    ".ralph/settings.local.json": json.dumps(
        {"ralph": {"agents": {role: {"enabled": False} for role in ("reviewer", "tester", "qa")}}}
    ),
}
"""The project of somebody who follows the page, with the files that it names."""


def blocks(language: str, page: str = README) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Return the commands of a block: lines, joined where one of them is not complete."""
    found: list[str] = []
    for line in block.splitlines():
        if found and not _is_complete(found[-1]):
            found[-1] += f"\n{line}"
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(line)
    return found


def _is_complete(text: str) -> bool:
    checked = subprocess.run(["bash", "-n", "-c", text], capture_output=True)
    return not text.endswith("\\") and checked.returncode == 0 and not checked.stderr


@dataclass
class Reader:
    """Somebody who types what the page says. `places`: the directory of the clone, and of the project."""

    base: Path
    kind: str = "clone"
    places: dict[str, Path] = field(default_factory=dict)
    done: str = ""

    def __post_init__(self) -> None:
        self.home, self.origin = self.base / "home", self.base / "origin"
        self.places = {"clone": self.base, "project": self.base / "project"}
        programs = self.base / "bin"
        for directory in (self.home, programs, self.origin, self.base / "tmp"):
            directory.mkdir()
        names = self._git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(None, names):
            if os.path.lexists(ROOT / name):
                (self.origin / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.origin / name, follow_symlinks=False)
        for name, text in PROJECT.items():
            path = self.places["project"] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        (programs / "claude").write_text(CLAUDE)
        (programs / "claude").chmod(0o755)
        uv = os.environ.get("UV") or shutil.which("uv")
        if uv:
            (programs / "uv").symlink_to(uv)
        (self.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.com\n")
        for place in (self.origin, self.places["project"]):
            self._git(place, "init", "-q", "-b", "main")
            self._git(place, "add", "-A")
            self._git(place, "commit", "-q", "-m", "First")

    @property
    def environment(self) -> dict[str, str]:
        mine = ("RALPH_", "GIT_", "PYTEST_", "VIRTUAL_ENV", "CLAUDE", "XDG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        home = Path.home()
        path = [self.base / "bin", self.home / ".local/bin"]
        without = [each for each in os.environ["PATH"].split(os.pathsep) if not _has_ralph(each)]
        return {
            "UV_CACHE_DIR": str(home / ".cache" / "uv"),
            "PIP_CONFIG_FILE": str(home / ".config" / "pip" / "pip.conf"),
            **inherited,
            "HOME": str(self.home),
            "TMPDIR": str(self.base / "tmp"),
            "PATH": os.pathsep.join([*map(str, path), *without]),
            "UV_PYTHON": sys.executable,
        }

    def follow(self, command: str) -> None:
        """Run a command of the page where a reader would."""
        self.kind = self._kind_of(command)
        text = command
        for pattern, instead in SUBSTITUTIONS:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        text = text.replace("ORIGIN", str(self.origin)).replace("PROJECT", str(self.places["project"]))
        verb = (re.search(r"^ralph (?:-\S+ )*(\w+)", text) or ["", ""])[1]
        if verb in NEEDS_LIVE_RUN:
            text = re.sub(r"\bRUN\b", self._live_run(), text)
        elif verb in NEEDS_STOPPED_RUN:
            text = re.sub(r"\bRUN\b", self._stopped_run(), text)
        elif re.search(r"\bRUN\b", text):
            text = re.sub(r"\bRUN\b", self._done_run(), text)
        expected = next((codes for pattern, codes in EXIT_CODES.items() if re.search(pattern, text)), (0,))
        self._shell(text, self.kind, expected)
        if verb in NEEDS_LIVE_RUN:
            self.stop_runs()
        elif verb == "run":  # it may have gone to the background
            self._wait()

    def _kind_of(self, command: str) -> str:
        if re.search(r"\bgit clone\b|scripts/uv|^make |\.ci/run", command):
            return "clone"
        if command.startswith("cd "):
            return "project" if re.match(SUBSTITUTIONS[1][0], command) else self.kind
        return "project"

    def _shell(self, text: str, kind: str = "project", expected: tuple[int, ...] = (0,)) -> str:
        """Run a text in the current directory of its kind; the next one continues in the directory where it ends."""
        ends = self.base / "pwd"
        script = f"set -eu\ntrap 'pwd > {shlex.quote(str(ends))}' EXIT\n{text}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.places[kind],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in expected, (
            f"{text}\n\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        self.places[kind] = Path(ends.read_text().strip())
        return done.stdout

    # ---- runs to name ----

    def _live_run(self) -> str:
        """A run whose agent waits."""
        for name in ("go", "waiting"):
            (self.base / name).unlink(missing_ok=True)
        self._shell("ralph run -p Wait --agent ./waits.sh --detach")
        wait_until((self.base / "waiting").exists)
        return str(self._runs()[0]["id"])

    def _stopped_run(self) -> str:
        """A run that was cancelled, and whose agent does not wait a second time."""
        run = self._live_run()
        self.stop_runs()
        (self.base / "go").touch()
        return run

    def _done_run(self) -> str:
        """A run of three iterations."""
        if not self.done:
            self._shell("ralph run -p Work --agent ./thrice.sh")
            self.done = str(self._runs()[0]["id"])
        return self.done

    def stop_runs(self) -> None:
        """Cancel the runs that are still live, and wait until they have ended."""
        for run in self._runs():
            if run["state"] in LIVE:
                self._shell(f"ralph cancel {run['id']}")
        self._wait()

    def _wait(self) -> None:
        wait_until(lambda: not any(run["state"] in LIVE for run in self._runs()), every=0.2)

    def _runs(self) -> list[dict[str, object]]:
        """All runs, the newest first; none before ralph is installed."""
        if not (self.home / ".local/bin/ralph").exists():
            return []
        found: list[dict[str, object]] = json.loads(self._shell("ralph status --json"))
        return sorted(found, key=lambda run: str(run["created"]), reverse=True)

    def _git(self, where: Path, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=where, env=self.environment, check=True, capture_output=True, text=True
        ).stdout


def _has_ralph(directory: str) -> bool:
    return (Path(directory) / "ralph").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_of_the_page_works_in_a_fresh_clone(tmp_path: Path) -> None:
    """Each block in its order; `ralph` is there only after the page has installed it."""
    reader = Reader(tmp_path)
    try:
        for block in blocks("sh"):
            for command in commands(block):
                if command.startswith(PARSED_ONLY):
                    parse(command)
                else:
                    reader.follow(command)
    finally:
        reader.stop_runs()


# ---- commands that are only parsed ----


def parse(text: str) -> None:
    """Fail unless the command and all its options exist."""
    words = shlex.split(text, comments=True)[1:]
    words = with_default_command(words)
    command: click.Command = make_group()
    context = click.Context(command, info_name="ralph", **command.context_settings)
    names: list[str] = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        if not re.fullmatch(r"[a-z-]+", name):  # COMMAND, RUN, …
            return
        inner = command.get_command(context, name)
        assert inner is not None, f"{text}: there is no command {name!r}"
        names.append(name)
        command, context = inner, click.Context(inner, context, info_name=name)
    known = {
        option
        for parameter in command.get_params(context)
        for option in [*parameter.opts, *parameter.secondary_opts]
    }
    ours = words[: words.index("--")] if "--" in words else words
    for word in ours:
        if re.match(r"--?[a-zA-Z]", word):
            assert word.partition("=")[0] in known, f"{text}: ralph {' '.join(names)} has no option {word}"


def inline() -> list[str]:
    """Return the text in backticks that starts with one of the programs of the page."""
    text = re.sub(r"^```(?!sh).*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    return sorted(set(re.findall(r"`((?:ralph|make) [^`\n]+)`", text)))


@pytest.mark.parametrize("text", inline())
def test_commands_in_sentences_exist(text: str) -> None:
    """A command that is mentioned, with its options; a target of make."""
    if text.startswith("make "):
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert set(text.split()[1:]) <= targets
    else:
        parse(text)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_commands_of_the_documents_exist(path: Path) -> None:
    """The shell blocks of every document name commands and options that exist."""
    for block in blocks("sh", path.read_text()):
        for command in commands(block):
            if command.startswith("ralph "):
                parse(command)


def test_options_that_do_not_exist_are_found() -> None:
    """The parser of this module rejects unknown commands and options."""
    parse('ralph run -p "…" --max-cost-usd 3')
    parse("ralph supervise tasks/build -- ./my-agent --its flags")
    with pytest.raises(AssertionError, match="no option --swiftly"):
        parse("ralph run --swiftly")
    with pytest.raises(AssertionError, match="no command 'walk'"):
        parse("ralph walk RUN")


def test_every_shell_block_is_run() -> None:
    """There are blocks, and none is marked as another kind of shell."""
    assert sum(len(commands(block)) for block in blocks("sh")) > 3
    assert not re.search(r"^ *```(bash|shell|console|zsh|fish|shell-session)", README, re.MULTILINE)
    assert len(blocks("sh")) == len(re.findall(r"^ *```sh\b", README, re.MULTILINE))
