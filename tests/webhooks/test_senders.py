"""Signatures of the senders, checked with the examples of their own documentation."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest

from wakeful.core.spec.bindings import Sender
from wakeful.errors import OperatorError
from wakeful.webhooks.senders import (
    SENDERS,
    ReceivedDelivery,
    SignatureRefused,
    find_delivery_id,
    find_event,
    sign_delivery,
    verify,
)

# From the test suite of the Standard Webhooks libraries.
STANDARD_SECRET = b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
# From GitHub's page on validating deliveries.
GITHUB_SECRET = b"It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
# From Slack's page on verifying requests.
SLACK_SECRET = b"8f742231b10e8888abcd99yyyzzz85a5"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121"
    b".803a0bc887a14d10d2c447fce8b6703c"
)
SLACK = {
    "x-slack-request-timestamp": "1531420618",
    "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}
# Stripe's scheme: HMAC-SHA256 of "time.body", in hexadecimal.
STRIPE_SECRET = b"whsec_test_secret"
STRIPE_BODY = b'{\n  "id": "evt_test_webhook",\n  "object": "event"\n}'


def make_stripe(time: int = 1_600_000_000, more: str = "") -> dict[str, str]:
    signature = hmac.new(STRIPE_SECRET, f"{time}.".encode() + STRIPE_BODY, "sha256").hexdigest()
    return {
        "stripe-signature": f"t={time},{more}v1={signature},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
    }


DOCUMENTED: list[tuple[Sender, bytes, dict[str, str], bytes, float]] = [
    ("standard", STANDARD_SECRET, STANDARD, STANDARD_BODY, 1614265330),
    ("standard", b"whsec_" + STANDARD_SECRET, STANDARD, STANDARD_BODY, 1614265330),
    ("gitlab", b"whsec_" + STANDARD_SECRET, STANDARD, STANDARD_BODY, 1614265330),
    ("github", GITHUB_SECRET, GITHUB, GITHUB_BODY, 0),
    ("gitlab", b"a plain token", {"x-gitlab-token": "a plain token"}, b"{}", 0),
    ("slack", SLACK_SECRET, SLACK, SLACK_BODY, 1531420618),
    ("stripe", STRIPE_SECRET, make_stripe(), STRIPE_BODY, 1_600_000_000),
]


@pytest.mark.parametrize(("sender", "secret", "headers", "body", "now"), DOCUMENTED)
def test_the_documented_example_of_each_sender_is_taken(
    sender: Sender, secret: bytes, headers: dict[str, str], body: bytes, now: float
) -> None:
    """It is accepted with its own secret. Another secret, another body and a missing signature are refused."""
    verify(sender, [secret], ReceivedDelivery(headers, body, now, 300.0))
    # During a rotation the old secret is valid beside the new one.
    verify(
        sender,
        [b"whsec_AAAA" if sender == "standard" else b"another", secret],
        ReceivedDelivery(headers, body, now, 300.0),
    )
    with pytest.raises(SignatureRefused, match="does not match"):
        verify(sender, [secret[:-4] + b"AAAA"], ReceivedDelivery(headers, body, now, 300.0))
    with pytest.raises(SignatureRefused, match="is missing"):
        verify(sender, [secret], ReceivedDelivery({}, body, now, 300.0))
    with pytest.raises(SignatureRefused):
        verify(sender, [], ReceivedDelivery(headers, body, now, 300.0))
    if "x-gitlab-token" not in headers:
        with pytest.raises(SignatureRefused, match="does not match"):
            verify(sender, [secret], ReceivedDelivery(headers, body + b" ", now, 300.0))


@pytest.mark.parametrize(("sender", "secret", "headers", "body", "now"), [one for one in DOCUMENTED if one[4]])
def test_a_captured_delivery_is_of_no_use_later(
    sender: Sender, secret: bytes, headers: dict[str, str], body: bytes, now: float
) -> None:
    """A delivery is accepted within five minutes of its time, earlier or later, by default."""
    for apart in (-300, 300):
        verify(sender, [secret], ReceivedDelivery(headers, body, now + apart, 300.0))
    for apart, words in ((301, "too old"), (-301, "too early")):
        with pytest.raises(SignatureRefused, match=words):
            verify(sender, [secret], ReceivedDelivery(headers, body, now + apart, 300.0))


def test_one_good_signature_among_several_counts() -> None:
    """A sender that rotates its secret sends both signatures."""
    several = f"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,xyz {STANDARD['webhook-signature']}"
    verify(
        "standard",
        [STANDARD_SECRET],
        ReceivedDelivery({**STANDARD, "webhook-signature": several}, STANDARD_BODY, 1614265330, 300.0),
    )
    wrong = {**STANDARD, "webhook-signature": STANDARD["webhook-signature"].replace("v1,", "v2,")}
    with pytest.raises(SignatureRefused):
        verify("standard", [STANDARD_SECRET], ReceivedDelivery(wrong, STANDARD_BODY, 1614265330, 300.0))
    verify(
        "stripe",
        [STRIPE_SECRET],
        ReceivedDelivery(make_stripe(more=f"v1={'0' * 64},"), STRIPE_BODY, 1_600_000_000, 300.0),
    )


def test_a_time_that_is_no_time_is_refused() -> None:
    """The time must be plain digits within range."""
    for time in ("", "-1", "1e9", "٣", "9" * 30, "1614265330.5"):
        with pytest.raises(SignatureRefused):
            verify(
                "standard",
                [STANDARD_SECRET],
                ReceivedDelivery({**STANDARD, "webhook-timestamp": time}, STANDARD_BODY, 1614265330, 300.0),
            )
    for shown in ("v1=aa", "t=1,t=2,v1=aa", "t=,v1=aa"):
        with pytest.raises(SignatureRefused):
            verify("stripe", [STRIPE_SECRET], ReceivedDelivery({"stripe-signature": shown}, STRIPE_BODY, 1, 300.0))


def test_a_secret_that_is_no_key_is_the_operators_to_mend() -> None:
    """The error is an OperatorError, so it does not look like a wrong signature."""
    with pytest.raises(OperatorError, match="Base64"):
        verify("standard", [b"not base64!"], ReceivedDelivery(STANDARD, STANDARD_BODY, 1614265330, 300.0))


@pytest.mark.parametrize("sender", SENDERS)
def test_a_delivery_made_here_is_taken_as_the_senders_own(sender: Sender) -> None:
    """`wakeful webhook test` signs a delivery as the sender does and sends it to the daemon."""
    secret = b"whsec_" + STANDARD_SECRET if sender == "standard" else b"s3cret"
    headers = sign_delivery(sender, secret, b'{"a": 1}', delivery="d-1", now=1000, event="push")
    verify(sender, [secret], ReceivedDelivery(headers, b'{"a": 1}', 1000, 300.0))
    signed = sign_delivery("gitlab", b"whsec_" + STANDARD_SECRET, b"{}", delivery="d-1", now=1000, event="push")
    verify("gitlab", [b"whsec_" + STANDARD_SECRET], ReceivedDelivery(signed, b"{}", 1000, 300.0))


NAMES: list[tuple[Sender, dict[str, str], Any, str, str | None]] = [
    ("standard", STANDARD, {"type": "invoice.paid"}, "msg_p5jXN8AQM9LWM0D4loKWxJek", "invoice.paid"),
    ("github", {"x-github-delivery": "72d3162e", "x-github-event": "push"}, {}, "72d3162e", "push"),
    ("gitlab", {"idempotency-key": "i-1", "x-gitlab-event-uuid": "u-1", "x-gitlab-event": "Push Hook"}, {}, "i-1", "Push Hook"),
    ("gitlab", {"x-gitlab-event-uuid": "u-1"}, {}, "u-1", None),
    ("stripe", {}, {"id": "evt_1", "type": "charge.failed"}, "evt_1", "charge.failed"),
    ("slack", {}, {"event_id": "Ev1", "event": {"type": "app_mention"}}, "Ev1", "app_mention"),
]  # fmt: skip


@pytest.mark.parametrize(("sender", "headers", "document", "delivery", "event"), NAMES)
def test_each_sender_has_names_for_a_delivery_and_its_event(
    sender: Sender, headers: dict[str, str], document: Any, delivery: str, event: str | None
) -> None:
    """The delivery's id identifies a repeated delivery."""
    assert find_delivery_id(sender, headers, json.dumps(document).encode(), document) == delivery
    assert find_event(sender, headers, document) == event


def test_without_a_name_the_digest_of_time_and_body_stands_for_it() -> None:
    """A repeated delivery has the same digest. Another time or body gives another."""
    one = find_delivery_id("slack", {"x-slack-request-timestamp": "1"}, b"a", None)
    assert one.startswith("sha256:")
    assert one == find_delivery_id("slack", {"x-slack-request-timestamp": "1"}, b"a", None)
    others = {
        find_delivery_id("slack", {"x-slack-request-timestamp": time}, body, None)
        for time, body in (("2", b"a"), ("1", b"b"))
    }
    assert len({one, *others}) == 3
    # These names are too long for a line of the log, or contain characters that do not belong there.
    for name in ("x" * 500, "a\nb", "ü"):
        assert find_delivery_id("github", {"x-github-delivery": name}, b"", None).startswith("sha256:")
