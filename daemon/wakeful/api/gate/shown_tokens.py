"""Reads the token of a request from the header `Authorization: Bearer`. No other place is accepted."""

from __future__ import annotations

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from wakeful.api.problems import Unauthorised

# Query parameters in which clients of other programs put tokens.
TOKEN_PARAMETERS = frozenset(("token", "access_token", "api_key", "apikey", "authorization", "bearer", "code"))


def find_shown(scope: Scope) -> str | None:
    """Read the text of the token. None if there is no such header. Raises Unauthorised if the header is malformed."""
    shown = Headers(scope=scope).getlist("authorization")
    if not shown:
        return None
    kind, _, text = shown[0].partition(" ")
    # With two headers, it would be unclear which one counts.
    if len(shown) > 1 or kind.lower() != "bearer":
        raise Unauthorised("one header is expected, Authorization: Bearer TOKEN")
    return text.strip()


def refuse_in_address(scope: Scope) -> None:
    """Raise Unauthorised if the address has a token, even a valid one. An address ends up in browser histories, in logs
    and on linked pages.
    """
    names = {name.lower() for name in QueryParams(scope["query_string"])}
    if names & TOKEN_PARAMETERS:
        raise Unauthorised(
            "a token is not taken from an address; send it as a header, Authorization: Bearer TOKEN, "
            "and revoke this one",
            "address",
        )
