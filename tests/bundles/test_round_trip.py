"""A session that is saved and loaded has the same records, head, blobs, files and state."""

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest

from bundles.bundle_samples import SESSION, Place
from wakeful.bundles.erasure import erase_from_bundle
from wakeful.bundles.format import BundleNotWritten, BundleRefused
from wakeful.bundles.load import inspect, load, restore_archive, verify_bundle
from wakeful.bundles.save import save
from wakeful.eventlog.contract import Append, Conflict, Draft
from wakeful.run_files.file_record import BindingFiles, Entry, Found, RunFiles, read_record
from wakeful.run_files.path_lists import read_entries
from wakeful.system.blobs import DamagedBlob


def test_a_loaded_session_has_the_same_records_the_same_head_and_the_same_blobs(
    here: Place, there: Place, tmp_path: Path
) -> None:
    saved = here.save(tmp_path / "b", spec="run: [true]\n", about={"origin": "host"})
    loaded = load(there.log, there.blobs, tmp_path / "b")
    assert list(there.log.read(SESSION)) == list(here.log.read(SESSION))
    assert there.log.heads() == {SESSION: here.log.head(SESSION)}
    assert loaded.head == here.log.head(SESSION)
    assert (loaded.records, loaded.blobs) == (10, 2)
    assert loaded.contents == saved.contents
    for record in here.log.read(SESSION, to_seq=7):
        address = json.loads(record.payload or b"")["output"]["head"]
        assert there.blobs.get(address) == here.blobs.get(address)
    assert there.log.verify().is_sound


def test_a_manifest_says_what_is_inside(here: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "b", spec="run: [true]\n", about={"origin": "host"}, cut="migrate")
    manifest = inspect(tmp_path / "b")
    assert (manifest.session, manifest.name, manifest.cut, manifest.cut_at) == (SESSION, "payroll", "migrate", 42)
    assert (manifest.records, manifest.head) == (10, here.log.head(SESSION).hash.hex())
    assert (manifest.spec, manifest.about) == ("run: [true]\n", {"origin": "host"})


def test_any_gzip_program_reads_a_bundle_as_json_lines(here: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "b")
    lines = [json.loads(line) for line in gzip.decompress((tmp_path / "b").read_bytes()).splitlines()]
    assert [line["line"] for line in lines] == ["manifest"] + ["record"] * 10 + ["blob", "chunk"] * 2 + ["end"]


def test_the_same_session_saved_twice_is_the_same_file_only_ours_to_read(here: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "one")
    here.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert os.stat(tmp_path / "one").st_mode & 0o777 == 0o600


def test_a_session_is_saved_up_to_a_seq(here: Place, there: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "b", to_seq=4)
    load(there.log, there.blobs, tmp_path / "b")
    assert list(there.log.read(SESSION)) == list(here.log.read(SESSION, to_seq=4))
    for seq in (0, 11):
        with pytest.raises(BundleNotWritten, match=f"no record {seq}"):
            here.save(tmp_path / "c", to_seq=seq)


def test_loaded_again_nothing_is_imported(here: Place, there: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "b")
    load(there.log, there.blobs, tmp_path / "b")
    assert load(there.log, there.blobs, tmp_path / "b").records == 0
    assert load(here.log, here.blobs, tmp_path / "b").records == 0
    assert there.log.position() == 10


def test_a_session_that_went_on_elsewhere_comes_back_when_it_may_be_extended(
    here: Place, there: Place, tmp_path: Path
) -> None:
    here.save(tmp_path / "out", cut="migrate")
    load(there.log, there.blobs, tmp_path / "out")
    there.log.append_blocking([Append(SESSION, 10, (Draft("note_added", b'"there"', "x"),))], at=9)
    there.save(tmp_path / "back", cut="migrate")
    with pytest.raises(Conflict):
        load(here.log, here.blobs, tmp_path / "back")
    assert load(here.log, here.blobs, tmp_path / "back", extend=True).records == 1
    assert here.log.head(SESSION) == there.log.head(SESSION)


def test_an_erased_payload_stays_erased(here: Place, there: Place, tmp_path: Path) -> None:
    here.log.erase(SESSION, [3])
    assert here.save(tmp_path / "b").contents.erased == 1
    load(there.log, there.blobs, tmp_path / "b")
    assert list(there.log.read(SESSION)) == list(here.log.read(SESSION))
    assert there.log.verify().erased == 1


def test_a_blob_that_is_gone_is_told_and_the_rest_is_saved(here: Place, tmp_path: Path) -> None:
    next(path for path in (here.folder / "blobs").rglob("*") if path.is_file()).unlink()
    saved = here.save(tmp_path / "b")
    assert saved.missing_blobs == 1
    assert verify_bundle(tmp_path / "b") == saved.contents


def test_a_load_that_was_cut_short_goes_on(here: Place, there: Place, tmp_path: Path) -> None:
    here.save(tmp_path / "b")
    records, head = list(here.log.read(SESSION)), here.log.head(SESSION)
    there.log.begin_import(SESSION, head.seq, head.hash)
    there.log.import_records(SESSION, records[:4])
    assert load(there.log, there.blobs, tmp_path / "b").records == 6
    assert there.log.heads() == {SESSION: head}


# Scratch files


def test_scratch_files_come_along_and_links_and_strange_names_are_told(
    here: Place, there: Place, tmp_path: Path
) -> None:
    (here.scratch / "deep/er").mkdir(parents=True)
    (here.scratch / "deep/er/report.csv").write_bytes(os.urandom(700_000))
    (here.scratch / "empty").write_text("")
    (here.scratch / "run.sh").write_text("true")
    (here.scratch / "run.sh").chmod(0o755)
    (here.scratch / "link").symlink_to("/etc/passwd")
    (here.scratch / "folder-link").symlink_to("/etc")
    os.mkfifo(here.scratch / "pipe")
    (here.scratch / "back\\slash").write_text("")
    saved = here.save(tmp_path / "b", scratch=here.scratch)
    assert saved.passed_files == ("back\\slash", "folder-link", "link", "pipe")
    loaded = load(there.log, there.blobs, tmp_path / "b", scratch=there.scratch)
    assert loaded.files == 3
    assert sorted(str(path.relative_to(there.scratch)) for path in there.scratch.rglob("*") if path.is_file()) == [
        "deep/er/report.csv",
        "empty",
        "run.sh",
    ]
    assert (there.scratch / "deep/er/report.csv").read_bytes() == (here.scratch / "deep/er/report.csv").read_bytes()
    assert os.stat(there.scratch / "run.sh").st_mode & 0o777 == 0o700
    assert os.stat(there.scratch / "empty").st_mode & 0o777 == 0o600


def test_scratch_files_never_go_into_a_folder_that_is_there(here: Place, there: Place, tmp_path: Path) -> None:
    here.scratch.mkdir()
    (here.scratch / "file").write_text("x")
    here.save(tmp_path / "b", scratch=here.scratch)
    there.scratch.mkdir()
    with pytest.raises(BundleRefused, match="exists"):
        load(there.log, there.blobs, tmp_path / "b", scratch=there.scratch)
    assert there.log.imports() == ()
    assert load(there.log, there.blobs, tmp_path / "b").files == 0


# Refused saves


def test_a_bundle_never_overwrites_and_leaves_nothing_half_written(here: Place, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(BundleNotWritten, match="never overwrites"):
        here.save(tmp_path / "b")
    with pytest.raises(BundleNotWritten, match="cannot be written"):
        here.save(tmp_path / "nowhere" / "b")
    with pytest.raises(BundleNotWritten, match="no records"):
        save(here.log, here.blobs, "nobody", tmp_path / "c", name="nobody", cut_at=1)
    assert (tmp_path / "b").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "here"]


def test_a_damaged_blob_does_not_travel(here: Place, tmp_path: Path) -> None:
    blob = next(path for path in (here.folder / "blobs").rglob("*") if path.is_file())
    blob.chmod(0o600)
    blob.write_bytes(b"other")
    with pytest.raises(DamagedBlob, match="differs from its address"):
        here.save(tmp_path / "b")
    assert not (tmp_path / "b").exists()


# Archives


def test_an_archive_brings_back_exactly_what_left(here: Place, tmp_path: Path) -> None:
    before = list(here.log.read(SESSION))
    here.log.erase(SESSION, [2])
    saved = here.save(tmp_path / "b", cut="archive")
    assert verify_bundle(tmp_path / "b") == saved.contents
    assert here.log.archive(SESSION, 10) == 9
    with pytest.raises(BundleNotWritten, match="archived"):
        here.save(tmp_path / "c")
    assert restore_archive(here.log, here.blobs, tmp_path / "b") == 9
    after = list(here.log.read(SESSION))
    assert [record.payload for record in after] == [None if record.seq == 2 else record.payload for record in before]
    assert here.log.verify().is_sound


def test_an_erased_payload_leaves_the_archive_too_and_the_rest_comes_back(here: Place, tmp_path: Path) -> None:
    before = list(here.log.read(SESSION))
    blob = json.loads(before[0].payload or b"")["output"]["head"]
    saved = here.save(tmp_path / "b", cut="archive")
    here.log.archive(SESSION, 10)
    assert here.log.erase(SESSION, [3]) == 0
    contents = erase_from_bundle(tmp_path / "b", [3], blobs=[blob])
    assert (contents.erased, contents.blobs, contents.records) == (1, 1, 10)
    assert contents.digest != saved.contents.digest
    assert verify_bundle(tmp_path / "b") == contents
    assert f"\\n {2}".encode() not in gzip.decompress((tmp_path / "b").read_bytes())
    assert restore_archive(here.log, here.blobs, tmp_path / "b") == 9
    assert [record.payload for record in here.log.read(SESSION)] == [
        None if record.seq == 3 else record.payload for record in before
    ]
    assert here.log.verify().is_sound
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "here"]


def test_progress_is_told_to_its_end(here: Place, there: Place, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    here.save(tmp_path / "b", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (10, 10)
    told.clear()
    contents = verify_bundle(tmp_path / "b", lambda done, total: told.append((done, total)))
    assert told[-1] == (contents.total_bytes, contents.total_bytes)


def test_the_contents_a_run_read_and_wrote_come_along(here: Place, there: Place, tmp_path: Path) -> None:
    """They come by the record that the run's end names, and a long list by its parts."""
    contents = [b"content %02d" % number for number in range(100)]
    entries = [
        Entry(path=f"in/{number:02}", kind="f", digest=here.blobs.add(content).removeprefix("blake2b-"))
        for number, content in enumerate(contents)
    ]
    parts = [here.blobs.add(msgspec.json.encode(some)) for some in (entries[:50], entries[50:])]
    found = Found(version="v1", listing=here.blobs.add(msgspec.json.encode(parts)))
    gone = Entry(path="gone", kind="f", digest="00" * 20)
    files = RunFiles(
        run_id="r1",
        root="/root",
        bindings=(BindingFiles(name="in", access="read", before=found, after=Found(entries=(entries[0], gone))),),
    )
    address = here.blobs.put(msgspec.json.encode(files))
    payload = msgspec.json.encode({"run": 1, "files": address})
    here.log.append_blocking([Append(SESSION, 10, (Draft("run_finished", payload, "payroll"),))], at=9)
    saved = here.save(tmp_path / "b")
    assert saved.missing_blobs == 1
    assert saved.contents.blobs == 2 + 100 + 2 + 2
    load(there.log, there.blobs, tmp_path / "b")
    loaded = read_record(there.blobs, address)
    assert loaded == files
    assert [
        there.blobs.get(entry.address or "") for entry in read_entries(there.blobs, loaded.bindings[0].before)
    ] == contents
