"""Files of the user that git does not track, and commits that would replace them."""

from __future__ import annotations

from msgspec import Struct


class Case(Struct, frozen=True):
    """What the user has (shell), what the commit does (shell, followed by `git commit`), and what is in the way."""

    mine: str
    theirs: str
    found: tuple[str, ...]


IGNORE = "/.env\n/data\n/.venv\n/build\n/a b\n*.log\n*.db\n"
"""The project's `.gitignore`."""

CASES = {
    "an ignored file": Case("echo mine > .env", "echo theirs > .env; git add -f .env", (".env",)),
    "no longer ignored": Case(
        "echo mine > dev.db", "sed -i /db/d .gitignore; echo theirs > dev.db; git add -A", ("dev.db",)
    ),
    "a link for an ignored directory": Case(
        "mkdir -p .venv/bin; echo mine > .venv/bin/python",
        "ln -s /nowhere .venv; git add -f .venv",
        (".venv/",),
    ),
    "a file for an ignored directory": Case(
        "mkdir -p data/deep; echo mine > data/deep/x", "echo theirs > data; git add -f data", ("data/",)
    ),
    "a directory for an ignored file": Case(
        "echo mine > build", "mkdir build; echo theirs > build/x; git add -f build", ("build",)
    ),
    "a file in an ignored directory": Case(
        "mkdir data; echo mine > data/x; echo other > data/y",
        "mkdir data; echo theirs > data/x; git add -f data",
        ("data/x",),
    ),
    "a directory behind a link": Case(
        "mkdir ../far ../far/deep; echo mine > ../far/deep/x; ln -s ../far data",
        "mkdir -p data/deep; echo theirs > data/deep/x; git add -f data",
        ("data",),
    ),
    "an ignored link": Case("ln -s /mine .env", "echo theirs > .env; git add -f .env", (".env",)),
    "a name with a space": Case("echo mine > 'a b'", "echo theirs > 'a b'; git add -f 'a b'", ("a b",)),
    "a name with a newline": Case(
        'echo mine > "$(printf "a\\nb.log")"',
        'echo theirs > "$(printf "a\\nb.log")"; git add -f -A .',
        ("a\nb.log",),
    ),
    "a name that is not UTF-8": Case(
        'echo mine > "$(printf "\\377.log")"',
        'echo theirs > "$(printf "\\377.log")"; git add -f -A .',
        ("\udcff.log",),
    ),
    "an empty file": Case(": > .env", "echo theirs > .env; git add -f .env", (".env",)),
    "an untracked file": Case("echo mine > new", "echo theirs > new; git add new", ("new",)),
}

FREE = {
    "nothing there": Case("true", "echo theirs > .env; git add -f .env", ()),
    "the same content": Case("echo theirs > .env", "echo theirs > .env; git add -f .env", ()),
    "the same link": Case("ln -s /theirs .venv", "ln -s /theirs .venv; git add -f .venv", ()),
    "the same untracked file": Case("echo theirs > new", "echo theirs > new; git add new", ()),
    "an empty directory": Case("mkdir -p data/deep", "echo theirs > data; git add -f data", ()),
    "next to it": Case(
        "mkdir data; echo mine > data/y", "mkdir data; echo theirs > data/x; git add -f data", ()
    ),
}
