"""Every method of checking. A new one is one file and one line here."""

from __future__ import annotations

from ralph.checks import command
from ralph.checks.base import Method

METHODS: dict[str, Method] = {
    "command": command.run,
}
