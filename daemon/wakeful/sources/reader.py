"""A second process that lists folders and reads small files, for looks at hundreds of paths.

Reading one file takes five system calls, and after each of them the interpreter must be had again: beside a loop that is busy
with what was just found, a file that takes 16 us by itself takes 2 ms. So a large look asks this process, and waits once a
batch. It answers for what is plain, a regular file that is small and keeps still, and says None of the rest: whoever asked
looks there himself, and can tell what is wrong. Started on the loop when a look will need it, ended when it has rested.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from wakeful.sources.entry import SMALL_BYTES, CannotSee, Demand, Seen, pack_key, read_entry
from wakeful.sources.folder import Listing, list_folder

# From so many paths on it is worth asking, and starting it (some 40 ms).
WORTH_ASKING = 512
_FOLDERS_AT_ONCE = 16
# Two answers about so many files fit into a pipe: a question sent ahead never waits for an answer that nobody reads yet.
_FILES_AT_ONCE = 256
_REST_SECONDS = 10.0
_LENGTH = struct.Struct("<I")

# What was read (key, kind, digest, when); True where the key was the one expected; None where the asker must look himself.
Answer = tuple[bytes, str, bytes, int] | bool | None


class ReaderGone(Exception):
    """There is none, or it ended while it was asked: the asker reads by himself."""


class Reader:
    """Asked by one thread at a time. Started and ended on the loop: what is spawned while a run is would carry that run's mark."""

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
            if time.monotonic() - self._last_asked > _REST_SECONDS:
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

    def read(self, paths: Sequence[str], keys: Sequence[bytes], *, wants_content: bool) -> Iterator[tuple[int, list[Answer]]]:
        """Batch by batch, the bytes that were read and an answer for each path. A file that has the key given is not read.

        One batch is asked for ahead, so that both sides have work.
        """
        with self._asking() as (questions, answers):
            ahead = 0
            for first in range(0, len(paths), _FILES_AT_ONCE):
                last = first + _FILES_AT_ONCE
                _send(questions, ("read", list(paths[first:last]), list(keys[first:last]), wants_content))
                ahead += 1
                if ahead == 2:
                    yield _receive(answers)
                    ahead -= 1
            if ahead:
                yield _receive(answers)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[tuple[BinaryIO, BinaryIO]]:
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
    # A program of its own, never a fork of a process with threads. -P: not of the present folder. A session of its own: a
    # Ctrl-C is meant for the daemon. Its errors are seen where ours are.
    words = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _send(stream: BinaryIO, words: object) -> None:
    body = marshal.dumps(words)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def _receive(stream: BinaryIO) -> Any:
    return marshal.loads(_read_whole(stream, _LENGTH.unpack(_read_whole(stream, _LENGTH.size))[0]))


def _read_whole(stream: BinaryIO, size: int) -> bytes:
    """Half an answer is none: its sender was ended in the middle of it."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _list(folder: str) -> Listing | None:
    try:
        return list_folder(folder, sys.maxsize)
    except OSError:
        return None


def _read(path: str, key: bytes, demand: Demand) -> Answer:
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > SMALL_BYTES:
            return None
        if pack_key(found) == key:
            return True
        seen = read_entry(path, None, demand, found)
    except (OSError, CannotSee):
        return None
    return (seen.key, seen.kind, seen.digest, seen.hashed_at) if isinstance(seen, Seen) and seen.kind in "fx" else None


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the daemon is gone."""
    demands = {wants: Demand(wants_content=wants) for wants in (True, False)}
    while True:
        try:
            match _receive(questions):
                case ("list", folders):
                    _send(answers, [None if (one := _list(folder)) is None else tuple(one) for folder in folders])
                case ("read", paths, keys, wants_content):
                    demand = demands[wants_content]
                    read = [_read(path, key, demand) for path, key in zip(paths, keys, strict=True)]
                    _send(answers, (sum(_size(one) for one in read), read))
        except (EOFError, BrokenPipeError):
            return


def _size(answer: Answer) -> int:
    return Seen(*answer).size if isinstance(answer, tuple) else 0


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
