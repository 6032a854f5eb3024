"""The difference report: how each person's pay differs from last month's result, and why.

It owns the wording of the report. It is pure: payslips go in, Markdown comes out. The reasons follow from the two
payslips alone, so they hold no matter who edited which file. Only to tell a crossed bracket from an edited tax table
does it also read the table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from .insurance import KINDS, Contribution
from .month import Month
from .payslip import Employee, Payslip
from .records import CENT, format_percent
from .tax import TaxTable


@dataclass(frozen=True)
class Comparison:
    """This month's payslips and last month's. `last` is empty when there is no earlier result."""

    month: Month
    now: Mapping[str, Payslip]
    last: Mapping[str, Payslip]
    not_started: Sequence[Employee]


def render_differences(comparison: Comparison, table: TaxTable) -> str:
    now, last = comparison.now, comparison.last
    changes = {
        id: explain_change(last[id], payslip, table)
        for id, payslip in now.items()
        if id in last and has_changed(last[id], payslip)
    }
    lines = [f"# Payroll {comparison.month}: differences against {comparison.month.before()}", ""]
    lines += render_totals(now.values(), last.values())
    lines += render_list("Joined", [describe_joined(p) for id, p in now.items() if id not in last])
    lines += render_list(
        "Left", [f"{title(p)}: last net pay {money(p.net)}" for id, p in last.items() if id not in now]
    )
    lines += render_list("Not started", [f"{e.id} {escape(e.name)}: from {e.start}" for e in comparison.not_started])
    lines += ["## Changed", ""] if changes else []
    for id, reasons in changes.items():
        lines += [f"### {title(now[id])}", "", step("net pay", last[id].net, now[id].net), *reasons, ""]
    unchanged = [id for id in now if id in last and id not in changes]
    lines += ["## Unchanged", "", f"{len(unchanged)} people: {', '.join(unchanged)}", ""] if unchanged else []
    return "\n".join(lines)


def render_totals(now: Iterable[Payslip], last: Iterable[Payslip]) -> list[str]:
    now, last = list(now), list(last)
    rows = [
        ("people", str(len(last)), str(len(now)), f"{len(now) - len(last):+}"),
        *(
            (name, money(before), money(after), signed(after - before))
            for name, before, after in (
                ("gross", total(p.gross for p in last), total(p.gross for p in now)),
                ("employees' insurance", *(total(p.insurance_employee for p in side) for side in (last, now))),
                ("employer's insurance", *(total(p.insurance_employer for p in side) for side in (last, now))),
                ("income tax", total(p.tax for p in last), total(p.tax for p in now)),
                ("net pay", total(p.net for p in last), total(p.net for p in now)),
            )
        ),
    ]
    return [
        "| | last month | this month | change |",
        "|---|--:|--:|--:|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def render_list(heading: str, entries: list[str]) -> list[str]:
    return [f"## {heading}", "", *(f"- {entry}" for entry in entries), ""] if entries else []


def describe_joined(payslip: Payslip) -> str:
    return f"{title(payslip)}: gross {money(payslip.gross)}, net pay {money(payslip.net)}"


def has_changed(last: Payslip, now: Payslip) -> bool:
    def monthly(p: Payslip) -> tuple[object, ...]:
        return p.name, p.city, p.base_salary, p.allowance, p.contributions, p.special_deductions, p.tax_rate, p.tax

    return monthly(last) != monthly(now)


def explain_change(last: Payslip, now: Payslip, table: TaxTable) -> list[str]:
    lines = []
    if last.name != now.name:
        lines.append(f"- name: {escape(last.name)} → {escape(now.name)}")
    if last.city != now.city:
        lines.append(f"- city: {last.city} → {now.city}, so that city's rates apply")
    for label, before, after in (
        ("base salary", last.base_salary, now.base_salary),
        ("allowance", last.allowance, now.allowance),
        ("special deductions", last.special_deductions, now.special_deductions),
    ):
        if before != after:
            lines.append(step(label, before, after))
    lines += explain_bases(last, now)
    lines += explain_rates(last, now)
    if last.insurance_employee != now.insurance_employee:
        lines.append(step("employee's insurance", last.insurance_employee, now.insurance_employee))
    if last.insurance_employer != now.insurance_employer:
        lines.append(step("employer's insurance", last.insurance_employer, now.insurance_employer))
    if (last.tax, last.tax_rate) != (now.tax, now.tax_rate):
        lines.append(f"{step('tax', last.tax, now.tax)}: {explain_tax(last, now, table)}")
    return lines


def explain_bases(last: Payslip, now: Payslip) -> list[str]:
    """Return one line for each distinct change, because most insurances of a city share a floor and a cap."""
    moves: dict[tuple[Decimal, Decimal, str], list[str]] = {}
    for kind in KINDS:
        before, after = last.contributions[kind], now.contributions[kind]
        if before.base != after.base:
            moves.setdefault((before.base, after.base, limit_of(after, now.gross)), []).append(spell(kind))
    return [
        f"{step('contribution base', before, after)}, {limit}: {', '.join(kinds)}"
        for (before, after, limit), kinds in moves.items()
    ]


def limit_of(contribution: Contribution, gross: Decimal) -> str:
    if contribution.base > gross:
        return "raised to the floor"
    if contribution.base < gross:
        return "limited by the cap"
    return "the gross salary"


def explain_rates(last: Payslip, now: Payslip) -> list[str]:
    lines = []
    for kind in KINDS:
        before, after = last.contributions[kind], now.contributions[kind]
        for side, old, new in (
            ("employee", before.employee_rate, after.employee_rate),
            ("employer", before.employer_rate, after.employer_rate),
        ):
            if old != new:
                lines.append(f"- {spell(kind)} rate, {side}: {format_percent(old)} → {format_percent(new)}")
    return lines


def explain_tax(last: Payslip, now: Payslip, table: TaxTable) -> str:
    # A new year: the cumulative sums begin at zero, so the lowest bracket applies again.
    if now.so_far.months == 1:
        return "the year's sums begin again"

    # More was withheld than is due so far. compute_payslip then withholds nothing and refunds nothing.
    if now.so_far.tax > table.tax_on(now.taxable):
        return "more was withheld before than is due so far; it is settled after the year's end"

    # Last month's tax does not follow from this table, so somebody edited the table since.
    if last.so_far.tax < table.tax_on(last.taxable) or (last.tax > 0 and last.so_far.tax > table.tax_on(last.taxable)):
        return "the tax table differs from last month's; the earlier months are settled with it"

    # The cumulative taxable income passed into another bracket this month.
    if last.tax_rate != now.tax_rate:
        return (
            f"bracket {format_percent(last.tax_rate)} → {format_percent(now.tax_rate)}, "
            f"taxable income so far {money(now.taxable)}"
        )

    # It passed last month. Then only the part above the border was taxed at the higher rate.
    if table.bracket_of(taxable_before(last, table)) != table.bracket_of(last.taxable):
        return f"the whole month is now in the {format_percent(now.tax_rate)} bracket, last month only a part was"

    if last.taxable == 0 or now.taxable == 0:
        return f"taxable income so far {money(last.taxable)} → {money(now.taxable)}"

    # The tax is rounded on the cumulative sum, so one month can differ by a cent.
    if abs(now.tax - last.tax) <= CENT:
        return "rounding of the year's sum"
    return f"{format_percent(now.tax_rate)} of what changed above"


def taxable_before(payslip: Payslip, table: TaxTable) -> Decimal:
    """Return the cumulative taxable income one month before this payslip."""
    of_month = payslip.gross - table.monthly_allowance - payslip.insurance_employee - payslip.special_deductions
    return max(Decimal(0), payslip.taxable - of_month)


def title(payslip: Payslip) -> str:
    return f"{payslip.id} {escape(payslip.name)}, {payslip.city}"


def step(label: str, before: Decimal, after: Decimal) -> str:
    return f"- {label}: {money(before)} → {money(after)} ({signed(after - before)})"


def total(amounts: Iterable[Decimal]) -> Decimal:
    return sum(amounts, Decimal("0.00"))


def money(amount: Decimal) -> str:
    return f"{amount:,.2f}"


def signed(amount: Decimal) -> str:
    return f"{amount:+,.2f}"


def spell(kind: str) -> str:
    return kind.replace("_", " ")


def escape(text: str) -> str:
    """Escape the text of a table, so that it cannot become markup of the report."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>#|" else c for c in text)
