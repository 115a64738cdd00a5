"""Files that verification relies on. Whoever changes them can make any work look done."""

from __future__ import annotations

import shlex

import msgspec

from ralph.checks.base import Changed, CheckContext, Method
from ralph.core import prompt
from ralph.core.claims import neutralise
from ralph.core.model import Check, Feedback, Verdict
from ralph.core.text import clean
from ralph.scm.diff import shortened

MAX_NAMED = 20


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`globs` selects the files, and `trusted` is the commit with their trusted versions.

    `absent` lists names that no new file, and no directory above it, may have.
    """

    globs: tuple[str, ...]
    trusted: str
    absent: tuple[str, ...] = ()


def run(check: Check, context: CheckContext) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    changed = context.changed(config.globs, config.trusted, config.absent)
    if not changed:
        return Verdict(
            check.name, green=True, required=check.required, reason="No protected file was changed"
        )
    names = _listed([clean(each.path) for each in changed], ", ")
    return Verdict(
        check.name,
        green=False,
        required=check.required,
        reason=f"Protected files were changed: {names}",
        feedback=Feedback(check.fail_action, _told(check, config, changed, context.truncate)),
    )


def _told(check: Check, config: Config, changed: list[Changed], limit: int) -> str:
    old, new = ([each for each in changed if each.is_new is is_new] for is_new in (False, True))
    diff = neutralise(clean("\n".join(each.diff.rstrip("\n") for each in changed)))
    shown = shortened(diff, limit) if limit > 0 else diff
    lines = [
        "Files that the verification of this task relies on were changed. You must not change them.",
    ]
    if old:
        lines.append(f"Restore them: git checkout {config.trusted} -- {_quoted(old)}")
    if new:
        lines.append(f"Remove files that affect how the work is verified: git rm -rf -- {_quoted(new)}")
    if check.hint:
        lines.append(f"Hint: {check.hint}")
    lines += [prompt.heading("Changes", is_cut=shown != diff), shown]
    return "\n".join(lines)


def _quoted(changed: list[Changed]) -> str:
    return _listed([shlex.quote(clean(each.path)) for each in changed], " ")


def _listed(names: list[str], separator: str) -> str:
    more = len(names) - MAX_NAMED
    return separator.join(names[:MAX_NAMED]) + (f" (and {more} more)" if more > 0 else "")


def problem(config: Config) -> str:
    if not config.globs and not config.absent:
        return "globs: must not be empty"
    for key, values in (("globs", config.globs), ("absent", config.absent)):
        if not all(value.strip() for value in values):
            return f"{key}: an entry is empty"
    return "" if config.trusted.strip() else "trusted: must not be empty; give a commit"


METHOD = Method(Config, run, problem, summary="files that verification relies on are unchanged")
