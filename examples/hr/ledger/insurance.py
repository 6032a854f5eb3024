"""Social insurance and housing fund: the rates of each city, and the shares of an employee and the employer.

It owns the six kinds of insurance and the rule of floor and cap. There is one CSV file for each city, named after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from .records import InputError, Row, parse_rows, read_rows, round_to_cents

KINDS = ("pension", "medical", "unemployment", "work_injury", "maternity", "housing_fund")
COLUMNS = ("insurance", "floor", "cap", "employee_rate", "employer_rate")


@dataclass(frozen=True)
class Rate:
    kind: str
    floor: Decimal
    cap: Decimal
    employee: Decimal
    employer: Decimal


@dataclass(frozen=True)
class Contribution:
    base: Decimal
    employee_rate: Decimal
    employer_rate: Decimal
    employee: Decimal
    employer: Decimal


def contribute(rate: Rate, gross: Decimal) -> Contribution:
    base = min(max(gross, rate.floor), rate.cap)
    return Contribution(
        base=base,
        employee_rate=rate.employee,
        employer_rate=rate.employer,
        employee=round_to_cents(base * rate.employee),
        employer=round_to_cents(base * rate.employer),
    )


def read_city_rates(folder: Path) -> dict[str, Mapping[str, Rate]]:
    """Return city -> kind -> rate, from every CSV file in the folder."""
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise InputError(f"{folder}: no .csv file; expected one per city, such as {folder / 'beijing.csv'}; add it")
    return {path.stem: read_rates(path) for path in paths}


def read_rates(path: Path) -> Mapping[str, Rate]:
    rates = {rate.kind: rate for rate in parse_rows(read_rows(path, COLUMNS), parse_rate, unique="insurance")}
    missing = [kind for kind in KINDS if kind not in rates]
    if missing:
        raise InputError(f"{path}: no row for {', '.join(missing)}; expected one row for each of {', '.join(KINDS)}")
    return rates


def parse_rate(row: Row) -> Rate:
    kind = row.cells["insurance"]
    if kind not in KINDS:
        raise row.problem("insurance", f"one of {', '.join(KINDS)}", "correct the name")
    floor, cap = row.amount("floor"), row.amount("cap")
    if floor > cap:
        raise row.problem("floor", f"at most the cap, {cap}", "exchange the two or correct one")
    return Rate(kind, floor, cap, row.percent("employee_rate"), row.percent("employer_rate"))
