"""The routes of bundles: save, load, archive and move. They also take and send bundles as bodies, for callers on
another machine.

The operations answer with a stream of lines that report progress: `{done, total}` while the work goes on, then
`{words, name, …}` or a problem. `bundles` and `retention` in `operations` do the work. A caller on another machine
cannot name a path here, so it sends or gets the bundle itself. The bundle passes through a file in the state folder, in
parts, so that its size is limited by the disk and not by memory. The file is removed when the transfer ends, also after
an error. Files of a daemon that was killed are removed at a later transfer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.bodies import build, find_route_body, read_routed
from wakeful.api.contract import Service
from wakeful.api.gate.callers import Caller
from wakeful.api.operations.bundles import ACTS, Act, Answer, BundleWork, load, save_to
from wakeful.api.operations.retention import archive_all
from wakeful.api.problems import BodyTooLarge, view_error, view_problem
from wakeful.api.requests import Handlers, answer_lines, caller_of, find_session, service_of
from wakeful.errors import CallerError, OperatorError, WakefulError
from wakeful.system.private_files import make_private
from wakeful.text.display import ignore_progress

ALL_ACTS: dict[str, Act] = {**ACTS, "due": archive_all}
_UNDER_WAY: set[asyncio.Task[None]] = set()
# The route that takes a bundle as its body.
IMPORT = "POST /bundle/import"
MEDIA_TYPE = "application/vnd.wakeful.bundle"
FOLDER = "transfers"
PART_BYTES = 256 * 1024
# The largest bundle, far above any session. In practice the free space of the disk is the limit.
LARGEST_BUNDLE_BYTES = 64 * 2**30
# Seconds without a write after which a file counts as left by a daemon that was killed.
STALE_SECONDS = 86_400.0


async def carry(request: Request) -> Response:
    """POST /bundle/{verb}. The verb `due` is about all sessions."""
    verb = request.path_params["verb"]
    if verb not in ALL_ACTS:
        raise CallerError(f"there is no {verb!r} of bundles; there are {', '.join(ALL_ACTS)}")
    body = await read_routed(request, f"POST /bundle/{verb}")
    return answer_lines(stream_act(service_of(request), caller_of(request), ALL_ACTS[verb], body))


async def stream_act(service: Service, caller: Caller, act: Act, body: Any) -> AsyncIterator[bytes]:
    """Yield a line for each report of progress, which may come from any thread, and the answer as the last line."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[Answer] = asyncio.Queue()

    def tell(done: int, total: int) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, {"done": done, "total": total})

    async def run() -> None:
        try:
            answer = await act(BundleWork(service, caller.author, tell, caller.uid, caller.person), body)
        except WakefulError as error:
            answer = view_error(error)
        except OSError as error:
            answer = view_problem("unavailable", f"{error.filename or 'a file'}: {error.strerror}")
        await lines.put({**answer, "is_last": True})

    # The work goes on if the client disconnects, because half a load would have to be repeated.
    acting = asyncio.create_task(run(), name="bundle")
    _UNDER_WAY.add(acting)
    acting.add_done_callback(_UNDER_WAY.discard)
    while True:
        line = await lines.get()
        is_last = line.pop("is_last", False)
        yield msgspec.json.encode(line) + b"\n"
        if is_last:
            return


class NoRoom(OperatorError):
    """The disk is nearly full."""


async def send_bundle(request: Request) -> Response:
    """GET /sessions/{name}/bundle: write the bundle to a file, then send the file."""
    service, caller = service_of(request), caller_of(request)
    session = find_session(request, service)
    work = BundleWork(service, caller.author, ignore_progress, caller.uid, caller.person)
    path = await asyncio.to_thread(_make_place, service)
    try:
        saved = await asyncio.to_thread(save_to, work, session, path)
        size = (await asyncio.to_thread(path.stat)).st_size
    except BaseException:
        await asyncio.to_thread(_remove, path)
        raise
    name = quote(f"{session.name.replace('/', '-')}.bundle", safe="")
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Wakeful-Digest": saved.contents.digest,
        "Wakeful-Records": str(saved.contents.records),
    }
    return StreamingResponse(_read_parts(path), media_type=MEDIA_TYPE, headers=headers)


async def _read_parts(path: Path) -> AsyncIterator[bytes]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
        try:
            # The open file is still readable. Its space is freed when it is closed, also if the client leaves.
            await asyncio.to_thread(_remove, path)
            while part := await asyncio.to_thread(file.read, PART_BYTES):
                yield part
        finally:
            # The last close frees the disk space of the file, which takes a moment for each gigabyte.
            await asyncio.to_thread(file.close)
    finally:
        await asyncio.to_thread(_remove, path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def take_bundle(request: Request) -> Response:
    """POST /bundle/import?new=…&root=…&move=…: the body is the bundle."""
    service = service_of(request)
    wishes = _read_wishes(request)
    path = await asyncio.to_thread(_make_place, service)
    try:
        await _write_body(request, service, path)
    except BaseException:
        await asyncio.to_thread(_remove, path)
        raise

    async def act(work: BundleWork, body: Any) -> Answer:
        try:
            answer = await load(work, body)
        finally:
            await asyncio.to_thread(_remove, path)
        # The path of our temporary file is of no use to the caller.
        return {name: value for name, value in answer.items() if name != "path"}

    body = build(find_route_body("POST /bundle/load"), {**wishes, "path": str(path)})
    return answer_lines(stream_act(service, caller_of(request), act, body))


def _read_wishes(request: Request) -> dict[str, Any]:
    """Read the arguments from the query, because the body is the bundle."""
    given: dict[str, Any] = dict(request.query_params)
    if "move" in given:
        given["move"] = given["move"] == "true"
    build(find_route_body(IMPORT), given)
    return given


async def _write_body(request: Request, service: Service, path: Path) -> None:
    size = 0
    file = await asyncio.to_thread(path.open, "r+b")
    try:
        async for part in request.stream():
            size += len(part)
            if size > LARGEST_BUNDLE_BYTES:
                raise BodyTooLarge(f"a bundle has at most {LARGEST_BUNDLE_BYTES:,} bytes")
            if service.core.looked.shortage is not None:
                raise NoRoom(f"{service.core.looked.shortage}: the bundle was not taken; make room and send it again")
            await asyncio.to_thread(_write_all, file, part)
    finally:
        await asyncio.to_thread(file.close)
    if size == 0:
        raise CallerError("the body is empty; send the bundle as the body, such as with curl --data-binary @FILE")


def _write_all(file: BinaryIO, part: bytes) -> None:
    file.write(part)


def _make_place(service: Service) -> Path:
    """Create a file that only our user can read, and remove stale files. Blocking."""
    folder = Path(service.places.state) / FOLDER
    make_private(str(folder))
    for one in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - one.stat().st_mtime > STALE_SECONDS:
                one.unlink()
    path = folder / f"{secrets.token_hex(8)}.bundle"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return path


HANDLERS: Handlers = {
    IMPORT: take_bundle,
    "GET /sessions/{name}/bundle": send_bundle,
}
