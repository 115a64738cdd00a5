"""The calls of a Python program, read from its syntax tree."""

from __future__ import annotations

import pytest

from ralph.shell.code import python
from ralph.shell.words import UNKNOWN


def did(text: str) -> list[tuple[str, ...]] | None:
    """Return the shell commands for its calls, with a question mark for unknown text."""
    found = python.commands(text, "/home/dev")
    if found is None:
        return None
    return [
        tuple(word.replace(UNKNOWN, "?").replace("\0", "") for word in (program, *words))
        for program, words, _ in found
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import shutil\nshutil.rmtree('build')", ("rm", "-rf", "build")),
        ("from shutil import rmtree as x\nx('build')", ("rm", "-rf", "build")),
        ("from pathlib import Path\n(Path.home() / 'a').unlink()", ("rm", "-rf", "/home/dev/a")),
        ("import os\nos.remove(os.path.join(os.getcwd(), 'a', 'b'))", ("rm", "-rf", "a/b")),
        (
            "import os\nfor name in os.listdir('d'):\n    os.unlink(f'd/{name}')",
            ("rm", "-rf", "d/d/?"),
        ),
        ("def clean(p):\n    p.unlink()\nclean('/etc')", ("rm", "-rf", "/etc")),
        ("import subprocess\nsubprocess.run(['git', 'push'] )", ("git", "push")),
        (
            "import subprocess\ndef git(*a):\n    subprocess.run(['git', *a])\ngit('reset', '--hard')",
            ("git", "reset", "--hard"),
        ),
        ("import os\nos.system('ls %s' % 'x')", ("text", "ls x")),
        ("import subprocess\nc = ['git']\nc.append('push')\nsubprocess.run(c)", ("git", "push")),
        ("import os\ndef f():\n    return '/etc'\nos.rmdir(f())", ("rm", "-rf", "/etc")),
        ("import os\ndef f(p='/etc'):\n    os.rmdir(p)\nf()", ("rm", "-rf", "/etc")),
        ("import shutil\nshutil.rmtree(path='/etc')", ("rm", "-rf", "/etc")),
        ("open('/tmp/a.sh', 'w').write('ls')", ("write", "/tmp/a.sh", "ls")),
        ("import tempfile, shutil\nshutil.rmtree(tempfile.mkdtemp())", ("rm", "-rf", "/tmp/tmp.?")),
        ("import os\nprint(os.environ['HOME'])\nopen('.env')", ("cat", ".env")),
    ],
)
def test_a_call_is_the_shell_command_that_does_the_same(text: str, expected: tuple[str, ...]) -> None:
    """This works through variables, functions, module aliases, loops and joined paths."""
    assert expected in (did(text) or [])


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nbad = [c for c in ('rm -rf /', 'reboot') if c in open('a').read()]",
        "import subprocess\nprint('rm -rf /')",
        "import re, subprocess\nre.sub('rm -rf /', '', 'x')",
        "x = ['/']\nx.remove('/')",
        "import subprocess\nfrom shop import judge\njudge('rm -rf /')",
        "import subprocess\nprint('rm -rf / and exec(x), getattr')",
    ],
)
def test_strings_that_reach_no_call_are_only_mentioned(text: str) -> None:
    """Strings to compare, print or replace are harmless."""
    found = did(text)
    assert found is not None
    assert not [each for each in found if each[0] in ("rm", "text")]


@pytest.mark.parametrize(
    "text",
    [
        "exec(x)",
        "import base64",
        "getattr(os, 'a' + 'b')('x')",
        "vars(os)['x']('y')",
        "x = y[::-1]",
        "print 1",
    ],
)
def test_code_that_hides_its_calls_is_not_read(text: str) -> None:
    """It is judged by its strings instead, and so is code that is not valid Python 3."""
    assert did(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a'\n" + "x += x\n" * 300,
        "".join(f"x{n} = x{n - 1} + x{n - 1}\n" for n in range(1, 300)),
        f"'{'a' * 20_000}'.replace('a', '{'b' * 20_000}')",
    ],
)
def test_a_text_that_keeps_doubling_is_not_computed(text: str) -> None:
    """Computing it would fill the memory, so it counts as unknown."""
    assert did(text) == []
