"""Output is kept in order, within bounds and byte for byte, and can be followed while it arrives."""

import asyncio

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wait_conditions import eventually_async
from wakeful.runners.process.output_capture import Capture
from wakeful.runners.process.program import Spent
from wakeful.runners.run import live_run as running

asynchronous = pytest.mark.asyncio


@asynchronous
async def test_both_streams_are_kept_in_the_order_they_were_written(bench):
    ended = await bench.run(bench.shell("for i in 1 2 3; do echo out$i; echo err$i >&2; done"))
    assert bench.output(ended) == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert (ended.output.total_bytes, ended.output.kept_bytes, ended.output.tail) == (30, 30, None)


@asynchronous
async def test_bytes_that_are_no_text_are_kept_as_they_are(bench):
    ended = await bench.run(bench.python("import sys; sys.stdout.buffer.write(bytes(range(256)) * 10)"))
    assert bench.output(ended) == bytes(range(256)) * 10


@asynchronous
async def test_a_long_output_keeps_its_first_and_last_bytes_and_the_true_count(bench):
    ended = await bench.run(bench.python("print(*range(200000), sep='\\n')", output_limit_bytes=1000))
    whole = "".join(f"{i}\n" for i in range(200000)).encode()
    assert bench.blobs.get(ended.output.head) == whole[:500]
    assert bench.blobs.get(ended.output.tail) == whole[-500:]
    assert (ended.output.total_bytes, ended.output.kept_bytes) == (len(whole), 1000)


@asynchronous
async def test_a_flood_neither_grows_the_daemon_nor_starves_its_loop(bench):
    size = 300_000_000
    process = psutil.Process()
    before = process.memory_info().rss
    run_id = bench.start(bench.shell(f"yes | head -c {size}", timeout_seconds=300))
    turns, grown = 0, 0
    while run_id in bench.under_way():
        await asyncio.sleep(0)
        turns += 1
        grown = max(grown, process.memory_info().rss - before)
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.output.total_bytes) == (0, size)
    assert grown < 16 << 20
    # The loop reads at most 256 KB between two turns of its other tasks.
    assert turns > size / (256 * 1024) / 2


@asynchronous
async def test_a_program_that_closes_its_output_and_lives_on_is_waited_for(bench):
    ended = await bench.run(bench.shell("echo last words; exec >&- 2>&-; sleep 0.2; exit 5"))
    assert (ended.exit_code, bench.output(ended)) == (5, b"last words\n")


@asynchronous
async def test_followers_get_what_was_and_what_comes_until_the_end(bench):
    run_id = bench.start(bench.shell("echo one; while ! test -f go; do sleep 0.01; done; echo two"))
    seen = b""
    async for chunk in bench.runner.follow(run_id):
        seen += chunk
        (bench.root / "go").touch()
    assert seen == b"one\ntwo\n"
    await bench.end_of(run_id)
    assert [chunk async for chunk in bench.runner.follow(run_id)] == []


@asynchronous
async def test_a_slow_follower_is_told_how_much_it_missed():
    capture = Capture(100)
    capture.add(b"a" * 50 + b"b" * 1000 + b"c" * 50)
    capture.close()
    assert (
        b"".join([chunk async for chunk in capture.follow()]) == b"a" * 50 + b"\n[not kept: 1,000 bytes]\n" + b"c" * 50
    )


@asynchronous
async def test_output_that_cannot_be_saved_is_counted_and_does_not_change_the_outcome(bench):
    (bench.state / "blobs").write_text("in the way")
    ended = await bench.run(bench.shell("echo words"))
    assert (ended.exit_code, ended.output.head, ended.output.kept_bytes, ended.output.total_bytes) == (0, None, 0, 6)


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 60))
def test_head_and_tail_are_the_ends_of_the_whole_however_it_was_cut(chunks, limit):
    capture = Capture(limit)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    head = limit // 2
    kept = capture.kept()
    assert kept.head == whole[:head]
    assert kept.tail == (whole[head:][-(limit - head) :] if limit else b"")
    assert (kept.total_bytes, len(kept.head) + len(kept.tail)) == (len(whole), min(limit, len(whole)))


@asynchronous
async def test_usage_counts_the_whole_tree_and_can_be_read_while_it_runs(bench, monkeypatch):
    counted: list[Spent] = []

    def count() -> Spent:
        counted.append(Spent())
        return counted[-1]

    monkeypatch.setattr(running, "Spent", count)
    burn = (
        "import time\nx = bytearray(64 << 20)\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    )
    burn += "open('big', 'wb').write(b'x' * 3_000_000)\n"
    # Peaks are sampled, and rarely on a busy machine. The second process stays until its peak was seen.
    (bench.root / "burn.py").write_text(
        burn + "import os, sys\nwhile sys.argv[1:] and not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    )
    run_id = bench.start(
        bench.shell("python3 burn.py; python3 burn.py seen; echo done; while ! test -f go; do sleep 0.01; done")
    )
    (spent,) = counted
    await eventually_async(lambda: spent.usage(0.0).max_rss_bytes > 64 << 20, what="the peak sampled")
    (bench.root / "seen").touch()
    async for _ in bench.runner.follow(run_id):
        break
    live = bench.runner.usage(run_id)
    (bench.root / "go").touch()
    ended = await bench.end_of(run_id)
    for usage in (live, ended.usage):
        assert 0.6 <= usage.cpu_seconds < 5
        assert usage.written_bytes >= 6_000_000
    assert 64 << 20 < ended.usage.max_rss_bytes < 128 << 20
    assert ended.usage.wall_seconds >= live.wall_seconds > 0.5
