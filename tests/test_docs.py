"""The documents agree with the source: pages that are written from it, lists, links."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ralph import settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from scripts import settings_page  # noqa: E402

# ---- settings.md ----


def keys(schema: dict[str, Any], node: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Return every key that the JSON Schema knows below a node, dotted; those of another agent only once."""
    for choice in node.get("anyOf", [node]):
        if "$ref" in choice:
            name = choice["$ref"].rpartition("/")[2]
            if name != "CommandSettings":
                for key, value in schema["$defs"][name].get("properties", {}).items():
                    yield f"{prefix}{key}"
                    yield from keys(schema, value, f"{prefix}{key}.")
        elif isinstance(choice.get("items"), dict):
            yield from keys(schema, choice["items"], f"{prefix.rstrip('.')}[].")


def test_the_settings_page_is_up_to_date() -> None:
    """`make docs` has been run since the settings were changed."""
    assert settings_page.PAGE.read_text() == settings_page.page()


def test_every_settings_key_is_on_its_page() -> None:
    """Each value that a settings file can hold has a row; an object has one for each of its keys."""
    schema = settings.schema()
    roles = re.compile(r"^ralph\.agents\.\w+")
    found = {roles.sub("ralph.agents.ROLE", key) for key in keys(schema, schema)} - {"$schema"}
    objects = {key for key in found if any(other.startswith((f"{key}.", f"{key}[].")) for other in found)}
    page = settings_page.PAGE.read_text()
    assert {key for key in found - objects if f"\n| `{key}` |" not in page} == set()
    assert len(found) > 80  # the schema was read to its ends


def test_a_new_settings_key_needs_a_section() -> None:
    """A key that no section names stops the script with a message that names it."""
    with pytest.raises(SystemExit, match=r"missing \['novelty'\]"):
        settings_page.check_sections(["novelty"])
