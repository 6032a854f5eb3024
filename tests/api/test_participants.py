"""Who takes part in a session, and who does what while one looks."""

import json

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads

from wakeful.core.calls import Activate, Note, Remember

PAYROLL = declare("payroll", reads("salaries", "salaries.csv"), people={"ada": "maintainer", "eve": "contributor"})


async def live(small: SmallDaemon) -> None:
    await small.declare(PAYROLL)
    for author, run in (("person:bob", None), ("person:ada", None), ("run:payroll#1", 1), ("run:payroll#2", 1), ("person:ada", None)):
        await small.call(Note(name="payroll", text=f"by {author}"), author=author, key=None, run=run)
    await small.finish("payroll")


def parts(speaker: Speaker, query: str = "") -> dict[str, tuple[str | None, int]]:
    found = speaker.get(f"/sessions/payroll{query}").json["participants"]
    return {one["author"]: (one["role"], one["records"]) for one in found}


def test_participants_are_told_by_what_they_did_and_by_their_role(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Runs of a session are one, the daemon is none, and who has a role and said nothing is there, too."""
    daemon.do(live)
    assert parts(speaker) == {
        "person:ada": ("maintainer", 2), "run:payroll": (None, 2), "person:bob": ("maintainer", 1), "person:eve": ("contributor", 0),
    }  # fmt: skip
    found = speaker.get("/sessions/payroll").json["participants"]
    last = speaker.get("/sessions/payroll/log?author=person:ada&last=1").lines[0]["at"]
    assert found[0]["author"] == "person:ada" and found[0]["last_at"] == last and found[-1]["last_at"] is None


def test_what_was_counted_is_counted_once(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Asked again, only what is new is added; of the past, only what was there."""
    daemon.do(live)
    assert parts(speaker) == parts(speaker)
    seq = daemon.small.core.state.by_name("payroll").seq
    daemon.do(lambda d: d.call(Remember(name="payroll", key="a", value="b"), author="person:eve", key=None, run=None))
    assert parts(speaker)["person:eve"] == ("contributor", 1) and parts(speaker, f"?at={seq}")["person:eve"] == ("contributor", 0)
    assert parts(speaker, "?at=1") == {}


def test_follow_tells_who_does_what(daemon: RunningDaemon, speaker: Speaker) -> None:
    """What people do has words, also what the daemon would not narrate of itself; what nobody waits for has none."""
    daemon.do(live)
    connection, answer = speaker.stream("/follow?words=true")
    daemon.do(lambda d: d.call(Activate(name="payroll", note="month end"), author="person:bob", key=None, run=None))
    lines = [json.loads(answer.readline()) for _ in range(3)]
    connection.close()
    assert [(line["author"], line["kind"], line["words"]) for line in lines] == [
        ("person:bob", "activation_requested", "activation requested: month end"),
        ("wakeful", "wake_requested", "wakes: activated (month end)"),
        ("wakeful", "run_started", "run 2 started"),
    ]
