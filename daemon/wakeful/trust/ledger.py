"""What people trust, kept in the state folder: attached projects,
and the digest and text of every file that was trusted.

Beside the log and not in it: a log can come from elsewhere in a bundle, and no run can write here (the state folder is
out of reach of all of them). Written whole, by rename; a ledger that cannot be read stops the daemon, because without
it everything would look new.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.errors import OperatorError
from wakeful.system.private_folders import make_private

# In the place of a digest: there is no such file, and that is what was trusted.
ABSENT = "absent"


class Project(Struct, frozen=True, kw_only=True):
    """A folder that holds a sessions.d/ of its own. Its sessions are called `name/…`."""

    name: str
    folder: str
    # Named with `wakeful trust DIR`: as it is edited, unless others can write it.
    is_followed: bool = False

    @property
    def specs(self) -> str:
        return os.path.join(self.folder, "sessions.d")


class Pages(Struct, frozen=True, kw_only=True):
    projects: dict[str, Project] = {}
    # Path -> the digest of the content that a person trusted there.
    trusted: dict[str, str] = {}
    # Path -> why it is not followed any more, in words: it changed within the reach of a run,
    # in a folder that is followed.
    doubted: dict[str, str] = {}


class Ledger:
    """Lies in `folder`, which is made at the first writing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "ledger.json"
        self.pages = self._load()
        # What holds the value of a secret is trusted by its digest, and its text is not kept.
        self.find_secret: Callable[[bytes], str | None] = lambda content: None

    def _load(self) -> Pages:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Pages)
        except FileNotFoundError:
            return Pages()
        except (OSError, msgspec.DecodeError) as error:
            words = (
                f"{self._file} cannot be read ({error}); put it back from a backup, "
                "or remove it and trust every project anew"
            )
            raise OperatorError(words) from None

    # -- projects -----------------------------------------------------------------------------

    def attach(self, project: Project) -> None:
        self._write(replace(self.pages, projects={**self.pages.projects, project.name: project}))

    def detach(self, name: str) -> None:
        gone = self.pages.projects[name]
        self._write(
            replace(
                self.pages,
                projects={key: one for key, one in self.pages.projects.items() if key != name},
                # Attached again, it is looked at again.
                trusted={
                    path: digest
                    for path, digest in self.pages.trusted.items()
                    if not path.startswith(f"{gone.folder}/")
                },
            )
        )

    # -- texts --------------------------------------------------------------------------------

    def trust(self, files: dict[str, bytes | None]) -> None:
        """These contents are trusted at these paths; None: that there is nothing."""
        digests = {path: ABSENT if content is None else self._keep(content) for path, content in files.items()}
        doubted = {path: words for path, words in self.pages.doubted.items() if path not in files}
        self._write(replace(self.pages, trusted={**self.pages.trusted, **digests}, doubted=doubted))

    def doubt(self, path: str, words: str, digest: str | None) -> None:
        """What is there now is not followed. `digest` is that of what was in force before."""
        trusted = {**self.pages.trusted, path: digest or ABSENT}
        self._write(replace(self.pages, trusted=trusted, doubted={**self.pages.doubted, path: words}))

    def clear(self, path: str) -> None:
        """It is as it was before: there is nothing left to doubt."""
        self._write(
            replace(self.pages, doubted={key: words for key, words in self.pages.doubted.items() if key != path})
        )

    def find_text(self, path: str) -> bytes | None:
        """What was trusted at this path; None where nothing was, or its text was not kept."""
        digest = self.pages.trusted.get(path, ABSENT)
        try:
            return None if digest == ABSENT else self._text_file(digest).read_bytes()
        except OSError:
            return None

    def _keep(self, content: bytes) -> str:
        digest = digest_content(content)
        if not self._text_file(digest).exists() and self.find_secret(content) is None:
            self._replace(self._text_file(digest), content)
        return digest

    def _text_file(self, digest: str) -> Path:
        return self._folder / "texts" / digest

    def _write(self, pages: Pages) -> None:
        self._replace(self._file, msgspec.json.format(msgspec.json.encode(pages)))
        self.pages = pages

    def _replace(self, file: Path, content: bytes) -> None:
        """On disk before it counts. Specs may name what is nobody else's business, whatever the umask."""
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
    """As `specs/load` digests a file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
