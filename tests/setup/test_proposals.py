"""Guardrails that are proposed for each kind of repository."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralph.setup.proposals import proposed_guardrails


def package(**scripts: str) -> str:
    return json.dumps({"scripts": scripts})


ALL_SCRIPTS = package(
    build="tsc -b", test="vitest run", lint="eslint .", typecheck="tsc --noEmit", dev="vite"
)

KINDS: list[tuple[str, dict[str, str], list[str]]] = [
    ("nothing", {}, []),
    ("npm", {"package.json": ALL_SCRIPTS, "package-lock.json": "{}"}, ["npm run lint", "npm run typecheck", "npm test", "npm run build"]),
    ("npm without a lock", {"package.json": package(test="jest")}, ["npm test"]),
    ("pnpm", {"package.json": package(test="jest", lint="eslint ."), "pnpm-lock.yaml": ""}, ["pnpm run lint", "pnpm test"]),
    ("yarn", {"package.json": package(test="jest", lint="eslint ."), "yarn.lock": ""}, ["yarn run lint", "yarn test"]),
    ("bun", {"package.json": package(test="vitest run"), "bun.lock": ""}, ["bun run test"]),
    ("older bun", {"package.json": package(lint="eslint ."), "bun.lockb": ""}, ["bun run lint"]),
    ("a named package manager", {"package.json": '{"packageManager": "pnpm@9.1.0", "scripts": {"test": "jest"}}'}, ["pnpm test"]),
    ("another name for it", {"package.json": package(**{"type-check": "tsc"})}, ["npm run type-check"]),
    ("npm's placeholder", {"package.json": package(test='echo "Error: no test specified" && exit 1')}, []),
    ("a script that never ends", {"package.json": package(test="jest --watch", lint="eslint --watchAll")}, []),
    ("a script that ends", {"package.json": package(test="jest --watch=false")}, ["npm test"]),
    ("pytest, ruff, mypy", {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\n"}, ["ruff check", "mypy .", "pytest"]),
    ("mypy that knows its files", {"pyproject.toml": '[tool.mypy]\nfiles = ["src"]\n'}, ["mypy"]),
    ("uv", {"pyproject.toml": '[dependency-groups]\ndev = ["pytest>=8", "Ruff"]\n', "uv.lock": ""}, ["uv run ruff check", "uv run pytest"]),
    ("poetry", {"pyproject.toml": '[tool.poetry.group.dev.dependencies]\npytest = "^8"\n'}, ["poetry run pytest"]),
    ("pdm", {"pyproject.toml": '[project.optional-dependencies]\ntest = ["pytest[x] ~= 8"]\n', "pdm.lock": ""}, ["pdm run pytest"]),
    ("files of the tools", {"pytest.ini": "", "ruff.toml": "", "mypy.ini": ""}, ["ruff check", "mypy .", "pytest"]),
    ("Python without any of them", {"pyproject.toml": '[project]\nname = "pytest"\ndependencies = ["click"]\n'}, []),
    ("make", {"Makefile": "all: build\nbuild test: deps\n\techo\nlint:\n\techo\n"}, ["make lint", "make test", "make build"]),
    ("make check", {"makefile": "check: ; true\ntest:: ; true\n"}, ["make check", "make test"]),
    ("make check as a summary", {"Makefile": "check: lint test\nlint:\ntest:\n"}, ["make lint", "make test"]),
    ("no targets", {"Makefile": "test := 1\nlint = x\n# build: no\n\tcheck: no\n.PHONY: test\n"}, []),
    ("make before the rest", {"Makefile": "test:\n", "Cargo.toml": "", "package.json": package(test="jest")}, ["cargo clippy", "make test"]),
    ("Rust", {"Cargo.toml": ""}, ["cargo clippy", "cargo test"]),
    ("Go", {"go.mod": ""}, ["go vet ./...", "go test ./..."]),
    ("two at once", {"go.mod": "", "package.json": package(test="jest")}, ["go vet ./...", "npm test", "go test ./..."]),
    ("Maven", {"mvnw": "+x"}, ["./mvnw verify"]),
    ("Gradle", {"gradlew": "+x"}, ["./gradlew check"]),
    ("a wrapper without its mode", {"gradlew": ""}, ["sh ./gradlew check"]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "proposed"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_checks_of_a_repository_are_proposed(
    tmp_path: Path, files: dict[str, str], proposed: list[str]
) -> None:
    """Each kind of repository gets the commands that people would type in it, quick ones first."""
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755 if text == "+x" else 0o644)
    assert list(proposed_guardrails(tmp_path)) == proposed


ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.just("pytest"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["scripts", "test"]), inner),
    max_leaves=8,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(package=ODD | st.binary(max_size=50), other=st.binary(max_size=80))
def test_garbage_yields_neither_proposals_nor_errors(tmp_path: Path, package: Any, other: bytes) -> None:
    """Whatever the files contain, reading them does not fail; each proposal is one line that can be run."""
    data = package if isinstance(package, bytes) else json.dumps(package).encode()
    (tmp_path / "package.json").write_bytes(data)
    (tmp_path / "pyproject.toml").write_bytes(other)
    (tmp_path / "Makefile").write_bytes(other)
    proposed = proposed_guardrails(tmp_path)
    assert all(command.isprintable() and shlex.split(command) for command in proposed), proposed


def test_directories_and_broken_links_are_ignored(tmp_path: Path) -> None:
    """Even with the right names, they propose nothing."""
    for name in ("package.json", "pyproject.toml", "Makefile", "Cargo.toml", "mvnw"):
        (tmp_path / name).mkdir()
    (tmp_path / "go.mod").symlink_to("nowhere")
    assert proposed_guardrails(tmp_path) == ()
