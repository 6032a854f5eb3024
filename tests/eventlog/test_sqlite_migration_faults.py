"""The migration of a store of the first release, while its process is killed or its disk is full.

Nothing is lost, and the next start continues.
"""

import shutil
from pathlib import Path

import pytest

from eventlog.test_sqlite_crash import inject, needs_strace
from golden import golden_log
from wakeful.eventlog.sqlite import open_log

FIRST = Path(__file__).parent.parent / "golden" / "0.1.0-schema-1"
CALLS = "pwrite64,fdatasync,fsync,rename,unlink,ftruncate"


def take_over(tmp_path: Path, fault: str) -> bool:
    """Open a copy of the old store under a fault, then without, and return whether the fault fired."""
    state_dir = tmp_path / "state"
    (state_dir / "log").mkdir(parents=True, mode=0o700)
    state_dir.chmod(0o700)
    for name in ("events.db", "anchor"):
        shutil.copyfile(FIRST / name, state_dir / "log" / name)
    ended, fired, _ = inject(tmp_path, state_dir, CALLS, fault, 0)
    log = open_log(state_dir)
    try:
        assert log.read_only is None, fault
        records = golden_log.read_records(FIRST)
        assert [
            record for name in dict.fromkeys(one.session for one in records) for record in log.read(name)
        ] == records, fault
        assert log.verify().findings == (), fault
    finally:
        log.close()
    assert (state_dir / "log" / "before-migration-002.db").exists(), "the old store is kept"
    shutil.rmtree(state_dir)
    # The trace lacks a call that killed its process. The exit code of the process shows it.
    return fired > 0 or ended.returncode != 0


@needs_strace
@pytest.mark.parametrize("fault", ["signal=KILL:when=9", "error=ENOSPC:when=9+"])
def test_a_migration_that_was_cut_short_is_done_by_the_next_start(tmp_path: Path, fault: str) -> None:
    """The records and their hashes are the same, and the old store is kept beside the new one."""
    assert take_over(tmp_path, fault)


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC"])
def test_a_migration_may_be_cut_short_at_every_write(tmp_path: Path, fault: str) -> None:
    """The k-th call for k = 1, 2, ... fails, until no call is left."""
    for k in range(1, 1_000):
        if not take_over(tmp_path, f"{fault}:when={k}"):
            assert k > 30
            return
    raise AssertionError("the sweep did not come to its end")
