"""Gradle: its home with downloads and the build cache is shared; the project's cache and build output are the copy's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralph.environments.base import Copy, Tools, directories, inside, repointed_list
from ralph.environments.copying import bring_ignored, text_of

name = "Gradle"
sources: Sequence[str] = (".java", ".kt", ".groovy", ".scala")

_SKIPPED = frozenset({"node_modules", "build", ".gradle", ".venv", "venv", "src"})
_SCRIPTS = ("settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")
_IGNORED = ("local.properties", "gradle.properties", "gradle/wrapper/gradle-wrapper.jar")
_PATHS = ("GRADLE_OPTS", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_CACHE = "org.gradle.projectcachedir"


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    """Whether the copy has a build of Gradle."""
    return any(_places(copy))


def _places(copy: Copy) -> Iterator[Path]:
    for directory in directories(copy.top, _SKIPPED):
        if any((directory / script).is_file() for script in _SCRIPTS):
            yield directory.relative_to(copy.top)


def prepare(copy: Copy, tools: Tools) -> None:
    """Copy what git ignores: the place of an SDK, properties and the wrapper."""
    for place in dict.fromkeys((Path(), *_places(copy))):
        for file in _IGNORED:
            bring_ignored(copy, tools, place / file)


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Options and properties lead to the copy; a project cache outside the copy becomes its own."""
    names = [key for key in environment if key in _PATHS or key.startswith("ORG_GRADLE_PROJECT_")]
    found = {key: copy.repointed(environment[key]) for key in names if copy.leads_back(environment[key])}
    if "CLASSPATH" in environment:
        found["CLASSPATH"] = repointed_list(copy, environment["CLASSPATH"])
    options = found.get("GRADLE_OPTS", environment.get("GRADLE_OPTS", ""))
    chosen = _project_cache(environment, options)
    if chosen and inside(copy.directory / chosen, copy.top) is None:
        options = re.sub(rf"-D{re.escape(_CACHE)}=\S+", "", options)
        found["GRADLE_OPTS"] = f"{options} -D{_CACHE}={copy.own / 'gradle'}".strip()
    return found


def _project_cache(environment: Mapping[str, str], options: str) -> str:
    """The directory for the project cache that the user has set for all projects."""
    texts = (options, text_of(_home(environment) / "gradle.properties"))
    found = (re.search(rf"(?m)(?:^|-D){re.escape(_CACHE)}\s*[=:]\s*(\S+)", text) for text in texts)
    return next((match[1] for match in found if match), "")


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME") or os.path.expanduser("~")
    return Path(environment.get("GRADLE_USER_HOME") or Path(home) / ".gradle")


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    return "its home is shared; every copy has its own project cache and build output"


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Scripts and properties that name the user's checkout, and builds that take artefacts from Maven's repository."""
    files = [
        copy.top / place / name
        for place in dict.fromkeys((Path(), *_places(copy)))
        for name in (*_SCRIPTS, *_IGNORED[:2])
    ]
    home = _home(environment)
    files += [home / "gradle.properties", home / "init.gradle", *sorted(home.glob("init.d/*.gradle*"))]
    found = []
    for file in files:
        text, shown = text_of(file), inside(file, copy.top) or file
        if copy.leads_back(text):
            found.append(f"{shown} names {copy.origin}")
        if file.name in _SCRIPTS and re.search(r"\bmavenLocal\s*\(", text):
            found.append(f"{shown} takes artefacts from mavenLocal(), where this project may be published")
    return found


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Gradle's home."""
    return [str(_home(environment))]
