"""Every fault, on every wire, as a client sees it."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from conftest import some, wait_until
from modelserver.modelserver_support import DONE, WIRES, ask, path, post, request, serve

LONG = "text: This text is long enough to be streamed in more than one piece"


@pytest.mark.parametrize("wire", WIRES)
def test_a_status_with_headers(wire: str) -> None:
    """The status, the headers and an error in the wire's own form."""
    script = "turns: [{status: 429, headers: {retry-after: '7'}, message: Slow down}]"
    with serve(script) as server:
        reply = ask(server, wire)
    assert (reply.status, reply.headers["retry-after"]) == (429, "7")
    error = reply.json()["error"]
    assert error["message"] == "Slow down"
    kinds = {"anthropic": "rate_limit_error", "gemini": "RESOURCE_EXHAUSTED"}
    assert error.get("status" if wire == "gemini" else "type") == kinds.get(wire, "rate_limit_exceeded")


def test_the_type_and_the_body_of_an_error() -> None:
    """`type` replaces the usual kind; `body` replaces everything, even with text that is not JSON."""
    script = """
    turns:
      - {status: 529, type: my_error}
      - {status: 500, body: {a: 1}}
      - {status: 502, body: "<html>", headers: {Content-Type: text/html}}
    """
    with serve(script) as server:
        replies = [ask(server, "anthropic") for _ in range(3)]
    assert [reply.status for reply in replies] == [529, 500, 502]
    assert replies[0].json()["error"]["type"] == "my_error"
    assert replies[1].json() == {"a": 1}
    assert (replies[2].text, replies[2].headers["content-type"]) == ("<html>", "text/html")


@pytest.mark.parametrize("wire", WIRES)
def test_a_usage_limit(wire: str) -> None:
    """It looks like the real API's error, with the reset time if that API gives one."""
    reset = int(time.time()) + 3600
    with serve(f"turns: [{{usage_limit: {{resets_at: {reset}}}}}]") as server:
        reply = ask(server, wire)
    assert reply.status == 429
    if wire == "anthropic":
        assert reply.headers["anthropic-ratelimit-unified-status"] == "rejected"
        assert reply.headers["anthropic-ratelimit-unified-reset"] == str(reset)
    elif wire == "responses":
        error = reply.json()["error"]
        assert (error["type"], error["resets_at"]) == ("usage_limit_reached", reset)
    elif wire == "gemini":
        quota, retry = reply.json()["error"]["details"]
        assert "PerDay" in quota["violations"][0]["quotaId"]
        assert 3590 <= int(retry["retryDelay"].rstrip("s")) <= 3600
    else:
        assert reply.json()["error"]["code"] == "insufficient_quota"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_connection(wire: str, stream: bool) -> None:
    """The connection ends in the middle of the answer, before its end is marked."""
    with serve(f"turns: [{{{LONG}, cut: true}}]") as server:
        reply = ask(server, wire, stream=stream)
    assert (reply.status, reply.whole) == (200, False)
    with pytest.raises(json.JSONDecodeError):
        reply.json()
    assert not stream or DONE[wire] not in reply.text


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_a_malformed_answer(wire: str, stream: bool) -> None:
    """A complete HTTP response that cannot be decoded."""
    with serve(f"turns: [{{{LONG}, malformed: true}}]") as server:
        reply = ask(server, wire, stream=stream)
    assert (reply.status, reply.whole) == (200, True)
    with pytest.raises(json.JSONDecodeError):
        reply.events() if stream else reply.json()


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_within_the_stream(wire: str) -> None:
    """The stream starts well and then has an error event."""
    with serve("turns: [{stream_error: true, message: Overloaded, text: a}]") as server:
        reply = ask(server, wire)
    assert (reply.status, reply.whole) == (200, True)
    first, last = reply.events()
    assert "Overloaded" not in json.dumps(first)
    assert "Overloaded" in json.dumps(last)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_an_empty_answer(wire: str, stream: bool) -> None:
    """A success with nothing in it."""
    with serve("turns: [{empty: true}]") as server:
        reply = ask(server, wire, stream=stream)
    assert (reply.status, reply.whole) == (200, True)
    if not stream:
        nothing = {
            "anthropic": lambda body: body["content"],
            "responses": lambda body: body["output"],
            "chat": lambda body: body["choices"][0]["message"]["content"],
            "gemini": lambda body: body["candidates"][0]["content"]["parts"],
        }
        assert not nothing[wire](reply.json())
    else:
        assert DONE[wire] in reply.text


def test_a_delay() -> None:
    """The answer is delayed."""
    with serve("turns: [{text: later, delay: 3600}, {text: late, delay: 0.2}]") as server:
        impatient = started(server.port, "anthropic")
        with pytest.raises(TimeoutError):
            impatient.getresponse()
        impatient.close()
        reply = ask(server, "anthropic")
    assert "late" in reply.text


def test_headers_on_a_success() -> None:
    """A success can have headers too, such as how much of a window is used."""
    with serve("turns: [{text: a, headers: {x-used: '0.9'}}]") as server:
        reply = ask(server, "anthropic")
    assert (reply.status, reply.headers["x-used"]) == (200, "0.9")


def started(port: int, wire: str) -> http.client.HTTPConnection:
    """A request whose answer has not been awaited yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    connection.request("POST", path(wire), json.dumps(request(wire)))
    return connection


@pytest.mark.parametrize("wire", some(WIRES, 1))
def test_a_hang_before_the_headers(wire: str) -> None:
    """Nothing is sent; close() ends the connection."""
    with serve("turns: [{hang: true}]") as server:
        connection = started(server.port, wire)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()


@pytest.mark.parametrize("wire", some(WIRES, 1))
def test_a_hang_in_mid_stream(wire: str) -> None:
    """The first events are sent, then nothing; close() ends the connection at once."""
    with serve(f"turns: [{{{LONG}, hang_after: 1}}]") as server:
        connection = started(server.port, wire)
        answer = connection.getresponse()
        assert answer.readline().startswith((b"event:", b"data:"))
        with pytest.raises(TimeoutError):
            answer.read()
    connection.close()


def test_close_ends_every_connection() -> None:
    """Hangs, delays and idle connections all end with the server, and their clients notice."""
    server = serve("turns: [{hang: true}, {delay: 3600, text: a}, {text: a, hang_after: 1, times: forever}]")
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    kept.request("GET", "/v1/models")
    kept.getresponse().read()
    connections = [started(server.port, "anthropic") for _ in range(3)]
    wait_until(lambda: len(server.turns()) == 3)
    server.close()
    for connection in connections:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            connection.getresponse().read()
        connection.close()
    kept.close()


def test_a_client_that_goes_away_in_a_hang() -> None:
    """The server keeps running; the next request is answered."""
    with serve("turns: [{hang: true}, {text: next}]") as server:
        connection = started(server.port, "anthropic")
        wait_until(lambda: server.turns())
        connection.close()
        assert "next" in ask(server, "anthropic").text


def test_after_the_last_turn() -> None:
    """`then: error` is a 400 that no client retries."""
    with serve("{turns: [{text: a}], then: error}") as server:
        assert [ask(server, "anthropic").status for _ in range(3)] == [200, 400, 400]
        assert [entry.played for entry in server.requests] == [1, "refused", "refused"]


def test_a_fault_and_its_repair() -> None:
    """`times` repeats a fault, then the next turn is played."""
    with serve("turns: [{status: 500, times: 2}, {text: fine}]") as server:
        assert [ask(server, "chat").status for _ in range(4)] == [500, 500, 200, 200]
        assert [entry.played for entry in server.requests] == [1, 1, 2, 2]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"tools": 5}', b'{"tools": [5]}', b"\xff"])
@pytest.mark.parametrize("wire", WIRES)
def test_requests_that_make_no_sense(wire: str, body: bytes) -> None:
    """They get a 400 and use no turn."""
    with serve("turns: [{text: a}]") as server:
        assert post(server, path(wire), body).status == 400
        assert [entry.played for entry in server.requests] == ["refused"]


def test_unknown_paths_and_huge_bodies() -> None:
    """An unknown path is a 404; a body over the cap is refused before it is read."""
    with serve("turns: [{text: a}]") as server:
        assert post(server, "/v1/nothing", {}).status == 404
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.putrequest("POST", path("chat"))
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
