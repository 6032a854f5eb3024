"""The daemon's side of a verb that is a call: the calls its body may become, and what is done before and after each.

A verb needs an entry for its call here or in `lifecycle_calls`, `history_calls` or `trace`; `calls` joins them. The
functions of an entry stand with their verb. The table of verbs itself knows nothing of them, so that the command line
can import it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct

from wakeful.api.service import Service
from wakeful.core.calls import values as calls

# More fields of an answer, or fields that replace those it has.
More = dict[str, Any]


class Preview(Struct, frozen=True):
    """The findings of a dry run: nothing was recorded."""

    words: str
    found: dict[str, Any]


class Done(Struct, frozen=True, kw_only=True):
    """A call that is on disk: what was asked, the call it became, its answer, and who asked."""

    body: Any
    call: Any
    reply: calls.Reply
    author: str


class CallSteps(Struct, frozen=True, kw_only=True):
    """How the daemon carries out one verb."""

    # The calls that its body may become. Without `prepare` it becomes the first one, field by field.
    makes: tuple[type[Struct], ...]
    # Makes the call, where something has to be looked up or checked first; a dry run gives a preview instead.
    prepare: Callable[[Service, Any], Awaitable[calls.Call | Preview]] | None = None
    # Surrounds the call itself: takes back what was prepared where the call is refused.
    around: Callable[[Service, Any], AbstractAsyncContextManager[None]] | None = None
    # Done once the call is durable.
    finish: Callable[[Service, Done], Awaitable[More]] | None = None
    # Done when a call is repeated with its key: the first one is recorded, but its `finish` may not have come to its
    # end.
    finish_again: Callable[[Service, Any, str, str], Awaitable[More]] | None = None
    # The type of the body's argument that is an object.
    object_type: type[Struct] | None = None
    # Whether only the daemon's own user may do this, without a token: it concerns the machine, and no session yet.
    is_owners: Callable[[Service, Any], bool] | None = None
    # A run names the other session, and is the sender. Every other call of a run is about its own session.
    is_to_others: bool = False
