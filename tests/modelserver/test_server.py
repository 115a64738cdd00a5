"""The server as a whole: its log, its address, many clients at once, the command."""

from __future__ import annotations

import errno
import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from conftest import Project, wait_until
from modelserver.modelserver_support import WIRES, ask, path, post, request, serve
from ralph.errors import RalphError
from ralph.modelserver.script import parse
from ralph.modelserver.server import ModelServer


def test_every_request_is_logged(tmp_path: Path) -> None:
    """In memory and optionally as JSON lines: time, wire, path, body, and what was played."""
    file = tmp_path / "log.jsonl"
    with ModelServer(parse("turns: [{text: a}]"), log=str(file)) as server:
        ask(server, "chat", said="the prompt\nin two lines")
        post(server, path("gemini"), request("gemini", []))
        first, second = server.requests
    assert (first.wire, first.path, first.played) == ("chat", "/v1/chat/completions", 1)
    assert "the prompt\nin two lines" in first.said()
    assert first.body["model"] == "m"
    assert first.time <= second.time
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["wire"], line["played"]) for line in lines] == [("chat", 1), ("gemini", "side")]
    assert lines[0]["body"] == first.body


def test_several_clients_at_once() -> None:
    """Each turn is played once, whichever client asks."""
    turns = ", ".join(f"{{text: turn-{n}-}}" for n in range(20))
    found: list[str] = []
    with serve(f"{{turns: [{turns}], then: error}}") as server:
        threads = [
            threading.Thread(target=lambda: found.append(ask(server, "anthropic", stream=False).text))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(entry.played for entry in server.turns() if isinstance(entry.played, int)) == list(
            range(1, 21)
        )
    assert all(sum(f"turn-{n}-" in text for text in found) == 1 for n in range(20))


@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_for_some_requests(wire: str) -> None:
    """A request that matches a `when` gets that turn, with or without tools; others without tools are side calls."""
    script = "{turns: [{text: for workers}, {when: You judge, text: for judges, times: 2}], side: aside, then: error}"
    with serve(script) as server:
        alone = post(server, path(wire), request(wire, [], said="You judge this."))
        asked = ask(server, wire, said="You judge that.")
        title = post(server, path(wire), request(wire, [], said="A title for this."))
        work = ask(server, wire, said="Do this.")
        assert [entry.played for entry in server.requests] == [2, 2, "side", 1]
    assert all("for judges" in reply.text for reply in (alone, asked))
    assert "aside" in title.text and "for workers" in work.text


def is_free(port: int) -> bool:
    """Whether nothing listens on the port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_it_listens_on_loopback_only() -> None:
    """The address is 127.0.0.1 with a free port, and nothing listens there afterwards."""
    with serve("turns: [{text: a}]") as one, serve("turns: [{text: a}]") as other:
        assert one.port != other.port
        assert one.url == f"http://127.0.0.1:{one.port}"
    assert is_free(one.port) and is_free(other.port)


def test_a_port_that_is_taken() -> None:
    """It is one clear error, and the server that has the port keeps running."""
    with serve("turns: [{text: still here}]") as server:
        with pytest.raises(RalphError) as refused:
            ModelServer(parse("turns: [{text: a}]"), server.port)
        assert f"on port {server.port}: " in refused.value.message
        assert "still here" in ask(server, "anthropic", stream=False).text


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """The file is named, and the port is free again."""
    with serve("turns: [{text: a}]") as server:
        port = server.port
    with pytest.raises(RalphError) as refused:
        ModelServer(parse("turns: [{text: a}]"), port, log=str(tmp_path))
    assert refused.value.message.startswith(f"{tmp_path}: the log cannot be written")
    assert is_free(port)


def test_closing_twice_is_harmless() -> None:
    """The second close does nothing: the port was free after the first."""
    with serve("turns: [{text: a}]") as server:
        server.close()
        assert is_free(server.port)
    assert is_free(server.port)


def test_the_command(project: Project) -> None:
    """`ralph dev model-server --json` prints its address, serves, logs, and exits with 130 on Ctrl-C."""
    (project.path / "script.yaml").write_text("turns: [{text: from-the-command}]")
    process = project.start("dev", "model-server", "script.yaml", "--json", "--log", "log.jsonl")
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert set(told["agents"]) == {"claude", "codex", "gemini", "opencode"}
        assert told["agents"]["claude"]["env"]["ANTHROPIC_BASE_URL"] == told["url"]
        reply = post(told["port"], path("responses"), request("responses"))
        assert "from-the-command" in reply.text
        wait_until(lambda: (project.path / "log.jsonl").read_text().endswith("}\n"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_the_command_explains(project: Project) -> None:
    """Without --json stdout has only the URL, and stderr explains how to point each agent at it."""
    (project.path / "script.yaml").write_text("turns: [{text: a}]")
    process = project.start("dev", "model-server", "script.yaml")
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert out == ""
    assert f"export ANTHROPIC_BASE_URL={url}\n" in err
    assert f'base_url = "{url}/v1"' in err
    assert 'export HOME="$(mktemp -d)"' in err


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_the_command_refuses_a_bad_port(project: Project, port: str) -> None:
    """Ports go from 0 to 65535."""
    result = project.run("dev", "model-server", "script.json", "--port", port)
    assert result.code == 2 and "--port" in result.err and f"not '{port}'" in result.err, result.err


def test_the_command_refuses_a_bad_script(project: Project) -> None:
    """The error names file and key; exit 2."""
    (project.path / "script.yaml").write_text("turns: [{tetx: a}]")
    result = project.run("dev", "model-server", "script.yaml")
    assert (result.code, result.out) == (2, "")
    assert "script.yaml: turns[0]: Object contains unknown field `tetx`." in result.err


def test_the_group_needs_a_command(project: Project) -> None:
    """`ralph dev` alone is a mistake; exit 2."""
    result = project.run("dev")
    assert (result.code, "Missing command" in result.err) == (2, True)
