"""A run's output is kept without the values of secrets, wherever the limit cuts it."""

import asyncio

import pytest

from wakeful.runners.process.output_capture import Capture
from wakeful.secrets.redact import Redactor

VALUE = b"correct-horse-battery-staple"
REDACTOR = Redactor([("pass", VALUE)])


def fill(limit: int, *pieces: bytes) -> Capture:
    capture = Capture(limit, lambda: REDACTOR)
    for piece in pieces:
        capture.add(piece)
    capture.close()
    return capture


@pytest.mark.parametrize("before", range(60, 130))
def test_no_part_of_a_value_stands_where_the_limit_cuts(before: int) -> None:
    """This covers the end of the head, the beginning of the tail, and the place where both meet without a gap."""
    for after in (0, 40, 60, 100, 130, 160, 1000):
        kept = fill(200, b"." * before, VALUE, b"," * after).kept()
        shown = kept.head + kept.tail
        assert set(shown) <= set(b".,[secret pas]"), (after, shown)
        assert b"correct" not in shown and b"staple" not in shown and b"horse" not in shown


def test_an_output_within_the_limit_is_whole_and_counted_as_it_is_shown() -> None:
    kept = fill(1000, b"before ", VALUE[:9], VALUE[9:], b" after").kept()
    assert kept.head + kept.tail == b"before [secret pass] after" and kept.total_bytes == len(
        b"before [secret pass] after"
    )


def test_what_is_kept_never_exceeds_the_limit_though_a_name_is_longer_than_its_value() -> None:
    capture = Capture(400, lambda: Redactor([("a-name-that-is-much-longer-than-this", b"12345678")]))
    capture.add(b"12345678" * 1000)
    kept = capture.kept()
    assert len(kept.head) + len(kept.tail) <= 400 and b"1234" not in kept.head + kept.tail


def test_a_secret_that_became_known_during_the_run_is_found_in_what_came_before() -> None:
    known = [Redactor()]
    capture = Capture(1000, lambda: known[-1])
    capture.add(b"it is " + VALUE)
    known.append(REDACTOR)
    assert capture.kept().head == b"it is [secret pass]"


@pytest.mark.asyncio
async def test_a_follower_that_missed_something_is_told_and_shown_no_half_of_a_value() -> None:
    capture = Capture(200, lambda: REDACTOR)
    capture.add(b"." * 400 + VALUE + b"," * 80)
    capture.close()
    shown = b"".join([piece async for piece in capture.follow()])
    assert b"[not kept: " in shown and shown.endswith(b"," * 80)
    assert b"staple" not in shown and b"battery" not in shown


@pytest.mark.asyncio
async def test_a_follower_gets_every_byte_that_is_no_secret() -> None:
    capture = Capture(100_000, lambda: REDACTOR)
    shown: list[bytes] = []

    async def follow() -> None:
        shown.extend([piece async for piece in capture.follow()])

    following = asyncio.ensure_future(follow())
    for piece in (b"a line\n", VALUE[:5], VALUE[5:20], VALUE[20:], b"\ncorrect-h", b"at\n", b"correct-horse"):
        capture.add(piece)
        await asyncio.sleep(0)
    capture.close()
    await following
    assert b"".join(shown) == b"a line\n[secret pass]\ncorrect-hat\ncorrect-horse"
