"""The routes of bundles: save, load, archive and move. Each answers with a stream of lines that report progress.

A line is `{done, total}` while the work goes on. The last line is `{words, name, …}`, or a problem. `bundles` and
`retention` in `operations` do the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_routed
from wakeful.api.gate.callers import Caller
from wakeful.api.operations.bundles import ACTS, Act, Answer, BundleWork
from wakeful.api.operations.retention import archive_all
from wakeful.api.problems import view_error, view_problem
from wakeful.api.requests import answer_lines, caller_of, service_of
from wakeful.api.service import Service
from wakeful.errors import CallerError, WakefulError

ALL_ACTS: dict[str, Act] = {**ACTS, "due": archive_all}
_UNDER_WAY: set[asyncio.Task[None]] = set()


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
