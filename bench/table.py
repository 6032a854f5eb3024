"""A benchmark's row, its bar, and the printed table.

Bars are printed but not asserted, because the machine may be noisy.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bar:
    relation: str
    value: float
    words: str = ""

    def is_met(self, value: float) -> bool:
        return value <= self.value if self.relation == "<=" else value >= self.value

    def judge(self, value: float) -> str:
        return f"{self.relation} {self.value:,.2f} {self.words}".strip() + (
            ": met" if self.is_met(value) else ": NOT MET"
        )


@dataclass(frozen=True)
class Row:
    section: str
    what: str
    value: float | None
    unit: str
    bar: Bar | None = None
    note: str = ""

    @property
    def figure(self) -> str:
        if self.value is None:
            return "-"
        return f"{self.value:,.2f}" if abs(self.value) < 100 else f"{self.value:,.0f}"

    @property
    def verdict(self) -> str:
        return self.bar.judge(self.value) if self.bar is not None and self.value is not None else ""


def print_table(rows: Iterable[Row]) -> None:
    listed = list(rows)
    width = max((len(row.what) for row in listed), default=10)
    section = None
    for row in listed:
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        print(f"  {row.what:<{width}}  {row.figure:>12} {row.unit:<10} {row.verdict}  {row.note}".rstrip())


def describe_machine() -> str:
    """Return the date and a description of the machine, without which figures mean little."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    load = "/".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} x {names[0] if names else platform.machine()}, "
        f"{memory:.0f} GB, Linux {platform.release()}, Python {platform.python_version()}, load {load}"
    )
