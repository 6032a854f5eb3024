"""Threads that outlive a shortage, and callers that never wait for ever for one that did not."""

from __future__ import annotations

import asyncio
import errno
import threading
import time

import pytest

from waiting import PATIENCE_SECONDS
from wakeful.runners.isolation.spawner import Spawner
from wakeful.system import blocking_pool as pool_module
from wakeful.system.blocking_pool import Pool


def test_all_threads_are_there_before_the_first_work() -> None:
    """When work comes, the system may give none."""
    pool = Pool(3, "early")
    assert sum(thread.name.startswith("early-") for thread in threading.enumerate()) == 3
    barrier = threading.Barrier(3)
    waiting = [pool.submit(barrier.wait) for _ in range(3)]
    assert sorted(one.result(PATIENCE_SECONDS) for one in waiting) == [0, 1, 2]
    pool.shutdown()
    assert not any(thread.name.startswith("early-") for thread in threading.enumerate())


@pytest.mark.parametrize("error", [MemoryError, OSError, SystemExit])
def test_work_that_fails_tells_who_waits_and_ends_no_thread(error: type[BaseException]) -> None:
    """Also what ends a thread of Python's own pool."""
    pool = Pool(1, "steady")

    def fail() -> None:
        raise error

    for _ in range(3):
        assert isinstance(pool.submit(fail).exception(PATIENCE_SECONDS), error)
    assert pool.submit(lambda: 5).result(PATIENCE_SECONDS) == 5
    pool.shutdown()


def test_a_loop_is_told_although_there_was_no_memory_to_tell_it() -> None:
    """Python's own pool drops what its callback raises: the loop would wait for ever."""

    async def ask(pool: Pool) -> int:
        loop, refused = asyncio.get_running_loop(), list[int]()
        call_soon = loop.call_soon_threadsafe

        def refuse_twice(*arguments: object) -> object:
            if len(refused) < 2:
                refused.append(1)
                raise MemoryError
            return call_soon(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = refuse_twice  # type: ignore[method-assign,assignment]
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await loop.run_in_executor(pool, lambda: 7)
        assert len(refused) == 2
        return answer

    pool = Pool(1, "told")
    assert asyncio.run(ask(pool)) == 7
    pool.shutdown()


def test_work_that_hangs_does_not_keep_a_pool_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "CLOSING_SECONDS", 0.1)
    pool, ended = Pool(2, "hung"), threading.Event()
    pool.submit(ended.wait)
    pool.shutdown()
    assert not ended.is_set()
    with pytest.raises(RuntimeError):
        pool.submit(print)
    ended.set()


def test_who_waits_for_a_thread_that_is_gone_hears_so() -> None:
    """It found no memory for an answer, or not even for its first step; then nothing is spawned any more."""
    silent = Spawner()
    silent.start(silent.begin)
    with pytest.raises(OSError) as told:
        silent.wait()
    assert told.value.errno == errno.ENOMEM
    late, spawned = Spawner(), threading.Event()
    let_go = threading.Event()

    def come_late() -> None:
        let_go.wait(PATIENCE_SECONDS)
        late.begin()
        if late.may_spawn():
            spawned.set()
        late.answer(None)

    late.start(come_late)
    began = time.monotonic()
    with pytest.raises(OSError):
        late.wait()
    assert time.monotonic() - began < PATIENCE_SECONDS
    let_go.set()
    assert late.wait() is None and not spawned.is_set()
