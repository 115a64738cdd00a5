"""Projects of Node, Go, Cargo, Maven and Gradle whose usual setup leads a copy back to the user's checkout.

In each of them one package uses another one, by a link or an artefact that the user's installation has made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conftest import Project
from environments import test_go_and_cargo_real as compiled
from environments import test_jvm_real as jvm
from environments import test_node_real as node
from environments.environment_support import from_npm, go_tools, installed_here
from environments.package_support import Checkout, Package, hashes, write
from work_support import Site


@dataclass(frozen=True)
class Kind:
    """A project, and both texts of the file that an agent breaks or fixes.

    `complaint`: what the check prints if it is broken. `tools`: the directory of its program. `installed`: what is in
    the checkout or, after OUTER/, next to it, and no copy may change.
    """

    package: Package
    right: str
    wrong: str
    complaint: str
    tools: Path
    installed: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def checkout(self, project: Project, code: str) -> Checkout:
        """The user's checkout: installed when the code was right, then with this code."""
        outer = str(project.path.parent)
        inherited = {
            name: ""
            for name in os.environ
            if name == "CI" or name.startswith(("npm_", "NODE_PATH", "NODE_OPTIONS"))
        }
        project.extra_env |= inherited | {
            "HOME": str(Path.home()),
            "PATH": os.pathsep.join([str(self.tools), os.environ["PATH"]]),
            **{name: value.replace("OUTER", outer) for name, value in self.env.items()},
        }
        write(project.path, {**self.package.files, self.package.code: self.right})
        project.git("init", "-q", "-b", "main")
        project.git("config", "user.name", "Ada")
        project.git("config", "user.email", "ada@localhost")
        made = Checkout(Site(project), self.package)
        made.shell(self.package.install)
        made.commit({}, "First")
        if code != self.right:
            made.commit({self.package.code: code}, "Broken by its user")
        return made

    def state(self, project: Project) -> dict[str, str]:
        """Every byte that the user has installed."""
        found = hashes(
            *(
                project.path.parent / each.removeprefix("OUTER/")
                if each.startswith("OUTER/")
                else project.path / each
                for each in self.installed
            )
        )
        assert found
        return found


def _of_node(name: str) -> Kind:
    manager = next(each for each in node.MANAGERS if each.name == name)
    tools = from_npm(manager.package, manager.version) if manager.package else installed_here("npm")
    package = Package(
        node.project(manager),
        f"{manager.command} install",
        check=f"{manager.command} run test",
        code="packages/a/index.js",
    )
    wrong = "throw new Error('broken by its author')\n"
    installed = (".yarn",) if manager.is_plug_and_play else ("node_modules",)
    return Kind(package, node.RIGHT, wrong, "broken by its author", tools, installed)


def _of_go() -> Kind:
    """The user has a go.work with absolute paths, which git ignores."""
    work = compiled.WORKSPACE.format(top="$PWD/")
    package = Package(
        compiled.GO,
        f"cat > go.work <<END\n{work}END\nmkdir ../installed; cp go.work ../installed; cd app; go test ./...",
        check="cd app && go test ./...",
        code="library/library.go",
    )
    env = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOENV": "off", "GOFLAGS": ""}
    installed = ("OUTER/installed",)
    return Kind(package, compiled.GO_RIGHT, compiled.GO_WRONG, "wrong", go_tools(), installed, env)


def _of_cargo() -> Kind:
    """One directory for the output of all checkouts, where Cargo could take an artefact of another one."""
    test = " ".join(compiled.TEST)
    package = Package(compiled.CARGO, test, check=test, code="library/src/lib.rs")
    right, wrong = compiled.CARGO_RIGHT, compiled.CARGO_WRONG
    env = {"CARGO_TARGET_DIR": "OUTER/target"}
    return Kind(
        package,
        right,
        wrong,
        "test failed, to rerun pass `-p app --lib`",
        installed_here("cargo"),
        ("OUTER/target",),
        env,
    )


def _of_maven() -> Kind:
    """The user has installed the library into the local repository."""
    mvn, here = " ".join(jvm.MVN), Path.home() / ".m2" / "repository"
    install = f'mkdir -p ../home/.m2/repository; ln -s "{here}"/* ../home/.m2/repository; rm -f ../home/.m2/repository/localhost; {mvn} {" ".join(jvm.INSTALL)}'
    package = Package(jvm.MAVEN, install, check=f"{mvn} compile", code=jvm.LIBRARY)
    installed = ("OUTER/home/.m2/repository/localhost",)
    env = {"MAVEN_OPTS": "-Duser.home=OUTER/home"}
    return Kind(package, jvm.RIGHT, jvm.WRONG, "incompatible types", installed_here("mvn"), installed, env)


def _of_gradle() -> Kind:
    """All checkouts share one home of Gradle with its daemon."""
    files = {**jvm.GRADLE, "app/build.gradle": "dependencies { implementation project(':library') }\n"}
    build = "gradle -q --offline compileJava"
    package = Package(files, build, check=build, code=jvm.LIBRARY)
    tools, env = installed_here("gradle"), {"GRADLE_USER_HOME": "OUTER/gradle"}
    return Kind(package, jvm.RIGHT, jvm.WRONG, "incompatible types", tools, ("library/build",), env)


NODE = ("npm", "pnpm-12", "yarn-classic", "yarn-pnp", "bun")
NAMES = (*NODE, "go", "cargo", "maven", "gradle")


def kind_of(name: str) -> Kind:
    """A kind of project. The test is skipped if its package manager is missing and cannot be installed."""
    others = {"go": _of_go, "cargo": _of_cargo, "maven": _of_maven, "gradle": _of_gradle}
    return others[name]() if name in others else _of_node(name)
