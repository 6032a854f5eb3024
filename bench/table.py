"""A benchmark's row, its bar, and how both are printed. Bars are printed, never asserted: this hardware may be noisy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    relation: str
    value: float
    words: str = ""

    def is_met(self, value: float) -> bool:
        return value <= self.value if self.relation == "<=" else value >= self.value


@dataclass(frozen=True)
class Row:
    section: str
    what: str
    value: float | None
    unit: str
    bar: Bar | None = None
    note: str = ""


def print_table(rows: Iterable[Row]) -> None:
    listed = list(rows)
    width = max((len(row.what) for row in listed), default=10)
    section = None
    for row in listed:
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        value = "-" if row.value is None else f"{row.value:,.2f}" if row.value < 100 else f"{row.value:,.0f}"
        verdict = ""
        if row.bar is not None and row.value is not None:
            met = "met" if row.bar.is_met(row.value) else "NOT MET"
            verdict = f"{row.bar.relation} {row.bar.value:,.2f} {row.bar.words}".strip() + f": {met}"
        print(f"  {row.what:<{width}}  {value:>12} {row.unit:<10} {verdict}  {row.note}".rstrip())
