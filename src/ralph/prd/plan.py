"""`ralph prd run`: a folder with a PRD and a task list becomes the Plan of a loop with reviews."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from ralph.agents.registry import with_model
from ralph.checks.stories import configure
from ralph.core.model import (
    NO_SANDBOX,
    AgentSpec,
    Check,
    ClaimKind,
    ClaimRule,
    Flow,
    Permissions,
    Plan,
    Prd,
    PromptSource,
    SandboxSpec,
    Scm,
    When,
)
from ralph.errors import RalphError
from ralph.files.storyfile import MAX_TASKS, TASKS, text_of, valid
from ralph.loop.story_board import PRD, PROMPT, StoryBoard
from ralph.prd.files import is_template_branch, is_unplanned, require_folder
from ralph.runs.run_plan import agent_specs, guarding, limits
from ralph.scm.repository import branch_of, find_repository
from ralph.settings import Settings
from ralph.store.database import Missing
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.marker import Marker
from ralph.store.prd_folder import PrdFolder
from ralph.stories import rules

PER_STORY = 3
"""How many iterations a story takes, roughly: implement, review, and now and then a fix."""

VERIFY_SECONDS = 3600.0
"""A verify command that has not ended by then hangs, unless `iterationTimeoutSeconds` says otherwise."""

PLAN_IT = "Plan it: ralph prd plan; or take a list that you have: ralph prd import FILE"


class PrdInputs(Struct, frozen=True):
    """What was given on the command line."""

    directory: Path
    folder: str = "ralph"
    iterations: int = 15
    model: str = ""
    skip_review: bool = False
    review_cap: int = rules.REVIEW_CAP

    @property
    def prd(self) -> Prd:
        return Prd(self.folder, self.skip_review, self.review_cap)


def take_over(home: Home, inputs: PrdInputs) -> tuple[str, ...]:
    """Begin to work on a folder, with the lock of its project: nobody else does, and what somebody who was killed had
    in hand is ruled first. Returns what was undone.
    """
    with _story_board(home, inputs) as board:
        Marker(board.project).sweep()
        seen = board.settle()
    return seen.illegal if seen is not None else ()


def is_unsettled(home: Home, inputs: PrdInputs) -> bool:
    """Was a loop killed in the middle of an iteration?"""
    with _story_board(home, inputs) as board:
        return board.is_unsettled


def last_rules(home: Home, inputs: PrdInputs) -> Prd:
    """Those of the folder's last run, that its list was made by; without one, those that were given."""
    with suppress(Missing):
        runs = home.to_read()
        for run in runs.in_directory(str(inputs.directory)):
            found = runs.plan(run.id) if run.flow is Flow.PRD else None
            if (
                found is not None
                and found.prompt.prd is not None
                and found.prompt.prd.folder == inputs.folder
            ):
                return found.prompt.prd
    return inputs.prd


def running(directory: Path) -> int | None:
    """The process of the loop that runs here, by its marker."""
    with opened_directory(str(directory)) as project:
        return Marker(project).holder()


@contextmanager
def _story_board(home: Home, inputs: PrdInputs) -> Iterator[StoryBoard]:
    with opened_directory(str(inputs.directory)) as project:
        yield StoryBoard(inputs.prd, project, home.prd(str(inputs.directory), inputs.folder))


def load_board(inputs: PrdInputs) -> dict[str, Any]:
    """The task list of a folder that is ready to be worked on; else one error that says what to do."""
    folder = inputs.directory / inputs.folder
    require_folder(folder)
    with opened_directory(str(inputs.directory)) as project:
        files = PrdFolder(project, inputs.folder)
        missing = [name for name in (PROMPT, PRD, TASKS) if files.read(name) is None]
        if missing:
            raise RalphError(
                f"{folder / missing[0]} is missing, or is reached through a link.",
                "`ralph prd init --force` makes what is missing.",
            )
        path = str(folder / TASKS)
        text = text_of(files.read(TASKS, MAX_TASKS), path)
    if is_unplanned(text):
        raise RalphError(f"{path} has no stories.", PLAN_IT)
    return valid(text, path, inputs.prd)


def plan(settings: Settings, inputs: PrdInputs, sandbox: SandboxSpec = NO_SANDBOX) -> Plan:
    folder = f"{inputs.folder}/{PROMPT}"
    return Plan(
        run="",
        flow=Flow.PRD,
        directory=str(inputs.directory),
        agents=_agents(settings, inputs),
        prompt=PromptSource(
            file=folder, instruction=False, truncate=settings.output_truncate_chars, prd=inputs.prd
        ),
        claim=ClaimRule(kind=ClaimKind.BOARD, tag="promise", text="COMPLETE", strict=True),
        checks=(
            Check(
                "verifyCommands",
                "stories",
                when=When.CLAIMED,
                config=configure(settings.iteration_timeout_seconds or VERIFY_SECONDS),
            ),
        ),
        limits=limits(settings, inputs.iterations, settings.iteration_timeout_seconds),
        scm=Scm("git", ("commit",), "chore: [ralph] what an iteration left uncommitted"),
        snapshots=settings.snapshots,
        guard=guarding(settings),
        sandbox=sandbox,
    )


def _agents(settings: Settings, inputs: PrdInputs) -> tuple[AgentSpec, ...]:
    """Everything is allowed unless the user says otherwise."""
    specs = agent_specs(settings.agent, settings.idle_timeout_seconds, Permissions.BYPASS)
    if inputs.model:
        specs = tuple(with_model(spec, inputs.model) for spec in specs)
    return specs


# ---- what is said at the start ----


def introduction(board: dict[str, Any], inputs: PrdInputs) -> list[str]:
    """How many iterations it may take, and what looks odd."""
    todo = sum(not story["passes"] for story in board["userStories"])
    each = 1 if inputs.skip_review else PER_STORY
    needed = iterations_needed(todo, inputs)
    lines = [
        f"{todo} of {len(board['userStories'])} stories to do × ~{each} iteration{'s' * (each > 1)} each"
        f" = ~{needed} needed, at most {inputs.iterations} allowed."
        if todo
        else "Every story is done already: there is only something to verify."
    ]
    if needed > inputs.iterations:
        lines.append(f"That may not be enough: --max-iterations {needed} would be.")
    if (branch := current_branch(inputs.directory)) not in (None, board["branchName"]):
        lines.append(wrong_branch(branch, board["branchName"]))
    if not board.get("verifyCommands"):
        lines.append(unverified(inputs))
    return lines


def unverified(inputs: PrdInputs) -> str:
    word = "done by the word of its agent" if inputs.skip_review else "approved by the word of its review"
    return f"There are no verifyCommands: a story is {word} alone."


def wrong_branch(branch: str | None, named: str) -> str:
    """Work goes elsewhere than the list says."""
    if is_template_branch(named):
        return f"tasks.json has the branch of its template, {named}: put the one there that you work on."
    where = branch or "no branch (a detached HEAD)"
    return f"You are on {where}, and tasks.json names {named}: Ralph does not switch branches."


def iterations_needed(todo: int, inputs: PrdInputs) -> int:
    """Roughly, for so many stories."""
    return todo * (1 if inputs.skip_review else PER_STORY)


def current_branch(directory: Path) -> str | None:
    """None: this is no repository. "": what is checked out is no branch."""
    repository = find_repository(directory)
    return branch_of(repository) if repository is not None else None


def inside(directory: Path, folder: str) -> str:
    """A folder of the project, seen from there."""
    path = os.path.normpath(os.path.join(directory, folder))
    relative = os.path.relpath(path, directory)
    if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
        raise RalphError(f"--ralph-dir {folder} is no folder inside of {directory}.")
    return relative
