"""HTTPS without a client library's manners: what is sent is what the case says, byte for byte."""

import http.client
import json
import socket
import ssl
import time
import urllib.parse

from harness import PATIENCE_SECS, Kit


class Wire:
    """One connection to the server of a case, with the administrator's token unless told otherwise."""

    def __init__(self, kit: Kit):
        self.kit = kit
        self.host, self.port = urllib.parse.urlsplit(kit.cluster.server).netloc.rsplit(":", 1)
        self._connection = None

    def ask(self, method: str, path: str, body=None, headers=None, token: str | None = "") -> "Reply":
        """Sends a request. `body` may be bytes, text or a value; `token=None` sends none."""
        sent = {"Accept": "application/json"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.kit.cluster.token}"
        sent.update(headers or {})
        if isinstance(body, str):
            body = body.encode()
        elif body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = self._connection or http.client.HTTPSConnection(
            self.host, int(self.port), timeout=PATIENCE_SECS, context=self.context())
        self._connection = connection
        begin = time.monotonic()
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value is not None})
            response = connection.getresponse()
            reply = Reply(response.status, response.headers, response.read())
            self.kit.slowest_secs = max(self.kit.slowest_secs, time.monotonic() - begin)
            return reply
        except (http.client.HTTPException, OSError):
            connection.close()
            self._connection = None
            raise

    def context(self, *protocols: str) -> ssl.SSLContext:
        """TLS that trusts the server; `protocols` are offered by ALPN."""
        context = ssl.create_default_context(cadata=self.kit.cluster.authority)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def plain_socket(self) -> socket.socket:
        """A TCP connection without TLS."""
        return socket.create_connection((self.host, int(self.port)), timeout=PATIENCE_SECS)

    def socket(self, *protocols: str) -> ssl.SSLSocket:
        """A TLS connection whose bytes are the case's own."""
        return self.context(*protocols).wrap_socket(self.plain_socket(), server_hostname=self.host)


class Reply:
    """What came back."""

    def __init__(self, code: int, headers, body: bytes):
        self.code, self.headers, self.raw = code, headers, body

    @property
    def json(self) -> dict:
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        return self.json.get("reason", "")

    def __repr__(self) -> str:
        return f"{self.code} {self.raw[:600].decode(errors='replace')}"


def read_all(connection) -> bytes:
    """Everything until the peer closes, however it does that."""
    received = b""
    while True:
        try:
            part = connection.recv(65536)
        except (ConnectionError, ssl.SSLError):
            return received
        if not part:
            return received
        received += part
