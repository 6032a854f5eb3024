"""The secrets that this daemon knows: their names, the values for a run, and a redactor for every value seen so far.

The wiring makes one `KnownSecrets`, which is used on the loop. A value that was replaced stays known until the daemon
ends, because a run may still hold it. While a session needs a secret that is missing, the daemon looks for it every
second, otherwise every 30 seconds. Changes are reported to the core.
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
# Seconds between two looks while no session lacks a secret. A look finds files replaced by hand and names that came
# with a bundle.
_SELDOM_SECONDS = 30.0
_WILDCARD = re.compile(r"[*?\[]")
# The most values kept for one name. A secret that is rotated every minute must not fill the memory.
_MOST_VALUES = 16


class Known(Struct, frozen=True):
    """A secret's name, and where its value comes from now or why it cannot be used."""

    name: str
    source: Source | None
    problem: str | None = None


def decide_secrets(spec: SessionSpec, agent: AgentSpec | None = None) -> tuple[str, ...]:
    """Decide which secrets a run of this spec gets. Only this function decides it. An agent adds its models' keys."""
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
    """Reads secrets and redacts their values. Called on the loop.

    `report` receives which names have a usable value and which do not. `needed` returns the names sessions declare.
    """

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
        # The sessions whose specs, as last read, contain the value of a secret.
        self._specs_with_secrets: set[str] = set()

    def look(self, more: Iterable[str] = ()) -> None:
        """Read all secrets again. `more` has further names that sessions are about to need."""
        needed = {*self._needed(), *more}
        names = set(needed)
        # If a session asks for a variable by another name, list the variable only under that name.
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
        """Read the present values of these names.

        Raises OperatorError if one is missing or refused. Does not call `report`, because the caller may be in the
        middle of a plan, which must not be re-entered.
        """
        given = []
        for name in names:
            self._known[name] = known = self._look_at(name)
            if known.problem is not None or known.source is None:
                raise OperatorError(known.problem or f"secret {name} has no value")
            given.append(Secret(name, self._values[name][-1], known.source))
        return tuple(given)

    def remember(self, secrets: Iterable[Secret]) -> None:
        """Also redact values that runs of an earlier daemon hold. They may have been replaced since."""
        for secret in secrets:
            values = self._values.get(secret.name, ())
            if secret.value not in values:
                # Insert it at the front, because the last value of a name is the current one.
                self._values[secret.name] = (secret.value, *values)[:_MOST_VALUES]
                self.redactor = Redactor((name, value) for name, values in self._values.items() for value in values)

    def list_known(self) -> list[Known]:
        self.look()
        return list(self._known.values())

    async def keep(self) -> None:
        """Read all secrets again and again until cancelled, more often while one is missing."""
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
        """Return the present redactor. A new one replaces it when a secret changes."""
        return self.redactor

    def find(self, content: bytes) -> str | None:
        return self.redactor.find(content)

    def __bool__(self) -> bool:
        """Is any value known?"""
        return bool(self.redactor)

    def redact_text(self, text: str) -> str:
        return self.redactor.redact_text(text)

    def redact_part(self, before: str, text: str, after: str) -> str:
        return self.redactor.redact_part(before, text, after)

    def redact_tail(self, tail: bytes) -> bytes:
        """Redact the last bytes of a longer text. They may begin in the middle of a value."""
        return self.redactor.redact(self.redactor.trim_start(tail))

    def redact(self, value: Any) -> Any:
        """Redact an observation, a call or a text.

        Nearly always it contains no secret. Then the object itself is returned after one search of its bytes.
        """
        if not self._values or self.redactor.find(_pack(value)) is None:
            return value
        return _rewrite(self.redactor, value)

    def screen_agents(self, read: AgentsRead) -> AgentsRead:
        """Refuse agents whose file contains the value of a secret: it would be sent to a provider and recorded."""
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
        """Refuse specs that contain the value of a secret, which the log would keep, or open the folder of all secrets.

        `keys` has the names of the secrets that the agents of these specs need.
        """
        specs = [declared.spec for declared in read.declared]
        signing = (name for spec in specs for binding in spec.webhooks for name in binding.secrets)
        self.look((*keys, *(name for spec in specs for name in spec.secrets), *signing))
        told = {
            one.spec.name: name
            for one in read.declared
            if self.redactor and (name := self.redactor.find(_pack(one.spec))) is not None
        }
        self._specs_with_secrets -= {*read.removed, *(one.spec.name for one in read.declared)}
        self._specs_with_secrets |= told.keys()
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
    def has_specs_with_secrets(self) -> bool:
        """Does a spec, as last read, contain the value of a secret? If so, the specs must not be saved to disk."""
        return bool(self._specs_with_secrets)

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
    """Encode a value so that its texts are unescaped in the bytes and can be searched."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        # The value has a path that is not UTF-8.
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
