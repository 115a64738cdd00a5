"""The way out of a sandbox with an allow-list: what it lets through, and ten ways around it that fail."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import wait_until
from ralph.core.model import Network
from ralph.sandbox.base import Boundary, Mounts, SandboxOutput
from ralph.sandbox.bubblewrap import Bubblewrap
from ralph.sandbox.hello import UNKNOWN_NAME
from ralph.sandbox.proxy import Host, Refused, chosen_address, is_address, opened_proxy

PUBLIC = "93.184.216.34"


class Echo(BaseHTTPRequestHandler):
    """Answers with the requested Host and the data it received."""

    def do_GET(self) -> None:
        body = f"host {self.headers['Host']} path {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    """Run a web server on loopback and return its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_port
        found.shutdown()


def on_loopback(name: str, port: int) -> Sequence[str]:
    """Resolve every name to this machine, except one that resolves to a cloud's metadata service."""
    return ["169.254.169.254"] if name == "metadata.test" else ["127.0.0.1"]


# ---- decisions ----


@pytest.mark.parametrize(
    ("host", "port", "allowed", "addresses", "word"),
    [
        ("a.test", 443, ["a.test"], [PUBLIC], ""),
        ("A.TEST.", 80, ["a.test"], [PUBLIC], ""),
        ("b.a.test", 443, ["*.a.test"], [PUBLIC], ""),
        ("a.test", 8443, ["a.test:8443"], ["10.0.0.1"], ""),
        ("a.test", 443, ["a.test"], ["10.0.0.1", PUBLIC], ""),
        ("a.test", 22, ["a.test"], [PUBLIC], "port 22"),
        ("a.test", 443, ["a.test:8443"], [PUBLIC], "port 443"),
        ("b.test", 443, ["a.test"], [PUBLIC], "not listed"),
        ("ba.test", 443, ["*.a.test"], [PUBLIC], "not listed"),
        ("a.test", 443, ["*.a.test"], [PUBLIC], "not listed"),
        ("a.test", 443, ["a.test"], ["127.0.0.1"], "not public"),
        ("a.test", 443, ["a.test"], ["::ffff:10.0.0.1"], "not public"),
        ("a.test", 80, ["a.test:80"], ["169.254.169.254"], "not public"),
        ("a.test", 80, ["a.test:80"], ["fd00:ec2::254"], "not public"),
        ("a.test", 80, ["a.test:80"], ["0.0.0.0"], "not public"),
        (PUBLIC, 443, ["a.test"], [PUBLIC], "address"),
        ("2130706433", 443, ["a.test"], [PUBLIC], "address"),
        ("0x7f.1", 443, ["a.test"], [PUBLIC], "address"),
        ("::1", 443, ["a.test"], [PUBLIC], "address"),
    ],
)
def test_which_hosts_can_be_reached(
    host: str, port: int, allowed: list[str], addresses: list[str], word: str
) -> None:
    """Listed names and ports at public addresses; a port named in the list at any address but link-local."""
    hosts = [Host.parse(each) for each in allowed]
    try:
        found = chosen_address(host, port, hosts, lambda name, port: addresses)
    except Refused as refused:
        assert word and word in str(refused)
    else:
        assert not word and found in addresses


@given(st.ip_addresses())
def test_an_address_is_not_a_name(address: object) -> None:
    """No usual notation of an IPv4 or IPv6 address can be listed or requested."""
    assert is_address(str(address))
    with pytest.raises(ValueError):
        Host.parse(str(address))


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "a b", "http://a.test", "a.test:", "a.test:0", "a.test:x", "a/b"]
)
def test_an_invalid_host_is_refused(text: str) -> None:
    """One error, before anything starts."""
    with pytest.raises(ValueError):
        Host.parse(text)


# ---- traffic, outside any sandbox ----


@contextmanager
def asked(tmp_path: Path, hosts: Sequence[str]) -> Iterator[tuple[socket.socket, list[str]]]:
    told: list[str] = []
    with (
        opened_proxy(str(tmp_path), hosts, told.append, on_loopback) as path,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.settimeout(10)
        client.connect(path)
        yield client, told


def answer(client: socket.socket, request: str) -> str:
    client.sendall(request.encode())
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data.decode()


def test_an_allowed_request_goes_through(tmp_path: Path, server: int) -> None:
    """Plain HTTP with an absolute URL uses the URL's host, whatever the Host header says."""
    with asked(tmp_path, [f"a.test:{server}"]) as (client, told):
        request = (
            f"GET http://a.test:{server}/x?y HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: z\r\n\r\n"
        )
        assert answer(client, request).endswith(f"host a.test:{server} path /x?y")
        assert told == []


def test_an_allowed_tunnel_goes_through(tmp_path: Path, server: int) -> None:
    """After CONNECT, data passes in both directions."""
    with asked(tmp_path, [f"a.test:{server}"]) as (client, _):
        client.sendall(f"CONNECT a.test:{server} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert "host inner" in answer(client, "GET / HTTP/1.1\r\nHost: inner\r\nConnection: close\r\n\r\n")


def test_a_body_goes_through_and_nothing_behind_it(tmp_path: Path, server: int) -> None:
    """A second request cannot be hidden after the first: it could be for another host of the same server."""
    with asked(tmp_path, [f"a.test:{server}"]) as (client, _):
        request = f"POST http://a.test:{server}/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
        assert answer(client, f"{request}GET / HTTP/1.1\r\nHost: other\r\n\r\n").endswith("hello")


@pytest.mark.parametrize(
    "request_",
    [
        "GET http://a.test:{port}/ HTTP/1.1\r\nX: y\nHost: other.test\r\n\r\n",
        "POST http://a.test:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://a.test:{port}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET / HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n",
        "GET ftp://a.test:{port}/ HTTP/1.1\r\n\r\n",
        "CONNECT a.test HTTP/1.1\r\n\r\n",
    ],
)
def test_ambiguous_requests_are_refused(tmp_path: Path, server: int, request_: str) -> None:
    """The answer is 403, and the refusal is reported once and logged."""
    with asked(tmp_path, [f"a.test:{server}"]) as (client, told):
        assert answer(client, request_.format(port=server)).startswith("HTTP/1.1 403")
        assert len(told) == 1 and "refused" in told[0]
    assert (tmp_path / "refused.log").read_text().count("\n") == 1


# ---- the usual ports, which many hosts can share ----


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Run an echo server on the usual port and return the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr("ralph.sandbox.proxy.USUAL_PORTS", (port, 80))
        monkeypatch.setattr("ralph.sandbox.proxy._may_reach", lambda address, is_vouched: True)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as found:
                        found.sendall(found.recv(65536))

        threading.Thread(target=serve, daemon=True).start()
        yield port


def greeting(name: str | None) -> bytes:
    """Return the first message of a real TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(data: bytes, size: int) -> bytes:
    """Split a message into several records."""
    message = data[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def through(client: socket.socket, port: int, words: bytes) -> bytes:
    client.sendall(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
    assert client.recv(1000).startswith(b"HTTP/1.1 200")
    found = b""
    with suppress(ConnectionError):
        client.sendall(words)  # an answer that has already arrived can still be read
    with suppress(ConnectionError):
        while piece := client.recv(65536):
            found += piece
    return found


@pytest.mark.parametrize("name", ["a.test", "A.Test"])
def test_tls_for_the_host_goes_through(tmp_path: Path, behind: int, name: str) -> None:
    """It passes unchanged, whole or in pieces."""
    for said in (greeting(name), in_records(greeting(name), 100)):
        with asked(tmp_path, ["a.test"]) as (client, told):
            assert through(client, behind, said) == said
            assert told == []


@pytest.mark.parametrize(
    "said",
    [greeting("other.test"), greeting(None), b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", b"\x16" * 70_000],
    ids=["another", "nobody", "no TLS", "rubbish"],
)
def test_tls_for_another_host_behind_the_same_address_is_refused(
    tmp_path: Path, behind: int, said: bytes
) -> None:
    """A server of many hosts selects one by the name in TLS."""
    with asked(tmp_path, ["a.test"]) as (client, told):
        assert through(client, behind, said) == UNKNOWN_NAME
        wait_until(lambda: len(told) == 1)
    assert "TLS inside the tunnel asks for" in told[0]


def test_a_port_that_the_list_names_carries_anything(tmp_path: Path, behind: int) -> None:
    """Naming a port allows any data on it."""
    with asked(tmp_path, [f"a.test:{behind}"]) as (client, told):
        assert through(client, behind, b"SSH-2.0") == b"SSH-2.0" and told == []


def test_a_tunnel_to_port_80_carries_a_request_for_its_host(
    tmp_path: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs use a tunnel there too; another Host would be another site at the same address."""
    monkeypatch.setattr("ralph.sandbox.proxy.HTTP", server)
    monkeypatch.setattr("ralph.sandbox.proxy.USUAL_PORTS", (443, server))
    monkeypatch.setattr("ralph.sandbox.proxy._may_reach", lambda address, is_vouched: True)
    with asked(tmp_path, ["a.test"]) as (client, told):
        said = b"GET /x HTTP/1.1\r\nHost: other.test\r\n\r\nGET /y HTTP/1.1\r\nHost: other.test\r\n\r\n"
        assert through(client, server, said).endswith(b"host a.test path /x") and told == []
    with asked(tmp_path, ["a.test"]) as (client, told):
        assert b" 403 " in through(client, server, b"GET http://other.test/ HTTP/1.1\r\n\r\n")
        assert len(told) == 1


def test_refusals_fill_neither_memory_nor_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process inside can ask for other hosts endlessly."""
    monkeypatch.setattr("ralph.sandbox.proxy.MAX_TOLD", 3)
    monkeypatch.setattr("ralph.sandbox.proxy.MAX_LOGGED", 5)
    told: list[str] = []
    with opened_proxy(str(tmp_path), [], told.append, on_loopback) as path:
        for number in range(10):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                assert " 403 " in answer(client, f"CONNECT h{number}.test:443 HTTP/1.1\r\n\r\n")
    assert len(told) == 3
    assert (tmp_path / "refused.log").read_text().count("\n") == 5


# ---- from inside ----

_WAYS = r"""
import json, os, socket, subprocess, sys
port, path, proxy = int(sys.argv[1]), sys.argv[2], os.environ["HTTP_PROXY"]
found = {}
def curl(name, *words):
    done = subprocess.run(["curl", "-sS", "--max-time", "5", *words], capture_output=True, text=True)
    found[name] = done.stdout if done.returncode == 0 and "Ralph's sandbox" not in done.stdout else ""
def reach(name, family, kind, address):
    try:
        with socket.socket(family, kind) as client:
            client.settimeout(5)
            client.connect(address)
            client.send(b"x")
            found[name] = "reached"
    except OSError as error:
        found[name] = ""
curl("allowed", f"http://a.test:{port}/")
curl("noproxy", "--noproxy", "*", f"http://127.0.0.1:{port}/")
curl("other host", f"http://b.test:{port}/")
curl("address through the proxy", "--noproxy", "none", "-x", proxy, f"http://127.0.0.1:{port}/")
curl("other port", f"http://a.test:{port + 1}/")
curl("metadata", "http://metadata.test/latest/")
curl("metadata by address", "--noproxy", "none", "-x", proxy, "http://169.254.169.254/latest/")
curl("host header", "-H", f"Host: a.test:{port}", f"http://b.test:{port}/")
reach("direct address", socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443))
reach("IPv6", socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 443))
reach("UDP and DNS", socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53))
reach("unix socket", socket.AF_UNIX, socket.SOCK_STREAM, path)
reach("abstract socket", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + path)
print(json.dumps(found))
"""


@pytest.mark.usefixtures("bubblewrap")
def test_s3_ten_ways_around_it_fail(tmp_path: Path, server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried inside a real sandbox, an allowed name works, and every refusal is reported."""
    monkeypatch.setattr(
        "ralph.sandbox.bubblewrap.opened_proxy",
        lambda state, hosts, tell: opened_proxy(state, hosts, tell, on_loopback),
    )
    project, state, told = tmp_path / "project", tmp_path / "state", list[str]()
    project.mkdir()
    state.mkdir()
    (project / "ways.py").write_text(_WAYS)
    outside = Path(__file__).parent / f".ways-{os.getpid()}.sock"

    def run(argv: Sequence[str], seconds: float) -> SandboxOutput:
        done = subprocess.run(argv, capture_output=True, timeout=seconds)
        return SandboxOutput(done.returncode, done.stdout, done.stderr.decode())

    boundary = Boundary(
        "x", str(state), (str(project),), Network.ALLOW_LIST, (f"a.test:{server}", "metadata.test")
    )
    prefixes = tuple({sys.prefix, sys.base_prefix})
    with (
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
        Bubblewrap().opened(boundary, run, told.append) as sandbox,
    ):
        named.bind(str(outside))
        abstract.bind(f"\0{outside}")
        for listener in (named, abstract):
            listener.listen()
        try:
            argv = ["python3", "ways.py", str(server), str(outside)]
            path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
            inside = sandbox.wrap(argv, {"PATH": path}, Mounts(str(project), (str(project),), prefixes))
            done = subprocess.run(
                inside.argv, env=dict(inside.environment), capture_output=True, text=True, timeout=100
            )
        finally:
            outside.unlink()
    found = json.loads(done.stdout)
    assert found.pop("allowed") == f"host a.test:{server} path /"
    assert len(found) >= 10 and not any(found.values()), found
    for word in ("b.test", "127.0.0.1", "169.254.169.254", "metadata.test"):
        assert any(word in text for text in told), told
