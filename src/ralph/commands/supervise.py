"""`ralph supervise`: restart a root agent until it creates a DONE file."""

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
@click.option("-f", "--prompt-file", metavar="FILE", help="Prompt file, read again in each attempt.")
@click.option("--max-restarts", type=COUNT, metavar="N", help="Maximum number of attempts. [100]")
@click.option("--restart-delay", type=AMOUNT, metavar="S", help="Seconds between attempts. [1]")
@click.option(
    "--restart-policy",
    type=click.Choice(RESTART_POLICIES),
    help="backoff waits longer after every quick failure and stops in a crash loop; fixed always waits"
    " --restart-delay. [backoff]",
)
@click.option(
    "--agent-timeout", type=AMOUNT, metavar="S", help="Timeout for one attempt in seconds (0: none). [0]"
)
@click.option(
    "--wait-timeout", type=AMOUNT, metavar="S", help="Seconds to wait for child processes after DONE. [300]"
)
@click.option(
    "--poll-interval",
    type=AMOUNT,
    metavar="S",
    help="Polling interval in seconds when file watching is unavailable. [1]",
)
@click.option("--project", metavar="NAME", help="Project name. [the folder above TASK_DIR]")
@click.option("--task", "name", metavar="NAME", help="Task name. [the name of TASK_DIR]")
@budget_options
@sandbox_options
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
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
    """Restart a command until it creates a file DONE in TASK_DIR.

    The command is restarted after crashes, hangs and usage limits, and also after exit code 0 if DONE is
    missing. To wait instead (exit code 3), it can exit with 42, post `wait_without_restart` on the bus or create
    a file WAIT_WITHOUT_RESTART. It runs in the current directory with TASK_FOLDER, RALPH_RUN_ID and
    RALPH_ATTEMPT in its environment.

    \b
    ralph supervise tasks/build -- ./my-agent --some flags
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
