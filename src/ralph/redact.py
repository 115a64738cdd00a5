"""Redact secrets: tokens of well-known formats, and the values of environment variables that look secret.

All output of agents and checks goes through a `Redactor` before it is stored, shown or fed back. An automaton scans
for the prefixes of secrets at some 500 MB/s; the exact rules run only on text with their prefix.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from ahocorasick_rs import BytesAhoCorasick

MARK = b"[redacted]"

_B = rb"(?<![A-Za-z0-9_])"
_URL_SAFE = rb"[A-Za-z0-9_-]"

RULES: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    # name: (prefixes, pattern of the whole secret)
    "openai, anthropic": ((b"sk-",), _B + rb"sk-(?=%b*[0-9])%b{20,}" % (_URL_SAFE, _URL_SAFE)),
    "github": ((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), _B + rb"gh[pousr]_[A-Za-z0-9]{30,}"),
    "github fine-grained": ((b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{22,}"),
    "gitlab": ((b"glpat-", b"gldt-", b"glrt-"), _B + rb"gl(?:pat|dt|rt)-%b{20,}" % _URL_SAFE),
    "slack": ((b"xox", b"xapp-"), _B + rb"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    "slack webhook": ((b"hooks.slack.com/services/",), rb"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
    "aws key id": ((b"AKIA", b"ASIA"), _B + rb"A[KS]IA[A-Z0-9]{16}"),
    "aws secret": (
        (b"secret_access_key", b"SecretAccessKey", b"SECRET_ACCESS_KEY"),
        rb"(?i:secret_?access_?key)[\"'\\]*\s*[=:]\s*[\"'\\]*[A-Za-z0-9/+=]{40}",
    ),
    "google api": ((b"AIza",), _B + rb"AIza%b{35}" % _URL_SAFE),
    "google oauth": ((b"ya29.", b"GOCSPX-"), _B + rb"(?:ya29\.|GOCSPX-)%b{20,}" % _URL_SAFE),
    "stripe": (
        (b"k_live_", b"k_test_", b"whsec_"),
        _B + rb"(?:[srp]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}",
    ),
    "npm": ((b"npm_",), _B + rb"npm_[A-Za-z0-9]{36}"),
    "pypi": ((b"pypi-",), _B + rb"pypi-%b{50,}" % _URL_SAFE),
    "hugging face": ((b"hf_",), _B + rb"hf_[A-Za-z0-9]{30,}"),
    "sendgrid": ((b"SG.",), _B + rb"SG\.%b{16,}\.%b{16,}" % (_URL_SAFE, _URL_SAFE)),
    "jwt": ((b"eyJ",), _B + rb"eyJ%b{8,}\.eyJ%b{8,}\.%b{8,}" % (_URL_SAFE, _URL_SAFE, _URL_SAFE)),
    "private key": (
        (b"PRIVATE KEY",),
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    ),
    "digitalocean": ((b"dop_v1_", b"doo_v1_"), _B + rb"do[op]_v1_[a-f0-9]{64}"),
    "shopify": ((b"shpat_", b"shpss_", b"shpca_", b"shppa_"), _B + rb"shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}"),
    "azure storage": ((b"AccountKey=",), rb"AccountKey=[A-Za-z0-9+/=]{60,}"),
    "vault": ((b"hvs.",), _B + rb"hvs\.%b{24,}" % _URL_SAFE),
    "databricks": ((b"dapi",), _B + rb"dapi[a-f0-9]{32}"),
    "groq, xai, replicate": ((b"gsk_", b"xai-", b"r8_"), _B + rb"(?:gsk_|xai-|r8_)[A-Za-z0-9]{30,}"),
    "telegram": ((b":AA",), _B + rb"[0-9]{8,10}:AA%b{33}" % _URL_SAFE),
    "authorization": (
        (b"Bearer ", b"bearer ", b"Basic "),
        rb"(?:[Bb]earer|Basic) [A-Za-z0-9._~+/=-]{16,}",
    ),
    "password in an address": ((b"://",), rb"://[^\s/:@\"']{1,100}:[^\s/@\"']{3,100}@"),
}

_SECRET_NAME = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL)", re.IGNORECASE
)
_NO_SECRET_NAME = re.compile(r"(_SOCK|_FILE|_PATH|_DIR|_URL|_ID|_NAME|_COUNT|TOKENS)$", re.IGNORECASE)
_SHORTEST = 8
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
_MAX_LINE = 64 << 10
_TAIL = 8 << 10
_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z ]*PRIVATE KEY-----")


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with names that look secret."""
    return tuple(
        value
        for name, value in variables.items()
        if _SECRET_NAME.search(name)
        and not _NO_SECRET_NAME.search(name)
        and len(value) >= _SHORTEST
        and not value.startswith(("/", "~"))
    )


class Secrets:
    """Finds secrets: tokens of the well-known formats, and the given values.

    The automaton is built on the first text, the rules on the first hit, so that neither delays the agent's start.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._literals = {value.encode() for value in values}

    @cached_property
    def _begins(self) -> frozenset[bytes]:
        return frozenset(begin for starts, _ in RULES.values() for begin in starts) | self._literals

    @cached_property
    def _hidden(self) -> frozenset[bytes]:
        """What the prefixes look like in base64."""
        return frozenset().union(*map(_base64_pieces, self._begins))

    @cached_property
    def _known(self) -> list[bytes]:
        return sorted(self._begins | self._hidden)

    @cached_property
    def _automaton(self) -> BytesAhoCorasick:
        return BytesAhoCorasick(self._known)

    @cached_property
    def _rules(self) -> list[tuple[frozenset[bytes], re.Pattern[bytes]]]:
        known = [
            (frozenset(begins), re.compile(rule, re.DOTALL | re.MULTILINE)) for begins, rule in RULES.values()
        ]
        longest_first = sorted(self._literals, key=len, reverse=True)
        return known + [(frozenset([value]), re.compile(re.escape(value))) for value in longest_first]

    def redact(self, text: bytes) -> bytes:
        """Return the text with its secrets replaced. Text without secrets, the usual case, is returned unchanged."""
        if not self._automaton.find_matches_as_indexes(text):
            return text
        for rule in self._rules_for(text):
            text = rule.sub(MARK, text)
        hits = self._automaton.find_matches_as_indexes(text, overlapping=True)
        hidden = sorted(start for number, start, _ in hits if self._known[number] in self._hidden)

        def shown(run: re.Match[bytes]) -> bytes:
            first = bisect_left(hidden, run.start())
            return self._unhidden(run) if first < len(hidden) and hidden[first] < run.end() else run[0]

        return _BASE64_RUN.sub(shown, text) if hidden else text

    def _rules_for(self, text: bytes) -> list[re.Pattern[bytes]]:
        """The rules whose prefixes are in the text."""
        hits = self._automaton.find_matches_as_indexes(text, overlapping=True)
        found = {self._known[number] for number, _, _ in hits}
        return [rule for begins, rule in self._rules if not begins.isdisjoint(found)]

    def text(self, text: str) -> str:
        return self.redact(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def _unhidden(self, run: re.Match[bytes]) -> bytes:
        """Redact a whole run of base64 if a secret is encoded in it."""
        plain = (_decoded(run[0][offset:]) for offset in range(4))
        return MARK if any(rule.search(text) for text in plain for rule in self._rules_for(text)) else run[0]


@lru_cache(maxsize=8)
def secrets_of(values: frozenset[str]) -> Secrets:
    """Return one shared `Secrets` for all runs of this process with the same values."""
    return Secrets(values)


class Redactor:
    """Redacts a stream that arrives in pieces, without ever letting the start of a secret through."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._waiting = b""
        self._in_key = False

    def feed(self, data: bytes) -> bytes:
        """Add data and return the whole lines that are safe to pass on, redacted."""
        self._waiting += data
        whole, newline, rest = self._waiting.rpartition(b"\n")
        if newline:
            self._waiting = rest
            return self._lines(whole + newline)
        if len(self._waiting) <= _MAX_LINE:
            return b""
        whole, self._waiting = self._waiting[:-_TAIL], self._waiting[-_TAIL:]
        return self._secrets.redact(whole)

    def finish(self) -> bytes:
        """Return the rest at the end of the stream."""
        rest, self._waiting = self._waiting, b""
        return self._lines(rest)

    def _lines(self, text: bytes) -> bytes:
        """Redact whole lines, including private keys that span many of them."""
        if not self._in_key and b"PRIVATE KEY" not in text:
            return self._secrets.redact(text)
        return b"".join(map(self._line, text.splitlines(keepends=True)))

    def _line(self, line: bytes) -> bytes:
        begin, end = _KEY_BEGINS.search(line), _KEY_ENDS.search(line)
        if self._in_key:
            self._in_key = end is None
            return self._secrets.redact(line[end.end() :]) if end else b""
        if begin and not end:
            self._in_key = True
            return self._secrets.redact(line[: begin.start()]) + MARK + b"\n"
        return self._secrets.redact(line)


def _base64_pieces(begin: bytes) -> set[bytes]:
    """Return the base64 forms of a secret's prefix, one for each of the three possible alignments.

    A short prefix is extended by every character that can follow it: three characters of base64 match everywhere.
    """
    longer = [begin] if len(begin) > 3 else [begin + bytes([letter]) for letter in _FOLLOWS]
    pieces = set()
    for text in longer:
        for offset in range(3):
            encoded = base64.b64encode(b"\0" * offset + text)
            piece = encoded[(offset * 8 + 5) // 6 : (offset + len(text)) * 8 // 6]
            pieces |= {piece, piece.translate(_TO_URL_SAFE)}
    return pieces


_FOLLOWS = bytes(range(33, 127))
_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def _decoded(run: bytes) -> bytes:
    """Decode a run of base64, in either alphabet and with or without padding."""
    standard = run.rstrip(b"=").translate(_FROM_URL_SAFE)
    if len(standard) % 4 == 1:
        standard = standard[:-1]
    return base64.b64decode(standard + b"=" * (-len(standard) % 4))
