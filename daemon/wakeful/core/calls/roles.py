"""Roles in a session: an observer looks, a contributor talks and lets it work, a maintainer does everything.

If a spec names no people, everyone who can reach the daemon is a maintainer of the session. If it names people, a
person whom it does not name is a maintainer too, because the daemon assumes that they declared it. Roles apply only to
people; the API checks the calls of runs. The daemon checks the role before it judges a call. For a person who is not
the daemon's owner, the API has a check of its own before that (api/gate/people.py), which a spec can only narrow.
This is a separate module, because `call_rules.py` imports the modules that judge calls, and those import this one.
"""

from __future__ import annotations

from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.session import Role
from wakeful.errors import CallerError

PERSON = "person:"
# The roles, from the fewest permissions to the most.
ROLES: tuple[Role, ...] = ("observer", "contributor", "maintainer")


def find_called(core: Core, call: calls.Call) -> list[Session]:
    """List the sessions that a call is about. Empty if there is no such session."""
    if isinstance(call, calls.SleepAll | calls.ResumeAll):
        return list(core.state)
    session = core.state.find_named(call.name)
    return [session] if session is not None else []


def refuse_damaged(session: Session) -> None:
    """Raise CallerError if the session's log accepts nothing because a record of it is damaged."""
    if isinstance(session, DamagedSession):
        raise CallerError(
            f"{session.name} is read-only: {session.damage}; `wakeful doctor` shows what is lost, "
            "`wakeful restore BACKUP` brings it back. "
            "Without a backup: give its spec another name, and a new session goes on"
        )


def find_role(session: Session, author: str, uid: int | None = None) -> Role:
    """Return the role of an author. A spec may list people by name or by uid; the name counts first."""
    people = session.spec.people if session.spec is not None else {}
    if not people or not author.startswith(PERSON):
        return "maintainer"
    by_uid = people.get(str(uid), "maintainer") if uid is not None else "maintainer"
    return people.get(author.removeprefix(PERSON), by_uid)


def find_smaller(role: Role, other: Role | None) -> Role:
    return role if other is None else min(role, other, key=ROLES.index)
