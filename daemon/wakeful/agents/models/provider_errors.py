"""Classifies the errors of providers: the kind of the fault, the provider's message, and the pause it asks for.

http_stream.py raises `Trouble` for HTTP statuses and broken connections, the wire formats for errors in a stream.
provider_model.py converts it to a ProviderFault. A provider's message is cut, and the key is removed from it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from wakeful.agents.contract import FaultKind, ProviderFault

# The kind of a fault, and our description of what the provider does.
_Verdict = tuple[FaultKind, str]
# The most characters kept of a provider's message.
MOST_WORDS = 400

# The messages for a conversation that is too long. Local servers have no code for it.
_TOO_LONG = re.compile(
    r"context (length|window|size)|exceed_context_size|(prompt|input|request) is too (long|large)"
    r"|reduce the length of the messages|input token count|number of tokens allowed",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"credit balance is too low", re.IGNORECASE)

# The HTTP statuses for errors within a stream, after a 200. Anthropic and OpenAI have a type or code, Google a status.
_STATUSES = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "INVALID_ARGUMENT": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "API_KEY_INVALID": 401,
    "UNAUTHENTICATED": 401,
    "billing_error": 402,
    "permission_error": 403,
    "PERMISSION_DENIED": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "NOT_FOUND": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "RESOURCE_EXHAUSTED": 429,
    "api_error": 500,
    "server_error": 500,
    "INTERNAL": 500,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "UNAVAILABLE": 503,
    "timeout_error": 504,
    "DEADLINE_EXCEEDED": 504,
    "server_is_overloaded": 529,
    "overloaded": 529,
    "overloaded_error": 529,
}
# Codes that are more precise than the status they come with. Spent money comes as a 429, a wrong key and an unknown
# model as a 400.
_MONEY_CODES = frozenset(
    {
        "insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted", "billing_error",
        "organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded",
    }
)  # fmt: skip
_TELLING_CODES = frozenset({"invalid_api_key", "API_KEY_INVALID", "model_not_found"})

_REFUSES: _Verdict = ("refused", "refuses the request")
_KEY: _Verdict = ("key", "refuses the key")
_MONEY: _Verdict = ("key", "says the account of the key has no credit left")
_LONG: _Verdict = ("too_long", "says the conversation is too long for it")
_UNKNOWN: _Verdict = ("refused", "knows no such model (or base_url is wrong)")
# The kind by status. Spent money (402) and missing permissions (403) are faults of the key, because its owner must act.
_BY_STATUS: dict[int, _Verdict] = {
    400: _REFUSES,
    422: _REFUSES,
    401: _KEY,
    403: _KEY,
    402: _MONEY,
    404: _UNKNOWN,
    413: _LONG,
    429: ("busy", "asks for fewer requests"),
    408: ("busy", "asks to try again"),
    409: ("busy", "asks to try again"),
    425: ("busy", "asks to try again"),
    503: ("busy", "is overloaded"),
    529: ("busy", "is overloaded"),
}


class Trouble(Exception):
    """A request without an answer. It does not name the model yet: `tell` adds the name."""

    def __init__(
        self,
        kind: FaultKind,
        what: str,
        said: str = "",
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.said = said
        self.status = status
        self.retry_after = retry_after

    def tell(self, model: str, key: str | None) -> ProviderFault:
        said = " ".join(without_key(self.said, key).split())
        if len(said) > MOST_WORDS:
            said = f"{said[:MOST_WORDS]}…"
        status = f" (HTTP {self.status})" if self.status is not None else ""
        return ProviderFault(
            self.kind,
            f"{model} {self.what}{status}: {said or 'no message'}",
            status=self.status,
            retry_after=self.retry_after,
        )


def make_garbage(said: str) -> Trouble:
    return Trouble("garbage", "sent an answer that cannot be read", said)


def judge_status(status: int, body: Any, headers: Mapping[str, str]) -> Trouble:
    """Classify a response that is not a success. `body` is parsed JSON, or text."""
    return _judge(status, body, _find_wait(body, headers))


def judge_event(error: Any) -> Trouble:
    """Classify an error within a stream. `error` has a message, and a type, a code or a status."""
    codes = _list_codes(error)
    status = next((_STATUSES[code] for code in codes if code in _STATUSES), None)
    if status is None:
        # Google and gateways send the status itself as the code.
        status = next((int(code) for code in codes if re.fullmatch("[45][0-9][0-9]", code)), None)
    # In a response that is not a stream, spent money has the status 429.
    if status is None and not _MONEY_CODES.isdisjoint(codes):
        status = 429
    return _judge(status, {"error": error}, None)


def _judge(status: int | None, body: Any, wait: float | None) -> Trouble:
    said = find_words(body)
    kind, what = _find_kind(status, _list_codes(_find_error(body)), said)
    return Trouble(kind, what, said, status=status, retry_after=wait)


def _find_kind(status: int | None, codes: list[str], said: str) -> _Verdict:
    if not _MONEY_CODES.isdisjoint(codes) or (status == 400 and _NO_MONEY.search(said)):
        return _MONEY
    if "context_length_exceeded" in codes or (status in (400, 413, 422) and _TOO_LONG.search(said)):
        return _LONG
    telling = next((code for code in codes if code in _TELLING_CODES), None)
    status = _STATUSES[telling] if telling is not None else status
    if status is None or status < 400:
        return "garbage", "sent an answer that cannot be read"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ("busy", "reports an internal error") if status >= 500 else _REFUSES


def _find_error(body: Any) -> Any:
    match body:
        case [first, *_]:
            # Google sends a list if the error comes before the stream.
            return _find_error(first)
        case {"error": {} as error}:
            return error
        case _:
            return body


def _list_codes(error: Any) -> list[str]:
    """List the codes that a provider gives an error, the most precise first."""
    if not isinstance(error, dict):
        return []
    details = error.get("details")
    reasons = [one.get("reason") for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    found = (*reasons, *(error.get(name) for name in ("code", "type", "status")))
    return [str(code) for code in found if isinstance(code, str | int)]


def find_words(body: Any) -> str:
    """Return the provider's own message, wherever its format has it."""
    match body:
        case [first, *_]:
            return find_words(first)
        case (
            {"error": {"message": str(message)}}
            | {"message": str(message)}
            | {"error": str(message)}
            | {"detail": str(message)}
        ):
            return message
        case None:
            return ""
        case _:
            return str(body)


def _find_wait(body: Any, headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the provider asks us to wait, from a header or from Google's error details."""
    milliseconds, given = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, factor in ((milliseconds, 0.001), (given, 1.0)):
        if text is not None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()):
            return float(text) * factor
    if given is not None:
        try:
            return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
        except ValueError:
            return None
    error = _find_error(body)
    details = error.get("details") if isinstance(error, dict) else None
    for one in details if isinstance(details, list) else ():
        wait = re.fullmatch(r"([0-9.]+)s", str(one.get("retryDelay") or "")) if isinstance(one, dict) else None
        if wait is not None:
            return float(wait[1])
    return None


def without_key(text: str, key: str | None) -> str:
    """Remove the key from a text, because some providers quote a wrong key."""
    return text.replace(key, "…") if key else text
