"""The rule of every call: the function that judges it, the first kinds of its records, and the role that may make it.

Separate from `roles.py`, because views and agents need the roles, but never the functions that judge.
"""

from __future__ import annotations

from wakeful.core.calls.agent_steps import AGENT_CALLS
from wakeful.core.calls.call_types import Call
from wakeful.core.calls.history import HISTORY_CALLS
from wakeful.core.calls.lifecycle import LIFECYCLE_CALLS, CallRule
from wakeful.core.calls.roles import PERSON, find_role
from wakeful.core.record.state import Session
from wakeful.errors import CallerError

CALL_RULES: dict[type[Call], CallRule] = {**LIFECYCLE_CALLS, **HISTORY_CALLS, **AGENT_CALLS}


def refuse_by_role(session: Session, call: Call, author: str, uid: int | None = None) -> None:
    """Raise CallerError if the author's role does not allow the call. `uid` is set if the kernel reported it."""
    role = find_role(session, author, uid)
    what = type(call).__name__.lower()
    if role == "observer":
        raise CallerError(
            f"{author.removeprefix(PERSON)} is an observer of {session.name}: it may look, and not {what}; "
            "its spec names the people"
        )
    if role == "contributor" and CALL_RULES[type(call)].role == "maintainer":
        raise CallerError(
            f"{author.removeprefix(PERSON)} is a contributor to {session.name}; only its maintainers may {what}; "
            "its spec names them"
        )
