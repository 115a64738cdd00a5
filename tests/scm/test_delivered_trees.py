"""The property behind every complete run, on random trees: the commit is the checked tree without what is not work."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from ralph.core.model import MARKER, AgentSpec, Commit, Flow, Plan, PromptSource, Scm
from ralph.scm.caches import cache_of
from ralph.scm.git import GitOutput
from ralph.scm.repository import repository_at
from ralph.scm.version_control import VersionControl

RUN = "20260101-000000-0000"
NAMES = ("a", "b.txt", "dir/c", "dir/deep/d", "odd name\n", "é", "-dash", "x.ign", "__pycache__/e.pyc")
Tree = dict[str, tuple[str, bytes]]
"""Mode and content by path."""


class Start(Struct, frozen=True):
    """What there was when the run started."""

    files: Tree
    tracked: set[str]


class World:
    """A repository with an identity and an ignore rule, changed by hand."""

    def __init__(self, path: Path) -> None:
        self.top, self.state = path / "top", path / "state"
        self.top.mkdir()
        self.state.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.top / ".gitignore").write_text("*.ign\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "First")

    def git(self, *words: str) -> bytes:
        return self.run(["git", *words], {}, b"", check=True).out

    def run(
        self, argv: list[str], variables: Mapping[str, str], stdin: bytes, *, check: bool = False
    ) -> GitOutput:
        who = {f"GIT_{n}_{w}": "a@b" for n in ("AUTHOR", "COMMITTER") for w in ("NAME", "EMAIL")}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.state), **who, **variables}
        done = subprocess.run(argv, cwd=self.top, env=env, input=stdin, capture_output=True, check=check)
        return GitOutput(done.returncode, done.stdout, done.stderr.decode())

    def version_control(self) -> VersionControl:
        repository = repository_at(self.top)
        assert repository is not None
        agents = (AgentSpec("a", "custom", "a"),)
        scm = Scm("git", ("commit",))
        plan = Plan(RUN, Flow.RUN, str(self.top), agents, PromptSource("x"), scm=scm)
        return VersionControl(plan, repository, self.run, self.state)

    def change(self, name: str, kind: str, content: bytes) -> None:
        """Make a path a file, a script, a link, a repository, or nothing at all."""
        path = self.top / name
        for parent in (path, *path.parents):
            if parent == self.top:
                break
            if parent.is_symlink() or parent.is_file():
                parent.unlink()
        if path.is_dir():
            shutil.rmtree(path)
        if kind == "gone":
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to("nowhere")
        elif kind == "repository":
            path.mkdir()
            self.git("init", "-q", str(path))
            (path / "inner").write_bytes(content)
        elif kind == "add":
            path.write_bytes(content)
            self.run(["git", "add", "-f", "--", name], {}, b"")
        else:
            path.write_bytes(content)
            path.chmod(0o755 if kind == "script" else 0o644)

    def files(self) -> Tree:
        """Every file outside of git directories and nested repositories."""
        found: Tree = {}
        for root, directories, names in os.walk(self.top):
            nested = [d for d in directories if (Path(root) / d / ".git").exists()]
            links = [d for d in directories if (Path(root) / d).is_symlink()]
            directories[:] = [d for d in directories if d != ".git" and d not in nested and d not in links]
            for name in [*names, *links]:
                path = Path(root) / name
                found[str(path.relative_to(self.top))] = _entry(path)
        return found

    def committed(self) -> Tree:
        entries = self.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]
        found: Tree = {}
        for about, path in (entry.split(b"\t", 1) for entry in entries):
            mode, kind, blob = about.decode().split()
            if kind == "blob":
                found[os.fsdecode(path)] = (mode, self.git("cat-file", "blob", blob))
        return found

    def tracked(self) -> set[str]:
        return {os.fsdecode(name) for name in self.git("ls-files", "-z").split(b"\0") if name}


def _entry(path: Path) -> tuple[str, bytes]:
    if path.is_symlink():
        return "120000", os.fsencode(os.readlink(path))
    executable = path.stat().st_mode & stat.S_IXUSR
    return ("100755" if executable else "100644"), path.read_bytes()


changes = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["file", "file", "script", "link", "add", "gone", "repository"]),
        st.sampled_from([b"", b"one\n", b"two\r\n", b"\x00\xff"]),
    ),
    max_size=6,
)


@settings(
    max_examples=settings().max_examples // 4,  # each of them starts some forty git processes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes, st.booleans(), changes, changes)
def test_a_commit_is_the_checked_tree_without_what_is_not_work(
    first: list[tuple[str, str, bytes]],
    commits_first: bool,
    work: list[tuple[str, str, bytes]],
    meddling: list[tuple[str, str, bytes]],
) -> None:
    """Whatever was there at the start, whatever the agent did, and whatever happened after the checks."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for change in first:
            world.change(*change)
        if commits_first:
            world.run(["git", "commit", "-qm", "Second"], {}, b"")
        vcs = world.version_control()
        vcs.record_baseline()
        start = Start(world.files(), world.tracked())
        for change in work:
            world.change(*change)
        (world.top / MARKER).touch()
        checked, tracked = world.files(), world.tracked()
        work_tree = vcs.work_tree()
        tree = work_tree.tree
        delivery = vcs.delivery(tree, work_tree.nested)
        assert delivery is not None
        for change in meddling:
            if change[1] != "add":  # what is staged by force is a change of the index, not of the files
                world.change(*change)
        done = vcs.commit(Commit(1, "Work", delivery.tree, delivery.head, tree))
        assert not done.refused and bool(done.commit) == delivery.is_new
        assert world.git("rev-parse", "HEAD^{tree}").decode().strip() == delivery.tree
        head = world.committed()
        expected = {path: entry for path, entry in checked.items() if _is_work(path, entry, tracked, start)}
        assert head == expected


def _is_work(path: str, entry: tuple[str, bytes], tracked: set[str], start: Start) -> bool:
    """What is committed, derived from the files alone."""
    if path not in start.tracked and not path.endswith(".ign") and start.files.get(path) == entry:
        return False
    if path == MARKER:
        return False
    return path in tracked or not (path.endswith(".ign") or cache_of(path))
