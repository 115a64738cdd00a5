"""Writing to a terminal that may stall."""

from __future__ import annotations

import io
import threading

import pytest

from conftest import Project
from ralph.views.writer import MAX_WAITING, ThreadedWriter


class Still(io.StringIO):
    """A terminal that is stopped until `go` is set (Ctrl-S, then Ctrl-Q)."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, text: str) -> int:
        self.go.wait(30)
        return super().write(text)


def test_pending_output_is_written_in_order() -> None:
    """A terminal that stalled for a while gets all output in order."""
    terminal = Still()
    outlet = ThreadedWriter(terminal)
    lines = [f"line {number}\n" for number in range(1000)]
    for line in lines:
        outlet.write(line)
    terminal.go.set()
    outlet.flush()
    assert terminal.getvalue() == "".join(lines)


def test_skipped_output_is_counted() -> None:
    """Memory is bounded: excess output is skipped, and its length is shown."""
    terminal = Still()
    outlet = ThreadedWriter(terminal)
    for piece in ("a" * MAX_WAITING, "b", "c" * 1000, "d" * 234):
        outlet.write(piece)
    terminal.go.set()
    outlet.flush()
    outlet.write("end\n")
    outlet.flush()
    shown = terminal.getvalue()
    assert shown == "a" * MAX_WAITING + "b\n[... 1,234 characters not shown ...]\nend\n"


@pytest.mark.slow
def test_a_stalled_terminal_does_not_stop_the_run(project: Project) -> None:
    """Nobody reads the output: the run finishes, the exit code is right, and nothing hangs."""
    project.agent(
        "echo x >> starts; seq 100000; [ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>'; true"
    )
    process = project.start("run", "-p", "x")
    assert process.wait(timeout=60) == 0
    out, _ = process.communicate()
    assert out.splitlines()[0] == "Unverified: no checks configured"
    assert (project.path / "starts").read_text().split() == ["x", "x"]
