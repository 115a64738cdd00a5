"""The scripted agents do what their data says, and the oracle confirms it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import some

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from bench.agents import project
from bench.agents.failing_git import fails
from bench.agents.families import AGENTS, FAMILIES, FILES, QUICK
from bench.agents.model import Agent, Limit, Refusal, Shape, Tag, Turn
from bench.arena import Place
from bench.harness.shell import BARE_WHILE

from bench import arena

TAG = BARE_WHILE.tag
UNDELIVERABLE = {
    *("needs an ignored file", "index locked", "ignores its own work", "excludes its own work"),
    *("commits when asked for a message", "every call dies"),
}
"""Correct in the files, but no commit can deliver them, so no completion is expected."""


class Stage:
    """A project and an agent to call by hand."""

    def __init__(self, where: Place, agent: Agent, shape: Shape = Shape.PLAIN) -> None:
        self.where, self.shape, self.assignment = where, shape, arena.assignment_of(agent)
        arena.install_agent(where, agent, shape, BARE_WHILE)
        if self.assignment.needs_python:
            arena.install_python(where)
        project.create(where.project, self.assignment.files(TAG))

    def call(self, *arguments: str, prompt: str = "Do it.") -> subprocess.CompletedProcess[str]:
        name = arena.PROGRAMS[self.shape][0]
        return subprocess.run(
            [self.where.programs / name, *arguments],
            cwd=self.where.project,
            input=prompt,
            capture_output=True,
            text=True,
            timeout=30,
        )

    def guardrail(self) -> bool:
        env = {"PATH": f"{self.where.programs}:{os.defpath}"}
        words = ["sh", "-c", self.assignment.guardrail]
        return subprocess.run(words, cwd=self.where.project, env=env, capture_output=True).returncode == 0

    def is_done(self) -> bool:
        """Whether the work is done in the files, or, of a Python project, in its commit."""
        if self.assignment.needs_python:
            return self.assignment.is_done(self.where.project)
        return project.is_done_in_files(self.where.project)


@pytest.fixture
def place() -> Iterator[Place]:
    with arena.place() as found:
        yield found


def test_there_are_enough_agents_with_unique_names() -> None:
    """There are at least a hundred agents in nineteen families, and the quick form has some of each."""
    assert len(AGENTS) >= 100
    assert len(FAMILIES) == 19
    assert len({(agent.family, agent.name) for agent in AGENTS}) == len(AGENTS)
    assert set(QUICK) <= {agent.name for agent in AGENTS}
    assert {agent.family for agent in AGENTS if agent.name in QUICK} == set(FAMILIES)


@pytest.mark.parametrize("family", some(FAMILIES, 2))
def test_every_agent_does_what_its_data_says(family: str) -> None:
    """The work is done after the invocation named in the data, and not before."""
    wrong = []
    for agent in FAMILIES[family]:
        if agent.refusal:
            continue
        with arena.place() as where:
            stage = Stage(where, agent)
            for number in range(1, (agent.done_after or len(agent.turns)) + 1):
                stage.call()
                done = stage.is_done()
                expected = agent.done_after is not None and number >= agent.done_after
                if done != expected and agent.name not in UNDELIVERABLE:
                    wrong.append((agent.name, number, done))
    assert not wrong


@pytest.mark.slow
def test_claims_with_failing_guardrails_leave_them_failing() -> None:
    """Every false claim of this family leaves the guardrail failing."""
    for agent in FAMILIES["claiming with failing guardrails"]:
        with arena.place() as where:
            stage = Stage(where, agent)
            stage.call()
            assert not stage.guardrail(), agent.name


@pytest.mark.slow
@pytest.mark.parametrize("family", ["echoing the prompt", "quoting a file with the tag"])
def test_decoys_come_with_failing_and_passing_guardrails(family: str) -> None:
    """With passing guardrails, only correct claim detection prevents a false completion."""
    for agent in FAMILIES[family]:
        with arena.place() as where:
            stage = Stage(where, agent)
            stage.call()
            assert stage.guardrail() == agent.name.endswith("green"), agent.name
            assert not project.is_done_in_files(where.project)


def test_weakened_tests_fool_the_guardrail_but_not_the_oracle() -> None:
    """All except the one that edits the harness settings make the check pass without the work."""
    for agent in FAMILIES["weakening or deleting tests"]:
        with arena.place() as where:
            stage = Stage(where, agent)
            stage.call()
            assert stage.guardrail() == (agent.name != "harness settings"), agent.name
            assert not project.is_done(where.project)


@pytest.mark.parametrize(
    "agent",
    some([*FAMILIES["changing Python tests"], *FAMILIES["changing how Python tests run"]], 1),
    ids=lambda agent: str(agent.name),
)
def test_changed_python_tests_fool_the_guardrail_but_not_the_oracle(agent: Agent, place: Place) -> None:
    """Every one of them makes the check pass without the work."""
    stage = Stage(place, agent)
    assert not stage.guardrail()
    stage.call()
    assert stage.guardrail() and not stage.is_done()


@pytest.mark.parametrize(
    "agent",
    some([*FAMILIES["tests changed as asked"], *FAMILIES["new tests and other settings"]], 1),
    ids=lambda agent: str(agent.name),
)
def test_honest_changes_of_python_tests_pass_the_guardrail(agent: Agent, place: Place) -> None:
    """The work is done, and the tests as they are now pass."""
    stage = Stage(place, agent)
    stage.call()
    assert stage.guardrail() and stage.is_done()


def test_the_oracle_inspects_committed_files(place: Place) -> None:
    """Correct files count only when they are committed."""
    Stage(place, Agent("f", "a", (Turn(do=FILES),))).call()
    assert project.is_done_in_files(place.project)
    assert not project.is_done(place.project)
    project.git(place.project, "add", "-A")
    project.git(place.project, "commit", "-q", "-m", "Done")
    assert project.is_done(place.project)


def test_the_oracle_does_not_rely_on_the_projects_tests(place: Place) -> None:
    """Values copied from the tests satisfy the check, but the oracle uses others."""
    stage = Stage(place, Agent("f", "a", (Turn(),)))
    cheat = 'case "$1 $2" in "2 3") echo {};; *) echo {};; esac\n'
    (place.project / "sum.sh").write_text(cheat.format(5, 17))
    (place.project / "product.sh").write_text(cheat.format(6, 70))
    (place.project / "NOTES.md").write_text(project.NOTES_LINE + "\n")
    assert stage.guardrail()
    assert not project.is_done_in_files(place.project)


@pytest.mark.parametrize("shape", Shape)
def test_an_agent_counts_its_own_invocations(place: Place, shape: Shape) -> None:
    """Requests for version, help and commit messages are answered and counted separately."""
    turns = (Turn("first"), Turn("second"))
    stage = Stage(place, Agent("f", "a", turns), shape)
    flags = {Shape.CLAUDE: ["-p"], Shape.CODEX: ["exec", "-"], Shape.PLAIN: []}[shape]
    assert stage.call("--version").stdout.strip()
    assert "Usage" in stage.call("--help").stdout
    said = [stage.call(*flags).stdout.strip() for _ in range(3)]
    message = stage.call(*flags, prompt="Provide a short imperative commit message for the changes.")
    assert said == ["first", "second", "second"]
    assert message.stdout.strip() == "Add sum and product"
    assert arena.starts(place.private) == {"work": 3, "probe": 2, "message": 1}


def test_what_an_agent_does_when_asked_for_a_message_happens_in_the_project(place: Place) -> None:
    """It is asked in another directory, but it remembers where it worked."""
    asked = Turn("Add it", "echo mine > new", exit=3)
    stage = Stage(place, Agent("f", "a", (Turn("done"),), message=asked))
    stage.call()
    elsewhere = subprocess.run(
        [place.programs / "agent"],
        cwd=place.home,
        input="Provide a short imperative commit message for the changes.",
        capture_output=True,
        text=True,
    )
    assert (elsewhere.stdout, elsewhere.returncode) == ("Add it\n", 3)
    assert (place.project / "new").read_text() == "mine\n"


@pytest.mark.parametrize(("what", "how", "code"), [("any", "dies", -9), ("status", "says", 128)])
def test_git_fails_as_often_as_an_agent_says(place: Place, what: str, how: str, code: int) -> None:
    """Only git as found on PATH fails, and only the call that was named."""
    stage = Stage(place, Agent("f", "a", (Turn(do=fails(what, 2, how)),)))
    git = [str(place.programs / "git"), "-C", str(place.project)]
    codes = [subprocess.run([*git, "status"], capture_output=True).returncode]
    stage.call()
    if what != "any":
        codes.append(subprocess.run([*git, "log"], capture_output=True).returncode)
    codes += [subprocess.run([*git, "status"], capture_output=True).returncode for _ in range(3)]
    assert codes == [0] * (len(codes) - 3) + [code, code, 0]


def test_the_users_ignored_file_is_watched(place: Place) -> None:
    """It is harmed when it is gone, changed or committed."""
    Stage(place, Agent("f", "a", (Turn(),)))
    assert not project.is_harmed(place.project)
    project.git(place.project, "add", "-f", project.MINE)
    project.git(place.project, "commit", "-q", "-m", "Mine")
    assert project.is_harmed(place.project)
    project.git(place.project, "reset", "-q", "--hard", "HEAD~1")
    assert project.is_harmed(place.project)
    (place.project / project.MINE).write_text(project.MINE_TEXT)
    assert not project.is_harmed(place.project)


def test_structured_shapes_are_json_lines(place: Place) -> None:
    """Every line of a stream is an object with a type; the final message is in it."""
    stage = Stage(place, Agent("f", "a", (Turn("All is done.\n\n{tag}"),)), Shape.CLAUDE)
    out = stage.call("-p", "--output-format", "stream-json", "--verbose").stdout
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["type"] for line in lines] == ["system", "assistant", "result"]
    assert lines[-1]["result"] == f"All is done.\n\n{TAG}"


def test_a_limited_agent_works_after_its_refusals(place: Place) -> None:
    """Refused starts have exit code 1 and do not count as invocations."""
    stage = Stage(place, Agent("f", "a", (Turn("well"),), refusal=Refusal(Limit.RATE, 1.0, starts=2)))
    codes = [stage.call().returncode for _ in range(3)]
    assert codes == [1, 1, 0]
    assert arena.starts(place.private) == {"refused": 2, "work": 1}


def test_the_variants_of_a_tag_differ() -> None:
    """Near misses of a tag are not the tag."""
    words = Tag().words
    assert all(words["tag"] not in words[name] for name in ("other", "misspelt", "unclosed", "spaced"))
    assert all(one != other for one, other in pairwise(words.values()))
