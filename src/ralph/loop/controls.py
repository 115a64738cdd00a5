"""A control: a check that could look at other code must turn red when the copy's code is made unparsable."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ralph.environments.base import Copy, inside
from ralph.environments.registry import SOURCES
from ralph.loop.copies import PreparedCopy
from ralph.protection.protect import simple_commands, tests_among

UNPARSABLE = b")]} made unparsable for a moment by Ralph, to see whether this check notices\n"

_WORD = re.compile(r"(?:(?<![\w./~-])~)?/[^\s`=:;,|&<>(){}\[\]$]*")
"""What looks like an absolute path in a command."""

_UTILITIES = frozenset(
    [
        "[",
        "awk",
        "basename",
        "cat",
        "cd",
        "cmp",
        "comm",
        "cp",
        "cut",
        "date",
        "diff",
        "dirname",
        "echo",
        "egrep",
        "env",
        "expr",
        "false",
        "fgrep",
        "find",
        "git",
        "grep",
        "head",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "printf",
        "pwd",
        "read",
        "rm",
        "sed",
        "set",
        "sh",
        "sleep",
        "sort",
        "tail",
        "tee",
        "test",
        "touch",
        "tr",
        "true",
        "uniq",
        "wc",
        "xargs",
    ]
)
"""Programs that run no code of a project."""


def leads_of(copy: PreparedCopy, command: str) -> list[str]:
    """What leads a command from the copy to the user's checkout, if it may run code."""
    named = [f"the command names {copy.copy.origin}"] if _names(copy.copy, command) else []
    found = [*copy.leads, *named]
    return found if found and _runs_code(command) else []


def _names(copy: Copy, command: str) -> bool:
    """Whether a command names the user's checkout, also below the home directory or through a link."""
    plain = os.path.expandvars(command.replace('"', "").replace("'", ""))
    words = (os.path.expanduser(word) for word in _WORD.findall(plain))
    return copy.leads_back(command) or any(inside(word, copy.origin) is not None for word in words)


def _runs_code(command: str) -> bool:
    found = simple_commands(command)
    return not found or any("/" in each.name or each.name not in _UTILITIES or each.script for each in found)


def to_break(copy: PreparedCopy, changed: Collection[str]) -> list[str]:
    """The source files that a check of this change has to notice: the changed ones, otherwise all, without tests."""
    sources = [name for name in copy.written if name.endswith(SOURCES)]
    tests = set(tests_among(sources))
    code = [name for name in sources if name not in tests]
    return [name for name in code if name in changed] or code


@contextmanager
def broken(copy: PreparedCopy, names: Sequence[str]) -> Iterator[None]:
    """Make files of a copy unparsable."""
    kept: dict[Path, tuple[bytes, tuple[int, int]]] = {}
    try:
        for name in names:
            path = copy.copy.top / name
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                kept[path] = path.read_bytes(), (status.st_atime_ns, status.st_mtime_ns)
                path.write_bytes(UNPARSABLE)
        yield
    finally:
        for path, (data, times) in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, ns=times)  # otherwise it would count as rewritten by the check


def not_shown(leads: Sequence[str]) -> str:
    """Why a check does not count."""
    return (
        f"It looks at other code: {leads[0]}.\n"
        "It stayed green when the changed code was made unparsable.\n"
        "Set ralph.setup to the command that installs the project in a copy."
    )
