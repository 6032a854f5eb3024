"""The routes of webhooks: POST /webhook/SESSION/BINDING takes a delivery, GET /webhooks lists the addresses, and POST
/webhooks/test makes a test delivery.

A delivery is judged in this order: its address, its size, its signature and time, the filter of its binding. Its body
is stored as a blob before the record that names it. The sender is answered when both are durable. A repeated delivery
is recognised by its id, which is the idempotency key of its record. Refusals leave no record. They are only counted.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from wakeful.api.bodies import build, decode_body, read_body
from wakeful.api.contract import Service, find_named
from wakeful.api.problems import BodyTooLarge, RefusedRequest, answer_problem, name_problem
from wakeful.api.requests import Handlers, answer_json, caller_of, service_of
from wakeful.core.calls.call_types import Deliver
from wakeful.core.record.events import DeliveryReceived
from wakeful.core.record.state import Moving, Session
from wakeful.core.spec.bindings import WebhookBinding
from wakeful.errors import CallerError, OperatorError, UnknownSession, WakefulError
from wakeful.eventlog.codec import decode
from wakeful.views.times import say_time, show_time_or_none
from wakeful.webhooks.payload_filter import Payload, find_mismatch, read_payload
from wakeful.webhooks.senders import (
    ReceivedDelivery,
    SignatureRefused,
    find_delivery_id,
    find_event,
    sign_delivery,
    verify,
)

# Seconds after which the sender may try again.
RETRY_SECONDS = "60"
PREFIX = "/webhook/"
_SECOND = 1_000_000


class NoWebhook(UnknownSession):
    """No webhook binding has this address."""


class WebhookClosed(CallerError):
    """The session is closed, so it takes no deliveries."""


class NotNow(OperatorError):
    """The delivery cannot be taken at present. The sender may try again."""


class UnrecordedDeliveries:
    """Counts the deliveries that left no record since the daemon started, by webhook. Used on the loop only."""

    def __init__(self) -> None:
        self.duplicates: dict[tuple[str, str], int] = {}
        self.refused: dict[tuple[str, str], int] = {}
        # The time and the reason of the last refusal.
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        # Deliveries to addresses that do not exist.
        self.unknown = 0

    def count_duplicate(self, place: tuple[str, str]) -> None:
        self.duplicates[place] = self.duplicates.get(place, 0) + 1

    def say_refusals(self, session: Session) -> list[str]:
        """Return a sentence for each webhook of a session that has refused a delivery."""
        found = []
        for binding in session.spec.webhooks if session.spec is not None else ():
            if (refusal := self.refusals.get((session.id, binding.name))) is not None:
                number = self.refused[session.id, binding.name]
                found.append(
                    f"{binding.name} has refused {number:,} since the daemon started, the last at "
                    f"{say_time(refusal[0])}: {refusal[1]}."
                )
        return found

    def count_refusal(self, place: tuple[str, str], at: int, words: str) -> None:
        self.refused[place] = self.refused.get(place, 0) + 1
        self.refusals[place] = (at, words)


class Arrival(Struct, frozen=True, kw_only=True):
    """A delivery before it is judged. The names of its headers are in lower case."""

    session: Session
    binding: WebhookBinding
    headers: Mapping[str, str]
    body: bytes

    @property
    def place(self) -> tuple[str, str]:
        return self.session.id, self.binding.name


class TestBody(Struct, frozen=True, kw_only=True):
    """A test delivery: the content of a file, and the event and id that the sender would give it."""

    name: str
    payload: str
    binding: str | None = None
    event: str | None = None
    delivery: str | None = None


async def receive(request: Request) -> Response:
    service, unrecorded = service_of(request), _unrecorded_deliveries_of(request)
    try:
        session, binding = _find_address(service, request.path_params["address"])
    except UnknownSession as refused:
        unrecorded.unknown += 1
        return answer_problem("not-found", str(refused))
    place = (session.id, binding.name)
    try:
        _refuse_closed(session)
        body = await _read(request, binding)
        arrival = Arrival(session=session, binding=binding, headers=_lower(request), body=body)
        now = service.moment().wall
        try:
            _verify(service, arrival, now / _SECOND)
        except SignatureRefused:
            request.app.state.refusals.count("signature")
            raise
        payload = read_payload(body, arrival.headers.get("content-type", ""))
        if (challenge := _find_challenge(binding, payload)) is not None:
            return PlainTextResponse(challenge)
        answer = await _take(service, unrecorded, arrival, payload, author=f"webhook:{binding.sender}")
    except WakefulError as refused:
        unrecorded.count_refusal(place, service.moment().wall, str(refused))
        if isinstance(refused, RefusedRequest):
            request.app.state.refusals.count(refused.kind)
        return _refuse(refused)
    return answer_json(answer, 202)


async def test(request: Request) -> Response:
    """Sign a test payload as its sender would sign it, and take it like any delivery."""
    service, unrecorded = service_of(request), _unrecorded_deliveries_of(request)
    body: TestBody = build(TestBody, decode_body(await read_body(request, 4 * 1024 * 1024)))
    session = find_named(service, body.name)
    binding = _choose_binding(session, body.binding)
    _refuse_closed(session)
    content = body.payload.encode()
    if len(content) > binding.max_size_bytes:
        raise _too_large(binding)
    headers = sign_delivery(
        binding.sender,
        _read_secrets(service, binding)[0] if binding.secrets else None,
        content,
        delivery=body.delivery or f"test-{uuid.uuid4()}",
        now=int(time.time()),
        event=body.event,
    )
    arrival = Arrival(session=session, binding=binding, headers=headers, body=content)
    _verify(service, arrival, service.moment().wall / _SECOND)
    payload = read_payload(content, "")
    answer = await _take(service, unrecorded, arrival, payload, author=caller_of(request).author)
    return answer_json(answer)


async def list_webhooks(request: Request) -> Response:
    service, unrecorded = service_of(request), _unrecorded_deliveries_of(request)
    rows = [
        _view(service, unrecorded, session, binding, request.app.state.tcp.url)
        for session in sorted(service.core.state, key=lambda one: one.name)
        if session.spec is not None and session.declaration.is_declared and not session.is_shut
        for binding in session.spec.webhooks
    ]
    return answer_json({"webhooks": rows, "unknown_addresses": unrecorded.unknown})


# -- the steps of a delivery ------------------------------------------------------------------------


def _find_address(service: Service, address: str) -> tuple[Session, WebhookBinding]:
    """Find the webhook of an address. Raises NoWebhook if there is none. The session's name may contain slashes, plain
    or escaped."""
    name, _, bound = unquote(address).rpartition("/")
    session_id = service.core.state.ids.get(name)
    session = service.core.state.get(session_id) if session_id is not None else None
    spec = session.spec if session is not None and session.declaration.is_declared else None
    binding = spec.binding(bound) if spec is not None else None
    if session is None or not isinstance(binding, WebhookBinding):
        raise NoWebhook("no webhook has this address; `wakeful webhook list` shows the addresses")
    return session, binding


def _choose_binding(session: Session, name: str | None) -> WebhookBinding:
    bindings = session.spec.webhooks if session.spec is not None and session.declaration.is_declared else ()
    named = [one for one in bindings if name is None or one.name == name]
    if len(named) == 1:
        return named[0]
    if not bindings:
        raise CallerError(f"{session.name} has no webhook binding; add one, such as {{webhook: github, secret: NAME}}")
    raise CallerError(f"say which webhook of {session.name}: --binding {' or '.join(one.name for one in bindings)}")


def _refuse_closed(session: Session) -> None:
    if isinstance(session.closed, Moving):
        raise NotNow("the session is moving to another host; try again later")
    if session.closed is not None:
        raise WebhookClosed("the session behind this address is closed, and accepts no more deliveries")


async def _read(request: Request, binding: WebhookBinding) -> bytes:
    try:
        return await read_body(request, binding.max_size_bytes)
    except BodyTooLarge:
        raise _too_large(binding) from None


def _too_large(binding: WebhookBinding) -> BodyTooLarge:
    return BodyTooLarge(
        f"a payload to {binding.name} has at most {binding.max_size_bytes} bytes; max_size of the binding allows more"
    )


def _lower(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _read_secrets(service: Service, binding: WebhookBinding) -> list[bytes]:
    """Read the secrets of a webhook. A line break at the end is removed, because a file written by hand ends with one.
    Raises NotNow if a secret is missing."""
    try:
        return [service.read_secret(name).rstrip(b"\r\n") for name in binding.secrets]
    except OperatorError as error:
        raise NotNow(f"webhook {binding.name} {error}") from None


def _verify(service: Service, arrival: Arrival, now: float) -> None:
    binding = arrival.binding
    if not binding.secrets:
        return
    received = ReceivedDelivery(arrival.headers, arrival.body, now, binding.tolerance_seconds)
    verify(binding.sender, _read_secrets(service, binding), received)


def _find_challenge(binding: WebhookBinding, payload: Payload) -> str | None:
    """Find the text that Slack expects as the answer. Slack sends it once, when the address is configured."""
    match payload.document:
        case {"type": "url_verification", "challenge": str() as challenge} if binding.sender == "slack":
            return challenge
        case _:
            return None


async def _take(
    service: Service, unrecorded: UnrecordedDeliveries, arrival: Arrival, payload: Payload, *, author: str
) -> dict[str, Any]:
    """Record a verified delivery. Returns when it is on disk."""
    session, binding = arrival.session, arrival.binding
    delivery = find_delivery_id(binding.sender, arrival.headers, arrival.body, payload.document)
    event = find_event(binding.sender, arrival.headers, payload.document)
    mismatch = find_mismatch(binding.only, event, payload.document)
    address = None
    if mismatch is None:
        address = await asyncio.get_running_loop().run_in_executor(None, _keep, service, payload.content)
    call = Deliver(
        name=session.name,
        binding=binding.name,
        sender=binding.sender,
        delivery=delivery,
        event=event,
        size_bytes=len(payload.content),
        payload=address,
        suffix=payload.suffix,
        is_filtered=mismatch is not None,
        reason=mismatch,
    )
    try:
        reply = await service.call(call, author=author, key=f"webhook {binding.name} {delivery}", run=None)
    except CallerError as refused:
        raise NotNow(str(refused)) from None
    recorded = _read_recorded(service, session.id, reply.seq)
    if reply.is_repeated:
        unrecorded.count_duplicate(arrival.place)
    return {
        "words": f"{reply.words}; it came before" if reply.is_repeated else reply.words,
        "name": session.name,
        "binding": binding.name,
        "delivery": delivery,
        "event": event,
        "position": recorded.position if recorded is not None and not recorded.is_filtered else None,
        "is_filtered": recorded.is_filtered if recorded is not None else mismatch is not None,
        "is_repeated": reply.is_repeated,
        "record": reply.seq,
    }


def _keep(service: Service, content: bytes) -> str:
    """Store the body without the values of secrets. It is on disk when this returns. Blocking. Any thread."""
    redacted: bytes = service.redact(content)
    return service.blobs.put(redacted)


def _read_recorded(service: Service, session_id: str, seq: int | None) -> DeliveryReceived | None:
    if seq is None:
        return None
    for record in service.log.read(session_id, from_seq=seq, to_seq=seq):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        return event if isinstance(event, DeliveryReceived) else None
    return None


def _refuse(refused: WakefulError) -> Response:
    match refused:
        case SignatureRefused():
            return answer_problem("unauthorised", str(refused))
        case WebhookClosed():
            return answer_problem("gone", str(refused))
        case NotNow():
            answer = answer_problem("unavailable", str(refused))
            answer.headers["retry-after"] = RETRY_SECONDS
            return answer
        case _:
            return answer_problem(name_problem(refused), str(refused))


def _unrecorded_deliveries_of(request: Request) -> UnrecordedDeliveries:
    unrecorded: UnrecordedDeliveries = request.app.state.unrecorded
    return unrecorded


def _view(
    service: Service, unrecorded: UnrecordedDeliveries, session: Session, binding: WebhookBinding, base: str | None
) -> dict[str, Any]:
    address = f"{PREFIX}{quote(session.name, safe='/@')}/{binding.name}"
    known, place = session.find_webhook(binding.identity), (session.id, binding.name)
    refusal = unrecorded.refusals.get(place)
    problem = None
    try:
        _read_secrets(service, binding)
    except NotNow as error:
        problem = str(error)
    return {
        "session": session.name,
        "binding": binding.name,
        "sender": binding.sender,
        "address": address,
        # None while the TCP port is closed.
        "url": f"{base}{address}" if base is not None else None,
        "secrets": list(binding.secrets),
        "problem": problem,
        "only": binding.only,
        "accepted": known.position,
        "waiting": known.position - int(session.marks.seen.get(binding.identity, "0")),
        "filtered": known.filtered,
        "last_at": show_time_or_none(known.last_at or None),
        # These are counted since the daemon started, because they leave no record.
        "duplicates": unrecorded.duplicates.get(place, 0),
        "refused": unrecorded.refused.get(place, 0),
        "last_refusal": None if refusal is None else {"at": show_time_or_none(refusal[0]), "reason": refusal[1]},
    }


HANDLERS: Handlers = {
    "POST /webhook/{address:path}": receive,
    "GET /webhooks": list_webhooks,
    "POST /webhooks/test": test,
}
