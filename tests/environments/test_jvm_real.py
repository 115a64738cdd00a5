"""Copies of projects of Maven and Gradle build and run their own code, with the toolchain of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from environments.environment_support import REGISTRY, Checkout, Subprocesses, installed_here, write
from ralph.environments import gradle, maven
from ralph.environments.base import Copy, ToolOutput

pytestmark = REGISTRY

MODULE = """<project><modelVersion>4.0.0</modelVersion>
  <parent><groupId>localhost.test</groupId><artifactId>top</artifactId><version>1-SNAPSHOT</version></parent>
  <artifactId>{name}</artifactId>{more}
</project>
"""
NEEDS_LIBRARY = """<dependencies><dependency><groupId>localhost.test</groupId>
  <artifactId>library</artifactId><version>1-SNAPSHOT</version></dependency></dependencies>"""
PLUGINS = "".join(
    f"<plugin><artifactId>maven-{name}-plugin</artifactId><version>{version}</version></plugin>"
    for name, version in {
        "resources": "3.3.1",
        "compiler": "3.13.0",
        "jar": "3.4.1",
        "install": "3.1.2",
    }.items()
)
TOP = f"""<project><modelVersion>4.0.0</modelVersion>
  <groupId>localhost.test</groupId><artifactId>top</artifactId><version>1-SNAPSHOT</version>
  <packaging>pom</packaging><modules><module>library</module><module>app</module></modules>
  <properties><maven.compiler.source>8</maven.compiler.source><maven.compiler.target>8</maven.compiler.target>
  <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>
  <build><pluginManagement><plugins>{PLUGINS}</plugins></pluginManagement></build>
</project>
"""
RIGHT = "package library; public class Library { public static int answer() { return 42; } }\n"
WRONG = "package library; public class Library { public static String answer() { return null; } }\n"
LIBRARY = "library/src/main/java/library/Library.java"
APP = "package app; public class App { int answer = library.Library.answer(); }\n"
MAVEN = {
    "pom.xml": TOP,
    "library/pom.xml": MODULE.format(name="library", more=""),
    "app/pom.xml": MODULE.format(name="app", more=NEEDS_LIBRARY),
    LIBRARY: RIGHT,
    "app/src/main/java/app/App.java": APP,
    ".gitignore": "target\n",
}
INSTALL = ("compile", "jar:jar", "install:install")
"""Without tests, whose plugin needs much more from Maven's central repository."""

MVN = ("mvn", "-B", "-q", *(["-o"] if os.environ.get("RALPH_MAVEN_OFFLINE") else []))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The user's checkout; its library is in a local repository that has nothing else of this project."""
    tool = installed_here("mvn")
    home = tmp_path / "home"
    users = Path.home() / ".m2" / "repository"
    (home / ".m2" / "repository").mkdir(parents=True)
    for entry in sorted(set(users.glob("*")) - {users / "localhost"}):  # the group of this project
        (home / ".m2" / "repository" / entry.name).symlink_to(entry)
    variables = {"HOME": str(home), "MAVEN_OPTS": f"-Duser.home={home}"}
    made = Checkout(tmp_path, MAVEN, tool, variables=variables)
    done = made.run(*MVN, *INSTALL)
    if done.code != 0:
        pytest.skip(f"Maven cannot build a small project here: {done.output[:300]}")
    return made


def prepared(checkout: Checkout, name: str) -> tuple[Copy, Subprocesses]:
    copy, tools = checkout.copy(name)
    maven.prepare(copy, tools)
    return copy, tools


def test_a_maven_copy_compiles_its_own_modules(checkout: Checkout) -> None:
    """A check is red if the copy is broken, and green if it is fixed, whatever the user's checkout has."""
    copy, _ = prepared(checkout, "one")
    assert maven.detect(copy, checkout.environment)
    done = checkout.check(copy, maven, *MVN, "compile")
    assert done.code == 0, done.output
    write(copy.top, {LIBRARY: WRONG})
    assert checkout.check(copy, maven, *MVN, "compile").code != 0
    assert checkout.run(*MVN, "compile").code == 0
    write(copy.top, {LIBRARY: RIGHT})
    write(checkout.origin, {LIBRARY: WRONG})
    assert checkout.check(copy, maven, *MVN, "compile").code == 0
    assert checkout.run(*MVN, "compile").code != 0
    assert maven.leads_out(copy, checkout.environment) == []


def test_a_maven_copy_does_not_take_what_the_user_has_installed(checkout: Checkout) -> None:
    """A module that is not built with the others is missing, not taken from the user's local repository."""
    assert checkout.run(*MVN, "-pl", "app", "compile").code == 0
    copy, _ = prepared(checkout, "one")
    missing = checkout.check(copy, maven, *MVN, "-pl", "app", "compile")
    assert missing.code != 0
    assert "library" in missing.output
    assert checkout.check(copy, maven, *MVN, "-pl", "app", "-am", "compile").code == 0


def test_what_a_maven_copy_installs_stays_with_it(checkout: Checkout) -> None:
    """`mvn install` in a copy serves later commands there and leaves the user's local repository as it was."""
    users = Path(checkout.environment["HOME"]) / ".m2" / "repository" / "localhost"
    before = {path: path.stat().st_mtime_ns for path in sorted(users.rglob("*"))}
    copy, _ = prepared(checkout, "one")
    write(copy.top, {LIBRARY: WRONG})
    done = checkout.check(copy, maven, *MVN, *INSTALL, "-pl", "library", "-am")
    assert done.code == 0, done.output
    broken = checkout.check(copy, maven, *MVN, "-pl", "app", "compile")
    assert broken.code != 0
    assert "incompatible types" in broken.output
    assert {path: path.stat().st_mtime_ns for path in sorted(users.rglob("*"))} == before


GRADLE = {
    "settings.gradle": "include 'library', 'app'\n",
    "build.gradle": "subprojects { apply plugin: 'java' }\n",
    "app/build.gradle": "dependencies { compile project(':library') }\n",
    LIBRARY: RIGHT,
    "app/src/main/java/app/App.java": APP,
    ".gitignore": "build\n.gradle\n",
}


def test_a_gradle_copy_compiles_its_own_modules(tmp_path: Path) -> None:
    """A check is red if the copy is broken, and green if it is fixed, with one Gradle home and daemon for both."""
    tool = installed_here("gradle")
    users = Checkout(tmp_path, GRADLE, tool, variables={"GRADLE_USER_HOME": str(tmp_path / "gradle")})
    if "Gradle 4" not in users.run("gradle", "--version").output:
        write(users.origin, {"app/build.gradle": "dependencies { implementation project(':library') }\n"})
        users.commit(users.origin)
    build = ("gradle", "-q", "--offline", "compileJava")
    done = users.run(*build)
    assert done.code == 0, done.output
    copy, tools = users.copy("one")
    gradle.prepare(copy, tools)

    def checked() -> ToolOutput:
        return users.check(copy, gradle, *build)

    assert checked().code == 0
    write(copy.top, {LIBRARY: WRONG})
    assert checked().code != 0
    assert users.run(*build).code == 0
    write(copy.top, {LIBRARY: RIGHT})
    write(users.origin, {LIBRARY: WRONG})
    assert checked().code == 0
    assert users.run(*build).code != 0
    assert gradle.leads_out(copy, users.environment) == []
    users.run("gradle", "--stop")
