"""The loop: ask the machine for a step, carry it out, journal it, apply the result.

Everything here acts; every decision to continue or stop is in `core.machine`. One iteration is
    Look → RunAgent → Look → RunChecks → (commit) → Look …
and `Driver.drive` is the whole loop.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from ralph.agents.base import Prompt
from ralph.agents.registry import disarmed
from ralph.core import machine, policy
from ralph.core import prompt as prompts
from ralph.core.events import (
    CheckEnded,
    CheckStarted,
    ClaimLooked,
    Committed,
    Holding,
    IterationStarted,
    Notice,
)
from ralph.core.model import (
    AgentSpec,
    BoardSeen,
    Cancel,
    Cause,
    Checked,
    ClaimKind,
    Command,
    Commit,
    Did,
    Ended,
    Fail,
    Hold,
    HoldWhy,
    Look,
    Phase,
    PromptVia,
    Purpose,
    Ran,
    Restore,
    Result,
    RunAgent,
    RunChecks,
    Seen,
    State,
    Steer,
    Step,
    Stop,
    TreeWatch,
    When,
)
from ralph.core.settling import listed
from ralph.errors import RalphError
from ralph.files.textfile import read_text
from ralph.loop import inbox
from ralph.loop.agent_runner import AgentCall, AgentRunner, empty_directory
from ralph.loop.check_runner import CheckedIteration, CheckRunner, Compared, commands_to_check
from ralph.loop.inbox import InterruptedWait
from ralph.loop.run_context import RunContext
from ralph.scm.delivery import Delivery
from ralph.scm.git import GitError
from ralph.scm.history import Change
from ralph.scm.snapshots import snapshot_name
from ralph.store.streams import stream_name

MAX_PROMPT_BYTES = 256 << 20
MAX_LISTED = 100
"""Maximum number of paths in the result of a look."""
RECHECK_SECONDS = 30.0
"""How often a hold reads the wall clock again: a laptop may have slept."""

GIT_PAUSES = (0.2, 1.0)
"""Seconds before each new attempt at a step in which git failed."""

RECHECK = "The files changed after they were checked. Running the required checks again."
RECOMMIT = "The files changed. Committing them as they are now."


class Driver:
    """Drives one run from a given state to its stop."""

    def __init__(self, context: RunContext, state: State) -> None:
        self._context = context
        self._state = state
        self.plan = state.plan
        self._tell = context.tell
        self._journal = context.journal
        self._base_prompt: str | None = None
        self._inbox = context.inbox
        self._inbox.on_guidance = self._deliver
        self._signals = 0
        self._noticed: set[str] = set()
        self._guided: set[int] = set()
        self.files_changed: int | None = None
        self._agents = AgentRunner(context)
        self._checks = CheckRunner(context, self._agents)

    def drive(self) -> State:
        """Take steps until the machine says stop."""
        self._deliver(self._state.steer)
        try:
            while True:
                self._hear()
                step = machine.next_step(self._state)
                seq = self._journal.begin(step, self._now())
                self._inbox.retry_when_full(self._journal.flush)
                result = self._do_until_git_works(step, seq)
                if isinstance(step, Stop) and self._hear():
                    continue  # guidance may need another iteration, or has to be named: decide again
                had_rechecked = self._state.rechecked
                self._state = machine.apply(self._state, result)
                if self._state.stop is not None and isinstance(step, Stop):
                    self._end(self._state.stop)
                if self._state.rechecked and not had_rechecked:
                    self._tell(Notice(RECHECK if self._state.phase is Phase.CHECK else RECOMMIT))
                self._journal.complete(step, result, self._state)
                self._inbox.retry_when_full(self._journal.flush)
                if isinstance(step, Stop):
                    self._tell_late_guidance()
                    return self._state
        except InterruptedWait:
            return self._interrupted()
        except (RalphError, OSError) as error:
            return self._give_up(error)
        finally:
            self._checks.close()

    def _do_until_git_works(self, step: Step, seq: int) -> Result:
        """Do a step; if git fails, try again. An error of git is never an answer: the last one stops the run."""
        for seconds in GIT_PAUSES:
            try:
                return self._do(step, seq)
            except GitError as error:
                is_work = isinstance(step, RunAgent) and step.purpose is Purpose.WORK
                if self._inbox.is_interrupted() or is_work:
                    raise
                self._tell(Notice(f"{error.message} Trying again.", detail=True))
                self._context.wakeup.wait(seconds)
        return self._do(step, seq)

    def _do(self, step: Step, seq: int) -> Result:
        started = self._context.clock.monotonic()
        match step:
            case Look():
                return self._look(started)
            case RunAgent():
                return self._run_agent(step, seq)
            case RunChecks():
                return self._run_check(step, seq, started)
            case Restore():
                return self._restore(step, started)
            case Commit():
                return self._commit(step, started)
            case Hold():
                return self._hold(step, started)
            case Stop():
                return self._stop(step, started)
            case _:
                raise NotImplementedError(type(step).__name__)

    def _stop(self, step: Stop, started: float) -> Did:
        """Final work of a run. If it is cut off, it is repeated."""
        if self._context.supervised is not None:
            self._context.supervised.end_children()
        tree = self._snapshot()
        changed = self._changed_since_delivery(tree) if step.tree else ""
        changes = self._changes_of_run()
        self.files_changed = None if changes is None else len(changes)
        notes = self._notes_on_tests(self._changes_since_start() if changes is None else changes)
        return Did(self._now(), self._since(started), detail=changed, files=self.files_changed, notes=notes)

    def _changed_since_delivery(self, tree: str) -> str:
        """Note the files that have changed since the last look before delivery. `tree`: the final tree, if known."""
        seen, vcs = self._state.delivery, self._context.vcs
        if seen is None:
            return ""
        try:
            changed = vcs.changed_since(seen.tree, seen.delivery, tree or vcs.work_tree_id())
        except GitError as error:
            return f"unknown whether files have changed since the checks: {error.message}"
        return f"changed since the checks, not part of the proof: {listed(changed)}" if changed else ""

    def _end(self, step: Stop) -> None:
        """Tell others that the run has stopped."""
        if self._context.supervised is not None:
            self._context.supervised.post_end(step, self._state.iteration)
        self._context.ended(step)

    # ---- Look ----

    def _look(self, started: float) -> Seen:
        """Observe what this phase needs: the prompt, the tree, changes to commit."""
        if self._state.phase is Phase.CHANGES:
            return self._look_at_changes(started)
        problem = prompt = tree = ""
        try:
            if self._state.phase is Phase.BEFORE:
                prompt = hashlib.sha256(self._read_prompt().encode()).hexdigest()[:16]
                tree = self._snapshot()
            elif self._is_to_be_delivered():
                tree = self._context.vcs.work_tree_id()
            if not tree and self._is_start_of_run():
                tree = self._context.vcs.work_tree_id()
            if not tree and self._wants_tree():
                tree = self._context.vcs.tree()
        except GitError:
            raise
        except RalphError as error:
            problem = error.message
        board, problem = self._look_at_board(problem)
        seen = Seen(self._now(), self._since(started), problem, prompt, board, tree=tree)
        if self._context.supervised is None:
            return seen
        attempt = self._state.iteration if self._state.phase is Phase.AFTER else None
        return self._context.supervised.look(seen, after_attempt=attempt)

    def _look_at_changes(self, started: float) -> Seen:
        """After the checks: whether the files are still those that were checked, and what would be committed."""
        vcs, after = self._context.vcs, self._state.after
        assert after is not None
        now = vcs.work_tree()
        modified = vcs.changed_between(after.tree, now.tree) if now.tree and now.tree != after.tree else []
        seen = Seen(
            self._now(), tree=now.tree, modified=tuple(modified[:MAX_LISTED]), lacking=vcs.lacking(now)
        )
        delivery = vcs.delivery(after.tree, now.nested)
        if delivery is not None:
            seen = replace(
                seen,
                changed=delivery.is_new,
                delivery=delivery.tree,
                head=delivery.head,
                left_out=delivery.left_out[:MAX_LISTED],
                message=self._message_from_prompt(),
            )
        return replace(seen, took=self._since(started))

    def _message_from_prompt(self) -> str:
        """A commit message for an agent that gives none."""
        board = self._state.before.board if self._state.before else None
        if board is not None and board.story:
            return f"{board.story}: {board.role}"
        text = self._base_prompt if self._base_prompt is not None else self._read_prompt()
        return self._context.secrets.text(prompts.subject(text))

    def _look_at_board(self, problem: str) -> tuple[BoardSeen | None, str]:
        """The task list of a PRD loop: as people left it, or as it was when the agent ended."""
        if self._state.phase is Phase.AFTER and self._state.ran is not None:
            return self._state.ran.board, problem
        if self._context.stories is None or problem or self._state.phase is not Phase.BEFORE:
            return None, problem
        try:
            return self._context.stories.before(), ""
        except RalphError as error:
            return None, error.text

    def _wants_tree(self) -> bool:
        """Whether this run needs the tree id, which takes time to compute."""
        before, ran = self._state.phase is Phase.BEFORE, self._state.ran
        if self.plan.claim.kind is ClaimKind.GIVEN:
            return before
        if self._state.asked:
            return True
        watch = self.plan.rules.tree
        if self._state.limits.stagnation > 0 or watch is TreeWatch.ALWAYS:
            return True
        has_failed = ran is not None and ran.ended is not Ended.OK
        return watch is TreeWatch.FAILURES and (before or has_failed)

    def _is_start_of_run(self) -> bool:
        """Whether a check compares with the tree of this look."""
        is_first = self._state.phase is Phase.BEFORE and self._state.iteration == 0
        return is_first and any(check.when is When.PROVED for check in self.plan.checks)

    def _is_to_be_delivered(self) -> bool:
        """Whether the tree that is about to be checked may be committed, or be the proof of a complete run."""
        ran = self._state.ran
        is_claimed = ran is not None and (ran.claim or bool(ran.refusal))
        return self.plan.scm is not None or (bool(self.plan.checks) and is_claimed)

    def _snapshot(self) -> str:
        """Snapshot the tree before the next iteration. A failure is reported but does not stop the run."""
        try:
            kept = self._context.vcs.snapshot(snapshot_name(self._state.iteration, self._state.again))
            if kept is None:
                return ""
        except RalphError as error:
            if not self._inbox.is_interrupted():
                self._warn(error)
            return ""
        for note in kept.notes:
            self._notice_once(f"Snapshot: {note}.")
        return kept.tree

    def _changes_of_run(self) -> list[Change] | None:
        try:
            return self._context.vcs.changes_of_run()
        except RalphError:
            return None

    def _changes_since_start(self) -> list[Change]:
        """Without snapshots: the changes up to the last known tree."""
        start, seen = self._state.start, self._state.after or self._state.before
        try:
            return self._context.vcs.changes(start, seen.tree) if start and seen and seen.tree else []
        except RalphError:
            return []

    def _notes_on_tests(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """The tests that existed when the run started and have changed since."""
        if not self.plan.rules.names_tests or not changes:
            return ()
        from ralph.protection.old_tests import changed_tests  # a run without changes need not read commands

        board = self._state.before.board if self._state.before else None
        commands = commands_to_check(self.plan.checks, board.legal if board else "")
        kinds = {change.path: change.kind for change in changes if change.kind != "A"}
        tests = changed_tests(commands, kinds, self._context.vcs.project)
        deleted = [path for path in tests if kinds[path] == "D"]
        edited = [path for path in tests if kinds[path] != "D"]
        named = (("changed", edited), ("deleted", deleted))
        return tuple(f"{word} tests: {listed(paths)}" for word, paths in named if paths)

    def _warn(self, error: RalphError) -> None:
        self._notice_once(error.text)

    def _notice_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._tell(Notice(text))

    def _read_prompt(self) -> str:
        """The base prompt; a prompt file is re-read in every iteration."""
        source = self.plan.prompt
        if source.file:
            path = os.path.join(self.plan.directory, source.file)
            self._context.confinement.check_way(path)
            self._base_prompt = read_text(path, most=MAX_PROMPT_BYTES, what="prompt file")
        else:
            self._base_prompt = source.text
        return self._base_prompt

    # ---- RunAgent ----

    def _run_agent(self, step: RunAgent, seq: int) -> Ran:
        spec, prompt = self._spec(step), self._prompt(step)
        if step.purpose is Purpose.WORK:
            self._tell(
                IterationStarted(step.iteration, step.of, len(step.steer), spec.name, step.role, step.story)
            )
            if spec.prompt_via is not PromptVia.NONE:
                self._journal.delivered(tuple(steer.id for steer in step.steer), step.iteration)
        call = AgentCall(step, spec, prompt, stream_name(step.iteration, seq, step.purpose))
        if step.purpose is Purpose.MESSAGE:
            return self._ask_message(call)
        ran = self._call_and_rule(call)
        if self.plan.claim.kind is ClaimKind.TAG:
            rule = self.plan.claim
            self._tell(ClaimLooked(f"<{rule.tag}>{rule.text}</{rule.tag}>", ran.claim, ran.unclaimed))
        return ran

    def _ask_message(self, call: AgentCall) -> Ran:
        """Ask for a commit message in an empty directory, from an agent that cannot act: only its text counts."""
        call = replace(call, spec=disarmed(call.spec))
        with empty_directory() as directory:
            return self._agents.call(call, self._state.limits.iterations, directory)

    def _call_and_rule(self, call: AgentCall) -> Ran:
        """Run the agent, then undo its forbidden changes to the board of a PRD loop."""
        stories, before, of = self._context.stories, self._state.before, self._state.limits.iterations
        if stories is None or before is None or before.board is None or call.step.purpose is not Purpose.WORK:
            return self._agents.call(call, of)
        found = before.board
        self._inbox.retry_when_full(lambda: stories.begin(of, found))
        ran = self._agents.call(call, of)
        board = self._inbox.retry_when_full(lambda: stories.rule(found, before.tree))
        self._tell_undone(board.illegal)
        for text in board.told:
            self._tell(Notice(f"Next prompt will mention: {text}."))
        return replace(ran, board=board)

    def _tell_undone(self, undone: Sequence[str]) -> None:
        for text in undone:
            self._tell(Notice(f"Undone: {text}."))
        if undone and self._context.stories is not None:
            self._notice_once(f"Undone changes are kept in {self._context.stories.undone}")

    def _spec(self, step: RunAgent) -> AgentSpec:
        return next(agent for agent in self.plan.agents if agent.name == step.agent)

    def _prompt(self, step: RunAgent) -> Prompt:
        if self._spec(step).prompt_via is PromptVia.NONE:
            return Prompt("", "")
        if step.purpose is Purpose.MESSAGE:
            name, text = f"{step.iteration:03d}_message", prompts.commit_message(self._diff_to_commit())
        else:
            base = self._base_prompt if self._base_prompt is not None else self._read_prompt()
            name, text = f"{step.iteration:03d}", prompts.build(base, step, self.plan.prompt, self.plan.claim)
        return Prompt(
            text, self._inbox.retry_when_full(lambda: self._context.runtime.write_prompt(name, text))
        )

    def _diff_to_commit(self) -> str:
        seen = self._state.delivery
        diff = self._context.vcs.diff_to_commit(Delivery(seen.delivery, seen.head)) if seen else ""
        return self._context.secrets.text(diff)

    # ---- RunChecks ----

    def _run_check(self, step: RunChecks, seq: int, started: float) -> Checked:
        """Run one check at a time, so that each verdict is journalled as soon as it is known."""
        check = next(check for check in self.plan.checks if check.name == step.names[0])
        self._tell(CheckStarted(check.name))
        with self._held_board() as undone:
            found = self._checks.check(check, self._iteration(step, seq))
        retry_at = found.retry_at or self._now() + policy.LIMIT_BACKOFF if found.is_limited else None
        if found.verdict is not None:
            self._tell(CheckEnded(found.verdict, check.fail_action, self._since(started)))
        verdicts = (found.verdict,) if found.verdict is not None else ()
        return Checked(self._now(), self._since(started), verdicts, found.usage, retry_at, tuple(undone))

    @contextmanager
    def _held_board(self) -> Iterator[list[str]]:
        """Undo what checks and commit hooks, which run the agent's code, do to the files of a PRD loop.

        On exit the list holds the undone changes.
        """
        undone: list[str] = []
        board = self._context.stories
        if board is None:
            yield undone
            return
        self._inbox.retry_when_full(board.hold)
        try:
            yield undone
        finally:
            undone += self._inbox.retry_when_full(board.release)
            self._tell_undone(undone)

    def _iteration(self, step: RunChecks, seq: int) -> CheckedIteration:
        state = self._state
        left = policy.left(state.limits, state.usage, state.elapsed, self.plan.judge or self.plan.agents[0])
        answer = state.ran.text if state.ran is not None else ""
        board = state.after.board if state.after else None
        legal = board.legal if board else ""
        return CheckedIteration(
            step.iteration,
            state.limits.iterations,
            seq,
            answer,
            state.claimed,
            left,
            legal,
            Compared(state.start, state.after.tree if state.after else "", state.allowed),
        )

    # ---- Restore ----

    def _restore(self, step: Restore, started: float) -> Did:
        """Revoke approvals that the checks refuted."""
        board = self._state.after.board if self._state.after else None
        assert self._context.stories is not None and board is not None
        self._tell_undone(step.told)
        stories = self._context.stories
        self._inbox.retry_when_full(lambda: stories.refute(board.legal, step.board, step.told))
        return Did(self._now(), self._since(started))

    # ---- Commit ----

    def _commit(self, step: Commit, started: float) -> Did:
        """Commit as configured; the user's hooks may run the agent's code."""
        with self._held_board() as undone:
            did = self._do_commit(step, started)
        return replace(did, undone=tuple(undone))

    def _do_commit(self, step: Commit, started: float) -> Did:
        """Commit what was checked; an interrupted commit is repeated."""
        try:
            done = self._context.vcs.commit(step)
        except GitError:
            if not self._inbox.is_interrupted():
                raise
            return Did(self._now(), self._since(started), over=False)
        problems = tuple(self._context.secrets.text(problem) for problem in done.problems)
        refused = self._context.secrets.text(done.refused)
        if self._inbox.is_interrupted() and (problems or refused):
            return Did(self._now(), self._since(started), over=False)
        if done.commit:
            self._tell(Committed(step.iteration, done.commit, step.message))
        for problem in (*problems, *([f"Not committed: {refused}"] if refused else [])):
            self._tell(Notice(problem))
        detail = " · ".join(problems)
        return Did(
            self._now(),
            self._since(started),
            detail=detail,
            made=done.commit,
            refused=refused,
            tree=done.tree,
        )

    # ---- Hold ----

    def _hold(self, step: Hold, started: float) -> Did:
        """Wait until the time is up or a command ends the wait. Limit resets follow the wall clock."""
        self._tell(Holding(step))
        supervised = self._context.supervised
        while True:
            if self._inbox.is_woken(self._signals):
                return Did(self._now(), self._since(started), over=False)
            if supervised is not None and supervised.is_hold_over(step.why):
                return Did(self._now(), self._since(started))
            left = self._hold_left(step, started)
            if left is not None and left <= 0:
                return Did(self._now(), self._since(started), detail=self._end_of_hold(step))
            patience = RECHECK_SECONDS if left is None else min(left, RECHECK_SECONDS)
            self._context.wakeup.wait(min(patience, inbox.COMMAND_SECONDS))

    def _end_of_hold(self, step: Hold) -> str:
        if step.why is not HoldWhy.CHILDREN or self._context.supervised is None:
            return ""
        count = self._context.supervised.end_children()
        return f"{count} child {'process' if count == 1 else 'processes'} had to be killed"

    def _hold_left(self, step: Hold, started: float) -> float | None:
        if step.why is HoldWhy.PAUSED:
            return None
        if step.until is not None:
            return step.until - self._now()
        return (step.seconds or 0.0) - self._since(started)

    # ---- commands and signals ----

    def _hear(self) -> bool:
        """Apply commands and signals received since the last step, and say whether there were any."""
        commands = self._inbox.new_commands()
        for number, command in commands:
            self._apply(command, number)
        signals = self._inbox.signals()
        if signals > self._signals:
            self._signals = signals
            self._apply(Cancel(self._now(), Cause.SIGNAL, now=signals > 1, by=self._inbox.signalled_by), None)
            return True
        return bool(commands)

    def _apply(self, command: Command, number: int | None) -> None:
        self._state = machine.apply(self._state, command)
        self._journal.command(command, self._state, number)

    def _tell_late_guidance(self) -> None:
        for _, command in self._inbox.new_commands():
            if isinstance(command, Steer):
                self._tell(Notice(f"guidance not delivered: {command.text}"))

    def _deliver(self, guidance: tuple[Steer, ...]) -> None:
        """Post guidance once to the task's bus for a command that gets no prompt."""
        supervised = self._context.supervised
        if supervised is None or self.plan.agents[0].prompt_via is not PromptVia.NONE:
            return
        for steer in guidance:
            if steer.id not in self._guided:
                self._guided.add(steer.id)
                problem = supervised.folder.post_guidance(steer)
                self._journal.delivered((steer.id,), self._state.iteration + 1)
                self._tell(Notice(problem or f"Guidance posted to the task's bus: {steer.text}"))

    # ---- when the disk fails ----

    def _interrupted(self) -> State:
        """A signal while the disk is full: the journal is left as it is, so the run can be resumed.

        This holds even at the end: a stop that was not journalled did not happen.
        """
        cancel = Cancel(self._now(), Cause.SIGNAL, by=self._inbox.signalled_by)
        state = machine.apply(replace(self._state, stop=None), cancel)
        return machine.apply(state, Did(self._now()))

    def _give_up(self, error: RalphError | OSError) -> State:
        """Stop the run as fatal, and journal that if possible."""
        if isinstance(error, RalphError):
            reason = error.text
        else:
            where = [os.fsdecode(error.filename)] if isinstance(error.filename, str | bytes) else []
            reason = ": ".join([*where, error.strerror or str(error)])
        fail = Fail(self._now(), reason, Cause.GIT if isinstance(error, GitError) else Cause.CONFIG)
        self._state = machine.apply(self._state, fail)
        assert self._state.stop is not None
        if self._context.supervised is not None:
            self._context.supervised.post_end(self._state.stop, self._state.iteration)
        try:
            self._context.ended(self._state.stop)
            self._journal.command(fail, self._state)
            self._journal.flush()
        except RalphError:
            pass
        return self._state

    def _now(self) -> float:
        return self._context.clock.wall()

    def _since(self, started: float) -> float:
        return self._context.clock.monotonic() - started
