"""Messages over HTTP: signed webhooks, ntfy and any other address.

The user wrote the address in wakeful.yaml, so private addresses are allowed. Redirects are not followed: a status 3xx
is a failure. The status 410 means that the receiver wants no more messages.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Mapping

from wakeful.core.spec.notifier import NtfyChannel, UrlChannel, WebhookChannel, show_address
from wakeful.notifications.messages import Delivered, Gone, Message, Refused, Sent, as_json, as_text, fill, fill_text
from wakeful.system.http_request import ServiceDown, ask_http

PREFIX = "whsec_"


def read_key(secret: bytes) -> bytes:
    """Read the signing key of a secret. A secret of Standard Webhooks is `whsec_` and the key in base64. Any other
    secret is the key itself.

    Raises ValueError if there is no base64 after the prefix.
    """
    text = secret.strip()
    if not text.startswith(PREFIX.encode()):
        return text
    try:
        return base64.b64decode(text[len(PREFIX) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"it begins with {PREFIX}, and what follows is not base64") from error


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers of a signed message. `timestamp` is the time of this attempt, in seconds."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


_JSON = {"Content-Type": "application/json"}
_GONE = 410
_SUCCESS = range(200, 300)
_REDIRECT = range(300, 400)
# The statuses with which a server may ask us to try again later (`Retry-After`).
_LATER = (429, 503)
_QUOTED_BYTES = 300
_QUOTING_SECONDS = 2.0
# The names of emojis in ntfy: https://docs.ntfy.sh/emojis/
_TAGS = {"failed": "x", "asks": "question", "sleeping": "zzz", "budget": "moneybag", "recovered": "white_check_mark"}


async def send_webhook(channel: WebhookChannel, message: Message, secret: bytes) -> Sent:
    try:
        key = read_key(secret)
    except ValueError as error:
        return Refused(f"the secret {channel.secret} cannot sign: {error}")
    body = as_json(message)
    # Each attempt is signed again, because receivers refuse a timestamp older than five minutes.
    headers = sign(key, message.id, int(time.time()), body)
    return await _post(channel.url, "POST", {**_JSON, **headers}, body)


async def send_ntfy(channel: NtfyChannel, message: Message, secret: bytes | None) -> Sent:
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Title": _encode_header(message.title),
        "Priority": "high" if message.is_urgent else "default",
        "Tags": _TAGS.get(message.event, "bell"),
    }
    if message.link is not None:
        headers["Click"] = message.link
    if secret is not None:
        headers["Authorization"] = f"Bearer {_decode(secret)}"
    return await _post(channel.url, "POST", headers, as_text(message).encode())


async def send_url(channel: UrlChannel, message: Message, secret: bytes | None) -> Sent:
    url, headers = channel.url, {**_JSON, **channel.headers}
    if secret is not None:
        values = {"secret": _decode(secret)}
        url = fill_text(channel.url, values)
        headers = {name: fill_text(value, values) for name, value in headers.items()}
        if url == channel.url and headers == {**_JSON, **channel.headers}:
            headers["Authorization"] = f"Bearer {values['secret']}"
    if channel.body is None:
        body = as_json(message)
    elif isinstance(channel.body, str):
        body = fill(channel.body, message).encode()
        if "content-type" not in {name.lower() for name in channel.headers}:
            headers["Content-Type"] = "text/plain; charset=utf-8"
    else:
        body = json.dumps(fill(channel.body, message), ensure_ascii=False).encode()
    return await _post(url, channel.method, headers, body)


def _decode(secret: bytes) -> str:
    return secret.decode("utf-8", "replace").strip()


def _encode_header(text: str) -> str:
    """Encode a title that is not ASCII by RFC 2047. ntfy decodes it."""
    if text.isascii():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="


async def _post(url: str, method: str, headers: Mapping[str, str], body: bytes) -> Sent:
    shown = show_address(url)
    try:
        async with ask_http(url, method, {**headers, "Content-Length": str(len(body))}, body) as heard:
            if heard.status in _SUCCESS:
                return Delivered(f"{shown} answered {heard.status}")
            if heard.status == _GONE:
                return Gone(f"{shown} answered 410: it wants no more messages")
            if heard.status in _REDIRECT:
                where = show_address(heard.headers.get("location", "elsewhere"))
                return Refused(
                    f"{shown} answered {heard.status}, to {where[:100]}: a redirect is not followed; write the address "
                    "it leads to"
                )
            words = await _quote(heard.reader)
            later = _find_wait(heard.headers) if heard.status in _LATER else None
            return Refused(f"{shown} answered {heard.status}{words}", later)
    except ServiceDown as error:
        return Refused(str(error).replace(url, shown))
    except ssl.SSLError as error:
        return Refused(f"{shown}: TLS failed: {error.reason or error}")
    except OSError as error:
        return Refused(f"{shown}: {error.strerror or error}")
    except UnicodeError:
        return Refused(f"{shown}: a header or the host cannot be written in ASCII")


async def _quote(reader: asyncio.StreamReader) -> str:
    """Read the beginning of the answer's body, if it arrives soon."""
    try:
        async with asyncio.timeout(_QUOTING_SECONDS):
            found = await reader.read(_QUOTED_BYTES)
    except (TimeoutError, OSError):
        return ""
    text = " ".join(found.decode("utf-8", "replace").split())
    return f": {text}" if text else ""


def _find_wait(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
