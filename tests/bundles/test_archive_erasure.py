"""Bundles in the archive: erased payloads leave them, and doctor names the damaged ones."""

from pathlib import Path

import pytest

from bundles.bundle_samples import SESSION, Place
from wakeful.bundles.erasure import ArchiveUnreadable, erase_from_archives
from wakeful.bundles.inspection import find_broken_archives, find_file_damage
from wakeful.bundles.load import verify_bundle
from wakeful.eventlog.contract import Append, Draft


def archive(place: Place, folder: Path) -> Path:
    folder.mkdir()
    head = place.log.head(SESSION).seq
    path = folder / f"{SESSION}-{head}.bundle"
    place.save(path)
    return path


def test_a_payload_leaves_every_bundle_that_could_hold_it(here: Place, tmp_path: Path) -> None:
    """Each verifies as before.

    A bundle that ends before the record, and those of other sessions, are left as they are.
    """
    path = archive(here, tmp_path / "archive")
    short = path.with_name(f"{SESSION}-2.bundle")
    here.save(short, to_seq=2)
    foreign = path.with_name("01other-9.bundle")
    foreign.write_bytes(b"not ours to read")
    before = short.read_bytes()
    assert erase_from_archives(path.parent, SESSION, 3) == 1
    assert verify_bundle(path).erased == 1 and short.read_bytes() == before
    assert erase_from_archives(path.parent, SESSION, 1) == 2
    assert verify_bundle(short).erased == 1


def test_a_bundle_that_cannot_be_read_does_not_count_as_erased(here: Place, tmp_path: Path) -> None:
    path = archive(here, tmp_path / "archive")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArchiveUnreadable, match="not erased yet.*delete that file"):
        erase_from_archives(path.parent, SESSION, 3)
    assert path.read_bytes() == content


def test_an_archived_session_whose_bundle_is_damaged_or_gone_is_named(here: Place, tmp_path: Path) -> None:
    """Damage at any byte is found, and a whole bundle gives no finding."""
    path = archive(here, tmp_path / "archive")
    head = here.log.head(SESSION).seq
    told = Draft("session_archived", f'{{"bundle": "{path.name}"}}'.encode(), "person")
    here.log.append_blocking([Append(SESSION, head, (told,))], at=9)
    here.log.archive(SESSION, head)
    assert list(find_broken_archives(here.log, path.parent)) == [] and find_file_damage(path) is None
    whole = path.read_bytes()
    for place in (0, 20, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        (broken,) = find_broken_archives(here.log, path.parent)
        assert (broken.session, broken.bundle) == (SESSION, path) and broken.wrong, place
    path.unlink()
    (broken,) = find_broken_archives(here.log, path.parent)
    assert "cannot be read" in broken.wrong
