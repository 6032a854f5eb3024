"""The participants of a session, their roles, and the authors that `follow` shows."""

import json
import os

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from wakeful.api.gate.callers import name_person
from wakeful.core.calls.call_types import Activate, Note, Remember

PAYROLL = declare("payroll", reads("salaries", "salaries.csv"), people={"ada": "maintainer", "eve": "contributor"})


ME = os.getuid()
MY_NAME = name_person(ME)


async def live(small: SmallDaemon) -> None:
    await small.declare(PAYROLL)
    for author, run in (
        ("person:bob", None),
        ("person:ada", None),
        ("run:payroll#1", 1),
        ("run:payroll#2", 1),
        ("person:ada", None),
    ):
        await small.call(Note(name="payroll", text=f"by {author}"), author=author, key=None, run=run)
    await small.finish("payroll")


def parts(speaker: Speaker, query: str = "") -> dict[str, tuple[str | None, int]]:
    found = speaker.get(f"/sessions/payroll{query}").json["participants"]
    return {one["author"]: (one["role"], one["records"]) for one in found}


def test_participants_are_told_by_what_they_did_and_by_their_role(daemon: RunningDaemon, speaker: Speaker) -> None:
    """All runs of a session count as one participant, and the daemon as none.
    People with a role but no record are listed."""
    daemon.do(live)
    assert parts(speaker) == {
        "person:ada": ("maintainer", 2), "run:payroll": (None, 2), "person:bob": ("maintainer", 1), "person:eve": ("contributor", 0),
    }  # fmt: skip
    found = speaker.get("/sessions/payroll").json["participants"]
    last = speaker.get("/sessions/payroll/log?author=person:ada&last=1").lines[0]["at"]
    assert found[0]["author"] == "person:ada" and found[0]["last_at"] == last and found[-1]["last_at"] is None


def test_what_was_counted_is_counted_once(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A second question adds only new records. A question about the past counts only the records of that time."""
    daemon.do(live)
    assert parts(speaker) == parts(speaker)
    seq = daemon.small.core.state.by_name("payroll").seq
    daemon.do(lambda d: d.call(Remember(name="payroll", key="a", value="b"), author="person:eve", key=None, run=None))
    assert parts(speaker)["person:eve"] == ("contributor", 1) and parts(speaker, f"?at={seq}")["person:eve"] == (
        "contributor",
        0,
    )
    assert parts(speaker, "?at=1") == {}


def test_follow_tells_who_does_what(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Calls of people have words, also those that the daemon would not narrate for itself. Its routine has none."""
    daemon.do(live)
    connection, answer = speaker.stream("/follow?words=true")
    daemon.do(lambda d: d.call(Activate(name="payroll", note="month end"), author="person:bob", key=None, run=None))
    lines = [json.loads(answer.readline()) for _ in range(3)]
    daemon.do(lambda d: d.declare(PAYROLL, declare("desk", reads("salaries", "salaries.csv"))))
    routine = json.loads(answer.readline())
    connection.close()
    assert [(line["author"], line["kind"], line["words"]) for line in lines] == [
        ("person:bob", "activation_requested", "activation requested: month end"),
        ("wakeful", "wake_requested", "wakes: activated (month end)"),
        ("wakeful", "run_started", "run 2 started"),
    ]
    assert (routine["author"], routine["kind"], routine["words"]) == ("wakeful", "session_opened", None)


@pytest.mark.parametrize(
    ("people", "note", "terminate"),
    [
        ({str(ME): "observer"}, 400, 400),
        ({str(ME): "contributor"}, 200, 400),
        ({str(ME): "maintainer"}, 200, 200),
        ({str(ME + 1): "observer"}, 200, 200),
        # A role given to the name has precedence over one given to the uid.
        ({MY_NAME.removeprefix("person:"): "contributor", str(ME): "observer"}, 200, 400),
    ],
)
def test_a_role_given_to_a_uid_is_that_of_the_user_at_the_socket(
    daemon: RunningDaemon, speaker: Speaker, people: dict[str, str], note: int, terminate: int
) -> None:
    """The kernel reports the uid, whatever the account's name is. The user is one participant, with that role."""
    daemon.do(lambda d: d.declare(declare("desk", reads("salaries", "salaries.csv"), people=people)))
    assert speaker.call("note", name="desk", text="hello").status == note
    assert speaker.call("terminate", name="desk").status == terminate
    found = {one["author"]: one["role"] for one in speaker.get("/sessions/desk").json["participants"]}
    own = people.get(MY_NAME.removeprefix("person:")) or people.get(str(ME))
    assert found.get(MY_NAME) == own or own is None
    assert f"person:{ME}" not in found or MY_NAME == f"person:{ME}"


def test_a_uid_is_asked_for_also_where_bundles_are_moved(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A move freezes a session. An observer by uid is refused with a reason, and the session is not frozen."""
    daemon.do(lambda d: d.declare(declare("desk", reads("salaries", "salaries.csv"), people={str(ME): "observer"})))
    path = str(daemon.small.places.state / "desk.bundle")
    (line,) = speaker.ask("POST", "/bundle/move", {"name": "desk", "path": path, "to": "laptop"}).lines
    assert "is an observer of desk" in line["detail"]
    assert speaker.get("/sessions/desk").json["state"] != "sleeping"
