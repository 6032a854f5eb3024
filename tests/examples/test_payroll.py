"""The payroll example: figures computed by hand, refused inputs, and a report with the right reasons."""

import csv
import io
import re

import pytest

from examples.example_folder import Tree

PROGRAM = "examples/hr/payroll.py"
SALARIES = "examples/hr/salaries.csv"
PREVIOUS = "examples/hr/previous.csv"
PAYROLL = "examples/hr/out/payroll.csv"
DIFFERENCES = "examples/hr/out/differences.md"


def payslips(tree: Tree) -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in csv.DictReader(io.StringIO(tree.read(PAYROLL)))}


def sections(tree: Tree) -> dict[str, str]:
    """Return id -> the section of the report about this person."""
    parts = re.split(r"^### ", tree.read(DIFFERENCES).split("## Unchanged")[0], flags=re.MULTILINE)
    return {part.split()[0]: part for part in parts[1:]}


def assert_cells(row: dict[str, str], **expected: str) -> None:
    assert {column: row[column] for column in expected} == expected


def test_twenty_people_are_paid(tree: Tree) -> None:
    """The cloned example computes without any preparation. The report states the printed sum of net pay."""
    printed = tree.succeed(PROGRAM)
    assert len(payslips(tree)) == 20
    assert "2026-03: 20 payslips, net pay 367,186.52" in printed
    assert "367,186.52" in tree.read(DIFFERENCES)


def test_a_salary_under_the_floor_contributes_from_the_floor(tree: Tree) -> None:
    """E005 has a gross salary of 6,400 in Beijing.

    The floor of the insurances is 7,162. The floor of the housing fund is 2,540, and the salary is above it.
    """
    tree.succeed(PROGRAM)
    assert_cells(
        payslips(tree)["E005"],
        gross="6400.00",
        pension_base="7162.00",
        pension_employee="572.96",  # 7162 x 8%
        pension_employer="1145.92",  # 7162 x 16%
        medical_employee="143.24",  # 7162 x 2%
        unemployment_employee="35.81",  # 7162 x 0.5%
        work_injury_employer="28.65",  # 7162 x 0.4% = 28.648
        maternity_employer="57.30",  # 7162 x 0.8% = 57.296
        housing_fund_base="6400.00",
        housing_fund_employee="768.00",  # 6400 x 12%
        insurance_employee="1520.01",  # 572.96 + 143.24 + 35.81 + 768.00
        cumulative_taxable="0.00",  # 3 x (6400 - 5000 - 1520.01 - 1000) is below zero
        tax="0.00",
        net="4879.99",  # 6400 - 1520.01
    )


def test_a_salary_above_the_cap_contributes_from_the_cap(tree: Tree) -> None:
    """E010 has a gross salary of 68,000 in Shanghai. The cap of all six kinds is 37,302."""
    tree.succeed(PROGRAM)
    assert_cells(
        payslips(tree)["E010"],
        pension_base="37302.00",
        pension_employee="2984.16",  # 37302 x 8%
        medical_employee="746.04",  # 37302 x 2%
        unemployment_employee="186.51",  # 37302 x 0.5%
        housing_fund_employee="2611.14",  # 37302 x 7%
        insurance_employee="6527.85",
        cumulative_taxable="157416.45",  # 3 x (68000 - 5000 - 6527.85 - 4000)
        tax_rate="20%",
        cumulative_tax="14563.29",  # 157416.45 x 20% - 16920
        tax="6588.86",  # less 7974.43 withheld: 104944.30 x 10% - 2520
        net="54883.29",
    )


def test_a_crossed_bracket_is_taxed_on_the_years_sum(tree: Tree) -> None:
    """E006 has a taxable income of 17,575 a month: two months are within 36,000, three are not."""
    tree.succeed(PROGRAM)
    assert_cells(
        payslips(tree)["E006"],
        insurance_employee="5425.00",  # 31000 x (8% + 2% + 0.5% + 7%)
        months="3",
        cumulative_taxable="52725.00",  # 3 x (31000 - 5000 - 5425 - 3000)
        tax_rate="10%",
        cumulative_tax="2752.50",  # 52725 x 10% - 2520
        tax="1698.00",  # less 1054.50 withheld: 35150 x 3%
        net="23877.00",
    )
    assert "bracket 3% → 10%, taxable income so far 52,725.00" in sections(tree)["E006"]


def test_half_a_cent_is_rounded_up(tree: Tree) -> None:
    """0.5% of 15,001 is 75.005. A payroll office rounds to 75.01; Decimal's default would give 75.00."""
    tree.replace(SALARIES, "E001,An Li,office manager,beijing,14000,", "E001,An Li,office manager,beijing,14001,")
    tree.succeed(PROGRAM)
    assert_cells(payslips(tree)["E001"], unemployment_employee="75.01")


def test_too_much_withheld_is_not_paid_back_in_a_month(tree: Tree) -> None:
    """If the year's tax falls below the tax withheld, the month's tax is zero and the sum stays."""
    tree.replace(SALARIES, "beijing,14000,1000,2000", "beijing,14000,1000,30000")
    tree.succeed(PROGRAM)
    assert_cells(payslips(tree)["E001"], tax="0.00", cumulative_tax="277.50", cumulative_taxable="0.00")
    assert "more was withheld before than is due so far" in sections(tree)["E001"]


def test_a_rerun_on_the_same_inputs_touches_nothing(tree: Tree) -> None:
    """The outputs keep their bytes, and the program does not even rewrite them."""
    tree.succeed(PROGRAM)
    before, stat = tree.files(), (tree.root / PAYROLL).stat()
    assert "nothing: the result is the same" in tree.succeed(PROGRAM)
    assert tree.files() == before
    assert (tree.root / PAYROLL).stat() == stat


def test_a_rate_edit_changes_only_that_citys_people(tree: Tree) -> None:
    """After an edit of Chengdu's pension rate, only its five people change in payroll and report."""
    tree.succeed(PROGRAM)
    rows, told = payslips(tree), sections(tree)
    tree.replace("examples/hr/social-insurance/chengdu.csv", "22938,8%,16%", "22938,8.5%,16%")
    tree.succeed(PROGRAM)
    rows_after, told_after = payslips(tree), sections(tree)

    chengdu = {id for id, row in rows.items() if row["city"] == "chengdu"}
    assert {id for id in rows if rows[id] != rows_after[id]} == chengdu
    # E020 joined this month, so the report has no payslip to compare with.
    assert {id for id in told_after if told.get(id) != told_after[id]} == chengdu - {"E020"}
    assert "- pension rate, employee: 8% → 8.5%" in told_after["E018"]


def test_a_raise_is_explained_from_salary_to_tax(tree: Tree) -> None:
    """The report names the salary, the contribution base that follows it, and the tax."""
    tree.succeed(PROGRAM)
    told = sections(tree)["E012"]
    assert "- base salary: 17,000.00 → 18,500.00 (+1,500.00)" in told
    assert "- contribution base: 18,000.00 → 19,500.00 (+1,500.00), the gross salary: pension" in told
    assert "- tax: 247.92 → 286.08 (+38.16): 3% of what changed above" in told


def test_a_moved_floor_is_told_as_a_floor(tree: Tree) -> None:
    """No salary changed, but E005 contributes from the new floor."""
    tree.replace("examples/hr/social-insurance/beijing.csv", "pension,7162,", "pension,7300,")
    tree.succeed(PROGRAM)
    assert "- contribution base: 7,162.00 → 7,300.00 (+138.00), raised to the floor: pension" in sections(tree)["E005"]
    assert "E001" not in sections(tree)


def test_an_edited_tax_table_is_told_as_such(tree: Tree) -> None:
    """A new first rate also settles the earlier months, and the report gives it as the reason."""
    path = "examples/hr/income-tax.yaml"
    tree.replace(path, "rate: 3%", "rate: 4%")
    # One percentage point more on the first 36,000 makes every quick deduction 360 smaller.
    for quick in (2520, 16920, 31920, 52920, 85920, 181920):
        tree.replace(path, f"quick_deduction: {quick}", f"quick_deduction: {quick - 360}")
    tree.succeed(PROGRAM)
    # 13,875 taxable so far at 4% is 555.00, less 277.50 withheld at 3%.
    assert "- tax: 138.75 → 277.50 (+138.75): the tax table differs" in sections(tree)["E001"]


def test_joined_left_and_not_started_people_are_listed(tree: Tree) -> None:
    """The report lists people without a payslip in both months, and does not compare them."""
    tree.write(SALARIES, tree.read(SALARIES) + "E030,Fang Si,trainee,chengdu,5000,0,0,2026-04\n")
    tree.succeed(PROGRAM)
    report = tree.read(DIFFERENCES)
    assert "## Joined\n\n- E020 Zhou Ke, chengdu: gross 4,400.00" in report
    assert "## Left\n\n- E021 Wu Tong, shanghai" in report
    assert "## Not started\n\n- E030 Fang Si: from 2026-04" in report
    assert "E030" not in payslips(tree)


def test_a_month_is_closed_by_copying_the_result(tree: Tree) -> None:
    """The result of one month becomes the previous result of the next, and the sums continue."""
    tree.succeed(PROGRAM)
    tree.write(PREVIOUS, tree.read(PAYROLL))
    tree.write("examples/hr/month.txt", "2026-04\n")
    tree.succeed(PROGRAM)
    assert_cells(payslips(tree)["E006"], months="4", cumulative_taxable="70300.00", tax="1757.50")
    assert_cells(payslips(tree)["E020"], months="2", cumulative_gross="8800.00")


def test_january_begins_a_new_year_of_sums(tree: Tree) -> None:
    """January counts as one month, with the result of December and without a previous result."""
    tree.write(PREVIOUS, tree.read(PREVIOUS).replace("2026-02", "2026-12"))
    tree.write("examples/hr/month.txt", "2027-01\n")
    january = {"months": "1", "cumulative_taxable": "17575.00", "tax_rate": "3%", "tax": "527.25"}
    tree.succeed(PROGRAM)
    assert_cells(payslips(tree)["E006"], **january)
    (tree.root / PREVIOUS).unlink()
    (tree.root / PAYROLL).unlink()
    tree.succeed(PROGRAM)
    assert_cells(payslips(tree)["E006"], **january)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tree: Tree) -> None:
    """A table saved by a spreadsheet program gives the same result."""
    tree.succeed(PROGRAM)
    before = tree.read(PAYROLL)
    tree.write(SALARIES, "\ufeff" + tree.read(SALARIES).replace("\n", "\r\n"))
    tree.succeed(PROGRAM)
    assert tree.read(PAYROLL) == before


BAD_EDITS = [
    (SALARIES, "beijing,14000,", 'beijing,"14,000",', r"salaries\.csv:2: base_salary is '14,000'; expected an amount .*; write digits"),
    (SALARIES, "beijing,14000,", "beijing,-14000,", r"salaries\.csv:2: base_salary is '-14000'"),
    (SALARIES, "beijing,14000,", "beijing,NaN,", r"salaries\.csv:2: base_salary is 'NaN'"),
    (SALARIES, "manager,beijing,14000", "manager,atlantis,14000", r"salaries\.csv:2: city is 'atlantis'; .*add the rates as atlantis\.csv"),
    (SALARIES, "manager,beijing,14000", "manager,../up,14000", r"salaries\.csv:2: city is '\.\./up'"),
    (SALARIES, "2000,2023-05", "2000,May 2023", r"salaries\.csv:2: start is 'May 2023'; expected a month such as 2026-03"),
    (SALARIES, "An Li", "=1+1", r"salaries\.csv:2: name is '=1\+1'; expected text that no spreadsheet takes for a formula"),
    (SALARIES, "E002,", "E#2,", r"salaries\.csv:3: id is 'E#2'"),
    (SALARIES, "E002,", "E001,", r"salaries\.csv:3: id 'E001' is already on line 2"),
    (SALARIES, "E001,An Li,", "E001,", r"salaries\.csv:2: 7 cells; expected 8"),
    (SALARIES, "base_salary,", "salary,", r"salaries\.csv:1: header has missing base_salary; unknown salary"),
    (SALARIES, "E001,An Li", 'E001,"An Li', r"salaries\.csv:\d+: unexpected end of data; check the quotes"),
    (SALARIES, "0,2026-03", "0,2026-01", r"salaries\.csv:21: start is '2026-01'; .*put the missing row into previous\.csv"),
    ("examples/hr/social-insurance/chengdu.csv", "22938,8%,", "22938,8,", r"chengdu\.csv:2: employee_rate is '8'; .* with its % sign"),
    ("examples/hr/social-insurance/chengdu.csv", "pension,4588,", "pension,99999,", r"chengdu\.csv:2: floor is '99999'; .*at most the cap"),
    ("examples/hr/social-insurance/chengdu.csv", "maternity", "paternity", r"chengdu\.csv:6: insurance is 'paternity'"),
    ("examples/hr/income-tax.yaml", "quick_deduction: 2520", "quick_deduction: 2500", r"income-tax\.yaml:6: .* expected 2520"),
    ("examples/hr/income-tax.yaml", "monthly_allowance: 5000", "monthly_allowance 5000", r"income-tax\.yaml:3: .*not understood"),
    ("examples/hr/income-tax.yaml", "up_to: none", "up_to: 2000000", r"the last bracket must be 'up_to: none'"),
    ("examples/hr/income-tax.yaml", "up_to: 144000", "up_to: 30000", r"income-tax\.yaml:6: up_to must grow"),
    ("examples/hr/month.txt", "2026-03", "2026-13", r"month\.txt:1: '2026-13' is not a month"),
    ("examples/hr/month.txt", "2026-03", "2026-05", r"previous\.csv: is the result of 2026-02; expected 2026-04"),
    (PREVIOUS, "15000.00,15000.00,8%", "16000.00,15000.00,8%", r"previous\.csv:2: gross is '16000\.00'; expected 15000\.00"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "old", "new", "told"), BAD_EDITS, ids=[told for *_, told in BAD_EDITS])
def test_bad_input_is_refused_and_the_old_output_stays(tree: Tree, path: str, old: str, new: str, told: str) -> None:
    """The error names file, line, problem and fix. The last good result keeps every byte."""
    for output in (PAYROLL, DIFFERENCES):
        tree.write(output, "the last good result\n")
    tree.replace(path, old, new)
    before = tree.files()
    ended = tree.run(PROGRAM)
    assert ended.code == 1
    assert re.search(told, ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    assert tree.files() == before


def test_all_bad_rows_are_told_at_once(tree: Tree) -> None:
    """The program reports all bad rows, so that a person can correct the table once."""
    tree.replace(SALARIES, "beijing,14000,", "beijing,x,")
    tree.replace(SALARIES, "beijing,18500,", "beijing,y,")
    lines = tree.run(PROGRAM).stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{SALARIES}:2", f"{SALARIES}:3"]


def test_another_encoding_and_a_missing_file_are_told(tree: Tree) -> None:
    """Both give an error message and no traceback."""
    (tree.root / SALARIES).write_bytes("E001,安,".encode("gbk"))
    assert "is not UTF-8; save the file again as UTF-8" in tree.run(PROGRAM).stderr
    (tree.root / SALARIES).unlink()
    ended = tree.run(PROGRAM)
    assert ended.code == 1
    assert ended.stderr.startswith(f"{SALARIES}: not found;")


def test_a_name_cannot_become_markup_of_the_report(tree: Tree) -> None:
    """The report escapes the markup in a name."""
    tree.replace(SALARIES, "Qian Fei", "Qian <b>|Fei")
    tree.succeed(PROGRAM)
    assert r"E012 Qian \<b\>\|Fei, shenzhen" in tree.read(DIFFERENCES)
