"""Compute the month's payroll and report the differences from last month.

The session `payroll` runs it in the folder that holds sessions.d/. It reads the salaries, the insurance rates of each
city, the tax table and last month's result. It writes the payroll and a difference report. The month comes from a file
and the arithmetic is decimal, so the same inputs give the same bytes.
"""

from collections.abc import Mapping
from pathlib import Path

from ledger.differences import Comparison, render_differences
from ledger.insurance import Rate, read_city_rates
from ledger.month import Month, read_month
from ledger.payslip import (
    PAYSLIP_COLUMNS,
    Employee,
    Payslip,
    compute_payslip,
    payslip_cells,
    read_employees,
    read_payslips,
)
from ledger.records import InputError, format_csv, gather, publish, run_program
from ledger.tax import TaxTable, read_tax_table

FOLDER = Path("examples/hr")
MONTH = FOLDER / "month.txt"
SALARIES = FOLDER / "salaries.csv"
RATES = FOLDER / "social-insurance"
TAX = FOLDER / "income-tax.yaml"
PREVIOUS = FOLDER / "previous.csv"
PAYROLL = FOLDER / "out" / "payroll.csv"
DIFFERENCES = FOLDER / "out" / "differences.md"


def main() -> None:
    month = read_month(MONTH)
    rates = read_city_rates(RATES)
    employees = read_employees(SALARIES, rates)
    table = read_tax_table(TAX)
    last = read_last_month(month)

    started = [employee for employee in employees if employee.start <= month]
    now = compute_payslips(started, rates, table, month, last)
    comparison = Comparison(month, now, last, [e for e in employees if e.start > month])
    changed = publish(
        {
            PAYROLL: format_csv(PAYSLIP_COLUMNS, map(payslip_cells, now.values())),
            DIFFERENCES: render_differences(comparison, table),
        }
    )
    net = sum(payslip.net for payslip in now.values())
    print(f"{month}: {len(now)} payslips, net pay {net:,.2f}")
    print(*(f"wrote {path}" for path in changed or ["nothing: the result is the same"]), sep="\n")


def read_last_month(month: Month) -> Mapping[str, Payslip]:
    # In January the sums begin again, so a first payroll needs no previous result.
    if month.number == 1 and not PREVIOUS.exists():
        return {}
    last = read_payslips(PREVIOUS)
    found = next(iter(last.values())).month
    if found != month.before():
        raise InputError(
            f"{PREVIOUS}: is the result of {found}; expected {month.before()}, the month before {MONTH}; "
            f"close the months in order: copy {PAYROLL} to {PREVIOUS}, then set {MONTH} to the next month"
        )
    return last


def compute_payslips(
    employees: list[Employee],
    rates: Mapping[str, Mapping[str, Rate]],
    table: TaxTable,
    month: Month,
    last: Mapping[str, Payslip],
) -> dict[str, Payslip]:
    payslips: dict[str, Payslip] = {}
    problems: list[str] = []
    for employee in employees:
        try:
            payslips[employee.id] = compute_payslip(employee, rates[employee.city], table, month, last.get(employee.id))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise gather(problems)
    if not payslips:
        raise InputError(f"{SALARIES}: nobody has started by {month}; expected at least one person; check {MONTH}")
    return payslips


if __name__ == "__main__":
    run_program(main)
