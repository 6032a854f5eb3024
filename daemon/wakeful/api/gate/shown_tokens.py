"""The token that a request shows: in the header `Authorization: Bearer`, and nowhere else."""

from __future__ import annotations

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from wakeful.api.problems import Unauthorised

# The names under which clients of other programs put tokens into addresses.
TOKEN_PARAMETERS = frozenset(("token", "access_token", "api_key", "apikey", "authorization", "bearer", "code"))


def find_shown(scope: Scope) -> str | None:
    """The text of the token; None where there is no such header. Raises Unauthorised where there is something else."""
    shown = Headers(scope=scope).getlist("authorization")
    if not shown:
        return None
    kind, _, text = shown[0].partition(" ")
    # Which of two would count is nobody's to guess.
    if len(shown) > 1 or kind.lower() != "bearer":
        raise Unauthorised("one header is expected, Authorization: Bearer TOKEN")
    return text.strip()


def refuse_in_address(scope: Scope) -> None:
    """A token in an address ends up in histories, logs and the pages that are linked to: it is not taken there, also
    a good one.
    """
    names = {name.lower() for name in QueryParams(scope["query_string"])}
    if names & TOKEN_PARAMETERS:
        raise Unauthorised(
            "a token is not taken from an address; send it as a header, Authorization: Bearer TOKEN, "
            "and revoke this one",
            "address",
        )
