"""`ralph guard` on the command line."""

from __future__ import annotations

import json

from conftest import Project


def test_a_verdict(project: Project) -> None:
    """Allowed: exit 0; denied: exit 1 with the rule, the part and the reason."""
    result = project.run("guard", "rm -rf build")
    assert (result.code, result.out) == (0, "allowed\n")
    result = project.run("guard", "make && git push --force")
    assert result.code == 1
    assert result.out.startswith("denied by git-force-push (git): git push --force\nOverwrites history")


def test_as_json(project: Project) -> None:
    """`--json` prints all fields of the verdict."""
    result = project.run("guard", "rm -rf /", "--json")
    values = json.loads(result.out)
    assert (result.code, values["verdict"], values["rule"], values["category"], values["part"]) == (
        *(1, "deny", "delete-root", "deletion", "rm -rf /"),
    )


def test_rules_of_the_settings(project: Project) -> None:
    """They apply, and are listed before the others."""
    project.settings(guard={"deny": [{"pattern": "make deploy*", "reason": "Ours."}]})
    assert project.run("guard", "make deploy").code == 1
    rules = json.loads(project.run("guard", "--rules", "--json").out)
    assert rules[0] == {"verdict": "deny", "category": "settings", "rule": "make deploy*", "reason": "Ours."}
    assert len(rules) > 80 and all(rule["reason"] for rule in rules)
    assert "delete-root" in project.run("guard", "--rules").out


def test_usage(project: Project) -> None:
    """A missing command is a usage error: exit 2."""
    assert project.run("guard").code == 2


def test_switched_off(project: Project) -> None:
    """There is still a verdict, and a note that a run would not use the guard."""
    project.settings(guard={"enabled": False})
    result = project.run("guard", "rm -rf /")
    assert result.code == 1 and "disabled" in result.err
