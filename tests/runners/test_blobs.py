"""A blob is kept once, under the hash of its content, readable by its owner alone, and checked when read."""

import os
import stat

import pytest

from wakeful.blobs import Blobs, DamagedBlob, UnknownBlob


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


@pytest.mark.parametrize("address", ["blake2b-" + "0" * 64, "blake2b-../../etc/passwd", "", "sha256-" + "0" * 64, "blake2b-" + "0" * 64 + "\n"])
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
