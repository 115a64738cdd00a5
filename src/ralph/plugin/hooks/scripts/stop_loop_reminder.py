"""Keeps an iteration of a Ralph loop from stopping before its task list is valid and its work is committed.

A Stop hook: it reads JSON from stdin and prints JSON, either `approve` or `block` with what has to be done. Without an
active loop (`.ralph-active`) it approves. Claude Code ends a session after eight blocks in a row, so every answer names
all problems of one check. Ralph applies the same rules (story_rules.py) again after the session.
"""

from __future__ import annotations

import json
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MARKER = ".ralph-active"
TASK_LIST = "1 (task list)"
GIT_SECONDS = 30
MAX_REASONS = 40
MAX_BYTES = 64 << 20
MAX_FILES = 10
CACHES = frozenset(
    [
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".coverage",
        ".tox",
        ".nox",
        ".venv",
        "node_modules",
        ".DS_Store",
    ]
)
"""Files that tools leave behind. Ralph does not commit them, so the agent is not asked to either."""

UNCOMMITTED = """There are uncommitted changes: {}.
1. Update {}/progress.txt with what was accomplished and what was learned.
2. Consider whether any lasting patterns belong in CLAUDE.md or .claude/rules/.
3. Commit ALL changes, including progress.txt and tasks.json."""


class Problem(Exception):
    """A problem outside the task list that prevents the checks from running."""


def main() -> None:
    loop, answer = None, {"decision": "approve"}
    try:
        cwd, trouble = read_input()
        loop = find_loop(cwd)
        if loop is not None:
            reason = trouble or first_problem(loop)
            if reason:
                answer = {"decision": "block", "reason": reason}
    except Exception as error:
        if loop is not None:
            why = f"The checks could not run ({type(error).__name__}): {error}"
            answer = {"decision": "block", "reason": why}
    _write(1, json.dumps(answer))


def read_input() -> tuple[str, str]:
    """The directory of the session, and the problem with the input or ""."""
    try:
        given = json.loads(_read_all(0))
        cwd = given["cwd"]
        if isinstance(cwd, str) and os.path.isabs(cwd):
            return cwd, ""
        trouble = "its cwd is not an absolute path"
    except (OSError, ValueError, RecursionError) as error:
        trouble = str(error)
    except (KeyError, TypeError):
        trouble = "it has no cwd"
    return "", f"The input of the stop hook could not be read: {trouble}."


# ---- finding the loop ----


class Loop:
    """The marker of a loop, and its project."""

    def __init__(self, directory: str, values: dict[str, Any]) -> None:
        pid, began = values.get("pid"), values.get("pidStart")
        self.directory = directory
        self.pid = pid if isinstance(pid, int) else 0
        self.began = began if isinstance(began, str) else ""
        self.is_sandboxed = values.get("mode") == "sandbox"
        self.skip_review = values.get("skipReview") is True
        self.review_cap = values.get("reviewCap")
        self.mode = values.get("iterationMode")
        self.snapshot = values.get("preIterationSnapshot")
        ralph_dir = values.get("ralphDir")
        self.ralph_dir = os.path.normpath(ralph_dir) if isinstance(ralph_dir, str) and ralph_dir else "ralph"

    @property
    def is_stale(self) -> bool:
        """Whether its process is gone. Inside a sandbox that is not visible, and a session started by Ralph is in a loop."""
        if not self.began or (self.is_sandboxed and "RALPH_RUN_ID" in os.environ):
            return False
        return process_start(self.pid) != self.began

    @property
    def board(self) -> str:
        return os.path.join(self.directory, self.ralph_dir, "tasks.json")


def find_loop(cwd: str) -> Loop | None:
    """The loop of this session, found from its current directory or from the one it was started in."""
    for start in (cwd or _cwd(), os.environ.get("CLAUDE_PROJECT_DIR", "")):
        for directory in upwards(start) if os.path.isabs(start) else ():
            path = os.path.join(directory, MARKER)
            if os.path.isfile(path):
                loop = Loop(directory, read_marker(path))
                if not loop.is_stale:
                    return loop
    return None


def upwards(start: str) -> list[str]:
    """A directory and its parents up to the top of the git repository; without one, only the directory itself."""
    found = [os.path.normpath(start)]
    while not os.path.lexists(os.path.join(found[-1], ".git")):
        parent = os.path.dirname(found[-1])
        if parent == found[-1]:
            return found[:1]
        found.append(parent)
    return found


def read_marker(path: str) -> dict[str, Any]:
    """The values of a marker. One that cannot be read still counts as a loop, with default values."""
    try:
        values = json.loads(read_file(path))
    except (OSError, ValueError, RecursionError, Problem) as error:
        warn(f"{MARKER} could not be read: {error}")
        return {}
    return values if isinstance(values, dict) else {}


def process_start(pid: int) -> str | None:
    """When a process started: the first part of the boot id, and ticks since boot. None without a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()[:8]
        return None if fields[0] in (b"Z", b"X") else f"{boot}/{fields[19].decode()}"
    except OSError:
        if pid <= 0 or os.path.isdir("/proc/self"):
            return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass
    return "unknown"


# ---- the checks ----


def first_problem(loop: Loop) -> str:
    """The findings of the first check that fails, or "" if all of them pass."""
    board, trouble = read_board(loop)
    if trouble:
        return listed(loop, TASK_LIST, [trouble])
    for title, found in problems(loop, board, _rules()):
        if found:
            return listed(loop, title, found)
    return uncommitted(loop)


def listed(loop: Loop, title: str, found: list[str]) -> str:
    more = len(found) - MAX_REASONS
    shown = [*found[:MAX_REASONS], *([f"… and {more} more."] if more > 0 else [])]
    lines = "\n".join(f"- {each}" for each in shown)
    return f"This iteration cannot end yet. Check {title} of {loop.ralph_dir}/tasks.json:\n{lines}"


def problems(loop: Loop, board: Any, rules: Any) -> Iterator[tuple[str, list[str]]]:
    """The findings of each check of the task list, in order; later checks rely on earlier ones."""
    yield TASK_LIST, rules.schema_problems(board)
    if loop.skip_review:
        return
    cap = loop.review_cap
    if not isinstance(cap, int) or isinstance(cap, bool) or cap < 0:
        cap = rules.REVIEW_CAP
    yield "2 (review integrity)", rules.invariant_problems(board, cap)
    snapshot = loop.snapshot
    if not isinstance(snapshot, dict) or not all(
        isinstance(each, dict) and all(field in each for field in rules.REVIEW_FIELDS)
        for each in snapshot.values()
    ):
        warn(f"{MARKER} has no preIterationSnapshot: transitions are not checked")
    elif loop.mode not in (rules.IMPLEMENT, rules.REVIEW, rules.REVIEW_FIX):
        warn(f"{MARKER} has no iterationMode: transitions are not checked")
    else:
        yield "2.5 (transitions)", rules.transition_problems(snapshot, board, loop.mode)


def read_board(loop: Loop) -> tuple[Any, str]:
    name = f"{loop.ralph_dir}/tasks.json"
    try:
        text = read_file(loop.board).decode()
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant), ""
    except FileNotFoundError:
        return None, f"{name} does not exist."
    except OSError as error:
        return None, f"{name} cannot be read: {error.strerror}."
    except RecursionError:
        return None, f"{name} is not valid JSON: it is nested too deeply."
    except (ValueError, Problem) as error:
        return None, f"{name} is not valid JSON: {error}."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _rules() -> Any:
    """The rules in story_rules.py next to this file, imported without writing bytecode there."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import story_rules  # type: ignore[import-not-found]

    return story_rules


# ---- check 3 ----


def uncommitted(loop: Loop) -> str:
    """What to commit, and how; "" if there is nothing."""
    if not os.path.lexists(os.path.join(upwards(loop.directory)[-1], ".git")):
        warn(f"{loop.directory} is not in a git repository: nothing can be committed")
        return ""
    found = [path for path in changed_files(loop.directory) if not is_runtime_file(path)]
    if not found:
        return ""
    more = len(found) - MAX_FILES
    names = ", ".join(found[:MAX_FILES]) + (f" and {more} more" if more > 0 else "")
    return UNCOMMITTED.format(names, loop.ralph_dir)


def changed_files(directory: str) -> list[str]:
    output = git(directory, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    entries = [(entry[:2], os.fsdecode(entry[3:])) for entry in output.split(b"\0") if entry]
    return [path for state, path in entries if state != b"??" or CACHES.isdisjoint(path.split("/"))]


def is_runtime_file(path: str) -> bool:
    """Whether a file is one of Ralph's own that must not be committed: the marker, or listed in .ralph/.gitignore."""
    _, is_inside, name = f"/{path}".rpartition("/.ralph/")
    if not is_inside:
        return os.path.basename(path) == MARKER
    return (
        name in (".gitignore", "current_run", "settings.local.json")
        or name.startswith((".tmp-", "old/", "state/"))
        or (name.startswith("prompt_") and name.endswith(".txt"))
        or (name.startswith("guardrail_") and name.endswith(".log"))
    )


def git(directory: str, *arguments: str) -> bytes:
    import signal
    import subprocess

    command = ["git", "--no-optional-locks", "-C", directory, *arguments]
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=GIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Problem(f"git {arguments[0]} took longer than {GIT_SECONDS} s") from None
    if process.returncode:
        raise Problem(f"git {arguments[0]} failed: {os.fsdecode(errors).strip()[:500]}")
    return output


# ---- files ----


def read_file(path: str) -> bytes:
    """The content of a regular file, without following a link."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Problem("not a regular file")
        if found.st_size > MAX_BYTES:
            raise Problem("too large")
        return _read_all(file)
    finally:
        os.close(file)


def _read_all(file: int) -> bytes:
    pieces = [os.read(file, 1 << 20)]
    while pieces[-1]:
        pieces.append(os.read(file, 1 << 20))
    return b"".join(pieces)


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def warn(text: str) -> None:
    _write(2, f"ralph: warning: {text}")


def _write(file: int, line: str) -> None:
    try:
        os.write(file, f"{line}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # no one is reading it


if __name__ == "__main__":
    main()
