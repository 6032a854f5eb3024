"""Income tax on a year's cumulative taxable income, by brackets with quick deductions.

It owns the table and its reader. The file is a small, fixed subset of YAML. Any other line is refused with its number,
because a bracket that is skipped silently would make payslips wrong.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from .records import InputError, parse_amount, parse_percent, read_text, round_to_cents

MONTHLY_LINE = re.compile(r"monthly_allowance:\s*(?P<amount>\S+)")
BRACKET_LINE = re.compile(
    r"\s+-\s*\{\s*up_to:\s*(?P<up_to>[^,\s]+)\s*,\s*rate:\s*(?P<rate>[^,\s]+)\s*,"
    r"\s*quick_deduction:\s*(?P<quick>[^,\s}]+)\s*\}"
)
SHAPE = "'monthly_allowance: 5000', 'brackets:' or '  - {up_to: 36000, rate: 3%, quick_deduction: 0}'"


@dataclass(frozen=True)
class Bracket:
    line: int
    up_to: Decimal | None
    rate: Decimal
    quick_deduction: Decimal


@dataclass(frozen=True)
class TaxTable:
    monthly_allowance: Decimal
    brackets: tuple[Bracket, ...]

    def bracket_of(self, taxable: Decimal) -> Bracket:
        return next(b for b in self.brackets if b.up_to is None or taxable <= b.up_to)

    def tax_on(self, taxable: Decimal) -> Decimal:
        if taxable <= 0:
            return Decimal("0.00")
        bracket = self.bracket_of(taxable)
        return round_to_cents(taxable * bracket.rate - bracket.quick_deduction)


def read_tax_table(path: Path) -> TaxTable:
    allowance: Decimal | None = None
    brackets: list[Bracket] = []
    is_in_brackets = False
    for number, raw in enumerate(read_text(path).splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        if not line:
            continue
        if line == "brackets:" and not is_in_brackets:
            is_in_brackets = True
        elif (match := MONTHLY_LINE.fullmatch(line)) and allowance is None:
            allowance = amount_at(path, number, "monthly_allowance", match["amount"])
        elif is_in_brackets and (match := BRACKET_LINE.fullmatch(line)):
            brackets.append(parse_bracket(path, number, match))
        else:
            raise InputError(f"{path}:{number}: {line.strip()!r} is not understood or repeated; expected {SHAPE}")
    if allowance is None:
        raise InputError(f"{path}: no monthly_allowance; add the line 'monthly_allowance: 5000'")
    check_brackets(path, brackets)
    return TaxTable(allowance, tuple(brackets))


def parse_bracket(path: Path, line: int, match: re.Match[str]) -> Bracket:
    rate = parse_percent(match["rate"])
    if rate is None:
        raise InputError(f"{path}:{line}: rate is {match['rate']!r}; expected 0% to 100%; write it with its % sign")
    return Bracket(
        line=line,
        up_to=None if match["up_to"] == "none" else amount_at(path, line, "up_to", match["up_to"]),
        rate=rate,
        quick_deduction=amount_at(path, line, "quick_deduction", match["quick"]),
    )


def amount_at(path: Path, line: int, key: str, text: str) -> Decimal:
    amount = parse_amount(text)
    if amount is None:
        raise InputError(f"{path}:{line}: {key} is {text!r}; expected an amount such as 36000; write digits only")
    return amount


def check_brackets(path: Path, brackets: list[Bracket]) -> None:
    """Check that the brackets ascend, that the last is open, and that the tax does not jump between two brackets."""
    if not brackets or brackets[-1].up_to is not None:
        raise InputError(f"{path}: the last bracket must be 'up_to: none'; add it")
    if brackets[0].quick_deduction != 0:
        raise InputError(f"{path}:{brackets[0].line}: quick_deduction of the first bracket must be 0; correct it")
    for lower, upper in pairwise(brackets):
        if lower.up_to is None or (upper.up_to is not None and upper.up_to <= lower.up_to):
            raise InputError(f"{path}:{upper.line}: up_to must grow from bracket to bracket; sort the lines")
        joined = lower.quick_deduction + lower.up_to * (upper.rate - lower.rate)
        if upper.quick_deduction != joined:
            raise InputError(
                f"{path}:{upper.line}: quick_deduction is {upper.quick_deduction}; expected {joined.normalize():f}, "
                f"so that the tax does not jump at {lower.up_to}; write that"
            )
