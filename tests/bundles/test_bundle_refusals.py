"""A bundle that differs from what was saved is refused with a message.

Nothing is written, neither to the log nor beside it.
"""

import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.bundle_samples import SESSION, Place, rewrite
from wakeful.bundles.format import (
    AnyLine,
    BlobLine,
    BundleDamaged,
    BundleRefused,
    BundleTooLarge,
    ChunkLine,
    FileLine,
    Limits,
    Manifest,
    RecordLine,
    write_declaration,
)
from wakeful.bundles.load import check_bundle, inspect, load, take_in, verify_bundle
from wakeful.bundles.reader import OpenBundle
from wakeful.bundles.scratch_files import judge_name

Change = Callable[[list[AnyLine]], Sequence[AnyLine]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound bundle of ten records, two blobs and one file."""
    place = Place(tmp_path_factory.mktemp("bundle"))
    place.fill()
    place.scratch.mkdir()
    (place.scratch / "report.txt").write_text("the report")
    place.save(place.folder / "sound", scratch=place.scratch)
    place.log.close()
    return place.folder / "sound"


def refuse(there: Place, path: Path, words: str = "", kind: type[BundleRefused] = BundleRefused) -> None:
    """Assert that verify and load both refuse the bundle, and leave no trace."""
    with pytest.raises(kind, match=words):
        verify_bundle(path)
    before = sorted(path.parent.iterdir())
    with pytest.raises(kind, match=words):
        load(there.log, there.blobs, path, scratch=there.scratch)
    assert (there.log.position(), there.log.imports()) == (0, ())
    assert not (there.folder / "blobs").exists()
    assert not there.scratch.exists()
    assert sorted(path.parent.iterdir()) == before


# Bytes


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_refuses_the_bundle(bundle: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(bundle.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(BundleRefused):
        verify_bundle(tmp_path / "flipped")


def test_every_single_byte_counts(bundle: Path, tmp_path: Path) -> None:
    """Each byte of the file is changed once, also those that a gzip program ignores."""
    content = bytearray(bundle.read_bytes())
    for place in range(len(content)):
        content[place] ^= 0xFF
        (tmp_path / "changed").write_bytes(content)
        with pytest.raises(BundleRefused):
            verify_bundle(tmp_path / "changed")
        content[place] ^= 0xFF


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_inserted_or_swapped_piece_refuses_the_bundle(
    bundle: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bundle.read_bytes()
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
    piece = data.draw(st.binary(max_size=20))
    changed = content[:first] + piece + content[last:]
    if changed == content:
        return
    (tmp_path / "changed").write_bytes(changed)
    with pytest.raises(BundleRefused):
        verify_bundle(tmp_path / "changed")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x1f\x8b", b"PK\x03\x04 a zip", b"junk" * 100, gzip.compress(b'{"line":"manifest"}\n')],
    ids=["empty", "two bytes", "a zip", "junk", "another gzip"],
)
def test_a_file_that_is_no_bundle_is_refused_in_words(there: Place, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    refuse(there, tmp_path / "file", "does not begin like a bundle")
    with pytest.raises(BundleRefused, match="file: it does not begin"):
        inspect(tmp_path / "file")


def test_what_is_no_file_is_refused_in_words(there: Place, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("nothing", "pipe", "."):
        with pytest.raises(BundleRefused):
            verify_bundle(tmp_path / name)


def test_bytes_after_the_end_are_refused(there: Place, bundle: Path, tmp_path: Path) -> None:
    for more in (b"\x00", gzip.compress(b"more"), bundle.read_bytes()):
        (tmp_path / "longer").write_bytes(bundle.read_bytes() + more)
        refuse(there, tmp_path / "longer", "not those that were written")


# Bombs


def write_raw(path: Path, lines: bytes, *, declared: int | None = None) -> Path:
    """Write any lines under a header whose digest is right."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(lines) + deflate.flush() + struct.pack("<II", zlib.crc32(lines), len(lines) & 0xFFFFFFFF)
    total = len(lines) if declared is None else declared
    start = write_declaration(total)
    digest = hashlib.sha256(start + hashlib.sha256(body).digest()).digest()
    path.write_bytes(start + digest + body)
    return path


def test_a_bundle_that_holds_more_than_it_declares_is_left_at_that_point(there: Place, tmp_path: Path) -> None:
    write_raw(tmp_path / "bomb", b" " * 50_000_000, declared=1_000)
    refuse(there, tmp_path / "bomb", "more than the 1,000 bytes it declares")


def test_a_bundle_that_declares_too_much_is_refused_before_it_is_inflated(there: Place, tmp_path: Path) -> None:
    write_raw(tmp_path / "huge", b" ", declared=2**60)
    refuse(there, tmp_path / "huge", "at most", BundleTooLarge)
    write_raw(tmp_path / "bomb", b" ", declared=2**31)
    refuse(there, tmp_path / "bomb", "it is a decompression bomb", BundleTooLarge)
    with pytest.raises(BundleTooLarge):
        inspect(tmp_path / "bomb")


def test_a_line_without_end_is_refused_at_its_limit(there: Place, tmp_path: Path) -> None:
    write_raw(tmp_path / "line", b"x" * 40_000_000)
    refuse(there, tmp_path / "line", "longer than 33,554,432 bytes", BundleTooLarge)


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[[[[[[[[\n",
        b'{"line":"manifest"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"format":1}\n',
    ],
)
def test_lines_that_are_none_are_refused(there: Place, tmp_path: Path, lines: bytes) -> None:
    refuse(there, write_raw(tmp_path / "odd", lines), "not a manifest")


def test_a_bundle_of_another_format_says_which_release_reads_it(there: Place, bundle: Path, tmp_path: Path) -> None:
    newer = rewrite(bundle, tmp_path / "newer", lambda lines: [msgspec.structs.replace(lines[0], format=2), *lines[1:]])
    refuse(there, newer, "it has format 2, this release reads 1")


# Content


def change_record(seq: int, /, **fields: object) -> Change:
    return lambda lines: [
        msgspec.structs.replace(line, **fields) if isinstance(line, RecordLine) and line.seq == seq else line
        for line in lines
    ]


def change_manifest(**fields: object) -> Change:
    return lambda lines: [
        msgspec.structs.replace(line, **fields) if isinstance(line, Manifest) else line for line in lines
    ]


def change_blobs(line: BlobLine, content: bytes) -> Change:
    return lambda lines: (
        [one for one in lines if not isinstance(one, (FileLine, ChunkLine, BlobLine))] + [line, ChunkLine(content)]
    )


def put_file(path: str, size: int = 1, content: bytes = b"x") -> Change:
    return lambda lines: [*lines, FileLine(path=path, size=size), ChunkLine(content)]


def swap(lines: list[AnyLine], one: int, other: int) -> list[AnyLine]:
    lines[one], lines[other] = lines[other], lines[one]
    return lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_record(3, payload='"other"'), "record 3: its payload is not the one"),
        (change_record(3, author="mallory"), "record 3: its hash does not follow"),
        (change_record(3, at=7), "record 3: its hash does not follow"),
        (change_record(3, hash=bytes(32)), "record 3: its hash does not follow"),
        (change_record(3, seq=4), "record 4 is in the place of record 3"),
        (change_record(3, run=2**80), "record 3|line 4"),
        (change_manifest(session="another"), "record 1: its hash does not follow"),
        (change_manifest(head="00" * 32), "do not end at the head"),
        (change_manifest(records=9), "declares other numbers"),
        (lambda lines: [line for line in lines if not isinstance(line, RecordLine)], "declares other numbers"),
        (
            lambda lines: [line for line in lines if not (isinstance(line, RecordLine) and line.seq == 5)],
            "is in the place of record 5",
        ),
        (lambda lines: swap(lines, 2, 3), "is in the place of record 2"),
        (lambda lines: [lines[0], *lines[11:], *lines[1:11]], "is in the place of"),
        (lambda lines: [*lines, lines[0]], "is not a line of a bundle"),
        (lambda lines: [*lines[:1], ChunkLine(b"x"), *lines[1:]], "belongs to no blob or file"),
        (change_blobs(BlobLine(address="blake2b-" + "0" * 64, size=1), b"x"), "differs from its address"),
        (change_blobs(BlobLine(address="../../etc/passwd", size=1), b"x"), "differs from its address"),
        (change_blobs(BlobLine(address="blake2b-" + "0" * 64, size=2), b"x"), "chunk of 2 bytes was expected"),
        (change_blobs(BlobLine(address="blake2b-" + "0" * 64, size=2**40), b"x"), "at most"),
        (change_blobs(BlobLine(address="blake2b-" + "0" * 64, size=-1), b"x"), "at most"),
        (put_file("fine", size=-1), "has -1 bytes"),
        (put_file("fine", size=5), "chunk of 5 bytes"),
        (put_file("report.txt"), "collides"),
        (put_file("REPORT.txt"), "collides"),
        (put_file("report.txt/inside"), "collides"),
    ],
)
def test_lines_that_do_not_belong_together_are_refused_though_every_digest_is_right(
    there: Place, bundle: Path, tmp_path: Path, change: Change, words: str
) -> None:
    refuse(there, rewrite(bundle, tmp_path / "changed", change), words)


@pytest.mark.parametrize(
    "path",
    [
        "../out",
        "/etc/passwd",
        "a/../../out",
        "./a",
        "a//b",
        "",
        "a/",
        "..",
        "a\\..\\b",
        "c:evil",
        "a\x00b",
        "a\nb",
        "x" * 300,
        "a/" * 70 + "a",
    ],
)
def test_a_name_that_could_leave_its_folder_refuses_the_bundle(
    there: Place, bundle: Path, tmp_path: Path, path: str
) -> None:
    assert judge_name(path) is not None
    refuse(there, rewrite(bundle, tmp_path / "changed", put_file(path)), "a file is called")


def test_names_that_are_one_in_another_form_refuse_the_bundle(there: Place, bundle: Path, tmp_path: Path) -> None:
    def change(lines: list[AnyLine]) -> list[AnyLine]:
        return [*put_file("stra\u00dfe/e\u0301")(lines), *put_file("STRASSE/\u00e9")([])]

    refuse(there, rewrite(bundle, tmp_path / "changed", change), "collides")


@given(st.text())
def test_a_name_that_is_taken_stays_in_its_folder(path: str) -> None:
    if judge_name(path) is None:
        assert os.path.normpath(os.path.join("/folder", path)) == "/folder/" + path


def test_a_bundle_with_too_many_files_is_refused(there: Place, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleTooLarge, match="more than 0 files"):
        verify_bundle(bundle, limits=Limits(files=0))


def test_a_bundle_changed_between_its_two_readings_counts_for_nothing(
    there: Place, bundle: Path, tmp_path: Path
) -> None:
    """The file is held open, but a process with write access can still change it in place."""
    path = tmp_path / "changing"
    path.write_bytes(bundle.read_bytes())
    evil = rewrite(bundle, tmp_path / "evil", put_file("../../out"))
    with OpenBundle(path) as opened:
        contents = check_bundle(opened)
        path.write_bytes(evil.read_bytes())
        with pytest.raises(BundleRefused):
            take_in(there.log, there.blobs, opened, contents, scratch=there.scratch)
    assert there.log.heads() == {}
    assert not there.scratch.exists()
    assert not (tmp_path / "out").exists()
    assert load(there.log, there.blobs, bundle).head.seq == 10


def test_a_sound_bundle_is_sound(bundle: Path) -> None:
    """The bundle that all refusals above begin with is accepted."""
    contents = verify_bundle(bundle)
    assert (contents.records, contents.blobs, contents.files, contents.manifest.session) == (10, 2, 1, SESSION)
    assert not issubclass(BundleTooLarge, BundleDamaged)
