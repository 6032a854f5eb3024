"""Requests over TCP that a web page, or a DNS name made to point here, could send are refused by their head.

G47 and G48 of the threat model. Each attack is made with a good token, so that nothing else refuses it. A request that
differs only in the attacked part is answered.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.conftest import Reply, Speaker, TcpSpeaker
from api.small_daemon import RunningDaemon, declare, reads
from wait_conditions import PATIENCE_SECONDS
from wakeful.api.gate.browser_rules import AllowedHosts, make_entrance
from wakeful.api.gate.scopes import RULES
from wakeful.core.record.observations import ProcessOwner
from wakeful.core.spec.http_settings import HttpSettings, TcpAddress


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path) as running:
        running.do(lambda d: d.declare(declare("payroll", reads("salaries", "s.csv"))))
        running.do(lambda d: d.finish("payroll"))
        yield running


@pytest.fixture
def tcp(daemon: RunningDaemon) -> TcpSpeaker:
    return TcpSpeaker(daemon.open_tcp())


@pytest.fixture
def token(daemon: RunningDaemon) -> str:
    return make(daemon)


def make(daemon: RunningDaemon, *scopes: str) -> str:
    return Speaker(daemon.socket).ask("POST", "/tokens", {"scopes": scopes or ("admin",)}).json["token"]


def send(tcp: TcpSpeaker, token: str | None, **headers: str | None) -> Reply:
    return tcp.post("/call/send", {"name": "payroll", "text": "hello"}, token, **headers)


def count_refusals(daemon: RunningDaemon, kind: str) -> int:
    return Speaker(daemon.socket).get("/doctor").json["http"]["refusals"][kind]


def head(daemon: RunningDaemon) -> int:
    return daemon.small.log.position()


# -- Host: a name that an attacker made to point here (DNS rebinding) --------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}", "[::1]:{port}", "{host}.", "",
     "localhost.evil.example:{port}", "127.0.0.1:{port}@evil.example", "evil.example:{port}, {host}"],
)  # fmt: skip
def test_a_host_that_is_not_ours_to_the_letter_is_refused(
    daemon: RunningDaemon, tcp: TcpSpeaker, token: str, host: str
) -> None:
    """A page whose name resolves to 127.0.0.1 has the same origin as its requests. Only `Host` shows the attack."""
    assert send(tcp, token).status == 200
    before = head(daemon)
    assert "wakeful-position" not in tcp.get("/").headers
    refused = send(tcp, token, Host=host.format(host=tcp.host, port=tcp.host.rpartition(":")[2]))
    assert refused.status == 403 and f"this port answers only to {tcp.host}" in refused.error
    assert head(daemon) == before and count_refusals(daemon, "host") == 1


def test_a_request_without_a_host_or_with_two_is_refused(tcp: TcpSpeaker, token: str) -> None:
    """HTTP/1.0 allows a request without a host. A request smuggler sends two."""
    for lines in ("", f"Host: {tcp.host}\r\nHost: evil.example\r\n"):
        status, _ = raw(tcp, f"GET /version HTTP/1.0\r\n{lines}Authorization: Bearer {token}\r\n\r\n")
        assert status in (400, 403)


@pytest.mark.parametrize(
    "target", ["http://evil.example/version", "http://{host}/version", "*", "//evil.example/version"]
)
def test_a_target_that_is_no_path_is_refused(tcp: TcpSpeaker, token: str, target: str) -> None:
    """A whole address in the request line would replace `Host`."""
    line = f"GET {target.format(host=tcp.host)} HTTP/1.1\r\nHost: {tcp.host}\r\nAuthorization: Bearer {token}\r\n"
    status, _ = raw(tcp, f"{line}Connection: close\r\n\r\n")
    assert status in (403, 404)


def test_localhost_is_ours_too_and_case_does_not_count(tcp: TcpSpeaker, token: str) -> None:
    port = tcp.host.rpartition(":")[2]
    assert tcp.get("/version", token, Host=f"LOCALHOST:{port}", Origin=f"http://localhost:{port}").status == 200


def raw(tcp: TcpSpeaker, text: str) -> tuple[int, bytes]:
    name, _, port = tcp.host.rpartition(":")
    with socket.create_connection((name, int(port)), PATIENCE_SECONDS) as connection:
        connection.sendall(text.encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return int(answer.split()[1]), answer


# -- Origin and Sec-Fetch-Site: a page of another site -----------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", "https://{host}", "http://localhost:{port}",
     "http://{host}.evil.example", "file://", ""],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused(daemon: RunningDaemon, tcp: TcpSpeaker, token: str, origin: str) -> None:
    """Another port of this machine is another origin. A sandboxed frame sends `null`."""
    assert send(tcp, token, Origin=f"http://{tcp.host}").status == 200
    before = head(daemon)
    refused = send(tcp, token, Origin=origin.format(host=tcp.host, port=tcp.host.rpartition(":")[2]))
    assert refused.status == 403 and "sent this" in refused.error
    assert head(daemon) == before and count_refusals(daemon, "origin") == 1


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_what_another_site_makes_a_browser_fetch_is_refused(tcp: TcpSpeaker, token: str, site: str) -> None:
    """An image or script of another page sends no `Origin`. Another port of 127.0.0.1 counts as the same site."""
    assert tcp.get("/version", token, Sec_Fetch_Site="same-origin").status == 200
    assert tcp.get("/version", token, Sec_Fetch_Site="none").status == 200
    assert tcp.get("/version", token, Sec_Fetch_Site=site).status == 403
    for dest in ("iframe", "script", "image", "empty"):
        for target in ("/", "/assets/main.js"):
            refused = tcp.get(target, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest=dest)
            assert refused.status == 403, (dest, target)


def test_a_link_in_a_mail_leads_to_the_page_and_to_nothing_else(tcp: TcpSpeaker, token: str) -> None:
    """A link opens the page in its own window. The page itself holds no data."""
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert tcp.get("/", **followed).status == 200
    assert tcp.get("/version", token, **followed).status == 403
    assert tcp.ask("POST", "/login", {"code": "x"}, **followed).status == 403


def test_no_answer_lets_another_origin_read_it(tcp: TcpSpeaker, token: str) -> None:
    """No answer has a CORS header, also not the answer to a browser's preflight request."""
    asked = tcp.ask("OPTIONS", "/call/send", Origin="https://evil.example", Access_Control_Request_Method="POST")
    answers = [asked, tcp.get("/version", token), tcp.get("/"), tcp.get("/version"), send(tcp, token)]
    assert asked.status == 403
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_web_socket_of_another_page_is_refused(tcp: TcpSpeaker, token: str) -> None:
    """Browsers let any page open a web socket. No route here upgrades, and `Origin` is checked anyway."""
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Key": "x" * 22 + "==", "Sec_WebSocket_Version": "13"}  # fmt: skip
    assert tcp.get("/follow", token, Origin="https://evil.example", **upgrade).status == 403
    assert tcp.get("/version", token, **upgrade).status == 200


# -- the body: what a form can send ------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json",
             "application/json-patch+json", "text/plain, application/json"],
)  # fmt: skip
def test_a_body_that_a_form_could_send_is_refused(
    daemon: RunningDaemon, tcp: TcpSpeaker, token: str, kind: str | None
) -> None:
    """Before it sends JSON, a browser sends a preflight request, which is refused."""
    assert send(tcp, token, Content_Type="Application/JSON; charset=utf-8").status == 200
    before = head(daemon)
    refused = send(tcp, token, Content_Type=kind)
    assert refused.status == 415 and "Content-Type: application/json" in refused.error
    assert head(daemon) == before and count_refusals(daemon, "content_type") == 1


@pytest.mark.parametrize("body", [b"{" * 100_000, b"[]", b'{"name": 1}', b"\xff", b'{"name":"payroll","txt":"x"}'])
def test_a_wrong_body_is_refused_in_words_and_counted(
    daemon: RunningDaemon, tcp: TcpSpeaker, token: str, body: bytes
) -> None:
    refused = tcp.post("/call/send", body, token)
    assert refused.status == 400 and refused.error and count_refusals(daemon, "body") == 1


def test_a_huge_body_is_not_read_to_its_end(daemon: RunningDaemon, tcp: TcpSpeaker, token: str) -> None:
    """100 MB are announced and begun. The answer comes before they are sent."""
    name, _, port = tcp.host.rpartition(":")
    with socket.create_connection((name, int(port)), PATIENCE_SECONDS) as connection:
        connection.sendall(
            f"POST /call/send HTTP/1.1\r\nHost: {tcp.host}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100000000\r\n\r\n".encode()
            + b"x" * 1_100_000
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
    assert count_refusals(daemon, "body") == 1


# -- the token, over every route ---------------------------------------------------------------------


def fill(key: str) -> tuple[str, str]:
    method, path = key.split(" ")
    return method, path.replace("{name}", "payroll").replace("{path:path}", "none.js").replace("{address}", "0" * 64)


CLOSED = [key for key, rule in RULES.items() if not rule.is_public]


def test_every_route_that_is_not_public_is_closed_without_a_good_token(
    daemon: RunningDaemon, tcp: TcpSpeaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token, a wrong one, a revoked one and a run's own get 401 on every route, and nothing changes."""
    monkeypatch.setattr("wakeful.api.gate.logins.LONGEST_DELAY_SECONDS", 0.0)
    good = make(daemon)
    gone = make(daemon)
    Speaker(daemon.socket).ask("POST", "/tokens/revoke", {"id": gone.split("_")[1]})
    daemon.do(lambda d: d.change("s.csv", "b" * 32))
    of_a_run = daemon.small.give_token("payroll")
    before = head(daemon)
    for key in CLOSED:
        method, target = fill(key)
        for shown in (None, "true", good[:-1], f"{good}x", good.upper(), gone, of_a_run):
            body = {} if method == "POST" else None
            answer = tcp.ask(method, target, body, Authorization=shown and f"Bearer {shown}")
            assert answer.status in (401, 429), (key, shown)
            assert "retry-after" in answer.headers or answer.headers["www-authenticate"] == "Bearer"
            assert "wakeful-position" not in answer.headers
            assert shown is None or shown not in answer.body.decode()
    assert head(daemon) == before


def test_the_rights_of_the_owner_are_not_reached_over_tcp(tcp: TcpSpeaker, token: str) -> None:
    """Tokens, trust, the routes of runs and links to the dashboard are refused, also with an admin token."""
    for key, rule in RULES.items():
        if rule.scope == "owner":
            method, target = fill(key)
            refused = tcp.ask(method, target, {} if method == "POST" else None, Authorization=f"Bearer {token}")
            assert refused.status == 403, key


@pytest.mark.parametrize("name", ["token", "access_token", "code", "Authorization"])
def test_a_token_in_an_address_is_not_taken(daemon: RunningDaemon, tcp: TcpSpeaker, token: str, name: str) -> None:
    """The request is refused also if its header has a good token."""
    refused = tcp.get(f"/version?{name}={token}", token)
    assert refused.status == 401 and "revoke this one" in refused.error and token not in refused.error
    assert count_refusals(daemon, "address") == 1


def test_a_process_of_a_run_is_refused_whatever_it_shows(daemon: RunningDaemon, tcp: TcpSpeaker, token: str) -> None:
    """A run that found a token cannot use it over TCP."""
    daemon.small.owner = ProcessOwner(run_id="s.1", mark=7, sign="its limit is the mark of a run")
    refused = tcp.get("/version", token)
    daemon.small.owner = None
    assert refused.status == 403 and "a process of a run must use the control socket" in refused.error
    assert count_refusals(daemon, "run") == 1


# -- wrong tokens, one after the other ---------------------------------------------------------------


def test_guesses_are_slowed_down_and_the_owner_is_not(
    tcp: TcpSpeaker, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few wrong tokens the answer is 429, with the time to wait. A right one is always accepted at once."""
    monkeypatch.setattr("wakeful.api.gate.logins.LONGEST_DELAY_SECONDS", 0.0)
    wrong = [tcp.get("/version", f"{token[:-4]}0000").status for _ in range(25)]
    assert wrong[0] == 401 and wrong[-1] == 429
    assert tcp.get("/version", token).status == 200


# -- the names of a port -----------------------------------------------------------------------------


def entrance(settings: HttpSettings, port: int = 8420) -> AllowedHosts:
    return make_entrance(settings, TcpAddress(settings.listen.host, port))


@pytest.mark.parametrize(
    ("settings", "port", "origins"),
    [
        (HttpSettings(listen=TcpAddress("127.0.0.1", 0)), 8420,
         {"127.0.0.1:8420": {"http://127.0.0.1:8420"}, "localhost:8420": {"http://localhost:8420"}}),
        (HttpSettings(listen=TcpAddress("::1", 0)), 80,
         {"[::1]": {"http://[::1]"}, "localhost": {"http://localhost"}, "[::1]:80": {"http://[::1]:80"},
          "localhost:80": {"http://localhost:80"}}),
        (HttpSettings(listen=TcpAddress("127.0.0.1", 1), hosts=("w.example",)), 1,
         {"w.example": {"http://w.example", "https://w.example"}, "127.0.0.1:1": {"http://127.0.0.1:1"},
          "localhost:1": {"http://localhost:1"}}),
        (HttpSettings(listen=TcpAddress("192.0.2.1", 1), certificate="c", key="k", is_beyond_loopback=True), 443,
         {"192.0.2.1": {"https://192.0.2.1"}, "192.0.2.1:443": {"https://192.0.2.1:443"}}),
    ],
)  # fmt: skip
def test_a_port_is_known_by_its_own_names_alone(settings: HttpSettings, port: int, origins: dict[str, Any]) -> None:
    """A further name is that of a proxy, which may have the certificate."""
    found = entrance(settings, port).origins
    assert {host: set(names) for host, names in found.items()} == origins, json.dumps(sorted(found))
