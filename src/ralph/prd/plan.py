"""`ralph prd run`: makes the Plan of a loop with reviews from a folder with a PRD and a task list."""

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
from ralph.runs.run_plan import agent_specs, guarding, is_protecting, limits, old_tests_check
from ralph.scm.repository import branch_of, find_repository
from ralph.settings import Settings
from ralph.store.database import Missing
from ralph.store.files import opened_directory
from ralph.store.home import Home
from ralph.store.marker import Marker
from ralph.store.prd_folder import PrdFolder
from ralph.stories import rules

PER_STORY = 3
"""Rough number of iterations per story: implement, review, and sometimes a fix."""

VERIFY_SECONDS = 3600.0
"""Timeout for a verify command, unless `iterationTimeoutSeconds` is set."""

PLAN_IT = "Plan some with `ralph prd plan`, or import an existing list with `ralph prd import FILE`."


class PrdInputs(Struct, frozen=True):
    """The command line of `ralph prd`."""

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
    """Take over a folder, with the lock of its project held. Returns what was undone.

    The changes of an iteration that was killed are checked against the rules first.
    """
    with _story_board(home, inputs) as board:
        marker = Marker(board.project)
        marker.refuse_live()
        seen = board.settle()
        marker.remove()
    return seen.illegal if seen is not None else ()


def is_unsettled(home: Home, inputs: PrdInputs) -> bool:
    """Whether a loop was killed in the middle of an iteration."""
    with _story_board(home, inputs) as board:
        return board.is_unsettled


def last_rules(home: Home, inputs: PrdInputs) -> Prd:
    """The rules of the folder's last run, which its list follows; without a run, those of the command line."""
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
    """The process id of the loop running here, from its marker."""
    with opened_directory(str(directory)) as project:
        return Marker(project).holder()


@contextmanager
def _story_board(home: Home, inputs: PrdInputs) -> Iterator[StoryBoard]:
    with opened_directory(str(inputs.directory)) as project:
        yield StoryBoard(inputs.prd, project, home.prd(str(inputs.directory), inputs.folder))


def load_board(inputs: PrdInputs) -> dict[str, Any]:
    """The task list of a folder that is ready to run; otherwise an error that says what to do."""
    folder = inputs.directory / inputs.folder
    require_folder(folder)
    with opened_directory(str(inputs.directory)) as project:
        files = PrdFolder(project, inputs.folder)
        missing = [name for name in (PROMPT, PRD, TASKS) if files.read(name) is None]
        if missing:
            raise RalphError(
                f"{folder / missing[0]} is missing, or is behind a link.",
                "Run `ralph prd init --force` to create missing files.",
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
            *_old_tests(settings, inputs),
        ),
        limits=limits(settings, inputs.iterations, settings.iteration_timeout_seconds),
        scm=Scm("git", ("commit",), "chore: [ralph] uncommitted changes of an iteration"),
        snapshots=settings.snapshots,
        guard=guarding(settings),
        sandbox=sandbox,
        setup=settings.ralph.setup,
    )


def _old_tests(settings: Settings, inputs: PrdInputs) -> tuple[Check, ...]:
    """The tests of the start on the work of an approved story. Without `protect`, they refute no approval."""
    board = _verify_commands(inputs)
    if not is_protecting(settings, board, inputs.directory):
        return ()
    from ralph.checks.old_tests import Config  # not every run has tests

    seconds = settings.iteration_timeout_seconds or VERIFY_SECONDS
    config = Config(timeout=seconds, protect=settings.protected)
    return (old_tests_check(config, required=settings.protected is not None),)


def _verify_commands(inputs: PrdInputs) -> list[str]:
    """The verify commands of the list at the start; none if it cannot be read, which is reported later."""
    with suppress(RalphError):
        commands: list[str] = load_board(inputs).get("verifyCommands") or []
        return commands
    return []


def _agents(settings: Settings, inputs: PrdInputs) -> tuple[AgentSpec, ...]:
    """The agents; by default they may do everything."""
    specs = agent_specs(settings.agent, settings.idle_timeout_seconds, Permissions.BYPASS)
    if inputs.model:
        specs = tuple(with_model(spec, inputs.model) for spec in specs)
    return specs


# ---- messages at the start ----


def introduction(board: dict[str, Any], inputs: PrdInputs) -> list[str]:
    """The estimated number of iterations, and warnings."""
    todo = sum(not story["passes"] for story in board["userStories"])
    each = 1 if inputs.skip_review else PER_STORY
    needed = iterations_needed(todo, inputs)
    lines = [
        f"{todo} of {len(board['userStories'])} stories to do × ~{each} iteration{'s' * (each > 1)} each"
        f" = ~{needed} needed, at most {inputs.iterations} allowed."
        if todo
        else "All stories are already done. Only verification is left."
    ]
    if needed > inputs.iterations:
        lines.append(f"That might not be enough. Try --max-iterations {needed}.")
    if (branch := current_branch(inputs.directory)) not in (None, board["branchName"]):
        lines.append(wrong_branch(branch, board["branchName"]))
    if not board.get("verifyCommands"):
        lines.append(unverified(inputs))
    return lines


def unverified(inputs: PrdInputs) -> str:
    gate = "nothing checks that stories are done" if inputs.skip_review else "only the review gates stories"
    return f"No verifyCommands: {gate}."


def wrong_branch(branch: str | None, named: str) -> str:
    """The warning for a current branch that differs from the one in tasks.json."""
    if is_template_branch(named):
        return f"branchName in tasks.json is still the template's {named}. Set it to the branch you work on."
    where = branch or "no branch (a detached HEAD)"
    return f"You are on {where}, but tasks.json names {named}. Ralph does not switch branches."


def iterations_needed(todo: int, inputs: PrdInputs) -> int:
    """The rough number of iterations for these stories."""
    return todo * (1 if inputs.skip_review else PER_STORY)


def current_branch(directory: Path) -> str | None:
    """The current branch; None outside a repository, "" with a detached HEAD."""
    repository = find_repository(directory)
    return branch_of(repository) if repository is not None else None


def inside(directory: Path, folder: str) -> str:
    """The path of a folder relative to the project; an error if it is outside."""
    path = os.path.normpath(os.path.join(directory, folder))
    relative = os.path.relpath(path, directory)
    if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
        raise RalphError(f"--ralph-dir {folder} is not a folder inside {directory}.")
    return relative
