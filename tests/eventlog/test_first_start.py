"""The first start, ended by a kill or a power cut at any file operation.

Acknowledged records remain, and the next start makes the rest anew.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.disk_trace import Disk, trace
from eventlog.engines import append
from wakeful.errors import WakefulError
from wakeful.eventlog.contract import StoreDamaged, StoreUnfinished
from wakeful.eventlog.sqlite import judge_state, open_log, open_reader
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.sqlite.repair import mend_store

APPENDER = Path(__file__).with_name("append_process.py")
# Releases before 0.2 made the database in this way: under its own name, step by step.
EARLIER = """
import sys
from pathlib import Path
from wakeful.eventlog.sqlite.schema import load_migrations, migrate
from wakeful.eventlog.state_lock import lock_state
from wakeful.eventlog.sqlite.files import StoreFiles, connect_writer, prepare_folder
files = StoreFiles(Path(sys.argv[1]))
lock_state(files.state_dir)
prepare_folder(files)
files.database.touch(0o600)
connection = connect_writer(files.database)
migrate(connection, load_migrations(), files.database)
connection.close()
"""

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: NO FIRST START WAS CUT SHORT"
)


def cut_short(tmp_path: Path, command: list[str], *, step: int) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield every state folder that a kill and a power cut leave after each `step`th operation.

    Each comes with the heads that were acknowledged by then.
    """
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(root)
    number = 0
    for call in trace(command, tmp_path / "trace"):
        if not disk.take(*call):
            continue
        number += 1
        for is_cut in (False, True) if number % step == 0 else ():
            image = tmp_path / f"image-{number}-{'cut' if is_cut else 'killed'}"
            disk.image(image, is_cut=is_cut)
            yield image / "state", {name: int(seq) for name, seq in re.findall(r"(\w+) (\d+)\n", disk.said)}
            shutil.rmtree(image)
    assert number > 30, "the trace shows no first start"


def check_next_start(state: Path, heads: dict[str, int]) -> None:
    """Every tool answers with a message. The next start works and has the acknowledged records."""
    assert judge_state(state) is None
    for look in (open_reader, mend_store):
        try:
            found = look(state)
        except WakefulError:
            continue
        if look is open_reader:
            found.verify()
            found.close()
    log = open_log(state)
    assert log.read_only is None
    found = {name: head.seq for name, head in log.heads().items()}
    assert {name: seq for name, seq in heads.items() if found.get(name, 0) < seq} == {}
    append(log, "more", "one")
    assert log.verify().findings == ()
    log.close()
    left = {path.name for path in StoreFiles(state).folder.iterdir() if not path.name.startswith("before-migration-")}
    assert left == {"anchor", "events.db"}, "something of the start that was cut short is left"


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.faults)])
def test_a_first_start_that_was_cut_short_leaves_a_folder_on_which_the_next_one_works(
    tmp_path: Path, step: int
) -> None:
    acknowledged = 0
    for state, heads in cut_short(
        tmp_path, [sys.executable, str(APPENDER), str(tmp_path / "root" / "state"), "3"], step=step
    ):
        check_next_start(state, heads)
        acknowledged = max(acknowledged, sum(heads.values()))
    assert acknowledged > 0, "no cut came after an acknowledgement"


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.faults)])
def test_what_a_first_start_of_an_earlier_release_left_is_made_anew(tmp_path: Path, step: int) -> None:
    unfinished = 0
    for state, _ in cut_short(tmp_path, [sys.executable, "-c", EARLIER, str(tmp_path / "root" / "state")], step=step):
        unfinished += is_unfinished(state)
        check_next_start(state, {})
    assert unfinished > 0, "no cut left a database without a schema"


def is_unfinished(state: Path) -> bool:
    try:
        open_reader(state).close()
    except StoreUnfinished as words:
        assert "the next start of the daemon creates it again" in str(words)
        return True
    except StoreDamaged:
        return False
    return False
