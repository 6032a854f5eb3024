"""The pure parts of the log, as tables: hashes, the check of the anchor, refused SQLite versions, the thinning of
snapshots.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.eventlog import chain
from wakeful.eventlog.contract import StoreUnsafe
from wakeful.eventlog.group_commit import choose_dropped
from wakeful.eventlog.sqlite.anchor import AnchorFile, Mark, judge_store, read_anchor
from wakeful.eventlog.sqlite.files import is_affected, refuse_affected
from wakeful.eventlog.state_lock import find_file_system

STORE = b"s" * 16


def mark(flush: int, roll: bytes = b"r" * 32, store: bytes = STORE) -> Mark:
    return Mark(store, flush, flush * 10, roll)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), True), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False), ((3, 44, 9), False),
        ((3, 45, 0), True), ((3, 46, 1), True), ((3, 50, 4), True), ((3, 50, 6), True), ((3, 50, 7), False), ((3, 51, 0), True),
        ((3, 51, 2), True), ((3, 51, 3), False), ((3, 51, 4), False), ((3, 52, 0), True), ((3, 52, 1), False), ((3, 53, 0), False),
        ((3, 54, 1), False), ((4, 0, 0), False),
    ],
)  # fmt: skip
def test_a_version_that_can_corrupt_its_log_is_known(version: tuple[int, int, int], affected: bool) -> None:
    assert is_affected(version) is affected


def test_an_affected_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreUnsafe, match=r"SQLite 3\.40\.1 .*pip install --upgrade apsw"):
        refuse_affected("3.40.1")
    refuse_affected("3.54.1")


@pytest.mark.parametrize(
    ("anchor", "newest", "roll_at_anchor", "words"),
    [
        (None, mark(0), None, None),
        (None, mark(3), None, "missing or unreadable"),
        (mark(3), mark(3), b"r" * 32, None),
        (mark(3), mark(4), b"r" * 32, None),
        (mark(3), mark(9), b"r" * 32, None),
        (mark(3), mark(2), None, "ends at record 20 of 30 acknowledged ones: 10 are missing"),
        (mark(3), mark(0), None, "30 are missing"),
        (mark(3), mark(3), b"x" * 32, "not the one that was acknowledged"),
        (mark(3), mark(7), b"x" * 32, "not the one that was acknowledged"),
        (mark(3), mark(7), None, "not the one that was acknowledged"),
        (mark(3), mark(3, store=b"t" * 16), b"r" * 32, "belongs to another store"),
    ],
)
def test_a_store_is_written_only_if_it_holds_what_its_anchor_vouches_for(
    anchor: Mark | None, newest: Mark, roll_at_anchor: bytes | None, words: str | None
) -> None:
    judged = judge_store(anchor, newest, roll_at_anchor)
    assert judged is None if words is None else words in (judged or "")


def test_the_anchor_remembers_its_newest_mark(tmp_path: Path) -> None:
    file = AnchorFile(tmp_path / "anchor", mark(0))
    for flush in range(1, 6):
        file.note(mark(flush))
        file.flush()
        # A reader through the kernel sees the mark at once. Only a power cut needs the flush.
        assert read_anchor(tmp_path / "anchor") == mark(flush)
    file.close()
    AnchorFile(tmp_path / "anchor", mark(5)).close()
    assert read_anchor(tmp_path / "anchor") == mark(5)
    assert (tmp_path / "anchor").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_torn_anchor_falls_back_to_the_mark_before(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "anchor"
    file = AnchorFile(path, mark(0))
    for flush in (1, 2, 3):
        file.note(mark(flush))
        file.flush()
    file.close()
    content = bytearray(path.read_bytes())
    newest = 4096  # slot of the odd flushes
    if damage == "torn":
        content[newest + 30 : newest + 200] = bytes(170)
    else:
        content[newest + 40] ^= 1
    path.write_bytes(content)
    assert read_anchor(path) == mark(2)


def test_of_notes_that_share_a_flush_none_spoils_the_one_that_was_flushed(tmp_path: Path) -> None:
    """This holds also for a second writer after one that was killed before the flush."""
    path = tmp_path / "anchor"
    file = AnchorFile(path, mark(0))
    for flush in (1, 2, 3):
        file.note(mark(flush))
        assert read_anchor(path) == mark(flush)
    assert read_anchor(spoil(path, lambda: file.note(mark(4)))) == mark(0)
    file.note(mark(3))
    second = AnchorFile(path, mark(3))
    assert read_anchor(spoil(path, lambda: second.note(mark(4)))) == mark(3)
    file.close()
    second.close()


def spoil(path: Path, note: Callable[[], None]) -> Path:
    """Return a copy in which every byte that the note changed is wrong."""
    before = path.read_bytes()
    note()
    copy = path.with_name("spoiled")
    copy.write_bytes(
        bytes(new if new == old else new ^ 255 for old, new in zip(before, path.read_bytes(), strict=True))
    )
    return copy


@given(st.binary(max_size=9000))
def test_any_bytes_in_the_place_of_an_anchor_are_read_as_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "anchor-of-any-bytes"
    path.write_bytes(content)
    assert read_anchor(path) is None


def test_the_chain_is_what_it_was_in_every_release() -> None:
    """These bytes are in people's logs, and a change here breaks them all."""
    digest = chain.hash_bytes(b"{}")
    first = chain.link_record(
        chain.NOTHING, "payroll", 1, 1_700_000_000_000_000, "session_opened", "daemon", None, None, None, digest
    )
    second = chain.link_record(
        first, "payroll", 2, 1_700_000_000_000_001, "run_started", "daemon", 1, "payroll:1", "why", digest
    )
    assert first.hex() == "f05b6eba2b4c51810b0ce2d6d4883126ebd4ec6bfb9eb5b1bfe00d8bc673d21a"
    assert second.hex() == "723c1671320980236bfcd03e83d70334e2b565e95ca5046fd532525d760fc744"
    assert (
        chain.roll_forward(chain.NOTHING, [first, second]).hex()
        == "323f93243b43137c8a9837579b76b175106435bdb711d6bf2f2a2e39d9a2eade"
    )


@given(st.lists(st.integers(1, 10**6), unique=True, max_size=60).map(sorted))
def test_thinning_never_drops_the_oldest_or_the_newest_snapshots(seqs: list[int]) -> None:
    dropped = choose_dropped(seqs)
    assert not set(dropped) & {*seqs[:1], *seqs[-4:]}
    assert set(dropped) <= set(seqs)


def test_a_million_events_keep_some_hundred_snapshots_and_no_moment_is_far_from_one() -> None:
    kept: list[int] = []
    for seq in range(1_000, 1_000_001, 1_000):
        kept.append(seq)
        dropped = set(choose_dropped(kept))
        kept = [one for one in kept if one not in dropped]
    assert len(kept) < 1_100
    assert max(after - before for before, after in pairwise(kept)) <= 1_000
    assert all(after - before <= max(1_000, (1_000_000 - before) / 4) for before, after in pairwise(kept))


def test_the_file_system_of_a_folder_is_known(tmp_path: Path) -> None:
    assert find_file_system(Path("/proc")) == "proc"
    assert find_file_system(tmp_path) != "proc"
