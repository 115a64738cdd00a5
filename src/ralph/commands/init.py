"""`ralph init`: write `.ralph/settings.json` from a few questions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ralph.commands.common import COUNT
from ralph.errors import RalphError

PERMISSIONS = ("edit", "bypass", "none")


def _not_blank(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    if any(not each.strip() for each in ((value,) if isinstance(value, str) else value or ())):
        raise click.BadParameter("must not be empty.", ctx, param)
    return value


@click.command(epilog="Exit codes: 0 written, or existing settings kept · 2 error · 130 interrupted")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; use the defaults for options not given.")
@click.option(
    "--agent", metavar="COMMAND", callback=_not_blank, help="Agent command. [the first one installed]"
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="FLAG",
    callback=_not_blank,
    help="Flag for the agent; repeatable.",
)
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    help="What the agent may do without asking: edit files, anything (bypass), or only what its own"
    " configuration allows (none). [edit]",
)
@click.option(
    "-m", "--maximum-iterations", type=COUNT, metavar="N", help="Maximum number of iterations. [10]"
)
@click.option(
    "-c",
    "--completion-response",
    metavar="TEXT",
    callback=_not_blank,
    help="Text that the agent prints when it is done. [DONE]",
)
@click.option(
    "--guardrail",
    "guardrails",
    multiple=True,
    metavar="COMMAND",
    callback=_not_blank,
    help="Command that must succeed after every iteration; repeatable. [checks found in the project]",
)
@click.option("--no-guardrails", is_flag=True, help="No guardrails: trust the agent when it says it is done.")
@click.option(
    "--protect/--no-protect",
    "protects_tests",
    default=None,
    help="Whether work must also pass existing tests as they were before the agent changed them. [on]",
)
@click.option(
    "--scm", metavar="COMMAND", callback=_not_blank, help="Version control command, for example git. [none]"
)
@click.option(
    "--scm-task",
    "tasks",
    multiple=True,
    metavar="TASK",
    callback=_not_blank,
    help="Version control task after an iteration in which all guardrails passed; repeatable. [commit]",
)
@click.option("--force", is_flag=True, help="Overwrite existing settings without asking; keeps a backup.")
def command(
    yes: bool,
    agent: str | None,
    flags: tuple[str, ...],
    permissions: str | None,
    maximum_iterations: int | None,
    completion_response: str | None,
    guardrails: tuple[str, ...],
    no_guardrails: bool,
    protects_tests: bool | None,
    scm: str | None,
    tasks: tuple[str, ...],
    force: bool,
) -> int:
    """Create .ralph/settings.json: the agent, its guardrails and its limits.

    Asks a few questions and suggests answers: the installed agents, and the checks that the project has.
    Options skip their question. In scripts, use `--yes` to skip all questions.

    \b
    ralph init
    ralph init --yes --agent claude --guardrail "make test"
    """
    if not yes and not sys.stdin.isatty():
        raise RalphError(
            "`ralph init` asks questions, but stdin is not a terminal.",
            'In a script, run: ralph init --yes --agent claude --guardrail "make test"',
        )
    if guardrails and no_guardrails:
        raise RalphError("--guardrail and --no-guardrails cannot be used together.", "Remove one of them.")
    from ralph.commands import init_questions
    from ralph.core.model import Permissions
    from ralph.settings import GuardrailSettings
    from ralph.setup import init
    from ralph.store import settings_file

    directory = Path.cwd()
    settings_file.check_writable(directory)
    found = init.look_around(directory)
    name, words = init.split_agent(agent, directory) if agent else (None, ())
    said = init.Answers(
        command=name,
        flags=(*words, *flags) or None,
        permissions=Permissions(permissions) if permissions else None,
        iterations=maximum_iterations,
        response=completion_response.strip() if completion_response else None,
        guardrails=tuple(map(GuardrailSettings, guardrails)) if guardrails or no_guardrails else None,
        scm=init.scm_of(scm, tasks, found),
        protects_tests=protects_tests,
    )
    is_in_the_way = settings_file.exists(directory) and not force
    if yes:
        return init_questions.write_without_asking(directory, said, found, is_in_the_way=is_in_the_way)
    try:
        settings = init_questions.ask_settings(directory, said, found, is_in_the_way=is_in_the_way)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nAborted. Nothing was written.", err=True)
        return 130
    if settings is not None:
        click.echo(f"\n{init_questions.write(directory, settings)}")
    return 0
