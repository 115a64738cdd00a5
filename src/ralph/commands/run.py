"""`ralph run`: run an agent until the work is proved done."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.commands.common import (
    COUNT,
    allow_option,
    budget_options,
    load_with_agent,
    make_look,
    make_view,
    sandbox_options,
    start,
    view_options,
)

if TYPE_CHECKING:
    from ralph.core.model import Plan
    from ralph.runs.run_plan import RunInputs
    from ralph.settings import LoadedSettings


@click.command(
    epilog="Exit codes: 0 complete · 1 limit reached · 2 configuration or fatal error ·"
    " 3 waiting for something external · 130 interrupted"
)
@click.option("-p", "--prompt", metavar="TEXT", help="Prompt for the agent.")
@click.option("-f", "--prompt-file", metavar="FILE", help="Prompt file, read again in each iteration.")
@click.option(
    "-m", "--maximum-iterations", type=COUNT, metavar="N", help="Maximum number of iterations. [10]"
)
@budget_options
@click.option(
    "-c",
    "--completion-response",
    metavar="TEXT",
    help="Text that the agent prints when it is done. [DONE]",
)
@click.option(
    "--agent", metavar="COMMAND", help="Agent command with its flags, instead of the configured agent."
)
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
@click.option(
    "--stream-agent-output/--no-stream-agent-output",
    "stream",
    default=None,
    help="Show agent output live. [on]",
)
@allow_option("Glob of existing tests that the agent may change; repeatable. [none]")
@sandbox_options
@click.option("--dry-run", is_flag=True, help="Show the prompt, the command and the checks, but run nothing.")
@view_options
def command(
    prompt: str | None,
    prompt_file: str | None,
    agent: str | None,
    settings_file: str | None,
    allow: tuple[str, ...],
    sandbox: bool | None,
    sandbox_backend: str | None,
    dry_run: bool,
    verbose: bool,
    as_json: bool,
    detach: bool,
    **options: Any,
) -> int:
    """Run an agent in a loop, with a fresh context in each iteration, until the work is proved done.

    An iteration is one agent process, followed by the guardrails. The run is complete when the agent says
    so with `<response>DONE</response>` and every guardrail passes.

    \b
    ralph run -p "Make the tests pass" -m 5
    ralph run -f PROMPT.md --agent ./my-agent.sh
    """
    from ralph.runs import run_plan
    from ralph.runs.location import here
    from ralph.runs.sandbox_choice import Wanted, choose
    from ralph.sandbox.registry import DIRECT

    directory = Path.cwd()
    inputs = run_plan.RunInputs(prompt, prompt_file, allow)
    run_plan.check_inputs(inputs, directory)
    flags = {_KEYS[name]: value for name, value in options.items() if value is not None}
    loaded = load_with_agent(settings_file, flags, agent)
    settings = loaded.settings
    if dry_run:
        return _show(run_plan.plan(settings, inputs, directory), inputs, as_json=as_json)
    if verbose:
        _explain(loaded)
    chosen = choose(loaded, Wanted(sandbox, sandbox_backend), DIRECT.name)
    look = make_look(settings, verbose=verbose, stream=settings.stream_agent_output)
    where = here(directory)
    return start(
        run_plan.plan(settings, inputs, where.directory, chosen),
        where,
        partial(make_view, look, as_json=as_json),
        detach=detach,
        notify=settings.notify,
    )


_KEYS = {
    "maximum_iterations": "maximumIterations",
    "completion_response": "completionResponse",
    "stream": "streamAgentOutput",
    "max_cost_usd": "maxCostUsd",
    "max_tokens": "maxTokens",
    "max_duration_seconds": "maxDurationSeconds",
}


def _explain(loaded: LoadedSettings) -> None:
    from ralph.settings import redacted, to_json

    for path in loaded.files:
        click.echo(f"[ralph] Loading settings from {path}", err=True)
    values = to_json(redacted(loaded.settings))
    click.echo(f"[ralph] Settings: {json.dumps(values, ensure_ascii=False)}", err=True)


def _show(plan: Plan, inputs: RunInputs, *, as_json: bool) -> int:
    """Print the prompt, the command and the checks of the first iteration."""
    from ralph.agents.base import Prompt
    from ralph.agents.registry import AGENTS
    from ralph.core import prompt as prompts
    from ralph.core.model import Left, Purpose, RunAgent
    from ralph.core.text import clean
    from ralph.files.textfile import read_text

    spec = plan.agents[0]
    base = (
        plan.prompt.text
        if inputs.prompt_file is None
        else read_text(str(Path(plan.directory) / inputs.prompt_file), most=1 << 28, what="prompt file")
    )
    step = RunAgent(Purpose.WORK, 1, spec.name, plan.role, Left(), of=plan.limits.iterations)
    text = prompts.build(base, step, plan.prompt, plan.claim)
    words = AGENTS[spec.type].argv(spec, Purpose.WORK, Prompt(text, ".ralph/prompt_001.txt"))
    argv = [word.replace(text, "<prompt>") for word in words]
    checks = [check.name for check in plan.checks if check.method == "command"]
    if as_json:
        values = {"prompt": text, "argv": argv, "promptVia": spec.prompt_via, "checks": checks}
        click.echo(json.dumps(values, ensure_ascii=False))
        return 0
    click.echo("Prompt for iteration 1:")
    click.echo(clean(text))
    click.echo(f"\nAgent command (prompt via {spec.prompt_via}):\n{clean(shlex.join(argv))}")
    click.echo("\nChecks after each iteration:")
    listed = "\n".join(f"sh -c {shlex.quote(clean(check))}" for check in checks)
    click.echo(listed or "none: the run ends when the agent says it is done")
    return 0
