"""Trust in the daemon's own wakeful.yaml: it is in force as it is edited, unless it changed while a run could write it.

A run that may write next to sessions.d/ could put a wakeful.yaml there, with `allow_unisolated` or other defaults. The
text in force is stored in the ledger at every change. So it can be compared with a changed text and used in its place,
also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wakeful.trust.ledger import ABSENT, Ledger, digest_content

# Decides whether a path is in doubt from now on. The second argument is the digest of the text in force before, or None
# if there was no file.
Doubt = Callable[[str, str | None], bool]


class SettingsTrust:
    """Decides which settings are in force.

    `beside` is the file next to sessions.d/. If there is no such file, the person's own settings are in force.
    """

    def __init__(self, ledger: Ledger, beside: Path, doubt: Doubt) -> None:
        self._ledger = ledger
        self._beside = beside
        self._doubt = doubt

    def find_doubted(self, path: Path) -> tuple[str, str, bytes] | None:
        """Return the doubted path, its present digest, and the text that is in force instead.

        None if nothing is doubted.
        """
        for file in dict.fromkeys((self._beside, path)):
            text = _read(file)
            if not self._is_good(file, text):
                before = self._ledger.find_text(str(file))
                # There was no file next to the specs, so the person's own settings were in force.
                own = _read(path) if before is None and path != file else None
                return str(file), _digest(text), before or own or b""
        return None

    def _is_good(self, file: Path, text: bytes | None) -> bool:
        pages, name = self._ledger.pages, str(file)
        known = pages.trusted.get(name)
        if known == _digest(text):
            if name in pages.doubted:
                self._ledger.clear(name)
            return True
        if name in pages.doubted:
            return False
        if known is not None and self._doubt(name, None if known == ABSENT else known):
            return False
        self._ledger.trust({name: text})
        return True


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes() if file.is_file() else None
    except OSError:
        # The reader of the settings gets the same error, and reports it.
        return None


def _digest(text: bytes | None) -> str:
    return ABSENT if text is None else digest_content(text)
