"""Deliveries to webhooks: the event of a delivery, the state of a webhook, and the fold of the event into that state.

A webhook is an ordered kind (rule 4): its deliveries are numbered from 1, and those beyond `seen` wait for a run. Pure
values.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class DeliveryReceived(Struct, frozen=True, kw_only=True):
    """A signed delivery came to a webhook. `key` is the identity of its binding, `position` its number there.

    A delivery that the binding's filter rejects has no payload and does not advance the position.
    `reason` names the part of the filter that rejected it.
    """

    binding: str
    key: str
    position: int
    sender: str
    delivery: str
    event: str | None = None
    size_bytes: int = 0
    # The blob of its body, without the values of secrets.
    payload: str | None = None
    # The suffix of its file's name.
    suffix: str = ".json"
    is_filtered: bool = False
    reason: str | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """A delivery that no run has dealt with yet. `payload` is the blob of its body, None if a person erased it."""

    position: int
    at: int
    delivery: str
    event: str | None
    payload: str | None
    size_bytes: int
    suffix: str = ".json"
    seq: int = 0

    @property
    def file_name(self) -> str:
        """Return the name of its file in a run. The number is padded, so that names sort in order of arrival."""
        return f"{self.position:08d}{self.suffix}"


class Webhook(Struct, frozen=True, kw_only=True):
    """The deliveries to one webhook binding: how many came, and which of them wait for a run."""

    # The number of the last delivery that the filter let through.
    position: int = 0
    filtered: int = 0
    last_at: int = 0
    # May begin with deliveries that a run has dealt with since; `waiting_bytes` counts those as well.
    waiting: tuple[Delivery, ...] = ()
    waiting_bytes: int = 0


NO_DELIVERIES = Webhook()


def add_delivery(webhook: Webhook, event: DeliveryReceived, *, seen: int, at: int, seq: int) -> Webhook:
    """Return the webhook after this delivery. Drops the deliveries up to `seen`, which a run has dealt with."""
    if event.is_filtered:
        return replace(webhook, filtered=webhook.filtered + 1, last_at=at)
    waiting, size_bytes = webhook.waiting, webhook.waiting_bytes
    if waiting and waiting[0].position <= seen:
        waiting = tuple(one for one in waiting if one.position > seen)
        size_bytes = sum(one.size_bytes for one in waiting)
    came = Delivery(
        position=event.position,
        at=at,
        delivery=event.delivery,
        event=event.event,
        payload=event.payload,
        size_bytes=event.size_bytes,
        suffix=event.suffix,
        seq=seq,
    )
    return replace(
        webhook,
        position=event.position,
        last_at=at,
        waiting=(*waiting, came),
        waiting_bytes=size_bytes + event.size_bytes,
    )
