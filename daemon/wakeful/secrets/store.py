"""Reads the values of secrets from systemd's credentials, our own files, or the daemon's environment, in this order.

A value is read whenever a run needs it, so a new value is used from the next run on. A file that other users can read
is refused with a message. Blocking, for a few small reads. This module caches no values, and the repr of a `Secret`
shows only its name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from wakeful.core.spec.session import SECRET_NAME, say_missing
from wakeful.errors import CallerError, OperatorError
from wakeful.secrets.secret_encodings import LONGEST_BYTES, find_unfitness
from wakeful.system.private_files import make_private, replace_private

Source = Literal["credential", "file", "environment"]
VARIABLE_PREFIX = "WAKEFUL_SECRET_"
NAME = re.compile(SECRET_NAME)
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class SecretMissing(OperatorError):
    """No place has a secret of this name."""


class SecretRefused(OperatorError):
    """The secret exists and cannot be used as it is."""


class Secret(Struct, frozen=True):
    """A name and its value at one moment."""

    name: str
    value: bytes
    source: Source

    def __repr__(self) -> str:
        return f"[secret {self.name}]"


class SecretPlaces(Struct, frozen=True):
    """The places in which secrets are looked for.

    `credentials` is $CREDENTIALS_DIRECTORY, None without systemd. `folder` need not exist. The keys of `variables` are
    the full names of environment variables.
    """

    folder: str
    credentials: str | None = None
    variables: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"SecretPlaces({self.folder!r}, {self.credentials!r}, {sorted(self.variables)})"


def take_secret_places(folder: str, environ: MutableMapping[str, str]) -> SecretPlaces:
    """Return the places in which this daemon looks for secrets.

    Removes the variables with secrets from the environment, so that no child process inherits them.
    """
    names = [name for name in environ if name.startswith(VARIABLE_PREFIX)]
    return SecretPlaces(
        folder,
        environ.get("CREDENTIALS_DIRECTORY") or None,
        {name: value for name in names if (value := environ.pop(name))},
    )


def name_variable(name: str) -> str:
    """Name the environment variable of a secret: `gh-token` becomes WAKEFUL_SECRET_GH_TOKEN."""
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9_]", "_", name.upper())


def find_name_problem(name: str) -> str | None:
    if NAME.fullmatch(name):
        return None
    return (
        f"{name!r} cannot be a secret's name: begin with a letter, continue with letters, digits, '_', '-' and '.', "
        "at most 64 in all"
    )


def find_secret(places: SecretPlaces, name: str) -> Secret:
    """Read a secret from the first place that has it. Raises SecretMissing or SecretRefused, with what to do."""
    wrong = find_name_problem(name)
    if wrong is not None:
        raise SecretRefused(wrong)
    if places.credentials is not None and os.path.lexists(path := f"{places.credentials}/{name}"):
        # systemd protects these files, and their modes differ between its releases, so they are not checked.
        return _fit(Secret(name, _read(path, is_ours=False), "credential"), path)
    if os.path.lexists(path := f"{places.folder}/{name}"):
        _check_folder(places.folder)
        return _fit(Secret(name, _read(path, is_ours=True), "file"), path)
    variable = name_variable(name)
    if variable in places.variables:
        return _fit(Secret(name, os.fsencode(places.variables[variable]), "environment"), f"the variable {variable}")
    raise SecretMissing(say_missing(name))


def list_names(places: SecretPlaces) -> dict[str, Source]:
    """List the names of all secrets, and where each is taken from.

    The name for an environment variable is the variable's name without its prefix.
    """
    found: dict[str, Source] = {name.removeprefix(VARIABLE_PREFIX): "environment" for name in places.variables}
    found |= dict.fromkeys(_list(places.folder), "file")
    if places.credentials is not None:
        found |= dict.fromkeys(_list(places.credentials), "credential")
    return {name: found[name] for name in sorted(found) if NAME.fullmatch(name)}


def save_secret(folder: str, name: str, value: bytes) -> None:
    """Write the secret's file atomically, readable only by this user. Raises CallerError if name or value is unfit."""
    wrong = find_name_problem(name) or find_unfitness(value)
    if wrong is not None:
        raise CallerError(f"secret {name}: {wrong}" if NAME.fullmatch(name) else wrong)
    make_private(folder)
    _check_folder(folder)
    # A crash leaves at worst a file whose name begins with a dot, which is never taken for a secret.
    replace_private(Path(folder, name), value)


def remove_secret(folder: str, name: str) -> None:
    if (wrong := find_name_problem(name)) is not None:
        raise CallerError(wrong)
    try:
        os.unlink(f"{folder}/{name}")
    except FileNotFoundError:
        raise CallerError(
            f"there is no secret {name} in {folder}; wakeful secret list shows where it comes from"
        ) from None


def _check_folder(folder: str) -> None:
    found = os.stat(folder)
    if found.st_uid != os.geteuid():
        raise SecretRefused(
            f"{folder} belongs to user {found.st_uid}, not to us ({os.geteuid()}): no secret is taken from it; chown it"
        )
    if found.st_mode & 0o077:
        raise SecretRefused(
            f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):04o}): no secret is taken from it; "
            f"chmod 700 {folder}"
        )


def _read(path: str, *, is_ours: bool) -> bytes:
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        raise SecretRefused(
            f"{path} cannot be read: {error.strerror}; a secret must be a regular file, not a link"
        ) from error
    try:
        _check_file(path, os.fstat(descriptor), is_ours=is_ours)
        return os.read(descriptor, LONGEST_BYTES + 1)
    finally:
        os.close(descriptor)


def _check_file(path: str, found: os.stat_result, *, is_ours: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretRefused(f"{path} is not a regular file; put the value itself there")
    if is_ours and found.st_uid != os.geteuid():
        raise SecretRefused(f"{path} belongs to user {found.st_uid}, not to us ({os.geteuid()}); chown it")
    if is_ours and found.st_mode & 0o077:
        raise SecretRefused(
            f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o}); change the secret where it was made, "
            f"and chmod 600 {path}"
        )


def _fit(secret: Secret, where: str) -> Secret:
    wrong = find_unfitness(secret.value)
    if wrong is not None:
        raise SecretRefused(f"secret {secret.name} in {where}: {wrong}")
    return secret


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        # The folder is missing or not readable. A session that needs a secret from it is held with a message.
        return []
