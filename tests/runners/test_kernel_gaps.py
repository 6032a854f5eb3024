"""`doctor` and the record of every run name the gaps of a kernel in the same words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful.runners.isolation import kernel_gaps, privileges
from wakeful.runners.isolation.bubblewrap import find_unenforced as find_unenforced_in_view
from wakeful.runners.isolation.reach import find_unenforced


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the cached findings about this kernel before and after the test."""
    known = (kernel_gaps.find_kernel_gaps, find_unenforced, privileges.can_filter)
    for one in known:
        one.cache_clear()
    yield
    for one in known:
        one.cache_clear()


def test_a_gap_is_on_record_and_says_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is older than 6.5 and has no filter for its machine.

    The records of standard and strict runs have the words of the gaps.
    """
    monkeypatch.setattr(kernel_gaps, "_tells_callers", lambda: False)
    monkeypatch.setattr(kernel_gaps, "is_known_machine", lambda: False)
    monkeypatch.setattr(kernel_gaps, "probe_abi", lambda: 3)
    found = kernel_gaps.find_kernel_gaps()
    assert [gap.what for gap in found] == [
        "TCP by port", "device controls", "abstract sockets and signals to others", "system calls", "who calls at the control socket",
    ]  # fmt: skip
    assert all(gap.means and gap.needs for gap in found)
    assert {gap.words for gap in found} <= set(find_unenforced())
    assert {"system calls (x86-64 or arm64 can)", "who calls at the control socket (Linux 6.5 can)"} <= set(
        find_unenforced_in_view(False)
    )
    assert "TCP by port (Linux 6.7 can)" in find_unenforced()


def test_asking_for_a_filter_installs_none() -> None:
    """The seccomp state of the process does not change. This kernel, which confines the suite's runs, has filters."""
    before = Path("/proc/self/status").read_text()
    assert privileges.can_filter()
    assert _find_line(before) == _find_line(Path("/proc/self/status").read_text())


def _find_line(status: str) -> str:
    return next(line for line in status.splitlines() if line.startswith("Seccomp:"))


def test_a_kernel_that_has_no_filters_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no isolated run starts, and the gap says so."""
    monkeypatch.setattr(kernel_gaps, "can_filter", lambda: False)
    assert "no isolated run starts" in [gap.means for gap in kernel_gaps.find_kernel_gaps()]


def test_asking_leaks_no_descriptor() -> None:
    text = "import os; from wakeful.runners.isolation import kernel_gaps; a = os.listdir('/proc/self/fd'); [kernel_gaps._tells_callers() for _ in range(50)]; assert len(os.listdir('/proc/self/fd')) == len(a)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
