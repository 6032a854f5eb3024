"""Converts a conversation in our values to messages of the providers' library. Only library/models.py imports it.

The input is only what the log holds, so a conversation can continue with another provider in the middle of a turn. An
answer goes back to its own provider as that library kept it. Another provider gets its text and calls. The output is
legal whatever was recorded: every call is answered once, right after the answer that made it, in its order. Entries are
only ever appended, so everything up to the last answer is converted once and kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from wakeful.core.agents.turns import INTERRUPTED, Answered, Asked, Entry, Returned
from wakeful.errors import InternalError
from wakeful.text.unicode import make_json_sendable, make_sendable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
# A call id that every provider accepts. Anthropic limits the letters, OpenAI the length.
_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
# Providers refuse a message without words.
_NOTHING_SAID = "(an empty message)"


class Transcript:
    """One conversation as one provider receives it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._forget()

    def _forget(self) -> None:
        self._kept_entries: list[Entry] = []
        self._kept: list[ModelMessage] = []
        # The last answer among the kept messages. The entries after it answer its calls.
        self._last: Answered | None = None
        self._last_ids: dict[str, str] = {}
        self._images: Mapping[str, bytes] = {}
        self._shown: frozenset[str] = frozenset()
        self.call_ids: set[str] = set()

    def tell(self, entries: Sequence[Entry], images: Mapping[str, bytes] | None = None) -> list[ModelMessage]:
        """Return all messages.

        The messages up to the last answer are the same objects as in the previous call for this conversation. `images`
        maps addresses to the images that this model may be shown. For every other image, the text says that it is not
        shown.
        """
        if not entries or not isinstance(entries[0], Asked):
            raise InternalError(
                "the conversation does not begin with a question for the model; the session's log was read wrongly"
            )
        settled = next((place for place in range(len(entries), 0, -1) if isinstance(entries[place - 1], Answered)), 0)
        shown = frozenset(images or ())
        if self._kept_entries != list(entries[: len(self._kept_entries)]) or not self._shown <= shown:
            # Another conversation, a shortened one, or one with images that are not shown any more.
            self._forget()
        self._shown, self._images = shown, images or {}
        self._settle(entries[len(self._kept_entries) : settled])
        tail = entries[settled:]
        if not tail and not (self._last and self._last.calls):
            raise InternalError(
                "the last entry of the conversation is an answer, so there is no question for the model"
            )
        return [*self._kept, self._request(tail)]

    def _settle(self, entries: Sequence[Entry]) -> None:
        """Convert and keep entries that end with an answer."""
        since: list[Entry] = []
        for entry in entries:
            if not isinstance(entry, Answered):
                since.append(entry)
                continue
            if since or (self._last is not None and self._last.calls):
                self._kept.append(self._request(since))
            since = []
            response = _response_of(entry, self._provider)
            self._kept.append(response)
            self._last = entry
            wire_ids = (part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart))
            self._last_ids = dict(zip((call.id for call in entry.calls), wire_ids, strict=True))
            self.call_ids.update(self._last_ids)
        self._kept_entries.extend(entries)

    def _request(self, entries: Sequence[Entry]) -> ModelRequest:
        """Make the request after an answer: the results of its calls in their order, then the texts that were asked."""
        calls = self._last.calls if self._last is not None else ()
        returned: dict[str, Returned] = {}
        asked: list[str] = []
        for entry in entries:
            match entry:
                case Asked(text=text):
                    asked.append(make_sendable(text) if text.strip() else _NOTHING_SAID)
                case Returned(call=call) if call in self._last_ids and call not in returned:
                    returned[call] = entry
                case Returned(name=name, text=text):
                    # The call is no longer shown, or was answered before. A provider could not match this result with a
                    # call.
                    asked.append(make_sendable(f"[the result of an earlier call of the tool {name}]\n{text}"))
        results = [
            _return_of(returned.get(call.id), call.name, self._last_ids[call.id], self._images) for call in calls
        ]
        return ModelRequest(parts=[*results, *(UserPromptPart(text) for text in asked)])


def legal_id(call_id: str) -> str:
    """Return the id if every provider accepts it, otherwise a legal id that is always the same for it."""
    if _LEGAL_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"


def write_raw(response: ModelResponse) -> str:
    return ModelMessagesTypeAdapter.dump_json([response]).decode()


def _response_of(entry: Answered, provider: str) -> ModelResponse:
    response = (_read_raw(entry, provider) if entry.raw is not None else None) or _told_anew(entry)
    parts = [_make_call_sendable(part) if isinstance(part, ToolCallPart) else part for part in response.parts]
    return change(response, parts=parts)


def change(part: T, **fields: Any) -> T:
    """Return the value with these fields. Return the same object if nothing changes, because a copy is slow."""
    return part if all(getattr(part, name) == value for name, value in fields.items()) else replace(part, **fields)


def _make_call_sendable(part: ToolCallPart) -> ToolCallPart:
    """Make the arguments of a call legal for a provider. The record has them as the model wrote them."""
    return change(part, args=make_json_sendable(part.args)) if isinstance(part.args, str) else part


def _read_raw(entry: Answered, provider: str) -> ModelResponse | None:
    """Return the library's own message, if this provider gave it and this version of the library can read it."""
    if entry.model.partition(":")[0] != provider:
        return None
    try:
        match ModelMessagesTypeAdapter.validate_json(entry.raw or ""):
            case [ModelResponse() as response] if _calls_of(response) == [(call.id, call.name) for call in entry.calls]:
                return response
    except ValidationError:
        # Another version of the library wrote it. Our own values in the log say the same, except signatures of
        # thoughts.
        return None
    return None


def _calls_of(response: ModelResponse) -> list[tuple[str, str]]:
    return [(part.tool_call_id, part.tool_name) for part in response.parts if isinstance(part, ToolCallPart)]


def _told_anew(entry: Answered) -> ModelResponse:
    said: Iterable[TextPart] = [TextPart(make_sendable(entry.text))] if entry.text.strip() else []
    calls = (ToolCallPart(call.name, call.arguments, legal_id(call.id)) for call in entry.calls)
    return ModelResponse(parts=[*said, *calls])


def _return_of(entry: Returned | None, name: str, wire_id: str, images: Mapping[str, bytes]) -> ToolReturnPart:
    if entry is None:
        return ToolReturnPart(name, INTERRUPTED, wire_id, outcome="interrupted")
    outcome: Literal["failed", "success"] = "failed" if entry.is_error else "success"
    text = make_sendable(entry.text)
    if not entry.images:
        return ToolReturnPart(name, text, wire_id, outcome=outcome)
    shown = [
        BinaryContent(images[one.address], media_type=one.media_type) for one in entry.images if one.address in images
    ]
    left = len(entry.images) - len(shown)
    words = f"{text}\n{_say_left(left)}" if left else text
    return ToolReturnPart(name, [words, *shown] if shown else words, wire_id, outcome=outcome)


def _say_left(number: int) -> str:
    return (
        f"[{'an image is' if number == 1 else f'{number} images are'} not shown: this model accepts no images, "
        "or the content is no longer stored]"
    )
