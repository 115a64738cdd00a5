"""The only way out of a sandbox with an allow-list: a proxy on a Unix socket that allows hosts by name.

It serves CONNECT for TLS, and requests with an absolute URL for plain HTTP. It refuses an IP address instead of a name,
a port that is not on the list, and a name that resolves to a non-public address. If the list names the port,
non-public addresses are allowed, except link-local ones, where clouds serve their metadata. A connection goes to
exactly the address that was checked. Many hosts can share an address, so TLS must name the requested host, and a tunnel
to port 80 carries only one request for it. A port that the list names carries anything. Every refusal is logged and
reported.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from msgspec import Struct

from ralph.sandbox import hello
from ralph.sandbox.base import Tell

TLS, HTTP = 443, 80
USUAL_PORTS = (TLS, HTTP)
MAX_LOGGED = 10_000
MAX_TOLD = 1000
MAX_HEAD = 65536
MAX_CONNECTIONS = 256
_PATIENCE = 30.0
_CHUNK = 65536
_NAME = "proxy.sock"
_LOG = "refused.log"

Resolve = Callable[[str, int], Sequence[str]]


class Refused(Exception):
    """Raised with the reason why a connection is refused."""


class Host(Struct, frozen=True):
    """One entry of the list: a host name, or `*.` and a suffix. With a port, only that port is allowed."""

    name: str
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Host:
        """Parse an entry. Raises ValueError if it is not a host name."""
        name, colon, port = text.strip().lower().rstrip(".").partition(":")
        bare = name.removeprefix("*.")
        if not bare or is_address(bare) or not all(c.isalnum() or c in "-._" for c in bare):
            raise ValueError(f"{text!r} is not a host name")
        if colon and not (port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r} has an invalid port")
        return cls(name, int(port) if colon else 0)

    def names(self, name: str) -> bool:
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name


def is_address(name: str) -> bool:
    """Whether this is an IP address in any notation, such as 127.1 or 0x7f000001."""
    with suppress(OSError):
        socket.inet_aton(name)
        return True
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]").partition("%")[0])
        return True
    return ":" in name


def resolve(name: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def chosen_address(host: str, port: int, allowed: Sequence[Host], resolve: Resolve) -> str:
    """Return the address to connect to, or raise Refused."""
    name = host.lower().rstrip(".")
    if is_address(name):
        raise Refused("an IP address is not a host name")
    entries = [entry for entry in allowed if entry.names(name)]
    if not entries:
        raise Refused("not listed in sandbox.allowedHosts")
    is_vouched = vouched(name, port, allowed)
    if not is_vouched and (port not in USUAL_PORTS or all(entry.port for entry in entries)):
        raise Refused(f"port {port} is not listed in sandbox.allowedHosts")
    try:
        addresses = resolve(name, port)
    except (OSError, UnicodeError) as error:
        raise Refused(f"the name cannot be resolved ({error})") from None
    for address in addresses:
        if _may_reach(address, is_vouched=is_vouched):
            return address
    raise Refused(f"the name resolves to {', '.join(addresses)}, which is not public")


def vouched(host: str, port: int, allowed: Sequence[Host]) -> bool:
    """Whether the list names this port of the host."""
    name = host.lower().rstrip(".")
    return any(entry.names(name) and entry.port == port for entry in allowed)


def _may_reach(address: str, *, is_vouched: bool) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_link_local or found.is_multicast or found.is_unspecified or found in _METADATA:
        return False
    return is_vouched or found.is_global


_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})


@contextmanager
def opened_proxy(state: str, hosts: Sequence[str], tell: Tell, resolve: Resolve = resolve) -> Iterator[str]:
    """Run a proxy for these hosts while the context lasts. Yields the path of its socket."""
    path = os.path.join(state, _NAME)
    with suppress(FileNotFoundError):
        os.unlink(path)
    directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{_NAME}")  # allows a path of any length
        os.chmod(path, 0o600)
        listener.listen(128)
        proxy = Proxy(listener, [Host.parse(host) for host in hosts], _Log(state, tell), resolve)
        threading.Thread(target=proxy.serve, name="ralph proxy", daemon=True).start()
        yield path
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        os.close(directory)
        with suppress(FileNotFoundError):
            os.unlink(path)


class _Log:
    """Writes every refusal to a file and reports each new one, up to a readable number."""

    def __init__(self, state: str, tell: Tell) -> None:
        self._path = os.path.join(state, _LOG)
        self._tell = tell
        self._told: set[str] = set()
        self._logged = 0
        self._lock = threading.Lock()

    def __call__(self, where: str, why: str) -> None:
        text = f"{where[:300]}: {why}"
        with self._lock:
            self._logged += 1
            is_new = text not in self._told and len(self._told) < MAX_TOLD
            if is_new:
                self._told.add(text)
            if self._logged <= MAX_LOGGED:
                with suppress(OSError), open(self._path, "a", errors="replace") as file:
                    file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
        if is_new:
            self._tell(f"The sandbox refused a connection to {text}.")


class Proxy:
    """Serves one listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        allowed: Sequence[Host],
        log: Callable[[str, str], None],
        resolve: Resolve,
    ) -> None:
        self._listener = listener
        self._allowed = allowed
        self._log = log
        self._resolve = resolve
        self._room = threading.Semaphore(MAX_CONNECTIONS)

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._room.acquire()
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        try:
            with client:
                client.settimeout(_PATIENCE)
                self._answer(client)
        except (OSError, ValueError):
            pass
        finally:
            self._room.release()

    def _answer(self, client: socket.socket, begun: bytes = b"", tunnel: str = "") -> None:
        """Answer one request. In a tunnel, it is for that host."""
        head, rest = _read_head(client, begun)
        line, *fields = head.split("\r\n")
        method, _, target = line.partition(" ")
        target = target.rpartition(" ")[0]
        try:
            if any(c in head.replace("\r\n", "") for c in "\r\n\0"):
                raise Refused("the request is ambiguous")
            if tunnel and not target.startswith("/"):
                raise Refused("only plain HTTP requests are allowed on this port")
            if tunnel:
                self._request(client, method, f"http://{tunnel}{target}", fields, rest)
            elif method.upper() == "CONNECT":
                self._connect(client, target, rest)
            else:
                self._request(client, method, target, fields, rest)
        except Refused as refused:
            self._log(target or "somewhere", str(refused))
            body = f"Ralph's sandbox: {target}: {refused}\n".encode()
            reply = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            client.sendall(reply.encode() + body)

    def _reach(self, host: str, port: int) -> socket.socket:
        address = chosen_address(host, port, self._allowed, self._resolve)
        try:
            return socket.create_connection((address, port), _PATIENCE)
        except OSError as error:
            raise Refused(f"connection failed: {error}") from None

    def _connect(self, client: socket.socket, target: str, rest: bytes) -> None:
        host, _, port = target.rpartition(":")
        if not port.isdigit():
            raise Refused("no port given")
        host, number = host.strip("[]"), int(port)
        is_vouched = vouched(host, number, self._allowed)
        if number == HTTP and not is_vouched:
            chosen_address(host, number, self._allowed, self._resolve)
            client.sendall(_ESTABLISHED)
            self._answer(client, rest, host)
            return
        with self._reach(host, number) as server:
            client.sendall(_ESTABLISHED)
            if not is_vouched:
                rest = self._greeting(client, host, rest)
            server.sendall(rest)
            client.settimeout(None)
            server.settimeout(None)
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()

    def _greeting(self, client: socket.socket, host: str, begun: bytes) -> bytes:
        """Return the first bytes of a tunnel if they are a ClientHello for this host, otherwise raise ValueError."""
        try:
            data, message = hello.first_message(lambda: client.recv(_CHUNK), begun)
            name = hello.server_name(message)
        except ValueError:
            data, name = b"", ""
        if name != host.lower().rstrip("."):
            self._log(host, f"TLS inside the tunnel asks for {name[:300] or 'no host name'}")
            client.sendall(hello.UNKNOWN_NAME)
            raise ValueError("TLS for another host")
        return data

    def _request(
        self, client: socket.socket, method: str, target: str, fields: Sequence[str], rest: bytes
    ) -> None:
        """Forward one request with the Host that was checked. Nothing can be sent after it."""
        url = urlsplit(target)
        if url.scheme != "http" or not url.hostname:
            raise Refused("only CONNECT and http:// URLs are allowed")
        names = [field.partition(":")[0].strip().lower() for field in fields]
        if "transfer-encoding" in names:
            raise Refused("requests of unknown length are not allowed")
        lengths = {
            f.partition(":")[2].strip()
            for f, name in zip(fields, names, strict=True)
            if name == "content-length"
        }
        if len(lengths) > 1 or not all(length.isdigit() for length in lengths):
            raise Refused("requests of unknown length are not allowed")
        left = int(lengths.pop()) if lengths else 0
        kept = [
            f
            for f, name in zip(fields, names, strict=True)
            if name not in _OURS and not name.startswith("proxy-")
        ]
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        port = url.port or HTTP
        authority = url.hostname if port == HTTP else f"{url.hostname}:{port}"
        head = "\r\n".join(
            [f"{method} {path} HTTP/1.1", f"Host: {authority}", "Connection: close", *kept, "", ""]
        )
        with self._reach(url.hostname, port) as server:
            server.settimeout(None)
            server.sendall(head.encode("latin-1") + rest[:left])
            left -= len(rest[:left])
            while left and (data := client.recv(min(left, _CHUNK))):
                server.sendall(data)
                left -= len(data)
            client.settimeout(None)
            _pump(server, client)


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_OURS = frozenset({"host", "connection", "keep-alive", "upgrade"})


def _read_head(client: socket.socket, data: bytes = b"") -> tuple[str, bytes]:
    while b"\r\n\r\n" not in data:
        piece = client.recv(_CHUNK)
        if not piece or len(data) > MAX_HEAD:
            raise ValueError("no request")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
