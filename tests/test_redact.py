"""Secrets of every format, split at every place, hidden in base64; and other text, which stays as it is."""

from __future__ import annotations

import base64
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ralph
from conftest import Project
from ralph.redact import MARK, Redactor, Secrets, secret_values

_random = random.Random(7)


def letters(
    count: int, alphabet: str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
) -> str:
    return "".join(_random.choice(alphabet) for _ in range(count))


HEX = "0123456789abcdef"
FAKES = {
    "openai": f"sk-proj-{letters(40)}9",
    "anthropic": f"sk-ant-api03-{letters(60)}",
    "github": f"ghp_{letters(36)}",
    "github app": f"ghs_{letters(36)}",
    "github fine-grained": f"github_pat_{letters(22)}_{letters(30)}",
    "gitlab": f"glpat-{letters(20)}",
    "slack": f"xoxb-{letters(12, '0123456789')}-{letters(24)}",
    "slack webhook": f"hooks.slack.com/services/T{letters(8)}/B{letters(8)}/{letters(24)}",
    "aws key id": f"AKIA{letters(16, 'ABCDEFGHIJKLMNOP234567')}",
    "aws secret": f"aws_secret_access_key={letters(40)}",
    "google api": f"AIza{letters(35)}",
    "google oauth": f"ya29.{letters(60)}",
    "stripe": f"sk_live_{letters(24)}",
    "npm": f"npm_{letters(36)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{letters(60)}",
    "hugging face": f"hf_{letters(34)}",
    "sendgrid": f"SG.{letters(22)}.{letters(43)}",
    "jwt": f"eyJ{letters(20)}.eyJ{letters(30)}.{letters(40)}",
    "digitalocean": f"dop_v1_{letters(64, HEX)}",
    "shopify": f"shpat_{letters(32, HEX)}",
    "azure storage": f"AccountKey={letters(86)}==",
    "vault": f"hvs.{letters(40)}",
    "databricks": f"dapi{letters(32, HEX)}",
    "groq": f"gsk_{letters(50)}",
    "telegram": f"{letters(9, '123456789')}:AA{letters(33)}",
    "bearer": f"Bearer {letters(32)}",
    "address": f"postgres://ada:{letters(12)}@db.local/x",
    "a variable": "correct horse battery staple",
}
SECRETS = Secrets(["correct horse battery staple"])
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{letters(70)}\n{letters(70)}\n-----END OPENSSH PRIVATE KEY-----"


def core(fake: str) -> bytes:
    """The part of a fake secret that must not be seen."""
    return fake[-12:].encode() if "@" not in fake else fake.split(":")[2].split("@")[0].encode()


@pytest.mark.parametrize("name", FAKES)
def test_a_secret_is_redacted_wherever_the_stream_is_split(name: str) -> None:
    """No format passes, split in two at any place; the text around it does."""
    text = f'{{"before": "{FAKES[name]}", "after": 1}}\n'.encode()
    for cut in range(len(text) + 1):
        redactor = Redactor(SECRETS)
        out = redactor.feed(text[:cut]) + redactor.feed(text[cut:]) + redactor.finish()
        assert core(FAKES[name]) not in out and MARK in out
        assert out.startswith(b'{"before": "') and out.endswith(b'", "after": 1}\n')


@pytest.mark.parametrize("name", FAKES)
@pytest.mark.parametrize("before", ["", " ", "u:", "\nx="])
def test_a_secret_in_base64_is_redacted(name: str, before: str) -> None:
    """Whatever comes before it in the encoded text, in both alphabets."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        hidden = encode(f"{before}{FAKES[name]} and more".encode())
        assert SECRETS.redact(b"data: " + hidden + b" end") == b"data: " + MARK + b" end"


def test_a_private_key_over_many_lines_is_one_mark() -> None:
    """A key is redacted from its first line to its last, even if it arrives byte by byte."""
    redactor = Redactor(SECRETS)
    out = b"".join(redactor.feed(bytes([byte])) for byte in f"see {KEY} here\n".encode()) + redactor.finish()
    assert out == b"see " + MARK + b"\n here\n"


def test_a_private_key_in_one_line_of_json() -> None:
    """The same with escaped newlines."""
    line = ('{"key": "' + KEY.replace("\n", "\\n") + '"}\n').encode()
    assert Redactor(SECRETS).feed(line) == b'{"key": "' + MARK + b'"}\n'


def test_an_endless_line_is_passed_on_in_pieces() -> None:
    """A line of a megabyte is not held back, and a secret at its end is still found."""
    redactor = Redactor(SECRETS)
    out = redactor.feed(b"x" * 1_000_000)
    assert len(out) > 900_000
    assert core(FAKES["github"]) not in redactor.feed(f" {FAKES['github']}\n".encode())


@given(st.binary(max_size=300), st.integers(0, 300))
def test_ordinary_text_is_unchanged(data: bytes, cut: int) -> None:
    """Any bytes, split anywhere, come out as they went in."""
    redactor = Redactor(SECRETS)
    assert redactor.feed(data[:cut]) + redactor.feed(data[cut:]) + redactor.finish() == SECRETS.redact(data)


def test_source_code_has_no_secrets() -> None:
    """Our own source is unchanged: words that only start like a token are not secrets."""
    for path in Path(ralph.__file__).parent.rglob("*.py"):
        assert SECRETS.redact(path.read_bytes()) == path.read_bytes()
    assert SECRETS.text("task-management-for-scikit-learn sk-learn-preprocessing-utils ask-2") == (
        "task-management-for-scikit-learn sk-learn-preprocessing-utils ask-2"
    )


def test_which_variables_are_secret() -> None:
    """By their names; sockets, files, ids and short values do not count."""
    variables = {
        "MY_API_KEY": "12345678abc",
        "GITHUB_TOKEN": "abcdefgh12",
        "DB_PASSWORD": "hunter22222",
        "SSH_AUTH_SOCK": "/run/agent.sock",
        "TOKEN_FILE": "somewhere/token",
        "MAX_TOKENS": "1000000000",
        "AWS_ACCESS_KEY_ID": "notasecret99",
        "SECRET": "short",
        "EDITOR": "verylongeditorname",
    }
    assert secret_values(variables) == ("12345678abc", "abcdefgh12", "hunter22222")


def test_no_secret_reaches_a_log_an_event_a_prompt_or_a_commit(repository: Project) -> None:
    """An agent and a guardrail that print secrets leave none anywhere."""
    for name in ("user.name", "user.email"):
        repository.git("config", name, "test@localhost")
    token, variable = FAKES["github"], "s3cr3t-of-the-house"
    repository.extra_env["HOUSE_TOKEN"] = variable
    (repository.path.parent / "token").write_text(f"{token}\n")
    repository.agent(
        f"""
        case "$1" in
            *"commit message"*) echo "Add {token} $HOUSE_TOKEN";;
            *) echo x >> work; printf '%s' {token[:10]}; sleep 0.05; echo {token[10:]}
               echo "env: $HOUSE_TOKEN" >&2; printf %s "$HOUSE_TOKEN" | base64
               [ $RALPH_ITERATION = 2 ] && echo '<response>DONE</response>';;
        esac; true
        """,
        guardrails=[{"command": "cat ../token; test $RALPH_ITERATION = 2"}],
        scm={"command": "git", "tasks": ["commit"]},
    )
    result = repository.run("run", "-p", "x", "--json")
    logs = repository.run("logs")
    assert result.code == 0
    kept = [
        p for d in (repository.home.path, repository.path / ".ralph") for p in d.rglob("*") if p.is_file()
    ]
    seen = [result.out, logs.out, repository.git("log", "--format=%B")]
    seen += [path.read_bytes().decode(errors="replace") for path in kept if path.name != "settings.json"]
    hidden = base64.b64encode(variable.encode()).decode()
    for text in seen:
        assert token not in text and variable not in text and hidden not in text


def test_base64_that_hides_no_secret_costs_little() -> None:
    """A command that prints images or source maps is not slowed down by three letters that look like a prefix."""
    encoded = base64.b64encode(random.Random(1).randbytes(6_000_000))
    text = b"eyJ\n".join(encoded[at : at + 76] + b"\n" for at in range(0, len(encoded), 76))
    redactor = Redactor(Secrets())
    begin = time.process_time()
    safe = b"".join(redactor.feed(text[at : at + 65536]) for at in range(0, len(text), 65536))
    assert (safe + redactor.finish(), time.process_time() - begin < 2) == (text, True)
