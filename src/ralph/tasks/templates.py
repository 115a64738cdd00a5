"""Ready-made verifications for common tools. Where a test runner passes without any tests, they require at least one."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ralph.core.task_model import ACCEPTANCE, ROLES, VerificationMethod
from ralph.errors import RalphError
from ralph.files import yamlfile
from ralph.tasks.verification import did_you_mean


class Template(Struct, frozen=True):
    """A ready-made verification. `role` is the role it suits best."""

    summary: str
    role: str
    method: VerificationMethod
    config: dict[str, Any]


def _command(summary: str, role: str, command: str, **config: Any) -> Template:
    return Template(summary, role, VerificationMethod.EXTERNAL, {"command": command} | config)


TEMPLATES: dict[str, Template] = {
    "pytest": _command("All tests pass, and there is at least one.", "tester", "python -m pytest -q"),
    "pytest-coverage": _command(
        "All tests pass, and at least 80% of the code is covered (needs pytest-cov).",
        "tester",
        "python -m pytest -q --cov --cov-fail-under=80",
    ),
    "coverage": _command(
        "All tests pass, and at least 80% of the code is covered (needs coverage).",
        "tester",
        "coverage run -m pytest -q && coverage report --fail-under=80",
    ),
    "unittest": _command(
        "All unittest tests pass, and there is at least one.",
        "tester",
        "python -m unittest",
        output_not_contains="Ran 0 tests",
    ),
    "ruff": _command(
        "No lint errors, and all files are formatted.", "reviewer", "ruff check . && ruff format --check ."
    ),
    "mypy": _command("No type errors.", "reviewer", "mypy ."),
    "npm-test": _command("The test script of package.json succeeds.", "tester", "npm test"),
    "npm-lint": _command("The lint script of package.json succeeds.", "reviewer", "npm run lint"),
    "npm-build": _command("The build script of package.json succeeds.", "coder", "npm run build"),
    "tsc": _command("No TypeScript type errors.", "reviewer", "npx --no-install tsc --noEmit"),
    "cargo-test": _command(
        "All tests pass, and there is at least one.",
        "tester",
        "cargo test --quiet && cargo test --quiet -- --list | grep -q ': test$'",
    ),
    "cargo-clippy": _command("No clippy warnings.", "reviewer", "cargo clippy --all-targets -- -D warnings"),
    "go-test": _command(
        "All tests pass, and there is at least one.", "tester", "go test ./...", output_contains="ok  \t"
    ),
    "go-vet": _command(
        "No go vet errors, and all files are formatted.",
        "reviewer",
        'go vet ./... && test -z "$(gofmt -l .)"',
    ),
    "make": _command("make succeeds.", "coder", "make"),
    "make-test": _command("make test succeeds.", "tester", "make test"),
    "maven": _command(
        "mvn verify succeeds: the project builds and the tests pass.", "tester", "mvn -q -B verify"
    ),
    "gradle": _command("gradle check succeeds.", "tester", "./gradlew --quiet check"),
    "http": _command(
        "The service responds.",
        "qa",
        "curl -fsS --retry 5 --retry-connrefused --max-time 10 http://localhost:8000/health",
    ),
    "acceptance": Template(
        "A judge finds every acceptance criterion met.",
        "reviewer",
        VerificationMethod.SEMANTIC,
        {"check_for": ACCEPTANCE},
    ),
    "no-leftovers": Template(
        'No TODO, FIXME, XXX or "not implemented" is left.',
        "reviewer",
        VerificationMethod.SEMANTIC,
        {"negative_patterns": ["TODO", "FIXME", "XXX", "not implemented"]},
    ),
    "qa": Template(
        "The tests pass, and a judge finds every acceptance criterion met.",
        "qa",
        VerificationMethod.MULTI_STAGE,
        {
            "stages": [
                {"name": "tests", "method": "external", "config": {"command": "make test"}},
                {"name": "acceptance", "method": "semantic", "config": {"check_for": ACCEPTANCE}},
            ]
        },
    ),
}


def find(name: str) -> tuple[str, Template]:
    """A template and its name; `npm test` is `npm-test`."""
    known = name.strip().lower().replace(" ", "-")
    if known not in TEMPLATES:
        hint = did_you_mean(known, TEMPLATES).removeprefix("; ").capitalize()
        raise RalphError(f"Unknown template {name!r}.", hint or "`ralph task templates` lists them.")
    return known, TEMPLATES[known]


def to_yaml(template: Template) -> str:
    """The template as YAML, for the `completion:` section of a task."""
    return yamlfile.dump(
        {
            template.role: {
                "promise": ROLES[template.role].promise,
                "description": template.summary,
                "verification_method": str(template.method),
                "verification_config": template.config,
            }
        }
    )
