"""The Claude Code plugin that comes with Ralph: its path, and a copy that survives upgrades."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ralph.errors import RalphError
from ralph.files.paths import PLUGIN, real

MANIFEST = ".claude-plugin/plugin.json"


def folder() -> Path:
    """Return the path of the plugin that was installed with Ralph."""
    if not (PLUGIN / MANIFEST).is_file():
        raise RalphError(f"{PLUGIN}: the plugin is missing.", "Reinstall Ralph.")
    return PLUGIN


def usual_copy() -> Path:
    from platformdirs import user_data_path

    return user_data_path("ralph") / "claude-plugin"


def install(target: Path, *, force: bool) -> Path | None:
    """Copy the plugin to `target`, replacing an older copy.

    Anything else there is an error, unless `force` is set: then it is renamed, and the new name is returned.
    """
    target = Path(os.path.abspath(target))
    source = folder()
    if real(target).is_relative_to(real(source)) or real(source).is_relative_to(real(target)):
        raise RalphError(f"{target} is part of Ralph itself.", "Choose another directory: --dir DIR")
    is_foreign = os.path.lexists(target) and not _is_ours(target) and not _is_empty(target)
    if is_foreign and not force:
        raise RalphError(
            f"{target} exists, but is not a copy of Ralph's plugin.",
            "Choose another directory with --dir, or use --force to rename the existing one.",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RalphError(f"{error.filename} is not a directory.", "Choose another one: --dir DIR") from error
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        shutil.copytree(source, scratch / "new", ignore=shutil.ignore_patterns("__pycache__"))
        kept = _free_name(target) if is_foreign else None
        if os.path.lexists(target):
            target.rename(kept or scratch / "old")
        (scratch / "new").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _is_ours(path: Path) -> bool:
    return not path.is_symlink() and _manifest(path) == _manifest(folder())


def _manifest(path: Path) -> tuple[Any, Any] | None:
    """Return the name and the author of a plugin."""
    with contextlib.suppress(OSError, ValueError):
        values = json.loads((path / MANIFEST).read_bytes())
        if isinstance(values, dict):
            return values.get("name"), values.get("author")
    return None


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.old{number}") for number in ("", *range(2, 1000)))
    return next(name for name in names if not os.path.lexists(name))
