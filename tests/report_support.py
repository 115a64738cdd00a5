"""Real runs to report on: one with failed checks and a limit, a task that fails, a PRD loop at its review cap.

The agent is a Python program that prints the same stream as Claude Code, with costs, tokens and limits.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from conftest import Project
from prd_support import Loop, make_loop, story
from ralph.core.task_model import CompletionCriteria
from work_support import Site, make_site, task

_AGENT = """#!{python}
import json, os, sys, time
from pathlib import Path

n = int(os.environ["RALPH_ITERATION"])

def say(text, cost=0.0, read=0, wrote=0, cached=0, seconds=0.0):
    time.sleep(seconds)
    used = {{"input_tokens": read, "output_tokens": wrote, "cache_read_input_tokens": cached}}
    message = {{"id": f"m{{n}}", "content": [{{"type": "text", "text": text}}], "usage": used}}
    print(json.dumps({{"type": "assistant", "message": message}}))
    print(json.dumps({{"type": "result", "is_error": False, "total_cost_usd": cost, "usage": used, "result": text}}))

def limited(seconds):
    info = {{"status": "rejected", "resetsAt": time.time() + seconds}}
    print(json.dumps({{"type": "rate_limit_event", "rate_limit_info": info}}))
    print(json.dumps({{"type": "result", "is_error": True, "api_error_status": 429, "total_cost_usd": 0,
        "result": "You've hit your usage limit"}}))
    raise SystemExit(1)

if "commit message" in sys.stdin.read().lower():
    say("Add slug(): page names for URLs", 0.002, 900, 12)
    raise SystemExit

{body}
"""

CHECK = """import sys

from slug import slug

cases = {
    "Hello World": "hello-world",
    "  two  spaces ": "two-spaces",
    "Crème brûlée": "creme-brulee",
    "": "",
}
wrong = [(text, slug(text), want) for text, want in cases.items() if slug(text) != want]
for text, got, want in wrong:
    print(f"slug({text!r}) is {got!r}, expected {want!r}")
print(f"{len(cases) - len(wrong)} of {len(cases)} cases pass")
sys.exit(bool(wrong))
"""

_MODULE = '"""Page names for URLs."""\n\n'
_VERSIONS = (
    "def slug(text):\n    return text.lower().replace(' ', '-')\n",
    "def slug(text):\n    return '-'.join(text.lower().split())\n",
    "import unicodedata\n\n\ndef slug(text):\n    plain = unicodedata.normalize('NFKD', text).encode('ascii', 'ignore').decode()\n"
    "    return '-'.join(plain.lower().split())\n",
)

SLUG_AGENT = f"""
versions = {_VERSIONS!r}
if n == 3 and not Path(".git/tried").exists():
    Path(".git/tried").touch()
    limited(1)
Path("slug.py").write_text({_MODULE!r} + versions[min(n, 3) - 1])
if n == 1:
    say("I wrote slug(). It lowercases the text and replaces spaces with hyphens.\\n\\n<response>DONE</response>", 0.031, 5200, 610, 12000, 0.6)
elif n == 2:
    say("Several spaces now become one hyphen.\\n\\nI have not handled accents yet.", 0.044, 6900, 820, 31000, 0.9)
else:
    say("Accented letters lose their accents first, so crème brûlée becomes creme-brulee.\\n\\nAll four cases pass.\\n\\n<response>DONE</response>", 0.058, 8100, 1240, 52000, 1.3)
"""


def write_agent(project: Project, body: str, name: str = "claude-like") -> str:
    """Write an agent outside the project whose output is parsed as Claude Code's."""
    path = project.path.parent / name
    path.write_text(_AGENT.format(python=sys.executable, body=body))
    path.chmod(0o755)
    return str(path)


def claude_like(project: Project, body: str, **settings: Any) -> None:
    agent = {"command": write_agent(project, body), "type": "claude"}
    project.settings(**({"agent": agent} | settings))


def complete_run(repository: Project) -> str:
    """Three iterations: a refuted claim, no claim, a usage limit and a proof. Returns the run id."""
    (repository.path / "check.py").write_text(CHECK)
    (repository.path / ".gitignore").write_text("__pycache__/\n")
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "A check")
    claude_like(
        repository,
        SLUG_AGENT,
        guardrails=[
            {"command": f"{sys.executable} check.py", "hint": "The cases are in check.py."},
            {"command": "test -s slug.py"},
        ],
        scm={"command": "git", "tasks": ["commit"]},
        maxCostUsd=0.5,
    )
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@localhost")
    done = repository.run("run", "-p", "Write slug() in slug.py, so that check.py passes.", "-m", "6")
    assert done.code == 0, done.err
    return str(repository.status()[0]["id"])


def failed_task(project: Project) -> Site:
    """The reviewer keeps refusing the coder's work."""
    site = make_site(project)
    reviewer = CompletionCriteria("REVIEW_PASSED", "safe to merge", "string_match")
    site.add(
        task(
            description="The calculator subtracts where it should add.",
            reviewer=reviewer,
        )
    )
    site.agents(
        """
case $RALPH_ROLE in
coder) sed -i 's/a - b/a + b/' calc.py; echo "# attempt $n" >> calc.py; echo "It adds now."; promise CODED;;
reviewer) echo "add() works, but it has no test, and a comment mentions attempts."
    echo '<refuse>There is no test of add(); remove the comment about attempts.</refuse>';;
esac
"""
    )
    done = site.work()
    assert done.code == 1, done.err
    return site


def capped_prd(project: Project) -> Loop:
    """One story is approved by its review, one only at the review cap; an edit is undone."""
    loop = make_loop(
        project,
        story("US-001", title="Add two numbers"),
        story("US-002", title="Show the sum on the page", priority=2),
        verifyCommands=["true"],
    )
    loop.agent(
        """
(ROOT / f"{id}.txt").write_text(f"{mode} {n}\\n")
if mode == "review" and id == "US-002" and story()["reviewCount"] == 0:
    reject("The sum is cut off after eight digits. Show all digits.")
elif mode == "review-fix" and id == "US-002":
    PRD.write_text("# Calc\\n\\nLess.\\n")
    fix()
elif mode == "review" and id == "US-002":
    reject("It is still cut off on phones.")
else:
    play()
commit(f"feat: {id} {mode}")
""",
        snapshots=True,
    )
    done = loop.run("--review-cap", "2", "-n", "9")
    assert done.code == 0, done.out + done.err
    return loop


def report_json(project: Project, *words: str) -> dict[str, Any]:
    done = project.run("report", *words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found
