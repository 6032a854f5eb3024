"""Lends secrets to short programs that are no runs: a probe finds them as files for as long as it lasts.

Wiring hands `Lender.lend` to the source of probes, which knows no secrets itself. The folder lies where those of runs do, in memory
where the system has such a place, and is gone when the probe is.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from wakeful.secrets.known import KnownSecrets
from wakeful.secrets.store import name_variable


class Lender:
    """`folder` is our own and closed to others."""

    def __init__(self, known: KnownSecrets, folder: str) -> None:
        self._known = known
        self._folder = folder

    @contextmanager
    def lend(self, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """The variables that name the files. Raises SecretMissing or SecretRefused, and OSError where they cannot be written."""
        if not names:
            yield {}
            return
        given = self._known.hand_out(names)
        folder = f"{self._folder}/lent-{secrets.token_hex(6)}"
        os.mkdir(folder, 0o700)
        try:
            for secret in given:
                descriptor = os.open(f"{folder}/{secret.name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with open(descriptor, "wb") as file:
                    file.write(secret.value)
            yield {name_variable(secret.name): f"{folder}/{secret.name}" for secret in given}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def redact_tail(self, tail: bytes) -> bytes:
        """The end of something longer, whose beginning may be the end of a value."""
        redactor = self._known.redactor
        return redactor.redact(redactor.trim_start(tail))
