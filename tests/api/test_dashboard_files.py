"""The files of the dashboard are served from their folder without a token, and the policy allows only our scripts."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.conftest import Speaker, TcpSpeaker
from api.small_daemon import RunningDaemon
from wait_conditions import PATIENCE_SECONDS
from wakeful.api.routes import dashboard_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "dashboard"
    (made / "assets" / "lib").mkdir(parents=True)
    (made / "index.html").write_text("<!doctype html><title>here</title>")
    (made / "assets" / "lib" / "api.js").write_text("export const one = 1;\n")
    (made / "assets" / "style.css").write_text("p { color: red }\n")
    (made / "assets" / "notes.md").write_text("not served\n")
    (made / "assets" / ".hidden.js").write_text("not served\n")
    (tmp_path / "secret.txt").write_text("outside\n")
    os.symlink(tmp_path / "secret.txt", made / "assets" / "link.txt")
    monkeypatch.setattr(dashboard_files.Pages.__init__, "__defaults__", (made,))
    return made


@pytest.fixture
def tcp(folder: Path, tmp_path: Path) -> Iterator[TcpSpeaker]:
    with RunningDaemon(tmp_path) as running:
        yield TcpSpeaker(running.open_tcp())


def test_the_page_and_its_files_are_served_without_a_token(tcp: TcpSpeaker, folder: Path) -> None:
    """Each file has the content type that the browser needs, and content sniffing is off."""
    for target, name, kind in (
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/assets/lib/api.js", "assets/lib/api.js", "text/javascript; charset=utf-8"),
        ("/assets/style.css", "assets/style.css", "text/css; charset=utf-8"),
    ):
        answer = tcp.get(target)
        assert (answer.status, answer.body) == (200, (folder / name).read_bytes())
        assert answer.headers["content-type"] == kind and answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_runs_no_script_but_ours(tcp: TcpSpeaker) -> None:
    answer = tcp.get("/")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["worker-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "set-cookie" not in answer.headers


def test_a_file_is_sent_again_when_it_changed(tcp: TcpSpeaker, folder: Path) -> None:
    first = tcp.get("/assets/lib/api.js")
    tag = first.headers["etag"]
    assert tag == f'"{hashlib.sha256(first.body).hexdigest()[:32]}"' and first.headers["cache-control"] == "no-cache"
    for shown in (tag, f"W/{tag}", f'"other", {tag}'):
        again = tcp.get("/assets/lib/api.js", If_None_Match=shown)
        assert (again.status, again.body) == (304, b"") and again.headers["etag"] == tag
    (folder / "assets" / "lib" / "api.js").write_text("export const one = 2;\n")
    assert tcp.get("/assets/lib/api.js", If_None_Match=tag).body == b"export const one = 2;\n"


@pytest.mark.parametrize(
    "target",
    ["/assets/../secret.txt", "/assets/../../secret.txt", "/assets/lib/../../../secret.txt", "/assets/%2e%2e/secret.txt", "/assets/..%2fsecret.txt",
     "/assets//etc/passwd.txt", "/assets/lib//api.js", "/assets/.hidden.js", "/assets/notes.md", "/assets/link.txt",
     "/assets/lib", "/assets/", "/assets/lib/api.js/", "/assets/lib\\api.js", "/assets/lib/api.js%00.txt", "/index.html",
     "/assets/none.js"],
)  # fmt: skip
def test_nothing_else_is_served(tcp: TcpSpeaker, target: str) -> None:
    """Paths out of the folder, links, hidden files and listings of folders are refused."""
    name, _, port = tcp.host.rpartition(":")
    with socket.create_connection((name, int(port)), PATIENCE_SECONDS) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {tcp.host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.split()[1] in (b"404", b"401") and b"outside" not in answer and b"not served" not in answer


def test_reports_of_the_policy_are_counted(tmp_path: Path, tcp: TcpSpeaker) -> None:
    """The route counts both forms of report that browsers send. Any other body is counted as a wrong body."""
    counts = Speaker(tmp_path / "run" / "wakeful.sock")
    for kind in ("application/csp-report", "application/reports+json"):
        assert tcp.ask("POST", "/csp-report", b'{"csp-report": {}}', Content_Type=kind).status == 204
    assert tcp.ask("POST", "/csp-report", b"<", Content_Type="application/csp-report").status == 400
    assert tcp.ask("POST", "/csp-report", b'"' + b"x" * 100_000, Content_Type="application/csp-report").status == 413
    refusals = counts.get("/doctor").json["http"]["refusals"]
    assert (refusals["policy"], refusals["body"]) == (2, 2)


def test_the_page_of_this_build_is_there() -> None:
    """The wheel contains the folder, too: see tests/test_packaging.py."""
    assert b"<title>" in (dashboard_files.FOLDER / "index.html").read_bytes()


def test_the_page_asks_for_all_its_modules_at_once() -> None:
    """index.html preloads exactly the modules that main.js imports, directly or not."""
    assets, waiting = set[str](), ["assets/main.js"]
    while waiting:
        name = waiting.pop()
        if name not in assets:
            assets.add(name)
            imported = re.findall(r"""\bfrom\s*['"](\.[^'"]+)['"]""", (dashboard_files.FOLDER / name).read_text())
            waiting += [os.path.normpath(f"{os.path.dirname(name)}/{one}") for one in imported]
    told = re.findall(
        r'rel="modulepreload" href="([^"]+)"', (dashboard_files.FOLDER / dashboard_files.PAGE_FILE).read_text()
    )
    assert len(assets) > 40 and sorted(told) == sorted(assets - {"assets/main.js"})
