"""Roles in a session: an observer looks, a contributor talks and lets it work, a maintainer does everything.

If a spec names nobody, everyone who can reach the daemon is a maintainer of the session. If a spec names people, a
person it does not name is a maintainer, too: the daemon assumes that they declared it. Runs speak for their own
session, and the API judges them. The daemon checks the role before it judges a call. How far a person gets who is not
the daemon's owner is judged by the API before that (api/gate/people.py): a spec can only narrow it.
"""

from __future__ import annotations

from wakeful.core.calls import values as calls
from wakeful.core.deciding.core import Core
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.session import Role
from wakeful.errors import CallerError

PERSON = "person:"
# From the least to the most.
ROLES: tuple[Role, ...] = ("observer", "contributor", "maintainer")


def find_called(core: Core, call: calls.Call) -> list[Session]:
    """The sessions a call is about, as far as there are any."""
    if isinstance(call, calls.SleepAll | calls.ResumeAll):
        return list(core.state)
    session_id = core.state.ids.get(call.name)
    return [core.state.get(session_id)] if session_id is not None else []


def refuse_damaged(session: Session) -> None:
    """Raise CallerError for a session whose log takes nothing because a record of it is damaged."""
    if isinstance(session, DamagedSession):
        raise CallerError(
            f"{session.name} is read-only: {session.damage}; `wakeful doctor` shows what is lost, "
            "`wakeful restore BACKUP` brings it back. "
            "Without a backup: give its spec another name, and a new session goes on"
        )


def find_role(session: Session, author: str, uid: int | None = None) -> Role:
    """By the name first, then by the uid, where that is known: a spec may say either."""
    people = session.spec.people if session.spec is not None else {}
    if not people or not author.startswith(PERSON):
        return "maintainer"
    by_uid = people.get(str(uid), "maintainer") if uid is not None else "maintainer"
    return people.get(author.removeprefix(PERSON), by_uid)


def find_smaller(role: Role, other: Role | None) -> Role:
    return role if other is None else min(role, other, key=ROLES.index)
