"""What an environment in the user's tree runs at every start, as it was when a run started.

An agent can write there: a shim instead of `pytest`, a `.pth` file, a `sitecustomize`. Git ignores these files, so no
snapshot has them. Installed packages themselves are trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ralph.environments.base import Copy, entries_of
from ralph.environments.python_installed import PythonEnvironment, of_venv

StartFiles = Mapping[str, bytes]
"""The content of each file by its path in the checkout; of a link, its target after `_LINK`."""

MAX_SIZE = 256 * 1024
_LINK = b"link to "
CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")
"""Modules that Python imports at every start, if there are any."""

_HAZARDS = ("*.pth", *CUSTOMIZE)
"""New files in a directory with packages that run without being asked for."""


def start_files(top: Path, project: str) -> dict[str, bytes]:
    """The files of the environments in a checkout, at its top and in the project's directory."""
    found = {}
    for path in _start_files(top, project):
        content = _content(path)
        if content is not None:
            found[os.path.relpath(path, top)] = content
    return found


def record_start_files(path: Path, top: Path, project: str) -> None:
    """Record them for this run."""
    half = path.with_suffix(".half")
    half.write_bytes(msgspec.json.encode(start_files(top, project)))
    half.rename(path)


def read_start_files(path: Path) -> dict[str, bytes]:
    """What was recorded; nothing if the run had no need for it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, bytes])
    except (OSError, msgspec.MsgspecError):
        return {}


def _start_files(top: Path, project: str) -> Iterator[Path]:
    for directory in dict.fromkeys((Path(os.path.normpath(top / project)), top)):
        for entry in entries_of(directory / "node_modules" / ".bin"):
            yield Path(entry.path)
        for each in entries_of(directory):
            if os.path.isfile(os.path.join(each.path, "pyvenv.cfg")):
                yield from _of_venv(Path(each.path))


def _of_venv(prefix: Path) -> Iterator[Path]:
    yield prefix / "pyvenv.cfg"
    yield from (Path(entry.path) for entry in entries_of(prefix / "bin"))
    for site in prefix.glob("lib/python3*/site-packages"):
        yield from (Path(entry.path) for entry in entries_of(site) if entry.name.endswith((".pth", ".py")))


def _content(path: Path) -> bytes | None:
    """What a small file contains, or where a link leads; None for others."""
    try:
        if path.is_symlink():
            return _LINK + os.fsencode(os.readlink(path))
        status = path.stat()
        return path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_SIZE else None
    except OSError:
        return None


def changed_since(files: StartFiles, top: Path, project: str) -> list[str]:
    """The files that are not as they were, and new ones that run without being asked for."""
    if not files:
        return []
    now = start_files(top, project)
    different = [name for name, content in files.items() if now.get(name) != content]
    return sorted([*different, *(name for name in now.keys() - files.keys() if _is_hazard(name, files))])


def _is_hazard(name: str, files: StartFiles) -> bool:
    prefixes = (os.path.dirname(each) for each in files if os.path.basename(each) == "pyvenv.cfg")
    is_known = any(name.startswith(f"{prefix}/") for prefix in prefixes)
    return is_known and any(fnmatchcase(os.path.basename(name), pattern) for pattern in _HAZARDS)


def environments_as_started(copy: Copy, found: list[PythonEnvironment]) -> list[PythonEnvironment]:
    """Environments that start as they did, also those that no longer are environments."""
    if not copy.start_files:
        return found
    changed = changed_since(copy.start_files, copy.origin, copy.project)
    known = {each.prefix for each in found}
    gone = [copy.origin / os.path.dirname(name) for name in changed if os.path.basename(name) == "pyvenv.cfg"]
    lost = [each for prefix in gone if prefix not in known and (each := _recovered(copy, prefix)) is not None]
    return [_as_started(copy, each, changed) for each in (*found, *lost)]


def _recovered(copy: Copy, prefix: Path) -> PythonEnvironment | None:
    """An environment whose configuration is gone or broken."""
    mirror = _mirror(copy, prefix, [])
    for site in prefix.glob("lib/python3*/site-packages"):
        (mirror / site.relative_to(prefix)).mkdir(parents=True, exist_ok=True)
    found = of_venv(mirror)
    if found is None:
        return None
    site = prefix / found.sites[0].relative_to(mirror)
    return replace(found, prefix=prefix, sites=(site,), scripts=(prefix / "bin",))


def _mirror(copy: Copy, prefix: Path, changed: list[str]) -> Path:
    """A directory with the changed files of an environment as they were, and its configuration."""
    relative = os.path.relpath(prefix, copy.origin)
    for name in (f"{relative}/pyvenv.cfg", *changed):
        nothing = b"" if os.path.basename(name) in CUSTOMIZE else None
        _write(copy.own / "started" / name, copy.start_files.get(name, nothing))
    return copy.own / "started" / relative


def _as_started(copy: Copy, installed: PythonEnvironment, changed: list[str]) -> PythonEnvironment:
    """An environment with what has changed in it read from copies of the files as they were."""
    prefix = os.path.relpath(installed.prefix, copy.origin)
    own = [name for name in changed if name.startswith(f"{prefix}/")]
    if not own:
        return installed
    mirror = _mirror(copy, installed.prefix, own)
    site = mirror / installed.sites[0].relative_to(installed.prefix)
    site.mkdir(parents=True, exist_ok=True)
    before = of_venv(mirror) or installed
    return replace(
        installed,
        python=before.python,
        sites=(site, *installed.sites),
        scripts=(mirror / "bin", *installed.scripts),
        skipped=installed.skipped | {str(copy.origin / name) for name in own},
    )


def _write(path: Path, content: bytes | None) -> None:
    """Write a file as it was. One that did not exist stays away."""
    if content is None or os.path.lexists(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if content.startswith(_LINK):
        path.symlink_to(os.fsdecode(content.removeprefix(_LINK)))
    else:
        path.write_bytes(content)
        path.chmod(0o755 if path.parent.name in ("bin", ".bin") else 0o644)


def put_back_programs(copy: Copy) -> None:
    """Put the commands of Node packages in a copy back, as they were when the run started."""
    for name in changed_since(copy.start_files, copy.origin, copy.project):
        if Path(name).parent.name == ".bin" and name in copy.start_files:
            target = copy.top / name
            if target.parent.is_dir():
                target.unlink(missing_ok=True)
                _write(target, copy.start_files[name])
