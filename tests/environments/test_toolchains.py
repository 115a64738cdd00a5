"""What copies of projects with Go, Cargo, Maven and Gradle get, without their toolchains."""

from __future__ import annotations

from pathlib import Path

from environments.environment_support import Checkout, write
from ralph.environments import cargo, go, gradle, maven
from ralph.environments.registry import ECOSYSTEMS


def test_nothing_is_detected_in_an_empty_project(tmp_path: Path) -> None:
    """A project without files of an ecosystem needs nothing from it."""
    made = Checkout(tmp_path, {"README.md": "x\n"})
    copy, _ = made.copy("one")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    for each in (go, cargo, maven, gradle):
        assert not each.detect(copy, environment), each.name
        assert each.leads_out(copy, environment) == [], each.name
    for ecosystem in ECOSYSTEMS:
        assert ecosystem.variables(copy, environment) == {}, ecosystem.name


def test_settings_of_go(tmp_path: Path) -> None:
    """Paths in variables and in what `go env -w` wrote lead to the copy; the module cache stays."""
    made = Checkout(tmp_path, {"go.mod": "module x\n"})
    copy, _ = made.copy("one")
    top = made.origin
    write(tmp_path, {".config/go/env": f"GOFLAGS=-modfile={top}/other.mod -v\nGOBIN={top}/bin\n"})
    environment = {"HOME": str(tmp_path), "GOBIN": f"{top}/tools", "GOPATH": f"{top}/.go"}
    assert go.variables(copy, environment) == {
        "GOFLAGS": f"-modfile={copy.top}/other.mod -v",
        "GOBIN": f"{copy.top}/tools",
        "GOPATH": f"{copy.top}/.go",
        "GOMODCACHE": f"{top}/.go/pkg/mod",
    }
    assert go.reads(copy, environment) == [f"{top}/.go/pkg/mod", f"{tmp_path}/.cache/go-build"]


def test_modules_of_go_that_lead_out(tmp_path: Path) -> None:
    """An absolute `replace` into the user's checkout is listed; one to another directory is not."""
    origin = tmp_path / "user"
    replaced = f"replace (\n\ta => {origin}/a\n\tb => /elsewhere/b\n\tc => ./c\n)\n"
    made = Checkout(tmp_path, {"app/go.mod": f"module x\n\n{replaced}"})
    copy, _ = made.copy("one")
    assert go.leads_out(copy, {}) == [f"app/go.mod takes {origin}/a"]


def test_output_of_cargo(tmp_path: Path) -> None:
    """Output inside the copy or named after the workspace stays; any other place becomes one for each copy."""
    made = Checkout(tmp_path, {"Cargo.toml": "[workspace]\n"})
    copy, _ = made.copy("one")
    home = {"HOME": str(tmp_path)}
    mine = {"CARGO_TARGET_DIR": str(copy.own / "cargo-target-dir")}
    assert cargo.variables(copy, home) == {}
    assert cargo.variables(copy, home | {"CARGO_TARGET_DIR": "out"}) == {}
    assert cargo.variables(copy, home | {"CARGO_TARGET_DIR": "../out"}) == mine
    assert cargo.variables(copy, home | {"CARGO_TARGET_DIR": f"{made.origin}/target"}) == mine
    write(tmp_path, {".cargo/config.toml": "[build]\ntarget-dir = 'all'\nbuild-dir = '{workspace-root}/x'\n"})
    assert cargo.variables(copy, home) == mine
    flags = {"RUSTFLAGS": f"-L {made.origin}/native"}
    assert cargo.variables(copy, home | flags)["RUSTFLAGS"] == f"-L {copy.top}/native"


def test_packages_of_cargo_that_lead_out(tmp_path: Path) -> None:
    """A dependency with an absolute path in the user's checkout is listed."""
    origin = tmp_path / "user"
    manifest = f"[dependencies]\na = {{ path = '{origin}/a' }}\nb = {{ path = 'b' }}\n"
    made = Checkout(tmp_path, {"app/Cargo.toml": manifest})
    copy, _ = made.copy("one")
    assert cargo.leads_out(copy, {"HOME": str(tmp_path)}) == [f"app/Cargo.toml has {origin}/a"]


POM = "<project><groupId>org.example</groupId><artifactId>{}</artifactId>{}</project>"


def test_the_local_repository_of_maven(tmp_path: Path) -> None:
    """A copy sees everything but versions of the project's artefacts that were installed and not downloaded."""
    repository = tmp_path / "m2"
    top = repository / "org" / "example" / "top"
    write(repository, {"org/other/x.jar": "", "org/example/another/1/x.jar": "", "com/y.jar": ""})
    write(top, {"1/_remote.repositories": "#x\ntop.jar>central=\n", "2/_remote.repositories": "top.jar>=\n"})
    write(top, {"3/top.jar": "", "maven-metadata-local.xml": "", "maven-metadata-central.xml": ""})
    made = Checkout(tmp_path, {"pom.xml": POM.format("top", "")})
    copy, tools = made.copy("one")
    tools.environment = {**tools.environment, "MAVEN_OPTS": f"-Xmx1g -Dmaven.repo.local={repository}"}
    maven.prepare(copy, tools)
    view = copy.own / "m2-shared"
    assert sorted(path.name for path in (view / "org" / "example" / "top").iterdir()) == [
        "1",
        "maven-metadata-central.xml",
    ]
    assert sorted(path.name for path in (view / "org" / "example").iterdir()) == ["another", "top"]
    assert (view / "com").resolve() == (repository / "com").resolve()
    changed = maven.variables(copy, tools.environment)
    assert changed["MAVEN_OPTS"].split() == [
        "-Xmx1g",
        f"-Dmaven.repo.local={repository}",
        f"-Dmaven.repo.local={view}",
    ]
    assert f"-Dmaven.repo.local={copy.own}/m2 -Dmaven.repo.local.tail={view}" in changed["MAVEN_ARGS"]
    applied = {**tools.environment, **changed}
    assert maven.reads(copy, tools.environment) == maven.reads(copy, applied) == [str(repository)]
    assert maven.variables(copy, applied) == {}


def test_files_of_maven_that_lead_out(tmp_path: Path) -> None:
    """A pom.xml that names the user's checkout and a configured absolute repository are listed."""
    origin = tmp_path / "user"
    system = f"<systemPath>{origin}/x.jar</systemPath>"
    made = Checkout(
        tmp_path,
        {"pom.xml": POM.format("top", system), ".mvn/maven.config": "-Dmaven.repo.local=/all/m2\n"},
    )
    copy, _ = made.copy("one")
    assert maven.leads_out(copy, {}) == [
        f"pom.xml names {origin}",
        ".mvn/maven.config takes artefacts from /all/m2",
    ]


def test_what_gradle_needs(tmp_path: Path) -> None:
    """Ignored properties are copied; options lead to the copy; a project cache elsewhere becomes the copy's own."""
    made = Checkout(tmp_path, {"app/build.gradle": "", ".gitignore": "local.properties\n"})
    write(made.origin, {"app/local.properties": f"sdk.dir=/sdk\nkeys={made.origin}/keys\n"})
    copy, tools = made.copy("one")
    assert gradle.detect(copy, {})
    gradle.prepare(copy, tools)
    assert (copy.top / "app/local.properties").read_text() == f"sdk.dir=/sdk\nkeys={copy.top}/keys\n"
    environment = {
        "GRADLE_USER_HOME": str(tmp_path / "gradle"),
        "GRADLE_OPTS": f"-Xmx1g -Dorg.gradle.projectcachedir={made.origin}/x -Dkeys={made.origin}/keys",
        "ORG_GRADLE_PROJECT_keys": f"{made.origin}/keys",
    }
    assert gradle.variables(copy, environment) == {
        "GRADLE_OPTS": f"-Xmx1g -Dorg.gradle.projectcachedir={copy.top}/x -Dkeys={copy.top}/keys",
        "ORG_GRADLE_PROJECT_keys": f"{copy.top}/keys",
    }
    write(tmp_path / "gradle", {"gradle.properties": "org.gradle.projectcachedir=/all/cache\n"})
    del environment["GRADLE_OPTS"]
    changed = gradle.variables(copy, environment)
    assert changed["GRADLE_OPTS"] == f"-Dorg.gradle.projectcachedir={copy.own}/gradle"


def test_builds_of_gradle_that_lead_out(tmp_path: Path) -> None:
    """An included build in the user's checkout and the local repository of Maven are listed."""
    origin = tmp_path / "user"
    made = Checkout(
        tmp_path,
        {
            "settings.gradle": f"includeBuild '{origin}/library'\n",
            "build.gradle": "repositories { mavenLocal() }",
        },
    )
    copy, _ = made.copy("one")
    assert gradle.leads_out(copy, {"GRADLE_USER_HOME": str(tmp_path)}) == [
        f"settings.gradle names {origin}",
        "build.gradle takes artefacts from mavenLocal(), where this project may be published",
    ]


def test_a_tracked_file_that_was_deleted_stays_deleted(tmp_path: Path) -> None:
    """Only what git ignores is copied: a file that an agent has deleted does not come back."""
    made = Checkout(tmp_path, {"Cargo.toml": "", "vendor/x/lib.rs": "", ".cargo/config.toml": ""})
    copy, tools = made.copy("one")
    (copy.top / "vendor/x/lib.rs").unlink()
    (copy.top / "vendor/x").rmdir()
    (copy.top / "vendor").rmdir()
    (copy.top / ".cargo/config.toml").unlink()
    cargo.prepare(copy, tools)
    assert not (copy.top / "vendor").exists()
    assert not (copy.top / ".cargo/config.toml").exists()
