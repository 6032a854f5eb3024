"""Caches the parsed spec files over restarts, so that a start parses only the files that changed.

settings' ProjectReader uses it; `folder_reading` still compares each reading with its file's stat key. The cache is
ignored if it cannot be read, or was made by other code or with other defaults or surroundings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from wakeful.core.spec import session as core_spec
from wakeful.core.spec.session import CommandRun
from wakeful.specs.command_words import find_program
from wakeful.specs.folder_reading import Defaults, FileReading
from wakeful.specs.spec_builder import Surroundings


class _Kept(msgspec.Struct, frozen=True):
    made_under: str
    files: dict[str, FileReading]


def load_readings(path: Path, defaults: Defaults, around: Surroundings) -> dict[str, FileReading]:
    """Load the cached readings that are still valid. Empty if the cache cannot be used."""
    try:
        kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        # The cache is missing, unreadable or of another format. The files are read instead.
        return {}
    if kept.made_under != _describe_basis(defaults, around):
        return {}
    # Cached, because ten thousand sessions run only a few programs.
    find = functools.cache(find_program)
    return {relative: reading for relative, reading in kept.files.items() if _has_same_program(reading, find)}


def save_readings(path: Path, files: Mapping[str, FileReading], defaults: Defaults, around: Surroundings) -> None:
    """Save the readings.

    Blocking. Only sessions without problems and warnings are saved, because both must be reported at every start.
    """
    taken = {
        relative: reading for relative, reading in files.items() if reading.spec is not None and not reading.warnings
    }
    fresh = path.with_name(f"{path.name}.new")
    # If the disk is full, the only effect is that the next start takes some seconds longer.
    with contextlib.suppress(OSError):
        # Only the owner may read the cache, whatever the umask, because specs may have private content.
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            stream.write(msgspec.msgpack.encode(_Kept(_describe_basis(defaults, around), taken)))
        fresh.replace(path)


def _has_same_program(reading: FileReading, find: Callable[[tuple[str, ...], str, str | None], str | None]) -> bool:
    """Is the implied program unchanged?

    Only this part of a spec depends on another file: a script may have come or gone.
    """
    spec = reading.spec
    if spec is None or not isinstance(spec.run, CommandRun):
        return True
    return find(spec.run.argv, spec.root, spec.run.cwd) == spec.program


def _describe_basis(defaults: Defaults, around: Surroundings) -> str:
    """Hash everything that a reading depends on besides its file.

    This includes the code, which a developer changes without a new version.
    """
    places = [Path(core_spec.__file__), *sorted(Path(__file__).parent.glob("*.py"))]
    code = [(place.name, (found := place.stat()).st_size, found.st_mtime_ns) for place in places]
    basis = (
        defaults.value,
        around.base,
        around.local_zone,
        sorted(around.pools),
        around.state,
        around.specs,
        sorted(around.notifiers),
        code,
        os.path.dirname(__file__),
    )
    return hashlib.blake2b(msgspec.json.encode(basis, order="sorted"), digest_size=16).hexdigest()
