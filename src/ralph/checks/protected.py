"""Files that verification itself is made of: whoever changes them can make any work look done."""

from __future__ import annotations

import shlex

import msgspec

from ralph.checks.base import Changed, Method, Workbench
from ralph.core import prompt
from ralph.core.claims import neutralise
from ralph.core.model import Check, Feedback, Verdict
from ralph.core.text import clean

MOST_NAMED = 20


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`globs`: which files. `trusted`: the commit in which they are as they should be."""

    globs: tuple[str, ...]
    trusted: str


def run(check: Check, bench: Workbench) -> Verdict:
    config = msgspec.json.decode(check.config, type=Config)
    changed = bench.changed(config.globs, config.trusted)
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
        feedback=Feedback(check.fail_action, _told(check, config, changed, bench.truncate)),
    )


def _told(check: Check, config: Config, changed: list[Changed], limit: int) -> str:
    paths = _listed([shlex.quote(clean(each.path)) for each in changed], " ")
    diffs = clean("\n".join(each.diff.rstrip("\n") for each in changed))
    lines = [
        "Files were changed that the verification of this task is made of. They are not yours to change.",
        f"Put them back as they were: git checkout {config.trusted} -- {paths}",
    ]
    if check.hint:
        lines.append(f"Hint: {check.hint}")
    lines += ["What was changed (truncated):", neutralise(prompt.truncate(diffs, limit))]
    return "\n".join(lines)


def _listed(names: list[str], separator: str) -> str:
    more = len(names) - MOST_NAMED
    return separator.join(names[:MOST_NAMED]) + (f" (and {more} more)" if more > 0 else "")


def problem(config: Config) -> str:
    if not config.globs:
        return "globs: there is none"
    if not all(glob.strip() for glob in config.globs):
        return "globs: one is empty"
    return "" if config.trusted.strip() else "trusted: it is empty; give a commit"


METHOD = Method(Config, run, problem)
