"""What the snapshots of a run tell: which there are, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.errors import RalphError
from ralph.scm.git import Git, Runner, paths
from ralph.scm.repository import Repository
from ralph.scm.snapshots import ref_of


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one file: `A` added, `M` changed, `D` removed, `T` of another type."""

    kind: str
    path: str


class History:
    """The snapshots of one run in one repository."""

    def __init__(self, repository: Repository, run: Runner, run_id: str, scratch: Path) -> None:
        self.git = Git(repository, run)
        self._run = run_id
        self._index = scratch / "history-index"
        scratch.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The snapshots in the order in which they were taken; nested ones belong to another."""
        prefix = ref_of(self._run, "")
        listing = self.git.line(
            "for-each-ref", "--sort=creatordate", "--sort=version:refname", "--format=%(refname)", prefix
        )
        names = [ref.removeprefix(prefix) for ref in listing.splitlines()]
        return sorted((name for name in names if ".nested." not in name), key=_order)

    def numbered(self) -> list[str]:
        """Those before each iteration, and the last one at the end."""
        return [name for name in self.names() if name.isdigit()]

    def commit(self, name: str) -> str:
        found = self.git.attempt("rev-parse", "-q", "--verify", f"{ref_of(self._run, name)}^{{commit}}")
        if found.code:
            known = ", ".join(self.names())
            hint = f"There are: {known}." if known else "Its snapshots were off, or were pruned."
            raise RalphError(f"Run {self._run} has no snapshot {name!r}.", hint)
        return found.out.decode().strip()

    def changes(self, old: str, new: str) -> list[Change]:
        return changes_between(self.git, self.commit(old), self.commit(new), self._index)

    def diff(self, old: str, new: str, *options: str) -> str:
        """The difference between two snapshots as text."""
        self.git.disarm_filters()
        return self._diff(*options, self.commit(old), self.commit(new))

    def difference(self, old: str, new: str, path: str = "") -> str:
        """The difference between two trees, by any names of theirs; `path`: of one file."""
        return self._diff(old, new, "--", *([f":(top,literal){path}"] if path else []))

    def _diff(self, *arguments: str) -> str:
        """Without colours, and no program of the repository runs for it."""
        options = ("--no-ext-diff", "--no-textconv", "--no-color")
        return self.git("diff", *options, *arguments, index=self._index).decode(errors="replace")

    def changed_files(self, old: str, new: str, globs: Sequence[str]) -> list[str]:
        """Files of the old tree that match a glob and are changed or gone in the new one."""
        options = ("--name-only", "-z", "--no-renames", "--diff-filter=MDT")
        return paths(self.git("diff", *options, old, new, "--", *map(_pathspec, globs), index=self._index))

    def added_files(self, old: str, new: str, names: Sequence[str]) -> list[str]:
        """Files that only the new tree has, if a part of their path is one of these names; case does not matter."""
        options = ("--name-only", "-z", "--no-renames", "--diff-filter=A")
        added = paths(self.git("diff", *options, old, new, index=self._index))
        wanted = {name.casefold() for name in names}
        return [path for path in added if wanted.intersection(path.casefold().split("/"))]

    def forget(self) -> int:
        """Remove the refs of the run; returns how many there were."""
        refs = self.git.line("for-each-ref", "--format=%(refname)", ref_of(self._run, "")).splitlines()
        if refs:
            self.git("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode())
        return len(refs)


def changes_between(git: Git, old: str, new: str, index: Path) -> list[Change]:
    """What differs between two trees; `index` is a scratch file, so that a broken one does not matter."""
    fields = paths(git("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new, index=index))
    return [Change(kind[0], path) for kind, path in zip(fields[::2], fields[1::2], strict=True)]


def _pathspec(glob: str) -> str:
    """A name without a slash is meant wherever it is; a directory means all that is below it."""
    where = glob.rstrip("/")
    anywhere = "" if "/" in where else "**/"
    return f":(top,glob){anywhere}{where}" + ("/**" if glob.endswith("/") else "")


def _order(name: str) -> tuple[bool, int, int, str]:
    number, _, again = name.partition("-")
    if number.isdigit():
        return (False, int(number), int(again) if again.isdigit() else 0, "")
    return (True, 0, 0, name)
