"""The loop's side of a check: the shell, the diff, the judge, and cached results of this iteration."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from ralph.agents.base import Prompt
from ralph.agents.registry import AGENTS, as_judge
from ralph.checks.base import (
    Changed,
    CheckContext,
    Interrupted,
    JudgeAnswer,
    JudgeLimited,
    Shell,
    SinceStart,
)
from ralph.checks.registry import commands_of, find_method
from ralph.core.command_output import CommandOutput
from ralph.core.events import Notice
from ralph.core.model import (
    AgentSpec,
    Cause,
    Check,
    Ended,
    Exit,
    Flow,
    Left,
    Purpose,
    Ran,
    RunAgent,
    Usage,
    Verdict,
)
from ralph.environments import missing
from ralph.errors import RalphError
from ralph.loop.agent_runner import AgentCall, AgentRunner, empty_directory
from ralph.loop.confinement import path_of
from ralph.loop.old_files import CopyOfProject
from ralph.loop.output import CheckLog
from ralph.loop.run_context import RunContext
from ralph.process import client
from ralph.scm.git import GitError
from ralph.store.files import opened_directory
from ralph.store.runtime import log_slugs, slug
from ralph.store.streams import stream_name

_FINAL: dict[Ended, Cause | None] = {
    Ended.AUTH: Cause.AUTH,
    Ended.DENIED: Cause.JUDGE,
    Ended.UNSTARTABLE: Cause.JUDGE,
    Ended.BUDGET: None,
}
"""Ends after which asking the judge again is pointless, and why the run stops then."""

if TYPE_CHECKING:
    from ralph.loop.copies import Copies, PreparedCopy

POLL_SECONDS = 0.1


class Compared(Struct, frozen=True):
    """The tree when the run started, the one that is checked ("" if unknown), and globs of tests that may differ."""

    start: str = ""
    tree: str = ""
    allowed: tuple[str, ...] = ()


class CheckedIteration(Struct, frozen=True):
    """The iteration that a check verifies: its number, the agent's answer, the remaining budget."""

    number: int
    of: int
    seq: int
    answer: str
    is_claimed: bool
    left: Left
    board: str = ""
    compared: Compared = Compared()


class CheckOutcome(Struct, frozen=True):
    """The result of a check. Without a verdict it runs again, at `retry_at` after a usage limit."""

    verdict: Verdict | None
    usage: Usage = Usage()
    retry_at: float | None = None
    is_limited: bool = False


class CheckRunner:
    """Runs the checks of one run."""

    def __init__(self, context: RunContext, agents: AgentRunner) -> None:
        self.context, self.plan, self.agents = context, context.plan, agents
        self.slugs = log_slugs([check.name for check in self.plan.checks])
        self.known: dict[tuple[object, ...], Shell] = {}
        self._copies: Copies | None = None
        self.shown: set[str] = set()
        """Commands that were seen to look at their copy, although something in it leads elsewhere."""
        self.git = threading.Lock()  # parallel stages share the repository and the warden of its commands
        self._iteration = 0

    def check(self, check: Check, iteration: CheckedIteration) -> CheckOutcome:
        """Run one check and return its verdict."""
        if iteration.number != self._iteration:
            self.known.clear()
            self._iteration = iteration.number
        if not (iteration.is_claimed and self.plan.verifies_in_copy):
            self.close()
        used = _Used()
        context = RunCheckContext(
            self, iteration, self.slugs[check.name], used, self.context.warden, self._is_ended
        )
        try:
            return CheckOutcome(find_method(check.method).run(check, context), used.usage)
        except Interrupted:
            return CheckOutcome(None, used.usage)
        except JudgeLimited as limited:
            return CheckOutcome(None, used.usage, limited.retry_at, is_limited=True)
        except RalphError:
            if not self._is_ended():
                raise
            return CheckOutcome(None, used.usage)  # Ralph's command was interrupted too

    def repeats(self, command: str) -> bool:
        """Whether more than one check or stage of a task runs this command."""
        written = json.dumps(command, ensure_ascii=False)
        return self.plan.rules.reuses_results and sum(c.config.count(written) for c in self.plan.checks) != 1

    @property
    def copies(self) -> Copies:
        """Copies of the project, for the runs that need them."""
        if self._copies is None:
            from ralph.loop.copies import Copies

            self._copies = Copies(self.context)
        return self._copies

    def close(self) -> None:
        if self._copies is not None:
            self._copies.close()

    def _is_ended(self) -> bool:
        return self.context.inbox.is_interrupted()


def commands_to_check(checks: Sequence[Check], board: str) -> list[str]:
    """The commands that checks run, with the verify commands of a task list."""
    configured = (commands_of(check.method, json.loads(check.config)) for check in checks)
    listed: list[str] = (json.loads(board).get("verifyCommands") or []) if board else []
    return [*(command for each in configured for command, _ in each), *listed]


class _Used(Struct):
    """Usage of the judge in one check, and how often it was asked."""

    usage: Usage = Usage()
    asked: int = 0
    names: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class RunCheckContext(Struct, frozen=True):
    """The context of one check, or of one stage."""

    runner: CheckRunner
    iteration: CheckedIteration
    name: str
    used: _Used
    warden: client.Warden
    is_ended: Callable[[], bool]

    @property
    def truncate(self) -> int:
        return self.runner.plan.prompt.truncate

    @property
    def answer(self) -> str:
        return self.iteration.answer

    @property
    def is_claimed(self) -> bool:
        return self.iteration.is_claimed

    @property
    def board(self) -> str:
        return self.iteration.board

    # ---- commands ----

    def shell(self, command: str, timeout: float, *, is_clean: bool = False, directory: str = ".") -> Shell:
        key = (self._tree(command), command, timeout, is_clean, directory)
        if key[0] and key in self.runner.known:
            return self.runner.known[key]
        with ExitStack() as stack:
            try:
                where, copy = stack.enter_context(self._opened(directory, is_clean=is_clean))
            except GitError:
                raise
            except RalphError as error:
                return Shell(
                    Exit(error=errno.EIO),
                    CommandOutput(error.text),
                    log="",
                    explanation=error.message.rstrip("."),
                )
            except OSError as error:
                text = f"{directory}: {error.strerror}"
                return Shell(Exit(error=error.errno or 0), CommandOutput(text), log="")
            rerun = partial(self._run, command, timeout, where, copy)
            done = rerun()
            if copy is not None:
                done = self._in_copy(done, rerun, command, copy)
                if not is_clean:
                    self.runner.copies.carry_back(copy)
            done = self._explained(done, is_copy=is_clean)
        if done.exit.ended is None:
            self.runner.known[key] = done
        return done

    def _in_copy(self, done: Shell, rerun: Callable[[], Shell], command: str, copy: PreparedCopy) -> Shell:
        """The result of a command in a copy. Green counts only if it looks at this copy."""
        from ralph.loop.controls import broken, leads_of, not_shown, to_break  # only copies need them

        runner = self.runner
        leads = leads_of(copy, command) if done.exit.code == 0 and command not in runner.shown else []
        if leads and (names := to_break(copy, self._changed_files())):
            with broken(copy, names):
                again = rerun()
            if again.exit.code == 0:
                explanation = not_shown(leads)
                return Shell(
                    Exit(error=errno.EXDEV), CommandOutput(explanation), done.log, explanation=explanation
                )
            runner.shown.add(command)
        return done

    def _changed_files(self) -> list[str]:
        plan = self.runner.plan
        if not (plan.base and self.iteration.compared.tree):
            return []
        with self.runner.git:
            return self.runner.context.vcs.changed_between(plan.base, self.iteration.compared.tree)

    def has_printed(self, done: Shell, text: str) -> bool:
        if text in done.output.head or text in done.output.tail:
            return True
        if done.output.gap is None or not done.log:
            return False
        return self.runner.context.runtime.has_logged(done.log, text)

    def _tree(self, command: str) -> str:
        """The tree id if checks share this command, otherwise ""."""
        if self.runner.repeats(command):
            with self.runner.git:
                return self.runner.context.vcs.tree()
        return ""

    @contextmanager
    def _opened(self, directory: str, *, is_clean: bool) -> Iterator[tuple[int, PreparedCopy | None]]:
        """An open directory to run a command in, and the copy of the project that it is in, if any.

        If a copy cannot be made, the check fails; the run continues.
        """
        runner = self.runner
        with ExitStack() as stack:
            where, copy = runner.context.runtime.project, None
            if is_clean:
                with runner.git:
                    copy = stack.enter_context(runner.copies.opened())
            elif self.iteration.is_claimed and runner.plan.verifies_in_copy:
                with runner.git:
                    copy = runner.copies.shared(
                        (self.iteration.number, self.iteration.compared.tree), self.iteration.compared.tree
                    )
            if copy is not None:
                where = stack.enter_context(opened_directory(str(copy.copy.directory)))
            for part in directory.split("/"):
                if part not in (".", ""):
                    where = stack.enter_context(opened_directory(part, where))
            yield where, copy

    def _run(self, command: str, timeout: float, where: int, copy: PreparedCopy | None) -> Shell:
        runner, number, confinement = self.runner, self.iteration.number, self.runner.context.confinement
        name = f"guardrail_{number:03d}_{self._log_name()}.log"
        log = runner.context.inbox.retry_when_full(lambda: runner.context.runtime.open_log(name))
        reader = CheckLog(log, self.truncate, runner.context.secrets)

        def watch(seconds: float, idle: float) -> Ended | None:
            if self.is_ended():
                return Ended.INTERRUPTED
            return Ended.TIMEOUT if timeout and seconds >= timeout else None

        base = runner.agents.environment if copy is None else copy.environment
        environment = {**base, **runner.agents.variables(number, self.iteration.of)}
        whole, reads = (str(copy.whole), copy.reads) if copy is not None else ("", ())
        inside = confinement.check(["/bin/sh", "-c", command], environment, path_of(where), whole, reads)
        started = client.ProcessCommand(inside.argv, inside.environment, where, merged=True)
        lost = ""
        try:
            exit = confinement.after(self.warden.run(started, reader, watch), inside)
        finally:
            if lost := reader.close():
                runner.context.tell(Notice(f".ralph/{name} is incomplete: {lost}"))
        return Shell(exit, reader.output(), f".ralph/{name}", lost)

    def _explained(self, done: Shell, *, is_copy: bool) -> Shell:
        """The same with what was missing, if the command failed in a clean copy or in the worktree of a task."""
        plan, vcs = self.runner.plan, self.runner.context.vcs
        if not done.exit.code or not (is_copy or plan.flow is Flow.WORK):
            return done
        found = missing.look(done.exit.code, done.output)
        if found is None:
            return done
        try:
            with self.runner.git:
                files = vcs.known_files(plan.base)
        except GitError:  # the verdict does not depend on it
            return done
        place = missing.CLEAN_COPY if is_copy else missing.WORKTREE
        return replace(done, explanation=missing.explained(found, files, place, vcs.project))

    def _log_name(self) -> str:
        """The log name; a second command of the same check gets a number."""
        with self.used.lock:
            number = 1 + sum(
                name == self.name or name.startswith(f"{self.name}.") for name in self.used.names
            )
            name = self.name if number == 1 else f"{self.name}.{number}"
            self.used.names.add(name)
        return name

    # ---- changes ----

    def diff(self) -> str:
        with self.runner.git:
            return self.runner.context.vcs.diff(self.runner.plan.base)

    def changed(self, globs: Sequence[str], trusted: str, absent: Sequence[str] = ()) -> list[Changed]:
        with self.runner.git:
            touched = self.runner.context.vcs.touched(globs, trusted, absent)
        return [Changed(change.path, diff, is_new=change.kind == "A") for change, diff in touched]

    # ---- the tests of the start ----

    @property
    def allowed(self) -> Sequence[str]:
        return self.iteration.compared.allowed

    def since_start(self) -> SinceStart | None:
        vcs, compared = self.runner.context.vcs, self.iteration.compared
        with self.runner.git:
            trees = vcs.compared(compared.start, compared.tree)
        if trees is None:
            return None
        return SinceStart(compared.start, trees.changed, trees.renamed, trees.files, vcs.project)

    @contextmanager
    def copied(self) -> Iterator[CopyOfProject]:
        runner, compared = self.runner, self.iteration.compared
        with ExitStack() as stack:
            with runner.git:
                copy = stack.enter_context(runner.copies.opened(compared.tree))
            where = stack.enter_context(opened_directory(str(copy.copy.directory)))
            run, top = partial(self._run, where=where, copy=copy), copy.copy.top
            yield CopyOfProject(
                top, run, lambda paths: runner.context.vcs.put_back(compared.start, paths, top)
            )

    # ---- the judge ----

    def ask(self, prompt: str, model: str) -> JudgeAnswer:
        """Ask the judge in an empty directory: the agent's files cannot influence it, and it cannot change them."""
        runner, number = self.runner, self.iteration.number
        plan = runner.plan
        spec = as_judge(plan.judge or plan.agents[0], model)
        with self.used.lock:
            self.used.asked += 1
            stream = stream_name(number, self.iteration.seq, Purpose.JUDGE, self.used.asked)
            kept = f"{number:03d}_judge_{self.used.asked}"
        file = runner.context.inbox.retry_when_full(lambda: runner.context.runtime.write_prompt(kept, prompt))
        step = RunAgent(Purpose.JUDGE, number, spec.name, plan.role, self.iteration.left)
        call = AgentCall(step, spec, Prompt(prompt, file), stream)
        with empty_directory() as directory:
            try:
                ran = runner.agents.call(call, self.iteration.of, directory, self.warden)
            except RalphError as error:
                problem = f"{Ended.UNSTARTABLE.words}: {error.text}"
                return JudgeAnswer("", problem, is_final=True, judge=spec.name)
        with self.used.lock:
            self.used.usage += ran.usage
        if ran.ended is Ended.INTERRUPTED:
            raise Interrupted
        if ran.ended is Ended.LIMIT:
            raise JudgeLimited(ran.retry_at)
        problem = "" if ran.ended is Ended.OK else _problem(spec, ran)
        cause = _FINAL.get(ran.ended, Cause.JUDGE)
        return JudgeAnswer(ran.text, problem, is_final=ran.ended in _FINAL, judge=spec.name, cause=cause)

    # ---- stages ----

    def inside(self, name: str) -> RunCheckContext:
        return replace(self, name=f"{self.name}_{slug(name)}")

    def together(self, stages: Sequence[tuple[str, Callable[[CheckContext], Verdict]]]) -> list[Verdict]:
        """Run each stage in a thread with its own warden; this thread handles interrupts for all."""
        from concurrent.futures import ThreadPoolExecutor, wait  # only parallel stages need them

        stop = threading.Event()

        def run(name: str, stage: Callable[[CheckContext], Verdict]) -> Verdict:
            with client.Warden(client.Wakeup()) as warden:
                return stage(replace(self.inside(name), warden=warden, is_ended=stop.is_set))

        with ThreadPoolExecutor(len(stages)) as pool:
            futures = [pool.submit(run, name, stage) for name, stage in stages]
            while wait(futures, POLL_SECONDS).not_done:
                if self.is_ended():
                    stop.set()
            return [future.result() for future in futures]


def _problem(spec: AgentSpec, ran: Ran) -> str:
    """What the judge did instead of answering, and how to log it in if it is not."""
    code = f" with exit code {ran.exit}" if ran.ended is Ended.FAILED and ran.exit is not None else ""
    detail = "" if ran.detail.startswith("by signal") else " ".join(ran.detail.split())
    problem = f"{ran.ended.words}{code}: {detail}".removesuffix(": ")
    if ran.ended is not Ended.AUTH:
        return problem
    about = AGENTS[spec.type].about
    login = about.login if about and about.login else "log in"
    return f"{problem}; {login}, or set another ralph.judge"
