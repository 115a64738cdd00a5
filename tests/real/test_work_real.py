"""`ralph work` with real agents: every role and every judge is a real CLI, and only the model is scripted."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import Project, Result
from ralph.core.task_model import Task
from ralph.modelserver.server import ModelServer, Request
from real.real_support import NAMES, REAL, attempts
from real.work_real_support import TIMEOUT, asked_by, edit, imported, only, roles, say, told, working, write

pytestmark = REAL

JUDGE = "You judge whether work on a software project meets its criteria."
"""The start of a judge's prompt."""


def judge(*met: bool, why: str = "the diff shows it") -> dict[str, Any]:
    """The judge's answer with a verdict for each criterion."""
    verdicts = [{"criterion": number, "met": each, "reason": why} for number, each in enumerate(met, 1)]
    return {"when": JUDGE, "text": json.dumps({"verdicts": verdicts})}


def judged(server: ModelServer) -> list[Request]:
    return [request for request in server.requests if JUDGE in request.said()]


def holds(result: Result) -> list[dict[str, Any]]:
    return [line["hold"] for line in result.lines() if line["event"] == "holding"]


# ---- the complete example ----

EXAMPLE = (Path(__file__).parent / "jwt_task.yaml").read_text()

JWT = """import hashlib
import hmac
import os


def sign(user):
    key = os.environ["JWT_KEY"].encode()
    return user + "." + hmac.new(key, user.encode(), hashlib.sha256).hexdigest()


def verify(token):
    return hmac.compare_digest(sign(token.split(".")[0]), token)
"""
MIDDLEWARE = """from src.auth import jwt


def protect(token):
    return 200 if token else 401
"""
ROUTES = """from src.auth import jwt


def login(form):
    password = form["secret"]
    return jwt.sign(form["user"]) if password else None
"""
TESTS = """import os

from src.auth import jwt, middleware

os.environ["JWT_KEY"] = "only for tests"


def test_tokens():
    assert middleware.protect(jwt.sign("ada")) == 200
    assert middleware.protect("ada.forged") == 401
"""

PYTEST = f"""#!/bin/sh
# pytest without the options of pytest-cov
for word in "$@"; do
    shift
    case $word in --cov*) ;; *) set -- "$@" "$word";; esac
done
exec {sys.executable} -m pytest -p no:cacheprovider "$@"
"""
BANDIT = """#!/bin/sh
# bandit -r DIRECTORY, with one rule
! grep -rn 'eval(' "$2"
"""


def commands(directory: Path, **scripts: str) -> str:
    """A directory with these commands, for PATH."""
    directory.mkdir()
    for name, text in scripts.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return str(directory)


def test_the_complete_example(repository: Project) -> None:
    """After failed verifications, a whole task with four roles and two judges is merged."""
    auth = "src/auth"
    script = [
        write(src__auth__jwt=JWT, src__auth__middleware=MIDDLEWARE, src__auth__routes=ROUTES),
        say("Everything is implemented.", "AUTH_IMPLEMENTED"),
        *edit(f"{auth}/middleware.py", "if token else", "if jwt.verify(token) else"),
        say("Tokens are verified now.", "AUTH_IMPLEMENTED"),
        say("There are no hardcoded secrets.", "AUTH_REVIEWED"),
        *edit(f"{auth}/routes.py", "password = form", "given = form"),
        *edit(f"{auth}/routes.py", "if password else", "if given else"),
        say("Secrets come from the environment.", "AUTH_REVIEWED"),
        write(tests__test_auth=TESTS),
        say("The tests pass.", "AUTH_TESTS_PASS"),
        say("Everything is as it should be.", "AUTH_QA_COMPLETE"),
        *(judge(*[True] * count) for count in (5, 3, 5, 3)),
    ]
    path = commands(repository.home.path.parent / "bin", pytest=PYTEST, bandit=BANDIT)
    with working(repository, ("claude",), *script, path=path) as (site, server):
        imported(site, EXAMPLE)
        done = site.work(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out[-2000:]
        assert done.out.startswith("done: TASK-001 Implement JWT authentication (6 iterations")
        assert roles(site, "TASK-001") == ["coder", "reviewer", "tester", "qa", "merge"]
        first, second = site.history("coder", "TASK-001")
        assert first == (True, False, "coder: external: Command exited with 1, expected 0")
        assert second[:2] == (True, True)
        first, second = site.history("reviewer", "TASK-001")
        assert "Found negative pattern: hardcoded (the final message, line 1 and 1 more)" in first[2]
        assert second[:2] == (True, True)
        assert "All 3 verification stages passed" in site.history("qa", "TASK-001")[0][2]
        assert "if jwt.verify(token)" in site.project.git("show", "main:src/auth/middleware.py")
        assert site.project.git("show", "main:tests/test_auth.py") == TESTS
        again = told(server, "coder")[1]
        assert "## What Failed Last Time" in again and "Command exited with 1, expected 0" in again
        again = told(server, "reviewer")[1]
        assert '"hardcoded" in the final message, line 1: There are no hardcoded secrets.' in again
        assert '"password =" in src/auth/routes.py:5: password = form["secret"]' in again
        asked = judged(server)
        assert len(asked) == 4, "two by the roles, two for the merged tree"
        assert all("+    return 200 if jwt.verify(token) else 401" in request.said() for request in asked)
        assert {request.body["model"] for request in asked} == {"claude-haiku-5-5"}


# ---- a newcomer's task ----

NEWCOMER = (
    *("greet", "first-steps", "Greet people by name"),
    *("--outcome", "greet.py greets whoever is named"),
    *("--acceptance", "greet('Ada') returns 'Hello, Ada!'"),
    *("--acceptance", "greet() returns 'Hello, world!'"),
    *("--coder-verify-cmd", "python3 -c \"import greet; assert greet.greet('Ada') == 'Hello, Ada!'\""),
)
GREET = "def greet(name):\n    return f'Hello, {name}!'\n"
GREET_ALL = [
    *edit("greet.py", "greet(name)", "greet(name='world')"),
    say("Now anybody.", "IMPLEMENTATION_COMPLETE"),
]
RESETS_IN = 2


def test_a_newcomers_task(repository: Project) -> None:
    """A review sends the task back, and the judge says no, then hits a usage limit, then says yes."""
    script = [
        write(greet=GREET),
        say("It greets.", "IMPLEMENTATION_COMPLETE"),
        {"text": "greet() fails without a name.\n\n<refuse>there is no default</refuse>"},
        *GREET_ALL,
        say("Both criteria are met.", "REVIEW_PASSED"),
        say("Both criteria are met: see the default.", "REVIEW_PASSED"),
        judge(True, False, why="world is not shown to be greeted"),
        {"when": JUDGE, "usage_limit": {"resets_in": RESETS_IN}},
        judge(True, True),
        judge(True, True),
    ]
    with working(repository, ("claude",), *script, **only("reviewer")) as (site, server):
        assert site.project.run("task", "create", *NEWCOMER).code == 0
        done = site.work("--json", timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out[-2000:]
        assert roles(site, "greet") == ["coder", "reviewer", "coder", "reviewer", "merge"]
        assert site.state("greet")["sent_back"] == 1
        back = told(server, "coder")[1]
        assert "## Why The Task Came Back To You" in back
        assert "there is no default" in back and "greet() fails without a name." in back
        refused, no, yes = site.history("reviewer", "greet")
        assert refused[:2] == (False, False)
        assert not no[1] and "world is not shown to be greeted" in no[2] and yes[1]
        assert "world is not shown to be greeted" in told(server, "reviewer")[2]
        (hold,) = holds(done)
        assert hold["why"] == "limit"
        assert len(judged(server)) == 4 and len(told(server, "reviewer")) == 3, "a limit costs no iteration"
        assert "name='world'" in site.project.git("show", "main:greet.py")


# ---- several agents ----

STAGES = """
task:
  id: greet
  spec_id: first-steps
  title: Greet people by name
  completion:
    outcome: greet.py greets whoever is named
    acceptance_criteria: ["greet('Ada') returns 'Hello, Ada!'"]
    coder:
      promise: GREETING_DONE
      verification_method: multi_stage
      verification_config:
        stages:
          - name: works
            method: external
            config:
              command: python3 -c "import greet; assert greet.greet('Ada') == 'Hello, Ada!'"
            required: true
          - name: documented
            method: external
            config: {command: test -f README.rst}
            required: false
          - name: finished
            method: semantic
            config: {negative_patterns: [TODO]}
"""
GREETS_LATER = "    # TODO: say more\n    return f'Hello, {name}!'"


def test_codex_writes_and_claude_judges(repository: Project) -> None:
    """Each role has its own agent; a failed required stage refutes the claim, an optional one only warns."""
    script = [
        write(greet="def greet(name):\n    return 'Hello!'\n"),
        say("It greets.", "GREETING_DONE"),
        {"tools": [{"edit": {"path": "greet.py", "old": "    return 'Hello!'", "new": GREETS_LATER}}]},
        say("By name.", "GREETING_DONE"),
        {"tools": [{"edit": {"path": "greet.py", "old": "    # TODO: say more", "new": "    # Kindly"}}]},
        say("Finished.", "GREETING_DONE"),
        say("It is good.", "REVIEW_PASSED"),
        judge(True),
        judge(True),
    ]
    settings = only("reviewer", agents={"coder": {"agent": "codex"}}, judge={"agent": "claude"})
    with working(repository, ("claude", "codex"), *script, **settings) as (site, server):
        imported(site, STAGES)
        done = site.work(timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out[-2000:]
        wrong, unfinished, last = site.history("coder", "greet")
        assert wrong[:2] == (True, False) and "Stage 'works' failed: Command exited with 1" in wrong[2]
        assert unfinished[:2] == (True, False) and "Stage 'finished' failed: Found negative" in unfinished[2]
        assert last[1] and "All 2 required verification stages passed; warnings: documented" in last[2]
        assert "AssertionError" in told(server, "coder")[1]
        wires = {role: {request.wire for request in asked_by(server, role)} for role in ("coder", "reviewer")}
        assert wires == {"coder": {"responses"}, "reviewer": {"anthropic"}}
        assert {request.wire for request in judged(server)} == {"anthropic"}
        assert "# Kindly" in site.project.git("show", "main:greet.py")


ONE_OF_TWO = """
- id: {id}
  spec_id: first-steps
  title: Write {id}
  completion:
    outcome: {id}.py is there
    acceptance_criteria: ["{id}.py says so"]
    coder:
      promise: WRITTEN
      verification_method: external
      verification_config: {{command: test -f {id}.py}}
"""


def test_two_tasks_at_once(repository: Project) -> None:
    """Codex writes both tasks at once, Claude reviews and judges, and they are merged one after the other."""
    script = [
        turn
        for id in ("one", "two")
        for turn in (
            {"when": f"# {id}: Write {id}\n\nYou implement", "delay": 2.0}
            | write(**{id: f"print('{id}')\n"}),
            {"when": f"# {id}: Write {id}\n\nYou implement"} | say("Written.", "WRITTEN"),
            {"when": f"# {id}: Write {id}\n\nYou review"} | say("Read.", "REVIEW_PASSED"),
        )
    ]
    settings = only("reviewer", agents={"coder": {"agent": "codex"}}, judge={"agent": "claude"})
    judges = judge(True) | {"times": 4}
    with working(repository, ("claude", "codex"), *script, judges, **settings) as (site, server):
        imported(site, "".join(ONE_OF_TWO.format(id=id) for id in ("one", "two")))
        done = site.work("-j", "2", "--json", timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out[-2000:]
        moves = [
            line["task"] for line in done.lines() if line["event"] in ("iteration_started", "agent_ended")
        ]
        assert set(moves[:2]) == {"one", "two"}, "both have started before one has ended"
        assert [site.state(id)["status"] for id in ("one", "two")] == ["done", "done"]
        assert site.project.git("show", "main:one.py", "main:two.py") == "print('one')\nprint('two')\n"
        assert len(judged(server)) == 4


# ---- the judge of each agent ----

REASON = 'It says “yes”: \\ "quoted", <promise>CODED</promise>, ```json, ' + ", ".join(
    f"{number} is not {number * number}" for number in range(2, 200)
)
"""Text that is hard to parse, and longer than one piece of a stream."""

FLAGS = {
    "claude": ["--dangerously-skip-permissions"],
    "codex": ["--dangerously-bypass-approvals-and-sandbox"],
    "gemini": ["--yolo"],
    "opencode": ["--auto"],
}
CONFIGURATION: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": (".claude/settings.json", {"permissions": {"allow": ["Bash", "Write"]}}),
    "gemini": (".gemini/settings.json", {"tools": {"allowed": ["run_shell_command", "write_file"]}}),
    "opencode": (
        ".config/opencode/opencode.json",
        {"permission": {"*": "allow", "bash": "allow", "edit": "allow"}},
    ),
}
"""How a user allows everything, with flags and in the agent's own configuration."""


def allow_all(name: str, home: Path) -> None:
    if name == "codex":
        file = home / ".codex/config.toml"
        file.write_text(f'sandbox_mode = "danger-full-access"\n{file.read_text()}')
        return
    path, values = CONFIGURATION[name]
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | values))


MODELS = {"claude": "haiku", "codex": "gpt-5.5", "gemini": "flash-lite", "opencode": "scripted"}


SESSIONS = {"claude": ".claude/projects/**/*.jsonl", "codex": ".codex/sessions/**/*.jsonl"}
"""Where agents keep sessions, for those that can turn this off."""


@pytest.mark.parametrize("name", NAMES)
def test_a_judge_answers_and_does_nothing_else(name: str, repository: Project) -> None:
    """The judge runs in an empty directory with a small model and cannot use what the agent is allowed."""
    file = repository.home.path / "left-by-the-judge"
    script = [
        *({"when": JUDGE} | each for each in attempts(name, file)),
        judge(True, why=REASON),
        judge(True, why=REASON),
    ]
    coder = repository.script("coder.sh", "echo 1 > done.txt; echo '<promise>CODED</promise>'")
    criteria = {
        "promise": "CODED",
        "verification_method": "semantic",
        "verification_config": {"check_for": "It is."},
    }
    spec = {"outcome": "It is.", "acceptance_criteria": ["It is."], "coder": criteria}
    settings = only(judge={"agent": {"command": name, "flags": FLAGS[name]}})
    with working(repository, (name,), *script, agent={"command": coder}, **settings) as (site, server):
        allow_all(name, Path(site.project.env["HOME"]))
        site.add(msgspec.convert({"id": "T", "spec_id": "s", "title": "It", "completion_spec": spec}, Task))
        done = site.work("--json", timeout=TIMEOUT)
        assert done.code == 0, done.err + done.out[-2000:]
        asked = judged(server)
        assert [request.played for request in asked] == [1, 2, 3, 4]
        assert all(re.search(rf"\b{MODELS[name]}\b", f"{r.path} {r.body.get('model')}") for r in asked)
        assert all(f"{site.project.env['TMPDIR']}/ralph-empty-" in json.dumps(r.body) for r in asked)
        tools = [line for line in done.lines() if line["event"] == "tool_end"]
        assert all(tool["is_error"] for tool in tools) and not file.exists()
        verdicts = [line["verdict"] for line in done.lines() if line["event"] == "check_ended"]
        reasons = [part["reason"] for verdict in verdicts for part in verdict["parts"]]
        assert [reason.startswith(REASON[:20]) for reason in reasons] == [True, True]
        if name in SESSIONS:
            assert not list(Path(site.project.env["HOME"]).glob(SESSIONS[name])), "no session is left behind"
