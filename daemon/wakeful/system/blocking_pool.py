"""Threads that exist from the beginning and outlive a shortage: the pool behind all blocking work of the daemon.

Python's own pool starts a thread when work comes. A run that took all processes of its user then made the daemon fail, and a thread that died
for want of memory was never replaced: its callers waited for ever. Here all threads start with the pool, a lack of memory ends one piece of
work and no thread, and whoever closes the pool waits a bounded time for work that hangs in the kernel.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

# How long the end of work that hangs is waited for when a pool is closed: a dead mount never answers.
CLOSING_SECONDS = 10.0
# How often something small is tried again while there is no memory for it.
_AGAIN_SECONDS = 0.02

Result = TypeVar("Result")
_Work = tuple[Future[Any], Callable[[], Any]]


class Pool(ThreadPoolExecutor):
    """As its base class is used, which asyncio insists on for the default executor of a loop."""

    def __init__(self, count: int, name: str) -> None:
        """Raises OSError where the system does not give so many."""
        super().__init__(count)
        self._given: SimpleQueue[_Work | None] = SimpleQueue()
        self._is_closed = False
        # Daemonic: work that hangs in the kernel must not keep the process from its end.
        self._serving = [start_beside(self._serve, f"{name}-{number}") for number in range(count)]

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        future: Future[Result] = _ToldFuture()
        self._given.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish what was submitted. Waits for that, but not for ever. Safe to repeat."""
        if not self._is_closed:
            self._is_closed = True
            for _ in self._serving:
                self._given.put(None)
        deadline = time.monotonic() + CLOSING_SECONDS
        for thread in self._serving if wait else ():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while True:
            # Work that fails tells its future. An error here is a shortage in between, and the next piece of work is taken all the same.
            try:
                given = self._given.get()
                if given is None:
                    return
                _carry_out(*given)
            except MemoryError:
                continue
            finally:
                given = None


class _ToldFuture(Future[Any]):
    """Its callbacks are called until there is memory for it: one of them tells the loop, which would wait for ever."""

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        super().add_done_callback(lambda future: _insist(lambda: fn(future)))


def start_beside(live: Callable[[], None], name: str) -> Thread:
    """Raises OSError where the system gives no thread: a shortage, as that of a process is."""
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
        # Not by a name that outlives this branch: the traceback of the error holds this frame.
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
