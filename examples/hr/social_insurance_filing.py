"""Summarise for each city the amounts to file and pay for social insurance and housing fund.

The session `social-insurance-filing` runs it after payroll wrote. It reads only payroll.csv. It writes one page for
each city, and removes the page of a city in which nobody is paid any more. It never recomputes a contribution: the
amounts that payroll deducted are filed.
"""

from decimal import Decimal
from pathlib import Path

from ledger.insurance import KINDS
from ledger.payslip import Payslip, read_payslips
from ledger.records import publish, run_program

PAYROLL = Path("examples/hr/out/payroll.csv")
FILINGS = Path("examples/hr/out/filing")


def main() -> None:
    payslips = read_payslips(PAYROLL)
    by_city: dict[str, list[Payslip]] = {}
    for payslip in payslips.values():
        by_city.setdefault(payslip.city, []).append(payslip)

    pages = {FILINGS / f"{city}.md": render_filing(city, people) for city, people in sorted(by_city.items())}
    changed = publish(pages)
    withdrawn = [path for path in sorted(FILINGS.glob("*.md")) if path not in pages]
    for path in withdrawn:
        path.unlink()
    for city, people in sorted(by_city.items()):
        due = sum(payslip.insurance_employee + payslip.insurance_employer for payslip in people)
        print(f"{city}: {len(people)} people, {due:,.2f} due")
    print(*(f"wrote {path}" for path in changed), *(f"removed {path}" for path in withdrawn), sep="\n")


def render_filing(city: str, people: list[Payslip]) -> str:
    lines = [
        f"# Social insurance filing, {city}, {people[0].month}",
        "",
        f"{len(people)} people: {', '.join(payslip.id for payslip in people)}",
        "",
        "| insurance | contribution bases | employees | employer | due |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        parts = [payslip.contributions[kind] for payslip in people]
        employees = sum((part.employee for part in parts), Decimal("0.00"))
        employer = sum((part.employer for part in parts), Decimal("0.00"))
        bases = sum((part.base for part in parts), Decimal("0.00"))
        lines.append(render_row(kind.replace("_", " "), bases, employees, employer))
    lines.append(
        render_row(
            "**all**",
            None,
            sum((payslip.insurance_employee for payslip in people), Decimal("0.00")),
            sum((payslip.insurance_employer for payslip in people), Decimal("0.00")),
        )
    )
    return "\n".join([*lines, ""])


def render_row(label: str, bases: Decimal | None, employees: Decimal, employer: Decimal) -> str:
    shown = "" if bases is None else f"{bases:,.2f}"
    return f"| {label} | {shown} | {employees:,.2f} | {employer:,.2f} | {employees + employer:,.2f} |"


if __name__ == "__main__":
    run_program(main)
