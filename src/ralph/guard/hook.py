"""The guard as a PreToolUse hook. It reads JSON on stdin and exits 0 without output, or 2 with a reason.

A child process judges and its parent answers, so a parser crash, an endless parse and a silent stdin all become a
denial. The parent imports only modules that the interpreter has already loaded.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.guard.judge import Guard
    from ralph.guard.model import GuardVerdict
    from ralph.shell.context import ShellContext

ALLOW, DENY = 0, 2
MAX_INPUT = 1 << 22
BUSY_SECONDS = 0.3
"""CPU time limit for one verdict."""
WAIT_SECONDS = 4.0
"""Wall-clock limit for an answer."""
SHELLS = (
    "Bash",
    "bash",
    "Shell",
    "shell",
    "run_shell_command",
    "local_shell",
    "exec_command",
    "execute_command",
)
WRITERS = ("Write", "Edit", "MultiEdit", "NotebookEdit", "write_file", "replace")
_FAILED = "Ralph's guard could not judge this command ({}), so it was not run. Try a simpler command."


def main(arguments: list[str]) -> int:
    """Judge the hook input on stdin. Outside a run, allow everything."""
    gc.disable()  # the process is too short-lived for garbage collection to pay off
    if not os.environ.get("RALPH_RUN_ID"):
        return ALLOW
    try:
        answer = _from_child(arguments)
    except BaseException as error:
        answer = denial(_FAILED.format(f"{type(error).__name__}: {error}"))
    return _speak(answer)


def _from_child(arguments: list[str]) -> bytes:
    import _signal  # type: ignore[import-not-found]  # `signal` itself would load half of the standard library

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            _signal.signal(_signal.SIGPROF, _signal.SIG_DFL)
            _signal.setitimer(_signal.ITIMER_PROF, BUSY_SECONDS)
            _write(writer, b"+" + answer(_stdin(), arguments))
        finally:
            os._exit(0)
    os.close(writer)
    _signal.signal(_signal.SIGALRM, lambda *_: os.kill(child, _signal.SIGKILL))
    _signal.setitimer(_signal.ITIMER_REAL, WAIT_SECONDS)
    told = b""
    while piece := os.read(reader, 1 << 16):
        told += piece
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    os.waitpid(child, 0)
    return told[1:] if told else denial(_FAILED.format("the guard timed out or crashed"))


def _stdin() -> bytes:
    data = b""
    while len(data) <= MAX_INPUT and (piece := os.read(0, 1 << 20)):
        data += piece
    return data


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


def _speak(answer: bytes) -> int:
    """Write the answer as JSON to stdout and its reason to stderr. A write error does not change the exit code."""
    if not answer:
        return ALLOW
    said, _, reason = answer.partition(b"\n")
    for number, text in ((1, said), (2, reason)):
        try:
            _write(number, text + b"\n")
        except OSError:
            pass
    return DENY


def denial(reason: str) -> bytes:
    """Return the denial as one line of JSON, followed by the plain reason."""
    import json

    output = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    said = json.dumps({"hookSpecificOutput": output})
    return f"{said}\n{reason}".encode("utf-8", "replace")


def answer(data: bytes, arguments: list[str]) -> bytes:
    """Return the answer to a hook input: a denial, or nothing if it is allowed."""
    try:
        verdict = _verdict(data, arguments)
    except Exception as error:
        return denial(_FAILED.format(f"{type(error).__name__}: {error}"[:300]))
    if verdict is None or verdict.allowed:
        return b""
    part = f" ({verdict.part})" if verdict.part else ""
    return denial(f"Denied by Ralph's guard, rule {verdict.rule}: {verdict.reason}{part}")


def _verdict(data: bytes, arguments: list[str]) -> GuardVerdict | None:
    import json

    if len(data) > MAX_INPUT:
        raise ValueError("the hook input is too long")
    given = json.loads(data)
    if not isinstance(given, dict):
        raise TypeError("the hook input is not a JSON object")
    tool, values = given.get("tool_name"), given.get("tool_input")
    if not isinstance(tool, str):
        raise TypeError("the hook input has no tool_name")
    if tool not in SHELLS and tool not in WRITERS:
        return None
    if not isinstance(values, dict):
        raise TypeError(f"the input of {tool} is not a JSON object")
    from ralph.guard import setup

    context = setup.context(given.get("cwd"))
    guard = setup.guard(context, arguments)
    if guard is None:
        return None
    return _command(guard, context, values) if tool in SHELLS else _file(guard, context, values)


def _command(guard: Guard, context: ShellContext, values: dict[str, object]) -> GuardVerdict:
    command = values.get("command")
    if isinstance(command, list):
        import shlex

        command = shlex.join(str(word) for word in command)
    if not isinstance(command, str):
        raise TypeError("the hook input has no command")
    return guard.judge(command, context)


def _file(guard: Guard, context: ShellContext, values: dict[str, object]) -> GuardVerdict | None:
    path = values.get("file_path", values.get("notebook_path"))
    if not isinstance(path, str):
        raise TypeError("the hook input has no file path")
    return guard.judge_file(path, context)


def run(arguments: list[str]) -> None:
    """Run the hook and exit, always with code 0 or 2."""
    code = DENY
    try:
        code = main(arguments)
    finally:
        os._exit(code)


if __name__ == "__main__":
    run(sys.argv[1:])
