"""The daemon's side of a verb that is a call: the calls that its body may become, and the work before and after each.

`lifecycle_calls` and `history_calls` fill in these values, and `routes/calls.py` lists them for every verb. This module
is separate because all of these modules import it. The table of verbs does not import it, so that the command line can
import the table without the daemon.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct

from wakeful.api.contract import Service
from wakeful.core.calls import call_types as calls

# Fields that are added to an answer, or replace fields of it.
More = dict[str, Any]


class Preview(Struct, frozen=True):
    """The findings of a dry run, in which nothing is recorded."""

    words: str
    found: dict[str, Any]


class Done(Struct, frozen=True, kw_only=True):
    """A call that is on disk: the body of the request, the call made from it, the answer, and the author."""

    body: Any
    call: Any
    reply: calls.Reply
    author: str


class CallSteps(Struct, frozen=True, kw_only=True):
    """How the daemon carries out one verb."""

    # The calls that the body may become. Without `prepare`, the body becomes the first of them, field by field.
    makes: tuple[type[calls.Call], ...]
    # Makes the call, if something has to be looked up or checked first. A dry run gives a preview instead.
    prepare: Callable[[Service, Any], Awaitable[calls.Call | Preview]] | None = None
    # Surrounds the call, to undo the preparation if the call is refused.
    around: Callable[[Service, Any], AbstractAsyncContextManager[None]] | None = None
    # Runs when the call is durable.
    finish: Callable[[Service, Done], Awaitable[More]] | None = None
    # Runs when a call is repeated with its idempotency key. The first call is recorded, but its `finish` may not have
    # completed.
    finish_again: Callable[[Service, Any, str, str], Awaitable[More]] | None = None
    # The type of the body's argument of kind `object`.
    object_type: type[Struct] | None = None
    # Returns True if only the daemon's own user may do this, without a token, because the session does not exist yet.
    is_owners: Callable[[Service, Any], bool] | None = None
    # True if a run may name another session in the call, and becomes the sender. All other calls of a run are about
    # its own session.
    is_to_others: bool = False
