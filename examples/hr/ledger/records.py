"""Rows that know their file and line, and results that are written whole or not at all.

It owns every rule about how the HR examples read text and write files. All three programs call it. It never guesses: a
cell that it does not understand is a problem with a place. It collects all problems of a file, so that a person can
correct a table once and not once for each row.
"""

import csv
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TypeVar

CENT = Decimal("0.01")
SHOWN_PROBLEMS = 20

Parsed = TypeVar("Parsed")


class InputError(Exception):
    """One or more problems in the input files. Each is a line that says where, what and how to fix it."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


def round_to_cents(amount: Decimal) -> Decimal:
    """Round half up, as payroll offices do. The default of Decimal is half even."""
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)


def parse_percent(text: str) -> Decimal | None:
    # The percent sign is required: 8 and 0.08 both look right without it, and differ by a factor of 100.
    if not re.fullmatch(r"\d{1,3}(\.\d{1,4})?%", text):
        return None
    rate = Decimal(text[:-1]) / 100
    return rate if rate <= 1 else None


def parse_amount(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"\d{1,12}(\.\d{1,2})?", text) else None


def format_percent(rate: Decimal) -> str:
    return f"{(rate * 100).normalize():f}%"


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def problem(self, column: str, expected: str, fix: str) -> InputError:
        return InputError(f"{self.path}:{self.line}: {column} is {self.cells[column]!r}; expected {expected}; {fix}")

    def text(self, column: str) -> str:
        text = self.cells[column]
        if not text or not text.isprintable():
            raise self.problem(column, "some text on one line", "fill the cell")
        # People open the results in spreadsheets, which would evaluate such a cell.
        if text[0] in "=+-@":
            raise self.problem(column, "text that no spreadsheet takes for a formula", "remove the sign in front")
        return text

    def reference(self, column: str) -> str:
        text = self.cells[column]
        if not re.fullmatch(r"[A-Za-z0-9-]{1,20}", text):
            raise self.problem(column, "letters, digits and hyphens, such as E001", "rename it")
        return text

    def slug(self, column: str) -> str:
        # The text becomes part of a file name, so it must not contain anything that leaves the folder.
        text = self.cells[column]
        if not re.fullmatch(r"[a-z][a-z-]{0,30}", text):
            raise self.problem(column, "small letters and hyphens, such as beijing", "rename it")
        return text

    def amount(self, column: str) -> Decimal:
        amount = parse_amount(self.cells[column])
        if amount is None:
            raise self.problem(
                column,
                "an amount of zero or more, such as 12000 or 12000.50",
                "write digits only, no separators, no sign, at most two decimals",
            )
        return round_to_cents(amount)

    def percent(self, column: str) -> Decimal:
        rate = parse_percent(self.cells[column])
        if rate is None:
            raise self.problem(column, "a rate from 0% to 100%, such as 8% or 0.5%", "write it with its % sign")
        return rate

    def count(self, column: str) -> int:
        text = self.cells[column]
        if not re.fullmatch(r"\d{1,4}", text):
            raise self.problem(column, "a whole number", "write digits only")
        return int(text)


def read_text(path: Path) -> str:
    try:
        # utf-8-sig, because spreadsheet programs write a byte order mark before the text.
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: not found; restore it, or run from the folder that holds sessions.d/") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save the file again as UTF-8") from None


def read_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    """Return all rows of a table that has exactly these columns, in any order."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[Row] = []
    problems: list[str] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            stripped = [cell.strip() for cell in cells]
            if header is None:
                header = check_header(path, stripped, columns)
            elif len(stripped) != len(header):
                problems.append(
                    f"{path}:{reader.line_num}: {len(stripped)} cells; expected {len(header)} "
                    f"({', '.join(header)}); add or remove a comma"
                )
            else:
                rows.append(Row(path, reader.line_num, dict(zip(header, stripped, strict=True))))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}; check the quotes on this line") from None
    if header is None:
        raise InputError(f"{path}:1: empty; expected a header line: {','.join(columns)}")
    if problems:
        raise gather(problems)
    return rows


def check_header(path: Path, found: list[str], expected: Sequence[str]) -> list[str]:
    if sorted(found) == sorted(expected):
        return found
    missing = [column for column in expected if column not in found]
    surplus = [column for column in found if column not in expected]
    repeated = sorted({column for column in found if found.count(column) > 1})
    parts = [
        f"{what} {', '.join(columns)}"
        for what, columns in (("missing", missing), ("unknown", surplus), ("repeated", repeated))
        if columns
    ]
    raise InputError(f"{path}:1: header has {'; '.join(parts)}; expected {','.join(expected)}")


def parse_rows(rows: Iterable[Row], parse: Callable[[Row], Parsed], unique: str) -> list[Parsed]:
    """Parse all rows, and report all problems together. No two rows may have the same value in the column `unique`."""
    parsed: list[Parsed] = []
    problems: list[str] = []
    first_lines: dict[str, int] = {}
    for row in rows:
        key = row.cells[unique]
        if key in first_lines:
            problems.append(
                f"{row.path}:{row.line}: {unique} {key!r} is already on line {first_lines[key]}; remove one of the two"
            )
            continue
        first_lines[key] = row.line
        try:
            parsed.append(parse(row))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise gather(problems)
    return parsed


def gather(problems: list[str]) -> InputError:
    hidden = len(problems) - SHOWN_PROBLEMS
    return InputError(*problems[:SHOWN_PROBLEMS], *([f"and {hidden} more"] if hidden > 0 else []))


def format_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def publish(outputs: Mapping[Path, str]) -> list[Path]:
    """Write every output under a temporary name, then rename them all. Return the outputs that changed.

    An output with the same text is not touched, so no session that reads it is woken. The temporary names end in .tmp,
    which wakeful excludes from every file binding.
    """
    changed = [path for path, text in outputs.items() if not has_text(path, text)]
    partial = {path: path.with_name(path.name + ".tmp") for path in changed}
    try:
        for path, temporary in partial.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(outputs[path].encode())
        for path, temporary in partial.items():
            os.replace(temporary, path)
    finally:
        for temporary in partial.values():
            temporary.unlink(missing_ok=True)
    return changed


def has_text(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def run_program(main: Callable[[], None]) -> None:
    """Call `main`. Print problems to stderr, one on each line, and end the program with exit code 1."""
    try:
        main()
    except InputError as error:
        print(*error.problems, sep="\n", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(
            f"{error.filename}: {error.strerror}; no output was half written; fix that and run again", file=sys.stderr
        )
        sys.exit(1)
