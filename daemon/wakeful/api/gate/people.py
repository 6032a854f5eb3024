"""The people that the daemon's owner lets in: their names and roles, kept in one file of the state folder.

A person has a role for every session, or for single sessions. The file is checked for every request, so a changed role
counts from the next request on. If other users can read the file, or it cannot be parsed, only the owner is let in. The
file also keeps the latest changes, each with its author, time and text. gate.py finds callers here, and scopes.py
decides which routes they reach.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.calls.roles import PERSON, ROLES
from wakeful.core.record.state import Session
from wakeful.core.spec.session import Role
from wakeful.errors import CallerError, OperatorError
from wakeful.system.private_files import NotOursAlone, PrivateFile, replace_private
from wakeful.text.display import count

PEOPLE_FILE = "people.json"
MOST_PEOPLE = 1_000
MOST_CHANGES = 1_000
LONGEST_NAME = 64
# The most ancestors of a fork that are searched for a role.
_MOST_PARENTS = 100
# Finds a session by its id. None if it no longer exists.
FindSession = Callable[[str], Session | None]


class PeopleUnreadable(OperatorError):
    """The file of people cannot be trusted or understood."""


class PeopleUnwritten(OperatorError):
    """The file of people could not be replaced."""


class Person(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person. `role` counts for every session. `sessions` has roles for single sessions, by id, so that a role
    follows a rename."""

    name: str
    role: Role | None = None
    sessions: dict[str, Role] = {}
    # When the person was let in, in microseconds UTC, and by whom.
    made_at: int
    made_by: str

    @property
    def is_everywhere(self) -> bool:
        """Does the person see every session?"""
        return self.role is not None

    def find_role(self, session: Session, find: FindSession) -> Role | None:
        """Find the person's role in a session: the role for this session, else for a session that it was forked from,
        else for all sessions.

        None if the person has no role there. The person must then not learn that the session exists.
        """
        at: Session | None = session
        for _ in range(_MOST_PARENTS):
            if at is None:
                break
            if at.id in self.sessions:
                return self.sessions[at.id]
            at = find(at.lineage.origin.session) if at.lineage.origin is not None else None
        return self.role


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: int
    by: str
    name: str
    words: str


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form on disk."""

    people: tuple[Person, ...] = ()
    changes: tuple[Change, ...] = ()


class _Registry(NamedTuple):
    """The people by name, and the latest changes."""

    people: dict[str, Person]
    changes: tuple[Change, ...] = ()


class People:
    """The people of one state folder. `owner` is the account of the daemon; no person may have its name.

    A change waits for the disk, so it is made in a thread. Only one change is made at a time (`ChangesInTurn`).
    """

    def __init__(self, state: Path, owner: str) -> None:
        self.path = state / PEOPLE_FILE
        self._owner = owner
        self._file = PrivateFile(self.path, _decode, _Registry({}))

    def find(self, name: str) -> Person | None:
        return self._read().people.get(name)

    def list_all(self) -> list[Person]:
        return sorted(self._read().people.values(), key=lambda one: one.name)

    def list_changes(self) -> tuple[Change, ...]:
        """List the latest changes, oldest first."""
        return self._read().changes

    def add(self, name: str, role: Role, session: str | None, words: str, *, by: str, now: int) -> Person:
        """Let a person in. The change is durable when this returns. `session` is an id, or None for every session."""
        people = self._read().people
        self._refuse_name(name)
        if name in people:
            raise CallerError(f"{name} is known already; `wakeful people role {name} --role {role}` changes their role")
        if len(people) >= MOST_PEOPLE:
            raise CallerError(f"there are {len(people)} people already; remove those who are gone")
        person = Person(
            name=name,
            role=role if session is None else None,
            sessions={session: role} if session is not None else {},
            made_at=now,
            made_by=by,
        )
        self._keep(name, person, Change(at=now, by=by, name=name, words=words))
        return person

    def set_role(self, name: str, role: Role | None, session: str | None, words: str, *, by: str, now: int) -> Person:
        """Change a person's role, or remove it if `role` is None. `session` is an id, or None for every session."""
        known = self.get(name)
        if session is None:
            person = replace(known, role=role)
        elif role is None:
            person = replace(known, sessions={one: its for one, its in known.sessions.items() if one != session})
        else:
            person = replace(known, sessions={**known.sessions, session: role})
        if person.role is None and not person.sessions:
            raise CallerError(f"{name} would have no role left; `wakeful people remove {name}` removes them")
        if person == known:
            raise CallerError(f"{name} already has that role; nothing was changed")
        self._keep(name, person, Change(at=now, by=by, name=name, words=words))
        return person

    def remove(self, name: str, words: str, *, by: str, now: int) -> Person:
        person = self.get(name)
        self._keep(name, None, Change(at=now, by=by, name=name, words=words))
        return person

    def get(self, name: str) -> Person:
        person = self.find(name)
        if person is None:
            known = ", ".join(one.name for one in self.list_all()[:10])
            raise CallerError(
                f"no person is called {name!r} here"
                + (f"; known are {known}" if known else "; `wakeful people add NAME --role ROLE` lets a person in")
            )
        return person

    def _refuse_name(self, name: str) -> None:
        if name == self._owner:
            raise CallerError(
                f"{name} is the account that this daemon runs as: its owner, who may do everything; choose another name"
            )
        is_plain = all(sign.isalnum() or sign in "._-@" for sign in name)
        if not 0 < len(name) <= LONGEST_NAME or not is_plain or not name[0].isalnum():
            raise CallerError(
                f"{name!r} is not a name for a person; expected letters, digits and . _ - @, at most "
                f"{LONGEST_NAME} characters, beginning with a letter or digit"
            )
        # Specs may also name people by uid.
        if name.isdecimal():
            raise CallerError(f"{name!r} is a number, and would be taken for a uid; choose a name with a letter")

    def _keep(self, name: str, person: Person | None, change: Change) -> None:
        registry = self._read()
        people = {known: one for known, one in registry.people.items() if known != name}
        if person is not None:
            people[name] = person
        self._write(_File(people=tuple(people.values()), changes=(*registry.changes, change)[-MOST_CHANGES:]))

    def _read(self) -> _Registry:
        try:
            return self._file.read()
        except NotOursAlone as error:
            raise PeopleUnreadable(
                f"{error}: only the owner is let in; check the file, then chmod 600 {self.path}"
            ) from error
        except (OSError, msgspec.DecodeError) as error:
            raise PeopleUnreadable(
                f"{self.path} cannot be read ({error}): only the owner is let in; correct it, or remove it and add "
                "the people again"
            ) from error

    def _write(self, file: _File) -> None:
        content = msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"
        try:
            replace_private(self.path, content)
        except OSError as error:
            raise PeopleUnwritten(f"{self.path} cannot be written: {error.strerror}; no role was changed") from error


def _decode(content: bytes) -> _Registry:
    file = msgspec.json.decode(content, type=_File)
    return _Registry({one.name: one for one in file.people}, file.changes)


def list_roles(people: People, session: Session, find: FindSession) -> dict[str, Role]:
    """List the roles of all people who have one in this session, by the author that the log names. A role counts if it
    is for this session, for a session that this session was forked from, or for every session."""
    found = {f"{PERSON}{one.name}": one.find_role(session, find) for one in people.list_all()}
    return {author: role for author, role in found.items() if role is not None}


def is_enough(role: Role | None, needed: Role) -> bool:
    return role is not None and ROLES.index(role) >= ROLES.index(needed)


def say_reach(person: Person, name_session: Callable[[str], str]) -> str:
    """Describe a person's roles: "contributor of payroll"."""
    parts = [f"{person.role} of every session"] if person.role is not None else []
    parts += [f"{role} of {name_session(one)}" for one, role in person.sessions.items()]
    return ", ".join(parts) if len(parts) <= 3 else f"{parts[0]}, and {count(len(parts) - 1, 'role')} more"
