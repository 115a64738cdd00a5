"""`ralph dev`: tools for tests of agents and of Ralph itself."""

from __future__ import annotations

import json
import shlex
import threading
from posixpath import dirname
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ralph.modelserver.clients import Client


@click.group(no_args_is_help=False)
def command() -> None:
    """Tools for tests of agents and of Ralph itself."""


@command.command("model-server", short_help="Play a script as a model, for the real agent CLIs.")
@click.argument("script", type=click.Path())
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Serve there. Default: a free port."
)
@click.option("--log", type=click.Path(), metavar="FILE", help="Append every request to it, as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="URL and settings as one JSON object on stdout.")
def model_server(script: str, port: int, log: str | None, as_json: bool) -> int:
    """Play SCRIPT as a model: the real agent CLIs, offline and without an account.

    Serves Anthropic Messages, OpenAI Responses and chat completions, and Gemini on loopback until Ctrl-C.
    Prints how to point each agent at it. docs/model-server.md describes the script.
    """
    from msgspec import to_builtins

    from ralph.modelserver.clients import clients
    from ralph.modelserver.script import load
    from ralph.modelserver.server import ModelServer

    with ModelServer(load(script), port, log) as server:
        agents = clients(server.url)
        if as_json:
            found = {name: to_builtins(client) for name, client in agents.items()}
            click.echo(json.dumps({"url": server.url, "port": server.port, "agents": found}))
        else:
            click.echo('\nexport HOME="$(mktemp -d)"  # your own settings stay untouched', err=True)
            for name, client in agents.items():
                click.echo(_explained(name, client), err=True)
            click.echo("\nServing until Ctrl-C at", err=True)
            click.echo(server.url)
        threading.Event().wait()
    return 0


def _explained(name: str, client: Client) -> str:
    """A shell's view of a client: the file, then the command with its variables."""
    lines = [f"\n# {name}"]
    if client.file:
        lines += [
            f"mkdir -p ~/{dirname(client.file)} && cat > ~/{client.file} <<'END'",
            client.content.rstrip("\n"),
            "END",
        ]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in client.env.items()]
    return "\n".join([*lines, f"{shlex.join(client.argv)} < PROMPT-FILE"])
