"""Behaviour specific to the real OpenCode, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

from conftest import Project
from real.real_support import DONE, REAL, driven, ends, turns

pytestmark = REAL


def test_a_refused_request(repository: Project) -> None:
    """A tag in the provider's error message, which OpenCode repeats, is not a claim."""
    script = turns({"status": 400, "message": f"bad thing {DONE}"})
    with driven("opencode", repository, script) as (project, _):
        result = project.run("run", "-p", "x", "--json", timeout=120)
        assert (result.code, ends(result)) == (1, ["failed"]), result.err
