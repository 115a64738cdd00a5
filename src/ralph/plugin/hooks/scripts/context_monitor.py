"""Alerts the agent when its context fills up: after tool calls, at most five times a session.

    context_monitor.py          after a tool call: prints an alert for the model, or nothing
    context_monitor.py rearm    at the start of a session: allows every alert again

It runs after every tool call, so it has to be fast: it imports only what the interpreter has already loaded, checks the
size of the transcript without reading it, and parses no more of its input than it needs.
"""

import posix
import sys

THRESHOLDS = (50, 60, 70, 80, 90)
WINDOW = 200_000
"""Context window in tokens; set CLAUDE_CONTEXT_WINDOW for other models."""
BYTES_PER_TOKEN = 4
"""Use 5 or 6 if alerts come too early, 3 if they come too late."""

STATE = b"/tmp/claude-context-alerts-"
LONGEST_NAME = 100
CHUNK = 1 << 16
NAME = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
FIELDS = (b"session_id", b"transcript_path", b"hook_event_name")

NOTICE = (
    "NOTICE",
    "Be mindful of remaining space. Plan to finish your current task within this session. If you discover"
    " follow-up work, add new stories to tasks.json — the next iteration will pick them up.",
)
WARNING = (
    "WARNING",
    "Finish your current task and commit soon. Do not start additional tasks. If work remains, create new stories"
    " in tasks.json for the next iteration and capture any implementation details or insights in progress.txt so"
    " the next iteration has full context.",
)
CRITICAL = (
    "CRITICAL",
    "Wrap up immediately. Do NOT start new work. Instead: (1) create tasks in tasks.json for any remaining work,"
    " (2) write implementation details, insights, and handoff notes to progress.txt, (3) commit all changes,"
    " (4) stop. The next iteration will continue from where you left off.",
)
ALERTS = {50: NOTICE, 60: NOTICE, 70: WARNING, 80: WARNING, 90: CRITICAL}


def main() -> None:
    session, transcript, event = read_input()
    if not session:
        return
    state = STATE + bytes(byte if byte in NAME else 95 for byte in session[:LONGEST_NAME])
    if sys.argv[1:] == ["rearm"]:
        rearm(state)
        return
    percent = used(transcript) * 100 // window()
    reached = [each for each in THRESHOLDS if percent >= each]
    if reached and is_new(state, reached):
        say(event, reached[-1], percent)


# ---- input ----


def read_input() -> "list[bytes]":
    """The fields of the hook's input. They come before the tool's output, which is read and dropped."""
    data = posix.read(0, CHUNK)
    found = fields(data)
    if all(found):
        while posix.read(0, CHUNK):
            pass
        return found
    pieces = [data]
    while pieces[-1]:
        pieces.append(posix.read(0, CHUNK))
    return fields(b"".join(pieces))


def fields(data: bytes) -> "list[bytes]":
    """The strings of these keys in the outermost object, or empty.

    This needs no loop over characters: with escapes masked, every quote starts or ends a string.
    """
    plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    return [unescaped(data[slice(*place(plain, b'"%b"' % name))]) for name in FIELDS]


def place(plain: bytes, key: bytes) -> "tuple[int, int]":
    """The start and end of the string after this key of the outermost object."""
    depth = seen = 0
    at = plain.find(key)
    while at >= 0:
        outside = plain[seen:at].split(b'"')
        if len(outside) % 2:
            text = b"".join(outside[::2])
            depth += text.count(b"{") + text.count(b"[") - text.count(b"}") - text.count(b"]")
            seen = at
            start = plain.find(b'"', at + len(key)) + 1
            if depth == 1 and start and plain[at + len(key) : start].split() in ([b':"'], [b":", b'"']):
                end = plain.find(b'"', start)
                return (start, end) if end >= 0 else (0, 0)
        at = plain.find(key, at + 1)
    return 0, 0


def unescaped(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    from json import loads  # takes twice as long as everything else, and is hardly ever needed

    whole: str = loads(b'"%b"' % text)
    return whole.encode("utf-8", "surrogatepass")


# ---- usage ----


def used(transcript: bytes) -> int:
    """The approximate number of tokens in a transcript."""
    stat = posix.stat(transcript)
    is_file = stat.st_mode & 0o170000 == 0o100000
    return stat.st_size // BYTES_PER_TOKEN if is_file and posix.access(transcript, posix.R_OK) else 0


def window() -> int:
    given = posix.environ.get(b"CLAUDE_CONTEXT_WINDOW", b"")
    return (int(given) if given.isdigit() else 0) or WINDOW


# ---- earlier alerts ----


def is_new(state: bytes, reached: "list[int]") -> bool:
    """Whether the highest of these thresholds is new in this session. Marks all of them as reported."""
    flags = (
        posix.O_RDWR | posix.O_CREAT | posix.O_APPEND | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    )
    file = posix.open(state, flags, 0o600)
    if not is_mine(posix.fstat(file)):
        return False
    posix.lockf(file, posix.F_LOCK, 0)
    told = posix.read(file, CHUNK).split()
    new = [b"%d\n" % each for each in reached if b"%d" % each not in told]
    if new:
        posix.write(file, b"".join(new))
    return b"%d" % reached[-1] not in told


def rearm(state: bytes) -> None:
    if posix.lstat(state).st_uid == posix.geteuid():
        posix.unlink(state)


def is_mine(stat: posix.stat_result) -> bool:
    return stat.st_mode & 0o170000 == 0o100000 and stat.st_uid == posix.geteuid() and stat.st_nlink == 1


# ---- output ----


def say(event: bytes, threshold: int, percent: int) -> None:
    severity, text = ALERTS[threshold]
    name = "PostToolUseFailure" if event == b"PostToolUseFailure" else "PostToolUse"
    about = f"about {min(percent, 100)}% of the context window is used"
    alert = '{"hookSpecificOutput": {"hookEventName": "%s", "additionalContext": "%s: %s. %s"}}\n'
    posix.write(1, (alert % (name, severity, about, text)).encode())


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError):
        pass  # no transcript, or not readable: no alert
    posix._exit(0)
