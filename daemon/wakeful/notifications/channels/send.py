"""Sends a message by its channel: reads the secret that the channel needs, and limits the time of the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from wakeful.core.spec.notifier import (
    Channel,
    CommandChannel,
    DesktopChannel,
    EmailChannel,
    NtfyChannel,
    UrlChannel,
    WebhookChannel,
)
from wakeful.errors import OperatorError
from wakeful.notifications.channels.http_post import send_ntfy, send_url, send_webhook
from wakeful.notifications.channels.mail import send_mail
from wakeful.notifications.channels.program import Programs
from wakeful.notifications.messages import ATTEMPT_SECONDS, Message, Refused, Sent

# The most seconds of an attempt by e-mail. SMTP takes several steps, and each has its own time limit.
MAIL_SECONDS = 60.0


class ChannelSender:
    """Sends messages. `read_secret` returns the value of a secret, or raises OperatorError with the remedy."""

    def __init__(self, programs: Programs, read_secret: Callable[[str], bytes], host: str) -> None:
        self._programs = programs
        self._read_secret = read_secret
        self._host = host

    async def send(self, channel: Channel, message: Message) -> Sent:
        limit = MAIL_SECONDS if isinstance(channel, EmailChannel) else ATTEMPT_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await self._send(channel, message)
        except TimeoutError:
            return Refused(f"not finished within {limit:.0f} s")
        except OperatorError as error:
            return Refused(str(error))

    async def _send(self, channel: Channel, message: Message) -> Sent:
        match channel:
            case CommandChannel():
                return await self._programs.send(channel, message)
            case DesktopChannel():
                return await self._programs.show(message)
            case WebhookChannel(secret=secret):
                return await send_webhook(channel, message, self._read_secret(secret))
            case NtfyChannel(secret=name):
                return await send_ntfy(channel, message, self._find_secret(name))
            case UrlChannel(secret=name):
                return await send_url(channel, message, self._find_secret(name))
            case EmailChannel(secret=name):
                password = self._find_secret(name)
                return await asyncio.to_thread(send_mail, channel, message, self._host, password)
            case _:
                assert_never(channel)

    def _find_secret(self, name: str | None) -> bytes | None:
        return self._read_secret(name) if name is not None else None
