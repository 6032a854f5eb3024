"""A blob is stored once, under the hash of its content, is readable by its owner alone, and is checked when read."""

import hashlib
import os
import stat

import pytest

from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob, address_of


@pytest.fixture
def blobs(tmp_path):
    return Blobs(str(tmp_path / "blobs"))


def _files(tmp_path):
    return [os.path.join(folder, name) for folder, _, names in os.walk(tmp_path / "blobs") for name in names]


def test_what_is_put_is_got_and_the_same_content_is_kept_once(blobs, tmp_path):
    address = blobs.put(b"\0\xffoutput")
    assert blobs.put(b"\0\xffoutput") == address
    assert blobs.get(address) == b"\0\xffoutput"
    with blobs.open(address) as file:
        assert file.read(2) == b"\0\xff"
    (path,) = _files(tmp_path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_damaged_blob_is_refused_and_named(blobs, tmp_path):
    address = blobs.put(b"content")
    (path,) = _files(tmp_path)
    os.truncate(path, 3)
    with pytest.raises(DamagedBlob, match="differs from its address"):
        blobs.get(address)


@pytest.mark.parametrize(
    "address",
    ["blake2b-" + "0" * 64, "blake2b-../../etc/passwd", "", "sha256-" + "0" * 64, "blake2b-" + "0" * 64 + "\n"],
)
def test_an_address_of_nothing_is_refused(blobs, address):
    with pytest.raises(UnknownBlob):
        blobs.get(address)


def test_a_failed_write_leaves_nothing_behind(blobs, tmp_path, monkeypatch):
    def fail(_):
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        blobs.put(b"content")
    assert _files(tmp_path) == []


def test_what_is_added_is_found_by_its_digest_and_size_without_reading(blobs):
    address = blobs.add(b"content")
    assert address == address_of(hashlib.blake2b(b"content", digest_size=20).digest())
    assert blobs.add(b"content") == address and blobs.get(address) == b"content"
    assert blobs.has(address, 7) and not blobs.has(address, 6) and not blobs.has("blake2b-" + "0" * 40, 7)


def test_what_a_power_cut_took_is_added_again(blobs, tmp_path):
    address = blobs.add(b"content")
    (path,) = _files(tmp_path)
    os.truncate(path, 0)
    assert not blobs.has(address, 7)
    assert blobs.add(b"content") == address and blobs.get(address) == b"content"


@pytest.mark.parametrize("count", [0, 3, 20])
def test_one_flush_takes_all_that_was_added(blobs, count, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    for number in range(count):
        blobs.add(b"content %d" % number)
    blobs.flush()
    # A few blobs are synced one by one, with their folders. Many are synced with the whole file system at once.
    assert len([path for path in synced if len(os.path.basename(path)) == 38]) == (count if count < 8 else 0)
    synced.clear()
    blobs.flush()
    assert synced == []


def test_the_store_says_what_it_holds_and_removes_only_what_a_crash_left(blobs, tmp_path):
    assert blobs.sizes() == (0, 0, 0)
    addresses = {blobs.put(b"output"), blobs.add(b"content")}
    (tmp_path / "blobs" / "unfinished" / "tmp123").write_bytes(b"half a bl")
    assert blobs.sizes() == (2, 13, 1) and {address for address, _ in blobs.listing()} == addresses
    blobs.remove_unfinished()
    assert blobs.sizes() == (2, 13, 0)
