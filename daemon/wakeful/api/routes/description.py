"""GET /openapi.json: the description of this API."""

from __future__ import annotations

import functools

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.openapi import describe_api
from wakeful.api.requests import JSON, service_of


async def read_description(request: Request) -> Response:
    return Response(_encode(service_of(request).version), media_type=JSON)


@functools.cache
def _encode(version: str) -> bytes:
    return msgspec.json.encode(describe_api(version))
