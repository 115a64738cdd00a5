"""The commands that install what a project needs, by the files it has."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from msgspec import Struct

PYTHON, NODE, GO, CARGO, MAVEN = "Python", "Node", "Go", "Cargo", "Maven"
RUBY, PHP = "Ruby", "PHP"


class Installer(Struct, frozen=True):
    """A file that a project has, and the command that installs what it asks for.

    `makes`: the directory in the project where that is then found; "" if it is elsewhere. `is_lock`: whether the file
    pins what is installed.
    """

    file: str
    ecosystem: str
    command: str
    makes: str = ""
    is_lock: bool = True


INSTALLERS = (
    Installer("uv.lock", PYTHON, "uv sync", ".venv"),
    Installer("poetry.lock", PYTHON, "poetry install"),
    Installer("pdm.lock", PYTHON, "pdm install", ".venv"),
    Installer("Pipfile.lock", PYTHON, "pipenv sync --dev"),
    Installer(
        "requirements.txt",
        PYTHON,
        "python -m venv .venv && .venv/bin/pip install -r requirements.txt",
        is_lock=False,
    ),
    Installer("pyproject.toml", PYTHON, "python -m venv .venv && .venv/bin/pip install -e .", is_lock=False),
    Installer("setup.py", PYTHON, "python -m venv .venv && .venv/bin/pip install -e .", is_lock=False),
    Installer("package-lock.json", NODE, "npm ci", "node_modules"),
    Installer("npm-shrinkwrap.json", NODE, "npm ci", "node_modules"),
    Installer("pnpm-lock.yaml", NODE, "pnpm install --frozen-lockfile", "node_modules"),
    Installer(".yarnrc.yml", NODE, "yarn install --immutable", is_lock=False),
    Installer("yarn.lock", NODE, "yarn install --frozen-lockfile", "node_modules"),
    Installer("bun.lock", NODE, "bun install --frozen-lockfile", "node_modules"),
    Installer("bun.lockb", NODE, "bun install --frozen-lockfile", "node_modules"),
    Installer("package.json", NODE, "npm install", "node_modules", is_lock=False),
    Installer("go.mod", GO, "go mod download", is_lock=False),
    Installer("Cargo.toml", CARGO, "cargo fetch", is_lock=False),
    Installer("pom.xml", MAVEN, "mvn -q dependency:go-offline", is_lock=False),
    Installer("Gemfile.lock", RUBY, "bundle install"),
    Installer("composer.lock", PHP, "composer install", "vendor"),
)
"""The best one of each ecosystem comes first."""


def installers(files: Collection[str], directory: str = ".") -> list[Installer]:
    """The best installer of each ecosystem for a project with these files, in this directory of its repository."""
    found: dict[str, Installer] = {}
    for each in INSTALLERS:
        if posixpath.normpath(posixpath.join(directory, each.file)) in files:
            found.setdefault(each.ecosystem, each)
    return list(found.values())
