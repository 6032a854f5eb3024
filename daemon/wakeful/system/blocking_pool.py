"""The daemon's threads for blocking work, and the pools that share them.

One set of threads serves every pool. `KEPT_THREADS` of them start with the first pool and live as long as the process.
More start on demand, and end after `IDLE_SECONDS` without work. Each pool limits its own concurrent work, so the number
of threads is limited, too. Closing a pool waits a bounded time for work that hangs.

Python's own pool starts a thread when work comes. With that pool, the daemon failed if a run had used up the processes
of its user. A thread that died for lack of memory was never replaced, and its callers waited for ever. Here, the kept
threads serve all pools in turn if the system gives no more threads. A lack of memory ends one piece of work, not its
thread.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread, current_thread
from typing import Any, TypeVar

# Threads that live as long as the process. A dead mount may hold one or two of them for ever.
KEPT_THREADS = 4
# Seconds that any other thread waits for work before it ends.
IDLE_SECONDS = 20.0
# Seconds that closing a pool waits for work that hangs, because a dead mount never answers.
CLOSING_SECONDS = 10.0
# Seconds between two tries of a small step while there is no memory for it.
_AGAIN_SECONDS = 0.02

Result = TypeVar("Result")
_Work = tuple[Future[Any], Callable[[], Any]]


class _SharedExecutor:
    """All threads for blocking work. May be used from any thread."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._counting = Lock()
        self._count = 0
        # The number of threads that wait for work, minus the number of pieces of work that wait for a thread.
        self._free = 0

    @property
    def is_short(self) -> bool:
        """Does work wait for a thread?"""
        return self._free < 0

    def keep(self) -> None:
        """Start the threads that live as long as the process. Raises OSError if the system does not give that many."""
        while self._count < KEPT_THREADS:
            self._start(idle_seconds=None)

    def give(self, work: Callable[[], None]) -> None:
        """Let a thread do this work.

        If no thread is free, another one starts. If the system gives none, a busy thread does the work later.
        """
        with self._counting:
            self._free -= 1
            is_short = self._free < 0
        self._given.put(work)
        if is_short:
            with suppress(OSError):
                self._start(IDLE_SECONDS)

    def _start(self, idle_seconds: float | None) -> None:
        with self._counting:
            self._count += 1
            self._free += 1
            name = f"blocking-{self._count}"
        try:
            start_beside(partial(self._serve, idle_seconds, name), name)
        except OSError:
            with self._counting:
                self._count -= 1
                self._free -= 1
            raise

    def _serve(self, idle_seconds: float | None, name: str) -> None:
        while True:
            # A MemoryError is a temporary shortage. The thread goes on with the next piece of work.
            try:
                work = self._given.get(timeout=idle_seconds)
            except Empty:
                if self._may_end():
                    return
                continue
            except MemoryError:
                continue
            with suppress(MemoryError):
                work()
            # The thread drops its reference to the finished work before it waits for more.
            del work
            current_thread().name = name
            with self._counting:
                self._free += 1

    def _may_end(self) -> bool:
        with self._counting:
            # Work that was just submitted needs this thread.
            if self._free <= 0:
                return False
            self._count -= 1
            self._free -= 1
            return True


_shared = _SharedExecutor()


def _forget_parent() -> None:
    """Start with no threads after a fork: the child has the parent's memory, but none of its threads."""
    global _shared
    _shared = _SharedExecutor()


os.register_at_fork(after_in_child=_forget_parent)


class Pool(ThreadPoolExecutor):
    """Runs at most `count` pieces of work at a time.

    The base class is needed, because asyncio accepts no other class as the default executor of a loop.
    """

    def __init__(self, count: int, name: str) -> None:
        """Raises OSError if the system gives no threads. A thread has the pool's `name` while it works for the pool."""
        super().__init__(count)
        self._name = name
        self._most = count
        self._changed = Condition()
        self._waiting: deque[_Work] = deque()
        self._under_way = 0
        self._is_closed = False
        _shared.keep()

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = _ToldFuture()
        work: _Work = (future, lambda: fn(*args, **kwargs))
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            if self._under_way >= self._most:
                self._waiting.append(work)
                return future
            self._under_way += 1
        _shared.give(partial(self._serve, work))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work. With `wait`, wait up to `CLOSING_SECONDS` for submitted work. Safe to repeat."""
        with self._changed:
            self._is_closed = True
            if wait:
                self._changed.wait_for(lambda: not self._under_way, CLOSING_SECONDS)

    def _serve(self, work: _Work | None) -> None:
        """Do this piece of work, then those that wait in this pool. Called in a thread."""
        current_thread().name = self._name
        while work is not None:
            with suppress(MemoryError):
                _carry_out(*work)
            work = None
            with self._changed:
                if self._waiting:
                    work = self._waiting.popleft()
                else:
                    self._under_way -= 1
                    self._changed.notify_all()
            if work is not None and _shared.is_short:
                # Let other pools have their turn.
                _shared.give(partial(self._serve, work))
                return


class _ToldFuture(Future[Any]):
    """A future that repeats each callback until there is memory for it.

    One of the callbacks wakes the loop. If that callback were lost, the loop would wait for ever.
    """

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        super().add_done_callback(lambda future: _insist(lambda: fn(future)))


def start_beside(live: Callable[[], None], name: str) -> Thread:
    """Start a daemon thread. Raises OSError with EAGAIN if the system gives no thread, as it does for a process."""
    thread = Thread(target=live, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}, no thread") from error
    return thread


def _carry_out(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        # The error must not stay in a local variable: its traceback refers to this frame, which would be a cycle.
        _insist(partial(future.set_exception, error))
    else:
        _insist(lambda: future.set_result(result))


def _insist(act: Callable[[], object]) -> None:
    while True:
        try:
            act()
        except MemoryError:
            time.sleep(_AGAIN_SECONDS)
        else:
            return
