"""Sends one notification through apprise, in a separate process that may hang or fail and can be killed.

`python -m ralph.notify.apprise_worker` reads {"urls", "title", "body", "type"} from stdin. It prints one line for each
URL that could not be reached, with only its number and scheme: the rest of a URL is a secret.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from ralph.redact import Secrets

_PIECES = re.compile(r"[/@:?&=#]+")
_SHORTEST = 6


class _Complaints(logging.Handler):
    """The last warning from apprise in each thread; each URL has its own thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: dict[int, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread is not None:
            self.said[record.thread] = record.getMessage()


def main() -> int:
    order = json.load(sys.stdin)
    complaints = _Complaints()
    logger = logging.getLogger("apprise")
    logger.addHandler(complaints)
    logger.propagate = False
    with ThreadPoolExecutor(max_workers=max(1, len(order["urls"]))) as pool:
        problems = list(pool.map(lambda url: _send(url, order, complaints), order["urls"]))
    for number, (url, problem) in enumerate(zip(order["urls"], problems, strict=True), 1):
        if problem:
            print(f"URL {number} ({_scheme(url)}): {_without(url, problem)}")
    return int(any(problems))


def _send(url: str, order: dict[str, str], complaints: _Complaints) -> str:
    """Send the notification to one URL; return the problem, or "" on success."""
    import apprise

    service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if service is None:
        return "not a URL that apprise supports"
    if service.notify(body=order["body"], title=order["title"], notify_type=order["type"]):
        return ""
    return complaints.said.get(threading.get_ident(), "the service did not accept the notification")


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return f"{scheme}://…" if found and scheme.isalnum() else "no scheme"


def _without(url: str, text: str) -> str:
    """The message without any part of the URL that could be a secret."""
    pieces = [piece for piece in _PIECES.split(url) if len(piece) >= _SHORTEST]
    return Secrets([url, *pieces]).text(" ".join(text.split()))[:300]


if __name__ == "__main__":
    sys.exit(main())
