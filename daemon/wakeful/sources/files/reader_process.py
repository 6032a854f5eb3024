"""A second process that lists folders and reads small files, for looks at hundreds of paths.

Reading one file takes five system calls, and after each of them the interpreter must be had again: beside a loop that
is busy with what was just found, a file that takes 16 us by itself takes 2 ms. So a large look asks this process, and
waits once a batch. It answers for what is plain, a regular file that is small and keeps still, and says None of the
rest: whoever asked looks there himself, and can tell what is wrong. Started on the loop when a look will need it,
ended when it has rested.
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

# From so many paths on it is worth asking, and starting it (some 40 ms).
WORTH_ASKING = 512
_FOLDERS_AT_ONCE = 16
# Two answers about so many files fit into a pipe: a question sent ahead never waits for an answer that nobody reads
# yet.
_FILES_AT_ONCE = 256
REST_SECONDS = 10.0
_LENGTH = struct.Struct("<I")


class Answers(NamedTuple):
    """Answers about the paths of one question, by their places in it. A path that no list names has not changed.

    The fields are columns. One object for each of 100,000 paths took a third of the time of a look.
    """

    asked: int
    read_bytes: int
    moved: list[int]
    # These four columns describe the paths in `moved`, in the same order.
    keys: list[bytes]
    kinds: list[str]
    digests: list[bytes]
    hashed_at: list[int]
    # Places in `moved` whose stat key did not change. It was too recent to be trusted, so the file was read again.
    again: list[int]
    # Paths that the caller must read itself.
    left: list[int]


class ReaderGone(Exception):
    """There is none, or it ended while it was asked: the asker reads by himself."""


class Reader:
    """Asked by one thread at a time.

    Started and ended on the loop: what is spawned while a run is would carry that run's mark.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._in_use = threading.Lock()
        self._last_asked = 0.0

    def start(self) -> None:
        """Have it ready; one that was killed is replaced. Where there is no room for a process, looks do without."""
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._process is not None and self._process.poll() is not None:
                self._end()
            if self._process is None:
                self._last_asked = time.monotonic()
                self._process = _spawn()
        except OSError:
            # No memory, or too many processes: whoever looks reads by himself, and more slowly.
            self._process = None
        finally:
            self._in_use.release()

    def rest(self) -> None:
        """End it when nobody asked for a while."""
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
        """Each folder's listing; None where there is more to say."""
        listings: list[Listing | None] = []
        with self._asking() as (questions, answers):
            for first in range(0, len(folders), _FOLDERS_AT_ONCE):
                _send(questions, ("list", list(folders[first : first + _FOLDERS_AT_ONCE])))
                listings += [one if one is None else Listing(*one) for one in _receive(answers)]
        return listings

    def read(self, paths: Sequence[str], before: Sequence[Seen | None], *, wants_content: bool) -> Iterator[Answers]:
        """Batch by batch. A file that is as it was seen before is not read.

        One batch is asked for ahead, so that both sides have work.
        """
        with self._asking() as (questions, answers):
            ahead = 0
            for first in range(0, len(paths), _FILES_AT_ONCE):
                last = first + _FILES_AT_ONCE
                # The key of a link is never that of a plain file, and nothing else is answered for.
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
                # Answers that nobody took are still on their way: nothing more can be asked of this one.
                self._end()
                raise
            self._last_asked = time.monotonic()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # It holds nothing that could be lost, and a question that did not reach it is asked of nobody.
        process.kill()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()


def _spawn() -> subprocess.Popen[bytes]:
    # A program of its own, never a fork of a process with threads. -P: not of the present folder. A session of its own:
    # a Ctrl-C is meant for the daemon. Its errors are seen where ours are.
    words = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _send(stream: IO[bytes], words: Any) -> None:
    body = marshal.dumps(words)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    return marshal.loads(_read_whole(stream, _LENGTH.unpack(_read_whole(stream, _LENGTH.size))[0]))


def _read_whole(stream: IO[bytes], size: int) -> bytes:
    """Half an answer is none: its sender was ended in the middle of it."""
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
            # Whether it can be trusted, as `Seen.is_sure` says.
            if not wants_content or max(found.st_mtime_ns, found.st_ctime_ns) + RACY_NANOSECONDS < hashed_at[place]:
                continue
            answers.again.append(len(answers.moved))
        now = time.time_ns()
        digest = hash_small_file(path, found.st_size, key) if wants_content else b""
        if digest is None:
            # Not still, or not to be read: to be told from one that is by whoever can say so.
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
    """Answer until the daemon is gone."""
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
    # Nothing here refers to itself.
    gc.disable()
    serve(sys.stdin.buffer, sys.stdout.buffer)
