"""Snapshots and rewinding, with real repositories of every unusual kind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Project, some
from ralph.scm.git import GitDied, GitError, GitOutput
from ralph.scm.history import Change, History
from ralph.scm.repository import Repository, repository_at
from ralph.scm.rewind import Rewinder
from ralph.scm.snapshots import Snapshot, Snapshots

RUN = "20260101-000000-0000"


class Place:
    """A repository with its snapshots."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.path = project.path
        self.scratch = project.home.path / "scratch"
        self.fails: dict[str, GitOutput] = {}
        """Results of commands that fail once."""

    @property
    def repository(self) -> Repository:
        found = repository_at(self.path)
        assert found is not None
        return found

    def run(self, argv: list[str], variables: Mapping[str, str], stdin: bytes) -> GitOutput:
        if failed := self.fails.pop(argv[1], None):
            return failed
        done = subprocess.run(
            argv, cwd=self.path, env=self.project.env | dict(variables), input=stdin, capture_output=True
        )
        return GitOutput(done.returncode, done.stdout, done.stderr.decode())

    def take(self, name: str | int = 1) -> Snapshot:
        return Snapshots(self.repository, self.run, RUN, self.scratch).take(name)

    def rewind(self, name: str = "1") -> tuple[tuple[Change, ...], list[str]]:
        rewinder = Rewinder(self.repository, self.run, RUN, self.scratch)
        plan = rewinder.prepare(name)
        return plan.changes, rewinder.apply(plan)

    def files(self) -> dict[str, bytes]:
        """Every file except git's and Ralph's, with its content."""
        found = {}
        for root, directories, names in os.walk(self.path):
            directories[:] = [d for d in directories if d != ".git"]
            for name in names:
                path = Path(root) / name
                if name != ".git":
                    content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
                    found[str(path.relative_to(self.path))] = content
        return found

    def git(self, *arguments: str) -> str:
        return self.project.git(*arguments)

    def shell(self, script: str) -> None:
        who = {f"GIT_{n}_{w}": "test@localhost" for n in ("AUTHOR", "COMMITTER") for w in ("NAME", "EMAIL")}
        subprocess.run(["sh", "-c", script], cwd=self.path, env=self.project.env | who, check=True)


@pytest.fixture
def place(repository: Project) -> Place:
    """A repository with tracked, changed, staged and untracked files."""
    place = Place(repository)
    (place.path / "src").mkdir()
    (place.path / "src/a.py").write_text("a = 1\n")
    (place.path / "run.sh").write_text("#!/bin/sh\n")
    (place.path / "run.sh").chmod(0o755)
    (place.path / "link").symlink_to("src/a.py")
    (place.path / ".gitignore").write_text("ignored/\n")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "More")
    (place.path / "src/a.py").write_text("a = 2\n")
    place.git("add", "src/a.py")
    (place.path / "src/a.py").write_text("a = 3\n")
    (place.path / "notes.txt").write_text("mine\n")
    (place.path / "odd \n name\t'").write_text("odd\n")
    (place.path / "ignored").mkdir()
    (place.path / "ignored/x").write_text("ignored\n")
    return place


def untouched(place: Place) -> tuple[str, str, dict[str, bytes], bytes]:
    head, status = place.git("rev-parse", "HEAD"), place.git("status", "--porcelain", "-z")
    return head, status, place.files(), (place.repository.git_dir / "index").read_bytes()


def test_a_snapshot_touches_neither_head_nor_index_nor_files(place: Place) -> None:
    """Everything happens in a copy."""
    before = untouched(place)
    place.take()
    assert untouched(place) == before


def test_a_snapshot_holds_tracked_and_untracked_files(place: Place) -> None:
    """It has changed, new and unchanged files, but not ignored ones."""
    snapshot = place.take()
    names = place.git("ls-tree", "-r", "-z", "--name-only", snapshot.commit).split("\0")[:-1]
    assert names == [".gitignore", "README.md", "link", "notes.txt", "odd \n name\t'", "run.sh", "src/a.py"]
    assert place.git("show", f"{snapshot.commit}:src/a.py") == "a = 3\n"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_files_hidden_from_git_since_the_start_are_seen(place: Place, flag: str) -> None:
    """An agent cannot hide what it has changed; what the user had hidden before stays out of the tree."""
    place.git("update-index", flag, "run.sh")
    (place.path / "run.sh").write_text("the user's own\n")
    place.take()
    place.git("update-index", flag, "src/a.py")
    (place.path / "src/a.py").write_text("a = 4\n")
    index = (place.repository.git_dir / "index").read_bytes()
    tree = place.take(2).tree
    assert place.git("show", f"{tree}:src/a.py") == "a = 4\n"
    assert place.git("show", f"{tree}:run.sh") == "#!/bin/sh\n"
    assert (place.repository.git_dir / "index").read_bytes() == index


def test_equal_trees_have_equal_hashes(place: Place) -> None:
    """The hash of a tree shows whether anything has changed."""
    first, second = place.take(1), place.take(2)
    (place.path / "notes.txt").write_text("changed\n")
    assert (first.tree == second.tree, first.tree == place.take(3).tree) == (True, False)


def test_a_lock_that_a_killed_git_has_left_is_removed(place: Place) -> None:
    """The lock of Ralph's own index, which no other process uses."""
    place.take()
    (index,) = (path for path in place.scratch.rglob("index*") if path.suffix != ".lock")
    lock = index.with_name(f"{index.name}.lock")
    lock.touch()
    os.utime(lock, (1, 1))
    (place.path / "new").write_text("x")
    place.take(2)
    assert not lock.exists()


def test_a_change_in_the_moment_of_the_last_commit_is_seen(place: Place) -> None:
    """A file written in the same instant and with the same size as the one in the index is saved correctly."""
    file, index = place.path / "README.md", place.path / ".git/index"
    place.project.git("config", "core.trustctime", "false")
    place.project.git("add", "-A")
    place.project.git("commit", "-q", "-m", "all")
    then = file.stat().st_mtime_ns
    file.write_text(file.read_text().swapcase())
    os.utime(file, ns=(then, then))
    os.utime(index, ns=(then, then))
    kept = place.project.git("show", f"{place.take(1).ref}:README.md")
    assert kept == file.read_text()


DAMAGE = {
    "the index is deleted": "rm .git/index",
    "the index is rubbish": "echo rubbish > .git/index",
    "all files are deleted": "rm -rf .gitignore README.md link notes.txt odd* run.sh src",
    "git clean": "git clean -fdq",
    "git checkout": "git checkout -q -- .",
    "git stash": "git stash -q -u",
    "git reset": "git reset -q --hard",
    "a commit of everything": "git add -A; git commit -q -m all",
    "files changed, added, removed": "echo new > new; rm run.sh; echo other > README.md",
    "a file becomes a directory": "rm notes.txt; mkdir notes.txt; echo x > notes.txt/x",
    "a directory becomes a file": "rm -r src; echo x > src",
    "a directory becomes a link": "mv src moved; ln -s moved src",
    "modes and links": "chmod 644 run.sh; rm link; echo no link > link",
    "another branch": "git stash -q -u; git checkout -q -b other HEAD~1",
}


@pytest.mark.parametrize("damage", some(DAMAGE, 6))
def test_everything_is_restored(place: Place, damage: str) -> None:
    """Whatever an agent does to the tree, rewinding restores files, modes and staged changes."""
    files, status = place.files(), place.git("status", "--porcelain", "-z")
    staged = place.git("ls-files", "--stage")
    mode = (place.path / "run.sh").stat().st_mode
    place.take()
    place.shell(DAMAGE[damage])
    _, problems = place.rewind()
    assert (problems, place.files()) == ([], files)
    assert (place.git("ls-files", "--stage"), (place.path / "run.sh").stat().st_mode) == (staged, mode)
    if damage not in ("a commit of everything", "another branch"):
        assert place.git("status", "--porcelain", "-z") == status


def test_a_rewind_can_be_undone(place: Place) -> None:
    """The state before the rewind is saved first."""
    place.take()
    (place.path / "work.txt").write_text("an hour of work")
    changes, _ = place.rewind()
    assert changes == (Change("D", "work.txt"),)
    assert place.git("show", f"refs/ralph/{RUN}/rewind-1:work.txt") == "an hour of work"


def test_an_unborn_branch(project: Project) -> None:
    """A repository without any commit is saved and restored."""
    place = Place(project)
    place.git("init", "-q")
    (place.path / "a").write_text("a")
    snapshot = place.take()
    (place.path / "a").unlink()
    place.rewind()
    assert (place.files(), place.git("rev-list", "--count", snapshot.commit).strip()) == ({"a": b"a"}, "1")


def test_a_detached_head(place: Place) -> None:
    """HEAD may point to a commit instead of a branch."""
    place.git("stash", "-q", "-u")
    place.git("checkout", "-q", "--detach")
    before = place.files()
    place.take()
    (place.path / "README.md").unlink()
    place.rewind()
    assert place.files() == before


def test_sha256(project: Project) -> None:
    """Repositories with SHA-256 object names work the same."""
    place = Place(project)
    place.git("init", "-q", "--object-format=sha256")
    (place.path / "a").write_text("a")
    assert len(place.take().commit) == 64
    (place.path / "a").unlink()
    place.rewind()
    assert place.files() == {"a": b"a"}


def test_no_identity(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots need neither user.name nor user.email, and look up no hostname."""
    place.project.extra_env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    assert place.take().notes == ()


def test_a_linked_worktree(place: Place) -> None:
    """A worktree of a shared repository has its own tree and its own index."""
    place.git("worktree", "add", "-q", str(place.path.parent / "linked"), "-b", "linked")
    linked = Place(replace(place.project, path=place.path.parent / "linked"))
    (linked.path / "only here").write_text("x")
    linked.take()
    (linked.path / "only here").unlink()
    linked.rewind()
    assert (linked.path / "only here").read_text() == "x"


def nested_repository(path: Path, place: Place, *, commit: bool) -> None:
    path.mkdir(parents=True)
    inner = replace(place.project, path=path)
    inner.git("init", "-q")
    (path / "inner.txt").write_text("inner\n")
    if commit:
        inner.git("add", "-A")
        inner.git("commit", "-q", "-m", "Inner")
    (path / "untracked.txt").write_text("untracked inside\n")


@pytest.mark.parametrize("commit", [True, False])
def test_a_nested_repository(place: Place, commit: bool) -> None:
    """Files of a repository inside ours are restored too, with a commit or without."""
    nested_repository(place.path / "vendor/lib", place, commit=commit)
    before = place.files()
    assert place.take().notes == ()
    shutil.rmtree(place.path / "vendor")
    place.rewind()
    assert place.files() == before


def test_a_nested_repository_is_not_committed_to(place: Place) -> None:
    """The nested repository's own HEAD, index and files stay unchanged."""
    nested_repository(place.path / "vendor/lib", place, commit=True)
    inner = replace(place.project, path=place.path / "vendor/lib")
    before = inner.git("rev-parse", "HEAD"), inner.git("status", "--porcelain")
    place.take()
    assert (inner.git("rev-parse", "HEAD"), inner.git("status", "--porcelain")) == before


def test_a_linked_worktree_inside_the_tree(place: Place) -> None:
    """Its git directory is inside ours, so its files are saved too."""
    place.git("worktree", "add", "-q", "trees/linked", "-b", "linked")
    (place.path / "trees/linked/only here").write_text("x")
    assert place.take().notes == ()
    (place.path / "trees/linked/only here").unlink()
    place.rewind()
    assert (place.path / "trees/linked/only here").read_text() == "x"


def test_a_git_directory_behind_a_link(place: Place, tmp_path: Path) -> None:
    """Snapshots work for users who keep `.git` elsewhere behind a link, and for submodules too."""
    nested_repository(tmp_path / "upstream", place, commit=True)
    shutil.move(place.path / ".git", tmp_path / "kept.git")
    (place.path / ".git").symlink_to(tmp_path / "kept.git")
    place.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "upstream"), "sub"
    )
    before = place.files()
    assert place.take().notes == ()
    (place.path / "sub/inner.txt").unlink()
    place.rewind()
    assert place.files() == before


def test_a_submodule_that_became_a_link(place: Place, tmp_path: Path) -> None:
    """Nothing is written to the repository that the link points to."""
    nested_repository(tmp_path / "upstream", place, commit=True)
    place.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "upstream"), "sub"
    )
    shutil.rmtree(place.path / "sub")
    (place.path / "sub").symlink_to(tmp_path / "upstream")
    place.take()
    assert replace(place.project, path=tmp_path / "upstream").git("for-each-ref", "refs/ralph") == ""


def test_a_submodule(place: Place, tmp_path: Path) -> None:
    """Changes inside a submodule are saved, and it stays a submodule."""
    nested_repository(tmp_path / "upstream", place, commit=True)
    allow = ["-c", "protocol.file.allow=always"]
    place.git(*allow, "submodule", "--quiet", "add", str(tmp_path / "upstream"), "sub")
    place.git("commit", "-q", "-m", "Submodule")
    (place.path / "sub/inner.txt").write_text("changed inside\n")
    before = place.files()
    place.take()
    (place.path / "sub/inner.txt").unlink()
    _, problems = place.rewind()
    assert (place.files(), problems) == (before, [])
    assert place.git("submodule", "status").split()[1] == "sub"


def test_a_deleted_submodule(place: Place, tmp_path: Path) -> None:
    """The files of a deleted submodule are restored, and a message says that its .git is not."""
    nested_repository(tmp_path / "upstream", place, commit=True)
    allow = ["-c", "protocol.file.allow=always"]
    place.git(*allow, "submodule", "--quiet", "add", str(tmp_path / "upstream"), "sub")
    before = place.files()
    place.take()
    shutil.rmtree(place.path / "sub")
    _, problems = place.rewind()
    assert (place.files(), problems) == (before, ["sub: files restored, but not its .git"])


def test_a_huge_untracked_file_is_left_out_and_named(place: Place) -> None:
    """A sparse file of 60 MB is not copied into the object store."""
    with open(place.path / "huge.bin", "wb") as file:
        file.truncate(60 << 20)
    snapshot = place.take()
    assert snapshot.notes == ("huge.bin is larger than 50 MB and is left out",)
    place.rewind()
    assert (place.path / "huge.bin").stat().st_size == 60 << 20


# ---- git fails ----


def test_a_file_that_cannot_be_converted_is_left_out_and_named(place: Place) -> None:
    """Git refuses text that is not in the encoding which an attribute promises."""
    (place.path / ".gitattributes").write_text("odd working-tree-encoding=UTF-16\n")
    (place.path / "odd").write_text("odd")
    (place.path / "new").write_text("new\n")
    assert place.take().notes == ("odd cannot be read and is left out",)
    assert "new" in place.git("ls-tree", "--name-only", "refs/ralph/" + RUN + "/1").split()


def test_an_error_about_the_disk_is_not_one_about_a_file(place: Place) -> None:
    """A file that git cannot store is part of the work, so there is no snapshot without it."""
    (place.path / "d").write_text("new\n")
    full = "error: unable to create temporary file: No space left on device"
    error = f"{full}\nerror: d: failed to insert into database\nfatal: Unable to process path d\n"
    place.fails["update-index"] = GitOutput(128, b"", error)
    with pytest.raises(GitError, match="No space left on device"):
        place.take()
    assert "d" in place.git("ls-tree", "--name-only", place.take().tree).split()


@pytest.mark.parametrize("command", ["update-index", "write-tree", "fetch", "read-tree"])
def test_a_git_that_is_killed_leaves_no_nested_repository_out(place: Place, command: str) -> None:
    """Nobody knows what is in a nested repository if git was killed in it, so there is no snapshot without it."""
    nested_repository(place.path / "lib", place, commit=True)
    (place.path / "lib/inner.txt").write_text("changed\n")
    place.fails[command] = GitOutput(128, b"", "killed", died=True)
    with pytest.raises(GitDied):
        place.take()


@pytest.mark.parametrize("command", ["commit-tree", "fetch", "read-tree"])
def test_a_git_that_fails_once_leaves_no_nested_repository_out(place: Place, command: str) -> None:
    """The second attempt includes it: otherwise the tree would seem to change from one look to the next."""
    nested_repository(place.path / "lib", place, commit=True)
    (place.path / "lib/inner.txt").write_text("changed\n")
    place.fails[command] = GitOutput(128, b"", "fatal: odd")
    taken = place.take()
    assert (taken.notes, place.git("show", f"{taken.tree}:lib/inner.txt")) == ((), "changed\n")


def test_a_git_that_is_killed_loses_no_staged_changes(place: Place) -> None:
    """A snapshot without the index would rewind to HEAD's."""
    place.shell("echo staged > staged; git add staged")
    place.fails["write-tree"] = GitOutput(128, b"", "killed", died=True)
    with pytest.raises(GitDied):
        place.take()


PLANTED = {
    "filter": """
        git config filter.evil.clean "$EVIL"; git config filter.evil.smudge "$EVIL"
        git config filter.evil.required true; echo '* filter=evil' > .gitattributes""",
    "process filter": """
        git config filter.evil.process "$EVIL"; echo '* filter=evil' > .git/info/attributes""",
    "included filter": """
        git config --file .git/more filter.evil.clean "$EVIL"; git config include.path more
        echo '* filter=evil' > .gitattributes""",
    "fsmonitor": 'git config core.fsmonitor "$EVIL"',
    "hooks": """
        for hook in reference-transaction post-index-change pre-commit post-checkout pre-auto-gc; do
            printf '#!/bin/sh\n%s\n' "$EVIL" > .git/hooks/$hook; chmod +x .git/hooks/$hook
        done""",
    "external diff": """
        git config diff.external "$EVIL"; git config diff.evil.textconv "$EVIL"
        git config diff.evil.command "$EVIL"; echo '* diff=evil' > .gitattributes""",
    "pager": 'git config core.pager "$EVIL"; git config pager.log "$EVIL"',
    "editor and ssh": 'git config core.editor "$EVIL"; git config core.sshCommand "$EVIL"',
    "work tree elsewhere": "git config core.worktree /",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_nothing_planted_runs(place: Place, planted: str) -> None:
    """Hooks, filters, fsmonitor, external diff, pager and the like do not run in Ralph's git calls."""
    mark = place.project.home.path / "ran"
    place.shell(f"EVIL='touch {mark}'\n{PLANTED[planted]}")
    mark.unlink(missing_ok=True)
    (place.path / "README.md").write_text("changed\n")
    before = place.files()
    place.take()
    (place.path / "README.md").write_text("again\n")
    place.rewind()
    assert (mark.exists(), place.files()) == (False, before)


def test_changes_cannot_be_hidden_by_a_replace_ref(place: Place) -> None:
    """Refs can be written in a sandbox too, and protected files are checked by diffs like these."""
    first = place.take(1)
    (place.path / "README.md").write_text("another\n")
    second = place.take(2)
    place.git("replace", first.tree, second.tree)
    found = History(place.repository, place.run, RUN, place.scratch)
    assert [change.path for change in found.touched(first.tree, second.tree, ["*"], [])] == ["README.md"]


def test_a_planted_filter_in_a_nested_repository_does_not_run(place: Place) -> None:
    """The same applies to the configuration of nested repositories."""
    mark = place.project.home.path / "ran"
    nested_repository(place.path / "lib", place, commit=True)
    inner = replace(place.project, path=place.path / "lib")
    inner.git("config", "core.fsmonitor", f"touch {mark}")
    inner.git("config", "filter.evil.clean", f"touch {mark}; cat")
    (place.path / "lib/.gitattributes").write_text("* filter=evil\n")
    mark.unlink(missing_ok=True)
    assert (place.take().notes, mark.exists()) == ((), False)
