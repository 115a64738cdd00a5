"""System calls in a container: podman's usual profile lets everybody make namespaces, docker's does not; nor does this."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

_CALLS = frozenset(
    {"clone", "clone3", "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "keyctl"}
)
_NAMESPACES = 0x7E020000
"""All flags of clone that make a namespace."""

_NO_SUCH_CALL = 38
_RULES: tuple[dict[str, Any], ...] = (
    {
        "names": ["clone"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": _NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
    },
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _NO_SUCH_CALL},  # clone is tried then
    {"names": sorted(_CALLS - {"clone", "clone3"}), "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
)


def without_namespaces(profile: str) -> str:
    """A profile like that in a file, but without these calls; "" if it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        read = json.loads(Path(profile).read_text())
        rules = [rule | {"names": [n for n in rule["names"] if n not in _CALLS]} for rule in read["syscalls"]]
        kept = [rule for rule in rules if rule["names"]]
        return json.dumps(read | {"syscalls": [*kept, *_RULES]})
    return ""
