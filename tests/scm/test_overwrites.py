"""Files of the user that git does not track are never replaced, whether git ignores them or not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import Project
from ralph.scm.overwrites import named
from scm.overwrite_cases import CASES, FREE, IGNORE, Case
from scm.worktree_support import Place


def shell(directory: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=directory, check=True)


def contents(top: Path) -> dict[str, bytes]:
    """Every file and link below a directory, without git's."""
    found = {}
    for root, directories, names in os.walk(top):
        directories[:] = [name for name in directories if name != ".git"]
        for name in (*names, *(name for name in directories if os.path.islink(os.path.join(root, name)))):
            path = Path(root) / name
            found[os.path.relpath(path, top)] = (
                os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            )
    return found


@pytest.fixture
def place(repository: Project, tmp_path: Path) -> Place:
    (repository.path / ".gitignore").write_text(IGNORE)
    repository.git("add", "-A")
    repository.git("commit", "-qm", "Ignore")
    return Place(repository, tmp_path)


def prepared(place: Place, case: Case) -> str:
    """Both sides of a case; returns the commit."""
    shell(place.project.path, case.mine)
    shell(place.path, case.theirs)
    place.git("commit", "-qm", "Theirs")
    return place.git("rev-parse", "HEAD").strip()


@pytest.mark.parametrize("name", CASES)
def test_what_a_commit_would_replace_is_named(place: Place, name: str) -> None:
    """It is found by its path, and git refuses too should it appear after the look."""
    commit = prepared(place, CASES[name])
    before = contents(place.project.path)
    assert tuple(place.checkout.in_the_way(commit)) == CASES[name].found
    assert place.checkout.advance(commit).startswith("git merge --ff-only failed: error: ")
    assert contents(place.project.path) == before
    assert place.project.git("rev-parse", "main").strip() == place.began


@pytest.mark.parametrize("name", FREE)
def test_what_a_commit_would_not_replace(place: Place, name: str) -> None:
    """The checkout is moved forward, and only the commit's own files are written."""
    commit = prepared(place, FREE[name])
    before = contents(place.project.path)
    assert place.checkout.in_the_way(commit) == []
    assert place.checkout.advance(commit) == ""
    after = contents(place.project.path)
    assert {path: data for path, data in after.items() if path in before} == before
    assert place.project.git("status", "--porcelain") == ""
    assert place.project.git("rev-parse", "main").strip() == commit


def test_a_refused_merge_leaves_the_index_alone(place: Place) -> None:
    """A file with the same content is untracked again."""
    commit = prepared(place, Case("echo theirs > .env; echo x >> README.md", CHANGES_BOTH, ()))
    assert "overwritten by merge: README.md" in place.checkout.advance(commit)
    assert place.project.git("status", "--porcelain") == " M README.md\n"
    assert (place.project.path / ".env").read_text() == "theirs\n"


CHANGES_BOTH = "echo theirs > .env; git add -f .env; echo y >> README.md; git add README.md"


def test_tracked_files_are_not_in_the_way(place: Place) -> None:
    """A tracked directory that becomes a file, with one ignored file in it: only that one."""
    shell(place.path, "mkdir lib; echo 1 > lib/a; git add lib; git commit -qm Lib")
    place.project.git("merge", "-q", "--ff-only", "ralph/T")
    commit = prepared(place, Case("echo mine > lib/x.log", "rm -r lib; echo theirs > lib; git add -A", ()))
    assert place.checkout.in_the_way(commit) == ["lib/x.log"]
    (place.project.path / "lib/x.log").unlink()
    assert place.checkout.in_the_way(commit) == []
    assert place.checkout.advance(commit) == ""


def test_names_in_messages() -> None:
    """At most ten, quoted for a shell, and without control characters."""
    assert named(["a", "b c", "d\ne", "\udcff"]) == "a, 'b c', 'd\\ne', '\ufffd'"
    assert named([str(n) for n in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


# ---- a fast-forward that was cut off ----


@pytest.mark.parametrize("text", ["", "th", "theirs\n"])
def test_ignored_files_are_not_taken_back(place: Place, text: str) -> None:
    """A file that git ignores stays, even if it is the beginning of what the commit has."""
    commit = prepared(place, Case("true", "sed -i 1d .gitignore; echo theirs > .env; git add -A", ()))
    (place.project.path / ".env").write_text(text)
    (place.project.path / ".gitignore").write_text(IGNORE.replace("/.env\n", ""))
    place.checkout.take_back(commit)
    assert contents(place.project.path)[".env"].decode() == text
    assert (place.project.path / ".gitignore").read_text() == IGNORE


def test_nothing_is_taken_back_behind_a_link(place: Place) -> None:
    """A file elsewhere that looks half-written is not git's."""
    commit = prepared(place, CASES["a directory behind a link"])
    far = place.project.path.parent / "far/deep/x"
    far.write_text("th")
    place.checkout.take_back(commit)
    assert far.read_text() == "th"
