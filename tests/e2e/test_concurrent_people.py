"""Three people at once in one session, over the API.

Messages are attributed and ordered, and none is lost. People are present, or refused with a reason.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from api.conftest import SocketConnection, Speaker
from api.event_reader import read_event
from e2e.box import Box
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

MESSAGES = 30
ROLES = {"ana": "maintainer", "ben": "contributor", "cai": "observer"}


@pytest.fixture
def session_box(box: Box) -> Iterator[Box]:
    box.write("rates.txt", "one\n")
    box.spec(
        "payroll",
        """
        approve: before_run
        bindings: {rates: {file: rates.txt, settle: 10ms}}
        run: {script: "cat rates.txt >> ledger\\n"}
        """,
    )
    box.spec("private", "objective: Nobody was given this.\n")
    box.start()
    yield box


def let_in(box: Box) -> dict[str, str]:
    for name, role in ROLES.items():
        box.ask("people", "add", name, "--role", role, "--session", "payroll")
    return {name: box.ask("token", "new", "--person", name).strip() for name in ROLES}


def test_three_people_work_in_one_session_at_once(session_box: Box) -> None:
    """Each sends as fast as it can.

    Every message is there once, by its author, in one order that all see. The observer is refused with a reason each
    time.
    """
    box, tokens = session_box, let_in(session_box)
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in ROLES}
    answers: dict[str, list[tuple[int, Any]]] = {name: [] for name in ROLES}
    ready = threading.Barrier(len(ROLES) * 2)
    followers = [
        threading.Thread(target=follow, args=(box, tokens[name], told[name], ready), daemon=True) for name in ROLES
    ]
    writers = [
        threading.Thread(target=write, args=(box, name, tokens[name], answers[name], ready), daemon=True)
        for name in ROLES
    ]
    for one in (*followers, *writers):
        one.start()
    for one in (*writers, *followers):
        one.join(PATIENCE_SECONDS)
        assert not one.is_alive()
    # No message is lost or doubled, and each has its author.
    messages = [one for one in box.log("payroll", "--kind", "message_added")]
    said = [(one["author"], one["payload"]["text"]) for one in messages]
    for name in ("ana", "ben"):
        mine = [text for author, text in said if author == f"person:{name}"]
        assert mine == [f"{name} {number}" for number in range(MESSAGES)]
        assert all(status == 200 for status, _ in answers[name])
    assert len(said) == 2 * MESSAGES
    assert [one["payload"]["position"] for one in messages] == list(range(1, 2 * MESSAGES + 1))
    # The observer never acted, and was told why each time.
    assert {status for status, _ in answers["cai"]} == {403}
    assert all("cai is an observer of payroll" in body["detail"] for _, body in answers["cai"])
    # All three saw the same records in the same order.
    assert told["ana"] == told["ben"] == told["cai"] and len(told["ana"]) == 2 * MESSAGES
    assert [one["seq"] for one in told["ana"]] == [one["seq"] for one in messages]


def follow(box: Box, token: str, told: list[dict[str, Any]], ready: threading.Barrier) -> None:
    connection, answer = open_stream(box, "/live", token)
    snapshot = read_event(answer)
    assert [row["name"] for row in snapshot.data["sessions"]] == ["payroll"]
    ready.wait(PATIENCE_SECONDS)
    while len(told) < 2 * MESSAGES:
        event = read_event(answer)
        if event.event == "changes":
            told += (
                {key: one[key] for key in ("seq", "author", "kind", "session")}
                for one in event.data["records"]
                if one["kind"] == "message_added"
            )
    connection.close()


def write(box: Box, name: str, token: str, answers: list[tuple[int, Any]], ready: threading.Barrier) -> None:
    speaker = Speaker(box.socket)
    ready.wait(PATIENCE_SECONDS)
    for number in range(MESSAGES):
        reply = speaker.call("send", token, name="payroll", text=f"{name} {number}", wake=False)
        answers.append((reply.status, json.loads(reply.body)))


def open_stream(box: Box, target: str, token: str) -> Any:
    connection = SocketConnection(box.socket)
    connection.request("GET", target, headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"})
    return connection, connection.getresponse()


def test_they_see_each_other_and_only_what_is_theirs(session_box: Box) -> None:
    """Presence says who looks and who writes: in `presence`, `show`, the list of the API and the live stream."""
    box, tokens, speaker = session_box, let_in(session_box), Speaker(session_box.socket)
    connection, answer = open_stream(box, "/live?name=payroll", tokens["cai"])
    assert [one["person"] for one in read_event(answer).data["people"]] == ["cai"]
    speaker.get("/sessions/payroll", tokens["ana"])
    speaker.call("note", tokens["ben"], name="payroll", text="from ben")

    def is_told() -> bool:
        event = read_event(answer)
        return event.event == "presence" and {(one["person"], one["doing"]) for one in event.data["people"]} == {
            ("ana", "looks"),
            ("ben", "writes"),
            ("cai", "looks"),
        }

    while not is_told():
        pass
    connection.close()
    found = {(one["person"], one["doing"]) for one in speaker.get("/presence", tokens["ana"]).json}
    assert found == {("ana", "looks"), ("ben", "writes"), ("cai", "looks")}
    assert "ben writes" in box.ask("show", "payroll")
    assert ["cai", "payroll", "looks"] in [line.split()[:3] for line in box.ask("presence", "payroll").splitlines()]
    listed = Client(str(box.socket)).get("/sessions", present="true")
    row = next(row for row in listed if row["name"] == "payroll")
    assert {one["person"] for one in row["present"]} >= {"ana", "ben", "cai"}
    shown = {one["author"]: one["role"] for one in box.json("show", "payroll")["participants"]}
    assert {shown[f"person:{name}"] for name in ROLES} == set(ROLES.values())
    for name in ROLES:
        assert [row["name"] for row in speaker.get("/sessions", tokens[name]).json] == ["payroll"]
        assert speaker.get("/sessions/private", tokens[name]).status == 403
        assert [row["name"] for row in speaker.get("/top", tokens[name]).json["sessions"]] == ["payroll"]


def test_a_question_is_answered_by_one_of_them(session_box: Box) -> None:
    """The observer sees the question and may not answer it.

    The first of the two others counts, and `why` names who refused.
    """
    box, tokens, speaker = session_box, let_in(session_box), Speaker(session_box.socket)
    eventually(lambda: "may it run?" in (box.row("payroll")["reason"] or ""))
    assert speaker.get("/sessions/payroll/question", tokens["cai"]).json["asks"] == "run"
    refused = speaker.call("answer", tokens["cai"], name="payroll", text="yes")
    assert refused.status == 403 and "cai is an observer" in refused.error
    replies: dict[str, Any] = {}
    ready = threading.Barrier(2)

    def answer(name: str) -> None:
        ready.wait(PATIENCE_SECONDS)
        replies[name] = Speaker(box.socket).call(
            "answer", tokens[name], name="payroll", text="no", rationale=f"{name} has doubts"
        )

    both = [threading.Thread(target=answer, args=(name,), daemon=True) for name in ("ana", "ben")]
    for one in both:
        one.start()
    for one in both:
        one.join(PATIENCE_SECONDS)
    first, second = sorted(replies, key=lambda name: replies[name].status)
    assert (replies[first].status, replies[second].status) == (200, 400)
    assert f"{first} said no" in replies[second].error and f"{first} has doubts" in replies[second].error
    why = " ".join(box.ask("why", "payroll").split())
    assert f"refused by {first}" in why and f"{first} has doubts" in why
    assert box.read("ledger") == ""


def test_a_spec_narrows_what_the_owner_gave(session_box: Box) -> None:
    """The registry says how far ben gets at all.

    `people` in the spec can make an observer of a contributor, and never more.
    """
    box, tokens, speaker = session_box, let_in(session_box), Speaker(session_box.socket)
    box.spec("payroll", "objective: Pay.\npeople: {ben: observer, cai: maintainer}\n")
    eventually(lambda: box.json("show", "payroll")["objective"] == "Pay.")
    refused = speaker.call("note", tokens["ben"], name="payroll", text="x")
    assert refused.status == 400 and "ben is an observer" in refused.error
    assert speaker.call("note", tokens["cai"], name="payroll", text="x").status == 403
    roles = {one["author"]: one["role"] for one in box.json("show", "payroll")["participants"]}
    assert (roles["person:ben"], roles["person:cai"], roles["person:ana"]) == ("observer", "observer", "maintainer")
