"""The page on verification methods: its examples work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from ralph.checks.registry import METHODS, VERIFICATION, config_problem

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/verification.md").read_text()
EXAMPLES = [
    criteria
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    for criteria in yaml.safe_load(block).values()
]
OWN = [example for example in EXAMPLES if example["verification_method"] in METHODS]


def keys_of(config: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(config)}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("example", OWN, ids=lambda example: str(example["promise"]))
def test_every_example_is_a_valid_config(example: dict[str, Any]) -> None:
    """Every config on the page is accepted."""
    assert config_problem(example["verification_method"], example.get("verification_config", {})) == ""


def test_every_method_has_an_example() -> None:
    """Every method that a task may name has an example."""
    assert {example["verification_method"] for example in OWN} == set(VERIFICATION)


@pytest.mark.parametrize("name", [*VERIFICATION, "protected", "changes"])
def test_every_key_is_described(name: str) -> None:
    """The tables of a method have exactly its keys."""
    described = set(re.findall(r"^\| `(\w+)` \|", section(name), re.MULTILINE))
    keys = keys_of(METHODS[name].config)
    if name == "multi_stage":
        keys |= {"name", "method", "config", "required"}
    assert described == keys


@pytest.mark.parametrize("name", ["pyproject.toml", "ralph_small_change.py"])
def test_the_package_is_the_one_that_is_tested(name: str) -> None:
    """The package on the page is exactly the one in the tests."""
    assert (HERE / "example_package" / name).read_text() in PAGE
