"""Turns a copy of a tree into a separate repository: tools that ask git work there, and the user's stays untouched."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ralph.scm.git import Git

_REFS = ("refs/heads", "refs/tags", "refs/remotes")
_HEAD = re.compile(r"(?:ref: refs/[^\x00-\x20~^:?*\[\\]+|[0-9a-f]{40,64})\n?")


def make_repository(git: Git, index: Path, top: Path) -> None:
    """Give a written tree a `.git` with the same HEAD, branches and tags, whose index has all of its files.

    It reads the objects of the user's repository and writes its own.
    """
    repository, dot_git = git.repository, top / ".git"
    (dot_git / "objects" / "info").mkdir(parents=True)
    (dot_git / "refs").mkdir()
    refs = git.line("for-each-ref", "--format=%(objectname) %(refname)", *_REFS)
    is_sha256 = len(refs.partition(" ")[0]) == 64
    (dot_git / "packed-refs").write_text(
        "".join(f"{line}\n" for line in refs.splitlines()), errors="surrogateescape"
    )
    head = (repository.git_dir / "HEAD").read_text(errors="replace")
    (dot_git / "HEAD").write_text(head if _HEAD.fullmatch(head) else "ref: refs/heads/main\n")
    (dot_git / "config").write_text(_config(is_sha256=is_sha256))
    objects = os.path.realpath(repository.common / "objects")
    (dot_git / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    if (repository.common / "shallow").is_file():
        shutil.copyfile(repository.common / "shallow", dot_git / "shallow")
    shutil.copyfile(index, dot_git / "index")


def _config(*, is_sha256: bool) -> str:
    core = f"[core]\n\trepositoryformatversion = {int(is_sha256)}\n\tbare = false\n"
    return core + ("[extensions]\n\tobjectformat = sha256\n" if is_sha256 else "")
