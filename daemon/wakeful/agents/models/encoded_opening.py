"""The opening of a conversation as it goes over the wire, encoded once: what makes a turn cost the same at any length.

The library and the SDKs map, check and encode every message of every request anew: measured at 2,000 messages, 70 ms
(Anthropic) to 1.4 s (OpenAI) of work whose outcome was on the wire a turn ago. Here the bytes of all messages that will
not change are kept; only what is new since then goes through the library, and the body is put together at the last
moment, in the HTTP client. There it also waits until its record is on disk: making a request ready takes about as long
as recording it, so both go on at once. The bytes sent are those the library would have made, which a test holds for
every format. provider_model.py and providers.py call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from typing import Any

import httpx2
import msgspec
from pydantic_ai.messages import ModelMessage, ThinkingPart, ToolReturnPart

from wakeful.core.spec.agent import Provider

# Where a body has its conversation.
_FIELDS: dict[Provider, str] = {
    "anthropic": "messages",
    "openai": "input",
    "openai-chat": "messages",
    "openai-compatible": "messages",
    "google": "contents",
}
# Formats in which instructions are the first of the messages. In them, too, an empty thought is added to older messages
# or taken away again as a conversation goes on, once it has thoughts at all (the library does what DeepSeek asks for):
# none of it settles.
_COMPLETIONS: frozenset[Provider] = frozenset({"openai-chat", "openai-compatible"})

_BODY = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class _Whose(msgspec.Struct):
    """The speaker of an item of a conversation. Messages have a role; OpenAI's results of calls have only a type."""

    role: str | None = None
    type: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.role in ("user", "tool") or self.type == "function_call_output"


_WHOSE = msgspec.json.Decoder(_Whose)


class Opening:
    """The encoded opening of one conversation. It serves one request at a time."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._field = _FIELDS[provider]
        # The record of the request under way, which is not sent before it is there.
        self.recorded: Awaitable[object] | None = None
        self._forget()

    def _forget(self) -> None:
        self._encoded = bytearray()
        self._covered = 0
        # The last message covered: conversations are told from each other by its identity.
        self._last: ModelMessage | None = None
        # The items that the request under way adds once it is over. They wait here because two bodies may be made for
        # one request.
        self._next: tuple[bytes, int, ModelMessage] | None = None
        self._under_way: tuple[Sequence[ModelMessage], int] | None = None

    def rest_of(
        self, messages: Sequence[ModelMessage], has_instructions: bool, recorded: Awaitable[object] | None = None
    ) -> list[ModelMessage]:
        """Say which messages the library must map for the request that now begins,
        and what it waits for once it is ready."""
        new = self._find_new(messages, has_instructions)
        self.recorded = recorded
        return new

    def _find_new(self, messages: Sequence[ModelMessage], has_instructions: bool) -> list[ModelMessage]:
        self._take_in()
        if self._covered and (len(messages) <= self._covered or messages[self._covered - 1] is not self._last):
            self._forget()
        if self._provider in _COMPLETIONS and _has_thoughts(messages[self._covered :]):
            self._forget()
            return list(messages)
        self._under_way = messages, int(has_instructions and self._provider in _COMPLETIONS)
        return list(messages[self._covered :])

    def complete(self, body: bytes) -> bytes:
        """Put what is known ahead of what the library made, and remember what of that will not change again."""
        if self._under_way is None:
            return body
        messages, heads = self._under_way
        fields = _BODY.decode(body)
        items = [bytes(item) for item in _ITEMS.decode(fields.pop(self._field))]
        ours = _items_of(messages[-1], self._provider)
        settled = items[heads : len(items) - ours]
        if self._is_sound(settled, items[len(items) - ours :]):
            self._next = b",".join(settled), len(messages) - 1, messages[-2]
        known = [self._encoded] if self._encoded else []
        conversation = b",".join([*items[:heads], *known, *items[heads:]])
        rest = (b',"%s":%s' % (name.encode(), bytes(value)) for name, value in fields.items())
        # Put together at once: each step between would copy all that is known.
        return b"".join([b'{"%s":[' % self._field.encode(), conversation, b"]", *rest, b"}"])

    def _is_sound(self, settled: Sequence[bytes], ours: Sequence[bytes]) -> bool:
        """Tell whether the items fell where this module thinks: then, and only then, they are kept.

        Else nothing is lost but time.
        """
        return (
            bool(settled)
            and all(_WHOSE.decode(item).is_ours for item in ours)
            and not _WHOSE.decode(settled[-1]).is_ours
        )

    def _take_in(self) -> None:
        if self._next is None:
            return
        encoded, self._covered, self._last = self._next
        if self._encoded:
            self._encoded += b","
        self._encoded += encoded
        self._next = self._under_way = None


class ResponseBody(httpx2.AsyncByteStream):
    """The bytes of one response.

    Closing it ends its iteration, also where the reader stopped in the middle and closed nothing.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = aiter(self._body)
        return self._pieces

    async def aclose(self) -> None:
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
        await self._body.aclose()


class OpeningClient(httpx2.AsyncClient):
    """An HTTP client in which each body gets its opening just before it is sent,
    and is not sent before it is on record."""

    def __init__(self, opening: Opening, **options: Any) -> None:
        super().__init__(**options)
        self._opening = opening
        self._response: httpx2.Response | None = None

    def build_request(
        self, method: str, url: httpx2.URL | str, *, content: Any = None, **options: Any
    ) -> httpx2.Request:
        if content:
            content = self._opening.complete(content.encode() if isinstance(content, str) else content)
        return super().build_request(method, url, content=content, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if self._opening.recorded is not None:
            await self._opening.recorded
        response = await super().send(request, **options)
        if not response.is_closed:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = ResponseBody(response.stream)
            self._response = response
        return response

    async def release(self) -> None:
        """Close the last response.

        An SDK that met an error in its middle leaves it open, and the end of the process then prints a traceback.
        """
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()


def _has_thoughts(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(part, ThinkingPart) for message in messages for part in message.parts)


def _items_of(message: ModelMessage, provider: Provider) -> int:
    """How many items of a body what we said last becomes."""
    match provider:
        case "anthropic":
            return 1
        case "google":
            # Results of calls and words stand apart.
            return len({isinstance(part, ToolReturnPart) for part in message.parts})
        case _:
            return len(message.parts)
