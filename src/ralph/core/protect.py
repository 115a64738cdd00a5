from __future__ import annotations

from collections.abc import Collection, Sequence


def default_globs(
    commands: Sequence[str], tracked: Collection[str], working_dir: str = "."
) -> tuple[str, ...]:
    return ()
