"""The script language: the choice of a turn for a request, the counts, and how a test controls a provider."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest

from agents.provider import (
    Asked,
    Call,
    Cut,
    Empty,
    Endpoint,
    Fail,
    Garbage,
    Hold,
    Provider,
    Reply,
    Route,
    Routes,
    Say,
    Script,
    Slow,
    Think,
    Turn,
    Turns,
    Usage,
    spawn,
)  # fmt: skip
from agents.provider.script import read_script, write_script
from wait_conditions import eventually


def body(*words: str, model: str = "m", stream: bool = False) -> dict[str, object]:
    """Return a request in OpenAI's format. Its messages are by turns those of a person and of the model."""
    messages = [{"role": ("user", "assistant")[place % 2], "content": word} for place, word in enumerate(words)]
    return {"model": model, "messages": messages, "stream": stream}


def ask(provider: Endpoint, *words: str, model: str = "m") -> str:
    """Send one request. Return the answer, or the status of an error."""
    request = urllib.request.Request(
        f"{provider.url}/v1/chat/completions", json.dumps(body(*words, model=model)).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return str(error.code)


def test_the_same_request_gets_the_same_answer(provider: Provider) -> None:
    """The turn follows from the content of the request, so a client that was killed may ask again."""
    provider.play([Say("first"), Say("second"), Say("third")])
    assert [ask(provider, "hi"), ask(provider, "hi")] == ["first", "first"]
    assert ask(provider, "hi", "first", "and", "second", "so?") == "third"
    assert ask(provider, "hi", "first", "and") == "second"


def test_a_fault_is_met_as_often_as_it_says(provider: Provider) -> None:
    """Faults stand before the reply that they delay. Each is used up there and does not come back elsewhere."""
    provider.play([Say("first"), Fail(429), Fail(503, times=2), Say("second"), Fail(500, times=None)])
    assert ask(provider, "hi") == "first"
    assert [ask(provider, "hi", "first", "and") for _ in range(5)] == ["429", "503", "503", "second", "second"]
    assert [ask(provider, "hi", "first", "and", "second", "so?") for _ in range(3)] == ["500"] * 3
    assert ask(provider, "hi") == "first"


def test_every_message_may_play_the_list_anew(provider: Provider) -> None:
    """The turns are counted since the last words of a person, so a long history does not shift them."""
    provider.play(Turns((Say("always this"),), by="message"))
    assert ask(provider, "hi") == ask(provider, "hi", "first", "and", "second", "so?") == "always this"


def test_turns_may_come_in_the_order_of_arrival(provider: Provider) -> None:
    """A script can count requests instead, including those that met a fault."""
    provider.play(Turns((Say("first"), Fail(503), Say("third")), by="arrival"))
    assert [ask(provider, "hi") for _ in range(3)] == ["first", "503", "third"]


def test_a_function_may_be_the_script(provider: Provider) -> None:
    """The function chooses the turn from the request."""

    def echo(asked: Asked) -> Turn:
        return Say(f"{asked.model_turns}: {asked.last_words}")

    provider.play(echo)
    assert ask(provider, "hi", "0: hi", "again") == "1: again"


def test_several_conversations_share_a_provider(provider: Provider) -> None:
    """Routes match by model, by the last message, or by anything shown. Each route counts for itself."""
    provider.play(
        Routes(
            (
                Route((Fail(429), Say("cheap")), model="small"),
                Route((Say("weather"),), says="rain", by="message"),
                Route((Say("marked"), Say("still marked")), shows="MARK"),
            )
        )
    )
    assert [ask(provider, "hi", model="small") for _ in range(2)] == ["429", "cheap"]
    assert ask(provider, "MARK", "marked", "will it rain?") == "weather"
    assert ask(provider, "MARK", "marked", "and?") == "still marked"


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ([Say("only one")], ["hi", "only one", "more?"], "ScriptExhausted: the script has 1 places by history; this request is at place 2"),
        (Routes((Route((Say("x"),), model="other"),)), ["hi"], "ScriptExhausted: no route matches"),
        ([], [], "BrokenHistory: messages: at least one"),
    ],
)  # fmt: skip
def test_a_request_without_a_turn_is_refused_and_told(script: Script, words: list[str], said: str) -> None:
    """If the script has no turn, the client gets a 400, which it does not retry, and the test reads why."""
    with Provider(script) as provider:
        assert ask(provider, *words) == "400"
        assert provider.surprises[0].startswith(said)


def test_a_fault_that_cannot_happen_is_told() -> None:
    """A cut after more events than there are would prove nothing."""
    with Provider([Cut(50, then=Say("short"))]) as provider:
        request = urllib.request.Request(
            f"{provider.url}/v1/chat/completions", json.dumps(body("hi", stream=True)).encode()
        )
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=60)
        assert provider.surprises == ["ScriptMistake: cut after 50 events, but there are only 4"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [("/v1/elsewhere", b"{}"), ("/v1/messages", b"not json"), ("/v1/messages", b"[]"), ("/v1/messages", b'{"model":"m"}'), ("/v1/responses", b'{"model":"m","input":"hi","previous_response_id":"r"}')],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_told(path: str, sent: bytes) -> None:
    """A request in no known format is a surprise too."""
    with Provider([Say("x")]) as provider:
        with pytest.raises(urllib.error.HTTPError, match="40[04]"):
            urllib.request.urlopen(urllib.request.Request(provider.url + path, sent), timeout=60)
        assert len(provider.surprises) == 1 and path in provider.surprises[0]


def test_a_held_request_waits_for_its_gate(provider: Provider) -> None:
    """Slowness without a clock: the request has arrived, and the answer waits until the test releases it."""
    provider.play([Hold("door", then=Say("in"))])
    heard: list[str] = []
    asking = threading.Thread(target=lambda: heard.append(ask(provider, "hi")))
    asking.start()
    eventually(lambda: len(provider.requests) == 1)
    assert heard == []
    provider.release("door")
    asking.join(timeout=60)
    assert heard == ["in"]


def test_a_stream_may_be_held_in_the_middle(provider: Provider) -> None:
    """The client gets the events before the gate while the gate is closed."""
    provider.play([Hold("door", then=Say("one two three"), after_chunks=2)])
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(body("hi", stream=True)))
    response = connection.getresponse()
    assert b"one" in response.readline() + response.readline() + response.readline()
    provider.release("door")
    assert b"three" in response.read()
    connection.close()


def test_slowness_is_at_least_as_slow_as_it_says(provider: Provider) -> None:
    """The answer is delayed before its first byte, and a stream before each further event."""
    provider.play([Slow(before=0.2, then=Say("late"))])
    began = time.monotonic()
    assert ask(provider, "hi") == "late"
    assert time.monotonic() - began >= 0.2
    provider.play([Slow(between=0.1, then=Say("one two"))])
    request = urllib.request.Request(
        f"{provider.url}/v1/chat/completions", json.dumps(body("hi", stream=True)).encode()
    )
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as response:
        events = response.read().count(b"data: ")
    assert events >= 3 and time.monotonic() - began >= 0.1 * (events - 1)


def test_closing_waits_for_nobody(provider: Provider) -> None:
    """Held and slow requests end with the provider, and so does the thread of every connection."""
    before = set(threading.enumerate())
    other = Provider([Slow(before=3600, then=Say("never"))])
    heard: list[object] = []

    def ask_other() -> None:
        try:
            heard.append(ask(other, "hi"))
        except (OSError, http.client.HTTPException) as error:
            heard.append(type(error))

    asking = threading.Thread(target=ask_other)
    asking.start()
    eventually(lambda: len(other.requests) == 1)
    other.close()
    asking.join(timeout=60)
    assert heard == [http.client.RemoteDisconnected]
    assert set(threading.enumerate()) <= before


EVERY_WORD = (
    Say("a"),
    (Think("b"), Say("c"), Call("d", {"e": [1, None]}), Call("f", id="g", raw="{")),
    Reply((Say("h"),), usage=Usage(1, 2, 3), stop="length"),
    Fail(429, retry_after=1.5, message="m", after_chunks=2, times=None),
    Cut(3, then=Call("i"), how="reset"),
    Garbage("html", text="<p>"),
    Empty(Usage(1, 0)),
    Slow(1, 2, then=Hold("gate", then=(Say("j"), Call("k")), after_chunks=1)),
)


def test_a_script_can_be_written_down() -> None:
    """Every word survives its JSON form: in a list, with its way of counting, and in routes."""
    for script in (Turns(EVERY_WORD, by="message"), Routes((Route(EVERY_WORD, model="m", says="s"),))):
        assert read_script(write_script(script)) == script
    assert read_script(write_script(list(EVERY_WORD))) == Turns(EVERY_WORD)
    assert read_script('[{"turn": "say", "text": "hi"}]') == Turns((Say("hi"),))


@pytest.mark.parametrize(
    "text", ['[{"turn": "shout"}]', '[{"turn": "say", "txt": "x"}]', '{"turns": [], "by": "luck"}', "[1]", "{"]
)
def test_a_script_that_says_nothing_known_is_refused(text: str) -> None:
    """A mistake in a script is reported when the script is read."""
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        read_script(text)


def test_a_provider_can_live_in_another_process(tmp_path: Path) -> None:
    """It prints its address. The test controls it and sends requests over the same address."""
    with spawn([Fail(503), Say("from afar")], tmp_path) as far:
        assert [ask(far, "hi"), ask(far, "hi")] == ["503", "from afar"]
        assert [asked.last_words for asked in far.requests] == ["hi", "hi"]
        assert far.requests[0].messages[0].text == "hi"
        far.play([Hold("a door", then=Say("again"))])
        far.release("a door")
        assert ask(far, "hi") == "again"
        assert ask(far, "hi", "again", "more?") == "400"
        assert len(far.surprises) == 1
        far.forget()
        assert (far.requests, far.surprises) == ([], [])


@pytest.mark.parametrize(
    ("path", "sent", "name"),
    [
        (
            "/v1/messages/count_tokens",
            {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]},
            "input_tokens",
        ),
        ("/v1/responses/input_tokens", {"model": "m", "input": "x" * 400}, "input_tokens"),
        (
            "/v1beta/models/m:countTokens",
            {"contents": [{"role": "user", "parts": [{"text": "x" * 400}]}]},
            "totalTokens",
        ),
    ],
)
def test_tokens_are_counted_without_a_turn(provider: Provider, path: str, sent: dict[str, object], name: str) -> None:
    """A question about the size of a request uses no turn and is not kept as a request."""
    with urllib.request.urlopen(
        urllib.request.Request(provider.url + path, json.dumps(sent).encode()), timeout=60
    ) as told:
        assert 100 <= json.load(told)[name] < 140
    assert provider.requests == []
