"""The output of a run in the page.

The daemon searches it. It may have more lines than the page keeps, and the run may still write.
"""

from __future__ import annotations

from typing import Any

import pytest

from browser.conftest import Door, opened
from e2e.box import Box
from wait_conditions import eventually

pytestmark = pytest.mark.browser

# More bytes than the daemon keeps of an output, and more lines than a page holds.
LOUD = """
    objective: Say a lot.
    first: run
    run:
      script: |
        printf 'one\\ntwo: Die \\033[31mNa\\033[0mdel\\n'
        seq -f 'filler %.0f' 1 200000
        echo 'a last nadel: here'
"""
# Waits for a file before each step.
SLOW = """
    objective: Talk.
    first: run
    run:
      script: |
        echo 'first word'
        until [ -e go ]; do sleep 0.1; done
        echo 'second word'
        until [ -e end ]; do sleep 0.1; done
"""


def test_find_searches_the_whole_output_on_the_side_of_the_daemon(browser: Any, box: Box) -> None:
    """The page holds the last 20,000 lines.

    A match at the beginning shows its line number, and Escape shows all lines again.
    """
    box.spec("loud", LOUD)
    door = Door(box)
    door.start()
    box.wait_at_rest("loud", runs=1)
    typed = box.ask("output", "loud", "--find", "NADEL").splitlines()
    assert typed[0].startswith("2:two: Die ") and len(typed) == 2
    with opened(browser, door) as tab:
        tab.go("#/session/loud?tab=output", ".terminal-line")
        asked: list[str] = []
        tab.page.on("request", lambda request: "find=" in request.url and asked.append(request.url))
        tab.page.type("[placeholder=Find]", "NADEL", delay=20)
        tab.page.wait_for_selector("[role=status]:has-text('2 lines')")
        shown = [" ".join(one.split()) for one in tab.page.locator(".terminal-line").all_inner_texts()]
        assert shown == ["2two: Die Nadel", typed[1].replace(":", "", 1)]
        # The page asks once for the word, not for each letter.
        assert len(asked) <= 2, asked
        tab.check_access()
        tab.page.fill("[placeholder=Find]", "filler")
        tab.page.wait_for_selector("[role=status]:has-text('the first 1,000 of ')")
        tab.page.fill("[placeholder=Find]", "no such word")
        tab.page.wait_for_selector("text=No line contains that")
        tab.page.press("[placeholder=Find]", "Escape")
        tab.page.wait_for_selector(".terminal-line")
        assert tab.page.input_value("[placeholder=Find]") == ""
        tab.wait_for_place("#/session/loud?tab=output")
        with tab.page.expect_download() as saved:
            tab.page.click("text=Download")
        assert "Die \x1b[31mNa" in saved.value.path().read_text()
        tab.check()


def test_a_gap_is_a_line_of_the_output(browser: Any, box: Box) -> None:
    """The gap has the line number that the command line shows."""
    box.write("wakeful.yaml", "limits: {output: 2KB}\n")
    box.spec("long", "first: run\nrun: {script: seq 1 5000}\n")
    door = Door(box)
    door.start()
    box.wait_at_rest("long", runs=1)
    gap = box.json("output", "long", "--find", "not kept")["gap_line"]
    with opened(browser, door) as tab:
        tab.go("#/session/long?tab=output", ".terminal-line")
        tab.page.fill("[placeholder=Find]", "not kept")
        tab.page.wait_for_selector(f".terminal-line:has-text('{gap}[not kept: ')")
        tab.page.fill("[placeholder=Find]", "")
        whole = tab.page.locator(".terminal-line:has-text('[not kept: ')")
        tab.page.evaluate("gap => { document.querySelector('.terminal').scrollTop = (gap - 4) * 20 }", gap)
        eventually(lambda: whole.count() == 1)
        assert whole.inner_text().startswith(f"{gap}[not kept: ")
        tab.check()


def test_find_goes_on_while_the_run_does(browser: Any, box: Box) -> None:
    box.spec("slow", SLOW)
    door = Door(box)
    door.start()
    box.wait_for("slow", state="running")
    with opened(browser, door) as tab:
        tab.go("#/session/slow?tab=output", ".terminal-line")
        tab.page.fill("[placeholder=Find]", "WORD")
        tab.page.wait_for_selector("[role=status]:has-text('1 line · live')")
        box.write("go", "")
        tab.page.wait_for_selector(".terminal-line:has-text('second word')")
        box.write("end", "")
        tab.page.wait_for_selector("[role=status]:text-is('2 lines')")
        tab.check()
