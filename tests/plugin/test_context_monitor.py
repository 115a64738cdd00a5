"""The context monitor as a process: thresholds, once per session, and the fields it picks from its input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugin.plugin_support import EVERY_PYTHON, SCRIPTS, Said, hook_inputs, interpreter, loaded, run_hook

MONITOR = SCRIPTS / "context_monitor.py"
monitor = loaded("context_monitor")

NOTICE = (
    "Be mindful of remaining space. Plan to finish your current task within this session. If you discover follow-up"
    " work, add new stories to tasks.json — the next iteration will pick them up."
)
WARNING = (
    "Finish your current task and commit soon. Do not start additional tasks. If work remains, create new stories in"
    " tasks.json for the next iteration and capture any implementation details or insights in progress.txt so the"
    " next iteration has full context."
)
CRITICAL = (
    "Wrap up immediately. Do NOT start new work. Instead: (1) create tasks in tasks.json for any remaining work,"
    " (2) write implementation details, insights, and handoff notes to progress.txt, (3) commit all changes,"
    " (4) stop. The next iteration will continue from where you left off."
)


@dataclass
class Session:
    """A session with a growing transcript and by default a window of 1000 tokens."""

    id: str
    transcript: Path
    window: str = "1000"

    @property
    def state(self) -> Path:
        return Path(f"/tmp/claude-context-alerts-{self.id}")

    def input(self, event: str) -> dict[str, Any]:
        recorded: dict[str, Any] = hook_inputs()[event]
        return recorded | {"session_id": self.id, "transcript_path": str(self.transcript)}

    def grow(self, percent: float) -> None:
        """Fill this share of a window of 1000 tokens, 4 bytes each."""
        with open(self.transcript, "w") as file:
            file.truncate(int(percent * 40))

    def call(self, event: str = "PostToolUse", **values: Any) -> Said:
        said = run_hook(MONITOR, self.input(event) | values, env={"CLAUDE_CONTEXT_WINDOW": self.window})
        assert (said.code, said.err) == (0, "")
        return said

    def alert(self, event: str = "PostToolUse") -> str:
        """The alert after a tool call, or ""."""
        said = self.call(event)
        if not said.out:
            return ""
        output = said.answer["hookSpecificOutput"]
        assert said.answer.keys() == {"hookSpecificOutput"} and output["hookEventName"] == event
        told: str = output["additionalContext"]
        return told

    def start(self) -> None:
        said = run_hook(MONITOR, self.input("SessionStart"), "rearm")
        assert (said.code, said.out, said.err) == (0, "", "")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    found = Session(f"test-{uuid.uuid4()}", tmp_path / "transcript.jsonl")
    found.grow(0)
    yield found
    found.state.unlink(missing_ok=True)


def test_thresholds_severities_and_texts(session: Session) -> None:
    """Five alerts as a session fills up, each exactly at its threshold, each once."""
    told = []
    for percent in range(101):
        session.grow(percent)
        if alert := session.alert() if percent % 10 in (0, 9) else "":
            told.append((percent, alert))
    about = "about {}% of the context window is used. "
    assert told == [
        (50, "NOTICE: " + about.format(50) + NOTICE),
        (60, "NOTICE: " + about.format(60) + NOTICE),
        (70, "WARNING: " + about.format(70) + WARNING),
        (80, "WARNING: " + about.format(80) + WARNING),
        (90, "CRITICAL: " + about.format(90) + CRITICAL),
    ]
    assert session.state.read_text().split() == ["50", "60", "70", "80", "90"]


def test_a_leap_gives_one_alert(session: Session) -> None:
    """Only the highest threshold reached is reported; lower ones are not reported afterwards."""
    session.grow(75)
    assert session.alert().startswith("WARNING: about 75%")
    assert session.alert() == ""
    session.grow(120)
    assert session.alert().startswith("CRITICAL: about 100%")
    assert session.alert() == ""


def test_a_new_session_gets_alerts_again(session: Session) -> None:
    """SessionStart re-arms alerts for that session only."""
    session.grow(55)
    other = Session(session.id + "-other", session.transcript)
    assert session.alert() and other.alert()
    session.start()
    assert not session.state.exists()
    assert session.alert().startswith("NOTICE") and session.alert() == "" and other.alert() == ""
    other.state.unlink()
    other.start()


def test_a_tool_that_failed_counts_too(session: Session) -> None:
    """The answer names its event, otherwise the model would not see it."""
    session.grow(90)
    assert session.alert("PostToolUseFailure").startswith("CRITICAL")
    assert session.alert() == ""


@pytest.mark.parametrize("window", ["", "0", "-5", "many", "1e3"])
def test_the_window(session: Session, window: str) -> None:
    """200,000 tokens unless CLAUDE_CONTEXT_WINDOW has a number."""
    session.window = window
    session.transcript.write_bytes(b"")
    os.truncate(session.transcript, 399_999)
    assert session.alert() == ""
    os.truncate(session.transcript, 400_000)
    assert session.alert().startswith("NOTICE: about 50%")


def test_calls_at_the_same_time(session: Session) -> None:
    """If many tools finish together, there is one alert."""
    session.grow(60)
    command = [sys.executable, "-I", "-S", str(MONITOR)]
    env = os.environ | {"CLAUDE_CONTEXT_WINDOW": "1000"}
    pipe = subprocess.PIPE
    calls = [subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env) for _ in range(12)]
    for call in calls:
        assert call.stdin is not None
        call.stdin.write(json.dumps(session.input("PostToolUse")).encode())
        call.stdin.flush()
    told = [call.communicate()[0] for call in calls]
    assert sum(map(bool, told)) == 1


# ---- no alert ----


def test_without_a_transcript_there_is_silence(session: Session, tmp_path: Path) -> None:
    """There is no alert for a missing file, a folder, a device, a missing path or an invalid path."""
    for path in (str(tmp_path / "missing"), str(tmp_path), "/dev/zero", "", "\0", 7, None, "x" * 10_000):
        assert session.call(transcript_path=path).out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_transcript(session: Session) -> None:
    """There is no alert, and no error."""
    session.grow(95)
    session.transcript.chmod(0)
    assert session.alert() == ""


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"session_id"',
        b"\xff\xfe",
        b'{"session_id":',
        b'{"session_id":"a',
        b'{"session_id"',
    ],
)
def test_invalid_input(text: bytes) -> None:
    """There is no alert and no error, even when alerts are re-armed."""
    for arguments in ((), ("rearm",)):
        assert run_hook(MONITOR, text, *arguments) == Said(0, "", "")


def test_no_input_at_all() -> None:
    """A closed stdin, a closed stdout: no traceback."""
    command = f"exec {sys.executable} -I -S {MONITOR}"
    for closed in ("<&-", ">&-", "2>&-"):
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], input="", capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- the state file ----


def test_a_session_id_is_not_used_as_a_path(tmp_path: Path) -> None:
    """Whatever it contains, the state is a file in /tmp with a name of limited length."""
    transcript = tmp_path / "t"
    transcript.write_text("x" * 4000)
    mark = uuid.uuid4().hex
    for id, name in (
        (f"../{mark}/é\n", f"___{mark}____"),
        (f"{mark}{'y' * 5000}", f"{mark}{'y' * 68}"),
        (f'{mark}"\\u00e9\\', f"{mark}__u00e9_"),
    ):
        state = Path(f"/tmp/claude-context-alerts-{name}")
        given = hook_inputs()["PostToolUse"] | {"session_id": id, "transcript_path": str(transcript)}
        assert "CRITICAL" in run_hook(MONITOR, given, env={"CLAUDE_CONTEXT_WINDOW": "1000"}).out
        assert state.read_text() == "50\n60\n70\n80\n90\n" and state.stat().st_mode & 0o777 == 0o600
        state.unlink()


def test_a_link_is_not_followed(session: Session, tmp_path: Path) -> None:
    """Nothing is written through a link, a hard link, a pipe or a folder."""
    target = tmp_path / "target"
    target.write_text("mine")
    session.grow(95)
    session.state.symlink_to(target)
    assert session.alert() == ""
    session.start()
    assert not session.state.is_symlink()
    os.link(target, session.state)
    assert session.alert() == ""
    session.state.unlink()
    os.mkfifo(session.state)
    assert session.alert() == ""
    session.state.unlink()
    session.state.mkdir()
    assert session.alert() == ""
    session.start()
    session.state.rmdir()
    assert target.read_text() == "mine"
    assert session.alert().startswith("CRITICAL")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of somebody else")
def test_a_foreign_file_is_left_alone(session: Session) -> None:
    """It is not read, written or removed."""
    session.grow(95)
    session.state.write_text("theirs")
    os.chown(session.state, 12345, 12345)
    assert session.alert() == ""
    session.start()
    assert session.state.read_text() == "theirs"


# ---- which fields ----

TEXTS = st.text(max_size=8) | st.sampled_from(
    [
        '"session_id":"x"',
        "\\",
        '\\"',
        '{"transcript_path": "',
        "session_id",
        '"',
        "é\U0001f600\ud800",
        "a\\u0041",
    ]
)
KEYS = st.sampled_from(["session_id", "transcript_path", "hook_event_name", 'a"session_id', "\\"]) | TEXTS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.booleans(), st.sampled_from([None, 1]), st.booleans())
@example(
    {"a": "session_id", "b": ["session_id", {"session_id": "no"}], "session_id": "yes"}, True, None, True
)
def test_the_fields_are_those_of_the_json(
    values: dict[str, Any], escaped: bool, indent: int | None, tight: bool
) -> None:
    """Only at the top level, whatever strings, lists and objects contain, in any order and spelling."""
    text = json.dumps(
        values, ensure_ascii=escaped, indent=indent, separators=(",", ":") if tight else None
    ).encode("utf-8", "surrogatepass")
    expected = [values.get(name.decode(), "") for name in monitor.FIELDS]
    found = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else b"" for each in expected]
    assert monitor.fields(text) == found


@given(st.binary(max_size=60) | st.text('{}[]":,\\ asession_id', max_size=60).map(str.encode))
def test_any_bytes_give_an_answer(text: bytes) -> None:
    """The result is the fields or a ValueError, which means no alert."""
    try:
        found = monitor.fields(text)
    except ValueError:
        return
    assert len(found) == 3


def test_fields_behind_a_long_output(session: Session) -> None:
    """Claude Code writes them first; they are found even after megabytes full of quotes."""
    session.grow(55)
    lines = [{"session_id": f'"session_id":"{n}"', "transcript_path": "\\"} for n in range(50_000)]
    first = {"tool_response": lines, "tool_input": {"session_id": "no"}}
    given = first | session.input("PostToolUse") | first
    said = run_hook(MONITOR, given, env={"CLAUDE_CONTEXT_WINDOW": "1000"})
    assert "NOTICE" in said.out and session.state.exists()


def test_input_in_pieces(session: Session) -> None:
    """A slow writer, byte by byte; all of its input is read."""
    session.grow(55)
    text = json.dumps(session.input("PostToolUse")).encode()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(MONITOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"CLAUDE_CONTEXT_WINDOW": "1000"},
        bufsize=0,
    )
    assert process.stdin is not None
    for byte in text:
        process.stdin.write(bytes([byte]))
    assert b"NOTICE" in process.communicate()[0]


# ---- cheap ----


def test_it_imports_nothing(session: Session) -> None:
    """A call with an alert loads no module that the bare interpreter has not loaded."""
    session.grow(95)
    code = f"g = {{'__name__': 'x'}}; exec(open({str(MONITOR)!r}).read(), g); g['main']()"
    bare, loaded = _run(session, "pass"), _run(session, code)
    assert "CRITICAL" in loaded.out
    assert set(loaded.err.split()) <= set(bare.err.split())


def _run(session: Session, code: str) -> Said:
    """Run code the way the hook runs, and print the modules loaded afterwards."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"],
        input=json.dumps(session.input("PostToolUse")),
        env={"CLAUDE_CONTEXT_WINDOW": "1000"},
        capture_output=True,
        text=True,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@EVERY_PYTHON
def test_every_python_from_3_8_on(session: Session, minor: int) -> None:
    """A hook has to work with the Python of the machine."""
    session.grow(55)
    given = session.input("PostToolUse") | {"cwd": "é", "transcript_path": str(session.transcript) + "\u0000"}
    env = {"CLAUDE_CONTEXT_WINDOW": "1000"}
    python = interpreter(minor)
    assert run_hook(MONITOR, given, python=python, env=env) == Said(0, "", "")
    given = session.input("PostToolUse")
    assert "NOTICE" in run_hook(MONITOR, given, python=python, env=env).out
    assert run_hook(MONITOR, given, "rearm", python=python) == Said(0, "", "")
    assert not session.state.exists()
