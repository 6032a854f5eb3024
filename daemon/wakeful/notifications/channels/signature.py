"""Signatures of outbound webhooks, by Standard Webhooks (https://www.standardwebhooks.com). Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"


def read_key(secret: bytes) -> bytes:
    """Read the key of a secret: `whsec_` and base64, as the standard defines. Any other secret is the key itself.

    Raises ValueError if there is no base64 after the prefix.
    """
    text = secret.strip()
    if not text.startswith(PREFIX.encode()):
        return text
    try:
        return base64.b64decode(text[len(PREFIX) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"it begins with {PREFIX}, and what follows is not base64") from error


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers of a signed message. `timestamp` is the time of this attempt, in seconds."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }
