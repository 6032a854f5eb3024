"""Calls over the socket: each verb is recorded with its author, is safe to repeat, and is refused with a reason."""

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from wakeful.api.gate.callers import name_person

ME = name_person(os.geteuid())


@pytest.fixture(autouse=True)
def rested(daemon: RunningDaemon) -> None:
    """Declare payroll and other, and let each run once."""
    daemon.do(
        lambda d: d.declare(
            declare("payroll", reads("salaries", "salaries.csv")), declare("other", reads("x", "x.csv"))
        )
    )
    daemon.do(lambda d: d.finish("payroll"))
    daemon.do(lambda d: d.finish("other"))


def last(daemon: RunningDaemon, name: str, kind: str) -> Any:
    """Return the newest record of a kind and its decoded payload."""
    session = daemon.small.core.state.by_name(name)
    record = next(daemon.small.log.read(session.id, kinds=(kind,), newest_first=True, limit=1))
    return record, json.loads(record.payload or b"null")


def test_a_call_is_recorded_with_its_author_and_answered_in_words(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The author is the user that the kernel reports, not a name from the body."""
    reply = speaker.call("activate", name="payroll", note="month end")
    assert reply.status == 200 and reply.json == {
        "words": "activated",
        "name": "payroll",
        "record": reply.json["record"],
        "is_repeated": False,
    }
    record, payload = last(daemon, "payroll", "activation_requested")
    assert record.author == ME and payload["note"] == "month end"
    assert speaker.get("/sessions").json[1]["state"] == "running"


@pytest.mark.parametrize(
    ("verb", "body", "kind"),
    [
        ("sleep", {"seconds": 60, "words": "lunch"}, "session_slept"),
        ("note", {"text": "left off at row 7"}, "note_added"),
        ("remember", {"key": "currency", "value": "CNY", "rationale": "said the CFO"}, "fact_set"),
        ("send", {"text": "hello"}, "message_added"),
        ("terminate", {"reason": "moved"}, "session_terminated"),
        ("rename", {"new": "hr/payroll"}, "session_renamed"),
    ],
)
def test_each_verb_leaves_its_event(
    daemon: RunningDaemon, speaker: Speaker, verb: str, body: dict[str, Any], kind: str
) -> None:
    """Each verb appends one kind of record, with the caller as author."""
    assert speaker.call(verb, name="payroll", **body).status == 200
    name = body["new"] if verb == "rename" else "payroll"
    assert last(daemon, name, kind)[0].author == ME


def test_sleep_then_resume(daemon: RunningDaemon, speaker: Speaker) -> None:
    """`list` shows the words of a hold until the session is resumed."""
    speaker.call("sleep", name="payroll", words="lunch")
    assert speaker.get("/sessions").json[1]["reason"] == "lunch"
    assert speaker.call("resume", name="payroll").json["words"] == "resumed"
    assert speaker.get("/sessions").json[1]["state"] == "suspended"


def test_terminate_then_open_again(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A call to a terminated session is refused, and the message names the option that reopens it."""
    speaker.call("terminate", name="payroll")
    assert speaker.get("/sessions").json[1]["state"] == "terminated"
    refused = speaker.call("activate", name="payroll")
    assert refused.status == 400 and "--again" in refused.error
    assert speaker.call("open", name="payroll", again=True).status == 200


def test_rename_moves_the_file_after_the_session(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The session keeps its identity, and its spec file is renamed with it."""
    assert speaker.call("rename", name="payroll", new="wages").json["name"] == "wages"
    assert daemon.small.renamed == [("payroll", "wages")]


@pytest.mark.parametrize("new", ["", "../x", "a//b", "/etc/x", "agents/x", "a\x1bb", "a b", ".hidden"])
def test_a_name_that_leads_out_of_the_folder_is_refused(daemon: RunningDaemon, speaker: Speaker, new: str) -> None:
    """A session's name becomes a path. A bad name is refused; nothing is recorded and no file is moved."""
    before = daemon.small.log.position()
    assert speaker.call("rename", name="payroll", new=new).status == 400
    assert daemon.small.renamed == [] and daemon.small.log.position() == before


def test_a_key_with_another_body_is_refused(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A reused key with another body gives 422, and nothing is done.
    The order of keys and written defaults do not matter."""
    assert speaker.ask("POST", "/call/send", {"name": "payroll", "text": "a"}, Idempotency_Key="k").status == 200
    same = {"text": "a", "name": "payroll", "wake": True}
    assert speaker.ask("POST", "/call/send", same, Idempotency_Key="k").json["is_repeated"] is True
    for body in ({"name": "payroll", "text": "b"}, {"name": "payroll", "text": "a", "wake": False}):
        refused = speaker.ask("POST", "/call/send", body, Idempotency_Key="k")
        assert refused.status == 422 and refused.json["type"] == "urn:wakeful:key-reused"
        assert "another body" in refused.error
    other = speaker.ask("POST", "/call/note", {"name": "payroll", "text": "a"}, Idempotency_Key="k")
    assert other.status == 422 and "belongs to another call" in other.error


def test_a_key_whose_call_is_under_way_is_in_use(
    daemon: RunningDaemon, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call with the key gives 409 while the first is under way. Later the answer comes from the log."""
    entered, leave = threading.Event(), threading.Event()
    real = SmallDaemon.call

    async def wait(small: SmallDaemon, *given: Any, **more: Any) -> Any:
        entered.set()
        while not leave.is_set():
            await asyncio.sleep(0.005)
        return await real(small, *given, **more)

    monkeypatch.setattr(SmallDaemon, "call", wait)
    body = {"name": "payroll", "text": "a"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(speaker.ask, "POST", "/call/note", body, Idempotency_Key="k")
        assert entered.wait(60)
        again = speaker.ask("POST", "/call/note", body, Idempotency_Key="k")
        assert again.status == 409 and again.json["type"] == "urn:wakeful:key-in-use" and "ask again" in again.error
        another = speaker.ask("POST", "/call/note", {**body, "text": "b"}, Idempotency_Key="k")
        assert another.status == 422
        leave.set()
        assert first.result(60).status == 200
    assert speaker.ask("POST", "/call/note", body, Idempotency_Key="k").json["is_repeated"] is True


def test_the_same_key_is_carried_out_once(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A caller that got no answer can repeat its call with the same key."""
    for _ in range(3):
        assert speaker.call("send", name="payroll", text="hello", key="k1").status == 200
    assert daemon.small.core.state.by_name("payroll").mailbox.position == 1
    for _ in range(2):
        speaker.ask("POST", "/call/remember", {"name": "other", "key": "a", "value": "1"}, Idempotency_Key="k2")
    session = daemon.small.core.state.by_name("other")
    assert len(list(daemon.small.log.read(session.id, kinds=("fact_set",)))) == 1


@pytest.mark.parametrize(
    ("verb", "body", "status", "words"),
    [
        ("activate", b"", 400, "not JSON"),
        ("activate", b"{", 400, "not JSON"),
        ("activate", b"[]", 400, "expected an object"),
        ("activate", b"null", 400, "expected an object"),
        ("activate", b"{}", 400, "name"),
        ("activate", b'{"name": 7}', 400, "str"),
        ("activate", b'{"name": "payroll", "notte": "x"}', 400, "did you mean 'note'"),
        ("activate", b'{"name": "payroll", "key": 7}', 400, "1 to 200"),
        ("activate", b'{"name": "payroll", "key": ""}', 400, "1 to 200"),
        ("activate", b'{"name": "nobody"}', 404, "wakeful list"),
        ("send", b'{"name": "payroll", "text": "x", "sender": "other"}', 400, "sender"),
        ("sleep", b'{"name": "payroll", "until": 1}', 400, "has passed"),
        ("sleep", b'{"name": "payroll", "seconds": "2h"}', 400, "float"),
        ("cancel", b'{"name": "payroll"}', 400, "nothing to cancel"),
        ("fly", b'{"name": "payroll"}', 400, "activate"),
        ("activate", b"\xff\xfe", 400, "not JSON"),
        ("note", b'{"name": "payroll", "text": "\\ud800"}', 400, "send it as UTF-8"),
        ("activate", b"[" * 100_000, 400, "not JSON"),
    ],
)
def test_a_bad_body_is_refused_in_words_and_leaves_no_trace(
    daemon: RunningDaemon, speaker: Speaker, verb: str, body: bytes, status: int, words: str
) -> None:
    """The error says what was found and what was expected. Nothing is recorded."""
    before = daemon.small.log.position()
    reply = speaker.ask("POST", f"/call/{verb}", body)
    assert (reply.status, words in reply.error) == (status, True), reply.error
    assert daemon.small.log.position() == before


def test_a_body_beyond_the_limit_is_refused_before_it_is_read_whole(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The limit keeps one caller from filling the daemon's memory."""
    reply = speaker.call("note", name="payroll", text="x" * 1_000_001)
    assert reply.status == 413 and "at most" in reply.error


def test_only_post_calls_and_only_get_reads(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A link that is followed by accident changes nothing."""
    assert speaker.get("/call/activate").status == 405
    assert speaker.ask("POST", "/sessions", {}).status == 405
    assert speaker.get("/nothing").status == 404 and "/nothing" in speaker.get("/nothing").error
