"""A conversation in our values, told as turns that any wire format can write: requests of ours, and answers of models.

Only what the log holds goes in, so a conversation can go on with another provider in the middle of a turn: an answer is
given back with its signatures where it goes to the provider that gave it, and told anew from its text and calls
elsewhere. What goes out is legal whatever was recorded: every call is answered once, right after the answer that made
it, in its order.

Entries are only ever appended, so everything up to the last answer is converted once and kept, and its encoded form as
well (`EncodedTurns`): a turn costs the same at any length. provider_model.py calls.
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

# A call id that every provider accepts: Anthropic limits the letters, OpenAI the length.
_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
# Providers refuse a message without words.
_NOTHING_SAID = "(nothing was said)"


class ShownImage(Struct, frozen=True):
    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return b64encode(self.content).decode()

    @property
    def name(self) -> str:
        """A short name by which a text can refer to it, always the same."""
        return hashlib.sha1(self.content, usedforsecurity=False).hexdigest()[:6]


class Result(Struct, frozen=True, kw_only=True):
    """The result of one call, under the id that the provider knows the call by."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[ShownImage, ...] = ()


class Told(Struct, frozen=True):
    """A turn of ours: the results of the calls of the answer before it, then texts."""

    results: tuple[Result, ...]
    texts: tuple[str, ...]


Turn = Told | RecordedAnswer


class Conversation:
    """One conversation as one provider is told it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._forget()

    def _forget(self) -> None:
        self._kept_entries: list[Entry] = []
        self._kept: list[Turn] = []
        # The last answer among the kept, whose calls the entries after it answer.
        self._last: Answered | None = None
        self._last_ids: dict[str, str] = {}
        self._images: Mapping[str, bytes] = {}
        self._shown: frozenset[str] = frozenset()
        self.call_ids: set[str] = set()

    def tell(self, entries: Sequence[Entry], images: Mapping[str, bytes] | None = None) -> list[Turn]:
        """All turns.

        Those up to the last answer are the same objects as in the last telling of the same conversation.

        `images` are those that this model may be shown, by address; of every other one it is told that there is one."""
        if not entries or not isinstance(entries[0], Asked):
            raise InternalError(
                "a conversation was put to a model that does not begin with anything asked; the session's log is not "
                "what its reader takes it for"
            )
        settled = next((place for place in range(len(entries), 0, -1) if isinstance(entries[place - 1], Answered)), 0)
        shown = frozenset(images or ())
        if self._kept_entries != list(entries[: len(self._kept_entries)]) or not self._shown <= shown:
            # Another conversation, one made shorter, or one whose images are not shown any more.
            self._forget()
        self._shown, self._images = shown, images or {}
        self._settle(entries[len(self._kept_entries) : settled])
        tail = entries[settled:]
        if not tail and not (self._last and self._last.calls):
            raise InternalError(
                "a conversation was put to a model again that it had the last word in; something must be asked"
            )
        return [*self._kept, self._make_told(tail)]

    def _settle(self, entries: Sequence[Entry]) -> None:
        """Keep entries that end with an answer."""
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

    def _make_told(self, entries: Sequence[Entry]) -> Told:
        """The turn after an answer: the results of its calls in their order, then the texts that were asked."""
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
                    # Its call is no longer shown, or was answered before: nothing a provider could match it with.
                    asked.append(make_sendable(f"[what came of an earlier call of the tool {name}]\n{text}"))
        results = (
            _make_result(returned.get(call.id), call.name, self._last_ids[call.id], self._images) for call in calls
        )
        return Told(tuple(results), tuple(asked))


class EncodedTurns:
    """The items of a conversation as they go over the wire.

    The items of a turn are encoded once; only the last turn, to which more may be added, is encoded each time."""

    def __init__(self, encode_turn: Callable[[Turn], Sequence[Any]]) -> None:
        self._encode_turn = encode_turn
        self.forget()

    def forget(self) -> None:
        self._bytes = bytearray()
        self._covered = 0
        # The last turn covered: conversations are told from each other by its identity.
        self._last: Turn | None = None

    def find_new(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The turns that are not encoded yet: all of them, where it is another conversation."""
        if self._covered and (len(turns) <= self._covered or turns[self._covered - 1] is not self._last):
            self.forget()
        return turns[self._covered :]

    def encode(self, turns: Sequence[Turn], first: Sequence[Any] = ()) -> msgspec.Raw:
        """The items of all turns as one JSON array; `first` are items ahead of them."""
        for turn in self.find_new(turns)[:-1]:
            self._bytes += b"".join(msgspec.json.encode(item) + b"," for item in self._encode_turn(turn))
            self._covered, self._last = self._covered + 1, turn
        last = b",".join(msgspec.json.encode(item) for item in self._encode_turn(turns[-1]))
        head = b"".join(msgspec.json.encode(item) + b"," for item in first)
        return msgspec.Raw(b"".join((b"[", head, self._bytes, last, b"]")))


def legal_id(call_id: str) -> str:
    """The id itself where every provider takes it, else one made of it, always the same."""
    if _LEGAL_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"


def _find_answer(entry: Answered, provider: str) -> RecordedAnswer:
    answer = _find_recorded(entry, provider) or _tell_anew(entry)
    return replace(answer, parts=tuple(_make_call_sendable(part) for part in answer.parts))


def _make_call_sendable(part: Part) -> Part:
    """A call as it may be told: its record has the arguments as the model wrote them."""
    return (
        replace(part, args=make_json_sendable(part.args))
        if isinstance(part, Call) and isinstance(part.args, str)
        else part
    )


def _find_recorded(entry: Answered, provider: str) -> RecordedAnswer | None:
    """The answer as its provider gave it, if it was this one."""
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
        f"[{'an image is' if number == 1 else f'{number} images are'} not shown: this model takes none, "
        "or it is not kept any more]"
    )
