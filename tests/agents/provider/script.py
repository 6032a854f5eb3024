"""The language of scripts for a model: its answers, its failures, and the turn that a request gets.

It owns the words (`Say`, `Call`, `Fail` and so on), their JSON form, and the choice of a turn from a request. The words
do not depend on any provider's wire format. Tests write scripts and the server plays them. It knows nothing of HTTP.

The choice is stateless: if a client is killed and asks the same again, it gets the same answer. Only faults are
counted: each fault fires as often as it says, then the script continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from agents.provider.model_request import Asked


class _Word(msgspec.Struct, frozen=True, tag_field="turn", tag=str.lower, forbid_unknown_fields=True):
    """One word of the language. In JSON it is an object whose `turn` is the word in small letters."""


class Usage(msgspec.Struct, frozen=True):
    """The usage that a response reports.

    `cached` is the part of `input` that was read from a cache, and `cache_written` the part that was written to it.
    `is_told` says whether the response reports usage. Anthropic's format always does, and reports zeros if it is false.
    """

    input: int
    output: int
    cached: int = 0
    cache_written: int = 0
    is_told: bool = True


class Say(_Word, frozen=True):
    """Text."""

    text: str


class Think(_Word, frozen=True):
    """Reasoning, in formats that can carry it. The client must send `signature` back unchanged."""

    text: str
    signature: str = "c2lnbmF0dXJl"


class Call(_Word, frozen=True):
    """A call of a tool. Without an id the server makes one, as providers do.

    `raw` replaces the arguments by text that need not be JSON. OpenAI's formats and Anthropic's streams can carry it.
    """

    name: str
    args: dict[str, object] = {}
    id: str | None = None
    raw: str | None = None


Part: TypeAlias = Say | Think | Call
# Long enough to be cut in the middle in every format.
UNHEARD = Say("this will never be heard to its end")


class Reply(_Word, frozen=True):
    """A whole response: several parts, and the usage if a test needs it.

    A single part or a tuple of parts is a response too.
    """

    parts: tuple[Part, ...] = ()
    usage: Usage | None = None
    stop: Literal["end", "length", "refused"] = "end"


class Fail(_Word, frozen=True):
    """An HTTP error in the provider's own shape.

    With `after_chunks`, an error in the middle of a stream that began well.
    """

    status: int
    retry_after: float | None = None
    message: str = "scripted failure"
    after_chunks: int = 0
    times: int | None = 1


class Cut(_Word, frozen=True):
    """A connection that ends in the middle of `then`, after some events of the stream or half of a plain answer.

    `close` closes it in the middle of the transfer, and `reset` sends a TCP reset. `end` ends the response tidily, as a
    proxy does when it gives up on its origin.
    """

    after_chunks: int = 2
    then: Turn = UNHEARD
    how: Literal["close", "reset", "end"] = "close"
    times: int | None = 1


class Garbage(_Word, frozen=True):
    """A response with status 200 that is no answer. `text` replaces its body."""

    kind: Literal["text", "html", "truncated", "shape", "nothing"] = "text"
    text: str | None = None
    times: int | None = 1


class Empty(_Word, frozen=True):
    """A well-formed response in which the model says nothing."""

    usage: Usage | None = None
    times: int | None = 1


class Slow(_Word, frozen=True):
    """`then`, delayed:

    `before` seconds until the first byte, and `between` seconds before each further event of a stream.
    """

    before: float = 0.0
    between: float = 0.0
    then: Turn = Say("at last")


class Hold(_Word, frozen=True):
    """`then`, held until the test releases `gate`: slowness without a clock.

    With `after_chunks`, held in mid-stream.
    """

    gate: str
    then: Turn = Say("released")
    after_chunks: int = 0


Fault: TypeAlias = Fail | Cut | Garbage | Empty
Turn: TypeAlias = Reply | Say | Think | Call | Fail | Cut | Garbage | Empty | Slow | Hold | tuple[Part, ...]


class ScriptExhausted(Exception):
    """The script has no turn for a request: the script is too short, or the client asked too often."""


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A list of turns, and how a request's place in it is counted.

    `history` counts the model's turns that the request shows. `message` counts those since the last words of a person,
    so that every message plays the list from its beginning. `arrival` counts all requests so far, for a test without
    restarts.
    """

    turns: tuple[Turn, ...]
    by: Literal["history", "message", "arrival"] = "history"


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns for the requests that match all given conditions.

    The conditions are the model, the key, words of the last message, and words shown anywhere.
    """

    turns: tuple[Turn, ...]
    by: Literal["history", "message", "arrival"] = "history"
    model: str | None = None
    key: str | None = None
    says: str | None = None
    shows: str | None = None

    def matches(self, asked: Asked) -> bool:
        return (
            self.model in (None, asked.model)
            and self.key in (None, asked.key)
            and (self.says is None or self.says in asked.last_words)
            and (self.shows is None or self.shows in asked.text)
        )


class Routes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several conversations on one provider. The first route that matches is used."""

    routes: tuple[Route, ...]


Script: TypeAlias = Turns | Routes | Sequence[Turn] | Turn | Callable[[Asked], Turn]


def is_fault(turn: Turn) -> bool:
    """Return whether this turn gives no answer, so that the client asks the same again."""
    match turn:
        case Slow(then=then) | Hold(then=then):
            return is_fault(then)
        case Fail() | Cut() | Garbage() | Empty():
            return True
        case _:
            return False


def times_of(turn: Turn) -> int | None:
    """Return how often a fault fires. None means always."""
    match turn:
        case Slow(then=then) | Hold(then=then):
            return times_of(then)
        case Fail(times=times) | Cut(times=times) | Garbage(times=times) | Empty(times=times):
            return times
        case _:
            return None


def read_script(text: bytes | str) -> Turns | Routes:
    """Read the JSON form: a list of turns, `{"turns": […], "by": …}` or `{"routes": […]}`."""
    match msgspec.json.decode(text):
        case list() as turns:
            return msgspec.convert({"turns": turns}, Turns)
        case {"routes": _} as routes:
            return msgspec.convert(routes, Routes)
        case other:
            return msgspec.convert(other, Turns)


def write_script(script: Turns | Routes | Sequence[Turn]) -> bytes:
    """Write a script in the form that `read_script` reads."""
    return msgspec.json.encode(script if isinstance(script, Turns | Routes) else Turns(tuple(script)))


class Playing:
    """The state of one list of turns: the turns grouped into places, and how often each fault has fired."""

    def __init__(self, turns: Turns | Route) -> None:
        self._by = turns.by
        self._lock = threading.Lock()
        self._asked = 0
        self._met: dict[tuple[int, int], int] = {}
        self._places = [((), turn) for turn in turns.turns] if turns.by == "arrival" else _cut_into_places(turns.turns)

    def choose(self, asked: Asked) -> Turn:
        with self._lock:
            place = self._place_of(asked)
            self._asked += 1
            faults, reply = self._places[place] if place < len(self._places) else ((), None)
            for number, fault in enumerate(faults):
                met, times = self._met.get((place, number), 0), times_of(fault)
                if times is None or met < times:
                    self._met[place, number] = met + 1
                    return fault
            if reply is None:
                raise ScriptExhausted(
                    f"the script has {len(self._places)} places by {self._by}; this request is at place {place + 1}"
                )
            return reply

    def _place_of(self, asked: Asked) -> int:
        match self._by:
            case "history":
                return asked.model_turns
            case "message":
                return asked.model_turns_since_message
            case "arrival":
                return self._asked


def start(script: Script) -> Callable[[Asked], Turn]:
    """Return the function that chooses a turn, for any form of script."""
    match script:
        case Turns():
            return Playing(script).choose
        case Routes(routes=routes):
            return _Routing([(route, Playing(route)) for route in routes]).choose
        case msgspec.Struct():
            return Playing(Turns((script,))).choose
        case list() | tuple():
            return Playing(Turns(tuple(script))).choose
        case _:
            return script


class _Routing:
    def __init__(self, playing: list[tuple[Route, Playing]]) -> None:
        self._playing = playing

    def choose(self, asked: Asked) -> Turn:
        for route, playing in self._playing:
            if route.matches(asked):
                return playing.choose(asked)
        raise ScriptExhausted(f"no route matches model {asked.model!r}, last words {asked.last_words!r}")


_Place: TypeAlias = tuple[tuple[Turn, ...], Turn | None]


def _cut_into_places(turns: Sequence[Turn]) -> list[_Place]:
    """Group the turns into places. A place has the faults that come first and the reply that ends it."""
    places: list[_Place] = []
    faults: list[Turn] = []
    for turn in turns:
        if is_fault(turn):
            faults.append(turn)
        else:
            places.append((tuple(faults), turn))
            faults = []
    return [*places, (tuple(faults), None)] if faults else places
