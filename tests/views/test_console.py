"""A run on the terminal: no raw agent output, colours only on a terminal, and closed pipes."""

from __future__ import annotations

import io
import os
import pty
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from conftest import RALPH, Project, Result, some, wait_until
from ralph.agents.base import Reading
from ralph.agents.plain import PlainParser
from ralph.core.events import (
    AgentEnded,
    AgentStarted,
    CheckEnded,
    CheckStarted,
    ClaimLooked,
    Committed,
    Event,
    Holding,
    IterationStarted,
    Noise,
    Notice,
    RunEnded,
    RunStarted,
    Text,
)
from ralph.core.model import (
    Cause,
    Ended,
    Exit,
    FailAction,
    Feedback,
    Hold,
    HoldWhy,
    Outcome,
    Purpose,
    Ran,
    Stop,
    Usage,
    Verdict,
)
from ralph.views.agent import ViewOptions, duration
from ralph.views.console import Console

RUNS = int(os.environ.get("RALPH_FAULT_RUNS", "3"))
"""How many thousand agents print garbage; the full count is 10."""

HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
OUR_COLOURS = re.compile(r"\x1b\[(?:0|1|2|31|32|33)m")
FRAGMENTS = [
    b"\x1b[31mred\x1b[0m",
    b"\x1b[2J\x1b[H",
    b"\x1b[?1049h",
    b"\x1b]0;title\x07",
    b"\x1b]52;c;cm0gLXJmIC8=\x1b\\",
    b"\x1b]8;;http://evil\x07",
    b"\x1bP1$r\x1b\\",
    b"\x1b_G\x1b\\",
    b"\x1b",
    b"\x1b[",
    b"\x1b]",
    b"\x9b31m",
    b"\xc2\x9b31m",
    b"\xc2\x9d52;c;x\xc2\x9c",
    "\u202e\u2066\u2069\u061c\u200e".encode(),
    b"\xe2\x80",
    b"\xae",
    b"\xed\xa0\x80",
    b"\xff\xfe",
    b"\x00",
    b"\x08\x08\x08",
    b"\x7f",
    b"\r",
    b"\r\n",
    b"\n",
    b"\t",
    "漢字 🙂".encode(),
    b"ordinary text ",
    b"x" * 20_000,
]


def rubbish(dice: random.Random) -> bytes:
    """Garbage bytes of the worst kinds, in random order."""
    parts = []
    for _ in range(dice.randrange(12)):
        kind = dice.random()
        if kind < 0.7:
            parts.append(dice.choice(FRAGMENTS[:-1]))
        elif kind < 0.95:
            parts.append(dice.randbytes(dice.randrange(8)))
        else:
            parts.append(FRAGMENTS[-1])
    return b"".join(parts)


def cut(dice: random.Random, data: bytes) -> Iterator[bytes]:
    """The bytes in pieces, as a pipe might deliver them."""
    while data:
        size = dice.choice((1, 2, 3, 7, 1000, 30_000))
        yield data[:size]
        data = data[size:]


class Screen:
    """A console and its output."""

    def __init__(self, look: ViewOptions) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.tell = Console(self._out, self._err, look)

    @property
    def out(self) -> str:
        self._settle()
        return self._out.getvalue()

    @property
    def err(self) -> str:
        self._settle()
        return self._err.getvalue()

    def news(self) -> str:
        """The output since the last call."""
        text = self.err + self.out
        for stream in (self._out, self._err):
            stream.seek(0)
            stream.truncate()
        return text

    def _settle(self) -> None:
        """Wait until the console's writer threads have written everything."""
        self.tell._err.flush()
        self.tell._out.flush()


def show(*events: Event, look: ViewOptions | None = None) -> Screen:
    screen = Screen(look or ViewOptions())
    for event in events:
        screen.tell(event)
    return screen


def drive(tell: Callable[[Event], None], out: Iterator[bytes], err: Iterator[bytes]) -> None:
    """Show an agent's output from its first byte to its exit, as the loop would."""
    parser = PlainParser(Reading())
    for data in out:
        for event in parser.stdout(data):
            tell(event)
    for data in err:
        for event in parser.stderr(data):
            tell(event)
    last, report = parser.finish(Exit(1))
    for event in last:
        tell(event)
    tell(AgentEnded(Purpose.WORK, Ran(0.0, report.ended, text=report.text, detail=report.detail, exit=1)))


def run_id(result: Result) -> str:
    """The id of the finished run."""
    found = re.search(r"^  run (\S+): ", result.out, re.MULTILINE)
    assert found is not None
    return found[1]


# ---- nothing harmful reaches the terminal ----


@pytest.mark.parametrize("seed", some(range(min(RUNS, 10)), 1))
def test_no_agent_output_reaches_the_terminal_raw(seed: int) -> None:
    """A thousand agents per seed print garbage, and no escape, control or override character gets through."""
    dice = random.Random(seed)
    screens = [Screen(ViewOptions(verbose=verbose)) for verbose in (False, True)]
    for _ in range(1000):
        out, err, screen = rubbish(dice), rubbish(dice), dice.choice(screens)
        drive(screen.tell, cut(dice, out), cut(dice, err))
        assert not HARMFUL.search(screen.news()), (out, err)


@pytest.fixture(scope="module")
def verbose() -> Screen:
    """One screen for many examples, because each screen has its own threads."""
    return Screen(ViewOptions(verbose=True))


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(FRAGMENTS[:-1])), max_size=12))
def test_any_bytes_are_shown_harmlessly(verbose: Screen, pieces: list[bytes]) -> None:
    """The same holds for bytes found by hypothesis."""
    drive(verbose.tell, iter(pieces), iter(pieces))
    assert not HARMFUL.search(verbose.news())


EVIL = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b1m\x00\r"


@pytest.mark.parametrize(
    "event",
    [
        Text(EVIL),
        Noise(EVIL),
        RunStarted("id", "run", EVIL, EVIL, (EVIL,), 5),
        AgentStarted(Purpose.WORK, (EVIL, EVIL), EVIL, 5000),
        AgentEnded(Purpose.WORK, Ran(0.0, Ended.FAILED, EVIL, exit=1, text=EVIL, detail=EVIL)),
        CheckStarted(EVIL),
        CheckEnded(Verdict(EVIL, green=True, reason="exit code 0"), FailAction.APPEND, 0.1),
        CheckEnded(Verdict(EVIL, green=False, reason="exit code 1", log="x.log"), FailAction.APPEND, 0.1),
        CheckEnded(Verdict("check", green=False, reason=EVIL), FailAction.APPEND, 0.1),
        ClaimLooked(EVIL, found=False, unclaimed=EVIL),
        Committed(1, "0123abcd", EVIL),
        Notice(EVIL),
        Notice(EVIL, detail=True),
        RunEnded("id", Stop(Cause.CONFIG, EVIL, (EVIL, EVIL)), 1, Usage(), 0.5),
    ],
    ids=lambda event: type(event).__name__,
)
def test_no_text_of_an_event_reaches_the_terminal_raw(event: Event) -> None:
    """Names, prompts, reasons and notes are cleaned too, because an agent can write them all."""
    assert not HARMFUL.search(show(event, look=ViewOptions(verbose=True)).news())


def test_a_real_terminal_gets_nothing_raw(project: Project) -> None:
    """An agent and a guardrail print every byte, and no harmful one reaches a real terminal."""
    everything = "".join(f"\\{byte:03o}" for byte in range(256))
    evil = "\\033]52;c;x\\007\\033[2J\\302\\233\\342\\200\\256\\n"
    project.agent(
        f"printf '{everything}{evil}'; printf '{everything}{evil}' >&2; exit 1",
        guardrails=[{"command": f"printf '{everything}{evil}'; false"}],
    )
    code, shown = on_terminal(project, "run", "-p", "x", "-m", "2", "-V")
    assert code == 1
    assert not HARMFUL.search(shown.replace("\r\n", "\n"))
    assert "abcdefghijklmnopqrstuvwxyz" in shown


def test_the_raw_stream_is_kept_next_to_the_journal(project: Project) -> None:
    """The stream's file has every byte, even those that the terminal must not get."""
    project.agent("printf 'a\\033[31mb\\377\\000c'; printf '\\033]0;t\\007' >&2")
    run = run_id(project.run("run", "-p", "x", "-m", "1"))
    assert {path.suffix: path.read_bytes() for path in project.home.streams(run).iterdir()} == {
        ".stdout": b"a\x1b[31mb\xff\x00c",
        ".stderr": b"\x1b]0;t\x07",
    }


def test_guardrail_output_goes_into_its_log(project: Project) -> None:
    """A guardrail's output is not shown but logged, and cleaned in the next prompt."""
    project.agent("echo hello", guardrails=[{"command": "printf '\\033[31mbroken\\033[0m\\007\\n'; exit 3"}])
    result = project.run("run", "-p", "x", "-m", "2")
    assert not re.search(r"^broken", result.err, re.MULTILINE)
    log = next((project.path / ".ralph").glob("guardrail_001_*.log"))
    assert log.read_bytes() == b"\x1b[31mbroken\x1b[0m\x07\n"
    assert "Output:\nbroken\ufffd\n" in (project.path / ".ralph/prompt_002.txt").read_text()


def test_status_shows_nothing_raw(project: Project) -> None:
    """A directory, a prompt and guidance with escape sequences are shown cleaned."""
    evil = project.path / "\x1b]0;pwned\x07\u202e"
    evil.mkdir()
    inner = Project(evil, project.home)
    inner.agent("echo hello; echo '\x1b[2J' >&2; exit 1")
    run = run_id(inner.run("run", "-p", "do \x1b[31mthis\x9b", "-m", "1"))
    inner.run("steer", run, "\x1b[1mnow\u202e")
    shown = inner.run("status").out + inner.run("status", run).out
    assert "do this" in shown and not HARMFUL.search(shown)


@pytest.mark.parametrize(
    ("settings", "prompt"),
    [
        ({"agent": {"promptVia": "stdin"}}, EVIL),
        pytest.param(
            {},
            EVIL,
        ),
        pytest.param(
            {"guardrails": [{"command": "echo \x1b]0;pwned\x07"}]},
            "x",
        ),
    ],
    ids=["prompt", "command", "guardrail"],
)
def test_a_dry_run_shows_nothing_raw(project: Project, settings: dict[str, Any], prompt: str) -> None:
    """Escape sequences in a prompt or in settings do not reach the terminal of a dry run."""
    project.agent("true", **settings)
    (project.path / "PROMPT.md").write_text(prompt.replace("\x00", ""))
    result = project.run("run", "-f", "PROMPT.md", "--dry-run")
    assert (result.code, HARMFUL.findall(result.out)) == (0, [])


# ---- colours ----


def on_terminal(project: Project, *arguments: str, **env: str) -> tuple[int, str]:
    """Run ralph on a pseudo-terminal and return its exit code and output."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [RALPH, *arguments],
            cwd=project.path,
            env=project.env | {"TERM": "xterm-256color"} | env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:
            pass  # Linux reports a terminal without a user as an error
        return process.wait(timeout=60), shown.decode()
    finally:
        os.close(ours)


AGENT = "echo working; echo '\033[35mnoise\033[0m' >&2; echo '<response>DONE</response>'"


def test_colours_are_for_a_terminal(project: Project) -> None:
    """On a terminal there are colours, and all of them are Ralph's."""
    project.agent(AGENT, guardrails=[{"command": "true"}])
    code, shown = on_terminal(project, "run", "-p", "x", NO_COLOR="")
    assert (code, len(OUR_COLOURS.findall(shown)) > 0) == (0, True)
    assert not HARMFUL.search(OUR_COLOURS.sub("", shown).replace("\r\n", "\n"))
    assert "\x1b[32mDone: all checks passed\x1b[0m" in shown


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}])
def test_no_colours_if_they_are_turned_off(project: Project, env: dict[str, str]) -> None:
    """NO_COLOR and a dumb terminal get plain text."""
    project.agent(AGENT, guardrails=[{"command": "true"}])
    code, shown = on_terminal(project, "run", "-p", "x", **env)
    assert (code, "\x1b" in shown) == (0, False)


def test_no_colours_in_a_pipe(project: Project) -> None:
    """Piped output is plain text even if the terminal supports colours."""
    project.extra_env = {"NO_COLOR": "", "TERM": "xterm-256color"}
    project.agent(AGENT, guardrails=[{"command": "true"}])
    result = project.run("run", "-p", "x")
    assert (result.code, "\x1b" in result.out + result.err) == (0, False)


# ---- pipes that close ----


@pytest.mark.parametrize(
    ("flag", "closed"), [("-V", "stdout"), ("-V", "stderr"), ("-V", "both"), ("--json", "stdout")]
)
def test_a_reader_that_goes_away_does_not_stop_the_run(project: Project, flag: str, closed: str) -> None:
    """The run continues to its end when the terminal or a pipe closes."""
    project.agent(
        """
        echo x >> starts
        while [ ! -f go ]; do sleep 0.02; done
        yes | head -c 300000
        [ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>'
        true
        """
    )
    process = project.start("run", "-p", "x", flag)
    assert process.stdout and process.stderr
    wait_until((project.path / "starts").exists)
    pipes = {"stdout": process.stdout, "stderr": process.stderr}
    for name in ("stdout", "stderr") if closed == "both" else (closed,):
        pipes.pop(name).close()
    (project.path / "go").touch()
    for pipe in pipes.values():
        pipe.read()
        pipe.close()
    assert process.wait(timeout=60) == 0
    assert (project.path / "starts").read_text().split() == ["x", "x"]


@pytest.mark.parametrize("closing", ["<&- >&-", "<&- >&- 2>&-"])
def test_a_descriptor_that_was_never_open_does_not_stop_the_run(project: Project, closing: str) -> None:
    """A run started without stdout or stderr works and has the right exit code."""
    project.agent("echo x >> starts; echo '<response>DONE</response>'")
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closing}', RALPH, "run", "-p", "x"],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, (project.path / "starts").exists()) == (0, True)


# ---- output ----


def test_stream_off_hides_only_the_agent() -> None:
    """Without streaming the agent's output is hidden, but Ralph's own lines are shown."""
    events: list[Event] = [
        IterationStarted(1, 3),
        Text("agent says\n"),
        Noise("agent groans\n"),
        CheckStarted("make"),
        CheckEnded(Verdict("make", green=True, reason="exit code 0"), FailAction.APPEND, 1.24),
    ]
    assert show(*events, look=ViewOptions(stream=False)).err.splitlines() == [
        "=== Ralph iteration 1/3 ===",
        "Running make",
        "✓ make passed (1.2s)",
    ]


def test_a_check_without_its_judge_has_not_passed() -> None:
    """A degraded verdict of a failed judge is neither passed nor failed: the settings decide what it counts."""
    verdict = Verdict("review", green=True, degraded=True, reason="the judge is gone", cause=Cause.JUDGE)
    shown = show(CheckEnded(verdict, FailAction.APPEND, 1.24)).err
    assert shown == "review not judged (1.2s): the judge is gone\n"


RED = Verdict(
    "make",
    green=False,
    reason="exit code 2",
    log=".ralph/guardrail_001_make.log",
    feedback=Feedback(FailAction.APPEND, "why"),
    excerpt=("FAILED test_a", "1 failed"),
)


@pytest.mark.parametrize(
    ("action", "then"),
    [
        (FailAction.APPEND, "output goes into the next prompt"),
        (FailAction.PREPEND, "output goes first in the next prompt"),
        (FailAction.REPLACE, "output replaces the next prompt"),
    ],
)
def test_a_failed_check_shows_the_failing_lines(action: FailAction, then: str) -> None:
    """A failed check shows its exit status, the use of its output, the failing lines and the log."""
    shown = show(IterationStarted(1, 2), CheckStarted("make"), CheckEnded(RED, action, 61.0)).err
    assert shown.splitlines()[1:] == [
        "Running make",
        f"✗ make failed (exit 2); {then}",
        "    FAILED test_a",
        "    1 failed",
        "  full output: .ralph/guardrail_001_make.log",
    ]


def test_the_last_iteration_promises_no_next_prompt() -> None:
    """The last iteration does not say that output goes into a next prompt."""
    shown = show(IterationStarted(2, 2), CheckEnded(RED, FailAction.APPEND, 61.0)).err
    assert shown.splitlines()[1] == "✗ make failed (exit 2)"


def test_marks_are_ascii_on_an_ascii_terminal() -> None:
    """A stream that cannot encode the marks gets words instead."""
    err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(io.StringIO(), err, ViewOptions())
    console(CheckEnded(RED, FailAction.APPEND, 1.0))
    console(CheckEnded(replace(RED, green=True), FailAction.APPEND, 1.0))
    console.flush()
    assert [line.split()[0] for line in err.buffer.getvalue().decode().splitlines() if "make " in line] == [
        "[FAILED]",
        "[OK]",
    ]


def test_an_unfinished_line_does_not_swallow_the_next() -> None:
    """Ralph's lines start on a new line after unfinished agent output."""
    screen = show(Text("no newline"), CheckStarted("make"))
    assert screen.err == "no newline\nRunning make\n"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        (Cause.PROVED, ["Done: why", "  run id: 3 iterations, 2m5s, $1.50, 1,200 tokens", "  note: n"]),
        (
            Cause.ITERATIONS,
            [
                "Stopped: why",
                "  run id: 3 iterations, 2m5s, $1.50, 1,200 tokens",
                "  note: n",
                "  To continue: ralph resume id -m N",
            ],
        ),
        (
            Cause.SIGNAL,
            [
                "Why",
                "  run id: 3 iterations, 2m5s, $1.50, 1,200 tokens",
                "  note: n",
                "  To continue: ralph resume id",
            ],
        ),
    ],
)
def test_the_result_is_on_stdout(cause: Cause, lines: list[str]) -> None:
    """Stdout has only the outcome, the totals, the notes and the next step."""
    usage = Usage(1.5, 1000, 200)
    screen = show(Text("words\n"), RunEnded("id", Stop(cause, "why", ("n",)), 3, usage, 125.0))
    assert screen.out.splitlines() == lines


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        (Cause.ITERATIONS, "To continue: ralph resume id -m N"),
        (Cause.COST, "To continue: ralph resume id --max-cost-usd USD"),
        (Cause.TOKENS, "To continue: ralph resume id --max-tokens N"),
        (Cause.DURATION, "To continue: ralph resume id --max-duration-seconds S"),
        (Cause.STAGNATION, 'Add guidance: ralph steer id "…", then: ralph resume id'),
        (Cause.CRASH_LOOP, "See why: ralph logs id, then: ralph resume id"),
        (Cause.VERIFICATION, "See which checks fail: ralph status id"),
        (Cause.CONFIG, "Fix this, then: ralph resume id (after a change of settings, start a new run)"),
        (Cause.AUTH, "Log in or add credit, then: ralph resume id"),
        (Cause.DENIED, "Allow it to write (agent.permissions), then start a new run."),
        (
            Cause.JUDGE,
            "Fix the judge (ralph.judge in the settings) or set ralph.allowDegraded, then: ralph resume id",
        ),
        (Cause.WAIT_MARKER, "When that is done: ralph resume id"),
        (Cause.LIMIT_WAIT, "After the reset: ralph resume id"),
        (Cause.SIGNAL, "To continue: ralph resume id"),
        (Cause.CANCELLED, "To continue: ralph resume id"),
    ],
)
def test_the_next_step_fits_the_cause(cause: Cause, hint: str) -> None:
    """The last line says what the user can do, such as raising a limit or fixing a problem."""
    shown = show(RunEnded("id", Stop(cause, "why"), 3, Usage(), 1.0)).out
    assert shown.splitlines()[-1] == f"  {hint}"


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        (Cause.CANCELLED, "To continue its task: ralph work --task ID"),
        (
            Cause.JUDGE,
            "Fix the judge (ralph.judge in the settings) or set ralph.allowDegraded, then: ralph work --task ID",
        ),
    ],
)
def test_a_run_of_a_task_points_to_the_task(cause: Cause, hint: str) -> None:
    """A run of a task points to `ralph work`, because `ralph resume` would refuse it."""
    ended = RunEnded("id", Stop(cause, "why"), 3, Usage(), 1.0)
    shown = show(RunStarted("id", "work", "/d", "claude", (), 5), ended).out
    assert shown.splitlines()[-1] == f"  {hint}"


@pytest.mark.parametrize(
    ("files", "commits", "lines"),
    [
        (None, (), []),
        (0, (), []),
        (1, (), ["  1 file changed: ralph diff id", "  To undo everything: ralph rewind id 1"]),
        (
            3,
            ("a", "b"),
            ["  3 files changed, 2 commits: ralph diff id", "  To undo everything: ralph rewind id 1"],
        ),
    ],
)
def test_changed_files_are_shown_with_the_undo_command(
    files: int | None, commits: tuple[str, ...], lines: list[str]
) -> None:
    """A run that changed files shows the commands for the diff and the undo."""
    event = RunEnded("id", Stop(Cause.PROVED, "why"), 3, Usage(), 1.0, files, commits)
    assert show(event).out.splitlines()[2:] == lines


@pytest.mark.parametrize("cause", list(Cause))
def test_every_incomplete_run_has_a_next_step(cause: Cause) -> None:
    """Only a verified run has no next step."""
    shown = show(RunEnded("id", Stop(cause, "why"), 3, Usage(), 1.0)).out
    is_over = cause.outcome is Outcome.COMPLETE and cause is not Cause.UNVERIFIED
    assert len(shown.splitlines()) == (2 if is_over else 3)


@pytest.mark.parametrize(
    ("stop", "line"),
    [
        (Stop(Cause.PROVED, "all checks passed"), "Done: all checks passed"),
        (Stop(Cause.UNVERIFIED, "no checks configured"), "Unverified: no checks configured"),
        (Stop(Cause.SIGNAL, "stopped by Ctrl-C"), "Stopped by Ctrl-C"),
        (Stop(Cause.COST, "cost budget used up"), "Stopped: cost budget used up"),
        (Stop(Cause.AUTH, "not logged in"), "Failed: not logged in"),
        (Stop(Cause.LIMIT_WAIT, "usage limit"), "Waiting: usage limit"),
    ],
)
def test_the_first_line_is_the_outcome(stop: Stop, line: str) -> None:
    """The first line of the result is the outcome with its reason."""
    assert show(RunEnded("id", stop, 3, Usage(), 1.0)).out.splitlines()[0] == line


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        ("Add a greeting", "Add a greeting"),
        ("\n Add a greeting \n\nWith an exclamation mark.\n", "Add a greeting "),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_commit_is_one_line(message: str, subject: str) -> None:
    """A commit is shown as its short hash and the start of its subject."""
    shown = show(Committed(2, "0123456789abcdef" * 2 + "01234567", message)).err
    assert shown == f"Committed 0123456789: {subject}\n"


def test_a_tag_that_does_not_count_is_explained() -> None:
    """Without `-V` too, on one yellow line; a claim and an answer without a tag print nothing."""
    expected = "<response>DONE</response>"
    events = [
        ClaimLooked(expected, found=False, unclaimed="in backticks"),
        ClaimLooked(expected, found=False),
        ClaimLooked(expected, found=True),
    ]
    line = "The agent's <response> tag is not counted as a claim: in backticks"
    assert show(*events).err == f"{line}\n"
    assert show(*events, look=ViewOptions(colour=True)).err == f"\x1b[33m{line}\x1b[0m\n"


def test_verbose_marks_every_line() -> None:
    """Further lines of a prompt or command are marked too, so that they cannot pass for other output."""
    started = AgentStarted(Purpose.WORK, ("agent", "a\nb"), "one\n[ralph] Completion: found", 5000)
    assert show(started, look=ViewOptions(verbose=True)).err.splitlines() == [
        "[ralph] Agent command: agent 'a",
        "[ralph] b'",
        "[ralph] Prompt: one",
        "[ralph] [ralph] Completion: found...",
    ]


@pytest.mark.parametrize("ended", list(Ended))
def test_every_failure_of_an_agent_is_one_line(ended: Ended) -> None:
    """An agent that fails is reported in one line; one that succeeds is not."""
    lines = show(AgentEnded(Purpose.WORK, Ran(0.0, ended, exit=3, detail="why"))).err.splitlines()
    assert len(lines) == (0 if ended is Ended.OK else 1)
    endings = {Ended.FAILED: ", exit code 3: why", Ended.TIMEOUT: "timed out after 0.0s"}
    ending = endings.get(ended, ": why")
    assert all(line.startswith("Agent ") and line.endswith(ending) for line in lines)


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (Ended.KILLED, "Agent was killed by signal 15 (SIGTERM)"),
        (Ended.INTERRUPTED, "Agent was interrupted"),
        (Ended.IDLE, "Agent was stopped after printing nothing for too long"),
    ],
)
def test_a_signal_explains_an_end_only_if_ralph_did_not_send_it(ended: Ended, line: str) -> None:
    """The signal with which Ralph stops an agent is not news."""
    ran = Ran(0.0, ended, detail="by signal 15 (SIGTERM)")
    assert show(AgentEnded(Purpose.WORK, ran)).err.splitlines() == [line]


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        (Hold(HoldWhy.PAUSED), "Paused. To continue: ralph resume "),
        (Hold(HoldWhy.LIMIT, until=0.0), "Usage limit reached. Waiting until "),
        (Hold(HoldWhy.RESTART, seconds=2.0), "Waiting 2.0s before the next attempt."),
    ],
)
def test_every_hold_says_its_reason(hold: Hold, words: str) -> None:
    """A waiting run shows what it is waiting for."""
    assert show(Holding(hold)).err.startswith(words)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0s"),
        (0.44, "0.4s"),
        (9.96, "10.0s"),
        (12.9, "12s"),
        (185, "3m5s"),
        (3600, "1h0m"),
        (7845, "2h10m"),
    ],
)
def test_durations_are_readable(seconds: float, words: str) -> None:
    """Durations are in tenths below ten seconds, then in whole seconds, minutes and hours."""
    assert duration(seconds) == words
