"""Imports: help needs only options, and a run only its own parts, loaded before it starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conftest import Project, Result
from prd_support import HONEST, make_loop
from ralph.cli import GROUPS
from ralph.commands import init, supervise
from ralph.commands.prd import SUBCOMMANDS as PRD
from ralph.commands.task import SUBCOMMANDS as TASK
from ralph.commands.task import change, look
from ralph.core.model import Permissions, RestartKind
from ralph.core.task_model import CompletionCriteria, TaskStatus
from ralph.tasks.form import BY_WORK
from work_support import CHECK, make_site, task
from work_support import HONEST as HONEST_WORK

COMMANDS = [
    *([name] for commands in GROUPS.values() for name in commands),
    *(["prd", name] for name in PRD),
    *(["task", name] for name in TASK),
]
LIGHT = {"ralph.cli", "ralph.errors", "ralph.stories", "ralph.stories.rules"}
"""Of ours, besides the commands themselves, what any help may load."""

ROLES_IN_HELP = {"ralph.core", "ralph.core.task_model"}
"""The options of a task are made from the roles."""

OTHERS = (
    "apprise",
    "jinja2",
    "msgspec",
    "platformdirs",
    "rich",
    "sqlite3",
    "textual",
    "tree_sitter",
    "watchdog",
    "yaml",
)
"""Packages that no help needs; some of them no run either."""

HELP = """
import contextlib, io, json, sys
from ralph.cli import main
loaded = {}
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        main([*arguments, "--help"])
    loaded[" ".join(arguments)] = sorted(sys.modules)
print(json.dumps(loaded))
"""

LATE = """
import atexit, json, os, sys
late = []
class Finder:
    def find_spec(self, name, *more):
        if os.path.exists(os.environ["BEGUN"]) and name.partition(".")[0] not in sys.stdlib_module_names:
            late.append(name)
@atexit.register
def told():
    with open(os.environ["LOADED"], "w") as file:
        json.dump({"late": late, "all": sorted(sys.modules)}, file)
sys.meta_path.insert(0, Finder())
from ralph.cli import main
sys.exit(main())
"""
"""ralph, which tells in the end what it has loaded: in all, and after the first agent had begun."""


class Recorder:
    """Runs ralph, and records which modules it imported."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._begun, self._loaded = project.home.path / "begun", project.home.path / "loaded.json"
        project.extra_env |= {"BEGUN": str(self._begun), "LOADED": str(self._loaded)}

    def run(self, *arguments: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-c", LATE, *arguments],
            cwd=self.project.path,
            env=self.project.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert self._begun.exists(), done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    @property
    def late(self) -> list[str]:
        found: list[str] = json.loads(self._loaded.read_text())["late"]
        return found

    def loaded(self, package: str) -> set[str]:
        """The imported modules of a package, by their last names."""
        names = json.loads(self._loaded.read_text())["all"]
        return {name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")}

    @property
    def packages(self) -> set[str]:
        return {name.partition(".")[0] for name in json.loads(self._loaded.read_text())["all"]}


@pytest.fixture
def recorder(project: Project) -> Recorder:
    return Recorder(project)


def needless(loaded: list[str], allowed: set[str]) -> list[str]:
    ours = [name for name in loaded if name.startswith("ralph.") and not name.startswith("ralph.commands")]
    others = [
        name for name in OTHERS if name in loaded and not (name == "msgspec" and allowed >= ROLES_IN_HELP)
    ]
    return [*(name for name in ours if name not in allowed), *others]


def test_help_loads_nothing_but_options() -> None:
    """`--help` of every command imports little more than click: no loop, no store, no agent, no decoder."""
    with_roles = [["task", name] for name in ("create", "followup", "edit", "delete")]
    plain = [words for words in COMMANDS if words not in with_roles]
    done = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps([*plain, *with_roles])],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout)
    assert len(loaded) == len(COMMANDS)
    for words in plain:
        assert needless(loaded[" ".join(words)], LIGHT) == [], words
    for words in with_roles:
        assert needless(loaded[" ".join(words)], LIGHT | ROLES_IN_HELP) == [], words


def test_choices_in_help_match_the_program() -> None:
    """They are written out in the commands, so that help does not import their enums."""
    assert set(supervise.RESTART_POLICIES) == {kind.value for kind in RestartKind}
    assert set(init.PERMISSIONS) == {each.value for each in Permissions}
    assert set(look.STATUSES) == {each.value for each in TaskStatus}
    assert set(change.STATUSES) == {each.value for each in TaskStatus if each not in BY_WORK}


def test_a_run_loads_only_its_own_parts(recorder: Recorder) -> None:
    """No adapter of another agent, no unused sandbox, no unused check, nothing for screens."""
    recorder.project.agent(
        'touch "$BEGUN"; echo "<response>DONE</response>"', guardrails=[{"command": "true"}]
    )
    assert recorder.run("run", "-p", "x").code == 0
    assert recorder.loaded("ralph.agents") == {"base", "custom", "limits", "plain", "registry"}
    assert recorder.loaded("ralph.checks") == {"base", "command", "excerpt", "registry"}
    assert not recorder.loaded("ralph.sandbox") & {"bubblewrap", "container", "docker_sandbox", "proxy"}
    assert recorder.packages.isdisjoint({*OTHERS, "asyncio", "concurrent"} - {"msgspec", "sqlite3"})


def test_a_named_agent_is_the_only_one_that_is_loaded(recorder: Recorder) -> None:
    """Also for supported agents: codex needs nothing of claude, gemini or opencode."""
    command = recorder.project.script("codex", 'touch "$BEGUN"; cat > /dev/null; exit 1')
    recorder.project.settings(agent={"command": command}, snapshots=False, maximumIterations=1)
    recorder.run("run", "-p", "x")
    adapters = {"amp", "claude", "codex", "custom", "gemini", "opencode", "scripted"}
    assert recorder.loaded("ralph.agents") & adapters == {"codex"}


ONE_RED = 'touch "$BEGUN"; echo "$RALPH_ITERATION" > work; echo "<response>DONE</response>"'


def test_an_upgrade_during_a_run_does_not_break_it(repository: Project) -> None:
    """Nothing of ours is imported after the first agent has started: not for feedback, commit, notices or the end."""
    recorder = Recorder(repository)
    repository.agent(
        ONE_RED,
        snapshots=True,
        guardrails=[{"command": "grep -q 2 work"}, {"command": "true", "clean": True}],
        scm={"command": "git", "tasks": ["commit"]},
        notify={"command": "cat > /dev/null"},
    )
    repository.git("config", "user.name", "Test")
    repository.git("config", "user.email", "test@localhost")
    result = recorder.run("run", "-p", "x", "-m", "3")
    assert (result.code, recorder.late) == (0, []), result.err


def test_an_upgrade_during_a_prd_loop_does_not_break_it(repository: Project) -> None:
    """The same for `prd run`, whose stories are reviewed."""
    loop = make_loop(repository)
    recorder = Recorder(loop.project)
    loop.agent(f"import os, pathlib\npathlib.Path(os.environ['BEGUN']).touch()\n{HONEST}")
    result = recorder.run("prd", "run", "--no-sandbox")
    assert (result.code, recorder.late) == (0, []), result.err


def test_an_upgrade_during_a_supervised_command_does_not_break_it(recorder: Recorder) -> None:
    """The same for `supervise`, from one attempt to the next."""
    folder = recorder.project.path / "task"
    folder.mkdir()
    body = 'touch "$BEGUN"; [ "$RALPH_ATTEMPT" = 1 ] || touch "$TASK_FOLDER/DONE"; exit 1'
    words = ["supervise", "task", "--restart-delay", "0", "--", recorder.project.script("agent.sh", body)]
    assert (recorder.run(*words).code, recorder.late) == (0, [])


def test_an_upgrade_during_a_task_does_not_break_it(project: Project) -> None:
    """The same for `work`: every role, the stages of a verification, a judge, and the merge."""
    site = make_site(project)
    recorder = Recorder(project)
    site.agents(f'touch "$BEGUN"\n{HONEST_WORK}')
    stages = [
        {"name": "said", "method": "string_match"},
        {"name": "run", "method": "external", "config": {"command": CHECK}},
    ]
    site.add(task(coder=CompletionCriteria("CODED", "", "multi_stage", {"stages": stages})))
    result = recorder.run("work")
    assert (result.code, recorder.late) == (0, []), result.err
