"""The sessions that a caller may see, and their role in each.

The daemon's own user sees every session. A person with a role for single sessions sees those sessions and their forks.
No list, search, stream or causal chain names any other session to them. Streams check again for each line, because a
role may be taken away while a stream is open.
"""

from __future__ import annotations

from wakeful.api.gate.callers import Caller
from wakeful.api.gate.people import People
from wakeful.core.record.state import Session, State
from wakeful.core.spec.session import Role


class VisibleSessions:
    """The sessions and records that one caller may see."""

    def __init__(self, state: State, people: People, caller: Caller) -> None:
        self._state = state
        self._people = people
        self._caller = caller

    @property
    def is_whole(self) -> bool:
        """Does the caller see every session? Valid for one answer: the role is not looked up again."""
        return self._caller.member is None or self._caller.member.is_everywhere

    def list_ids(self) -> frozenset[str] | None:
        """List the ids of the sessions that the caller sees, or None if they see all. Valid for one answer."""
        if self.is_whole:
            return None
        return frozenset(one.id for one in self._state if self.find_role(one) is not None)

    def sees(self, session_id: str) -> bool:
        """Does the caller see this session now? The role is looked up again at each call."""
        if self._caller.member is None:
            return True
        member = self._people.find(self._caller.member.name)
        if member is None:
            return False
        session = self._state.sessions.get(session_id)
        if session is None:
            return member.is_everywhere
        return member.find_role(session, self._state.sessions.get) is not None

    def sees_name(self, name: str) -> bool:
        session_id = self._state.ids.get(name)
        return self._caller.member is None or (session_id is not None and self.sees(session_id))

    def find_role(self, session: Session) -> Role | None:
        member = self._caller.member
        return member.find_role(session, self._state.sessions.get) if member is not None else "maintainer"
