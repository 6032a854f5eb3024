"""Converts a conversation in our values to turns that any wire format can write: our requests, and answers of models.

The input is only what the log has, so a conversation can continue with another provider, even in the middle of a turn.
An answer is sent with its signatures to the provider that gave it, and as text and calls to any other. The output is
always valid, even if the log is not: every call has exactly one result, right after its answer and in order.

Entries are only ever appended. So the turns up to the last answer are converted once and cached, and so is their
encoded form (`EncodedTurns`): a turn costs the same however long the conversation is. Used by provider_model.py.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.models.recorded_answer import Call, Part, RecordedAnswer, Text, read_raw
from wakeful.core.agents.turns import INTERRUPTED, Answered, Asked, Entry, Returned
from wakeful.errors import InternalError
from wakeful.text.unicode import make_json_sendable, make_sendable

# The call ids that every provider accepts. Anthropic limits the letters, OpenAI the length.
_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
# The text for an empty message, which providers would refuse.
_NOTHING_SAID = "(an empty message)"


class ShownImage(Struct, frozen=True):
    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return b64encode(self.content).decode()

    @property
    def name(self) -> str:
        """A short name by which a text can refer to the image. The same content has the same name."""
        return hashlib.sha1(self.content, usedforsecurity=False).hexdigest()[:6]


class Result(Struct, frozen=True, kw_only=True):
    """The result of one call. `call_id` is the id that the provider knows."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[ShownImage, ...] = ()


class UserTurn(Struct, frozen=True):
    """A turn of ours: the results of the calls of the answer before it, then texts."""

    results: tuple[Result, ...]
    texts: tuple[str, ...]


Turn = UserTurn | RecordedAnswer


class Conversation:
    """One conversation, converted for one provider."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._forget()

    def _forget(self) -> None:
        self._kept_entries: list[Entry] = []
        self._kept: list[Turn] = []
        # The last cached answer. The entries after it have the results of its tool calls.
        self._last: Answered | None = None
        self._last_ids: dict[str, str] = {}
        self._images: Mapping[str, bytes] = {}
        self._shown: frozenset[str] = frozenset()
        self.call_ids: set[str] = set()

    def tell(self, entries: Sequence[Entry], images: Mapping[str, bytes] | None = None) -> list[Turn]:
        """Convert all entries to turns.

        The turns up to the last answer are the same objects as in the last call for the same conversation. `images` has
        the images that this model may be shown, by address. For any other image a text is inserted.
        """
        if not entries or not isinstance(entries[0], Asked):
            raise InternalError(
                "the conversation does not begin with a question for the model; the session's log was read wrongly"
            )
        settled = next((place for place in range(len(entries), 0, -1) if isinstance(entries[place - 1], Answered)), 0)
        shown = frozenset(images or ())
        if self._kept_entries != list(entries[: len(self._kept_entries)]) or not self._shown <= shown:
            # It is another conversation, or was compressed, or its images are no longer shown.
            self._forget()
        self._shown, self._images = shown, images or {}
        self._settle(entries[len(self._kept_entries) : settled])
        tail = entries[settled:]
        if not tail and not (self._last and self._last.calls):
            raise InternalError(
                "the last entry of the conversation is an answer, so there is no question for the model"
            )
        return [*self._kept, self._make_told(tail)]

    def _settle(self, entries: Sequence[Entry]) -> None:
        """Convert and cache entries, of which the last is an answer."""
        since: list[Entry] = []
        for entry in entries:
            if not isinstance(entry, Answered):
                since.append(entry)
                continue
            if since or (self._last is not None and self._last.calls):
                self._kept.append(self._make_told(since))
            since = []
            answer = _find_answer(entry, self._provider)
            self._kept.append(answer)
            self._last = entry
            wire_ids = (call.tool_call_id for call in answer.calls)
            self._last_ids = dict(zip((call.id for call in entry.calls), wire_ids, strict=True))
            self.call_ids.update(self._last_ids)
        self._kept_entries.extend(entries)

    def _make_told(self, entries: Sequence[Entry]) -> UserTurn:
        """Make the turn after an answer: the results of its calls in their order, then the texts that were asked."""
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
                    # Its call is no longer shown, or has a result already. Send it as text, because no call matches it.
                    asked.append(make_sendable(f"[the result of an earlier call of the tool {name}]\n{text}"))
        results = (
            _make_result(returned.get(call.id), call.name, self._last_ids[call.id], self._images) for call in calls
        )
        return UserTurn(tuple(results), tuple(asked))


class EncodedTurns:
    """A cache of a conversation's items as JSON bytes.

    The items of a turn are encoded once. Only the last turn is encoded each time, because more may be added to it.
    """

    def __init__(self, encode_turn: Callable[[Turn], Sequence[Any]]) -> None:
        self._encode_turn = encode_turn
        self.forget()

    def forget(self) -> None:
        self._bytes = bytearray()
        self._covered = 0
        # The last cached turn. Its identity shows whether the next call is for the same conversation.
        self._last: Turn | None = None

    def find_new(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return the turns that are not encoded yet. If this is another conversation, these are all turns."""
        if self._covered and (len(turns) <= self._covered or turns[self._covered - 1] is not self._last):
            self.forget()
        return turns[self._covered :]

    def encode(self, turns: Sequence[Turn], first: Sequence[Any] = ()) -> msgspec.Raw:
        """Encode the items of all turns as one JSON array. `first` has items to put before them."""
        for turn in self.find_new(turns)[:-1]:
            self._bytes += b"".join(msgspec.json.encode(item) + b"," for item in self._encode_turn(turn))
            self._covered, self._last = self._covered + 1, turn
        last = b",".join(msgspec.json.encode(item) for item in self._encode_turn(turns[-1]))
        head = b"".join(msgspec.json.encode(item) + b"," for item in first)
        return msgspec.Raw(b"".join((b"[", head, self._bytes, last, b"]")))


def legal_id(call_id: str) -> str:
    """Return the id itself if every provider accepts it, else an id derived from it.

    The same id gives the same result.
    """
    if _LEGAL_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"


def _find_answer(entry: Answered, provider: str) -> RecordedAnswer:
    answer = _find_recorded(entry, provider) or _tell_anew(entry)
    return replace(answer, parts=tuple(_make_call_sendable(part) for part in answer.parts))


def _make_call_sendable(part: Part) -> Part:
    """Make the arguments of a call valid to send. Its record keeps them as the model wrote them."""
    return (
        replace(part, args=make_json_sendable(part.args))
        if isinstance(part, Call) and isinstance(part.args, str)
        else part
    )


def _find_recorded(entry: Answered, provider: str) -> RecordedAnswer | None:
    """Return the answer as the provider gave it, with signatures.

    None if another provider gave it, or if its calls differ from the recorded calls.
    """
    if entry.raw is None or entry.model.partition(":")[0] != provider:
        return None
    answer = read_raw(entry.raw)
    is_whole = answer is not None and [(call.tool_call_id, call.tool_name) for call in answer.calls] == [
        (call.id, call.name) for call in entry.calls
    ]
    return answer if is_whole else None


def _tell_anew(entry: Answered) -> RecordedAnswer:
    said = (Text(content=make_sendable(entry.text)),) if entry.text.strip() else ()
    calls = (Call(tool_name=call.name, args=call.arguments, tool_call_id=legal_id(call.id)) for call in entry.calls)
    return RecordedAnswer(parts=(*said, *calls))


def _make_result(entry: Returned | None, name: str, wire_id: str, images: Mapping[str, bytes]) -> Result:
    if entry is None:
        return Result(call_id=wire_id, name=name, text=INTERRUPTED)
    shown = tuple(ShownImage(one.media_type, images[one.address]) for one in entry.images if one.address in images)
    text, left = make_sendable(entry.text), len(entry.images) - len(shown)
    words = f"{text}\n{_say_left(left)}" if left else text
    return Result(call_id=wire_id, name=name, text=words, is_error=entry.is_error, images=shown)


def _say_left(number: int) -> str:
    return (
        f"[{'an image is' if number == 1 else f'{number} images are'} not shown: this model accepts no images, "
        "or the content is no longer stored]"
    )
