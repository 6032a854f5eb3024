"""People and their roles over the wire: the access of each role to each route, what they see, and what is recorded."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from api.conftest import SocketConnection, Speaker
from api.event_reader import read_event, read_until
from api.small_daemon import RunningDaemon, declare, reads
from security.test_tokens import KEYS, REFUSED, STREAMS, stream
from wakeful.api.gate.scopes import OWN_ROUTES, RULES
from wakeful.verbs.table import VERBS

ROLES = ("observer", "contributor", "maintainer")
# The routes that no role reaches. They are listed by hand, so that the table in the code is not checked against itself.
OWNERS = (
    "/notify/test", "/webhooks/test",
    "/secrets", "/tokens", "/people", "/trust", "/bundle", "/replay", "/call/sleep_all", "/call/resume_all", "/work/",
    "/dashboard",
    "/sessions/{name}/bundle",
)  # fmt: skip
# These routes change no session: reports of a page, and login and logout of a browser.
PUBLIC = ("/csp-report", "/login", "/logout")
# The verbs that a maintainer may call and a contributor may not.
MAINTAINERS = (
    "terminate", "open", "rename", "trace", "rewind", "merge", "migrate", "erase",
)  # fmt: skip


@pytest.fixture
def daemon(tmp_path: Path) -> Any:
    with RunningDaemon(tmp_path) as running:
        running.do(
            lambda d: d.declare(declare("payroll", reads("salaries", "s.csv")), declare("other", reads("x", "x.csv")))
        )
        running.do(lambda d: d.finish("payroll"))
        running.do(lambda d: d.finish("other"))
        yield running


@pytest.fixture
def speaker(daemon: RunningDaemon) -> Speaker:
    return Speaker(daemon.socket)


def let_in(speaker: Speaker, name: str, role: str, **more: Any) -> str:
    """Add a person with this role, and return a token of theirs."""
    added = speaker.ask("POST", "/people/add", {"name": name, "role": role, **more})
    assert added.status == 200, added.body
    made = speaker.ask("POST", "/tokens", {"person": name})
    assert made.status == 200, made.body
    return made.json["token"]


def find_role(key: str) -> str | None:
    """Return the least role that should reach a route. None means that only the owner reaches it."""
    method, path = key.split(" ")
    if path.startswith(OWNERS):
        return None
    if method == "GET" or path in ("/presence", "/mcp", *PUBLIC) or path.startswith("/webhook/"):
        return "observer"
    return "maintainer" if path.removeprefix("/call/") in MAINTAINERS else "contributor"


def ask(speaker: Speaker, key: str, token: str, name: str = "payroll") -> tuple[int, bytes]:
    method, path = key.split(" ")
    target = path.replace("{name}", name) + (f"?name={name}" if RULES[key].session == "query" else "")
    if path in STREAMS:
        connection, status = stream(speaker, target, token)
        connection.close()
        return status, b""
    body = {"name": name, "text": "hello", "key": "k", "value": "v"} if method == "POST" else None
    reply = speaker.ask(method, target, body, token=token)
    return reply.status, reply.body


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("key", KEYS)
def test_each_role_reaches_what_it_should(speaker: Speaker, key: str, role: str) -> None:
    """An observer reads, a contributor works and a maintainer does everything. No role reaches the owner's routes."""
    token = let_in(speaker, "ana", role)
    needed = find_role(key)
    status, body = ask(speaker, key, token)
    is_reached = needed is not None and ROLES.index(role) >= ROLES.index(needed)
    assert (status not in REFUSED) == is_reached, (status, body)
    if not is_reached:
        assert b"ana" in body and (b"owner" in body or b"takes a" in body), body


def list_reached(speaker: Speaker, token: str, name: str) -> list[str]:
    """Return the verbs that the daemon does not refuse. Each is called once."""
    calls = [key for key in KEYS if key.startswith("POST /call/")]
    return [key.removeprefix("POST /call/") for key in calls if ask(speaker, key, token, name)[0] not in REFUSED]


@pytest.mark.parametrize("role", ROLES)
def test_a_caller_is_told_which_verbs_they_may_call(speaker: Speaker, role: str) -> None:
    """`/me` lists exactly the verbs they reach, also for a session in which they have another role."""
    token = let_in(speaker, "ana", role)
    changed = {"name": "ana", "role": "observer", "session": "other"}
    assert speaker.ask("POST", "/people/role", changed).status == 200
    me = speaker.get("/me", token).json
    assert me["person"] == "ana" and set(me["sessions"]) == ({"other"} if role != "observer" else set())
    # Try the session `other` first, because the last verbs of the list close sessions.
    observer = me["sessions"].get("other", me["calls"])
    assert observer == list_reached(speaker, token, "other")
    assert sorted(me["calls"]) == sorted(list_reached(speaker, token, "payroll"))


@pytest.mark.parametrize("scope", ["read", "send", "run", "admin"])
@pytest.mark.parametrize("session", [None, "payroll"])
def test_a_token_is_told_what_it_opens(speaker: Speaker, scope: str, session: str | None) -> None:
    """`/me` lists exactly the verbs of a token, in each scope, for one session and for all."""
    body = {"scopes": [scope]} | ({"session": session} if session is not None else {})
    made = speaker.ask("POST", "/tokens", body).json["token"]
    me = speaker.get("/me", made).json
    told = me["calls"] if session is None else me["sessions"].get("payroll", [])
    assert session is None or me["calls"] == []
    # Calls about all sessions at once are not verbs of a session.
    reached = set(list_reached(speaker, made, "payroll")) - {"sleep_all", "resume_all"}
    assert set(told) == reached and ("send" in told) == (scope in ("send", "admin"))


@pytest.mark.parametrize("key", [key for key in KEYS if "{name}" in key or key.startswith("POST /call/")])
def test_a_role_for_one_session_opens_no_other(speaker: Speaker, key: str) -> None:
    """Another session is refused in the path, the query or the body, in the same way whether it exists or not."""
    token = let_in(speaker, "ben", "maintainer", session="payroll")
    for name in ("other", "nothing"):
        status, body = ask(speaker, key, token, name)
        assert status == 403, (key, name, status, body)


def test_every_route_is_judged() -> None:
    """The gate's table of rules has every route, and the lists in this file have every maintainer's verb."""
    assert set(KEYS) <= set(RULES) and {route.key for route in OWN_ROUTES} <= set(RULES)
    assert {name for name, verb in VERBS.items() if verb.is_call and verb.role == "maintainer"} <= set(MAINTAINERS) | {
        "archive"
    }


def test_a_role_for_one_session_shows_only_that(speaker: Speaker, daemon: RunningDaemon) -> None:
    """Lists, search, costs, export, plan and why show that one session only."""
    for name in ("payroll", "other"):
        assert speaker.call("note", name=name, text=f"lighthouse of {name}").status == 200
    token = let_in(speaker, "ben", "observer", session="payroll")
    assert [row["name"] for row in speaker.get("/sessions", token).json] == ["payroll"]
    assert [row[0] for row in speaker.get("/sessions?brief=true", token).json["sessions"]] == ["payroll"]
    assert {line["session"] for line in speaker.get("/search?text=lighthouse", token).lines} == {"payroll"}
    assert {line["session"] for line in speaker.get("/search?text=lighthouse").lines} == {"payroll", "other"}
    assert {row["session"] for row in speaker.get("/costs?by=session", token).json["rows"]} == {"payroll"}
    assert {line["session"] for line in speaker.get("/export", token).lines} == {"payroll"}
    for target in (
        "/sessions",
        "/export",
        "/costs?by=session,cause",
        "/plan",
        "/plan?path=/x.csv",
        "/presence",
        "/timeline",
        "/graph",
    ):
        assert b"other" not in speaker.get(target, token).body, target
    assert speaker.get("/diff?a=payroll&b=other", token).status == 403
    unseen, unknown = (speaker.get(f"/why?x={name}", token).error for name in ("other", "nothing"))
    assert unseen == unknown.replace("nothing", "other")
    assert speaker.get("/doctor", token).status == 403


def test_what_a_person_does_is_recorded_under_their_name(speaker: Speaker) -> None:
    """Every record of a call names the person, whatever token they used."""
    token = let_in(speaker, "ana", "contributor")
    assert speaker.call("note", token, name="payroll", text="seen").status == 200
    records = speaker.get("/sessions/payroll/log").lines
    assert records[-1]["author"] == "person:ana"


def test_a_role_that_changes_counts_at_once(speaker: Speaker) -> None:
    """A change of role applies to the same token from the next request on."""
    token = let_in(speaker, "ana", "observer")
    assert speaker.call("note", token, name="payroll", text="x").status == 403
    assert (
        speaker.ask("POST", "/people/role", {"name": "ana", "role": "contributor", "session": "payroll"}).status == 200
    )
    assert speaker.call("note", token, name="payroll", text="x").status == 200
    assert speaker.call("note", token, name="other", text="x").status == 403
    gone = speaker.ask("POST", "/people/remove", {"name": "ana"})
    assert gone.json["revoked"] == 1
    assert speaker.get("/sessions", token).status == 401
    # A person added again under the same name does not get the old token back.
    let_in(speaker, "ana", "observer")
    assert speaker.get("/sessions", token).status == 401
    changes = speaker.get("/people").json["changes"]
    assert [one["words"] for one in changes] == [
        "let in as observer of every session",
        "now contributor of payroll",
        "removed, with 1 token",
        "let in as observer of every session",
    ]
    assert all(one["by"].startswith("person:") and one["at"].endswith("Z") for one in changes)


def test_a_stream_stops_telling_when_the_role_is_taken_away(speaker: Speaker, daemon: RunningDaemon) -> None:
    """A follower that loses a role gets no later record of the sessions it covered."""
    token = let_in(speaker, "ana", "observer")
    connection, answer = open_stream(speaker, "/follow", token)
    speaker.call("note", name="payroll", text="before")
    assert "before" in answer.readline().decode()
    speaker.ask("POST", "/people/role", {"name": "ana", "role": "observer", "session": "other"})
    speaker.ask("POST", "/people/role", {"name": "ana", "role": None})
    speaker.call("note", name="payroll", text="between")
    speaker.call("note", name="other", text="after")
    line = json.loads(answer.readline())
    assert line["session"] == "other" and line["payload"]["text"] == "after"
    connection.close()


def open_stream(speaker: Speaker, target: str, token: str) -> Any:
    connection = SocketConnection(speaker.path)
    connection.request("GET", target, headers={"Authorization": f"Bearer {token}"})
    return connection, connection.getresponse()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "", "role": "observer"}, "not a name for a person"),
        ({"name": "ana ben", "role": "observer"}, "not a name for a person"),
        ({"name": "1000", "role": "observer"}, "taken for a uid"),
        ({"name": "ana", "role": "king"}, "Invalid enum value 'king'"),
        ({"name": "ana", "role": "observer", "session": "nothing"}, "no session is called"),
    ],
)
def test_a_person_that_cannot_be_is_refused_in_words(speaker: Speaker, body: dict[str, Any], words: str) -> None:
    refused = speaker.ask("POST", "/people/add", body)
    assert refused.status in (400, 404) and words in refused.error
    assert speaker.get("/people").json["people"] == []


def test_nobody_takes_the_name_of_the_owner(speaker: Speaker) -> None:
    refused = speaker.ask("POST", "/people/add", {"name": getpass.getuser(), "role": "observer"})
    assert refused.status == 400 and "its owner" in refused.error


def test_a_file_of_people_that_others_can_read_lets_nobody_in(speaker: Speaker, daemon: RunningDaemon) -> None:
    token = let_in(speaker, "ana", "observer")
    file = next(daemon.socket.parent.parent.rglob("people.json"))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    refused = speaker.get("/sessions", token)
    assert refused.status == 503 and "chmod 600" in refused.error
    file.chmod(0o600)
    assert speaker.get("/sessions", token).status == 200


def test_who_looks_and_who_writes_is_told(speaker: Speaker) -> None:
    """A person who read is shown as looking, and one who called as writing.
    A person with a role for one session sees only the people there."""
    ana = let_in(speaker, "ana", "contributor")
    ben = let_in(speaker, "ben", "observer", session="payroll")
    speaker.get("/sessions/payroll", ben)
    speaker.call("note", ana, name="payroll", text="x")
    speaker.get("/sessions/other/log", ana)
    found = {(one["person"], one["session"]): one["doing"] for one in speaker.get("/presence").json}
    assert found == {("ben", "payroll"): "looks", ("ana", "payroll"): "writes", ("ana", "other"): "looks"}
    assert {one["session"] for one in speaker.get("/presence", ben).json} == {"payroll"}
    # A refused request does not count as presence.
    speaker.get("/sessions/other", ben)
    assert ("ben", "other") not in {(one["person"], one["session"]) for one in speaker.get("/presence").json}
    assert speaker.ask("POST", "/presence", {"name": "payroll", "doing": "writes"}, token=ben).status == 403
    assert speaker.ask("POST", "/presence", {"name": "payroll", "doing": "looks"}, token=ben).status == 200


def test_a_live_stream_tells_who_came_and_only_of_what_they_may_see(speaker: Speaker) -> None:
    """The snapshot has the people present, and later arrivals are events.
    Rows and people of other sessions are left out."""
    ana = let_in(speaker, "ana", "contributor")
    ben = let_in(speaker, "ben", "observer", session="payroll")
    speaker.get("/sessions/other", ana)
    connection, answer = open_stream(speaker, "/live", ben)
    snapshot = read_until(answer, "snapshot").data
    assert [row["name"] for row in snapshot["sessions"]] == ["payroll"] and snapshot["people"] == []
    speaker.call("note", ana, name="other", text="hidden")
    speaker.call("note", ana, name="payroll", text="shown")
    told = [read_event(answer)]
    while not (told[-1].event == "presence" and told[-1].data["people"]):
        told.append(read_event(answer))
    records = [one["session"] for event in told if event.event == "changes" for one in event.data["records"]]
    assert set(records) == {"payroll"}
    assert {(one["person"], one["session"], one["doing"]) for one in told[-1].data["people"]} == {
        ("ana", "payroll", "writes")
    }
    connection.close()


def test_a_follower_is_here_for_as_long_as_it_follows(speaker: Speaker) -> None:
    """`show` and `list` both name the follower."""
    ana = let_in(speaker, "ana", "observer")
    connection, _ = open_stream(speaker, "/follow?name=payroll", ana)
    assert [one["person"] for one in speaker.get("/sessions/other").json["present"]] == [getpass.getuser()]
    assert [one["person"] for one in speaker.get("/sessions/payroll").json["present"]][0] == "ana"
    rows = {
        row["name"]: [one["person"] for one in row["present"]] for row in speaker.get("/sessions?present=true").json
    }
    assert rows == {"payroll": ["ana", getpass.getuser()], "other": [getpass.getuser()]}
    connection.close()
