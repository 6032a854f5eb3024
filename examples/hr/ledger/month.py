"""The month of a payroll: a value that comes from a file, never from the clock.

So a rerun on the same inputs gives the same bytes, whenever it happens.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from .records import InputError, Row, read_text


@dataclass(frozen=True, order=True)
class Month:
    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"

    def before(self) -> "Month":
        return Month(self.year - 1, 12) if self.number == 1 else Month(self.year, self.number - 1)


def parse_month(text: str) -> Month | None:
    match = re.fullmatch(r"([12]\d{3})-(0[1-9]|1[0-2])", text)
    return Month(int(match[1]), int(match[2])) if match else None


def month_in_row(row: Row, column: str) -> Month:
    month = parse_month(row.cells[column])
    if month is None:
        raise row.problem(column, "a month such as 2026-03", "write year, hyphen and two digits")
    return month


def read_month(path: Path) -> Month:
    text = read_text(path).strip()
    month = parse_month(text)
    if month is None:
        raise InputError(f"{path}:1: {text[:40]!r} is not a month; expected one line such as 2026-03; correct it")
    return month
