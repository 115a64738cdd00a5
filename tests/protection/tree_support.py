"""Trees of files as plain dictionaries. A text that starts with "-> " is a symbolic link."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ralph.protection.old_tests import ProtectRules, SecondLook, TreeChange, second_look

LINK = "-> "


@dataclass(frozen=True)
class Tree:
    files: Mapping[str, str]

    @property
    def paths(self) -> Collection[str]:
        return list(self.files)

    def text(self, path: str) -> str | None:
        found = self.files.get(path)
        return None if found is None or found.startswith(LINK) else found

    def target(self, path: str) -> str:
        found = self.files.get(path, "")
        return found.removeprefix(LINK) if found.startswith(LINK) else ""


def changed(old: Mapping[str, str], new: Mapping[str, str | None], **renamed: str) -> TreeChange:
    """A change: `new` has the files that differ, None for deleted ones."""
    both = {path: text for path, text in {**old, **new}.items() if text is not None}
    paths = sorted(path for path in {**old, **both} if old.get(path) != both.get(path))
    return TreeChange(Tree(old), Tree(both), tuple(paths), renamed)


def look(
    command: str, old: Mapping[str, str], new: Mapping[str, str | None], rules: ProtectRules | None = None
) -> SecondLook:
    return second_look([command], changed(old, new), rules or ProtectRules())
