"""The sandbox of one run: what its agents and its checks can see and write.

An agent gets the worktree, what git needs, its own login and its own keys. A check runs the agent's code, so it gets
the same without login and keys. Ralph itself stays outside.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from msgspec import Struct

from ralph.agents.registry import AGENTS
from ralph.core.model import PROJECT_BUS, AgentSpec, Ended, Exit, Network, Plan, SandboxSpec
from ralph.errors import RalphError
from ralph.loop.logins import Logins, is_too_much
from ralph.loop.restore import OF_GIT, OF_RALPH, RemovedLinks, RestoredFiles, open_up, take_away
from ralph.process.client import Warden, child_environment, output_of
from ralph.sandbox import programs, variables
from ralph.sandbox.base import (
    PEOPLES,
    Backend,
    Boundary,
    Mounts,
    Root,
    RunCommand,
    Sandbox,
    SandboxOutput,
    WrappedCommand,
)
from ralph.sandbox.programs import within
from ralph.sandbox.registry import all_backends, find
from ralph.scm.repository import Repository, points_back

_TRY_SECONDS = 60.0


def path_of(directory: int) -> str:
    """The current path of an open directory."""
    return os.readlink(f"/proc/self/fd/{directory}") if os.path.isdir("/proc/self/fd") else "."


def runner(warden: Warden, directory: int) -> RunCommand:
    """A function that runs a backend's own commands under the warden."""

    def run(argv: Sequence[str], seconds: float) -> SandboxOutput:
        def watch(elapsed: float, idle: float) -> Ended | None:
            return Ended.TIMEOUT if elapsed >= seconds else None

        done = output_of(warden, argv, directory, child_environment({}), watch=watch)
        return SandboxOutput(done.exit.code, done.out, done.problem or done.err.decode(errors="replace"))

    return run


class ConfinedRun(Struct, frozen=True):
    """The directories of a run: its worktree, and state out of the sandbox's reach; `environment` overrides ours.

    `reads` and `writes`: what its commands read and write of installed environments outside the worktree.
    """

    plan: Plan
    repository: Repository | None
    home: Path
    streams: Path
    environment: Mapping[str, str] | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        return child_environment({}) if self.environment is None else dict(self.environment)

    def backend(self) -> Backend:
        """The backend of the plan, configured for this run."""
        spec, agents = self.plan.sandbox, self.plan.agents
        home = _home_in(self.variables)
        return find(spec.backend, all_backends(spec.image, agents[0].type if agents else "", home))


@contextmanager
def opened_confinement(run: ConfinedRun, warden: Warden, directory: int) -> Iterator[Confinement]:
    """The sandbox of a run while it is driven. A problem raises one error before anything starts."""
    backend = run.backend()
    confinement, execute = Confinement(run, backend.root), runner(warden, directory)
    with backend.opened(confinement.boundary, execute, confinement.tell) as sandbox:
        confinement.sandbox = sandbox
        if run.plan.sandbox.is_real:
            confinement.check_boundary(execute)
        try:
            yield confinement
        finally:
            confinement.close()


class Confinement:
    sandbox: Sandbox

    def __init__(self, run: ConfinedRun, root: Root = Root.OURS) -> None:
        plan = run.plan
        self._root = root
        self._run, self._plan, self._spec = run, plan, plan.sandbox
        self._news: deque[str] = deque()
        self._base = run.variables
        self._home = _home_in(self._base)
        self._state = run.streams / "sandbox"
        self._absent: tuple[str, ...] = ()
        self._kept: list[RestoredFiles | RemovedLinks] = []
        if self._spec.is_real:
            self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_home(self._base.get("HOME", ""))
            self._worktree = _worktree(run, self._home)
            self._git = _git_paths(run.repository, self._worktree)
            self._given = _given(self._spec, plan.directory, self._worktree)
            self._logins = Logins(self._specs, self._base, self._home, self._state)
            self._absent = self._logins.absent()
            self._kept = list(self._remembered())
        self.boundary = Boundary(
            plan.run,
            str(self._state),
            self._writable() if self._spec.is_real else (),
            self._spec.network,
            self._hosts() if self._spec.network is Network.ALLOW_LIST else (),
            self._spec.memory_mb,
            self._spec.processes,
            self._read_only() if self._spec.is_real else (),
        )

    # ---- commands ----

    def agent(
        self, spec: AgentSpec, argv: Sequence[str], environment: Mapping[str, str], directory: str | None
    ) -> WrappedCommand:
        """Wrap an agent's command, in the project or in a separate directory that is then its only writable one."""
        if not self._spec.is_real:
            return WrappedCommand(argv, environment)
        needs = AGENTS[spec.type].needs
        own = dict(spec.env)
        wanted = {**self._passed(environment, (*needs.variables, *own)), **own}
        logins, pinned = self._logins.of(spec)
        mounts = self._mounts(
            directory,
            more_writable=logins,
            pinned=pinned,
            more_read=(
                *self._program(argv[0], environment.get("PATH", "")),
                *(word for word in argv if within(word, [str(self._run.streams)])),
                *_named_files(spec.flags),
            ),
            copied=self._logins.bound(spec),
        )
        return self.sandbox.wrap(argv, wanted, mounts)

    def check(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        copy: str = "",
        reads: Sequence[str] = (),
    ) -> WrappedCommand:
        """Wrap a check's command, which may run the agent's code; `copy`: in a copy of the project, which reads these."""
        if not self._spec.is_real:
            return WrappedCommand(argv, environment)
        more_read = (self._worktree, *reads) if copy else reads
        mounts = self._mounts(copy or None, start=directory, more_read=more_read)
        return self.sandbox.wrap(argv, self._passed(environment, ()), mounts)

    def after(self, exit: Exit, wrapped: WrappedCommand) -> Exit:
        """After a command, undo changes that would start programs outside, in git or in later agent sessions."""
        exit = self.sandbox.after(exit, wrapped)
        self._put_back()
        return exit

    def _put_back(self) -> None:
        """Restore everything; a failure stops the run."""
        problems = []
        for path in self._absent:
            try:
                self._take_away(path)
            except OSError as error:
                problems.append(error)
        for kept in self._kept:
            try:
                self._tell_undone(kept.put_back())
            except OSError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def check_way(self, path: str) -> None:
        """Reject a file for the prompt that a link made by an agent redirects outside the sandbox."""
        if self._spec.is_real and _is_led_out(path, self.boundary.writable):
            raise RalphError(
                f"{path} is a link to {os.path.realpath(path)}, outside the sandbox's writable directories;"
                " it was not read.",
                "If that file is meant, use its real path.",
            )

    def _take_away(self, path: str) -> None:
        open_up(os.path.dirname(path))
        if not os.path.lexists(path):
            return
        taken = self._state / "taken"
        taken.mkdir(exist_ok=True)
        target = taken / f"{len(os.listdir(taken)):03d}-{os.path.basename(path)}"
        take_away(Path(path), target)
        self.tell(f"{path} was created inside the sandbox and moved to {target}.")

    def close(self) -> None:
        if self._spec.is_real:
            self._logins.forget()
        with suppress(OSError):  # reported when the command ended
            self._put_back()
        for kept in self._kept:
            kept.forget()

    def _tell_undone(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.tell(f"{path} was changed inside the sandbox and restored.")

    def tell(self, text: str) -> None:
        """Queue a message from any thread; the driver passes it on."""
        self._news.append(text)

    def news(self) -> Iterator[str]:
        while self._news:
            yield self._news.popleft()

    def introduction(self) -> Iterator[str]:
        """Messages for the start of the run."""
        if not self._spec.is_real:
            return
        logins = [path for spec in self._plan.agents for path in self._logins.of(spec)[0]]
        also = f" and {', '.join(dict.fromkeys(logins))}" if logins else ""
        yield f"Writable: {', '.join(self.boundary.writable)}{also}. Homes and credentials are hidden."
        if within(sys.prefix, self.boundary.writable):
            yield f"Warning: the agent can change Ralph itself, installed in {sys.prefix}. Install it elsewhere."

    def check_boundary(self, run: RunCommand) -> None:
        """Try the sandbox once, so that a wrong path is reported now and not by every agent."""
        mounts = self._mounts(None)
        environment = self._passed(self._base, ())
        wrapped = self.sandbox.wrap(["/bin/true"], environment, mounts)
        done = run(wrapped.argv, _TRY_SECONDS)
        self.sandbox.after(Exit(code=done.code), wrapped)
        if done.code != 0:
            raise RalphError(
                f"The sandbox {self._spec.backend} cannot be set up: {done.err.strip() or 'it did not exit'}",
                "Check `sandbox` in the settings, or run `ralph doctor --sandbox` to see what is wrong.",
            )

    # ---- mounts ----

    def _mounts(
        self,
        own: str | None,
        *,
        start: str = "",
        more_writable: Sequence[str] = (),
        pinned: Sequence[str] = (),
        more_read: Sequence[str] = (),
        copied: tuple[tuple[str, str], ...] = (),
    ) -> Mounts:
        _, given_read, given_hidden = self._given
        path = self._base.get("PATH", os.defpath)
        read = [
            *programs.of_home(self._home, path),
            *programs.of_ralph(),
            *programs.OF_SYSTEM,
            *self._run.reads,
            *more_read,
        ]
        hidden = (self._home, str(self._run.home), *given_hidden)
        writable = [own] if own else [*self.boundary.writable, *self._dot_git(os.path.isdir)]
        every_writable = [*writable, *more_writable]
        read = [path for path in read if not is_too_much(path, self._home)]
        seen = _seen(read, partial(self._is_absent, (*PEOPLES, *hidden)), every_writable)
        pinned = [*pinned, *given_read, *self._git[1], *self._dot_git(os.path.isfile)]
        pinned = [path for path in pinned if os.path.lexists(path)]
        return Mounts(
            start or own or self._plan.directory,
            tuple(dict.fromkeys(every_writable)),
            tuple(dict.fromkeys([*seen, *pinned])),
            hidden,
            copied,
        )

    def _dot_git(self, is_kind: Callable[[str], bool]) -> list[str]:
        """The worktree's `.git`: as a separate mount it cannot be replaced."""
        path = os.path.join(self._worktree, ".git")
        is_given = path in (*self._given[1], *self._given[2])
        return [] if is_given or os.path.islink(path) or not is_kind(path) else [path]

    def _is_absent(self, hidden: Sequence[str], path: str) -> bool:
        """Whether the path is invisible inside unless mounted explicitly."""
        return within(path, hidden) if self._root is Root.OURS else not programs.is_of_system(path)

    def _writable(self) -> tuple[str, ...]:
        """The worktree, git's directories elsewhere, a supervised task's folder, and paths from the settings."""
        task = self._plan.task
        folder = [task.path] if task else []
        if task and os.path.isfile(bus := os.path.join(os.path.dirname(task.path), PROJECT_BUS)):
            folder.append(bus)
        found = [self._worktree, *self._git[0], *folder, *self._run.writes, *self._given[0]]
        if too_much := next((path for path in found if is_too_much(path, self._home)), None):
            raise RalphError(
                f"sandbox: {too_much} cannot be writable because it contains home directories.",
                "Use a narrower path.",
            )
        return tuple(dict.fromkeys(found))

    def _read_only(self) -> tuple[str, ...]:
        """The main repository of a worktree, and paths from the settings."""
        return tuple(path for path in (*self._git[1][:1], *self._given[1]) if os.path.lexists(path))

    @property
    def _specs(self) -> tuple[AgentSpec, ...]:
        return (*self._plan.agents, *([self._plan.judge] if self._plan.judge else []))

    def _remembered(self) -> Iterator[RestoredFiles | RemovedLinks]:
        """Files to restore: Ralph's settings, and git's where its whole directory is writable."""
        found: list[RestoredFiles | RemovedLinks] = [
            RestoredFiles(Path(self._plan.directory, ".ralph"), OF_RALPH, self._state / "settings")
        ]
        repository = self._run.repository
        if repository is not None:
            own, common = repository.git_dir, repository.common
            shared = [common / "refs", common / "logs"] if own != common else []
            places = [place for place in (own, *shared) if within(str(place), self._writable())]
            if own in places:
                found.append(RestoredFiles(own, OF_GIT, self._state / "git"))
            found.append(RemovedLinks(places, self._state / "links"))
        for kept in found:
            self._tell_undone(kept.remember())
            yield kept

    def _program(self, program: str, path: str) -> tuple[str, ...]:
        return _of_program(os.path.abspath(os.path.join(self._plan.directory, program)), path)

    def _passed(self, environment: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
        patterns = (*variables.USUAL, *self._spec.variables, *more)
        network = variables.proxies(environment) if self._spec.network is Network.OPEN else {}
        return network | variables.passed(environment, patterns) | variables.ours(self._spec.backend)

    def _hosts(self) -> tuple[str, ...]:
        found = list(self._spec.hosts)
        for spec in self._specs:
            needs = AGENTS[spec.type].needs
            own = variables.passed(self._base, needs.variables) if needs.variables else {}
            found += [*needs.hosts, *variables.hosts_in(own | dict(spec.env))]
        return tuple(host for host in dict.fromkeys(found) if _is_host(host))


@cache
def _of_program(program: str, path: str) -> tuple[str, ...]:
    return tuple(programs.of_program(program, path))


def _home_in(environment: Mapping[str, str]) -> str:
    return os.path.realpath(environment.get("HOME") or os.path.expanduser("~"))


def _check_home(home: str) -> None:
    if home and (not os.path.isabs(home) or os.path.realpath(home) == "/"):
        raise RalphError(
            f"HOME is {home}, which a sandbox cannot hide.",
            "Set HOME to the absolute path of a home directory.",
        )


def _is_host(text: str) -> bool:
    from ralph.sandbox.proxy import Host  # loaded only for a sandbox

    with suppress(ValueError):
        Host.parse(text)
        return True
    return False


def _seen(paths: Iterable[str], is_absent: Callable[[str], bool], writable: Sequence[str]) -> list[str]:
    """Paths to mount because they would be invisible, with their link targets, without nested duplicates."""
    both = {each for path in paths for each in (path, os.path.realpath(path))}
    seen: list[str] = []
    for path in sorted(both, key=len):
        if is_absent(path) and not within(path, [*writable, *seen, *_missing(path)]):
            seen.append(path)
    return seen


def _missing(path: str) -> list[str]:
    return [] if os.path.exists(path) else [path]


def _named_files(flags: Iterable[str]) -> list[str]:
    """Files named in the agent's flags: `--settings FILE`, `--mcp-config=FILE`."""
    values = (flag.partition("=")[2] if flag.startswith("-") else flag for flag in flags)
    return [os.path.realpath(value) for value in values if os.path.isabs(value) and os.path.isfile(value)]


def _is_led_out(path: str, places: Sequence[str]) -> bool:
    """Whether a link inside one of these places leads the path outside all of them."""
    if within(os.path.realpath(path), places):
        return False
    here, left = "/", path.split("/")
    for _ in range(1000):
        if not left:
            return False
        here = os.path.normpath(os.path.join(here, left.pop(0)))
        if os.path.islink(here):
            if within(here, places):
                return True
            left, here = [*os.readlink(here).split("/"), *left], os.path.dirname(here)
            here = "/" if left[0] == "" else here
    return True


def _worktree(run: ConfinedRun, home: str) -> str:
    """The directory the agent works on: the whole repository, unless it contains the home directory."""
    top = str(run.repository.top) if run.repository else run.plan.directory
    if within(home, [top]):
        top = run.plan.directory
    if within(home, [top]) or top in ("/", *PEOPLES):
        raise RalphError(
            f"{top} cannot be sandboxed because it contains your home directory.",
            "Start Ralph in a project directory.",
        )
    if within(str(run.home), [top]):
        raise RalphError(
            f"The journal is kept in {run.home}, where a sandboxed agent could change it.",
            "Set RALPH_STATE_DIR to a directory outside the project.",
        )
    return top


def _git_paths(repository: Repository | None, worktree: str) -> tuple[list[str], list[str]]:
    """Paths outside the worktree that git writes to, and those it only reads.

    They come from files that an agent can change, so only a repository that points back to this worktree counts.
    """
    if repository is None or within(str(repository.git_dir), [worktree]) or not points_back(repository):
        return [], []
    own, common = str(repository.git_dir), repository.common
    if own == str(common):
        return [own], []
    shared = [str(path) for name in ("objects", "refs", "logs") if (path := common / name).exists()]
    return [own, *shared], [str(common), str(common / "refs" / "ralph")]


def _given(spec: SandboxSpec, project: str, worktree: str) -> tuple[list[str], list[str], list[str]]:
    """Writable, read-only and hidden paths from the settings, without those that could be bypassed inside."""
    place = partial(_place, project)
    writable, read, hidden = (
        [place(p) for p in paths] for paths in (spec.writable, spec.read_only, spec.hidden)
    )
    for key, paths in (("readOnly", read), ("hidden", hidden)):
        for path in paths:
            parent = next((w for w in (worktree, *writable) if within(path, [w])), None)
            if parent is not None and os.path.dirname(path) != parent:
                raise RalphError(
                    f"sandbox.{key}: {path} is nested inside the writable {parent}, so it could be moved away.",
                    f"Only direct children of {parent} can be protected.",
                )
            if parent is not None and os.path.realpath(path) != path:
                raise RalphError(f"sandbox.{key}: {path} is a link.", "Use its target.")
    for path in writable:
        if within(worktree, [path]) and path != worktree:
            raise RalphError(
                f"sandbox.writable: {path} contains the worktree {worktree}.", "Use a narrower path."
            )
    return writable, read, hidden


def _place(project: str, path: str) -> str:
    return os.path.normpath(os.path.join(project, os.path.expanduser(path)))
