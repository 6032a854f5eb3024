"""Sends one request over HTTP and reads the stream of events that answers it. Used by provider_model.py.

The client reads HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE from the environment, as other programs do, but no
keys. It does not retry, because the loop does, and records each attempt. It gives up on a silent peer. Network errors,
and every status that is not a success, are raised as `Trouble`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Iterator

import httpx2
import msgspec

from wakeful import __version__
from wakeful.agents.models.provider_errors import MOST_WORDS, Trouble, judge_status, make_garbage
from wakeful.agents.models.wire_format import Post

CONNECT_SECONDS = 10.0
# The most bytes of one event. The largest events have an answer as long as the whole window.
LARGEST_EVENT_BYTES = 64 << 20
_USER_AGENT = f"wakeful/{__version__}"


@functools.cache
def find_trust(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Load the trusted certificates, from the environment's file or folder, or else the system's.

    They are cached for all models, because loading takes 0.05 s. A process that forks runs loads them before the fork.
    """
    return httpx2.create_ssl_context()


class Exchange:
    """The connections to one provider."""

    def __init__(self, silence_seconds: float, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Make a client. `transport` carries the requests. None means the network."""
        timeout = httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds), pool=CONNECT_SECONDS)
        trust = find_trust(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        self._client = httpx2.AsyncClient(
            timeout=timeout, headers={"User-Agent": _USER_AGENT}, verify=trust, transport=transport
        )

    async def send(self, post: Post, recorded: Awaitable[object] | None) -> AsyncGenerator[bytes]:
        """Send a request and yield the data of each event as it comes. Nothing is sent before `recorded` is done."""
        headers = {"Content-Type": "application/json", **post.headers}
        request = self._client.build_request("POST", post.url, content=post.body, headers=headers)
        if recorded is not None:
            await recorded
        with _tell_transport():
            response = await self._client.send(request, stream=True)
            try:
                if not response.is_success:
                    raise judge_status(response.status_code, _read_body(await response.aread()), response.headers)
                reader = EventReader()
                async with contextlib.aclosing(response.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        for data in reader.take(piece):
                            yield data
                for data in reader.end():
                    yield data
            finally:
                await response.aclose()


@contextlib.contextmanager
def _tell_transport() -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        # These errors occur before anything is sent, so nothing can have been spent.
        raise Trouble("unreached", "cannot be reached, and nothing was sent", _say(error)) from None
    except httpx2.TimeoutException as error:
        raise Trouble("network", "sent nothing for too long (limits.silence of its agent)", _say(error)) from None
    except httpx2.TransportError as error:
        raise Trouble("network", "cannot be reached, or the connection broke", _say(error)) from None
    except httpx2.DecodingError as error:
        raise make_garbage(_say(error)) from None


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read_body(content: bytes) -> object:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content.decode(errors="replace")


class EventReader:
    """Parses server-sent events from pieces of bytes.

    Yields the data of each event, which also contains the event's name.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._has_events = False
        # The beginning of a body that is not a stream of events, for the error message.
        self._stray = b""

    def take(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
            elif not line:
                yield from self._finish_event()
            elif len(self._stray) < MOST_WORDS and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                self._stray += line + b" "
        if self._size + len(self._rest) > LARGEST_EVENT_BYTES:
            raise make_garbage(f"one piece of more than {LARGEST_EVENT_BYTES >> 20} MiB")

    def end(self) -> Iterator[bytes]:
        yield from self.take(b"\n")
        yield from self._finish_event()
        if not self._has_events:
            raise make_garbage(self._stray.decode(errors="replace") or "an empty body")

    def _finish_event(self) -> Iterator[bytes]:
        if self._data:
            data, self._data, self._size, self._has_events = b"\n".join(self._data), [], 0, True
            yield data
