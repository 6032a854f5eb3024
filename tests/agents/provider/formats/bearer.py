"""The bearer header, in which OpenAI's formats carry the key."""

from __future__ import annotations


def read_bearer(headers: dict[str, str]) -> str | None:
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key if kind.lower() == "bearer" and key else None
