"""`ralph bus`: post, read and follow messages on the bus of a task or a project."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ralph.commands.common import NATURAL
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.store.messages import BusMessage, Damage

POLL_SECONDS = 0.1

F = TypeVar("F", bound=Callable[..., Any])


@click.group(no_args_is_help=False)
def command() -> None:
    """Exchange messages between a task's agents, Ralph and people.

    DIR is the task folder. Messages are stored in its TASK-MESSAGE-BUS.md or, with --project, in the
    PROJECT-MESSAGE-BUS.md next to it. Any word can be a message type; FACT, INFO, WARNING, ERROR and
    wait_without_restart have a special meaning.

    \b
    ralph bus post tasks/build "The schema is frozen." --type FACT
    make test 2>&1 | ralph bus post tasks/build --type ERROR
    ralph bus read tasks/build --json --since 0000000312-9f3a
    ralph bus tail tasks/build --project
    """


def _place(function: F) -> F:
    """Add the options that choose a bus."""
    function = click.option(
        "--project", is_flag=True, help="Use the bus shared by all tasks of the project."
    )(function)
    return click.argument("folder", metavar="DIR")(function)


_type_option = click.option(
    "--type", "types", multiple=True, metavar="T", help="Show only messages of this type; repeatable."
)
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one object per line: id, time, type, task, run, body."
)


@command.command(short_help="Post a message and print its id.")
@_place
@click.argument("body", required=False)
@click.option(
    "--type", "type_", default="INFO", metavar="T", help="Message type: FACT, INFO, WARNING, ERROR… [INFO]"
)
def post(folder: str, project: bool, body: str | None, type_: str) -> int:
    """Post BODY, or stdin, to the bus of the task in DIR and print the message id.

    \b
    ralph bus post tasks/build "The schema is frozen." --type FACT
    ralph bus post tasks/build --type wait_without_restart "Waiting for the key."
    """
    from ralph.store import bus

    path, type_ = _path(folder, project), bus.as_type(type_)
    if body is None:
        body = _stdin()
    run = os.environ.get("RALPH_RUN_ID", "")
    posted = bus.Bus(path).post(time.time(), type_, body, task=bus.task_name(Path(folder)), run=run)
    if posted.moved:
        _warn(path, posted.moved)
    click.echo(posted.id)
    return 0


@command.command(short_help="Show the messages.")
@_place
@_type_option
@click.option("--since", metavar="ID", help="Show only messages posted after this one.")
@_json_option
def read(folder: str, project: bool, types: tuple[str, ...], since: str | None, as_json: bool) -> int:
    """Show the messages of the task in DIR, oldest first.

    \b
    ralph bus read tasks/build --type ERROR
    ralph bus read tasks/build --json --since 0000000312-9f3a
    """
    from ralph.store import bus

    path = _path(folder, project)
    wanted = _wanted(types)
    _show(path, (item for item in bus.read(path, since) if wanted(item)), as_json=as_json)
    return 0


@command.command(short_help="Show the last messages, then new ones as they arrive.")
@_place
@_type_option
@click.option(
    "-n",
    "--last",
    type=NATURAL,
    default=10,
    metavar="N",
    help="Number of old messages to show first. [10]",
)
@_json_option
def tail(folder: str, project: bool, types: tuple[str, ...], last: int, as_json: bool) -> int:
    """Show the last messages of the task in DIR, then new ones as they arrive, until Ctrl-C."""
    from ralph.store import bus

    path = _path(folder, project)
    wanted = _wanted(types)
    reader = bus.BusReader(path)
    try:
        _show(path, deque((item for item in reader.news() if wanted(item)), last), as_json=as_json)
        while _is_read(POLL_SECONDS):
            _show(path, (item for item in reader.news() if wanted(item)), as_json=as_json)
    except KeyboardInterrupt:
        return 130
    return 0


def _path(folder: str, project: bool) -> Path:
    from ralph.store import bus

    place = Path(folder)
    bus.check_folder(place)
    return bus.project_bus(place) if project else bus.task_bus(place)


def _stdin() -> str:
    from ralph.store.messages import MAX_BYTES

    if sys.stdin.isatty():
        raise RalphError("No message given.", 'Run: ralph bus post DIR "message", or pipe the message in.')
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RalphError(
            f"The message is too long: the limit is {MAX_BYTES:,} bytes.",
            "Write it to a file and post its path.",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RalphError(f"The message is not UTF-8 text (byte {error.start:,} of stdin).") from None


def _wanted(types: tuple[str, ...]) -> Callable[[BusMessage | Damage], bool]:
    from ralph.store import bus
    from ralph.store.messages import Damage

    chosen = {bus.as_type(word) for word in types}
    return lambda item: not chosen or isinstance(item, Damage) or item.type in chosen


def _show(path: Path, items: Iterable[BusMessage | Damage], *, as_json: bool) -> None:
    import msgspec

    from ralph.store.messages import Damage

    for item in items:
        if isinstance(item, Damage):
            _warn(path, item)
        elif as_json:
            sys.stdout.buffer.write(msgspec.json.encode(item) + b"\n")
        else:
            sys.stdout.write(_for_people(item))
    sys.stdout.flush()


def _for_people(message: BusMessage) -> str:
    from ralph.core.text import clean

    head = "  ".join(filter(None, (message.type, _local(message.time), message.task, message.id)))
    lines = clean(message.body.removesuffix("\n")).split("\n")
    return "\n".join([clean(head).replace("\n", " "), *(f"  {line}".rstrip() for line in lines), "", ""])


def _local(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return str(at)


def _warn(path: Path, damage: Damage) -> None:
    what = "truncated message" if damage.is_torn else "invalid or damaged message"
    where = f"{damage.bytes:,} bytes at offset {damage.offset:,}"
    click.echo(f"ralph: warning: {path}: skipped {where}: {what}.", err=True)


def _is_read(seconds: float) -> bool:
    """Wait a moment; return False as soon as the reader of stdout is gone."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not poll.poll(seconds * 1000)
