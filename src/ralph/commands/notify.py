"""`ralph notify`: show and test notifications."""

from __future__ import annotations

from pathlib import Path

import click

from ralph.errors import RalphError


@click.command(
    epilog="Exit codes: 0 shown, or sent to all targets · 1 a target failed · 2 no notifications configured"
)
@click.option("--test", is_flag=True, help="Send a test message to every target now.")
@click.option("--settings", "settings_file", metavar="FILE", help="Settings file. [.ralph/settings.json]")
def command(test: bool, settings_file: str | None) -> int:
    """Show the configured notifications. With --test, send a test message.

    Configure them in the settings under `notify`: `urls` (apprise URLs such as ntfy://, slack:// or mailto://),
    `command` (a shell command) and `on` (finished, failed, waiting, limit, budget).

    \b
    ralph notify
    ralph notify --test
    """
    from ralph.core.model import Occasion
    from ralph.core.text import clean
    from ralph.notify.notices import Notification
    from ralph.notify.sender import deliver, targets_of
    from ralph.process.client import Warden
    from ralph.runs.background import signals
    from ralph.settings import load, redacted

    settings = load(Path(settings_file) if settings_file else None).settings
    targets = targets_of(settings.notify)
    if targets.is_empty:
        raise RalphError(
            "No notifications configured.", 'Set "notify": {"urls": […]} in .ralph/settings.local.json.'
        )
    for url in redacted(settings).notify.urls:
        click.echo(f"url      {clean(url)}")
    if targets.command:
        click.echo(f"command  {clean(targets.command)}")
    click.echo(f"on       {', '.join(targets.on)}")
    if not test:
        return 0
    directory = Path.cwd()
    message = Notification(
        key="test",
        occasion=Occasion.FINISHED,
        title=f"Ralph: test from {directory.name}",
        text=f"If you can read this, notifications work.\n{directory}",
        directory=str(directory),
    )
    with signals() as wakeup, Warden(wakeup) as warden:
        problems = deliver(targets, message, warden, lambda: wakeup.count > 0)
    for problem in problems:
        click.echo(f"ralph: not sent: {problem}", err=True)
    if not problems:
        click.echo("Sent.", err=True)
    return 1 if problems else 0
