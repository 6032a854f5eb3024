"""GET /top: every session as `list` has it, and what the runs under way and the daemon itself use right now.

Asked every second or two by `wakeful top`: rows of sessions at rest are kept between two questions, and only the trees
of runs are measured. CPU is told in seconds so far; who asks twice knows the share.
"""

from __future__ import annotations

import msgspec
import psutil
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import answer_json, service_of
from wakeful.api.service import Service
from wakeful.views.session_rows import Rows
from wakeful.views.times import show_time


async def read_top(request: Request) -> Response:
    service = service_of(request)
    rows: Rows = request.app.state.rows
    moment = service.moment()
    core = service.core
    return answer_json(
        {
            "at": show_time(moment.wall),
            "version": service.version,
            "started_at": show_time(service.started_at),
            "daemon": _measure_daemon(service.pid),
            "slots": dict[str, object](core.view_slots()["commands"]) | {"agents": core.view_slots()["agents"]},
            "runs": _view_runs(service),
            "sessions": msgspec.Raw(rows.encode(core, moment)),
        }
    )


def _measure_daemon(pid: int) -> dict[str, float | int]:
    process = psutil.Process(pid)
    with process.oneshot():
        spent = process.cpu_times()
        return {"pid": pid, "cpu_seconds": spent.user + spent.system, "rss_bytes": process.memory_info().rss}


def _view_runs(service: Service) -> dict[str, dict[str, object]]:
    """By session's id. Between two processes of a run there is nothing to measure."""
    found: dict[str, dict[str, object]] = {}
    for session_id in service.core.state.running:
        run = service.core.state.get(session_id).run
        if run is not None:
            found[session_id] = {
                "run": run.run,
                "started_at": show_time(run.started_at),
                "usage": service.usage(session_id),
            }
    return found
