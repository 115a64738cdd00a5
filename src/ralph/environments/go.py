"""Go: module and build caches are shared, because they go by content; settings with paths lead to the copy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralph.environments.base import Copy, Tools, directories, inside
from ralph.environments.copying import bring_ignored, has_link, text_of

name = "Go"
sources: Sequence[str] = (".go",)

_SKIPPED = frozenset({"node_modules", "vendor", ".venv", "venv", "testdata"})
_FILES = ("go.mod", "go.work")

_PATHS = (
    *("GOFLAGS", "GOWORK", "GOBIN", "GOPATH", "GOTMPDIR"),
    *("CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "PKG_CONFIG_PATH"),
)
"""Settings with paths in them, in variables or in the file that `go env -w` writes."""

_PATH = re.compile(
    r'"(?P<quoted>(?:\.{1,2}/|/)[^"\n]*)"|(?<=[\s(])(?P<plain>(?:\.{1,2}/|/)[^\s")]*|\.{1,2}(?=\s|$))'
)
"""A path in a go.mod or go.work: it starts with a dot or a slash."""


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    """Whether the copy or the user's checkout has a module, or the checkout lies in a workspace."""
    return any(_places(copy)) or _workspace(copy, environment) is not None


def _places(copy: Copy) -> Iterator[Path]:
    """The directories with a module or workspace."""
    for directory in directories(copy.top, _SKIPPED):
        relative = directory.relative_to(copy.top)
        if any((top / relative / name).is_file() for top in (copy.top, copy.origin) for name in _FILES):
            yield relative


def prepare(copy: Copy, tools: Tools) -> None:
    """Copy what git ignores: vendored modules, and a workspace with its paths led to the copy."""
    for place in _places(copy):
        bring_ignored(copy, tools, place / "vendor")
        if not os.path.lexists(copy.top / place / "go.work") and bring_ignored(
            copy, tools, place / "go.work"
        ):
            _rewrite(copy, copy.top / place / "go.work", copy.origin / place)
            bring_ignored(copy, tools, place / "go.work.sum")
    workspace = _workspace(copy, tools.environment)
    if workspace is not None:
        for file in (workspace, workspace.with_suffix(".work.sum")):
            if file.is_file() and not has_link(copy, Path(copy.project)):
                _bring_workspace(copy, tools, file)


def _bring_workspace(copy: Copy, tools: Tools, file: Path) -> None:
    """Copy a workspace above the checkout, whose modules in the checkout become those of the copy."""
    target = copy.own / file.name
    if not target.exists():
        target.write_bytes(file.read_bytes())
        if file.suffix == ".work":
            _rewrite(copy, target, file.parent)
            tools.tell(f"{file} is used in the copy with the modules of the copy")


def _workspace(copy: Copy, environment: Mapping[str, str]) -> Path | None:
    """The go.work outside the checkout that the user's commands use."""
    chosen = _settings(environment).get("GOWORK", "")
    if chosen:
        path = Path(chosen)
        is_outside = path.is_absolute() and path.is_file() and inside(path, copy.origin) is None
        return path if is_outside else None
    for directory in (copy.origin_directory, *copy.origin_directory.parents):
        if (directory / "go.work").is_file():
            return directory / "go.work" if inside(directory, copy.origin) is None else None
    return None


def _rewrite(copy: Copy, file: Path, was: Path) -> None:
    """Lead the paths of a go.work that was in another directory to the copy; those outside become absolute."""

    def changed(match: re.Match[str]) -> str:
        path = match["quoted"] or match["plain"]
        reached = os.path.normpath(was / path)
        if (
            not os.path.isabs(path)
            and file.is_relative_to(copy.top)
            and inside(reached, copy.origin) is not None
        ):
            return match[0]
        return f'"{copy.moved(reached)}"'

    lines = [_PATH.sub(changed, line) for line in file.read_text().splitlines(keepends=True)]
    file.write_text("".join(lines))


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Settings that name the user's checkout, and the workspace above it. The module cache stays where it is."""
    settings = _settings(environment)
    found = {key: copy.repointed(settings[key]) for key in _PATHS if copy.leads_back(settings.get(key, ""))}
    if "GOPATH" in found and "GOMODCACHE" not in settings:
        found["GOMODCACHE"] = str(_module_cache(settings))
    if (copy.own / "go.work").is_file():
        found["GOWORK"] = str(copy.own / "go.work")
    return found


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of Go: variables, else what `go env -w` has written."""
    home = environment.get("HOME") or os.path.expanduser("~")
    usual = Path(environment.get("XDG_CONFIG_HOME") or Path(home) / ".config") / "go" / "env"
    mac = Path(home) / "Library" / "Application Support" / "go" / "env"
    written = "\n".join(text_of(path) for path in (Path(environment.get("GOENV") or usual), mac))
    found = dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    return found | {key: value for key, value in environment.items() if value}


def _module_cache(settings: Mapping[str, str]) -> Path:
    home = settings.get("HOME") or os.path.expanduser("~")
    path = settings.get("GOPATH", "").split(os.pathsep)[0] or os.path.join(home, "go")
    return Path(settings.get("GOMODCACHE") or Path(path) / "pkg" / "mod")


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    return "module and build caches are shared; paths in settings lead to the copy"


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Modules that a go.mod or go.work of the copy takes from the user's checkout."""
    return [
        f"{file.relative_to(copy.top)} takes {path}"
        for directory in directories(copy.top, _SKIPPED)
        for file in (directory / name for name in _FILES)
        for path in _absolute(file)
        if inside(path, copy.origin) is not None and inside(path, copy.top) is None
    ]


def _absolute(file: Path) -> list[str]:
    found = [match["quoted"] or match["plain"] for match in _PATH.finditer(text_of(file))]
    return [path for path in found if os.path.isabs(path)]


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """The module cache and the build cache."""
    settings = _settings(environment)
    home = settings.get("HOME") or os.path.expanduser("~")
    cache = Path(settings.get("XDG_CACHE_HOME") or Path(home) / ".cache") / "go-build"
    return [str(_module_cache(settings)), settings.get("GOCACHE") or str(cache)]
