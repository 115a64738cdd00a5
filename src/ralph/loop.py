"""The loop: ask the machine for a step, do it, journal it, tell the machine what happened.

Everything here acts; every decision about going on or stopping is in `core.machine`. One iteration is
    Look → RunAgent → Look → RunChecks → (commit) → Look …
and `Driver.drive` is all of it.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ralph.agents.base import Parser, Prompt, Reading
from ralph.agents.registry import AGENTS
from ralph.checks.base import Interrupted, Shell
from ralph.checks.registry import METHODS
from ralph.core import machine, policy
from ralph.core import prompt as prompts
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
    Notice,
)
from ralph.core.model import (
    AgentSpec,
    Cancel,
    Cause,
    Check,
    Checked,
    ClaimKind,
    Command,
    Commit,
    Did,
    Ended,
    Exit,
    Fail,
    Flow,
    Hold,
    HoldWhy,
    Look,
    Meter,
    Pause,
    Phase,
    PromptVia,
    Purpose,
    Ran,
    Result,
    Resume,
    RunAgent,
    RunChecks,
    Seen,
    State,
    Steer,
    Step,
    Stop,
)
from ralph.core.text import clean
from ralph.errors import RalphError
from ralph.process import client
from ralph.readers import Log, Tee
from ralph.redact import Secrets, secret_values
from ralph.scm.git import GitError
from ralph.scm.work import Work
from ralph.store.database import reason_to_wait
from ralph.store.files import opened_directory
from ralph.store.journal import Journal
from ralph.store.runs import Runs
from ralph.store.runtime import Runtime, log_slugs
from ralph.supervised import Supervised
from ralph.textfile import read_text

MOST_PROMPT_BYTES = 256 << 20
MOST_ARGUMENT_BYTES = 131_071
"""One argument holds 128 KiB with its terminating NUL."""

COMMAND_SECONDS = 0.25
"""How often the store is asked for commands while a step is in hand."""

RECHECK_SECONDS = 30.0
"""How often a hold looks at the wall clock again: a laptop sleeps."""

MOST_ANSWER = 4_000
"""How many characters of an answer's beginning, and of its end, are journalled."""

DISK_SECONDS = 1.0
"""How often a run that waits for space on the disk tries again."""

Tell = Callable[[Event], None]
T = TypeVar("T")


class Clock:
    """The one place that reads the clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens and is recorded: its journal, its files, its processes, its listeners."""

    runs: Runs
    journal: Journal
    runtime: Runtime
    streams: int
    work: Work
    warden: client.Warden
    wakeup: client.Wakeup
    tell: Tell
    clock: Clock
    supervised: Supervised | None = None


class Driver:
    """Drives one run from a state to its stop."""

    def __init__(self, place: Place, state: State) -> None:
        self._place = place
        self._state = state
        self.plan = state.plan
        self._tell = place.tell
        self._journal = place.journal
        self._base_prompt: str | None = None
        self._waiting: list[tuple[int, Command]] = []
        self._asked_at = 0.0
        self._signals = self._told_signals = 0
        self._noticed: set[str] = set()
        self._guided: set[int] = set()
        self.files_changed: int | None = None
        variables = [os.environ, *(dict(agent.env) for agent in state.plan.agents)]
        self._secrets = Secrets(value for each in variables for value in secret_values(each))
        self._environment = client.child_environment({})
        self._slugs = log_slugs([check.name for check in state.plan.checks])

    def drive(self) -> State:
        """Step by step until the machine says stop."""
        self._deliver(self._state.steer)
        try:
            while True:
                self._hear()
                step = machine.next_step(self._state)
                seq = self._journal.begin(step, self._now())
                self._with_room(self._journal.flush)
                result = self._do(step, seq)
                self._state = machine.apply(self._state, result)
                self._journal.complete(step, result, self._state)
                self._with_room(self._journal.flush)
                if isinstance(step, Stop):
                    return self._state
        except _Interrupted:
            return self._interrupted()
        except (RalphError, OSError) as error:
            return self._give_up(error)

    def _do(self, step: Step, seq: int) -> Result:
        started = self._place.clock.monotonic()
        match step:
            case Look():
                return self._look(started)
            case RunAgent():
                return self._run_agent(step, seq)
            case RunChecks():
                return self._run_check(step, started)
            case Commit():
                return self._commit(step, started)
            case Hold():
                return self._hold(step, started)
            case Stop():
                return self._stop(step, started)
            case _:
                raise NotImplementedError(type(step).__name__)

    def _stop(self, step: Stop, started: float) -> Did:
        """What is left to do at the end. A run that is killed on the way does it again when it is resumed."""
        if self._place.supervised is not None:
            self._place.supervised.end_children()
        self._snapshot()
        self.files_changed = self._count_files()
        if self._place.supervised is not None:
            self._place.supervised.post_end(step, self._state.iteration)
        return Did(self._now(), self._since(started), files=self.files_changed)

    # ---- Look ----

    def _look(self, started: float) -> Seen:
        """What there is to see at this point: the prompt, the tree, changes to commit."""
        problem = prompt = tree = ""
        changed = False
        try:
            if self._state.phase is Phase.BEFORE:
                prompt = hashlib.sha256(self._read_prompt().encode()).hexdigest()[:16]
                tree = self._snapshot()
            elif self._state.phase is Phase.CHANGES:
                changed = self._place.work.has_changes()
            elif self._wants_tree():
                tree = self._place.work.tree()
        except GitError as error:
            self._warn(error)
        except RalphError as error:
            problem = error.message
        seen = Seen(self._now(), self._since(started), problem, prompt, tree=tree, changed=changed)
        if self._place.supervised is None:
            return seen
        attempt = self._state.iteration if self._state.phase is Phase.AFTER else None
        return self._place.supervised.look(seen, after_attempt=attempt)

    def _wants_tree(self) -> bool:
        """Whether nothing has changed matters only to some runs, and finding out costs time."""
        return self._state.limits.stagnation > 0 or self.plan.flow is not Flow.RUN

    def _snapshot(self) -> str:
        """Keep the tree before the iteration that comes next. One that fails is a loud note, not a stop."""
        try:
            kept = self._place.work.snapshot(self._snapshot_name())
            if kept is None:
                return self._place.work.tree() if self._wants_tree() else ""
        except RalphError as error:
            self._warn(error)
            return ""
        for note in kept.notes:
            self._notice_once(f"Snapshot: {note}.")
        return kept.tree

    def _count_files(self) -> int | None:
        try:
            return self._place.work.files_changed()
        except RalphError:
            return None

    def _snapshot_name(self) -> str:
        """An iteration that is done again keeps its first snapshot."""
        number = self._state.iteration + 1
        again = self._state.again
        return f"{number}-{again + 1}" if again else str(number)

    def _warn(self, error: RalphError) -> None:
        self._notice_once(f"{error.message} {error.hint}".strip())

    def _notice_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._tell(Notice(text))

    def _read_prompt(self) -> str:
        """The base prompt; a prompt file is read again in every iteration."""
        source = self.plan.prompt
        if source.file:
            path = os.path.join(self.plan.directory, source.file)
            self._base_prompt = read_text(path, most=MOST_PROMPT_BYTES, what="prompt file")
        else:
            self._base_prompt = source.text
        return self._base_prompt

    # ---- RunAgent ----

    def _run_agent(self, step: RunAgent, seq: int) -> Ran:
        spec = self._spec(step)
        agent = AGENTS[spec.type]
        prompt = self._prompt(step)
        command = agent.argv(spec, step.purpose, prompt)
        parser = agent.parser(Reading(self.plan.claim, prompt.text, spec, step.purpose, self._now))
        if step.purpose is Purpose.WORK:
            self._tell(IterationStarted(step.iteration, step.of, len(step.steer), spec.name))
            if spec.prompt_via is not PromptVia.NONE:
                self._journal.delivered(tuple(steer.id for steer in step.steer), step.iteration)
        shown = tuple(word.replace(prompt.text, "<prompt>") if prompt.text else word for word in command)
        self._tell(AgentStarted(step.purpose, shown, prompt.text[:200], len(prompt.text)))
        stream = f"{step.iteration:03d}-{seq}.{step.purpose}"
        exit, problem = self._execute(spec, step, command, prompt, parser, stream)
        ran, unread = self._ran(step, exit, problem, parser, stream)
        self._tell(AgentEnded(step.purpose, ran, unread))
        if step.purpose is Purpose.WORK and self.plan.claim.kind is ClaimKind.TAG:
            rule = self.plan.claim
            self._tell(ClaimLooked(f"<{rule.tag}>{rule.text}</{rule.tag}>", ran.claim))
        return ran

    def _spec(self, step: RunAgent) -> AgentSpec:
        return next(agent for agent in self.plan.agents if agent.name == step.agent)

    def _prompt(self, step: RunAgent) -> Prompt:
        if self._spec(step).prompt_via is PromptVia.NONE:
            return Prompt("", "")
        if step.purpose is Purpose.MESSAGE:
            name, text = f"{step.iteration:03d}_message", prompts.COMMIT_MESSAGE
        else:
            base = self._base_prompt if self._base_prompt is not None else self._read_prompt()
            name, text = f"{step.iteration:03d}", prompts.build(base, step, self.plan.prompt, self.plan.claim)
        return Prompt(text, self._with_room(lambda: self._place.runtime.write_prompt(name, text)))

    def _execute(
        self, spec: AgentSpec, step: RunAgent, argv: list[str], prompt: Prompt, parser: Parser, stream: str
    ) -> tuple[Exit, str]:
        """Run the agent's process; returns how it ended, and what was wrong with its command if anything."""
        _check_arguments(argv)
        environment = self._environment | dict(spec.env) | self._variables(step.iteration)
        project = self._place.runtime.project
        program, problem = client.find_program(argv[0], environment.get("PATH", os.defpath), project)
        if problem:
            return Exit(error=0), f"{argv[0]}: {problem}"
        stdin = self._place.runtime.open_prompt(prompt.file) if spec.prompt_via is PromptVia.STDIN else None
        tee = Tee(parser, self._tell, self._place.streams, stream, self._secrets)
        supervised = self._place.supervised if step.purpose is Purpose.WORK else None
        if supervised is not None:
            supervised.folder.begin_attempt()

        def watch(seconds: float, idle: float) -> Ended | None:
            ends = self.is_interrupted(), parser.is_over, parser.is_refused
            done = supervised.done_for() if supervised is not None else 0.0
            return policy.watch(step.limits, Meter(seconds, idle, parser.usage, *ends, done))

        try:
            command = client.Command([program, *argv[1:]], environment, project, stdin)
            exit = self._place.warden.run(command, tee, watch)
        finally:
            if stdin is not None:
                os.close(stdin)
            if lost := tee.close():
                self._tell(Notice(f"the raw stream of this iteration was not kept whole: {lost}"))
        if exit.left:
            self._tell(Notice("Something that the agent has started could not be ended: see `ps`."))
        if exit.error is not None:
            return exit, f"{argv[0]}: {os.strerror(exit.error)}"
        return exit, ""

    def _variables(self, iteration: int) -> dict[str, str]:
        task = self.plan.task
        supervised = {"TASK_FOLDER": task.path, "RALPH_ATTEMPT": str(iteration)} if task else {}
        return {
            **supervised,
            "RALPH_RUN_ID": self.plan.run,
            "RALPH_PARENT_RUN_ID": self.plan.run,
            "RALPH_ITERATION": str(iteration),
            "RALPH_MAX_ITERATIONS": str(self._state.limits.iterations),
        }

    def _ran(self, step: RunAgent, exit: Exit, problem: str, parser: Parser, stream: str) -> tuple[Ran, int]:
        """What became of the agent, and how many of its lines meant nothing to Ralph."""
        last, report = parser.finish(exit)
        for event in last:
            self._tell(event)
        ended, detail = report.ended, report.detail
        if problem:
            ended, detail = Ended.UNSTARTABLE, problem
        elif exit.ended not in (None, Ended.OK):
            ended = exit.ended
        elif exit.lost:
            ended, detail = Ended.KILLED, "its warden was killed"
        elif exit.ended is Ended.OK and ended is Ended.KILLED:
            ended, detail = Ended.OK, "its work was done, and it was ended"
        ran = Ran(
            at=self._now(),
            ended=ended,
            agent=step.agent,
            took=exit.seconds,
            claim=report.claim,
            usage=report.usage,
            retry_at=report.retry_at,
            exit=exit.code,
            text=_shortened(report.text) if step.purpose is Purpose.WORK else report.text,
            detail=detail,
            fingerprint=_fingerprint(ended, exit, detail),
            stream=stream,
        )
        return ran, report.unread

    # ---- RunChecks ----

    def _run_check(self, step: RunChecks, started: float) -> Checked:
        """One check at a time, so that each verdict is journalled when it is known."""
        check = next(check for check in self.plan.checks if check.name == step.names[0])
        self._tell(CheckStarted(check.name))
        try:
            verdict = METHODS[check.method](check, _Bench(self, step.iteration, check))
        except Interrupted:
            return Checked(self._now(), self._since(started))
        self._tell(CheckEnded(verdict, check.fail_action, self._since(started)))
        return Checked(self._now(), self._since(started), (verdict,))

    def shell_in_copy(self, check: Check, iteration: int, command: str, timeout: float) -> Shell:
        """The same in a fresh copy of the project; one that cannot be made is a red check, not a stop."""
        try:
            with self._place.work.fresh_copy() as copy, opened_directory(str(copy)) as directory:
                return self.shell(check, iteration, command, timeout, directory)
        except RalphError as error:
            return Shell(Exit(code=128), error.message, is_cut=False, log="")

    def shell(
        self, check: Check, iteration: int, command: str, timeout: float, directory: int | None = None
    ) -> Shell:
        name = f"guardrail_{iteration:03d}_{self._slugs[check.name]}.log"
        log = self._with_room(lambda: self._place.runtime.open_log(name))
        reader = Log(log, self.plan.prompt.truncate, self._secrets)

        def watch(seconds: float, idle: float) -> Ended | None:
            if self.is_interrupted():
                return Ended.INTERRUPTED
            return Ended.TIMEOUT if timeout and seconds >= timeout else None

        environment = self._environment | self._variables(iteration)
        where = self._place.runtime.project if directory is None else directory
        started = client.Command(["/bin/sh", "-c", command], environment, where, merged=True)
        try:
            exit = self._place.warden.run(started, reader, watch)
        finally:
            if lost := reader.close():
                self._tell(Notice(f".ralph/{name} was not kept whole: {lost}"))
        return Shell(exit, clean(reader.head), reader.is_cut, f".ralph/{name}")

    # ---- Commit ----

    def _commit(self, step: Commit, started: float) -> Did:
        """Version control, as configured. What fails is shown; the loop goes on. What is cut off is done again."""
        try:
            done = self._place.work.commit(step.iteration, step.message)
        except RalphError as error:
            if self.is_interrupted():
                return Did(self._now(), self._since(started), over=False)
            return Did(self._now(), self._since(started), detail=f"{error.message} {error.hint}".strip())
        problems = tuple(self._secrets.text(problem) for problem in done.problems)
        is_cut_off = self.is_interrupted() and bool(problems)
        for problem in () if is_cut_off else problems:
            self._tell(Notice(problem))
        if done.commit:
            self._tell(Committed(step.iteration, done.commit, step.message))
        if is_cut_off:
            return Did(self._now(), self._since(started), over=False)
        return Did(self._now(), self._since(started), detail=" · ".join(problems), made=done.commit)

    # ---- Hold ----

    def _hold(self, step: Hold, started: float) -> Did:
        """Wait until the time has come or a command says otherwise. Resets follow the wall clock."""
        self._tell(Holding(step))
        supervised = self._place.supervised
        while True:
            if self._is_woken():
                return Did(self._now(), self._since(started), over=False)
            if supervised is not None and supervised.is_hold_over(step.why):
                return Did(self._now(), self._since(started))
            left = self._hold_left(step, started)
            if left is not None and left <= 0:
                return Did(self._now(), self._since(started), detail=self._end_of_hold(step))
            patience = RECHECK_SECONDS if left is None else min(left, RECHECK_SECONDS)
            self._place.wakeup.wait(min(patience, COMMAND_SECONDS))

    def _end_of_hold(self, step: Hold) -> str:
        if step.why is not HoldWhy.CHILDREN or self._place.supervised is None:
            return ""
        count = self._place.supervised.end_children()
        return f"{count} {'child' if count == 1 else 'children'} had to be ended"

    def _hold_left(self, step: Hold, started: float) -> float | None:
        if step.why is HoldWhy.PAUSED:
            return None
        if step.until is not None:
            return step.until - self._now()
        return (step.seconds or 0.0) - self._since(started)

    # ---- commands and signals ----

    def _hear(self) -> None:
        """Apply what people have said since the last step."""
        if self._waiting or self._place.runs.has_news():
            self._ask_for_commands()
            for number, command in self._waiting:
                self._apply(command, number)
            self._waiting = []
        signals = self._count_signals()
        if signals > self._signals:
            self._signals = signals
            self._apply(Cancel(self._now(), Cause.SIGNAL, now=signals > 1), None)

    def _apply(self, command: Command, number: int | None) -> None:
        self._state = machine.apply(self._state, command)
        self._journal.command(command, self._state, number)

    def _ask_for_commands(self) -> None:
        self._waiting = self._place.runs.waiting(self.plan.run)
        self._deliver(tuple(command for _, command in self._waiting if isinstance(command, Steer)))

    def _deliver(self, guidance: tuple[Steer, ...]) -> None:
        """A command without a prompt hears guidance at once, on the bus of its task, and each only once."""
        supervised = self._place.supervised
        if supervised is None or self.plan.agents[0].prompt_via is not PromptVia.NONE:
            return
        for steer in guidance:
            if steer.id not in self._guided:
                self._guided.add(steer.id)
                problem = supervised.folder.post_guidance(steer)
                self._journal.delivered((steer.id,), self._state.iteration + 1)
                self._tell(Notice(problem or f"On the bus of the task: {steer.text}"))

    def _look_for_commands(self) -> list[tuple[int, Command]]:
        now = self._place.clock.monotonic()
        if now - self._asked_at >= COMMAND_SECONDS:
            self._asked_at = now
            if self._place.runs.has_news():
                self._ask_for_commands()
        return self._waiting

    def _count_signals(self) -> int:
        count = self._place.wakeup.count
        if count > self._told_signals:
            self._told_signals = count
            self._tell(
                Notice("Received signal, shutting down..." if count == 1 else "Ending everything now.")
            )
        return count

    def is_interrupted(self) -> bool:
        """Must the process in hand be ended: a second signal, or `ralph cancel`?"""
        if self._count_signals() > 1:
            return True
        return any(isinstance(c, Cancel) and c.now for _, c in self._look_for_commands())

    def _is_woken(self) -> bool:
        if self._count_signals() > self._signals:
            return True
        return any(isinstance(c, Cancel | Pause | Resume) for _, c in self._look_for_commands())

    # ---- when the disk is not with us ----

    def _with_room(self, write: Callable[[], T]) -> T:
        """Write something; with a full disk, wait for room instead of losing anything."""
        told = False
        while True:
            try:
                return write()
            except (RalphError, OSError) as error:
                why = reason_to_wait(error)
                if not why:
                    raise
                if self._place.wakeup.count:
                    raise _Interrupted from None
                if not told:
                    self._tell(Notice(why))
                told = True
                self._place.wakeup.wait(DISK_SECONDS)

    def _interrupted(self) -> State:
        """A signal while nothing can be written: the journal stays where it was, and so can be resumed.

        That is so even at the very end: a stop that is not journalled has not come to pass.
        """
        state = machine.apply(replace(self._state, stop=None), Cancel(self._now(), Cause.SIGNAL))
        return machine.apply(state, Did(self._now()))

    def _give_up(self, error: RalphError | OSError) -> State:
        """The driver cannot go on: the run stops as fatal, in the journal too if that can be written."""
        if isinstance(error, RalphError):
            reason = f"{error.message} {error.hint}".strip()
        else:
            where = [os.fsdecode(error.filename)] if isinstance(error.filename, str | bytes) else []
            reason = ": ".join([*where, error.strerror or str(error)])
        fail = Fail(self._now(), reason)
        self._state = machine.apply(self._state, fail)
        if self._place.supervised is not None and self._state.stop is not None:
            self._place.supervised.post_end(self._state.stop, self._state.iteration)
        try:
            self._journal.command(fail, self._state)
            self._journal.flush()
        except RalphError:
            pass
        return self._state

    def _now(self) -> float:
        return self._place.clock.wall()

    def _since(self, started: float) -> float:
        return self._place.clock.monotonic() - started


class _Interrupted(Exception):
    """A signal came while the run was waiting for the disk."""


@dataclass(frozen=True, slots=True)
class _Bench:
    """The means of one check."""

    driver: Driver
    iteration: int
    check: Check

    @property
    def truncate(self) -> int:
        return self.driver.plan.prompt.truncate

    def shell(self, command: str, timeout: float, *, is_clean: bool = False) -> Shell:
        run = self.driver.shell_in_copy if is_clean else self.driver.shell
        return run(self.check, self.iteration, command, timeout)


def _check_arguments(argv: list[str]) -> None:
    hint = 'Set "promptVia": "stdin" (or "file") in "agent".'
    size = max(len(word.encode()) for word in argv)
    if size > MOST_ARGUMENT_BYTES:
        raise RalphError(
            f"The prompt makes an argument of {size:,} bytes; promptVia argument can pass 128 KiB.", hint
        )
    if any("\0" in word for word in argv):
        raise RalphError("The prompt has a NUL character, which promptVia argument cannot pass.", hint)


def _shortened(text: str) -> str:
    """The beginning and the end of an answer: all that the journal keeps of it."""
    if len(text) <= 2 * MOST_ANSWER:
        return text
    return f"{text[:MOST_ANSWER]}\n[...]\n{text[-MOST_ANSWER:]}"


def _fingerprint(ended: Ended, exit: Exit, detail: str) -> str:
    """Equal for failures that look the same; numbers in the message do not count."""
    words = "".join("0" if c.isdigit() else c for c in detail)
    return f"{zlib.crc32(f'{ended}/{exit.code}/{exit.signal}/{words}'.encode()):08x}"
