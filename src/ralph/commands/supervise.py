"""`ralph supervise`: keep a root agent going until it leaves a DONE file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ralph.commands.common import (
    AMOUNT,
    COUNT,
    budget_options,
    make_look,
    make_view,
    sandbox_options,
    start,
    view_options,
)

RESTART_POLICIES = ("backoff", "fixed")


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("task_dir", metavar="TASK_DIR", type=click.Path(path_type=Path))
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("-p", "--prompt", metavar="TEXT", help="Prompt for the configured agent.")
@click.option("-f", "--prompt-file", metavar="FILE", help="The same from a file, read again in each attempt.")
@click.option("--max-restarts", type=COUNT, metavar="N", help="Attempts before it stops. [100]")
@click.option("--restart-delay", type=AMOUNT, metavar="S", help="Seconds between two attempts. [1]")
@click.option(
    "--restart-policy",
    type=click.Choice(RESTART_POLICIES),
    help="backoff: longer after every quick failure, and stop in a crash loop; fixed: always the delay. [backoff]",
)
@click.option(
    "--agent-timeout", type=AMOUNT, metavar="S", help="An attempt is ended after so long. 0: never. [0]"
)
@click.option(
    "--wait-timeout", type=AMOUNT, metavar="S", help="How long to wait for children after DONE. [300]"
)
@click.option(
    "--poll-interval", type=AMOUNT, metavar="S", help="How often to look where nothing tells of changes. [1]"
)
@click.option("--project", metavar="NAME", help="The project's name. [the folder above TASK_DIR]")
@click.option("--task", "name", metavar="NAME", help="The task's name. [the name of TASK_DIR]")
@budget_options
@sandbox_options
@click.option("--settings", "settings_file", metavar="FILE", help="Another settings file.")
@view_options
def command(
    task_dir: Path,
    words: tuple[str, ...],
    prompt: str | None,
    prompt_file: str | None,
    project: str | None,
    name: str | None,
    settings_file: str | None,
    sandbox: bool | None,
    sandbox_backend: str | None,
    verbose: bool,
    as_json: bool,
    detach: bool,
    **options: Any,
) -> int:
    """Run a command again and again until it leaves a file DONE in TASK_DIR.

    Exit code 0 alone never stops it. It is restarted after crashes, hangs and limits; exit code 42, a message
    `wait_without_restart` on the bus or a file WAIT_WITHOUT_RESTART stop it as waiting (exit code 3). The command
    finds TASK_FOLDER, RALPH_RUN_ID and RALPH_ATTEMPT in its environment, and works in your directory.

    \b
    ralph supervise tasks/build -- ./my-agent --its flags
    ralph supervise tasks/build -f PROMPT.md --max-restarts 20
    """
    from ralph.runs.run_plan import RunInputs
    from ralph.runs.sandbox_choice import Wanted, choose
    from ralph.sandbox.registry import DIRECT
    from ralph.settings import load
    from ralph.supervise import plan

    directory = Path.cwd()
    task = plan.make_task(task_dir, project, name, words, RunInputs(prompt, prompt_file))
    flags = {_KEYS[key]: value for key, value in options.items() if value is not None}
    loaded = load(Path(settings_file) if settings_file else None, flags)
    settings = loaded.settings
    chosen = choose(loaded, Wanted(sandbox, sandbox_backend), DIRECT.name)
    look = make_look(settings, verbose=verbose, stream=settings.stream_agent_output)
    where = plan.where(task, directory)
    return start(
        plan.plan(settings, task, where.directory, chosen),
        where,
        partial(make_view, look, as_json=as_json),
        detach=detach,
        notify=settings.notify,
    )


_KEYS = {
    "max_restarts": "supervise.maxRestarts",
    "restart_delay": "supervise.restartDelaySeconds",
    "restart_policy": "supervise.restartPolicy",
    "agent_timeout": "supervise.agentTimeoutSeconds",
    "wait_timeout": "supervise.waitTimeoutSeconds",
    "poll_interval": "supervise.pollIntervalSeconds",
    "max_cost_usd": "maxCostUsd",
    "max_tokens": "maxTokens",
    "max_duration_seconds": "maxDurationSeconds",
}
