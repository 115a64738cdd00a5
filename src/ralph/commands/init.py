"""`ralph init`: a few questions become `.ralph/settings.json`."""

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
        raise click.BadParameter("it is empty", ctx, param)
    return value


@click.command(epilog="Exit codes: 0 written, or not to be overwritten · 2 an error · 130 interrupted")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: what no option says is left at its default.")
@click.option("--agent", metavar="COMMAND", callback=_not_blank, help="The agent. [the first one installed]")
@click.option(
    "--flag", "flags", multiple=True, metavar="FLAG", callback=_not_blank, help="A flag of it; repeatable."
)
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    help="What it may do unasked: change files, everything, or as it is configured itself. [edit]",
)
@click.option("-m", "--maximum-iterations", type=COUNT, metavar="N", help="Stop after N iterations. [10]")
@click.option(
    "-c",
    "--completion-response",
    metavar="TEXT",
    callback=_not_blank,
    help="What the agent says when done. [DONE]",
)
@click.option(
    "--guardrail",
    "guardrails",
    multiple=True,
    metavar="COMMAND",
    callback=_not_blank,
    help="Must succeed after every iteration; repeatable. [what the project seems to have]",
)
@click.option("--no-guardrails", is_flag=True, help="None: the agent's word is enough.")
@click.option(
    "--scm", metavar="COMMAND", callback=_not_blank, help="Version control, for example git. [none]"
)
@click.option(
    "--scm-task",
    "tasks",
    multiple=True,
    metavar="TASK",
    callback=_not_blank,
    help="What it does after an iteration with green guardrails; repeatable. [commit]",
)
@click.option("--force", is_flag=True, help="Overwrite existing settings, without asking; they are kept.")
def command(
    yes: bool,
    agent: str | None,
    flags: tuple[str, ...],
    permissions: str | None,
    maximum_iterations: int | None,
    completion_response: str | None,
    guardrails: tuple[str, ...],
    no_guardrails: bool,
    scm: str | None,
    tasks: tuple[str, ...],
    force: bool,
) -> int:
    """Write .ralph/settings.json: which agent, what must hold, when to stop.

    Asks for each of them and proposes what it finds: the agents that are installed, the checks that
    the project has. What an option says is not asked. In a script, `--yes` asks nothing at all.

    \b
    ralph init
    ralph init --yes --agent claude --guardrail "make test"
    """
    if not yes and not sys.stdin.isatty():
        raise RalphError(
            "`ralph init` asks questions, but its input is no terminal.",
            'In a script: ralph init --yes --agent claude --guardrail "make test"',
        )
    if guardrails and no_guardrails:
        raise RalphError("--guardrail and --no-guardrails contradict each other.", "Leave one of them out.")
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
    )
    is_in_the_way = settings_file.exists(directory) and not force
    if yes:
        return init_questions.write_unasked(directory, said, found, is_in_the_way=is_in_the_way)
    try:
        settings = init_questions.ask_settings(directory, said, found, is_in_the_way=is_in_the_way)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nAborted: nothing was written.", err=True)
        return 130
    if settings is not None:
        click.echo(f"\n{init_questions.write(directory, settings)}")
    return 0
