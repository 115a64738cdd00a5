"""Environment variables of a sandboxed command: those that configure tools, but no credentials for other services."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "CI"),
    *("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "EDITOR", "PAGER"),
    *("TASK_FOLDER", "RALPH_RUN_ID", "RALPH_PARENT_RUN_ID", "RALPH_ITERATION", "RALPH_MAX_ITERATIONS"),
    *("RALPH_ATTEMPT", "RALPH_TASK_ID", "RALPH_ROLE", "RALPH_GUARDED"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONUNBUFFERED", "NODE_ENV", "NODE_PATH", "NVM_DIR"),
    *("UV_PROJECT_ENVIRONMENT", "UV_PYTHON_DOWNLOADS", "GOFLAGS", "GOWORK", "GOBIN", "GOMODCACHE"),
    *("CARGO_TARGET_DIR", "CARGO_BUILD_BUILD_DIR", "MAVEN_ARGS", "MAVEN_OPTS", "GRADLE_OPTS", "NODE_OPTIONS"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    *("JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "ASDF_DIR", "VOLTA_HOME"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

_NO_SIGNING = {"commit.gpgSign": "false", "tag.gpgSign": "false"}
"""Commits inside are unsigned, because the signing keys are not there."""


def passed(environment: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """Return the variables whose names match one of the patterns."""
    wanted = re.compile("|".join(_regular(pattern) for pattern in patterns))
    return {name: value for name, value in environment.items() if wanted.fullmatch(name)}


def _regular(pattern: str) -> str:
    return ".*".join(re.escape(part) for part in pattern.split("*"))


def ours(backend: str) -> dict[str, str]:
    """Return the variables that describe the sandbox to a command."""
    told = {"IS_SANDBOX": "1", "RALPH_SANDBOX": backend, "TMPDIR": "/tmp"}
    told["GIT_CONFIG_COUNT"] = str(len(_NO_SIGNING))
    for number, (key, value) in enumerate(_NO_SIGNING.items()):
        told |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return told


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's own proxy variables, in upper or lower case."""
    return {name: value for name, value in environment.items() if name.lower() in PROXIES}


def hosts_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts, with ports, that variables such as ANTHROPIC_BASE_URL point to."""
    found = []
    for name, value in environment.items():
        if fnmatchcase(name, "*_BASE_URL") and "://" in value:
            url = urlsplit(value)
            if url.hostname:
                port = url.port if url.port else 443 if url.scheme == "https" else 80
                found.append(f"{url.hostname}:{port}")
    return tuple(found)
