"""Which files on disk would be lost if git wrote other files in their place."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from ralph.core.text import clean
from ralph.scm.git import MAX_NAMED, Git, GitError, paths

_LINK, _SUBMODULE = "120000", "160000"
_CHUNK = 1 << 20


class Incoming(Struct, frozen=True):
    """A file that git is going to write."""

    path: str
    mode: str
    blob: str


def incoming(git: Git, old: str, new: str, index: Path | None = None) -> list[Incoming]:
    """The files that are written when a tree replaces another one."""
    words = ("-r", "-z", "--no-renames", "--diff-filter=AMT", old, new)
    fields = paths(git("diff-tree", *words, index=index))
    rows = zip(fields[::2], fields[1::2], strict=True)
    return [Incoming(path, about.split()[1], about.split()[3]) for about, path in rows]


def in_the_way(top: Path, files: Iterable[Incoming], safe: Collection[str]) -> list[str]:
    """Paths on disk that these files would replace or remove, except the safe ones, which git has saved.

    Files with the same content are not in the way. A directory ends with a slash. No path leads through a link.
    """
    mode_of = cache(lambda path: _mode(top / path))
    found = dict.fromkeys(path for file in files for path in _obstacles(top, file, safe, mode_of))
    return list(found)


def already_there(top: Path, files: Iterable[Incoming], safe: Collection[str]) -> list[Incoming]:
    """The files that are on disk with the same content, except the safe ones."""
    new = (file for file in files if file.path not in safe and not is_behind_link(top, file.path))
    return [file for file in new if _is_same(top / file.path, file)]


def is_behind_link(top: Path, path: str) -> bool:
    """Whether a path leads through a symbolic link."""
    return any((top / parent).is_symlink() for parent in _parents(path))


def remove(top: Path, names: Iterable[str]) -> None:
    """Remove paths that are in the way."""
    for path in names:
        if path.endswith("/"):
            shutil.rmtree(top / path)
        else:
            (top / path).unlink(missing_ok=True)


def named(names: Collection[str]) -> str:
    """Paths for a message, at most ten."""
    shown = [shlex.quote(clean(path.replace("\n", "\\n"))) for path in list(names)[:MAX_NAMED]]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(shown) + more


def _obstacles(
    top: Path, file: Incoming, safe: Collection[str], mode_of: Callable[[str], int]
) -> Iterator[str]:
    for parent in _parents(file.path):
        if not (mode := mode_of(parent)):
            return
        if not stat.S_ISDIR(mode):
            if parent not in safe:
                yield parent
            return
    mode = mode_of(file.path)
    if stat.S_ISDIR(mode):
        if file.mode != _SUBMODULE:
            yield from _contents(top, file.path, safe)
    elif mode and file.path not in safe and not _is_same(top / file.path, file):
        yield file.path


def _parents(path: str) -> list[str]:
    """The directories of a path, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]


def _contents(top: Path, directory: str, safe: Collection[str]) -> Iterator[str]:
    """What would be lost with a directory: all of it, or only some files if others in it are safe."""
    inside = (path for path in _walked(top, directory) if path not in safe)
    if any(path.startswith(f"{directory}/") for path in safe):
        yield from inside
    elif next(inside, None) is not None:
        yield f"{directory}/"


def _walked(top: Path, directory: str) -> Iterator[str]:
    """Everything in a directory that is not a directory itself."""

    def fail(error: OSError) -> None:
        raise _unreadable(Path(error.filename), error) from error

    for root, directories, names in os.walk(top / directory, onerror=fail):
        links = (name for name in directories if os.path.islink(os.path.join(root, name)))
        for name in (*names, *links):
            yield os.path.relpath(os.path.join(root, name), top)


def _mode(path: Path) -> int:
    """The type of what is there; 0 if nothing is."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> GitError:
    return GitError(f"{clean(str(path))} cannot be read: {error.strerror}.")


def _is_same(path: Path, file: Incoming) -> bool:
    """Whether a path has the content already, byte by byte. What cannot be read is not the same."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return file.mode == _LINK and _id(file.blob, os.fsencode(os.readlink(path))) == file.blob
        if not stat.S_ISREG(status.st_mode) or file.mode in (_LINK, _SUBMODULE):
            return False
        return _id_of_file(path, status.st_size, file.blob) == file.blob
    except OSError:
        return False


def _id_of_file(path: Path, size: int, like: str) -> str:
    found = _hash(like, size)
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return found.hexdigest()


def _id(like: str, data: bytes) -> str:
    found = _hash(like, len(data))
    found.update(data)
    return found.hexdigest()


def _hash(like: str, size: int) -> hashlib._Hash:
    """The hash of a blob, of the kind that this repository uses."""
    return hashlib.new("sha1" if len(like) == 40 else "sha256", b"blob %d\0" % size, usedforsecurity=False)
