"""Golden logs of every release fold to the same states as in that release, record by record.

The logs come as lines, stores and bundles.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golden import golden_log
from golden.example_events import SESSIONS
from wakeful import __version__
from wakeful.bundles.load import load
from wakeful.eventlog.codec import FOLD, KINDS, decode_state, encode_state
from wakeful.eventlog.sqlite import open_log
from wakeful.system.blobs import Blobs

every_release = pytest.mark.parametrize("release", golden_log.releases(), ids=lambda path: path.name)


def test_this_release_has_a_golden_log_with_every_kind_of_event() -> None:
    """If a kind is missing, add an example to tests/golden/example_events.py and run `make golden`."""
    recorded = {record.kind for record in golden_log.read_records(golden_log.HERE / __version__)}
    assert sorted(set(KINDS.values()) - recorded) == []


def test_every_example_is_in_the_golden_log() -> None:
    """If examples changed, run `make golden`."""
    records = golden_log.read_records(golden_log.HERE / __version__)
    assert {name: len(examples) for name, examples in SESSIONS.items()} == {
        name: sum(record.session == name for record in records) for name in SESSIONS
    }


@every_release
def test_a_golden_log_folds_to_the_states_it_had(release: Path) -> None:
    """The states are compared after every record. Fields added since do not count."""
    expected: dict[str, dict[str, Any]] = {}
    rows = {(row.session, row.seq): row.changed for row in golden_log.read_states(release)}
    for record, state in golden_log.fold_all(golden_log.read_records(release)):
        expected[record.session] = expected.get(record.session, {}) | rows[record.session, record.seq]
        wrong = golden_log.find_difference(expected[record.session], golden_log.read_fields(state))
        assert wrong is None, f"{release.name}, {record.session}, after seq {record.seq} ({record.kind}): {wrong}"


@every_release
def test_a_snapshot_of_this_release_is_the_state_and_one_of_another_way_of_folding_is_not_read(release: Path) -> None:
    """An upgraded daemon ignores the snapshots of an earlier fold, and folds the log again.

    An old snapshot would lack the fields that the new fold computes.
    """
    expected: dict[str, dict[str, Any]] = {}
    rows = {(row.session, row.seq): row.changed for row in golden_log.read_states(release)}
    for record, state in golden_log.fold_all(golden_log.read_records(release)):
        expected[record.session] = expected.get(record.session, {}) | rows[record.session, record.seq]
        content = msgspec.json.encode(expected[record.session])
        if release.name == __version__:
            assert decode_state(encode_state(state)) == decode_state(b"%d\n" % FOLD + content) == state
        assert decode_state(content) is None and decode_state(b"1\n" + content) is None


@every_release
def test_the_store_of_a_release_is_opened_with_the_same_records_and_goes_on(release: Path, tmp_path: Path) -> None:
    if not (release / "events.db").exists():
        pytest.skip("its log was kept as lines alone")
    (tmp_path / "state/log").mkdir(parents=True, mode=0o700)
    for name in ("events.db", "anchor"):
        shutil.copyfile(release / name, tmp_path / "state/log" / name)
    log = open_log(tmp_path / "state")
    try:
        assert log.read_only is None
        records = golden_log.read_records(release)
        assert [
            record for name in dict.fromkeys(one.session for one in records) for record in log.read(name)
        ] == records
        assert log.verify().findings == ()
    finally:
        log.close()


@every_release
def test_the_bundles_of_a_release_are_loaded_with_the_same_records(release: Path, tmp_path: Path) -> None:
    records = golden_log.read_records(release)
    log = open_log(tmp_path / "state")
    try:
        for bundle in release.glob("*.wakeful"):
            loaded = load(log, Blobs(str(tmp_path / "blobs")), bundle)
            session = loaded.contents.manifest.session
            assert list(log.read(session)) == [record for record in records if record.session == session]
    finally:
        log.close()


@every_release
def test_a_golden_session_saved_and_loaded_folds_to_the_same_state(release: Path, tmp_path: Path) -> None:
    """A session that is loaded from its bundle folds to the same states as its records."""
    records = golden_log.read_records(release)
    log = open_log(tmp_path / "state")
    try:
        for bundle in release.glob("*.wakeful"):
            session = load(log, Blobs(str(tmp_path / "blobs")), bundle).contents.manifest.session
            of_session = [record for record in records if record.session == session]
            assert list(golden_log.fold_all(list(log.read(session)))) == list(golden_log.fold_all(of_session))
    finally:
        log.close()


def test_a_difference_is_named_by_its_place() -> None:
    """Test the comparison itself: expected values must be equal, and new fields are ignored."""
    assert golden_log.find_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "new": 3}], "c": 4}) is None
    assert golden_log.find_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "state.a[1].b is 3; expected 2"
    assert golden_log.find_difference({"a": 1}, {}) == "state.a is gone; expected 1"
    assert golden_log.find_difference({"a": [1]}, {"a": [1, 2]}) == "state.a is [1, 2]; expected [1]"
