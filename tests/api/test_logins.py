"""Logins of browsers: a one-time code gives a token and a cookie, which are valid only together, until logout."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from api.conftest import Reply, Speaker, TcpSpeaker
from api.small_daemon import RunningDaemon, declare, reads
from wakeful.api.gate import logins
from wakeful.api.gate.access_tokens import UNUSED_MICROSECONDS
from wakeful.core.record.observations import Moment
from wakeful.core.spec.http_settings import HttpSettings, TcpAddress

DAY_MICROSECONDS = 86400 * 1_000_000


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LONGEST_DELAY_SECONDS", 0.0)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path) as running:
        running.do(lambda d: d.declare(declare("payroll", reads("salaries", "s.csv"))))
        running.do(lambda d: d.finish("payroll"))
        yield running


@pytest.fixture
def tcp(daemon: RunningDaemon) -> TcpSpeaker:
    return TcpSpeaker(daemon.open_tcp())


class Browser:
    """A tab with a token of its own. It shares the cookie jar of its browser."""

    def __init__(self, tcp: TcpSpeaker, jar: dict[str, str] | None = None) -> None:
        self.tcp, self.jar, self.token = tcp, {} if jar is None else jar, ""

    def log_in(self, **body: str) -> Reply:
        answer = self.tcp.post("/login", body, Origin=self.tcp.url, Cookie=self.cookie)
        self.take(answer)
        return answer

    def take(self, answer: Reply) -> None:
        for name, morsel in SimpleCookie(answer.headers.get("set-cookie", "")).items():
            self.jar[name] = morsel.value
        if answer.status == 200:
            self.token = answer.json.get("token", "")

    @property
    def cookie(self) -> str | None:
        return "; ".join(f"{name}={value}" for name, value in self.jar.items()) or None

    def get(self, target: str) -> Reply:
        return self.tcp.get(target, self.token, Cookie=self.cookie, Sec_Fetch_Site="same-origin")

    def post(self, target: str, body: object) -> Reply:
        return self.tcp.post(target, body, self.token, Cookie=self.cookie, Origin=self.tcp.url)


def ask_for_code(daemon: RunningDaemon) -> str:
    answer = Speaker(daemon.socket).ask("POST", "/dashboard", {})
    assert answer.status == 200, answer.body
    url, _, code = answer.json["link"].partition("/#code=")
    assert url == answer.json["url"]
    return code


@pytest.fixture
def browser(daemon: RunningDaemon, tcp: TcpSpeaker) -> Browser:
    made = Browser(tcp)
    assert made.log_in(code=ask_for_code(daemon)).status == 200
    return made


def count_refusals(daemon: RunningDaemon, kind: str) -> int:
    return Speaker(daemon.socket).get("/doctor").json["http"]["refusals"][kind]


def test_a_code_is_exchanged_for_a_login(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    """Scripts and other sites cannot read the cookie. Calls by the browser are recorded under its person."""
    browser = Browser(tcp)
    answer = browser.log_in(code=ask_for_code(daemon))
    me = pwd.getpwuid(os.getuid()).pw_name
    assert answer.json == {"token": browser.token, "person": me, "scopes": ["admin"]}
    given = answer.headers["set-cookie"].lower()
    assert "httponly" in given and "samesite=strict" in given and "path=/" in given and "secure" not in given
    assert "domain" not in given and answer.headers["cache-control"] == "no-store"
    assert browser.get("/version").status == 200
    assert browser.post("/call/send", {"name": "payroll", "text": "from the page"}).status == 200
    (record,) = [
        one for one in Speaker(daemon.socket).get("/sessions/payroll/log").lines if one["kind"].startswith("message")
    ]
    assert record["author"] == f"person:{me}"


def test_neither_half_opens_anything_alone(daemon: RunningDaemon, tcp: TcpSpeaker, browser: Browser) -> None:
    """A server on another port gets the cookie, and a script may read the token. Each of them has one half only."""
    (name,) = browser.jar
    other = Browser(tcp)
    other.log_in(code=ask_for_code(daemon))
    assert tcp.get("/version", Cookie=browser.cookie).status == 401
    assert tcp.get("/version", browser.token).status == 401
    for cookie in ("", "x", browser.jar[name][:-1], other.jar[name]):
        assert tcp.get("/version", browser.token, Cookie=f"{name}={cookie}").status == 401
    assert tcp.get("/version", browser.token, Cookie=f"other_{name}={browser.jar[name]}").status == 401
    two = f"{name}={browser.jar[name]}"
    assert tcp.get("/version", browser.token, Cookie=two).status == 200
    assert count_refusals(daemon, "token") == 7


def test_a_browsers_token_is_no_token_at_the_control_socket(daemon: RunningDaemon, browser: Browser) -> None:
    """The token was given to one browser."""
    refused = Speaker(daemon.socket).get("/version", browser.token)
    assert refused.status == 401 and "a browser's" in refused.error


def test_a_code_is_good_once(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    code = ask_for_code(daemon)
    assert Browser(tcp).log_in(code=code).status == 200
    refused = Browser(tcp).log_in(code=code)
    assert refused.status == 401 and "wakeful dashboard" in refused.error and "set-cookie" not in refused.headers
    assert count_refusals(daemon, "code") == 1


def test_a_code_is_good_for_five_minutes(
    daemon: RunningDaemon, tcp: TcpSpeaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code is refused one second after its life ends."""
    fresh, old = ask_for_code(daemon), ask_for_code(daemon)
    now = time.monotonic()
    monkeypatch.setattr(logins.time, "monotonic", lambda: now + logins.LIFE_SECONDS - 5)
    assert Browser(tcp).log_in(code=fresh).status == 200
    monkeypatch.setattr(logins.time, "monotonic", lambda: now + logins.LIFE_SECONDS + 1)
    assert Browser(tcp).log_in(code=old).status == 401


@pytest.mark.parametrize("code", ["", "x", "wakeful_00000000_x", "\x00", "ü" * 32])
def test_what_is_no_code_opens_nothing(tcp: TcpSpeaker, code: str) -> None:
    assert Browser(tcp).log_in(code=code).status == 401


def test_wrong_codes_are_slowed_down_and_a_right_one_is_not(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    statuses = [Browser(tcp).log_in(code=f"wrong {number}").status for number in range(25)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert Browser(tcp).log_in(code=ask_for_code(daemon)).status == 200


def test_another_user_of_the_machine_cannot_use_a_code(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    """The link is an argument of the browser's process, which every user of the machine can read."""
    code = ask_for_code(daemon)
    daemon.small.browser_uid = os.getuid() + 1
    refused = Browser(tcp).log_in(code=code)
    assert refused.status == 403 and f"user {os.getuid()} asked for this code" in refused.error
    daemon.small.browser_uid = os.getuid()
    assert Browser(tcp).log_in(code=code).status == 401


def test_two_tabs_of_a_browser_are_logged_in_side_by_side(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    """Both tabs share the jar: a second login keeps the cookie of the first. A logout of one tab leaves the other."""
    jar: dict[str, str] = {}
    first, second = Browser(tcp, jar), Browser(tcp, jar)
    first.log_in(code=ask_for_code(daemon))
    second.log_in(code=ask_for_code(daemon))
    assert first.token != second.token
    assert first.get("/version").status == second.get("/version").status == 200
    assert first.post("/logout", {}).status == 200
    assert first.get("/version").status == 401


def test_a_planted_cookie_is_not_taken_over(daemon: RunningDaemon, tcp: TcpSpeaker, browser: Browser) -> None:
    """A page of another port may set a cookie that it knows. A login under that cookie would be half known."""
    (name,) = browser.jar
    planted = Browser(tcp, {name: "planted"})
    planted.log_in(code=ask_for_code(daemon))
    assert planted.jar[name] != "planted" and planted.get("/version").status == 200


def test_two_daemons_of_one_host_do_not_log_each_other_out(
    tmp_path: Path, daemon: RunningDaemon, tcp: TcpSpeaker
) -> None:
    """Cookies ignore ports, so the name of the cookie contains the port."""
    jar: dict[str, str] = {}
    here = Browser(tcp, jar)
    here.log_in(code=ask_for_code(daemon))
    with RunningDaemon(tmp_path / "other") as other:
        there = Browser(TcpSpeaker(other.open_tcp()), jar)
        there.log_in(code=ask_for_code(other))
        assert len(jar) == 2
        assert there.get("/version").status == here.get("/version").status == 200


def test_logging_out_ends_both_halves(browser: Browser) -> None:
    """The login is invalid from the next request on. The answer tells the browser to delete the cookie."""
    before = browser.cookie
    answer = browser.post("/logout", {})
    assert answer.status == 200 and "max-age=0" in answer.headers["set-cookie"].lower()
    assert browser.tcp.get("/version", browser.token, Cookie=before).status == 401


def test_only_a_browser_logs_out(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    token = Speaker(daemon.socket).ask("POST", "/tokens", {"scopes": ["read"]}).json["token"]
    refused = tcp.post("/logout", {}, token)
    assert refused.status == 400 and "wakeful token revoke" in refused.error


def test_a_browser_is_listed_and_revoked_as_a_token(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    """Of the browser's User-Agent only a known browser name is kept."""
    browser, owner = Browser(tcp), Speaker(daemon.socket)
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0 <script>"
    browser.take(tcp.post("/login", {"code": ask_for_code(daemon)}, User_Agent=agent))
    (row,) = owner.get("/tokens").json
    assert (row["note"], row["is_browser"], row["scopes"]) == ("browser, Firefox", True, ["admin"])
    assert owner.ask("POST", "/tokens/revoke", {"id": row["id"]}).status == 200
    assert browser.get("/version").status == 401


def test_a_browser_that_is_not_used_is_logged_out(daemon: RunningDaemon, browser: Browser) -> None:
    """The login ends after 30 days without use. Each day of use restarts the count."""

    def leap(days: float) -> None:
        later = Moment(time.time_ns() // 1000 + int(days * DAY_MICROSECONDS), time.monotonic(), time.monotonic())
        daemon.small.moment = lambda: later  # type: ignore[method-assign]

    leap(29.9)
    assert browser.get("/version").status == 200
    leap(29.9 + 29.9)
    assert browser.get("/version").status == 200
    leap(29.9 + 29.9 + UNUSED_MICROSECONDS / DAY_MICROSECONDS + 0.1)
    assert browser.get("/version").status == 401


def test_a_person_elsewhere_logs_in_with_a_token(daemon: RunningDaemon, tcp: TcpSpeaker) -> None:
    """The login has the scopes of the token and ends when the token is revoked."""
    owner = Speaker(daemon.socket)
    made = owner.ask("POST", "/tokens", {"scopes": ["read"], "note": "for a colleague"}).json
    browser = Browser(tcp)
    browser.take(tcp.post("/login", {}, made["token"], Origin=tcp.url))
    assert browser.token != made["token"]
    assert browser.get("/sessions").status == 200
    assert browser.post("/call/send", {"name": "payroll", "text": "x"}).status == 403
    assert tcp.post("/login", {}, browser.token, Cookie=browser.cookie).status == 400
    owner.ask("POST", "/tokens/revoke", {"id": made["id"]})
    assert browser.get("/sessions").status == 401
    assert tcp.post("/login", {}).status == 401


def test_a_page_of_another_site_cannot_log_in(tcp: TcpSpeaker, daemon: RunningDaemon) -> None:
    """The other page does not know the code. With a code of its own, it could log the browser in as another person."""
    code = ask_for_code(daemon)
    assert tcp.post("/login", {"code": code}, Origin="https://evil.example").status == 403
    assert tcp.post("/login", {"code": code}, Content_Type="text/plain").status == 415
    assert Browser(tcp).log_in(code=code).status == 200


def test_a_link_is_for_people_at_the_control_socket(daemon: RunningDaemon, tcp: TcpSpeaker, browser: Browser) -> None:
    """Neither a browser nor a token can ask for a link. The control socket accepts no login."""
    token = Speaker(daemon.socket).ask("POST", "/tokens", {"scopes": ["admin"]}).json["token"]
    assert browser.post("/dashboard", {}).status == 403
    assert Speaker(daemon.socket).ask("POST", "/dashboard", {}, token=token).status == 403
    assert Speaker(daemon.socket).ask("POST", "/login", {"code": ask_for_code(daemon)}).status == 400


def test_a_proxy_with_a_certificate_gets_a_secure_cookie(daemon: RunningDaemon) -> None:
    """The page came over https, so the browser must not send the cookie over http."""
    settings = HttpSettings(listen=TcpAddress("127.0.0.1", 0), hosts=("wakeful.example.org",))
    tcp = TcpSpeaker(daemon.open_tcp(settings))
    proxied = {"Host": "wakeful.example.org", "Origin": "https://wakeful.example.org"}
    token = Speaker(daemon.socket).ask("POST", "/tokens", {"scopes": ["read"]}).json["token"]
    answer = tcp.post("/login", {}, token, **proxied)
    assert answer.status == 200 and "secure" in answer.headers["set-cookie"].lower()
    assert answer.headers["set-cookie"].startswith("wakeful_browser=")


def test_closing_logs_every_browser_out(daemon: RunningDaemon, browser: Browser) -> None:
    """The port stays open if the settings say so."""
    answer = Speaker(daemon.socket).ask("POST", "/dashboard", {"is_closing": True})
    assert answer.json["words"].startswith("1 logged out; the port stays open by the settings")
    assert browser.get("/version").status == 401
