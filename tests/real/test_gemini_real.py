"""Behaviour specific to the real Gemini CLI, driven by `ralph run` against a scripted model server."""

from __future__ import annotations

from conftest import Project
from real.real_support import DONE, REAL, driven, ends, turns

pytestmark = REAL


def test_no_key(repository: Project) -> None:
    """Without a key the run stops as fatal and shows Gemini's message."""
    with driven("gemini", repository, turns({"text": DONE}), maximumIterations=3) as (project, _):
        del project.alone["GEMINI_API_KEY"]
        result = project.run("run", "-p", "x", "--json")
        assert (result.code, ends(result)) == (2, ["auth"]), result.err
        assert "must specify the GEMINI_API_KEY" in result.out
