"""A guardrail in a fresh copy catches "works on my machine"."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import Project

DONE = "echo '<response>DONE</response>'"


def run(project: Project, body: str, command: str, directory: str = ".") -> tuple[int, str]:
    project.agent(
        f"{body}; {DONE}",
        guardrails=[{"command": command, "clean": True}],
        maximumIterations=1,
        protect=False,
    )
    ended = project.run("run", "-p", "x")
    return ended.code, ended.err


def test_work_that_needs_an_ignored_file_is_red(repository: Project) -> None:
    """Work that runs in the tree but not in a clone does not complete."""
    (repository.path / ".gitignore").write_text("local\n")
    works_here = "echo 'echo hi' > local; echo '. ./local' > product.sh"
    assert run(repository, works_here, "sh product.sh")[0] == 1
    works_anywhere = "echo 'echo hi' > product.sh"
    assert run(repository, works_anywhere, "sh product.sh")[0] == 0


def test_the_copy_has_everything_else(repository: Project) -> None:
    """Tracked, changed, new and nested files are copied with their modes, and the originals stay untouched."""
    body = "echo changed > README.md; mkdir -p a/b; echo new > a/b/new; printf '#!/bin/sh\n' > x.sh; chmod +x x.sh"
    check = "grep -q changed README.md && grep -q new a/b/new && ./x.sh && touch only-in-the-copy"
    assert run(repository, body, check)[0] == 0
    assert not (repository.path / "only-in-the-copy").exists()
    assert "new file" not in repository.git("status"), "nothing was staged"


def test_without_a_repository_it_is_red(project: Project) -> None:
    """Without git there is no clean copy, and the message says so."""
    code, err = run(project, "true", "true")
    assert (code, "A clean guardrail needs a git repository" in err) == (1, True)


def test_nothing_is_left(repository: Project) -> None:
    """The copy is removed after the guardrail."""
    assert run(repository, "true", f"pwd > {repository.path}/where")[0] == 0
    where = (repository.path / "where").read_text().strip()
    assert where.endswith(f"/{repository.path.name}"), "the copy has the name of the project"
    assert where != str(repository.path)
    assert not Path(where).exists()


def test_git_works_in_the_copy(repository: Project) -> None:
    """The copy is a repository with the same commits, branches and tags; what a check does there stays there."""
    repository.git("tag", "v1.2")
    check = "git describe --tags && git log -1 && git status && git tag made-by-a-check && git branch -D main; true"
    assert run(repository, "echo new > new.txt", f"{check} && git ls-files --error-unmatch new.txt")[0] == 0
    assert repository.git("tag").split() == ["v1.2"]


def test_files_with_a_filter_have_their_content(repository: Project) -> None:
    """A file that git stores through a filter (as of Git LFS) is in the copy as it is in the project."""
    repository.git("config", "filter.big.clean", "sed s/content/pointer/")
    repository.git("config", "filter.big.smudge", "sed s/pointer/content/")
    (repository.path / ".gitattributes").write_text("*.big filter=big\n")
    (repository.path / "a.big").write_text("content\n")
    os.utime(repository.path / "a.big", (1, 1))
    repository.git("add", "-A")
    repository.git("commit", "-qm", "A large file")
    assert run(repository, "true", "grep content a.big")[0] == 0
