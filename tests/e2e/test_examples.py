"""The repository's own examples, as in a fresh clone: they run, rest, and wake for the right reason."""

from __future__ import annotations

import subprocess

import pytest

from e2e.box import Box, copy_examples
from wait_conditions import eventually

NAMES = ["api-docs", "heartbeat", "payroll", "recruitment-screening", "social-insurance-filing"]


def clone(box: Box) -> None:
    copy_examples(box.folder)
    # Without these settings runs are confined as usual: they reach what they declare, and not what tests may reach.
    (box.folder / "wakeful.yaml").unlink()
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "as cloned"]):
        subprocess.run(["git", *arguments], cwd=box.folder, check=True)


def test_the_examples_check_run_and_rest(box: Box) -> None:
    """Without a key or a network, every example succeeds in its first run and writes real pages.

    The hint names a file to edit.
    """
    clone(box)
    assert box.run("check").returncode == 0
    box.start()
    for name in NAMES:
        row = box.wait_at_rest(name, runs=1)
        assert row["state"] == "suspended" and row["last_run"]["outcome"] == "succeeded", box.ask("output", name)
    rows = {row["name"]: row for row in box.json("list")}
    assert sorted(rows) == sorted([*NAMES, "api-guide"])
    # The session of an agent waits for its key. No other session waits for it.
    assert rows["api-guide"]["state"] == "sleeping" and rows["api-guide"]["reason"].startswith(
        "needs a key: ANTHROPIC_API_KEY"
    )
    assert {row["agent"] for row in box.json("list")} >= {"hr", "docs"}
    assert len(box.lines("examples/hr/out/payroll.csv")) >= 20
    assert "def " in box.read("examples/docs/out/api.md") or "class" in box.read("examples/docs/out/api.md")
    eventually(lambda: "edit examples/" in box.output.read_text())


def test_a_rate_edit_recomputes_payroll_and_what_reads_it_and_nothing_else(box: Box) -> None:
    """The causes of each session have only its own bindings."""
    clone(box)
    box.start()
    for name in NAMES:
        box.wait_at_rest(name, runs=1)
    rates = sorted((box.folder / "examples/hr/social-insurance").glob("*.csv"))[0]
    relative = str(rates.relative_to(box.folder))
    edited = rates.read_text().replace(",8%,", ",8.5%,", 1)
    assert edited != rates.read_text(), "the example's pension rate moved: choose another edit"
    box.save(relative, edited)
    payroll = box.wait_at_rest("payroll", runs=2)
    filing = box.wait_at_rest("social-insurance-filing", runs=2)
    assert [path["path"] for cause in payroll["last_run"]["causes"] for path in cause["paths"]] == [relative]
    assert [path["path"] for cause in filing["last_run"]["causes"] for path in cause["paths"]] == [
        "examples/hr/out/payroll.csv"
    ]
    assert box.row("recruitment-screening")["runs"] == 1 and box.row("api-docs")["runs"] == 1
    why = box.words("why", "examples/hr/out/payroll.csv")
    assert "payroll" in why and relative in why


@pytest.mark.long
def test_an_edit_that_changes_no_figure_stops_at_payroll(box: Box) -> None:
    """Early cutoff: the result is byte for byte the same, so no session downstream wakes."""
    clone(box)
    box.start()
    for name in NAMES:
        box.wait_at_rest(name, runs=1)
    with (box.folder / "examples/hr/income-tax.yaml").open("a") as file:
        file.write("# a remark\n")
    box.wait_at_rest("payroll", runs=2)
    box.wait_at_rest("social-insurance-filing")
    assert box.row("social-insurance-filing")["runs"] == 1
