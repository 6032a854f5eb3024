"""The routes about the daemon itself: its version and places, the description of its API, its health and its metrics.

People, probes and Prometheus request them. All answers come from memory and hold the loop for milliseconds, even with
10,000 sessions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service
from wakeful.api.openapi import describe_api
from wakeful.api.problems import Refusals
from wakeful.api.requests import JSON, Handlers, answer_json, caller_of, service_of, visible_to
from wakeful.api.routes.webhooks import UnrecordedDeliveries
from wakeful.monitoring.health import (
    Health,
    LogFacts,
    encode_brief,
    judge_health,
    measure_disk,
    narrow_health,
    view_health,
)
from wakeful.monitoring.last_verification import read_verified
from wakeful.monitoring.metrics import list_process_families, list_session_families, list_state_families
from wakeful.monitoring.metrics_text import OPEN_TYPE, PLAIN_TYPE, Family, counted, write_metrics
from wakeful.views.times import show_time

# The HTTP status of an unhealthy daemon. A probe reads only the status. A healthy daemon answers 200.
UNHEALTHY = 503


async def read_version(request: Request) -> Response:
    service = service_of(request)
    places = service.places
    return answer_json(
        {
            "version": service.version,
            "pid": service.pid,
            "started_at": show_time(service.started_at),
            "specs": str(places.specs),
            "state": str(places.state),
            "socket": str(places.socket),
            "http": request.app.state.tcp.url,
        }
    )


async def read_description(request: Request) -> Response:
    return Response(_encode(service_of(request).version), media_type=JSON)


@functools.cache
def _encode(version: str) -> bytes:
    return msgspec.json.encode(describe_api(version))


async def read_health(request: Request) -> Response:
    service = service_of(request)
    health = await find_health(service, _read_refusals(request))
    visible = visible_to(request)
    if not visible.is_whole and not _is_stranger(request):
        health = narrow_health(health, visible.sees_name)
    status = 200 if health.is_healthy or request.query_params.get("plain") == "true" else UNHEALTHY
    if _is_stranger(request):
        return Response(encode_brief(health), status_code=status, media_type=JSON)
    return answer_json(view_health(health, service.moment(), service.version, service.started_at), status)


async def read_metrics(request: Request) -> Response:
    service = service_of(request)
    core = service.core
    health = await find_health(service, _read_refusals(request))
    families = [
        *list_state_families(core, health, service.version, service.started_at),
        *service.monitoring.measures.list_families(),
        *_list_unrecorded_deliveries(request),
        *service.monitoring.measure_reported(),
        *list_session_families(core, core.settings.metrics.sessions),
        *list_process_families(service.pid),
    ]
    is_open = "application/openmetrics-text" in request.headers.get("accept", "")
    text = write_metrics(families, is_open=is_open)
    return Response(text.encode(), headers={"content-type": OPEN_TYPE if is_open else PLAIN_TYPE})


async def find_health(service: Service, refusals: Mapping[str, int]) -> Health:
    log, folder = service.log, service.places.state
    return judge_health(
        service.core,
        await service.monitoring.survey(service.moment),
        LogFacts(log.position(), log.read_only, log.read_anchored(), read_verified(folder)),
        measure_disk(folder),
        refused_specs=service.problems(),
        defects=service.defects(),
        refusals=refusals,
        reported=service.monitoring.find_reported(),
    )


def _list_unrecorded_deliveries(request: Request) -> Iterator[Family]:
    """Yield the metric of webhook deliveries that left no record."""
    unrecorded: UnrecordedDeliveries = request.app.state.unrecorded
    turned_away = {
        "duplicate": sum(unrecorded.duplicates.values()),
        "refused": sum(unrecorded.refused.values()),
        "unknown": unrecorded.unknown,
    }
    words = "Deliveries to webhooks that were repeated, refused, or for an unknown address."
    yield counted("wakeful_webhook_turned_away_total", "counter", words, "reason", turned_away)


def _is_stranger(request: Request) -> bool:
    """Is the caller unidentified? A probe over TCP shows no token. Its answer only says whether the daemon is
    healthy."""
    caller = caller_of(request)
    return caller.uid is None and caller.token is None and caller.run is None and caller.member is None


def _read_refusals(request: Request) -> Mapping[str, int]:
    """Return the number of refused requests, by kind."""
    refusals: Refusals = request.app.state.refusals
    return {str(kind): count for kind, count in refusals.read().items()}


HANDLERS: Handlers = {
    "GET /version": read_version,
    "GET /health": read_health,
    "GET /metrics": read_metrics,
    "GET /openapi.json": read_description,
}
