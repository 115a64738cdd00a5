"""Reads the server name of a TLS connection from the ClientHello, which is sent unencrypted."""

from __future__ import annotations

from collections.abc import Callable

MOST = 65536
UNKNOWN_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""The TLS alert that a server sends for a host it does not serve (112)."""

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_RECORD, _MESSAGE = 5, 4
"""Header lengths of a record and of a handshake message."""


def first_message(receive: Callable[[], bytes], data: bytes) -> tuple[bytes, bytes]:
    """Return all data read, starting with `data`, and the first message in it. Raises ValueError if it is not TLS."""
    message, at = b"", 0
    while len(message) < _MESSAGE or len(message) < _MESSAGE + int.from_bytes(message[1:_MESSAGE]):
        while len(data) < at + _RECORD or len(data) < at + _RECORD + int.from_bytes(data[at + 3 : at + 5]):
            if data[at : at + 1] not in (b"", bytes([_HANDSHAKE])):
                raise ValueError("not TLS")
            if len(data) > MOST:
                raise ValueError("message too long")
            if not (piece := receive()):
                raise ConnectionError("connection closed")
            data += piece
        if data[at] != _HANDSHAKE:
            raise ValueError("not TLS")
        end = at + _RECORD + int.from_bytes(data[at + 3 : at + 5])
        message, at = message + data[at + _RECORD : end], end
    if message[0] != _CLIENT_HELLO:
        raise ValueError("not TLS")
    return data, message


def server_name(message: bytes) -> str:
    """Return the host that the ClientHello names, or "" if it names none or more than one."""
    names = []
    try:
        at = 39 + message[38]  # version, random number, session
        at += 2 + int.from_bytes(message[at : at + 2])  # ciphers
        at += 1 + message[at]  # compressions
        at, end = at + 2, at + 2 + int.from_bytes(message[at : at + 2])
        while at + 4 <= end:
            kind, size = int.from_bytes(message[at : at + 2]), int.from_bytes(message[at + 2 : at + 4])
            if kind == _SERVER_NAME:
                names.append(message[at + 9 : at + 4 + size])  # after two lengths and a type
            at += 4 + size
    except IndexError:
        return ""
    return names[0].decode("latin-1").lower().rstrip(".") if len(names) == 1 else ""
