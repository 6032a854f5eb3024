"""The ledger of trust, in the state folder: attached projects, and the digest and text of every trusted file.

It is not part of the log, because a log can come from elsewhere in a bundle. No run can write to it, because the state
folder is out of reach of all runs. It is written whole, by rename. A ledger that cannot be read stops the daemon,
because without it everything would look new.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.errors import OperatorError
from wakeful.system.private_files import make_private

# Stored in place of a digest if a person trusted that there is no such file.
ABSENT = "absent"


class Project(Struct, frozen=True, kw_only=True):
    """A folder that holds a sessions.d/ of its own. Its sessions are called `name/…`."""

    name: str
    folder: str
    # Set by `wakeful trust DIR`. The folder is then followed as it is edited, unless others can write it.
    is_followed: bool = False

    @property
    def specs(self) -> str:
        return os.path.join(self.folder, "sessions.d")


class Pages(Struct, frozen=True, kw_only=True):
    projects: dict[str, Project] = {}
    # By path: the digest of the content that a person trusted there.
    trusted: dict[str, str] = {}
    # By path, for files in a followed folder: the reason why the file is no longer followed. It changed while a run
    # could write it.
    doubted: dict[str, str] = {}


class Ledger:
    """Reads and writes the ledger in `folder`, which is made at the first write.

    Used by the loop and by the thread that reads specs.
    """

    def __init__(self, folder: Path, find_secret: Callable[[bytes], str | None] = lambda content: None) -> None:
        """A text in which `find_secret` finds the value of a secret is trusted by its digest, and is not stored."""
        self._folder = folder
        self._file = folder / "ledger.json"
        self._find_secret = find_secret
        # Held from reading the pages until they are replaced, so that two writers cannot overwrite each other's
        # changes.
        self._lock = threading.Lock()
        self.pages = self._load()

    def _load(self) -> Pages:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Pages)
        except FileNotFoundError:
            return Pages()
        except (OSError, msgspec.DecodeError) as error:
            words = (
                f"{self._file} cannot be read ({error}); put it back from a backup, "
                "or remove it and trust every project again"
            )
            raise OperatorError(words) from None

    # -- projects -----------------------------------------------------------------------------

    def attach(self, project: Project) -> None:
        with self._lock:
            self._write(replace(self.pages, projects={**self.pages.projects, project.name: project}))

    def detach(self, name: str) -> None:
        with self._lock:
            pages = self.pages
            left = {key: one for key, one in pages.projects.items() if key != name}
            # If the project is attached again, a person must trust it again.
            inside = f"{pages.projects[name].folder}/"
            trusted = {path: digest for path, digest in pages.trusted.items() if not path.startswith(inside)}
            self._write(replace(pages, projects=left, trusted=trusted))

    # -- texts --------------------------------------------------------------------------------

    def trust(self, files: dict[str, bytes | None]) -> None:
        """Trust these contents at these paths. None as content trusts that there is no file."""
        digests = {path: ABSENT if content is None else self._keep(content) for path, content in files.items()}
        with self._lock:
            doubted = {path: words for path, words in self.pages.doubted.items() if path not in files}
            self._write(replace(self.pages, trusted={**self.pages.trusted, **digests}, doubted=doubted))

    def doubt(self, path: str, words: str, digest: str | None) -> None:
        """Stop following the present text at this path. `digest` is the digest of the text that was in force before."""
        with self._lock:
            trusted = {**self.pages.trusted, path: digest or ABSENT}
            self._write(replace(self.pages, trusted=trusted, doubted={**self.pages.doubted, path: words}))

    def clear(self, path: str) -> None:
        """Remove the doubt, because the file is as it was before."""
        with self._lock:
            doubted = {key: words for key, words in self.pages.doubted.items() if key != path}
            self._write(replace(self.pages, doubted=doubted))

    def find_text(self, path: str) -> bytes | None:
        """Return the text that was trusted at this path. None if no text was trusted, or it was not stored."""
        digest = self.pages.trusted.get(path, ABSENT)
        try:
            return None if digest == ABSENT else self._text_file(digest).read_bytes()
        except OSError:
            return None

    def _keep(self, content: bytes) -> str:
        digest = digest_content(content)
        if not self._text_file(digest).exists() and self._find_secret(content) is None:
            self._replace(self._text_file(digest), content)
        return digest

    def _text_file(self, digest: str) -> Path:
        return self._folder / "texts" / digest

    def _write(self, pages: Pages) -> None:
        self._replace(self._file, msgspec.json.format(msgspec.json.encode(pages)))
        self.pages = pages

    def _replace(self, file: Path, content: bytes) -> None:
        """Write the file durably before the ledger in memory changes.

        Only its owner may read it, whatever the umask, because specs may name private things.
        """
        make_private(file.parent)
        fresh = file.with_name(f"{file.name}.new")
        try:
            with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(file)
        except OSError as error:
            raise OperatorError(f"{file} cannot be written: {error.strerror}; nothing was trusted") from error


def digest_content(content: bytes) -> str:
    """Compute the digest of a content, as `specs/folder_reading` does for a file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
