"""`ralph run` as a user meets it."""

from __future__ import annotations

from conftest import Project


def test_a_run_is_complete_when_claimed_and_proved(project: Project) -> None:
    """The demo's story: a claim is refuted by a red guardrail, fed back, mended, proved."""
    project.agent(
        """
        echo "iteration $RALPH_ITERATION"
        [ "$RALPH_ITERATION" = 2 ] && touch fixed
        echo '<response>DONE</response>'
        """,
        guardrails=[{"command": "test -f fixed", "hint": "Make the file."}],
    )
    result = project.run("run", "-p", "Fix it")
    assert (result.code, result.out.splitlines()[0]) == (
        0,
        "complete: claimed, and every required check green",
    )
    second = (project.path / ".ralph/prompt_002.txt").read_text()
    assert second == (
        "Fix it\n\n"
        'Guardrail "test -f fixed" failed with exit code 1.\n'
        "Hint: Make the file.\n"
        "Output file: .ralph/guardrail_001_test_f_fixed.log\n"
        "Output (truncated):\n\n\n"
        "When everything is done, and only then, end your answer with `<response>DONE</response>`."
    )
