"""The task list of a PRD loop, for the board."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ralph.errors import RalphError
from ralph.files.storyfile import MAX_TASKS, TASKS, load, text_of
from ralph.store.files import opened_directory
from ralph.store.prd_folder import PrdFolder


class StoryFile(Struct):
    """A task list that is read again whenever its file has changed."""

    directory: str
    folder: str
    stories: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    _stamp: tuple[int, ...] = field(default=())

    def listed(self) -> tuple[Mapping[str, Any], ...]:
        path = Path(self.directory, self.folder, TASKS)
        try:
            status = os.lstat(path)
        except OSError:
            self.stories, self.problem, self._stamp = (), "", ()
            return ()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            self._read(path)
        return self.stories

    def _read(self, path: Path) -> None:
        try:
            with opened_directory(self.directory) as project:
                data = PrdFolder(project, self.folder).read(TASKS, MAX_TASKS)
            board = load(text_of(data, str(path)), str(path))
            listed = board.get("userStories") if isinstance(board, dict) else None
            self.stories = tuple(s for s in listed if isinstance(s, dict)) if isinstance(listed, list) else ()
            self.problem = ""
        except (RalphError, OSError) as error:
            self.stories, self.problem = (), str(error)
