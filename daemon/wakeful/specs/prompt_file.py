"""Reads the files of an agent besides its spec: its prompt and its skills. They are read again when they change.

Called by `agents` and `skills` when a spec is built, and by `folder_reading`, which asks whether a reading is still
valid. Reads only inside the project, also through links. The state folder is not part of the project.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.yaml_text import MAX_BYTES, shorten

StatKey = tuple[int, int, int, int]
# The age from which a file's stat key is reliable. A younger file may change again within one tick of the file system's
# clock.
RACY_NANOSECONDS = 2_000_000_000


class PromptFile(Struct, frozen=True, kw_only=True):
    """The state of a prompt's file at its reading. `key` is None if there was no readable file."""

    path: str
    key: StatKey | None = None
    is_racy: bool = True
    digest: str = ""

    @property
    def is_stale(self) -> bool:
        """Must the file be read again?"""
        return self.is_racy or _find_key(self.path) != self.key


def read_prompt(path: str, around: Surroundings) -> tuple[PromptFile, str, str | None]:
    """Read a prompt. Return its file, its text, and the problem in words, or None.

    `path` starts from the folder that holds sessions.d/.
    """
    whole = os.path.normpath(os.path.join(around.base, path))
    real, shown = os.path.realpath(whole), shorten(path, 80)
    missing = PromptFile(path=whole, key=_find_key(whole), is_racy=False)
    if not contains(os.path.realpath(around.base), real) or (
        around.state is not None and contains(os.path.realpath(around.state), real)
    ):
        return missing, "", f"'{shown}' lies outside of the project; move it into the folder that holds sessions.d/"
    if os.path.isdir(real):
        return missing, "", f"'{shown}' is a folder; name the file that holds the prompt"
    file, data, problem = read_file(whole, shown)
    if problem is not None:
        return file, "", problem if file.digest else f"{problem}; it starts from {shorten(around.base, 80)}"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return file, "", f"'{shown}' is not UTF-8 text; save it as such"
    return file, text, None if text.strip() else f"'{shown}' is empty; write the prompt into it, or remove the key"


def read_file(path: str, shown: str) -> tuple[PromptFile, bytes, str | None]:
    """Read a regular file of limited size. Return it, its content, and the problem in words, or None.

    Its digest is empty if it could not be read.
    """
    missing = PromptFile(path=path, key=_find_key(path), is_racy=False)
    began = time.time_ns()
    try:
        # Opening a FIFO would wait for a writer for ever.
        with open(os.open(os.path.realpath(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                return missing, b"", f"'{shown}' is no regular file"
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        return missing, b"", f"'{shown}' cannot be read: {error.strerror}"
    is_racy = began - max(found.st_mtime_ns, found.st_ctime_ns) < RACY_NANOSECONDS
    file = PromptFile(path=path, key=_key_of(found), is_racy=is_racy, digest=digest_content(data))
    return (
        file,
        data,
        f"'{shown}' has more than {MAX_BYTES // 1024} KB; text that long leaves no room for work"
        if len(data) > MAX_BYTES
        else None,
    )


def find_folder(path: str) -> PromptFile:
    """Return the state of a folder whose entries matter. It is stale when an entry was added or removed."""
    key = _find_key(path)
    return PromptFile(path=path, key=key, is_racy=key is not None and time.time_ns() - max(key[:2]) < RACY_NANOSECONDS)


def digest_content(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _find_key(path: str) -> StatKey | None:
    try:
        return _key_of(os.stat(path))
    except OSError:
        return None


def _key_of(found: os.stat_result) -> StatKey:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
