"""One agent process from command line to result: for an iteration, a commit message or a verdict."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from ralph.agents.base import Parser, Prompt, Reading
from ralph.agents.registry import AGENTS
from ralph.core import claims, policy
from ralph.core.events import AgentEnded, AgentStarted, Notice
from ralph.core.model import AgentSpec, Ended, Exit, Meter, PromptVia, Purpose, Ran, RunAgent
from ralph.errors import RalphError
from ralph.loop.confinement import path_of
from ralph.loop.output import Tee
from ralph.loop.run_context import RunContext
from ralph.loop.supervised import Supervised
from ralph.process import client
from ralph.process.step import Watch
from ralph.store.files import opened_directory

MAX_ARGUMENT_BYTES = 131_071
"""One argument holds 128 KiB with its terminating NUL."""

MAX_ANSWER = 4_000
"""Characters of an answer's start, and of its end, that are journalled."""

MAX_JUDGED_ANSWER = 64_000
"""The same where checks read the answer."""

GUARDED = "RALPH_GUARDED"
"""Set for the plugin's hooks: the command guard or a sandbox is already active."""


class AgentCall(Struct, frozen=True):
    """An agent call: the step, the agent, the prompt, and the name of its raw stream."""

    step: RunAgent
    spec: AgentSpec
    prompt: Prompt
    stream: str


@contextmanager
def empty_directory() -> Iterator[int]:
    """A temporary directory for an agent that only answers: files of the project can neither sway it nor be changed."""
    import tempfile  # only questions need it

    with (
        tempfile.TemporaryDirectory(prefix="ralph-empty-", ignore_cleanup_errors=True) as path,
        opened_directory(path) as directory,
    ):
        yield directory


class AgentRunner:
    """Starts the agents of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._plan = context.plan
        self.environment = dict(context.environment)

    def call(
        self, call: AgentCall, of: int, directory: int | None = None, warden: client.Warden | None = None
    ) -> Ran:
        """Run the agent's process and parse its output; `directory` overrides the project."""
        step, spec, prompt = call.step, call.spec, call.prompt
        agent = AGENTS[spec.type]
        hooked = agent.hooked(spec, self._context.hooks) if self._context.hooks else None
        argv = agent.argv(hooked or spec, step.purpose, prompt)
        clock = self._context.clock
        parser = agent.parser(Reading(self._plan.claim, prompt.text, spec, step.purpose, clock.wall))
        shown = tuple(word.replace(prompt.text, "<prompt>") if prompt.text else word for word in argv)
        self._context.tell(AgentStarted(step.purpose, shown, prompt.text[:200], len(prompt.text)))
        variables = self.variables(step.iteration, of)
        if hooked or self._plan.sandbox.is_real:
            variables[GUARDED] = "1"
        warden = warden or self._context.warden
        exit, problem = self._execute(call, argv, parser, variables, directory, warden)
        self._tell_news()
        ran, unread = self._ran(call, exit, problem, parser)
        self._context.tell(AgentEnded(step.purpose, ran, unread))
        return ran

    def variables(self, iteration: int, of: int) -> dict[str, str]:
        """Environment variables for agents and checks."""
        plan = self._plan
        supervised = (
            {"TASK_FOLDER": plan.task.path, "RALPH_ATTEMPT": str(iteration)} if plan.task is not None else {}
        )
        task = {"RALPH_TASK_ID": plan.task_id, "RALPH_ROLE": plan.role} if plan.task_id else {}
        return {
            **supervised,
            **task,
            "RALPH_RUN_ID": plan.run,
            "RALPH_PARENT_RUN_ID": plan.run,
            "RALPH_ITERATION": str(iteration),
            "RALPH_MAX_ITERATIONS": str(of),
        }

    def _execute(
        self,
        call: AgentCall,
        argv: list[str],
        parser: Parser,
        variables: Mapping[str, str],
        directory: int | None,
        warden: client.Warden,
    ) -> tuple[Exit, str]:
        """Run the process; return its exit and the problem with its command, if any."""
        _check_arguments(argv)
        spec, context = call.spec, self._context
        environment = self.environment | dict(spec.env) | dict(variables)
        where = context.runtime.project if directory is None else directory
        if directory is not None and "/" in argv[0]:  # given relative to the project
            argv = [os.path.join(self._plan.directory, argv[0]), *argv[1:]]
        program, problem = client.find_program(argv[0], environment.get("PATH", os.defpath), where)
        if problem:
            return Exit(error=0), f"{argv[0]}: {problem}"
        stdin = context.runtime.open_prompt(call.prompt.file) if spec.prompt_via is PromptVia.STDIN else None
        tee = Tee(parser, context.tell, context.streams, call.stream, self._context.secrets)
        supervised = context.supervised if call.step.purpose is Purpose.WORK else None
        if supervised is not None:
            supervised.folder.begin_attempt()
        try:
            own = None if directory is None else path_of(directory)
            inside = context.confinement.agent(spec, [program, *argv[1:]], environment, own)
            command = client.ProcessCommand(inside.argv, inside.environment, where, stdin)
            exit = warden.run(command, tee, self._watch(call.step, parser, supervised))
            exit = context.confinement.after(exit, inside)
        finally:
            if stdin is not None:
                os.close(stdin)
            if lost := tee.close():
                context.tell(Notice(f"Raw output of this iteration is incomplete: {lost}"))
        if exit.left:
            context.tell(Notice("A process that the agent started could not be killed; see `ps`."))
        if exit.error is not None:
            return exit, f"{argv[0]}: {os.strerror(exit.error)}"
        return exit, ""

    def _watch(self, step: RunAgent, parser: Parser, supervised: Supervised | None) -> Watch:
        def watch(seconds: float, idle: float) -> Ended | None:
            self._tell_news()
            ends = self._context.inbox.is_interrupted(), parser.is_over, parser.is_refused
            done = supervised.done_for() if supervised is not None else 0.0
            return policy.watch(step.limits, Meter(seconds, idle, parser.usage, *ends, done))

        return watch

    def _tell_news(self) -> None:
        """Report the requests that the sandbox has refused since the last call."""
        for text in self._context.confinement.news():
            self._context.tell(Notice(text))

    def _ran(self, call: AgentCall, exit: Exit, problem: str, parser: Parser) -> tuple[Ran, int]:
        """The result of the agent, and the number of lines that Ralph did not understand."""
        last, report = parser.finish(exit)
        for event in last:
            self._context.tell(event)
        ended, detail = report.ended, report.detail
        if problem:
            ended, detail = Ended.UNSTARTABLE, problem
        elif exit.ended not in (None, Ended.OK):
            ended = exit.ended
        elif exit.lost:
            ended, detail = Ended.KILLED, "its warden was killed"
        elif exit.ended is Ended.OK and ended is Ended.KILLED:
            ended, detail = Ended.OK, "finished but did not exit, so it was killed"
        ran = Ran(
            at=self._context.clock.wall(),
            ended=ended,
            agent=call.step.agent,
            took=exit.seconds,
            claim=report.claim,
            usage=report.usage,
            retry_at=report.retry_at,
            exit=exit.code,
            text=self._kept(report.text) if call.step.purpose is Purpose.WORK else report.text,
            detail=detail,
            fingerprint=_fingerprint(ended, exit, detail),
            stream=call.stream,
            refusal=self._refusal(call.step, report.text),
            unclaimed=report.unclaimed,
        )
        return ran, report.unread

    def _refusal(self, step: RunAgent, text: str) -> str:
        task = self._plan.prompt.task
        may_refuse = step.may_refuse or (task is not None and task.may_refuse)
        return claims.refusal(text) if may_refuse and step.purpose is Purpose.WORK else ""

    def _kept(self, text: str) -> str:
        """The start and the end of an answer, as the journal keeps it."""
        most = MAX_JUDGED_ANSWER if self._plan.rules.judges_answers else MAX_ANSWER
        return text if len(text) <= 2 * most else f"{text[:most]}\n[...]\n{text[-most:]}"


def _check_arguments(argv: list[str]) -> None:
    hint = 'Set "promptVia": "stdin" (or "file") in "agent".'
    size = max(len(word.encode()) for word in argv)
    if size > MAX_ARGUMENT_BYTES:
        raise RalphError(
            f'The prompt is too long for promptVia "argument": {size:,} bytes, the limit is 128 KiB.', hint
        )
    if any("\0" in word for word in argv):
        raise RalphError('The prompt contains a NUL character, which promptVia "argument" cannot pass.', hint)


def _fingerprint(ended: Ended, exit: Exit, detail: str) -> str:
    """A hash that is equal for failures that differ only in numbers."""
    words = "".join("0" if c.isdigit() else c for c in detail)
    return f"{zlib.crc32(f'{ended}/{exit.code}/{exit.signal}/{words}'.encode()):08x}"
