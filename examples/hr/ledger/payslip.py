"""Computes a payslip from a row of salaries.csv, and converts payslips to and from rows of payroll.csv.

The tax follows China's cumulative method: the tax on the year's income so far, less the tax withheld so far. Pure
except for the readers. payroll.py and social_insurance_filing.py call it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from .insurance import KINDS, Contribution, Rate, contribute
from .month import Month, month_in_row
from .records import InputError, Row, format_percent, parse_rows, read_rows
from .tax import TaxTable

EMPLOYEE_COLUMNS = ("id", "name", "role", "city", "base_salary", "allowance", "special_deductions", "start")
CONTRIBUTION_FIELDS = ("base", "employee_rate", "employer_rate", "employee", "employer")
PAYSLIP_COLUMNS = (
    "month", "id", "name", "city", "base_salary", "allowance", "gross",
    *(f"{kind}_{field}" for kind in KINDS for field in CONTRIBUTION_FIELDS),
    "insurance_employee", "insurance_employer", "special_deductions",
    "months", "cumulative_gross", "cumulative_insurance", "cumulative_special", "cumulative_taxable",
    "tax_rate", "cumulative_tax", "tax", "net",
)  # fmt: skip


@dataclass(frozen=True)
class Employee:
    row: Row
    id: str
    name: str
    city: str
    base_salary: Decimal
    allowance: Decimal
    special_deductions: Decimal
    start: Month


@dataclass(frozen=True)
class YearSoFar:
    """Sums from January, or from the start month, up to and including the payslip's month."""

    months: int
    gross: Decimal
    insurance: Decimal
    special: Decimal
    tax: Decimal


@dataclass(frozen=True)
class Payslip:
    month: Month
    id: str
    name: str
    city: str
    base_salary: Decimal
    allowance: Decimal
    contributions: Mapping[str, Contribution]
    special_deductions: Decimal
    so_far: YearSoFar
    taxable: Decimal
    tax_rate: Decimal
    tax: Decimal

    @property
    def gross(self) -> Decimal:
        return self.base_salary + self.allowance

    @property
    def insurance_employee(self) -> Decimal:
        return sum((c.employee for c in self.contributions.values()), Decimal("0.00"))

    @property
    def insurance_employer(self) -> Decimal:
        return sum((c.employer for c in self.contributions.values()), Decimal("0.00"))

    @property
    def net(self) -> Decimal:
        return self.gross - self.insurance_employee - self.tax


NOTHING_YET = YearSoFar(0, Decimal("0.00"), Decimal("0.00"), Decimal("0.00"), Decimal("0.00"))


def read_employees(path: Path, cities: Mapping[str, Mapping[str, Rate]]) -> list[Employee]:
    def parse(row: Row) -> Employee:
        city = row.slug("city")
        if city not in cities:
            raise row.problem("city", f"one of {', '.join(cities)}", f"correct it, or add the rates as {city}.csv")
        row.text("role")
        return Employee(
            row=row,
            id=row.reference("id"),
            name=row.text("name"),
            city=city,
            base_salary=row.amount("base_salary"),
            allowance=row.amount("allowance"),
            special_deductions=row.amount("special_deductions"),
            start=month_in_row(row, "start"),
        )

    return sorted(parse_rows(read_rows(path, EMPLOYEE_COLUMNS), parse, unique="id"), key=lambda person: person.id)


def compute_payslip(
    employee: Employee, rates: Mapping[str, Rate], table: TaxTable, month: Month, last: Payslip | None
) -> Payslip:
    gross = employee.base_salary + employee.allowance
    contributions = {kind: contribute(rates[kind], gross) for kind in KINDS}
    earlier = year_before(employee, month, last)
    months = earlier.months + 1
    insurance = earlier.insurance + sum(c.employee for c in contributions.values())
    special = earlier.special + employee.special_deductions
    taxable = max(Decimal("0.00"), earlier.gross + gross - table.monthly_allowance * months - insurance - special)
    # Never negative: tax withheld in excess is settled after the year's end, not refunded in a month.
    tax = max(Decimal("0.00"), table.tax_on(taxable) - earlier.tax)
    return Payslip(
        month=month,
        id=employee.id,
        name=employee.name,
        city=employee.city,
        base_salary=employee.base_salary,
        allowance=employee.allowance,
        contributions=contributions,
        special_deductions=employee.special_deductions,
        so_far=YearSoFar(months, earlier.gross + gross, insurance, special, earlier.tax + tax),
        taxable=taxable,
        tax_rate=table.bracket_of(taxable).rate,
        tax=tax,
    )


def year_before(employee: Employee, month: Month, last: Payslip | None) -> YearSoFar:
    """Return the year's sums before this month. Raise an error if last month's result and the start month disagree."""
    first = max(employee.start, Month(month.year, 1))
    if first == month:
        return NOTHING_YET
    if last is None:
        raise employee.row.problem(
            "start",
            f"{month} for somebody who has no payslip of {month.before()}",
            "correct it, or put the missing row into previous.csv",
        )
    months = month.number - first.number
    if last.so_far.months != months:
        raise employee.row.problem(
            "start",
            f"a month that fits the {last.so_far.months} months which previous.csv has summed up",
            "correct it, or the months of that row",
        )
    return last.so_far


def payslip_cells(payslip: Payslip) -> dict[str, str]:
    cells = {
        "month": str(payslip.month),
        "id": payslip.id,
        "name": payslip.name,
        "city": payslip.city,
        "base_salary": str(payslip.base_salary),
        "allowance": str(payslip.allowance),
        "gross": str(payslip.gross),
        "insurance_employee": str(payslip.insurance_employee),
        "insurance_employer": str(payslip.insurance_employer),
        "special_deductions": str(payslip.special_deductions),
        "months": str(payslip.so_far.months),
        "cumulative_gross": str(payslip.so_far.gross),
        "cumulative_insurance": str(payslip.so_far.insurance),
        "cumulative_special": str(payslip.so_far.special),
        "cumulative_taxable": str(payslip.taxable),
        "tax_rate": format_percent(payslip.tax_rate),
        "cumulative_tax": str(payslip.so_far.tax),
        "tax": str(payslip.tax),
        "net": str(payslip.net),
    }
    for kind, contribution in payslip.contributions.items():
        cells[f"{kind}_base"] = str(contribution.base)
        cells[f"{kind}_employee_rate"] = format_percent(contribution.employee_rate)
        cells[f"{kind}_employer_rate"] = format_percent(contribution.employer_rate)
        cells[f"{kind}_employee"] = str(contribution.employee)
        cells[f"{kind}_employer"] = str(contribution.employer)
    return cells


def read_payslips(path: Path) -> dict[str, Payslip]:
    """Return id -> payslip in the order of the file. All payslips must be of one month."""
    payslips = parse_rows(read_rows(path, PAYSLIP_COLUMNS), parse_payslip, unique="id")
    months = {payslip.month for payslip in payslips}
    if len(months) != 1:
        raise InputError(
            f"{path}: rows of {len(months)} months ({', '.join(map(str, sorted(months)))}); expected exactly one; "
            f"copy a whole payroll.csv here"
        )
    return {payslip.id: payslip for payslip in payslips}


def parse_payslip(row: Row) -> Payslip:
    payslip = Payslip(
        month=month_in_row(row, "month"),
        id=row.reference("id"),
        name=row.text("name"),
        city=row.slug("city"),
        base_salary=row.amount("base_salary"),
        allowance=row.amount("allowance"),
        contributions={kind: parse_contribution(row, kind) for kind in KINDS},
        special_deductions=row.amount("special_deductions"),
        so_far=YearSoFar(
            months=row.count("months"),
            gross=row.amount("cumulative_gross"),
            insurance=row.amount("cumulative_insurance"),
            special=row.amount("cumulative_special"),
            tax=row.amount("cumulative_tax"),
        ),
        taxable=row.amount("cumulative_taxable"),
        tax_rate=row.percent("tax_rate"),
        tax=row.amount("tax"),
    )
    # The sums are for human readers. A row whose sums no longer add up was edited by hand and is refused.
    for column in ("gross", "insurance_employee", "insurance_employer", "net"):
        expected = getattr(payslip, column)
        if row.cells[column] != str(expected):
            raise row.problem(column, f"{expected}, from the other cells", "undo the edit, or correct the sum")
    return payslip


def parse_contribution(row: Row, kind: str) -> Contribution:
    return Contribution(
        base=row.amount(f"{kind}_base"),
        employee_rate=row.percent(f"{kind}_employee_rate"),
        employer_rate=row.percent(f"{kind}_employer_rate"),
        employee=row.amount(f"{kind}_employee"),
        employer=row.amount(f"{kind}_employer"),
    )
