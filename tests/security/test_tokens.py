"""Tokens at every route: a token opens only the routes of its scopes, and a bad token opens nothing."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from api.conftest import SocketConnection, Speaker
from api.small_daemon import RunningDaemon, declare, reads
from e2e.box import Box
from wait_conditions import eventually
from wakeful.api.app import ROUTES
from wakeful.api.gate.access_tokens import Tokens
from wakeful.api.gate.scopes import RULES
from wakeful.api.routes import bundles as bundle_routes
from wakeful.api.routes import calls as calling
from wakeful.core.record.observations import ProcessOwner
from wakeful.errors import OperatorError
from wakeful.verbs.verb import SCOPES

VERBS = {"/call/{verb}": [*calling.CALLS], "/bundle/{verb}": [*bundle_routes.ALL_ACTS]}
# Every route of the router, such as "GET /sessions/{name}" and "POST /call/send".
KEYS = [
    f"{method} {route.path.replace('{verb}', verb)}"
    for route in ROUTES
    for method in sorted((route.methods or set()) - {"HEAD"})
    for verb in VERBS.get(route.path, [""])
]
REFUSED = (401, 403)
STREAMS = ("/follow", "/live")


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


def make(speaker: Speaker, *scopes: str, **more: Any) -> str:
    made = speaker.ask("POST", "/tokens", {"scopes": scopes, **more})
    assert made.status == 200, made.body
    return made.json["token"]


def ask(speaker: Speaker, key: str, token: str | None = None, *, name: str = "payroll", **headers: str) -> int:
    """Return the status of a request that is complete enough to reach its route.

    A stream that never ends is closed after its headers.
    """
    method, path = key.split(" ")
    target = path.replace("{name}", name) + (f"?name={name}" if RULES[key].session == "query" else "")
    if path in STREAMS:
        # An allowed stream never ends by itself. Without a token, the request also names a session that does not exist.
        target = f"{path}?name={name}" + ("&name=nobody" if token is None else "")
    if path in STREAMS and token is not None:
        connection, answer = stream(speaker, target, token)
        connection.close()
        return answer
    body = {"name": name, "text": "hello", "key": "k", "value": "v"} if method == "POST" else None
    return speaker.ask(method, target, body, token=token, **headers).status


def stream(speaker: Speaker, target: str, token: str) -> tuple[Any, int]:
    connection = SocketConnection(speaker.path)
    connection.request("GET", target, headers={"Authorization": f"Bearer {token}"})
    return connection, connection.getresponse().status


def head(daemon: RunningDaemon) -> int:
    return daemon.small.log.position()


# -- the table --------------------------------------------------------------------------------------


def test_every_route_and_call_has_its_rule_and_no_rule_is_left_over() -> None:
    """A new route is closed to tokens until it has a rule."""
    assert sorted(KEYS) == sorted(RULES)


def test_only_what_changes_nothing_is_asked_for_with_get() -> None:
    """`read` opens no route that changes anything."""
    assert {key.split(" ")[0] for key, rule in RULES.items() if rule.scope == "read"} == {"GET"}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_opens_its_routes_and_no_other(speaker: Speaker, scope: str) -> None:
    """Each scope is tried alone, at every route."""
    token = make(speaker, scope)
    for key, rule in RULES.items():
        is_open = rule.scope != "owner" and (rule.scope is None or scope in (rule.scope, "admin"))
        assert (ask(speaker, key, token) not in REFUSED) == is_open, key


def test_a_token_for_one_session_reaches_that_one_alone(speaker: Speaker, daemon: RunningDaemon) -> None:
    """This also holds for an admin token.

    A request about all sessions is allowed only if it names the token's session.
    """
    token = make(speaker, "admin", session="payroll")
    for key, rule in RULES.items():
        if rule.scope is None:
            continue
        assert (ask(speaker, key, token) not in REFUSED) == (rule.session is not None), key
        before = head(daemon)
        assert ask(speaker, key, token, name="other") == 403, key
        assert ask(speaker, key, token, name=quote("payroll/../other", safe="")) == 403, key
        assert head(daemon) == before, key


@pytest.mark.parametrize(
    "target",
    [
        "/follow",
        "/export",
        "/search?text=x",
        "/timeline",
        "/timeline?name=payroll&name=other",
        "/export?name=payroll&name=other",
        "/search?text=x&name=other&name=payroll",
        "/follow?name=other",
    ],
)
def test_a_query_that_reaches_further_is_refused(speaker: Speaker, target: str) -> None:
    """A query without a name means all sessions. Of several names, each is checked."""
    assert speaker.get(target, make(speaker, "read", session="payroll")).status == 403


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"payroll","name":"other","text":"x"}',
        b'{"text":"x"}',
        b'{"name":["payroll"],"text":"x"}',
        b"[]",
        b"",
        b"{" * 100_000,
    ],
)
def test_a_body_that_names_no_single_session_of_the_tokens_reaches_nobody(
    speaker: Speaker, daemon: RunningDaemon, body: bytes
) -> None:
    """The check parses the same bytes as the route, with the same parser."""
    before = head(daemon)
    assert speaker.ask("POST", "/call/send", body, token=make(speaker, "send", session="payroll")).status in (400, 403)
    assert head(daemon) == before


def test_a_token_for_a_session_follows_a_rename_and_not_the_name(speaker: Speaker, daemon: RunningDaemon) -> None:
    """The token belongs to the session. Another session that takes over its name is not opened."""
    token = make(speaker, "send", session="payroll")
    assert speaker.call("rename", name="payroll", new="wages").status == 200
    assert speaker.call("rename", name="other", new="payroll").status == 200
    assert speaker.call("send", token, name="wages", text="hello").status == 200
    assert speaker.call("send", token, name="payroll", text="hello").status == 403


# -- what is no good token --------------------------------------------------------------------------


def spoil(text: str) -> dict[str, str]:
    """Return headers that resemble the token but are not valid."""
    shown = {
        "presence": "Bearer",
        "empty": "Bearer ",
        "word": "Bearer true",
        "id alone": f"Bearer {text.rsplit('_', 1)[0]}_",
        "cut": f"Bearer {text[:-1]}",
        "longer": f"Bearer {text}x",
        "other secret": f"Bearer {text[:17]}{'A' * 43}",
        "other prefix": f"Bearer other{text.removeprefix('wakeful')}",
        "upper": f"Bearer {text.upper()}",
        "basic": f"Basic {text}",
        "bare": text,
        "two at once": f"Bearer {text}, Bearer {text}",
    }
    return shown


def test_what_is_no_good_token_opens_no_route(speaker: Speaker, daemon: RunningDaemon) -> None:
    """A bad, cut, expired or revoked token gets 401 at every route. It never falls back to the user's own rights."""
    good = make(speaker, "admin")
    expired, revoked = make(speaker, "admin", seconds=0.000_001), make(speaker, "admin")
    assert speaker.ask("POST", "/tokens/revoke", {"id": revoked.split("_")[1]}).status == 200
    before = head(daemon)
    bad = {**spoil(good), "expired": f"Bearer {expired}", "revoked": f"Bearer {revoked}"}
    for key in KEYS:
        for what, header in bad.items():
            assert ask(speaker, key, Authorization=header) == 401, (key, what)
    assert head(daemon) == before


@pytest.mark.parametrize("name", ["token", "access_token", "TOKEN", "api_key", "Authorization"])
def test_a_token_in_an_address_is_refused_though_it_is_good(speaker: Speaker, daemon: RunningDaemon, name: str) -> None:
    """Addresses are written to many logs. So the sender of such a request learns at once that it is wrong."""
    token, before = make(speaker, "admin"), head(daemon)
    refused = speaker.get(f"/sessions?{name}={token}")
    assert refused.status == 401 and token not in refused.body.decode()
    assert speaker.ask("POST", f"/call/activate?{name}={token}", {"name": "payroll"}, token=token).status == 401
    assert head(daemon) == before


@pytest.mark.parametrize(
    "name",
    ["Wakeful-Scope", "X-Scope", "X-Forwarded-User", "X-Wakeful-Role", "Wakeful-Author", "X-HTTP-Method-Override"],
)
def test_what_a_client_says_of_its_own_rights_is_not_read(speaker: Speaker, daemon: RunningDaemon, name: str) -> None:
    """The scopes are fixed when the token is made. Headers and body fields cannot change them."""
    token, before = make(speaker, "read"), head(daemon)
    for value in ("admin", "operator.admin", "root", "GET"):
        assert (
            speaker.ask(
                "POST", "/call/activate", {"name": "payroll"}, token=token, **{name.replace("-", "_"): value}
            ).status
            == 403
        )
    for more in ({"scope": "admin"}, {"scopes": ["admin"]}, {"role": "maintainer"}, {"author": "person:root"}):
        assert speaker.call("activate", token, name="payroll", **more).status == 403
    assert head(daemon) == before


def test_two_tokens_at_once_are_none(speaker: Speaker, daemon: RunningDaemon) -> None:
    """A request with two tokens is refused, because it is not clear which one counts."""
    token = make(speaker, "admin")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.socket))
        line = f"Authorization: Bearer {token}\r\n"
        connection.sendall(f"GET /sessions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}{line}\r\n".encode())
        assert b" 401 " in connection.recv(4096).split(b"\r\n")[0]


def test_no_token_makes_lists_or_revokes_tokens(speaker: Speaker) -> None:
    """Not even an admin token can, because it could make one that outlives it."""
    token = make(speaker, "admin")
    assert speaker.get("/tokens", token).status == 403
    assert speaker.ask("POST", "/tokens", {"scopes": ["admin"]}, token=token).status == 403
    assert speaker.ask("POST", "/tokens/revoke", {"id": token.split("_")[1]}, token=token).status == 403


def test_a_process_of_a_run_gets_nowhere_with_a_token_it_found(speaker: Speaker, daemon: RunningDaemon) -> None:
    """A process of a run may only use its run's own token."""
    token = make(speaker, "admin")
    daemon.small.owner = ProcessOwner(run_id="some.1", mark=1, sign="")
    assert speaker.get("/sessions", token).status == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scopes": []},
        {"scopes": ["root"]},
        {"scopes": ["read"], "session": "nobody"},
        {"scopes": ["read"], "seconds": 0},
        {"scopes": ["read"], "seconds": 1e300},
        {"scopes": ["read"], "digest": "0" * 64},
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(speaker: Speaker, body: dict[str, Any]) -> None:
    """The refusal has a message, and no token is stored."""
    refused = speaker.ask("POST", "/tokens", body)
    assert refused.status in (400, 404) and refused.error
    assert speaker.get("/tokens").json == []


# -- what is kept -----------------------------------------------------------------------------------


def test_a_token_is_kept_as_a_hash_in_a_file_of_its_owner_alone(speaker: Speaker, daemon: RunningDaemon) -> None:
    """The secret has 256 bits and is in one answer only. The list has neither the secret nor its hash."""
    token = make(speaker, "read", note="dashboard")
    secret = token.split("_", 2)[2]
    file = daemon.small.places.state / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(secret) == 43 and secret not in file.read_text()
    (row,) = speaker.get("/tokens").json
    assert row["note"] == "dashboard" and secret not in json.dumps(row) and "digest" not in row


def test_who_acts_with_a_token_is_named_by_it_in_the_log(speaker: Speaker) -> None:
    """The author of the record is the token's id."""
    token = make(speaker, "send")
    assert speaker.call("note", token, name="payroll", text="by hand").status == 200
    noted = speaker.get("/sessions/payroll/log?kind=note_added").lines[-1]
    assert noted["author"] == f"token:{token.split('_')[1]}"


def test_a_token_gives_nobody_a_greater_role_than_they_have(tmp_path: Path) -> None:
    """An observer of a session by uid stays one, whatever the token's scopes are."""
    with RunningDaemon(tmp_path) as running:
        running.do(
            lambda d: d.declare(declare("payroll", reads("salaries", "s.csv"), people={str(os.geteuid()): "observer"}))
        )
        speaker = Speaker(running.socket)
        refused = speaker.call("note", make(speaker, "admin"), name="payroll", text="x")
        assert refused.status == 400 and "observer" in refused.error


@pytest.mark.parametrize("spoiled", ["mode", "text", "link", "folder"])
def test_a_file_of_tokens_that_cannot_be_trusted_opens_nothing(
    speaker: Speaker, daemon: RunningDaemon, tmp_path: Path, spoiled: str
) -> None:
    """The token is refused, with a message for the operator. Callers without a token continue."""
    token = make(speaker, "admin")
    file = daemon.small.places.state / "tokens.json"
    match spoiled:
        case "mode":
            file.chmod(0o644)
        case "text":
            file.write_text('[{"id": ')
        case "link":
            file.rename(tmp_path / "elsewhere.json")
            file.symlink_to(tmp_path / "elsewhere.json")
        case _:
            file.unlink()
            file.mkdir()
    refused = speaker.get("/sessions", token)
    assert refused.status == 503 and str(file) in refused.error
    assert speaker.get("/sessions").status == 200


def test_a_file_of_tokens_that_is_removed_by_hand_closes_every_token_at_once(
    speaker: Speaker, daemon: RunningDaemon
) -> None:
    """The file is read for each request."""
    token = make(speaker, "read")
    assert speaker.get("/sessions", token).status == 200
    (daemon.small.places.state / "tokens.json").unlink()
    assert speaker.get("/sessions", token).status == 401


def test_a_crash_while_tokens_are_written_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """A half-written temporary file is not read, and the next daemon knows every token.

    A damaged token file is an error.
    """
    tokens = Tokens(tmp_path)
    _, text = tokens.make(("read",), 1, session=None, expires_at=None, note=None)
    (tmp_path / ".tokens.json.abc").write_text("half a fi")
    found = Tokens(tmp_path).find(text, 2)
    assert found is not None and found.scopes == ("read",)
    (tmp_path / "tokens.json").write_text("half a fi")
    with pytest.raises(OperatorError):
        Tokens(tmp_path).find(text, 2)


def test_a_token_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    """Making and revoking a token fail with an error if the file cannot be written. Nothing changes then."""
    tokens = Tokens(tmp_path)
    token, text = tokens.make(("read",), 1, session=None, expires_at=None, note=None)
    with full_disk():
        with pytest.raises(OperatorError, match="cannot be written"):
            tokens.make(("read",), 1, session=None, expires_at=None, note=None)
        with pytest.raises(OperatorError, match="cannot be written"):
            tokens.revoke(token.id)
    assert tokens.find(text, 2) == token and Tokens(tmp_path).list_all() == [token]
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.json"]


@contextmanager
def full_disk() -> Iterator[None]:
    """Keep all files of this process from growing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


# -- with the real daemon ---------------------------------------------------------------------------


def test_a_person_hands_out_a_token_and_takes_it_back(tmp_path: Path) -> None:
    """A token's whole life from the command line.

    Its secret is in no file of the state, and not in the daemon's output.
    """
    box = Box(tmp_path)
    box.spec("talk", "objective: A place to talk.\n")
    box.spec("other", "objective: Another.\n")
    box.start()
    try:
        made = box.run(
            "token", "new", "--scope", "send", "--scope", "read", "--session", "talk", "--for", "1h", "--note", "ci"
        )
        token = made.stdout.strip()
        assert "not shown again" in made.stderr
        file = tmp_path / "ci.token"
        file.write_text(f"{token}\n")

        def use(*words: str) -> subprocess.CompletedProcess[str]:
            return box.run(*words, env={"WAKEFUL_TOKEN_FILE": str(file)})

        assert use("send", "talk", "hello").returncode == 0
        assert "hello" in use("log", "talk").stdout
        assert use("send", "other", "hello").returncode == 1
        assert "run" in use("activate", "talk").stderr
        assert use("token", "list").returncode == 1
        (row,) = box.json("token", "list")
        assert (row["scopes"], row["session"], row["note"]) == (["read", "send"], "talk", "ci")
        box.stop()
        box.start()
        assert use("send", "talk", "after a restart").returncode == 0
        (box.state / "tokens.json").chmod(0o644)
        (wrong,) = [
            check
            for check in json.loads(box.run("doctor", "--json", "--state", str(box.state)).stdout)
            if check["name"] == "tokens"
        ]
        assert wrong["verdict"] == "bad" and "chmod 600" in wrong["words"]
        (box.state / "tokens.json").chmod(0o600)
        assert "not valid any more" in box.ask("token", "revoke", row["id"])
        refused = use("send", "talk", "too late")
        assert refused.returncode == 1 and "revoked" in refused.stderr
        box.run("list", env={"WAKEFUL_TOKEN": token[:-1]})
    finally:
        box.close()
    secret = token.split("_", 2)[2].encode()
    everything = [path for path in (*box.state.rglob("*"), box.output) if path.is_file()]
    assert everything and not [path for path in everything if secret in path.read_bytes()]


def test_an_expired_token_ends_by_itself(tmp_path: Path) -> None:
    """The token expires by the daemon's own clock, while the daemon runs."""
    with RunningDaemon(tmp_path) as running:
        speaker = Speaker(running.socket)
        until = time.monotonic() + 0.5
        token = make(speaker, "read", seconds=0.5)
        eventually(lambda: speaker.get("/sessions", token).status == 401)
        assert time.monotonic() >= until
        assert speaker.get("/tokens").json[0]["is_over"]
