"""Connections that are misused (BI-13 to BI-15) and watches that are too many or never read (BI-85): they end, or are
bounded, and nobody else notices.
"""

import contextlib
import select
import struct
import time

from answers import bounded, expect, paths
from harness import PATIENCE_SECS, Kit, config_map, contains, same
from http2 import (CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, frames,
                   request_headers)
from machine import until
from wire import Wire, read_all


@bounded
def the_door_speaks_http_over_tls_only(kit: Kit):
    wire = Wire(kit)
    with wire.plain_socket() as plain:
        # BI-13
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        contains(read_all(plain).decode(), " 400 ", "Client sent an HTTP request to an HTTPS server.")
    for row, line, headers, code in (
            ("BI-14", b"GET /version HTTP/1.1", b"", b" 400 "),
            ("BI-14", b"GET /version HTTP/9.9", b"Host: localhost\r\n", b" 505 ")):
        with wire.socket("http/1.1") as connection:
            connection.sendall(line + b"\r\n" + headers + b"Connection: close\r\n\r\n")
            answer = read_all(connection)
            if code not in answer.split(b"\r\n")[0]:
                raise AssertionError(f"{row}: expected{code.decode()}, got {answer[:300]!r}")


def is_cut_off(wire: Wire, flood) -> bool:
    """Whether the server ends a connection on which frames come without end."""
    with wire.socket("h2") as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
        try:
            for part in flood:
                connection.settimeout(PATIENCE_SECS)
                connection.sendall(part)
                # What the server says is read as it comes, so that it never waits for us.
                connection.settimeout(0.0001)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65536):
                        return True
            connection.settimeout(5)
            read_all(connection)
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


@bounded
def floods_of_http_2_frames_end_their_own_connection_only(kit: Kit):
    wire = Wire(kit)
    authority = wire.host.encode()

    def resets():
        for number in range(10_000):
            stream = 2 * number + 1
            yield (frame(HEADERS, END_STREAM | END_HEADERS, stream, request_headers(authority))
                   + frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))

    def continuations():
        yield frame(HEADERS, 0, 1, request_headers(authority))
        for number in range(10_000):
            name = b"x%06d" % number
            yield frame(CONTINUATION, 0, 1, bytes([0, len(name)]) + name + bytes([100]) + b"v" * 100)

    for what, flood in (("streams that are reset", resets()), ("headers without end", continuations())):
        if not is_cut_off(wire, flood):
            raise AssertionError(f"BI-15: {what}: the connection stays open")
        same(wire.ask("GET", "/version").code, 200)


def watch_in_silence(wire: Wire, path: str):
    """A watch of HTTP/1.1 whose answer stays where it is."""
    connection = wire.socket("http/1.1")
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
                       f"Authorization: Bearer {wire.kit.cluster.token}\r\n\r\n".encode())
    return connection


def watch_without_window(wire: Wire, path: str, watches: int):
    """As many watches on one connection of HTTP/2. They are answered; of what they say the client takes in as much as one
    connection may have without asking, and never asks for more."""
    connection = wire.socket("h2")
    connection.settimeout(PATIENCE_SECS)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    headers = request_headers(wire.host.encode(), path.encode(), wire.kit.cluster.token)
    for number in range(watches):
        connection.sendall(frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, headers))
    answered = 0
    for kind, _, _ in frames(connection):
        answered += kind == HEADERS
        if answered == watches:
            return connection
    raise AssertionError(f"BI-85: of {watches} watches {answered} are answered")


def is_answered(connection) -> bool:
    """Whether there is something to read, which is left unread."""
    return bool(select.select([connection], [], [], 0)[0])


@bounded
def watches_that_are_never_read_harm_nobody(kit: Kit):
    """BI-85. Each of them is behind by all that was written: 12 MB, more than a connection and the server together have
    buffers for, and for all of them together far more than the server may take."""
    wire, at = Wire(kit), paths(kit)
    before = expect("BI-85", wire.ask("GET", at["configmaps"]), 200, "").json["metadata"]["resourceVersion"]
    with contextlib.ExitStack() as silent:
        live = [silent.enter_context(watch_in_silence(wire, f"{at['configmaps']}?watch=1")) for _ in range(50)]
        until("all are answered", lambda: all(map(is_answered, live)))
        for number in range(24):
            expect("BI-85", wire.ask("POST", at["configmaps"], config_map(f"m-{number}", text="x" * 500_000)), 201)
        past = f"{at['configmaps']}?watch=1&resourceVersion={before}"
        # From the past, from the present objects on, and through a selector.
        for path in (past, f"{at['configmaps']}?watch=1", f"{past}&labelSelector=!none"):
            late = [silent.enter_context(watch_in_silence(wire, path)) for _ in range(50)]
            until("all are answered", lambda late=late: all(map(is_answered, late)))
            silent.enter_context(watch_without_window(wire, path, 100))
        begin = time.monotonic()
        same(wire.ask("GET", f"{at['configmaps']}/m-0").code, 200)
        if (spent := time.monotonic() - begin) > 1.0:
            raise AssertionError(f"BI-85: others wait {spent:.1f} s")


@bounded
def ten_thousand_watches_of_one_client_are_bounded(kit: Kit):
    """BI-85: what is over the limit of a connection is refused, and others are served."""
    wire, at = Wire(kit), paths(kit)
    headers = request_headers(wire.host.encode(), f"{at['configmaps']}?watch=1".encode(), kit.cluster.token)
    connections, allowed, asked = 10, 1000, 1100
    with contextlib.ExitStack() as open_ones:
        for _ in range(connections):
            connection = open_ones.enter_context(wire.socket("h2"))
            connection.settimeout(4 * PATIENCE_SECS)
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            # The server's limit comes first; a client that does not care for it goes on all the same.
            for number in range(asked):
                connection.sendall(frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, headers))
            answered = refused = 0
            for kind, flags, payload in frames(connection):
                # `:status: 200` of the static table, and more to come.
                answered += kind == HEADERS and payload[0] == 0x88 and not flags & END_STREAM
                refused += kind == RST_STREAM
                if answered + refused == asked:
                    break
            if (answered, refused) != (allowed, asked - allowed):
                raise AssertionError(f"BI-85: of {asked} watches {answered} are answered and {refused} refused")
        begin = time.monotonic()
        expect("BI-85", wire.ask("POST", at["configmaps"], config_map("seen", text="x")), 201)
        same(wire.ask("GET", f"{at['configmaps']}/seen").code, 200)
        if (spent := time.monotonic() - begin) > 5.0:
            raise AssertionError(f"BI-85: others wait {spent:.1f} s while {connections * allowed} watches are open")
