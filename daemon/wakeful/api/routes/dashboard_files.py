"""The files of the dashboard (GET / and GET /assets/…), and the reports of browsers about its content security policy
(POST /csp-report).

The files are index.html and the folder assets, in api/dashboard of the package. They contain no user data, so they need
no token. The policy lets the page load files only from this daemon, and forbids inline scripts. So a script that was
injected by text of a log would not run.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_body
from wakeful.api.problems import Refusals, WrongBody, answer_problem
from wakeful.api.requests import Handlers

FOLDER = Path(__file__).parent.parent / "dashboard"
PAGE_FILE = "index.html"
# One segment of a path. It has no percent sign, because the path is matched as it was sent, not decoded.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
REPORT_PATH = "/csp-report"
LARGEST_REPORT_BYTES = 64_000
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "worker-src 'self'",
        "manifest-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        f"report-uri {REPORT_PATH}",
        "report-to policy",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Reporting-Endpoints": f'policy="{REPORT_PATH}"',
    # File names do not change between versions, so a browser must check each time whether the content changed.
    "Cache-Control": "no-cache",
}


class PageFile(NamedTuple):
    """A file in memory. `stamp` changes with the file on disk. `tag`, the ETag, is a hash of the content."""

    stamp: tuple[int, ...]
    content: bytes
    tag: str


class Pages:
    """The files of one folder. Each is read when it is first requested, and again after it changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._read: dict[str, PageFile] = {}

    def find(self, name: str) -> PageFile | None:
        """Find a file by its path in the folder. None if there is no such file, or it may not be served. Blocking."""
        parts = name.split("/")
        if os.path.splitext(name)[1] not in _TYPES or not all(_PART.fullmatch(part) for part in parts):
            return None
        try:
            with open(os.open(self._folder.joinpath(*parts), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    return None
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                known = self._read.get(name)
                if known is None or known.stamp != stamp:
                    content = file.read()
                    known = PageFile(stamp, content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
                    self._read[name] = known
                return known
        except OSError:
            return None


async def read_page(request: Request) -> Response:
    return await _answer(request, PAGE_FILE)


async def read_asset(request: Request) -> Response:
    return await _answer(request, f"assets/{request.path_params['path']}")


async def _answer(request: Request, name: str) -> Response:
    pages: Pages = request.app.state.pages
    found = await asyncio.to_thread(pages.find, name)
    if found is None:
        return answer_problem("not-found", f"there is no {request.url.path}")
    headers = {**HEADERS, "ETag": found.tag}
    if found.tag in [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=_TYPES[os.path.splitext(name)[1]])


async def take_policy_report(request: Request) -> Response:
    """Count a report. Its content is not kept, because anyone who reaches the port may send a report."""
    body = await read_body(request, LARGEST_REPORT_BYTES)
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise WrongBody("a report is JSON") from None
    refusals: Refusals = request.app.state.refusals
    refusals.count("policy")
    return Response(status_code=204)


HANDLERS: Handlers = {
    "GET /": read_page,
    "GET /assets/{path:path}": read_asset,
    "POST /csp-report": take_policy_report,
}
