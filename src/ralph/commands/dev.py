"""`ralph dev`: tools for testing agents and Ralph itself."""

from __future__ import annotations

import json
import shlex
import threading
from posixpath import dirname
from typing import TYPE_CHECKING

import click

from ralph.commands.common import PORT

if TYPE_CHECKING:
    from ralph.modelserver.clients import Client


@click.group(no_args_is_help=False)
def command() -> None:
    """Run tools for testing agents and Ralph itself."""


@command.command("model-server", short_help="Serve a scripted model to real agent CLIs.")
@click.argument("script", type=click.Path())
@click.option("--port", type=PORT, default=0, metavar="N", help="Port to listen on. [a free port]")
@click.option("--log", type=click.Path(), metavar="FILE", help="Append every request to FILE as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print URL and settings as one JSON object.")
def model_server(script: str, port: int, log: str | None, as_json: bool) -> int:
    """Serve a model that plays SCRIPT, to run real agent CLIs offline and without an account.

    Serves the Anthropic Messages, OpenAI Responses, OpenAI chat completions and Gemini APIs on loopback until
    Ctrl-C, and prints how to point each agent at it. See docs/model-server.md for the script format.
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
            click.echo('\nexport HOME="$(mktemp -d)"  # leaves your own settings untouched', err=True)
            for name, client in agents.items():
                click.echo(_explained(name, client), err=True)
            click.echo("\nServing until Ctrl-C at:", err=True)
            click.echo(server.url)
        threading.Event().wait()
    return 0


def _explained(name: str, client: Client) -> str:
    """Return the shell commands that start a client: its file, its variables, its command line."""
    lines = [f"\n# {name}"]
    if client.file:
        lines += [
            f"mkdir -p ~/{dirname(client.file)} && cat > ~/{client.file} <<'END'",
            client.content.rstrip("\n"),
            "END",
        ]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in client.env.items()]
    return "\n".join([*lines, f"{shlex.join(client.argv)} < PROMPT-FILE"])
