"""The secrets this daemon knows: which there are, what a run is given, and the redactor of every value seen.

Wiring makes one; it lives on the loop. A value that was replaced stays known until the daemon ends, because a run may
still hold it. What is missing is looked for again every second while a session needs it,
and told to the core; otherwise once in a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.core.record.observations import AgentsRead, SecretsSeen, SpecsRead
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import OperatorError
from wakeful.secrets.redact import Redactor
from wakeful.secrets.store import Secret, SecretPlaces, Source, find_secret, list_names, name_variable

_LOOK_SECONDS = 1.0
# While nobody lacks one: files that were replaced by hand, and names that came by a bundle.
_SELDOM_SECONDS = 30.0
_WILDCARD = re.compile(r"[*?\[]")
# Values of one name: a secret that is rotated every minute must not fill the memory.
_MOST_VALUES = 16


class Known(Struct, frozen=True):
    """One name as it stands: where its value comes from, or why it cannot be used."""

    name: str
    source: Source | None
    problem: str | None = None


def decide_secrets(spec: SessionSpec, agent: AgentSpec | None = None) -> tuple[str, ...]:
    """The names a run of this spec is given: the one place that decides it. An agent brings the keys of its models."""
    return spec.secrets if agent is None else tuple(dict.fromkeys((*spec.secrets, *agent.secrets)))


def find_opening(spec: SessionSpec, folder: str) -> str | None:
    """Find the place in a spec that lets its runs read the folder of all secrets.

    Landlock grants whole folders and cannot exclude a part of one.
    """
    if not spec.confinement.is_enforced:
        return None
    patterns = (
        binding.pattern for binding in spec.files if binding.access == "read" and _WILDCARD.search(binding.pattern)
    )
    places = (
        *spec.confinement.allow_read,
        *spec.confinement.allow_write,
        *(os.path.dirname(_WILDCARD.split(text, 1)[0]) for text in patterns),
    )
    for place in places:
        opened = os.path.normpath(os.path.join(spec.root, place)).rstrip("/")
        if f"{folder}/".startswith(f"{opened}/") or opened.startswith(f"{folder}/"):
            return place or "."
    return None


class KnownSecrets:
    """`report` takes what is there and what is not; `needed` says which names sessions declare now."""

    def __init__(
        self, places: SecretPlaces, report: Callable[[SecretsSeen], None], needed: Callable[[], Iterable[str]]
    ) -> None:
        self.places = places
        self.redactor = Redactor()
        self._report = report
        self._needed = needed
        self._values: dict[str, tuple[bytes, ...]] = {}
        self._known: dict[str, Known] = {}
        self._seen: SecretsSeen | None = None
        self._lacking = asyncio.Event()
        # Sessions whose specs hold a value as they stand.
        self._outspoken: set[str] = set()

    def look(self, more: Iterable[str] = ()) -> None:
        """Read all there is anew; `more` are names that sessions are about to need."""
        needed = {*self._needed(), *more}
        names = set(needed)
        # A variable is known by the name that is asked for, where one is.
        asked = {name_variable(name) for name in names}
        names.update(
            name
            for name, source in list_names(self.places).items()
            if source != "environment" or name_variable(name) not in asked
        )
        self._known = {name: self._look_at(name) for name in sorted(names)}
        if any(self._known[name].problem is not None for name in needed):
            self._lacking.set()
        else:
            self._lacking.clear()
        self._tell()

    def hand_out(self, names: Iterable[str]) -> tuple[Secret, ...]:
        """The values as they are now.

        Raises OperatorError where one is missing or refused. Reports nothing:
        the caller may be in the middle of a plan.
        """
        given = []
        for name in names:
            self._known[name] = known = self._look_at(name)
            if known.problem is not None or known.source is None:
                raise OperatorError(known.problem or f"secret {name} has no value")
            given.append(Secret(name, self._values[name][-1], known.source))
        return tuple(given)

    def remember(self, secrets: Iterable[Secret]) -> None:
        """Values that runs of an earlier daemon hold: they may have been replaced since,
        and are redacted all the same."""
        for secret in secrets:
            values = self._values.get(secret.name, ())
            if secret.value not in values:
                # In front: the last one is the one in force.
                self._values[secret.name] = (secret.value, *values)[:_MOST_VALUES]
                self.redactor = Redactor((name, value) for name, values in self._values.items() for value in values)

    def list_known(self) -> list[Known]:
        self.look()
        return list(self._known.values())

    async def keep(self) -> None:
        """Until cancelled: look again, soon while something is missing."""
        while True:
            try:
                async with asyncio.timeout(_SELDOM_SECONDS):
                    await self._lacking.wait()
                await asyncio.sleep(_LOOK_SECONDS)
            except TimeoutError:
                pass
            self.look()

    def has_secret(self, content: bytes) -> bool:
        """Does this content hold the value of a known secret?"""
        return self.find(content) is not None

    def find_redactor(self) -> Redactor:
        """The redactor of now. Another one replaces it when a secret changes."""
        return self.redactor

    def find(self, content: bytes) -> str | None:
        return self.redactor.find(content)

    def __bool__(self) -> bool:
        """Is there anything to be found?"""
        return bool(self.redactor)

    def redact_text(self, text: str) -> str:
        return self.redactor.redact_text(text)

    def redact_part(self, before: str, text: str, after: str) -> str:
        return self.redactor.redact_part(before, text, after)

    def redact_tail(self, tail: bytes) -> bytes:
        """The end of something longer, whose beginning may be the end of a value."""
        return self.redactor.redact(self.redactor.trim_start(tail))

    def redact(self, value: Any) -> Any:
        """An observation, a call or a text without the values of secrets.

        Nearly always the very same, after one search of its bytes.
        """
        redactor = self.redactor
        if not redactor or redactor.find(_pack(value)) is None:
            return value
        return _rewrite(redactor, value)

    def screen_agents(self, read: AgentsRead) -> AgentsRead:
        """Agents as they may count: one that holds a value is left out, since a provider would be told it,
        and the log."""
        told = {
            name: secret
            for name, agent in read.agents.items()
            if self.redactor and (secret := self.redactor.find(_pack(agent))) is not None
        }
        if not told:
            return read
        words = {
            name: f"its file holds the value of the secret {secret}: take it out, name the secret under key, "
            "and change it"
            for name, secret in told.items()
        }
        return AgentsRead(
            agents={name: one for name, one in read.agents.items() if name not in told},
            refused={**read.refused, **words},
        )

    def screen(self, read: SpecsRead, keys: Iterable[str] = ()) -> SpecsRead:
        """Specs as they may be declared: one that holds a value is refused, since the log would keep it,
        and one that opens them all.

        `keys` are those that the agents of these will need."""
        specs = [declared.spec for declared in read.declared]
        signing = (name for spec in specs for binding in spec.webhooks for name in binding.secrets)
        self.look((*keys, *(name for spec in specs for name in spec.secrets), *signing))
        told = {
            one.spec.name: name
            for one in read.declared
            if self.redactor and (name := self.redactor.find(_pack(one.spec))) is not None
        }
        self._outspoken -= {*read.removed, *(one.spec.name for one in read.declared)}
        self._outspoken |= told.keys()
        refused = {
            spec: f"its spec holds the value of the secret {name}: list the name under secrets, read it from the "
            f"file in ${name_variable(name)}, and change the secret"
            for spec, name in told.items()
        }
        folder = self.places.folder
        for one in read.declared if os.path.isdir(folder) else ():
            if (place := find_opening(one.spec, folder)) is not None:
                refused[one.spec.name] = (
                    f"'{place}' would open every secret in {folder} to its runs: name what they need below it, "
                    "and list secrets by name"
                )
        if not refused:
            return read
        return msgspec.structs.replace(
            read,
            declared=tuple(one for one in read.declared if one.spec.name not in refused),
            refused={**read.refused, **refused},
        )

    @property
    def has_outspoken_specs(self) -> bool:
        """Whether a spec as it was read holds a value: what was read must not be kept."""
        return bool(self._outspoken)

    def _look_at(self, name: str) -> Known:
        try:
            secret = find_secret(self.places, name)
        except OperatorError as error:
            return Known(name, None, str(error))
        except OSError as error:
            return Known(name, None, f"the secret {name} cannot be read: {error}")
        values = self._values.get(name, ())
        if not values or values[-1] != secret.value:
            self._values[name] = (*(value for value in values if value != secret.value), secret.value)[-_MOST_VALUES:]
            self.redactor = Redactor((name, value) for name, values in self._values.items() for value in values)
        return Known(name, secret.source)

    def _tell(self) -> None:
        seen = SecretsSeen(found={name: known.problem for name, known in self._known.items()})
        if seen != self._seen:
            self._seen = seen
            self._report(seen)


class RedactingFormatter(logging.Formatter):
    """Redacts log messages of libraries: messages and tracebacks may quote arguments."""

    def __init__(self, known: KnownSecrets) -> None:
        super().__init__()
        self._known = known

    def format(self, record: logging.LogRecord) -> str:
        return self._known.redact_text(super().format(record))


def _pack(value: Any) -> bytes:
    """Its texts as they are, one after the other."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        # A path that is no UTF-8.
        return repr(value).encode("utf-8", "backslashreplace")


def _rewrite(redactor: Redactor, value: Any) -> Any:
    match value:
        case str():
            return redactor.redact_text(value)
        case bytes():
            return redactor.redact(value)
        case Struct():
            changed = {name: _rewrite(redactor, getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **changed)
        case dict():
            return {_rewrite(redactor, key): _rewrite(redactor, one) for key, one in value.items()}
        case tuple() | list() | frozenset():
            return type(value)(_rewrite(redactor, one) for one in value)
        case _:
            return value
