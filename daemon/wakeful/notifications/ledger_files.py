"""The ledgers of notifiers on disk: one small file each, replaced atomically. Blocking: called off the loop."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from wakeful.notifications.ledger import Ledger
from wakeful.system.private_files import make_private, replace_private

FOLDER = "notify"


class LedgerFiles:
    """The files in the folder `notify` of the state folder, by the name of the notifier."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    def read(self, name: str) -> tuple[Ledger | None, str | None]:
        """Read a ledger. The first value is None if there is none. The second is a message if the file is unusable.

        An unusable file is renamed, so that the next ledger does not overwrite it.
        """
        path = self._place(name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Ledger), None
        except FileNotFoundError:
            return None, None
        except (msgspec.DecodeError, OSError) as error:
            aside = path.with_suffix(".broken")
            words = (
                f"{path} cannot be read ({error}); notifier {name} starts again, and the file is kept as {aside.name}"
            )
            os.replace(path, aside)
            return None, words

    def write(self, name: str, ledger: Ledger) -> None:
        make_private(self.folder)
        replace_private(self._place(name), msgspec.json.encode(ledger) + b"\n")

    def _place(self, name: str) -> Path:
        return self.folder / f"{name}.json"
