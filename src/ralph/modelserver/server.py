"""The HTTP server: loopback only, one thread per connection, every request logged."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any, Self
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from ralph.errors import RalphError
from ralph.modelserver.answer import Json, Wire, conversation
from ralph.modelserver.anthropic import AnthropicWire
from ralph.modelserver.chat import ChatWire
from ralph.modelserver.gemini import GeminiWire
from ralph.modelserver.player import Ending, Played, Player, Reply, refused
from ralph.modelserver.responses import ResponsesWire
from ralph.modelserver.script import ModelScript

WIRES: tuple[Wire, ...] = (AnthropicWire(), ResponsesWire(), ChatWire(), GeminiWire())
MAX_BYTES = 64 << 20
MAX_REQUESTS = 10_000
MODELS = {"object": "list", "data": [{"id": "scripted", "object": "model", "type": "model"}]}


class Request(Struct, frozen=True):
    """One request, and what was played for it."""

    time: float
    wire: str
    path: str
    body: Json
    played: Played

    def said(self) -> str:
        """All text of the conversation in the request: prompts, answers, tool results."""
        return conversation(self.body)


class ModelServer:
    """Serves a script from its creation until `close`.

    >>> with ModelServer(script) as server:
    ...     run_agent(base_url=server.url)
    ...     assert "hello" in server.requests[-1].said()
    """

    def __init__(self, script: ModelScript, port: int = 0, log: str | None = None) -> None:
        self._requests: deque[Request] = deque(maxlen=MAX_REQUESTS)
        self._lock = threading.Lock()
        self._log: IO[str] | None = None
        try:
            self._http = _Server(port, Player(script), self._note)
        except (OSError, OverflowError) as error:
            raise RalphError(f"Cannot listen on port {port}: {error}.") from None
        if log is not None:
            try:
                self._log = open(log, "a", encoding="utf-8")
            except OSError as error:
                self._http.server_close()
                raise RalphError(f"{log}: the log cannot be written: {error.strerror}.") from None
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name="model server", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, oldest first."""
        with self._lock:
            return list(self._requests)

    def turns(self) -> list[Request]:
        """The requests that were answered with a turn of the script."""
        return [request for request in self.requests if isinstance(request.played, int)]

    def close(self) -> None:
        """Close every connection, even hanging ones, and wait for them."""
        self._http.shutdown()
        self._http.end_connections()
        self._http.server_close()
        self._thread.join()
        with self._lock:
            if self._log:
                self._log.close()
                self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, request: Request) -> None:
        with self._lock:
            self._requests.append(request)
            if self._log:
                self._log.write(json.dumps(to_builtins(request)) + "\n")
                self._log.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, port: int, player: Player, note: Any) -> None:
        self.player = player
        self.note = note
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        self.closing.set()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scripted-model"
    sys_version = ""
    server: _Server

    def do_HEAD(self) -> None:
        self._send(Reply((b"",)))

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self._note("none", {}, "side")
        if path.endswith("/models"):
            self._send(Reply((json.dumps(MODELS).encode(),)))
        else:
            self._send(_unknown(path))

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        now = time.time()
        played: Played = "refused"
        wire = next((wire for wire in WIRES if wire.serves(path) or wire.counts(path)), None)
        if wire is None:
            self._read()
            self._note("none", {}, played)
            return self._send(_unknown(path))
        data = self._read()
        if data is None:
            self.close_connection = True
            reply = refused(wire, 413, f"The body must have a Content-Length of at most {MAX_BYTES:,} bytes.")
            self._note(wire.name, {}, played)
            return self._send(reply)
        try:
            body = json.loads(data)
            if not isinstance(body, dict):
                raise ValueError("not an object")
            if wire.counts(path):
                counted = json.dumps(wire.count(len(data) // 4)).encode()
                reply, played = Reply((counted,)), "side"
            else:
                reply, played = self.server.player.reply(wire, path, body, now)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            body = {}
            reply = refused(wire, 400, f"Invalid request: {error!r}")
        self._note(wire.name, body, played)
        return self._send(reply)

    def _note(self, wire: str, body: Json, played: Played) -> None:
        self.server.note(Request(time.time(), wire, self.path, body, played))

    def _read(self) -> bytes | None:
        """The body; None if its length is missing or too large."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BYTES:
            return None
        return self.rfile.read(int(length))

    def _send(self, reply: Reply) -> None:
        if self.server.closing.wait(reply.delay):
            self.close_connection = True
            return None
        if reply.ending is Ending.SILENCE:
            return self._hang()
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-type" for name, _ in reply.headers):
            self.send_header("Content-Type", "text/event-stream" if reply.streams else "application/json")
        if reply.streams:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(sum(map(len, reply.pieces))))
        self.end_headers()
        if self.command == "HEAD":
            return None
        whole = reply.ending is Ending.WHOLE
        for piece in reply.pieces if whole else reply.pieces[: reply.sent]:
            self.wfile.write(_chunk(piece) if reply.streams else piece)
        if whole:
            self.wfile.write(b"0\r\n\r\n" if reply.streams else b"")
            return None
        if reply.ending is Ending.HANG:
            return self._hang()
        rest = b"".join(reply.pieces[reply.sent : reply.sent + 1])
        cut = _chunk(rest) if reply.streams else rest
        self.wfile.write(cut[: len(cut) // 2])
        self.close_connection = True
        return None

    def _hang(self) -> None:
        """Send nothing more until the client disconnects or the server closes."""
        self.close_connection = True
        while not self.server.closing.is_set():
            if select.select([self.connection], [], [], 0.2)[0]:
                try:
                    if not self.connection.recv(1 << 16):
                        return
                except OSError:
                    return

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests go to the log."""


def _unknown(path: str) -> Reply:
    error = {"type": "not_found_error", "message": f"Unknown path: {path}."}
    return Reply((json.dumps({"type": "error", "error": error}).encode(),), 404)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
