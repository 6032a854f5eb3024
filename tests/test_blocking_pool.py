"""A thread pool that survives a shortage of threads, and callers that never wait for ever for a lost thread."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time

import pytest

from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.runners.isolation.confined_spawn import Spawner
from wakeful.system import blocking_pool as pool_module
from wakeful.system.blocking_pool import Pool


def list_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("blocking-")]


def test_work_of_all_pools_is_done_where_the_system_gives_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some threads exist before the first work, and serve all pools in turn."""
    pools = [Pool(3, f"short-{number}") for number in range(3)]
    eventually(lambda: len(list_threads()) == pool_module.KEPT_THREADS, seconds=PATIENCE_SECONDS)

    def refuse(*_: object) -> threading.Thread:
        raise OSError(errno.EAGAIN, "no thread")

    monkeypatch.setattr(pool_module, "start_beside", refuse)
    done = [pool.submit(time.sleep, 0.001) for _ in range(30) for pool in pools]
    assert [one.result(PATIENCE_SECONDS) for one in done] == [None] * 90
    assert len(list_threads()) == pool_module.KEPT_THREADS
    for pool in pools:
        pool.shutdown()


def test_a_pool_has_as_many_threads_as_it_may_and_after_its_work_there_are_none_but_the_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.05)
    count = 2 * pool_module.KEPT_THREADS
    pool, barrier = Pool(count, "wide"), threading.Barrier(count)
    waiting = [pool.submit(barrier.wait) for _ in range(count)]
    assert sorted(one.result(PATIENCE_SECONDS) for one in waiting) == list(range(count))
    eventually(lambda: len(list_threads()) == pool_module.KEPT_THREADS, seconds=PATIENCE_SECONDS)
    pool.shutdown()


def test_no_more_of_a_pool_s_work_is_under_way_than_it_may_and_it_is_done_in_order() -> None:
    pool, counting, most, order = Pool(2, "bounded"), threading.Lock(), list[int](), list[int]()
    under_way = 0

    def work(number: int) -> None:
        nonlocal under_way
        with counting:
            under_way += 1
            most.append(under_way)
            order.append(number)
        time.sleep(0.002)
        with counting:
            under_way -= 1

    for one in [pool.submit(work, number) for number in range(20)]:
        one.result(PATIENCE_SECONDS)
    pool.shutdown()
    assert max(most) == 2 and all(abs(found - number) <= 1 for number, found in enumerate(order))


def test_a_fork_has_threads_of_its_own() -> None:
    pool = Pool(1, "before")
    child = os.fork()
    if child == 0:
        answer = Pool(1, "after").submit(lambda: 7).result(PATIENCE_SECONDS)
        os._exit(answer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert pool.submit(lambda: 5).result(PATIENCE_SECONDS) == 5
    pool.shutdown()


@pytest.mark.parametrize("error", [MemoryError, OSError, SystemExit])
def test_work_that_fails_tells_who_waits_and_ends_no_thread(error: type[BaseException]) -> None:
    """SystemExit would end a thread of Python's own pool."""
    pool = Pool(1, "steady")

    def fail() -> None:
        raise error

    for _ in range(3):
        assert isinstance(pool.submit(fail).exception(PATIENCE_SECONDS), error)
    assert pool.submit(lambda: 5).result(PATIENCE_SECONDS) == 5
    pool.shutdown()


def test_a_loop_is_told_although_there_was_no_memory_to_tell_it() -> None:
    """Python's own pool drops an exception of its callback, and the loop would wait for ever."""

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
    """The thread ran out of memory for its answer, or before its first step. After that it must not spawn anything."""
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
