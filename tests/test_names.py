"""A public name has one meaning in the whole program, and texts refer only to documents in the repository."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src" / "ralph").rglob("*.py"))

SHARED = {"Config"}
"""Every check method has one of these, as its protocol requires."""

ELSEWHERE = re.compile(r"\bS[0-4]\b(?:'s)?")
"""The short name of a document that is not in the repository."""


def defined_in(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_a_public_class_is_defined_once() -> None:
    """No two modules define public classes with the same name; the plugin's story rules are one linked file."""
    places = defaultdict(list)
    for path in MODULES:
        if "plugin" not in path.relative_to(ROOT / "src" / "ralph").parts:
            for name in defined_in(path):
                places[name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in SHARED} == {}


def test_limits_are_named_max() -> None:
    """No identifier starts with `MOST_`."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in re.findall(r"\b_?MOST_\w+", path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize("folder", ["src", "docs", "tests", "bench"])
def test_no_reference_to_documents_outside_the_repository(folder: str) -> None:
    """Texts refer only to documents in the repository."""
    texts = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md") and path.is_file()]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if ELSEWHERE.search(line) and path != Path(__file__)
    ]
    assert found == []
