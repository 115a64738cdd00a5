"""Whom a TLS connection is for: the first message of the client says it before anything is secret."""

from __future__ import annotations

from collections.abc import Callable

MOST = 65536
UNKNOWN_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""What a server answers that is asked for a host which it does not have."""

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_RECORD, _MESSAGE = 5, 4
"""How long the heads of both are."""


def first_message(receive: Callable[[], bytes], data: bytes) -> tuple[bytes, bytes]:
    """All that was read, beginning with `data`, and the message in it. ValueError: that is no TLS."""
    message, at = b"", 0
    while len(message) < _MESSAGE or len(message) < _MESSAGE + int.from_bytes(message[1:_MESSAGE]):
        while len(data) < at + _RECORD or len(data) < at + _RECORD + int.from_bytes(data[at + 3 : at + 5]):
            if data[at : at + 1] not in (b"", bytes([_HANDSHAKE])):
                raise ValueError("no TLS")
            if len(data) > MOST:
                raise ValueError("no end")
            if not (piece := receive()):
                raise ConnectionError("nobody is there any more")
            data += piece
        if data[at] != _HANDSHAKE:
            raise ValueError("no TLS")
        end = at + _RECORD + int.from_bytes(data[at + 3 : at + 5])
        message, at = message + data[at + _RECORD : end], end
    if message[0] != _CLIENT_HELLO:
        raise ValueError("no TLS")
    return data, message


def server_name(message: bytes) -> str:
    """The host that is named; "" for none, or for more than one."""
    names = []
    try:
        at = 39 + message[38]  # version, random number, session
        at += 2 + int.from_bytes(message[at : at + 2])  # ciphers
        at += 1 + message[at]  # compressions
        at, end = at + 2, at + 2 + int.from_bytes(message[at : at + 2])
        while at + 4 <= end:
            kind, size = int.from_bytes(message[at : at + 2]), int.from_bytes(message[at + 2 : at + 4])
            if kind == _SERVER_NAME:
                names.append(message[at + 9 : at + 4 + size])  # behind two lengths and a type
            at += 4 + size
    except IndexError:
        return ""
    return names[0].decode("latin-1").lower().rstrip(".") if len(names) == 1 else ""
