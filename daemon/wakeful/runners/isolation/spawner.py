"""A thread that spawns one program, and the caller who waits for its answer: bounded, whatever becomes of the thread.

Confinement belongs to a thread, so a thread spawns (confine.py, bubblewrap.py). A thread that finds no memory is gone
without a word, and its caller is the loop: it waited for ever, and no signal reached it. Here the caller looks whether
the thread is there, and gives up in words; then nothing is spawned any more.
"""

from __future__ import annotations

import errno
import itertools
import os
from _thread import start_new_thread
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, get_native_id
from typing import Any

_LOOK_SECONDS = 0.1
# So many looks are made for a thread that does not begin at all, and for one that does not come to its spawn:
# two seconds, and five.
_LOOKS_FOR_BEGIN = 20
_LOOKS_FOR_SPAWN = 50

Answer = tuple[Any, BaseException | None]


class Spawner:
    """The thread calls `begin` first, `may_spawn` before its spawn, and `answer` once; the caller calls `start`,
    and `wait`."""

    def __init__(self) -> None:
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        # Taken once: by the thread, which then spawns, or by a caller that gave up.
        self._decision = Lock()
        # The thread's number in the kernel, once it has begun.
        self._number = 0

    def start(self, live: Callable[[], None]) -> None:
        """Raises OSError where the system gives no thread."""
        try:
            # Not a Thread, whose start waits until it has begun: a switch of contexts there and back,
            # with a program under way.
            start_new_thread(live, ())
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}, no thread") from error

    def begin(self) -> None:
        self._number = get_native_id()

    def may_spawn(self) -> bool:
        return self._decision.acquire(blocking=False)

    def answer(self, result: Any, problem: BaseException | None = None) -> None:
        self._answers.put((result, problem))

    def wait(self) -> Any:
        """The result of the spawn. Raises its error, and OSError where the thread is gone."""
        for looks in itertools.count(1):
            # Before the look at its answers: a thread that is gone has put down all it will.
            is_gone = self._is_gone()
            try:
                result, problem = self._answers.get(timeout=_LOOK_SECONDS)
            except Empty:
                # Counted in looks: the clock goes on while the daemon is stopped.
                # A spawn under way may take long on a slow disk.
                most = _LOOKS_FOR_SPAWN if self._number else _LOOKS_FOR_BEGIN
                if is_gone or (looks >= most and self.may_spawn()):
                    raise OSError(
                        errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}, the thread that was to start it is gone"
                    ) from None
            else:
                if problem is None:
                    return result
                try:
                    raise problem
                finally:
                    # The traceback of the problem holds this frame. The two would keep each other,
                    # and all that the spawn refers to.
                    del problem

    def _is_gone(self) -> bool:
        return bool(self._number) and not os.path.exists(f"/proc/self/task/{self._number}")
