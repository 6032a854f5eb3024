"""The places where secrets are looked for, their order, and the reasons for a refusal."""

import asyncio
import logging
import os
import stat
import sys
from pathlib import Path

import pytest

from wakeful.core.calls.call_types import Note
from wakeful.core.record.observations import LookResult, PathChange, TargetLooked
from wakeful.errors import CallerError, OperatorError
from wakeful.secrets.known_secrets import KnownSecrets, RedactingFormatter
from wakeful.secrets.store import (
    Secret,
    SecretMissing,
    SecretPlaces,
    SecretRefused,
    find_secret,
    list_names,
    remove_secret,
    save_secret,
    take_secret_places,
)

VALUE = b"correct horse battery"


@pytest.fixture
def places(tmp_path: Path) -> SecretPlaces:
    (tmp_path / "credentials").mkdir()
    return SecretPlaces(
        str(tmp_path / "config" / "wakeful" / "secrets"),
        str(tmp_path / "credentials"),
        {"WAKEFUL_SECRET_GH_TOKEN": "from the environment"},
    )


def test_systemd_comes_first_then_the_file_then_the_environment(places: SecretPlaces) -> None:
    assert find_secret(places, "gh-token") == Secret("gh-token", b"from the environment", "environment")
    save_secret(places.folder, "gh-token", VALUE)
    assert find_secret(places, "gh-token").source == "file"
    Path(places.credentials, "gh-token").write_bytes(b"from systemd itself")
    assert find_secret(places, "gh-token") == Secret("gh-token", b"from systemd itself", "credential")
    assert list_names(places) == {"GH_TOKEN": "environment", "gh-token": "credential"}


def test_what_is_nowhere_is_missed_with_the_command_that_mends_it(places: SecretPlaces) -> None:
    with pytest.raises(SecretMissing, match=r"^needs a secret: db \(wakeful secret set db\)$"):
        find_secret(places, "db")


def test_a_saved_secret_is_readable_by_its_owner_alone_and_leaves_nothing_beside_it(places: SecretPlaces) -> None:
    save_secret(places.folder, "db", VALUE)
    save_secret(places.folder, "db", VALUE + b"!")
    folder = Path(places.folder)
    assert [entry.name for entry in folder.iterdir()] == ["db"]
    assert stat.S_IMODE((folder / "db").stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert find_secret(places, "db").value == VALUE + b"!"
    remove_secret(places.folder, "db")
    assert not list(folder.iterdir())
    with pytest.raises(CallerError, match="no secret db"):
        remove_secret(places.folder, "db")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused_with_its_mode(places: SecretPlaces, mode: int) -> None:
    save_secret(places.folder, "db", VALUE)
    os.chmod(f"{places.folder}/db", mode)
    with pytest.raises(SecretRefused, match=rf"mode {mode:04o}.*chmod 600"):
        find_secret(places, "db")


def test_a_folder_that_others_can_enter_is_refused_with_its_mode(places: SecretPlaces) -> None:
    save_secret(places.folder, "db", VALUE)
    os.chmod(places.folder, 0o711)
    with pytest.raises(SecretRefused, match="mode 0711.*chmod 700"):
        find_secret(places, "db")
    with pytest.raises(SecretRefused, match="chmod 700"):
        save_secret(places.folder, "other", VALUE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(places: SecretPlaces) -> None:
    save_secret(places.folder, "db", VALUE)
    os.chown(f"{places.folder}/db", 12345, -1)
    with pytest.raises(SecretRefused, match="belongs to user 12345"):
        find_secret(places, "db")


def test_links_folders_and_pipes_are_refused_and_nobody_waits_for_them(places: SecretPlaces, tmp_path: Path) -> None:
    save_secret(places.folder, "db", VALUE)
    os.symlink(f"{places.folder}/db", f"{places.folder}/link")
    os.mkfifo(f"{places.folder}/pipe", 0o600)
    os.mkdir(f"{places.folder}/folder", 0o700)
    for name in ("link", "pipe", "folder"):
        with pytest.raises(SecretRefused, match=name):
            find_secret(places, name)


@pytest.mark.parametrize("name", ["", "../db", "a/b", ".hidden", "a b", "a\nb", "x" * 65, "1st"])
def test_a_name_that_could_lead_elsewhere_is_no_name(places: SecretPlaces, name: str) -> None:
    with pytest.raises(SecretRefused, match="cannot be a secret's name"):
        find_secret(places, name)
    with pytest.raises(CallerError, match="cannot be a secret's name"):
        save_secret(places.folder, name, VALUE)


def test_a_value_too_short_to_be_hidden_is_refused_when_set_and_when_found(places: SecretPlaces) -> None:
    with pytest.raises(CallerError, match="at least 8"):
        save_secret(places.folder, "db", b"1234567")
    Path(places.credentials, "db").write_bytes(b"1234567\n")
    with pytest.raises(SecretRefused, match="at least 8") as refusal:
        find_secret(places, "db")
    assert "1234567" not in str(refusal.value)


def test_the_daemons_variables_are_taken_out_of_its_environment() -> None:
    environ = {"WAKEFUL_SECRET_DB": "a value of some length", "WAKEFUL_SECRET_EMPTY": "", "HOME": "/home/me"}
    places = take_secret_places("/nowhere", environ)
    assert environ == {"HOME": "/home/me"}
    assert find_secret(places, "db").value == b"a value of some length"
    assert list_names(places) == {"DB": "environment"}


def test_no_repr_tells_a_value(places: SecretPlaces) -> None:
    secret = find_secret(places, "gh-token")
    assert repr(secret) == str(secret) == "[secret gh-token]" and f"{[secret]}" == "[[secret gh-token]]"
    assert "from the environment" not in repr(places)


def test_what_changes_is_told_once_and_a_replaced_value_stays_hidden(places: SecretPlaces) -> None:
    told = []
    known = KnownSecrets(places, told.append, lambda: ("db", "gh-token"))
    known.look()
    known.look()
    assert [seen.found for seen in told] == [{"db": "needs a secret: db (wakeful secret set db)", "gh-token": None}]
    save_secret(places.folder, "db", b"the first value")
    assert [secret.value for secret in known.hand_out(("db",))] == [b"the first value"]
    save_secret(places.folder, "db", b"the second value")
    known.look()
    assert told[-1].found == {"db": None, "gh-token": None} and len(told) == 2
    assert (
        known.redact_text("the first value, the second value, the third value")
        == "[secret db], [secret db], the third value"
    )


def test_observations_and_calls_are_rewritten_only_where_a_value_stands(places: SecretPlaces) -> None:
    known = KnownSecrets(places, lambda seen: None, lambda: ())
    known.look()
    plain = Note(name="payroll", text="nothing of the kind")
    assert known.redact(plain) is plain
    assert known.redact(Note(name="payroll", text="it says from the environment!")).text == "it says [secret GH_TOKEN]!"
    change = PathChange("out/from the environment.txt", None, "ab")
    looked = TargetLooked(
        LookResult(target="t", generation=1, version="v", problem="exit 1: from the environment", changes=(change,))
    )
    shown = known.redact(looked)
    assert (
        shown.result.problem == "exit 1: [secret GH_TOKEN]"
        and shown.result.changes[0].path == "out/[secret GH_TOKEN].txt"
    )
    assert (
        known.redact(TargetLooked(LookResult(target="t", generation=1, version=None, problem="odd \udcff name")))
        is not None
    )


def test_what_libraries_log_is_redacted_with_its_traceback(places: SecretPlaces) -> None:
    known = KnownSecrets(places, lambda seen: None, lambda: ())
    known.look()
    try:
        raise RuntimeError("refused: from the environment")
    except RuntimeError:
        record = logging.LogRecord(
            "asyncio", logging.ERROR, __file__, 1, "a reply of %s", ("from the environment",), sys.exc_info()
        )
    shown = RedactingFormatter(known).format(record)
    assert "a reply of [secret GH_TOKEN]" in shown and "RuntimeError: refused: [secret GH_TOKEN]" in shown
    assert "from the environment" not in shown


def test_a_secret_that_went_is_missed_when_it_is_handed_out_and_nobody_is_called_back(places: SecretPlaces) -> None:
    """`hand_out` raises an error but does not call back, because its caller is in the middle of a plan.

    The next look reports the change.
    """
    told = []
    known = KnownSecrets(places, told.append, lambda: ("db",))
    save_secret(places.folder, "db", VALUE)
    known.look()
    remove_secret(places.folder, "db")
    with pytest.raises(OperatorError, match="needs a secret: db"):
        known.hand_out(("db",))
    assert len(told) == 1
    known.look()
    assert told[-1].found["db"] == "needs a secret: db (wakeful secret set db)"


@pytest.mark.asyncio
async def test_what_is_lacking_is_looked_for_until_it_is_there(places: SecretPlaces) -> None:
    told = []
    known = KnownSecrets(places, told.append, lambda: ("db",))
    known.look()
    keeping = asyncio.ensure_future(known.keep())
    save_secret(places.folder, "db", VALUE)
    async with asyncio.timeout(60):
        while told[-1].found["db"] is not None:
            await asyncio.sleep(0.05)
    keeping.cancel()


def test_the_end_of_a_complaint_is_redacted_where_it_was_cut(places: SecretPlaces) -> None:
    known = KnownSecrets(places, lambda seen: None, lambda: ())
    save_secret(places.folder, "db", VALUE)
    known.hand_out(("db",))
    assert known.redact_tail(VALUE[5:] + b": no; " + VALUE) == b": no; [secret db]"
