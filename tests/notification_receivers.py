"""Stub servers on loopback that receive notifications: an HTTP server that checks signatures itself, and SMTP."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Message
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def data(self) -> dict[str, Any]:
        return self.document["data"]

    def is_signed(self, key: bytes = KEY) -> bool:
        """Check the signature as Standard Webhooks describes it, without code of ours."""
        stamp = self.headers["webhook-timestamp"]
        signed = b".".join((self.headers["webhook-id"].encode(), stamp.encode(), self.body))
        wanted = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return abs(time.time() - int(stamp)) < 300 and wanted in self.headers["webhook-signature"].split(" ")


@dataclass
class Receiver:
    """An HTTP server that records requests. It answers with `statuses` one after the other, then with 200."""

    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> Receiver:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                request = Request(self.command, self.path, self.headers, body)
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.requests.append(request)

            do_PUT = do_POST

            def log_message(self, *arguments: object) -> None:
                """Print no log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._serving.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def titles(self) -> list[str]:
        return [one.data["title"] for one in list(self.requests)]


@dataclass
class MailServer:
    """A mail server on loopback. With a certificate it requires STARTTLS and a login."""

    certificate: Path | None = None
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    # User, password, and whether the connection was encrypted at that time.
    logins: list[tuple[str, str, bool]] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> MailServer:
        self._loop = asyncio.new_event_loop()
        self._serving = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _listen(self) -> asyncio.Server:
        security: dict[str, Any] = {}
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            security = {"tls_context": context, "require_starttls": True, "auth_required": True}
            security["authenticator"] = self._admit
        return await self._loop.create_server(lambda: SMTP(self, **security), "127.0.0.1", 0)

    def _admit(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        self.logins.append((data.login.decode(), data.password.decode(), session.ssl is not None))
        return AuthResult(success=True)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append((list(envelope.rcpt_tos), envelope.content.decode()))
        return "250 taken"

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._serving.join(5)
