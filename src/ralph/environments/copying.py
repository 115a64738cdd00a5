"""Copies files of the user's checkout into a copy: with shared blocks where the file system can, never with links."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ralph.environments.base import Copy, Tools

COPY = ("cp", "-cRp") if sys.platform == "darwin" else ("cp", "-a", "--reflink=auto")
"""Copies a directory in one process, with shared blocks on file systems that have them; never with hard links."""

_NAMES_AT_ONCE = 2000


def duplicate(tools: Tools, source: Path, target: Path, skipped: Collection[str] = ()) -> None:
    """Copy a directory or file, without some names at its top level."""
    if not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        return
    real = os.path.realpath(source)
    names = [os.path.join(real, name) for name in sorted(os.listdir(real)) if name not in skipped]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for at in range(0, len(names), _NAMES_AT_ONCE):
        done = tools.run([*COPY, *names[at : at + _NAMES_AT_ONCE], f"{target}/"], target)
        if done.code != 0:  # for example in a container that does not have the user's checkout
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(real, target, symlinks=True, ignore=_ignoring(real, skipped))
            return


def _ignoring(top: str, skipped: Collection[str]) -> Callable[[str, list[str]], Iterable[str]]:
    return lambda directory, _names: skipped if directory == top else ()


def bring(
    copy: Copy,
    tools: Tools,
    source: Path,
    relative: Path,
    *,
    skipped: Collection[str] = (),
    adapt: Callable[[Path], None] = lambda _: None,
) -> None:
    """Make a missing part of a copy from a source. It appears when it is complete and adapted."""
    half = copy.own / "half"
    shutil.rmtree(half, ignore_errors=True)
    duplicate(tools, source, half / source.name, skipped)
    adapt(half / source.name)
    target = copy.top / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(half / source.name, target)


def bring_ignored(copy: Copy, tools: Tools, relative: Path) -> bool:
    """Copy a file or directory that git ignores. Texts in it that name the user's checkout are changed."""
    source, target = copy.origin / relative, copy.top / relative
    if not source.exists() or os.path.lexists(target) or has_link(copy, relative):
        return False
    if not is_ignored(copy, tools, relative):
        return False
    bring(copy, tools, source, relative, adapt=lambda path: repoint_file(copy, path))
    return True


def has_link(copy: Copy, relative: Path) -> bool:
    """Whether a directory above a path of the copy is a symbolic link."""
    return any((copy.top / above).is_symlink() for above in relative.parents)


def is_ignored(copy: Copy, tools: Tools, relative: Path) -> bool:
    """Whether git ignores a path in the user's checkout. If git cannot say, it is taken for ignored."""
    argv = ["git", "-C", str(copy.origin), "check-ignore", "-q", "--", str(relative)]
    return tools.run(argv, copy.top).code != 1


def repoint_file(copy: Copy, path: Path) -> None:
    """Lead the paths in a text file to the copy."""
    if not path.is_file() or path.is_symlink():
        return
    data = path.read_bytes()
    if os.fsencode(copy.origin.name) not in data:
        return
    text = data.decode(errors="surrogateescape")
    changed = copy.repointed(text)
    if changed != text:
        mode = path.stat().st_mode
        path.unlink()  # the file may be read-only
        path.write_bytes(changed.encode(errors="surrogateescape"))
        path.chmod(mode)


def text_of(path: Path) -> str:
    """The text of a file, "" if it cannot be read."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""
