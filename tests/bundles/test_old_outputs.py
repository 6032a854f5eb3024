"""Outputs of old runs: which blobs may move to the archive, and that each is read from there as before."""

import gzip
import zipfile
from pathlib import Path

import msgspec
import pytest

from bundles.bundle_samples import Place
from wakeful.bundles.blob_archive import ArchiveDamaged, BlobArchive
from wakeful.bundles.old_outputs import DueOutputs, find_due_outputs
from wakeful.core.spec.session import Retention
from wakeful.eventlog.contract import Append, Draft
from wakeful.system.blobs import Blobs, UnknownBlob

DAY = 86_400 * 1_000_000
NOW = 200 * DAY


def finish(place: Place, session: str, content: bytes, days_ago: float, outcome: str = "succeeded") -> str:
    """Record a run that printed `content` so many days ago, and return the address of its output."""
    address = place.blobs.put(content)
    payload = msgspec.json.encode({"run": 1, "outcome": outcome, "is_final": True, "output": {"head": address}})
    head = place.log.head(session).seq
    place.log.append_blocking(
        [Append(session, head, (Draft("run_finished", payload, session, run=1),))], at=round(NOW - days_ago * DAY)
    )
    return address


def find(place: Place, **bounds: Retention) -> DueOutputs:
    return find_due_outputs(place.log, place.blobs, bounds, NOW)


def test_old_outputs_go_and_what_anybody_needs_stays(there: Place) -> None:
    """Outputs move after 30 days, those of failures after 90, and the newest of each session never.

    An output that a remaining run shares, in any session, stays.
    """
    old = finish(there, "a", b"old", 100)
    shared = finish(there, "a", b"shared", 99)
    failed_long_ago = finish(there, "a", b"failed long ago", 95, "failed")
    finish(there, "a", b"failed", 60, "failed")
    month = finish(there, "a", b"a month", 31)
    finish(there, "a", b"yesterday", 1)
    finish(there, "b", b"shared", 2)
    finish(there, "c", b"the only one", 150)
    due = find(there)
    assert due.addresses == (old, failed_long_ago, month) and shared not in due.addresses
    assert due.sessions == {"a": (3, len(b"old" + b"failed long ago" + b"a month"))}
    assert find(there, a=Retention(runs=1000)) == DueOutputs((), {}), "bounds of its own"


def test_what_two_old_runs_share_goes_once(there: Place) -> None:
    first = finish(there, "a", b"same", 100)
    finish(there, "a", b"same", 90.5)
    finish(there, "a", b"new", 1)
    assert find(there).addresses == (first,)


def deliver(place: Place, session: str, content: bytes, days_ago: float) -> str:
    """Record a delivery to a webhook, and return the address of its payload."""
    address = place.blobs.put(content)
    fields = {"binding": "hub", "key": "webhook hub", "position": 1, "sender": "github", "delivery": "d"}
    payload = msgspec.json.encode({**fields, "payload": address})
    head = place.log.head(session).seq
    place.log.append_blocking(
        [Append(session, head, (Draft("delivery_received", payload, session),))], at=round(NOW - days_ago * DAY)
    )
    return address


def test_payloads_of_deliveries_go_with_the_run_that_ended_next(there: Place) -> None:
    """A payload that a later delivery brought again stays, and so does one after which no run came."""
    first, again = deliver(there, "a", b"first", 101), deliver(there, "a", b"again", 101)
    output = finish(there, "a", b"old", 100)
    deliver(there, "a", b"again", 2)
    finish(there, "a", b"new", 1)
    waiting = deliver(there, "b", b"nobody has run", 150)
    due = find(there)
    assert set(due.addresses) == {first, output} and due.sessions["a"][0] == 1
    assert again not in due.addresses and waiting not in due.addresses


def test_the_size_of_outputs_is_bounded_newest_first(there: Place) -> None:
    oldest = finish(there, "a", b"x" * 600, 3)
    finish(there, "a", b"y" * 600, 2)
    finish(there, "a", b"z" * 600, 1)
    assert find(there, a=Retention(size_bytes=1200)).addresses == (oldest,)


def test_a_round_moves_no_more_than_its_share(there: Place) -> None:
    """The oldest go first. An output larger than the share goes alone."""
    for number in range(3):
        finish(there, "a", bytes([65 + number]) * 1000, 100 - number)
    finish(there, "a", b"new", 1)
    due = find_due_outputs(there.log, there.blobs, {}, NOW, most_bytes=2500)
    assert len(due.addresses) == 2
    assert len(find_due_outputs(there.log, there.blobs, {}, NOW, most_bytes=10).addresses) == 1


def test_what_was_moved_is_read_as_before_and_is_not_due_again(there: Place) -> None:
    """The archive is a file that any zip program reads, for its owner alone."""
    old = finish(there, "a", b"old " * 500, 100)
    finish(there, "a", b"new", 1)
    archive = BlobArchive(there.folder / "archive")
    moved = archive.move(there.blobs, find(there).addresses, "2026-01-31")
    assert (
        moved is not None
        and moved.blobs == 1
        and moved.path.name == "2026-01-31-1.zip"
        and moved.path.stat().st_mode & 0o077 == 0
    )
    assert there.blobs.size(old) is None and find(there).addresses == ()
    with pytest.raises(UnknownBlob):
        there.blobs.get(old)
    blobs = Blobs(str(there.folder / "blobs"), archive)
    assert blobs.get(old) == b"old " * 500 and blobs.is_kept(old) and not blobs.has(old, 2000)
    assert archive.move(there.blobs, [old], "2026-01-31") is None, "there is nothing left to move"
    assert sorted(path.name for path in (there.folder / "archive").iterdir()) == ["2026-01-31-1.zip"]


def test_a_damaged_blob_is_not_moved(there: Place, tmp_path: Path) -> None:
    """A reader is then told its place. The other blobs move."""
    damaged, whole = there.blobs.put(b"one"), there.blobs.put(b"two")
    next(path for path in (there.folder / "blobs").glob("*/*") if path.read_bytes() == b"one").write_bytes(b"eno")
    moved = BlobArchive(tmp_path / "archive").move(there.blobs, [damaged, whole], "x")
    assert moved is not None and moved.blobs == 1 and there.blobs.size(damaged) == 3 and there.blobs.size(whole) is None


def test_what_is_removed_leaves_the_archive_too(there: Place, tmp_path: Path) -> None:
    secret, other = there.blobs.put(b"swordfish"), there.blobs.put(b"other")
    archive = BlobArchive(tmp_path / "archive")
    moved = archive.move(there.blobs, [secret, other], "x")
    assert moved is not None
    blobs = Blobs(str(there.folder / "blobs"), archive)
    blobs.remove([secret])
    assert not blobs.is_kept(secret) and blobs.get(other) == b"other"
    with zipfile.ZipFile(moved.path) as file:
        assert file.namelist() == [other]


def test_a_damaged_file_of_the_archive_is_words(there: Place, tmp_path: Path) -> None:
    address = there.blobs.put(b"one")
    archive = BlobArchive(tmp_path / "archive")
    moved = archive.move(there.blobs, [address], "x")
    assert moved is not None
    moved.path.write_bytes(gzip.compress(b"no zip"))
    with pytest.raises(ArchiveDamaged, match="cannot be read.*backup"):
        Blobs(str(there.folder / "blobs"), BlobArchive(tmp_path / "archive")).get(address)
