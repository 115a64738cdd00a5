"""A hundred trivial tasks, eight in parallel: `ralph work` against a shell script that uses only git.

For each task the script creates a worktree and a branch, runs the agent and its check, commits, merges into the base
(one merge at a time) and removes the worktree. Ralph also makes a prompt, keeps a journal that survives a kill, takes
a snapshot before and after, protects files, repeats the check on the merged tree, and keeps git safe from anything an
agent planted.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.agents.project import git
from bench.measure import RALPH, Measurement, Scratch, scratch, write_program
from ralph.core.task_model import CompletionCriteria, Task, TaskCompletionSpec
from ralph.runs.location import here
from ralph.store.home import Home

T = TypeVar("T")

TASKS, AT_ONCE, FILES, REPEAT = 100, 8, 50, 3
AGENT = 'mkdir -p out; echo done > out/$RALPH_TASK_ID; echo "<promise>MADE</promise>"'
CHECK = "test -s out/$RALPH_TASK_ID"

SCRIPT = f"""set -e
export RALPH_TASK_ID=$1
tree=$2/$1
flock $2/lock git worktree add -q -b work/$1 $tree main
cd $tree
$3 prompt > ../$1.log
grep -q '<promise>MADE</promise>' ../$1.log
{CHECK}
git add -A
git commit -q -m $1
cd - > /dev/null
flock $2/lock git merge -q --no-edit work/$1
flock $2/lock git worktree remove --force $tree
flock $2/lock git branch -q -D work/$1"""


Run = Callable[..., "Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall-clock and processor seconds of one run of all tasks, including all children."""

    wall: float
    processor: float


def suite() -> Iterator[Measurement]:
    ours, floor = [], []
    for _ in range(REPEAT):
        ours.append(_in_scratch(run_ralph))
        floor.append(_in_scratch(run_script))
    for kind, title in (("wall", "time"), ("processor", "processor time")):
        mine, bare = (statistics.median(getattr(cost, kind) for cost in costs) for costs in (ours, floor))
        name = f"{TASKS} tasks, {AT_ONCE} at once, {title} against a shell script"
        detail = f"{mine / TASKS * 1e3:.0f} ms per task against {bare / TASKS * 1e3:.0f} ms"
        yield Measurement(name, "measured", mine / bare, "×", True, 1.0, detail)
    calls, bare_calls = _in_scratch(count_calls(run_ralph)), _in_scratch(count_calls(run_script))
    yield Measurement("git commands per task", "measured", calls / TASKS, "calls", True, bare_calls / TASKS)


def _in_scratch(measure: Callable[[Scratch], T]) -> T:
    with scratch() as place:
        _make(place)
        return measure(place)


def _make(place: Scratch) -> None:
    """Create a repository with some files, a task for each number, and the agent outside it."""
    write_program(_agent(place), AGENT)
    off = {role: {"enabled": False} for role in ("reviewer", "tester", "qa")}
    settings = {"agent": {"command": str(_agent(place))}, "ralph": {"agents": off}}
    (place.path / ".ralph").mkdir()
    (place.path / ".ralph" / "settings.json").write_text(json.dumps(settings))
    for number in range(FILES):
        (place.path / f"file{number}.txt").write_text(f"{number}\n" * 20)
    (place.path / ".gitignore").write_text(".ralph/\n")
    git(place.path, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@localhost"), ("gc.auto", "0")):
        git(place.path, "config", name, value)
    git(place.path, "add", "-A")
    git(place.path, "commit", "-q", "-m", "Start")
    criteria = CompletionCriteria("MADE", "", "external", {"command": CHECK}, 1)
    spec = TaskCompletionSpec("Its file is there", ("its file is there",), criteria)
    tasks = Home(place.state).tasks(here(place.path).project)
    tasks.add(Task(id, "files", f"Make {id}", completion_spec=spec) for id in _ids())
    tasks.db.close()


def _ids() -> list[str]:
    return [f"T-{number:03d}" for number in range(1, TASKS + 1)]


def _agent(place: Scratch) -> Path:
    return place.path.parent / "agent"


# ---- runs ----


def run_ralph(place: Scratch, **more: str) -> Cost:
    return _run(place, [RALPH, "work", "-j", str(AT_ONCE)], more)


def run_script(place: Scratch, **more: str) -> Cost:
    trees, script = place.path.parent / "trees", place.path.parent / "task.sh"
    trees.mkdir()
    write_program(script, SCRIPT)
    words = f"xargs -P {AT_ONCE} -I ID {script} ID {trees} {_agent(place)}"
    return _run(place, ["sh", "-c", f"printf '%s\\n' {' '.join(_ids())} | {words}"], more)


def _run(place: Scratch, command: list[str], more: dict[str, str]) -> Cost:
    seconds, code, usage = place.run(command, **more)
    made = git(place.path, "ls-tree", "--name-only", "main", "out/").split()
    assert code == 0 and len(made) == TASKS, (code, len(made))
    return Cost(seconds, usage.ru_utime + usage.ru_stime)


def count_calls(run: Run) -> Callable[[Scratch], int]:
    """Return a function that counts git calls with a wrapper on PATH."""

    def count(place: Scratch) -> int:
        programs, log = place.path.parent / "bin", place.path.parent / "calls"
        programs.mkdir()
        write_program(programs / "git", f'echo "$1" >> {log}\nexec {shutil.which("git")} "$@"')
        run(place, PATH=f"{programs}{os.pathsep}{place.env['PATH']}")
        return len(log.read_text().splitlines())

    return count
