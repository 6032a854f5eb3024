"""A session of a million records is saved and loaded within bounded memory, and arrives at the same head."""

import subprocess
import sys
from pathlib import Path

import pytest

RECORDS = 1_000_000
MEGABYTES = 200


def step(name: str, folder: Path) -> tuple[float, str]:
    """Run one step. Return its peak memory in megabytes and the head that it left."""
    script = Path(__file__).with_name("large_session_process.py")
    done = subprocess.run(
        [sys.executable, str(script), name, str(folder), str(RECORDS)], capture_output=True, text=True, check=True
    )
    seconds, busy, megabytes, head = done.stdout.split()
    print(f"{name}: {float(seconds):.1f} s, of the processor {float(busy):.1f} s, {float(megabytes):.0f} MB")
    return float(megabytes), head


@pytest.mark.long
def test_a_million_records_are_saved_verified_and_loaded_within_200_megabytes(tmp_path: Path) -> None:
    _, head = step("fill", tmp_path)
    for name in ("save", "verify", "load", "audit"):
        megabytes, _ = step(name, tmp_path)
        assert megabytes <= MEGABYTES, f"{name} held {megabytes:.0f} MB"
    assert step("load", tmp_path)[1] == head
