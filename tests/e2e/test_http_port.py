"""The TCP port of a real daemon: closed by default, open where the settings say, refused where it must not be."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.conftest import TcpSpeaker
from api.test_logins import Browser
from e2e.box import Box
from process_state import watch_rest
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.api.gate.scopes import RULES
from wakeful.cli.client import Client

ANY_PORT = "127.0.0.1:0"
SPEC = "objective: say a word\nfirst: run\nrun: {command: [echo, hello]}\n"


def find_url(box: Box) -> str | None:
    return Client(str(box.socket)).get("/version")["http"]


def open_port(box: Box, **more: str) -> TcpSpeaker:
    box.start(env={"WAKEFUL_HTTP": ANY_PORT, **more})
    url = find_url(box)
    assert url is not None
    return TcpSpeaker(url)


def make_token(box: Box, *scopes: str) -> str:
    return box.ask("token", "new", *(word for scope in scopes for word in ("--scope", scope))).strip()


def say_http(box: Box) -> str:
    """Return the line of `doctor` about the port."""
    done = box.run("doctor", "--json", "--state", str(box.state))
    return next(check["words"] for check in json.loads(done.stdout) if check["name"] == "http")


@pytest.fixture
def held_ports() -> Iterator[list[socket.socket]]:
    held: list[socket.socket] = []
    yield held
    for one in held:
        one.close()


# -- where it listens ----------------------------------------------------------------------------------


def test_the_port_is_closed_unless_somebody_asks(box: Box) -> None:
    """The daemon has no TCP listener and does not mention it at the start. `doctor` says how to open it."""
    box.start()
    assert find_url(box) is None and "http" not in box.output.read_text()
    assert say_http(box) == "the TCP port is closed; wakeful dashboard opens it"


def test_the_daemon_says_where_it_listens(box: Box) -> None:
    """Port 0 means any free port. The line `ready`, `/version` and `doctor` name the port that was taken."""
    tcp = open_port(box)
    assert tcp.url.startswith("http://127.0.0.1:") and not tcp.url.endswith(":0")
    assert f"; http {tcp.url}\n" in box.output.read_text()
    assert say_http(box).startswith(f"listening on {tcp.url}, 0 of ")
    assert tcp.get("/version", make_token(box, "read")).json["http"] == tcp.url


def test_an_answer_on_an_open_connection_waits_for_no_acknowledgement(box: Box) -> None:
    """The kernel delays an acknowledgement by 40 ms. An answer in two parts must not wait for it in between."""
    tcp = open_port(box)
    connection = http.client.HTTPConnection(tcp.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {make_token(box, 'read')}"}
    took = []
    for _ in range(40):
        began = time.monotonic()
        connection.request("GET", "/version", headers=headers)
        assert connection.getresponse().read()
        took.append(time.monotonic() - began)
    connection.close()
    # The kernel acknowledges the first segments of a connection at once. A busy machine delays some answers, not all.
    assert min(took[20:]) < 0.03


def test_the_port_follows_the_settings_as_they_are_saved(box: Box) -> None:
    """The port opens, moves and closes while the daemon runs. Settings that are not allowed leave it as it is."""
    box.start()
    box.write("wakeful.yaml", "http: 127.0.0.1:0\n")
    first = eventually(lambda: find_url(box))
    box.write("wakeful.yaml", "http: {listen: 127.0.0.1:0, hosts: [w.example]}\n")
    second = eventually(lambda: (url := find_url(box)) != first and url)
    assert TcpSpeaker(second).get("/", Host="w.example").status == 200
    box.write("wakeful.yaml", "http: 0.0.0.0:0\n")
    eventually(
        lambda: "can be reached from other machines" in box.run("check", str(box.specs)).stdout + box.output.read_text()
    )
    assert find_url(box) == second
    box.write("wakeful.yaml", "http: off\n")
    eventually(lambda: find_url(box) is None)
    refused = box.run("dashboard", "--no-open")
    assert refused.returncode != 0 and "http: off" in refused.stderr


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:0", *(pytest.param(address, marks=pytest.mark.long) for address in ("[::]:0", "192.0.2.1:8420"))],
)
@pytest.mark.parametrize("way", ["flag", "variable", "settings"])
def test_an_address_that_other_machines_reach_ends_the_start(box: Box, address: str, way: str) -> None:
    """This holds without a certificate and an explicit permission, whichever way the address is given."""
    if way == "settings":
        box.write("wakeful.yaml", f'http: "{address}"\n')
    arguments = box.arguments(*(["--http", address] if way == "flag" else []))
    env = box.environment() | ({"WAKEFUL_HTTP": address} if way == "variable" else {})
    done = box.run_process(arguments, env)
    assert done.returncode == 1, done.stdout
    assert "can be reached from other machines; that takes beyond_loopback: true" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_port_that_is_taken_ends_the_start_in_words(box: Box, held_ports: list[socket.socket]) -> None:
    held_ports.append(held := socket.create_server(("127.0.0.1", 0)))
    taken = f"127.0.0.1:{held.getsockname()[1]}"
    done = box.run_process(box.arguments("--http", taken), box.environment())
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    assert (
        f"cannot listen on {taken}: Address already in use; another program listens there" in done.stderr + done.stdout
    )


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


def test_tls_is_spoken_with_the_certificate_of_the_settings(box: Box) -> None:
    """With TLS the daemon may listen on all addresses.

    Its cookie is for https alone, and it does not answer plain HTTP.
    """
    key, certificate = make_certificate(box.folder)
    box.write(
        "wakeful.yaml",
        "http: {listen: '0.0.0.0:0', beyond_loopback: true, hosts: ['w.example:8443'], certificate: cert.pem, key: key.pem}\n",
    )
    box.start()
    url = find_url(box)
    assert url is not None and url.startswith("https://127.0.0.1:")
    port = int(url.rpartition(":")[2])
    trusting = ssl.create_default_context(cafile=str(certificate))

    def ask(method: str, target: str, body: object = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS, context=trusting)
        content = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, target, None if body is None else json.dumps(body), {**content, **headers})
        return connection.getresponse()

    assert ask("GET", "/").status == 200
    assert ask("GET", "/", Host="w.example:8443").status == 200
    assert ask("GET", "/", Host=f"0.0.0.0:{port}").status == 403
    assert ask("POST", "/login", {"code": "x"}, Origin=f"http://127.0.0.1:{port}").status == 403
    link = box.ask("dashboard", "--no-open").strip()
    answer = ask("POST", "/login", {"code": link.partition("#code=")[2]}, Origin=url)
    assert answer.status == 200 and "Secure" in (answer.getheader("Set-Cookie") or "")
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    # A client that never begins TLS holds its place for a moment. The daemon answers others meanwhile.
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS):
        assert ask("GET", "/").status == 200
    assert "Traceback" not in box.output.read_text()


def test_a_key_that_cannot_be_used_ends_the_start_in_words(box: Box) -> None:
    key, _ = make_certificate(box.folder)
    key.write_text("no key\n")
    box.write("wakeful.yaml", "http: {listen: '127.0.0.1:0', certificate: cert.pem, key: key.pem}\n")
    done = box.run_process(box.arguments(), box.environment())
    assert done.returncode == 1 and "both are PEM files" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


# -- the dashboard -------------------------------------------------------------------------------------


def log_in(box: Box) -> Browser:
    url, _, code = box.ask("dashboard", "--no-open").strip().partition("/#code=")
    browser = Browser(TcpSpeaker(url))
    assert browser.log_in(code=code).status == 200
    return browser


def test_a_person_opens_the_port_and_it_is_there_again_after_a_restart(box: Box) -> None:
    """While a browser is logged in, the port opens at the same address after a restart.

    Without a login it stays closed.
    """
    box.start()
    browser = log_in(box)
    url = browser.tcp.url
    assert find_url(box) == url and browser.get("/sessions").status == 200
    box.stop()
    box.start()
    assert find_url(box) == url and f"http {url}" in box.output.read_text()
    assert browser.get("/sessions").status == 200
    assert browser.post("/logout", {}).status == 200
    box.stop()
    box.start()
    assert find_url(box) is None
    # The daemon tries the port of last time first.
    assert box.json("dashboard")["url"] == url


def test_the_port_of_last_time_is_left_to_the_program_that_has_it(box: Box, held_ports: list[socket.socket]) -> None:
    """The daemon starts and says so. The next link has another port."""
    box.start()
    browser = log_in(box)
    port = int(browser.tcp.url.rpartition(":")[2])
    box.stop()
    held_ports.append(held := socket.socket())
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    held.listen()
    box.start()
    assert find_url(box) is None and f"cannot listen on 127.0.0.1:{port}" in box.output.read_text()
    assert box.json("dashboard")["url"] != browser.tcp.url


def test_closing_closes(box: Box) -> None:
    box.start()
    browser = log_in(box)
    assert box.ask("dashboard", "--close") == "1 logged out; closed\n"
    assert find_url(box) is None
    with pytest.raises(ConnectionRefusedError):
        browser.get("/version")


def test_browsers_stand_in_the_list_of_tokens(box: Box) -> None:
    """The list revokes them like other tokens."""
    box.start()
    browser = log_in(box)
    (row,) = box.json("token", "list")
    assert row["is_browser"] and "30 d unused" in box.ask("token", "list") and "browser" in box.ask("token", "list")
    box.ask("token", "revoke", row["id"])
    assert browser.get("/version").status == 401


# -- what it must not do -------------------------------------------------------------------------------


def test_no_get_changes_anything(box: Box) -> None:
    """Ask every GET and HEAD of the table over TCP with the widest token. The log and the tokens stay as before."""
    box.spec("payroll", SPEC)
    tcp = open_port(box)
    token = make_token(box, "admin")
    box.wait_at_rest("payroll", runs=1)
    before, tokens, asked = box.log("payroll"), (box.state / "tokens.json").read_bytes(), 0
    for key in RULES:
        method, path = key.split(" ", 1)
        target = path.replace("{name}", "payroll").replace("{path:path}", "none.js").replace("{address}", "0" * 64)
        if method != "GET" or "{" in target:
            assert method == "POST" or "{" not in target, f"a path that this test cannot fill: {key}"
            continue
        for one in ("GET", "HEAD"):
            assert open_answer(tcp, one, target, token) < 500, key
            asked += 1
    assert asked > 40
    assert box.log("payroll") == before and (box.state / "tokens.json").read_bytes() == tokens


def open_answer(tcp: TcpSpeaker, method: str, target: str, token: str) -> int:
    """Return the status of an answer, which may be a stream without an end."""
    name, _, port = tcp.host.rpartition(":")
    with socket.create_connection((name, int(port)), PATIENCE_SECONDS) as connection:
        lines = f"{method} {target} HTTP/1.1\r\nHost: {tcp.host}\r\nAuthorization: Bearer {token}\r\n\r\n"
        connection.sendall(lines.encode())
        return int(connection.recv(65536).split()[1])


def test_nothing_of_a_token_is_logged(box: Box) -> None:
    """No part of a good token, a bad token or a code is in the daemon's output or in the state folder."""
    box.spec("payroll", SPEC)
    tcp = open_port(box)
    token = make_token(box, "admin")
    browser = log_in(box)
    wrong = f"{token[:-6]}canary"
    assert tcp.get("/version", wrong).status == 401
    assert tcp.get(f"/version?token={token}").status == 401
    assert tcp.post("/call/send", {"name": "payroll", "text": "hello"}, token).status == 200
    assert browser.post("/call/send", {"name": "payroll", "text": "hello"}).status == 200
    link = box.ask("dashboard", "--no-open").strip()
    box.stop()
    # A token is wakeful_ID_SECRET, and its secret may have more underscores.
    told = [one.split("_", 2)[2] for one in (token, wrong, browser.token)]
    secrets = [*told, *browser.jar.values(), link.partition("#code=")[2]]
    assert min(map(len, secrets)) > 16
    for path in (box.output, *(one for one in box.state.rglob("*") if one.is_file())):
        content = path.read_bytes()
        assert not [one for one in secrets if one.encode() in content], path


# -- crowds --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_six_hundred_idle_connections_do_not_lock_the_owner_out(box: Box) -> None:
    """TCP connections have a limit of their own, so commands go on meanwhile.

    The port answers again when the idle ones are cut off.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    tcp = open_port(box)
    token = make_token(box, "read")
    name, _, port = tcp.host.rpartition(":")
    idle = [socket.create_connection((name, int(port)), PATIENCE_SECONDS) for _ in range(600)]
    try:
        for number, one in enumerate(idle):
            # A third sends nothing, a third half a head, a third a head whose body never comes.
            words = ("", "GET /version HTTP/1.1\r\nHost: ", f"POST /login HTTP/1.1\r\nHost: {tcp.host}\r\n"
                     "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")[number % 3]  # fmt: skip
            try:
                one.sendall(words.encode())
            except OSError:
                continue
        assert box.ask("list") is not None
        health = Client(str(box.socket)).get("/doctor")
        assert health["http"]["connections"]["refused"] >= 600 - health["http"]["connections"]["most"] > 0
        assert health["connections"]["open"] <= 2
        eventually(lambda: is_answered(tcp, token))
    finally:
        for one in idle:
            one.close()
    eventually(lambda: Client(str(box.socket)).get("/doctor")["http"]["connections"]["open"] == 0)
    assert "Traceback" not in box.output.read_text()


def is_answered(tcp: TcpSpeaker, token: str) -> bool:
    """Return False while all connections are taken."""
    try:
        return tcp.get("/version", token).status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_an_open_port_costs_nothing_at_rest(box: Box) -> None:
    """A daemon with an open port has no more threads than one without it, and does nothing while nobody calls."""
    box.start()
    before = len(os.listdir(f"/proc/{box.daemon.pid}/task")) if box.daemon is not None else 0
    box.stop()
    open_port(box)
    assert box.daemon is not None
    assert len(os.listdir(f"/proc/{box.daemon.pid}/task")) <= max(before, 8)
    # Once a second the daemon looks for changed secrets.
    eventually(watch_rest(box.daemon.pid, seconds=0.3))
