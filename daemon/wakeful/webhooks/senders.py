"""The senders of webhooks: how each signs a delivery, and how it names the delivery and the event.

`api/routes/webhooks.py` uses this for every delivery. Pure functions over headers and bodies; time and secrets are
arguments. Secrets and signatures are compared in constant time. Each sender is one entry of `SENDERS`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from wakeful.core.spec.bindings import Sender
from wakeful.errors import CallerError, OperatorError

# The prefix of the secrets of Standard Webhooks. After it comes the key in Base64.
WHSEC = "whsec_"
# The longest id of a delivery. A longer id, or one with unusual characters, is replaced by its digest.
LONGEST_ID = 120


class SignatureRefused(CallerError):
    """The signature of a delivery is missing, wrong or too old."""


class ReceivedDelivery(NamedTuple):
    """A delivery as it arrived. The names of headers are in lower case. `now` is in seconds since 1970."""

    headers: Mapping[str, str]
    body: bytes
    now: float
    tolerance_seconds: float


class Claim(NamedTuple):
    """The signatures of a delivery, and the bytes that were signed."""

    signatures: tuple[bytes, ...]
    signed: bytes


class SenderRules(NamedTuple):
    """The rules of one sender.

    - `read_claim`: reads the signatures and the signed bytes.
    - `sign`: computes the signature of bytes with a secret.
    - `find_id`, `find_event`: find the id of a delivery and the name of its event."""

    read_claim: Callable[[ReceivedDelivery], Claim]
    sign: Callable[[bytes, bytes], bytes]
    find_id: Callable[[Mapping[str, str], Any], str | None]
    find_event: Callable[[Mapping[str, str], Any], str | None]
    # The header with the time of the signature.
    timestamp: str | None
    # Makes the headers of a test delivery, from its signature, id, time and event.
    write_headers: Callable[[Callable[[bytes], str], str, int, str | None], dict[str, str]]


def verify(sender: Sender, secrets: Iterable[bytes], received: ReceivedDelivery) -> None:
    """Raise SignatureRefused unless the delivery was signed with one of the secrets, within the time tolerance."""
    is_good = False
    refused: SignatureRefused | None = None
    for secret in secrets:
        rules = find_rules(sender, secret)
        try:
            claim = rules.read_claim(received)
        except SignatureRefused as error:
            # Another secret may use another kind of signature.
            refused = error
            continue
        expected = rules.sign(secret, claim.signed)
        for signature in claim.signatures:
            is_good |= hmac.compare_digest(signature, expected)
    if not is_good:
        raise refused or SignatureRefused(
            f"the signature does not match: {sender} and this daemon have different secrets, or the body was changed "
            "on its way"
        )


def find_rules(sender: Sender, secret: bytes | None = None) -> SenderRules:
    """Find the rules of a sender. GitLab signs by Standard Webhooks if it has a signing token, and otherwise sends a
    plain token."""
    if sender == "gitlab" and secret is not None and secret.startswith(WHSEC.encode()):
        return _GITLAB_SIGNED
    return SENDERS[sender]


def find_delivery_id(sender: Sender, headers: Mapping[str, str], body: bytes, document: Any) -> str:
    """Find the sender's id of a delivery. The id is the same when the sender repeats the delivery. Without an id,
    return a digest of time and body."""
    rules = SENDERS[sender]
    found = rules.find_id(headers, document)
    if found is not None and 0 < len(found) <= LONGEST_ID and found.isascii() and found.isprintable():
        return found
    told = found if found else headers.get(rules.timestamp or "", "")
    digest = hashlib.sha256(told.encode() + b"\0" + (b"" if found else body))
    return f"sha256:{digest.hexdigest()[:40]}"


def find_event(sender: Sender, headers: Mapping[str, str], document: Any) -> str | None:
    """Find the sender's name of the event, such as `push`."""
    found = SENDERS[sender].find_event(headers, document)
    return found[:200] if found else None


def sign_delivery(
    sender: Sender, secret: bytes | None, body: bytes, *, delivery: str, now: int, event: str | None
) -> dict[str, str]:
    """Make the headers with which this sender would deliver the body. Without a secret nothing is signed."""
    rules = find_rules(sender, secret)

    def sign(signed: bytes) -> str:
        return rules.sign(secret, signed + body).decode() if secret is not None else ""

    headers = rules.write_headers(sign, delivery, now, event)
    if rules is SENDERS["gitlab"] and secret is not None:
        headers["x-gitlab-token"] = secret.decode()
    return headers


# -- signatures -----------------------------------------------------------------------------------


def _read_standard(received: ReceivedDelivery) -> Claim:
    delivery, time = _need(received, "webhook-id"), _need(received, "webhook-timestamp")
    shown = _need(received, "webhook-signature")
    _check_time(received, "webhook-timestamp", time)
    pairs = (one.partition(",") for one in shown.split())
    signatures = tuple(text.encode() for version, _, text in pairs if version == "v1")
    return Claim(signatures, f"{delivery}.{time}.".encode() + received.body)


def _sign_standard(secret: bytes, signed: bytes) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(WHSEC.encode()), validate=True)
    except (binascii.Error, ValueError):
        raise OperatorError(
            f"a secret of Standard Webhooks is {WHSEC} and a key in Base64, and the one that is set is not; set the "
            "one that the sender shows"
        ) from None
    return base64.b64encode(hmac.digest(key, signed, "sha256"))


def _read_github(received: ReceivedDelivery) -> Claim:
    return Claim((_need(received, "x-hub-signature-256").encode(),), received.body)


def _sign_github(secret: bytes, signed: bytes) -> bytes:
    return b"sha256=" + _sign_hex(secret, signed)


def _sign_hex(secret: bytes, signed: bytes) -> bytes:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()


def _read_gitlab_token(received: ReceivedDelivery) -> Claim:
    # Digests are compared, because the time to compare texts of different lengths would reveal the length.
    return Claim((_digest(_need(received, "x-gitlab-token").encode()),), b"")


def _digest_secret(secret: bytes, signed: bytes) -> bytes:
    return _digest(secret)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _read_stripe(received: ReceivedDelivery) -> Claim:
    parts = [part.partition("=") for part in _need(received, "stripe-signature").split(",")]
    times = [value for name, _, value in parts if name.strip() == "t"]
    if len(times) != 1:
        raise SignatureRefused("Stripe-Signature has no time; expected t=SECONDS,v1=SIGNATURE")
    _check_time(received, "Stripe-Signature", times[0])
    signatures = tuple(value.encode() for name, _, value in parts if name.strip() == "v1")
    return Claim(signatures, f"{times[0]}.".encode() + received.body)


def _read_slack(received: ReceivedDelivery) -> Claim:
    time = _need(received, "x-slack-request-timestamp")
    _check_time(received, "X-Slack-Request-Timestamp", time)
    return Claim((_need(received, "x-slack-signature").encode(),), f"v0:{time}:".encode() + received.body)


def _sign_slack(secret: bytes, signed: bytes) -> bytes:
    return b"v0=" + _sign_hex(secret, signed)


def _need(received: ReceivedDelivery, header: str) -> str:
    value = received.headers.get(header)
    if not value:
        raise SignatureRefused(f"the header {header} is missing: set the secret in the settings of the sender")
    return value


def _check_time(received: ReceivedDelivery, header: str, text: str) -> None:
    """Raise SignatureRefused if the time is outside the tolerance. Otherwise a captured delivery could be replayed
    later."""
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise SignatureRefused(f"{header} is not a time in whole seconds since 1970")
    apart = received.now - int(text)
    if abs(apart) > received.tolerance_seconds:
        side = "old" if apart > 0 else "early"
        raise SignatureRefused(
            f"it was signed {abs(apart):.0f} s too {side}: at most {received.tolerance_seconds:.0f} s are allowed; "
            "check the clocks of both machines"
        )


# -- names ----------------------------------------------------------------------------------------


def _get(document: Any, *path: str) -> str | None:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None


def _find_gitlab_id(headers: Mapping[str, str], document: Any) -> str | None:
    # The UUID of the event is the last choice, because all webhooks of one event share it.
    return headers.get("webhook-id") or headers.get("idempotency-key") or headers.get("x-gitlab-event-uuid")


def _find_slack_event(headers: Mapping[str, str], document: Any) -> str | None:
    return _get(document, "event", "type") or _get(document, "command") or _get(document, "type")


def _find_type(headers: Mapping[str, str], document: Any) -> str | None:
    return _get(document, "type")


# -- test deliveries --------------------------------------------------------------------------------

_Sign = Callable[[bytes], str]


def _write_standard(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    signature = sign(f"{delivery}.{now}.".encode())
    return {"webhook-id": delivery, "webhook-timestamp": str(now), "webhook-signature": f"v1,{signature}"}


def _write_github(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    return {"x-hub-signature-256": sign(b""), "x-github-delivery": delivery, "x-github-event": event or "ping"}


def _write_gitlab(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    return {"idempotency-key": delivery, "x-gitlab-event": event or "Push Hook"}


def _write_gitlab_signed(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    return {**_write_standard(sign, delivery, now, event), "x-gitlab-event": event or "Push Hook"}


def _write_stripe(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    return {"stripe-signature": f"t={now},v1={sign(f'{now}.'.encode())}"}


def _write_slack(sign: _Sign, delivery: str, now: int, event: str | None) -> dict[str, str]:
    return {"x-slack-request-timestamp": str(now), "x-slack-signature": sign(f"v0:{now}:".encode())}


SENDERS: dict[Sender, SenderRules] = {
    "standard": SenderRules(
        read_claim=_read_standard,
        sign=_sign_standard,
        find_id=lambda headers, document: headers.get("webhook-id"),
        find_event=_find_type,
        timestamp="webhook-timestamp",
        write_headers=_write_standard,
    ),
    "github": SenderRules(
        read_claim=_read_github,
        sign=_sign_github,
        find_id=lambda headers, document: headers.get("x-github-delivery"),
        find_event=lambda headers, document: headers.get("x-github-event"),
        timestamp=None,
        write_headers=_write_github,
    ),
    "gitlab": SenderRules(
        read_claim=_read_gitlab_token,
        sign=_digest_secret,
        find_id=_find_gitlab_id,
        find_event=lambda headers, document: headers.get("x-gitlab-event"),
        timestamp=None,
        write_headers=_write_gitlab,
    ),
    "stripe": SenderRules(
        read_claim=_read_stripe,
        sign=_sign_hex,
        find_id=lambda headers, document: _get(document, "id"),
        find_event=_find_type,
        timestamp="stripe-signature",
        write_headers=_write_stripe,
    ),
    "slack": SenderRules(
        read_claim=_read_slack,
        sign=_sign_slack,
        find_id=lambda headers, document: _get(document, "event_id"),
        find_event=_find_slack_event,
        timestamp="x-slack-request-timestamp",
        write_headers=_write_slack,
    ),
}
_GITLAB_SIGNED = SENDERS["standard"]._replace(
    find_id=_find_gitlab_id, find_event=SENDERS["gitlab"].find_event, write_headers=_write_gitlab_signed
)
