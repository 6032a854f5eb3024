"""Puts errors between us and a provider into our words: whose fault it is and what the provider said.

provider_model.py calls it. The library already has one error for each kind, also for errors in the middle of a stream.
This module maps them to the few kinds by which the loop decides. A provider's own words are kept short and never hold
the key.
"""

from __future__ import annotations

import re

from pydantic import ValidationError
from pydantic_ai import exceptions as library

from wakeful.agents.contract import FaultKind, ProviderFault

# The most characters kept of a provider's message: enough to act on.
MOST_WORDS = 400

# Local servers have no code for it, only words.
_TOO_LONG = re.compile(
    r"context (length|window|size)|exceed_context_size|(prompt|input|request) is too (long|large)", re.IGNORECASE
)

_TOO_LONG_WORDS = "cannot take in a conversation this long"

# First match counts. Money that ran out is the key's owner's to mend, and so is a right the key lacks.
_KINDS: tuple[tuple[type[library.ModelAPIError], FaultKind, str], ...] = (
    (library.ModelAuthenticationError, "key", "refuses the key"),
    (library.ModelQuotaExceededError, "key", "says the account behind the key has nothing left to spend"),
    (library.ModelContextWindowExceededError, "too_long", _TOO_LONG_WORDS),
    (library.ModelNotFoundError, "refused", "knows no such model (or base_url is wrong)"),
    (library.ModelRequestRejectedError, "refused", "refuses the request"),
    (library.ModelRateLimitError, "busy", "asks for fewer requests"),
    (library.ModelUnavailableError, "busy", "is overloaded"),
    (library.ModelServerError, "busy", "failed on its side"),
    (library.ModelTimeoutError, "network", "said nothing for too long (limits.silence of its agent)"),
    (library.ModelConnectionError, "network", "cannot be reached, or the connection broke"),
)
# A transport that failed here had not begun to send: nothing can have been spent.
_UNSENT_PHASES = ("pool", "connect")


def fault_of(error: Exception, model: str, key: str | None) -> ProviderFault:
    """Say in our words what the library, or an SDK beneath it, raised."""
    match error:
        case library.ModelAPIError():
            status = error.status_code if isinstance(error, library.ModelHTTPError) else None
            kind, what = _kind_of(error, status)
            return ProviderFault(
                kind, _words(model, what, status, _said(error), key), status=status, retry_after=_wait_of(error)
            )
        case library.ContentFilterError():
            return ProviderFault("refused", _words(model, "would not answer this", None, str(error), key))
        case (
            library.UnexpectedModelBehavior()
            | ValidationError()
            | ValueError()
            | LookupError()
            | TypeError()
            | AttributeError()
            | AssertionError()
        ):
            # The remaining errors come from bytes that are not an answer. The library and the SDKs fail on such bytes
            # in many ways.
            return ProviderFault(
                "garbage",
                _words(
                    model, "answered with something that is no answer", None, f"{type(error).__name__}: {error}", key
                ),
            )
        case _:
            return ProviderFault("network", _words(model, "was lost", None, f"{type(error).__name__}: {error}", key))


def _kind_of(error: library.ModelAPIError, status: int | None) -> tuple[FaultKind, str]:
    if isinstance(error, library.ModelConnectionError) and error.phase in _UNSENT_PHASES:
        return "unreached", "cannot be reached, and nothing was sent"
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(_said(error))):
        return "too_long", _TOO_LONG_WORDS
    for cause, kind, what in _KINDS:
        if isinstance(error, cause):
            return kind, what
    match status:
        case None:
            return "garbage", "answered with something that is no answer"
        case 408 | 409 | 425:
            return "busy", "asks to try again"
        case _:
            return "refused", "refuses the request"


def _wait_of(error: library.ModelAPIError) -> float | None:
    """How long the provider asks us to wait: in a header or, Google's way, among the details of the error."""
    if error.retry_after is not None:
        return error.retry_after
    match error.body:
        case {"error": {"details": [*details]}}:
            waits = [
                re.fullmatch(r"([0-9.]+)s", detail.get("retryDelay") or "")
                for detail in details
                if isinstance(detail, dict)
            ]
            return next((float(wait[1]) for wait in waits if wait), None)
        case _:
            return None


def _said(error: library.ModelAPIError) -> str:
    """The provider's own sentence, wherever its format keeps it."""
    match error.body:
        case (
            {"error": {"message": str(message)}}
            | {"message": str(message)}
            | {"error": str(message)}
            | {"detail": str(message)}
        ):
            return message
        case None:
            return error.message
        case body:
            return str(body)


def _words(model: str, what: str, status: int | None, said: str, key: str | None) -> str:
    said = " ".join(without_key(said, key).split())
    if len(said) > MOST_WORDS:
        said = f"{said[:MOST_WORDS]}…"
    return f"{model} {what}{f' (HTTP {status})' if status is not None else ''}: {said or 'no words'}"


def without_key(text: str, key: str | None) -> str:
    """Providers like to quote a wrong key, whole or by its ends."""
    return text.replace(key, "…") if key else text
