"""Frames of HTTP/2, as far as a rude client needs them (RFC 9113, and RFC 7541 for headers)."""

import ssl
import struct

# Frame types and flags of HTTP/2 (RFC 9113, section 6).
HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value: int, prefix: int, flags: int = 0) -> bytes:
    """A number as HPACK writes it after so many bits of prefix (RFC 7541, section 5.1)."""
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([flags | value])
    rest, digits = value - limit, [flags | limit]
    while rest >= 128:
        digits.append(rest % 128 + 128)
        rest //= 128
    return bytes([*digits, rest])


def request_headers(authority: bytes, path: bytes = b"/version", token: str = "") -> bytes:
    """`GET https://authority/path`, by indexes of the static table, where all of these names are."""
    def literal(index: int, value: bytes) -> bytes:
        return integer(index, 4) + integer(len(value), 7) + value
    bearer = literal(23, b"Bearer " + token.encode()) if token else b""
    return bytes([0x82, 0x87]) + literal(4, path) + literal(1, authority) + bearer


def frames(connection: ssl.SSLSocket):
    """The frames that the server sends: kind, flags and payload."""
    buffer = b""
    while True:
        while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], "big")):
            yield buffer[3], buffer[4], buffer[9:9 + length]
            buffer = buffer[9 + length:]
        if not (more := connection.recv(1 << 16)):
            return
        buffer += more
