"""A layer: a thin virtual environment over an installed one, whose entries for a project lead to a copy of it.

Packages are read from the installed environment, never written: what is installed into the layer stays there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from ralph.environments.base import Copy, entries_of
from ralph.environments.python_installed import (
    RECORD,
    Lead,
    PythonEnvironment,
    leading_to,
    lines_of,
    read,
    repointed,
)

_LINKS = "__editable__"
"""In the name of a directory of links to sources."""

LONGEST_SHEBANG = 127
"""Longer first lines are cut off by some kernels."""

_LOADER = '''\
"""Adds the packages of the environment below this layer to the path."""

import json
import os
import site
import sys

with open(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "NAME")) as _file:
    _record = json.load(_file)
for _site in _record["sites"]:
    if os.path.isdir(_site) and _site not in sys.path:
        sys.path.append(_site)
        for _name in sorted(os.listdir(_site)):
            _path = os.path.join(_site, _name)
            if _name.endswith(".pth") and not _name.startswith(".") and _path not in _record["skipped"]:
                site.addpackage(_site, _name, None)
'''.replace("NAME", RECORD)


def make_layer(copy: Copy, below: PythonEnvironment, target: Path, instead_of: Path) -> None:
    """Make a layer for a copy at `target`, which its commands use instead of the user's environment at `instead_of`.

    Entries of build backends that compile on import are left out.
    """
    site = target / "lib" / f"python{below.version}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (target / RECORD).touch()
    (target / ".gitignore").write_text("*\n")
    entries = leading_to(copy, below)
    skipped = {str(entry.path) for entry in entries} | set(below.skipped)
    for entry in entries:
        if not entry.builds:
            _repoint(copy, entry, site)
    _write(site / "_ralph_layer.py", _LOADER)
    (site / "0-ralph-layer.pth").write_text("import _ralph_layer\n")
    _make_programs(copy, below, target)
    _write_config(below, target)
    record = {
        "sites": [str(each) for each in below.sites],
        "skipped": sorted(skipped),
        "below": str(below.prefix),
        "instead_of": str(instead_of),
    }
    (target / RECORD).write_text(json.dumps(record))  # last: while it is empty, the layer is not complete


def _repoint(copy: Copy, entry: Lead, site: Path) -> None:
    """Put an entry that leads to the copy into the layer."""
    target = site / entry.name
    if target.is_symlink() or target.exists():
        return
    if entry.path.is_symlink():
        _link(copy, entry, target)
    elif entry.name.endswith(".pth"):
        lines = lines_of(entry.path, read(entry.path))
        _write(target, "".join(f"{_moved_line(copy, line, path, site)}\n" for line, path in lines))
    else:
        _write(target, repointed(copy, read(entry.path)))


def _link(copy: Copy, entry: Lead, target: Path) -> None:
    """A link to the copy. What the copy lacks must not be imported through the link of the environment below."""
    source = copy.moved(os.path.realpath(entry.path))
    if os.path.exists(source):
        target.symlink_to(source)
    else:
        name = entry.name.removesuffix(".py")
        _write(
            target.with_name(f"{name}.py"),
            f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n",
        )


def _moved_line(copy: Copy, line: str, path: str | None, site: Path) -> str:
    if path is None:
        return repointed(copy, line)
    moved = copy.moved(path)
    if _LINKS in os.path.basename(path) and not os.path.lexists(moved):
        moved = str(site / os.path.basename(path))
        _link_sources(copy, Path(path), Path(moved))
    return moved


def _link_sources(copy: Copy, links: Path, target: Path) -> None:
    """Make the directory of links to sources that setuptools has made for a strict editable install."""
    target.mkdir(exist_ok=True)
    for each in links.iterdir() if links.is_dir() else []:
        sources = _sources(each)
        if len(sources) == 1:
            (target / each.name).symlink_to(copy.moved(sources.pop()))
        elif each.is_dir():
            _link_sources(copy, each, target / each.name)


def _sources(path: Path) -> set[str]:
    """What a link leads to, or the directories that the links below a directory are in, as deep as they are."""
    if path.is_symlink() or not path.is_dir():
        return {os.path.realpath(path)} if path.is_symlink() else set()
    below = ((each, source) for each in path.iterdir() for source in _sources(each))
    return {
        os.path.dirname(source) if os.path.basename(source) == each.name else source for each, source in below
    }


def _write_config(below: PythonEnvironment, target: Path) -> None:
    """The configuration of the virtual environment: the interpreter of the one below, without its packages."""
    lines = [
        f"home = {below.python.parent}",
        "include-system-site-packages = false",
        f"version = {below.version}",
    ]
    if below.is_venv:
        config = read(below.prefix / "pyvenv.cfg").splitlines()
        shared = [line for line in config if re.match(r"include-system-site-packages\s*=", line)]
        lines[1:2] = shared or lines[1:2]
    (target / "pyvenv.cfg").write_text("\n".join(lines) + "\n")


def base_of(layer: Path) -> Path | None:
    """The environment that a layer lies on; None if it is not known."""
    try:
        return Path(json.loads((layer / RECORD).read_text())["below"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_untouched(layer: Path, below: Path) -> bool:
    """Whether a layer lies directly over this environment, with nothing installed into it since."""
    return base_of(layer) == below and not any(layer.glob("lib/*/site-packages/*.dist-info"))


def is_half_made(layer: Path) -> bool:
    """Whether Ralph was killed while it made a layer."""
    try:
        return (layer / RECORD).stat().st_size == 0
    except OSError:
        return False


# ---- programs ----


def _make_programs(copy: Copy, below: PythonEnvironment, target: Path) -> None:
    """The interpreter under its usual names, and the programs of the environment, run by this interpreter."""
    programs = target / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{below.version}"):
        link = programs / name
        if not link.is_symlink():
            link.symlink_to(below.python)
    for directory in below.scripts:
        for each in entries_of(directory):
            if each.is_file() and not os.path.lexists(programs / each.name) and not _is_python(each.name):
                _make_program(copy, below, Path(each.path), target)


def _is_python(name: str) -> bool:
    return re.fullmatch(r"(python|pypy)[\d.]*t?", name) is not None


def _make_program(copy: Copy, below: PythonEnvironment, program: Path, target: Path) -> None:
    """A script with the paths of the layer; a binary is called where it is.

    Of an environment that holds more than Python, only scripts of its interpreter.
    """
    made = target / "bin" / program.name
    with open(program, "rb") as file:
        start = file.read(2)
        is_text = start == b"#!" or not os.access(program, os.X_OK)
        data = start + file.read() if is_text else b""
    text = data.decode(errors="surrogateescape")
    if is_text:
        moved = _relocated(copy, below, text, target)
        if moved == text and not below.is_venv:
            return
        _write(made, _with_shebang(moved))
    elif below.is_venv:
        made.write_text(f'#!/bin/sh\nexec {_quoted(program)} "$@"\n')
    else:
        return
    shutil.copymode(program, made)


def _relocated(copy: Copy, below: PythonEnvironment, text: str, target: Path) -> str:
    """A script with the paths of the environment below replaced by those of the layer."""
    if below.is_venv:
        text = repointed(copy, _with_plain_interpreter(text))
        prefixes = dict.fromkeys((str(below.prefix), os.path.realpath(below.prefix), _built_at(below.prefix)))
        for prefix in filter(None, prefixes):
            text = re.sub(rf"{re.escape(prefix)}(?![\w.-])", lambda _: str(target), text)
        return text
    first, newline, rest = text.partition("\n")
    interpreter = Path(first.removeprefix("#!").split(" -")[0].strip())
    if interpreter.parent == below.python.parent and _is_python(interpreter.name):
        return f"#!{target / 'bin' / 'python'}{newline}{rest}"
    return text


def _with_plain_interpreter(text: str) -> str:
    """A script whose first lines name its interpreter without `..`, as in `/home/ada/app/../env/bin/python`."""
    start, newline, rest = text.partition("\n")
    second, end, rest = rest.partition("\n")
    plain = re.sub(
        r"""(?<=[!'"])/[^'"\n]*/\.\./[^'"\n]*""",
        lambda found: os.path.normpath(found[0]),
        start + newline + second,
    )
    return plain + end + rest


def _built_at(prefix: Path) -> str:
    """Where a shared environment was made before it was moved to the cache."""
    try:
        return str(json.loads((prefix / "ralph-shared.json").read_text())["built"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _with_shebang(text: str) -> str:
    """A script whose first line fits into the limit of the kernel."""
    first, newline, rest = text.partition("\n")
    if len(first) <= LONGEST_SHEBANG or not first.endswith(("python", "python3")):
        return text
    return f"#!/bin/sh\n'''exec' {_quoted(first[2:])} \"$0\" \"$@\"\n' '''{newline}{rest}"


def _quoted(path: str | Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def _write(path: Path, text: str) -> None:
    path.write_text(text, errors="surrogateescape")
