"""Runs a program under strace and collects its accesses outside its reach (`wakeful trace`, `isolation: observe`).

`Preparation` makes one `Tracing` per traced run, and `LiveRun` launches through it. strace is spawned in place of the
program, under the same restrictions. With -D, strace runs as a detached process: the program stays our own child, with
its own signals and exit code, and strace ends with it. A thread reads strace's lines from a pipe, within limits. The
program can write to that pipe as well, and chooses the paths that it asks for. So the findings are only for a person to
read, and decide nothing.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event

from wakeful.core.record.observations import Denied, Traced
from wakeful.runners.isolation.reach_check import NETWORK, Judge, JudgedRun
from wakeful.runners.isolation.strace import CALLS, Reader
from wakeful.runners.isolation.system_places import is_of_system
from wakeful.system.blocking_pool import start_beside

PROGRAM = "strace"
_PATIENCE_SECONDS = 10.0
_CHUNK_BYTES = 64 * 1024
# The longest line that strace writes about a path.
_LONGEST_LINE_BYTES = 32 * 1024
_BATCH_SECONDS = 0.01
# The most lines and bytes that the reader parses. It reads and discards the rest, so that neither the program nor the
# daemon waits for the other.
_MOST_LINES = 200_000
_MOST_BYTES = 64 << 20
# Limits for denied accesses: how many are kept, their characters in total, and how many are deduplicated.
_KEPT = 200
_KEPT_CHARACTERS = 64 * 1024
_TOLD_APART = 10_000
# Seconds to wait after the program's end: for strace's remaining lines, and for a file access that hangs (dead mount).
_LAST_WORDS_SECONDS = 2.0
_LAST_LOOK_SECONDS = 5.0
_NOTHING_HEARD = "strace reported nothing, so it is not known what the run asked for"


def find_obstacle() -> str | None:
    """Return why this machine cannot trace, and what to do about it. None if it can.

    Blocking until a trial has worked once: each trial runs an empty program.
    """
    program = _find_program()
    if program is None:
        return "tracing needs strace, which is not installed (sudo apt install strace)"
    # strace is spawned under the run's restrictions, so every run must be able to reach it.
    if not is_of_system(program):
        return (
            "tracing needs strace where every run can reach it, "
            f"and {program} is not such a place (sudo apt install strace)"
        )
    return _try(program)


def _find_program() -> str | None:
    found = shutil.which(PROGRAM)
    return os.path.realpath(found) if found is not None else None


class _Refused(Exception):
    """The trial failed. An exception, so that `functools.cache` does not keep it: the cause may be fixed meanwhile."""


def _try(program: str) -> str | None:
    try:
        _try_once(program)
    except _Refused as error:
        return str(error)
    return None


@functools.cache
def _try_once(program: str) -> None:
    # Without -D: in the trial strace is our child, and we wait for it.
    trial = [program, "-f", "-qq", "-o", "/dev/stdout", "-e", "trace=execve", "--", "/bin/true"]
    try:
        done = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Refused(f"tracing needs strace, which cannot be started here: {error}") from None
    if b"execve(" not in done.stdout:
        said = " ".join(done.stderr.decode(errors="backslashreplace").split()) or f"exit code {done.returncode}"
        raise _Refused(
            f"tracing needs strace, which may not trace here: {said} (ptrace must be allowed: kernel.yama.ptrace_scope "
            "of 0 or 1, no container that forbids it)"
        )


class Tracing:
    """Traces one run. The run's command and its check are launched through `wrap`; `conclude` comes last."""

    def __init__(self, standards: JudgedRun, cwd: str, redact: Callable[[str], str]) -> None:
        self._program = _find_program() or PROGRAM
        self._standards = standards
        self._cwd = cwd
        self._redact = redact
        self._listeners: list[_Listener] = []

    def wrap(self, argv: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Return the command that runs the program under strace, and a descriptor that it must inherit.

        The caller closes the descriptor after the spawn.
        """
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            self._listeners.append(_Listener(ours, self._standards, self._cwd))
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        # -s 0 leaves out the data that programs exchange. Paths are still printed in full.
        words = (
            "-D",
            "-f",
            "-y",
            "-qq",
            "-s",
            "0",
            "-e",
            "signal=none",
            "-e",
            f"trace={','.join(CALLS)}",
            "-o",
            f"/proc/self/fd/{theirs}",
        )
        return (self._program, *words, "--", *argv), theirs

    def conclude(self) -> Traced:
        """Read the rest of strace's lines and return the findings. Blocking, for a bounded time.

        The program and all of its process tree must have ended.
        """
        found: dict[tuple[str, str], Denied] = {}
        is_bounded, is_heard = False, False
        for listener in self._listeners:
            found |= listener.end()
            is_bounded = is_bounded or listener.is_bounded
            is_heard = is_heard or listener.lines > 0
        if any(one.access == "connect" and one.place not in (None, "*") for one in found.values()):
            # If addresses are known, the entry for the network as a whole adds nothing.
            found.pop(("connect", NETWORK), None)
        kept = list(self._keep(found.values()))
        words = None if is_heard else _NOTHING_HEARD
        return Traced(
            denied=tuple(kept),
            more=len(found) - len(kept),
            is_observed=self._standards.is_observed,
            words="the run asked for more than could be checked, so this list is not complete" if is_bounded else words,
        )

    def _keep(self, found: Iterable[Denied]) -> Iterator[Denied]:
        room = _KEPT_CHARACTERS
        for count, one in enumerate(found):
            what, place = self._redact(_spell(one.what)), _spell(one.place) if one.place is not None else None
            words = self._redact(_spell(one.words)) if one.words is not None else None
            # If the name had to be escaped or redacted, a spec cannot use it.
            if place is not None and (place != one.place or self._redact(place) != place):
                place, words = None, "its name cannot be written in a spec"
            room -= len(what) + len(place or "") + len(words or "")
            if count >= _KEPT or room < 0:
                return
            yield Denied(access=one.access, what=what, place=place, is_folder=one.is_folder, words=words)


class _Listener:
    """Reads one pipe to its end in a thread. `found` grows meanwhile. `end` stops the thread and returns `found`."""

    def __init__(self, fd: int, standards: JudgedRun, cwd: str) -> None:
        self._fd = fd
        self._reader = Reader(cwd)
        self._standards = standards
        self._is_over = Event()
        self.found: dict[tuple[str, str], Denied] = {}
        self._known: set[tuple[object, ...]] = set()
        self.lines = 0
        self.is_bounded = False
        self._thread = start_beside(self._listen, "trace")

    def end(self) -> dict[tuple[str, str], Denied]:
        self._is_over.set()
        self._thread.join(_LAST_LOOK_SECONDS)
        self.is_bounded = self.is_bounded or self._thread.is_alive()
        return dict(self.found)

    def _listen(self) -> None:
        try:
            judge = Judge(self._standards)
            for line in self._read_lines():
                self._take(line, judge)
        finally:
            os.close(self._fd)

    def _read_lines(self) -> Iterator[bytes]:
        rest = b""
        read_bytes = 0
        for chunk in self._read_chunks():
            read_bytes += len(chunk)
            self.is_bounded = self.is_bounded or read_bytes > _MOST_BYTES
            if self.is_bounded:
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE_BYTES:
                rest = b""

    def _read_chunks(self) -> Iterator[bytes]:
        """Read until every writer has closed the pipe, and at most two seconds longer than the program lives."""
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            if ready.poll(100):
                chunk = os.read(self._fd, _CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
                # strace writes line by line. Waiting for a batch avoids two context switches per line.
                if len(chunk) < _CHUNK_BYTES:
                    self._is_over.wait(_BATCH_SECONDS)
            if deadline is None and self._is_over.is_set():
                deadline = time.monotonic() + _LAST_WORDS_SECONDS

    def _take(self, line: bytes, judge: Judge) -> None:
        self.lines += 1
        if self.lines > _MOST_LINES or len(self.found) >= _TOLD_APART:
            self.is_bounded = True
            return
        for asked in self._reader.read(line):
            key = (asked.access, asked.what, asked.real, asked.error)
            # Programs repeat the same call many times.
            if key in self._known:
                continue
            if len(self._known) < _TOLD_APART:
                self._known.add(key)
            denied = judge.judge(asked)
            if denied is not None:
                self.found.setdefault((denied.access, denied.what), denied)
                for companion in judge.find_companions(asked, denied):
                    self.found.setdefault((companion.access, companion.what), companion)


def _spell(text: str) -> str:
    """Escape a text for a record: bytes that are not UTF-8, and control characters."""
    plain = os.fsencode(text).decode(errors="backslashreplace")
    return (
        plain
        if plain.isprintable()
        else "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in plain)
    )
