"""A second process that lists folders and reads small files, for looks at hundreds of paths.

Reading one file takes five system calls, and after each call the thread must get the interpreter lock again. Next to a
busy loop, a file that takes 16 us alone takes 2 ms. So a large look asks this process, and waits once per batch. The
process answers only for small regular files that do not change meanwhile. The caller reads all other files itself, and
can report their problems. The loop starts the process when a look needs it, and ends it after `REST_SECONDS` without
work.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from wakeful.sources.files.entry import (
    RACY_NANOSECONDS,
    SMALL_BYTES,
    Listing,
    Seen,
    hash_small_file,
    kind_of_file,
    list_folder,
    pack_key,
)

# The least number of paths for which it is worthwhile to ask the process, and to start it (about 40 ms).
WORTH_ASKING = 512
_FOLDERS_AT_ONCE = 16
# The number of files per question. Two answers of this size fit into a pipe, so a question sent ahead never blocks on
# an answer that is not read yet.
_FILES_AT_ONCE = 256
REST_SECONDS = 10.0
_LENGTH = struct.Struct("<I")


class Answers(NamedTuple):
    """Answers about the paths of one question, by their index in it. A path that no list names has not changed.

    The fields are columns, because one object for each of 100,000 paths took a third of the time of a look.
    """

    asked: int
    read_bytes: int
    moved: list[int]
    # These four columns describe the paths in `moved`, in the same order.
    keys: list[bytes]
    kinds: list[str]
    digests: list[bytes]
    hashed_at: list[int]
    # Indexes in `moved` whose stat key did not change. The key was too recent to be trusted, so the file was read
    # again.
    again: list[int]
    # Paths that the caller must read itself.
    left: list[int]


class ReaderGone(Exception):
    """There is no reader process, or it ended during a question. The caller reads the files itself."""


class Reader:
    """Asks the reader process. Used by one thread at a time.

    Started and ended on the loop, because a process that is spawned while a run is spawned would carry that run's mark.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._in_use = threading.Lock()
        self._last_asked = 0.0

    def start(self) -> None:
        """Start the process if needed, and replace one that was killed.

        If it cannot be started, looks work without it.
        """
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._process is not None and self._process.poll() is not None:
                self._end()
            if self._process is None:
                self._last_asked = time.monotonic()
                self._process = _spawn()
        except OSError:
            # No memory, or too many processes. Looks read the files themselves, more slowly.
            self._process = None
        finally:
            self._in_use.release()

    def rest(self) -> None:
        """End the process if it was not used for a while."""
        if self._process is None or not self._in_use.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._last_asked > REST_SECONDS:
                self._end()
        finally:
            self._in_use.release()

    def close(self) -> None:
        with self._in_use:
            self._end()

    def list(self, folders: Sequence[str]) -> list[Listing | None]:
        """List each folder. None for a folder that the caller must list itself."""
        listings: list[Listing | None] = []
        with self._asking() as (questions, answers):
            for first in range(0, len(folders), _FOLDERS_AT_ONCE):
                _send(questions, ("list", list(folders[first : first + _FOLDERS_AT_ONCE])))
                listings += [one if one is None else Listing(*one) for one in _receive(answers)]
        return listings

    def read(self, paths: Sequence[str], before: Sequence[Seen | None], *, wants_content: bool) -> Iterator[Answers]:
        """Read the files, batch by batch. An unchanged file is not read.

        One batch is asked for ahead, so that both processes have work.
        """
        with self._asking() as (questions, answers):
            ahead = 0
            for first in range(0, len(paths), _FILES_AT_ONCE):
                last = first + _FILES_AT_ONCE
                # The key of a link never equals that of a regular file, and the process answers only for regular files.
                keys = [seen.key if seen is not None else b"" for seen in before[first:last]]
                hashed_at = [seen.hashed_at if seen is not None and seen.digest else 0 for seen in before[first:last]]
                _send(questions, ("read", list(paths[first:last]), keys, hashed_at, wants_content))
                ahead += 1
                if ahead == 2:
                    yield Answers(*_receive(answers))
                    ahead -= 1
            if ahead:
                yield Answers(*_receive(answers))

    @contextlib.contextmanager
    def _asking(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        with self._in_use:
            process = self._process
            if process is None:
                raise ReaderGone
            assert process.stdin is not None and process.stdout is not None
            try:
                yield process.stdin, process.stdout
            except (OSError, EOFError) as problem:
                self._end()
                raise ReaderGone from problem
            except BaseException:
                # Answers that were not read are still in the pipe, so this process cannot be asked again.
                self._end()
                raise
            self._last_asked = time.monotonic()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Killing it is safe: it holds nothing that could be lost.
        process.kill()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()


def _spawn() -> subprocess.Popen[bytes]:
    # A separate program, because a process with threads must not fork. -P keeps the current folder out of sys.path. A
    # new session, so that Ctrl-C reaches only the daemon. Its stderr is ours.
    words = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _send(stream: IO[bytes], words: Any) -> None:
    body = marshal.dumps(words)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    return marshal.loads(_read_whole(stream, _LENGTH.unpack(_read_whole(stream, _LENGTH.size))[0]))


def _read_whole(stream: IO[bytes], size: int) -> bytes:
    """Read exactly `size` bytes. Raises EOFError if the sender ended in the middle of an answer."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _list(folder: str) -> tuple[object, ...] | None:
    try:
        listing = list_folder(folder, sys.maxsize)
    except OSError:
        return None
    return None if listing is None else tuple(listing)


def _read(paths: list[str], keys: list[bytes], hashed_at: list[int], wants_content: bool) -> Answers:
    answers = Answers(len(paths), 0, [], [], [], [], [], [], [])
    size = 0
    for place, path in enumerate(paths):
        try:
            found = os.lstat(path)
        except OSError:
            answers.left.append(place)
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_size > SMALL_BYTES:
            answers.left.append(place)
            continue
        key = pack_key(found)
        if key == keys[place]:
            # The same condition as `Seen.is_sure`.
            if not wants_content or max(found.st_mtime_ns, found.st_ctime_ns) + RACY_NANOSECONDS < hashed_at[place]:
                continue
            answers.again.append(len(answers.moved))
        now = time.time_ns()
        digest = hash_small_file(path, found.st_size, key) if wants_content else b""
        if digest is None:
            # The file changed meanwhile, or cannot be read. The caller reads it and reports the reason.
            if key == keys[place]:
                answers.again.pop()
            answers.left.append(place)
            continue
        size += len(digest) and found.st_size
        answers.moved.append(place)
        answers.keys.append(key)
        answers.kinds.append(kind_of_file(found))
        answers.digests.append(digest)
        answers.hashed_at.append(now)
    return answers._replace(read_bytes=size)


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer questions until the daemon ends."""
    while True:
        try:
            match _receive(questions):
                case ("list", folders):
                    _send(answers, [_list(folder) for folder in folders])
                case ("read", paths, keys, hashed_at, wants_content):
                    _send(answers, tuple(_read(paths, keys, hashed_at, wants_content)))
        except (EOFError, BrokenPipeError):
            return


if __name__ == "__main__":
    # The objects here form no reference cycles.
    gc.disable()
    serve(sys.stdin.buffer, sys.stdout.buffer)
