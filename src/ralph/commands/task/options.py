"""The options of `ralph task create`, `edit` and `followup`, converted to the written form of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ralph.commands.common import COUNT, complete_task
from ralph.core.task_model import ROLES, VerificationMethod
from ralph.errors import RalphError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ralph.tasks.verification import Keys, TaskProblem

F = TypeVar("F", bound=Callable[..., Any])
Values = dict[str, Any]


class RoleOption(click.Option):
    """An option that exists for every role. The help shows it once, for the first role."""

    def __init__(self, declarations: Sequence[str], role: str, **settings: Any) -> None:
        super().__init__(declarations, **settings)
        self.role = role


class TaskCommand(click.Command):
    """A command that lists the options of the roles in a separate section of its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first, *others = ROLES
        of_roles, rest = [], []
        for param in self.get_params(ctx):
            record = self.help_of(param, ctx) if isinstance(param, click.Option) else None
            if record and not isinstance(param, RoleOption):
                rest.append(record)
            elif record and isinstance(param, RoleOption) and param.role == first:
                of_roles.append(record)
        with formatter.section("Options"):
            formatter.write_dl(rest)
        same = ", ".join(f"--{role}-…" for role in others)
        with formatter.section(f"Options for each role (also {same})"):
            formatter.write_dl(of_roles)

    def help_of(self, option: click.Option, ctx: click.Context) -> tuple[str, str] | None:
        return option.get_help_record(ctx)


class TaskEditCommand(TaskCommand):
    """Its help shows no defaults: a value that is not given stays as it is."""

    def help_of(self, option: click.Option, ctx: click.Context) -> tuple[str, str] | None:
        record = super().help_of(option, ctx)
        return record and (record[0], record[1].partition(" [")[0])


def _complete(words: Callable[[], Iterable[str]]) -> Any:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in words() if word.startswith(incomplete)]

    return complete


def _methods() -> Iterable[str]:
    from ralph.checks.registry import verification_methods

    return verification_methods()


def _templates() -> Iterable[str]:
    from ralph.tasks.templates import TEMPLATES

    return TEMPLATES


def task_options(function: F) -> F:
    """Add the options for all properties of a task."""
    for option in reversed([*_own_options(), *(each for role in ROLES for each in _role_options(role))]):
        function = option(function)
    return function


def _own_options() -> Iterable[Callable[[F], F]]:
    yield click.option(
        "--outcome", metavar="TEXT", help="What is true when the task is done, in one sentence."
    )
    yield click.option(
        "--acceptance", multiple=True, metavar="TEXT", help="Acceptance criterion; repeatable."
    )
    yield click.option("--description", metavar="TEXT", help="Additional information for the agents.")
    yield click.option(
        "--depends-on",
        multiple=True,
        metavar="ID",
        shell_complete=complete_task,
        help="Task that must be done first; repeatable.",
    )
    yield click.option("--priority", type=int, metavar="N", help="Priority; lower numbers go first. [0]")
    yield click.option(
        "--attempts",
        type=COUNT,
        metavar="N",
        help="Number of parallel coders; the first verified result is used. [1]",
    )
    yield click.option(
        "--protect",
        multiple=True,
        metavar="GLOB",
        help="Files that only the tester may change; repeatable. [the files that verification runs]",
    )


def _role_options(role: str) -> Iterable[Callable[[F], F]]:
    defaults = ROLES[role]

    def option(name: str, **settings: Any) -> Callable[[F], F]:
        return click.option(f"--{role}-{name}", cls=RoleOption, role=role, **settings)

    yield option(
        "promise", metavar="TEXT", help=f"Text that the role prints when it is done. [{defaults.promise}]"
    )
    yield option(
        "description", metavar="TEXT", help='What "done" means for this role, for people and agents.'
    )
    yield option(
        "verify",
        metavar="METHOD",
        shell_complete=_complete(_methods),
        help="Verification method: string_match, semantic, external.",
    )
    yield option("verify-cmd", metavar="CMD", help="Command that must succeed; implies external.")
    yield option(
        "check-for",
        multiple=True,
        metavar="TEXT",
        help="Criterion that a judge must find met; implies semantic.",
    )
    yield option(
        "negative-pattern",
        multiple=True,
        metavar="TEXT",
        help="Text that must not appear in the answer or in added lines; implies semantic.",
    )
    yield option(
        "template",
        metavar="NAME",
        shell_complete=_complete(_templates),
        help="Verification template; see `ralph task templates`.",
    )
    yield option(
        "max-iterations",
        type=COUNT,
        metavar="N",
        help=f"Maximum iterations before the role fails. [{defaults.max_iterations}]",
    )


# ---- options -> written form ----


def changed(values: Values, options: Values) -> Values:
    """Return the written form of a task with the options applied."""
    completion = dict(values.get("completion", {}))
    new = values | {"completion": completion}
    for name in ("description", "priority", "attempts"):
        if options[name] is not None:
            new[name] = options[name]
    if options["outcome"] is not None:
        completion["outcome"] = options["outcome"]
    if options["acceptance"]:
        completion["acceptance_criteria"] = list(options["acceptance"])
    if options["protect"]:
        new["protect"] = list(options["protect"])
    if options["depends_on"]:
        new["dependencies"] = [*values.get("dependencies", ()), *options["depends_on"]]
    for role in ROLES:
        if criteria := _criteria(role, dict(completion.get(role) or {}), options):
            completion[role] = criteria
    return new


def is_given(options: Values) -> bool:
    return any(value is not None and value != () for value in options.values())


def _criteria(role: str, old: Values, options: Values) -> Values:
    for name in ("promise", "description", "max_iterations"):
        if (value := options[f"{role}_{name}"]) is not None:
            old[name] = value
    method, config = _verification(role, options)
    if method is not None:
        is_same = old.get("verification_method") == method and options[f"{role}_template"] is None
        old["verification_config"] = (old.get("verification_config", {}) if is_same else {}) | config
        old["verification_method"] = method
    return old


def _verification(role: str, options: Values) -> tuple[str | None, Values]:
    """Return the verification method and the config from the options; several methods at once are an error."""
    from ralph.tasks import templates

    ways: dict[str, tuple[str, Values]] = {}
    if (name := options[f"{role}_template"]) is not None:
        _, template = templates.find(name)
        ways[f"--{role}-template"] = str(template.method), template.config
    if (command := options[f"{role}_verify_cmd"]) is not None:
        ways[f"--{role}-verify-cmd"] = str(VerificationMethod.EXTERNAL), {"command": command}
    judged = {
        "check_for": list(options[f"{role}_check_for"]),
        "negative_patterns": list(options[f"{role}_negative_pattern"]),
    }
    if any(judged.values()):
        option = f"--{role}-check-for" if judged["check_for"] else f"--{role}-negative-pattern"
        config = {key: texts for key, texts in judged.items() if texts}
        ways[option] = str(VerificationMethod.SEMANTIC), config
    said_method = options[f"{role}_verify"]
    if len(ways) > 1 or (said_method and any(method != said_method for method, _ in ways.values())):
        verify = [f"--{role}-verify {said_method}"] if said_method else []
        raise RalphError(
            f"{' and '.join([*verify, *ways])} cannot be used together.",
            "Use one method per role. To combine methods, import a multi_stage verification: ralph task import FILE",
        )
    return next(iter(ways.values()), (said_method, {}))


# ---- problems -> options ----

_NAMES = {
    "id": "ID",
    "spec_id": "SPEC",
    "title": "TITLE",
    "dependencies": "--depends-on",
    "acceptance_criteria": "--acceptance",
    "verification_method": "verify",
    "command": "verify-cmd",
    "check_for": "check-for",
    "negative_patterns": "negative-pattern",
    "max_iterations": "max-iterations",
    "stages": "verify multi_stage: stages",
}
EDITED = _NAMES | {"title": "--title"}
"""`ralph task edit` has an option for the title instead of an argument."""

_HINTS = {
    "outcome": 'For example: --outcome "All endpoints require a JWT" --acceptance "Invalid tokens return 401"',
    "acceptance_criteria": 'For example: --acceptance "Invalid tokens return 401"',
    "stages": "Stages can only be imported from a file: ralph task import FILE",
    "dependencies": "To list the tasks: ralph task list. For the dependencies of one: ralph task show ID",
}


def explained(what: str, problems: Sequence[TaskProblem], names: Mapping[str, str] = _NAMES) -> RalphError:
    """Return one error with all problems, named by their arguments and options."""
    from ralph.tasks.edit import EXISTS
    from ralph.tasks.task_file import explain, said

    lines = [
        "A task with this ID already exists"
        if problem == EXISTS
        else said(_option(problem.keys, names), problem.text)
        for problem in problems
    ]
    about = {key for problem in problems for key in problem.keys}
    hint = next((text for key, text in _HINTS.items() if key in about), "")
    if EXISTS in problems:
        hint = "To change it, use: ralph task edit"
    return explain(what, lines, hint)


def _option(keys: Keys, names: Mapping[str, str]) -> str:
    from ralph.tasks.task_file import dotted

    if keys[:1] != ("completion",):
        first, rest = keys[0], keys[1:] if keys[1:] and not keys[1].isdigit() else ()
        return dotted((names.get(first, f"--{first}"), *rest))
    if keys[1] not in ROLES:
        return names.get(keys[1], f"--{keys[1]}")
    role, name = keys[1], next((key for key in keys[2:] if key != "verification_config"), "verify")
    return f"--{role}-{names.get(name, name)}"
