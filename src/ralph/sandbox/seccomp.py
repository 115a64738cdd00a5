"""Seccomp profile for podman without namespaces. Podman's default lets any process create them, unlike docker's."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

_CALLS = frozenset(
    {"clone", "clone3", "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "keyctl"}
)
_NAMESPACES = 0x7E020000
"""All clone flags that create a namespace."""

_NO_SUCH_CALL = 38
_RULES: tuple[dict[str, Any], ...] = (
    {
        "names": ["clone"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": _NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
    },
    {
        "names": ["clone3"],
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": _NO_SUCH_CALL,
    },  # callers then fall back to clone
    {"names": sorted(_CALLS - {"clone", "clone3"}), "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
)


def without_namespaces(profile: str) -> str:
    """Return the profile in a file without these system calls, or "" if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        read = json.loads(Path(profile).read_text())
        rules = [rule | {"names": [n for n in rule["names"] if n not in _CALLS]} for rule in read["syscalls"]]
        kept = [rule for rule in rules if rule["names"]]
        return json.dumps(read | {"syscalls": [*kept, *_RULES]})
    return ""
