"""The routes of notifiers: their state (GET /notify), and a test message (POST /notify/test)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_body
from wakeful.api.contract import Service
from wakeful.api.requests import Handlers, answer_json, service_of
from wakeful.core.spec.notifier import Notifier, name_kind, say_target
from wakeful.errors import CallerError
from wakeful.notifications.ledger import MOST_ATTEMPTS, Ledger, is_troubled
from wakeful.notifications.messages import Delivered
from wakeful.views.times import show_time


class TestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str


async def read_notifiers(request: Request) -> Response:
    return answer_json(view_notifiers(service_of(request)))


async def send_test(request: Request) -> Response:
    try:
        body = msgspec.json.decode(await read_body(request), type=TestBody)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"the body is not valid: {error}") from None
    sent = await service_of(request).notifications.test(body.name)
    return answer_json({"name": body.name, "is_delivered": isinstance(sent, Delivered), "words": sent.words})


def view_notifiers(service: Service) -> list[dict[str, Any]]:
    """View every notifier with its deliveries, in the order of wakeful.yaml."""
    return [_view(notifier, ledger) for notifier, ledger in service.notifications.list_ledgers()]


def _view(notifier: Notifier, ledger: Ledger | None) -> dict[str, Any]:
    ledger = ledger or Ledger(position=0)
    delivery = ledger.delivery
    return {
        "name": notifier.name,
        "kind": name_kind(notifier.channel),
        "target": say_target(notifier.channel),
        "on": list(notifier.events),
        "digest_seconds": notifier.digest_seconds,
        "delivered": ledger.delivered,
        "given_up": ledger.given_up,
        "waiting": len(ledger.waiting) + (len(delivery.notices) if delivery is not None else 0),
        "missed": ledger.missed,
        "disabled": ledger.disabled,
        "is_troubled": is_troubled(ledger),
        "trying": None
        if delivery is None or not delivery.attempts
        else {
            "id": delivery.id,
            "attempts": delivery.attempts,
            "most_attempts": MOST_ATTEMPTS,
            "next_at": show_time(delivery.next_at),
            "problem": delivery.problem,
        },
        # The latest comes first.
        "ended": [
            {
                "id": one.id,
                "title": one.title,
                "at": show_time(one.at),
                "attempts": one.attempts,
                "problem": one.problem,
            }
            for one in reversed(ledger.ended)
        ],
    }


HANDLERS: Handlers = {
    "GET /notify": read_notifiers,
    "POST /notify/test": send_test,
}
