"""Maven: the local repository is shared for reading, without what the user has installed there from this project."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ralph.environments.base import Copy, Tools, directories, inside, repointed_list
from ralph.environments.copying import bring_ignored, text_of

name = "Maven"
sources: Sequence[str] = (".java", ".kt", ".groovy", ".scala")

_SKIPPED = frozenset({"node_modules", "target", ".venv", "venv", "src"})
_PATHS = ("MAVEN_OPTS", "MAVEN_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_BASEDIR")
_CONFIGURATION = (".mvn/maven.config", ".mvn/jvm.config", ".mvn/extensions.xml", ".mvn/maven-user.properties")
_LOCAL = re.compile(r"-Dmaven\.repo\.local=(\S+)")


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    """Whether the copy has a project of Maven."""
    return any(_places(copy))


def _places(copy: Copy) -> Iterator[Path]:
    for directory in directories(copy.top, _SKIPPED):
        if (directory / "pom.xml").is_file():
            yield directory.relative_to(copy.top)


def prepare(copy: Copy, tools: Tools) -> None:
    """Make a view of the local repository without the project's own artefacts, and copy what git ignores."""
    for place in dict.fromkeys((Path(), *_places(copy))):
        for file in (*_CONFIGURATION, ".mvn/wrapper/maven-wrapper.jar"):
            bring_ignored(copy, tools, place / file)
    hidden = {artefact for place in _places(copy) for artefact in _artefacts(copy.top / place / "pom.xml")}
    (copy.own / "m2").mkdir(parents=True, exist_ok=True)
    _view(_repository(copy, tools.environment), _shared(copy), hidden)


def _shared(copy: Copy) -> Path:
    return copy.own / "m2-shared"


def _artefacts(pom: Path) -> Iterator[Path]:
    """Where the artefacts of a pom.xml are in a local repository."""
    try:
        project = ElementTree.fromstring(pom.read_bytes())
    except (OSError, ElementTree.ParseError):
        return
    group = project.findtext("{*}groupId") or project.findtext("{*}parent/{*}groupId") or ""
    artefact = (project.findtext("{*}artifactId") or "").strip()
    group = re.sub(
        r"\$\{project\.parent\.groupId\}", project.findtext("{*}parent/{*}groupId") or "", group.strip()
    )
    if group and artefact and not {"/", ".."} & {*group, artefact}:
        yield Path(*group.split("."), artefact)


def _view(repository: Path, view: Path, hidden: set[Path], at: Path = Path()) -> None:
    """Link what is in a local repository. Of hidden artefacts, only versions that were downloaded are linked."""
    (view / at).mkdir(parents=True, exist_ok=True)
    if at in hidden:
        _link(
            repository / at,
            view / at,
            [each for each in _names(repository / at) if _is_remote(repository / at / each)],
        )
        return
    below = {path.parts[len(at.parts)] for path in hidden if path.is_relative_to(at)}
    for each in below:
        _view(repository, view, hidden, at / each)
    _link(repository / at, view / at, [each for each in _names(repository / at) if each not in below])


def _link(repository: Path, view: Path, names: Sequence[str]) -> None:
    for each in names:
        if not os.path.lexists(view / each):
            (view / each).symlink_to(repository / each)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _is_remote(version: Path) -> bool:
    """Whether a version of an artefact was downloaded and not installed from a project."""
    if not version.is_dir():
        return version.name != "maven-metadata-local.xml"
    origins = re.findall(r"^[^#\n]*>(.*)=$", text_of(version / "_remote.repositories"), re.MULTILINE)
    return bool(origins) and all(origins)


def _repository(copy: Copy, environment: Mapping[str, str]) -> Path:
    """The local repository of the user."""
    for text in (environment.get("MAVEN_ARGS", ""), environment.get("MAVEN_OPTS", "")):
        if found := [path for path in _LOCAL.findall(text) if inside(path, copy.own) is None]:
            return Path(found[-1])
    home = _home(environment)
    chosen = re.search(r"<localRepository>\s*(.*?)\s*<", text_of(Path(home) / ".m2" / "settings.xml"))
    if chosen:
        return Path(
            chosen[1].replace("${user.home}", home).replace("${env.HOME}", environment.get("HOME", home))
        )
    return Path(home) / ".m2" / "repository"


def _home(environment: Mapping[str, str]) -> str:
    """The home directory as Java sees it: not HOME, but the user's entry."""
    for key in ("MAVEN_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        if chosen := re.search(r"-Duser\.home=(\S+)", environment.get(key, "")):
            return chosen[1]
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return environment.get("HOME", "")


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The local repository of the copy. Maven before 3.9 knows no MAVEN_ARGS and works in the view itself."""
    found = {
        key: copy.repointed(environment[key]) for key in _PATHS if copy.leads_back(environment.get(key, ""))
    }
    if "CLASSPATH" in environment:
        found["CLASSPATH"] = repointed_list(copy, environment["CLASSPATH"])
    shared = _shared(copy)
    if shared.is_dir() and " " not in str(shared):
        added = {
            "MAVEN_OPTS": f"-Dmaven.repo.local={shared}",
            "MAVEN_ARGS": f"-Dmaven.repo.local={copy.own / 'm2'} -Dmaven.repo.local.tail={shared}",
        }
        for key, words in added.items():
            before = found.get(key, environment.get(key, ""))
            if words not in before:
                found[key] = f"{before} {words}".strip()
    return found


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    return "the local repository is shared, without what was installed there from this project"


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Files that name the user's checkout, and a local repository that cannot be replaced."""
    files = [place / "pom.xml" for place in _places(copy)]
    files += [place / file for place in dict.fromkeys((Path(), *_places(copy))) for file in _CONFIGURATION]
    found = [f"{file} names {copy.origin}" for file in files if copy.leads_back(text_of(copy.top / file))]
    if " " in str(copy.own):
        found.append(f"Maven takes modules that are not built from {_repository(copy, environment)}")
    for file in files:
        chosen = _LOCAL.search(text_of(copy.top / file)) if file.name == "maven.config" else None
        if chosen and os.path.isabs(chosen[1]) and inside(chosen[1], copy.top) is None:
            found.append(f"{file} takes artefacts from {chosen[1]}")
    return found


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """The local repository of the user."""
    return [str(_repository(copy, environment))]
