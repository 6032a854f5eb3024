"""The graph and the timeline, by pointer and keyboard: what would run, what runs, and choosing a range of time."""

from __future__ import annotations

from typing import Any

import pytest

from browser.conftest import Door, Tab, opened
from browser.sample_project import House
from wait_conditions import eventually

pytestmark = pytest.mark.browser

SALARIES = ".card-other[title$='/salaries.csv']"
LIT = "() => [...document.querySelectorAll('.card-session.lit strong')].map(one => one.innerText)"


def waves_of(tab: Tab) -> dict[str, str]:
    """Return the sessions of the shown wave, each with its turn, such as `wave 1`."""
    cards = tab.page.locator(".card-session.wave")
    return {card.locator("strong").inner_text(): card.locator(".chip").inner_text() for card in cards.all()}


def test_hovering_a_file_shows_the_wave_that_would_run(tab: Tab) -> None:
    """The graph shows the sessions in their order and the path of the change, and dims the rest.

    The keyboard does the same.
    """
    tab.go("#/graph/hr%2Fpayroll", ".card-session")
    wanted = {"hr/payroll": "wave 1", "hr/payroll-trial": "wave 1", "hr/social-insurance-filing": "wave 2"}
    for show, hide in (
        (lambda: tab.page.hover(SALARIES), lambda: tab.page.mouse.move(5, 5)),
        (lambda: tab.page.focus(SALARIES), lambda: tab.page.locator(SALARIES).blur()),
    ):
        show()
        tab.page.wait_for_selector(
            ".graph-words:has-text('A change would wake hr/payroll, hr/payroll-trial (held: a fork without its own files')"
        )
        assert "); then hr/social-insurance-filing." in tab.page.inner_text(".graph-words")
        assert waves_of(tab) == wanted
        # The file itself and the files that are written on the way belong to the wave. Another file that payroll reads
        # does not.
        assert "wave" in tab.page.get_attribute(SALARIES, "class").split()
        assert "dim" in tab.page.get_attribute(".card-other[title$='/month.txt']", "class").split()
        assert tab.page.locator(".edge.wave").count() >= 3 and tab.page.locator(".edge.dim").count() >= 1
        hide()
        tab.page.wait_for_selector(".graph-words:has-text('Hover a file')")
        assert waves_of(tab) == {} and tab.page.locator(".edge.wave, .edge.dim").count() == 0
    tab.check()


def test_a_change_lights_up_what_it_runs_through_and_the_light_goes_out(tab: Tab, lived_in: tuple[House, Door]) -> None:
    house = lived_in[0]
    tab.go("#/graph/hr%2Fpayroll", ".card-session")
    assert tab.page.evaluate(LIT) == []
    seen: set[str] = set()
    runs = house.box.row("hr/payroll")["runs"]
    house.change_salary(40_000 + runs)

    def has_run_through() -> bool:
        seen.update(tab.page.evaluate(LIT))
        return {"hr/payroll", "hr/social-insurance-filing"} <= seen

    eventually(has_run_through, what="both sessions lit")
    assert tab.page.locator(".edge.lit").count() >= 2
    eventually(lambda: tab.page.evaluate(LIT) == [], what="the light to go out")
    house.box.wait_at_rest("hr/social-insurance-filing")
    tab.check()


def test_a_range_is_chosen_by_dragging_and_stands_in_the_address(tab: Tab) -> None:
    tab.go("#/timeline?range=1h", ".run-bar")
    bars = tab.page.locator(".run-bar")
    eventually(lambda: bars.count() > 5)
    whole = bars.count()
    strip = tab.page.locator(".brush svg").bounding_box()
    middle = strip["y"] + strip["height"] / 2
    # Choose the first part of the hour, before anything ran. The drag goes beyond the left edge of the page.
    tab.page.mouse.move(strip["x"] + strip["width"] * 0.3, middle)
    tab.page.mouse.down()
    tab.page.mouse.move(strip["x"] + strip["width"] * 0.1, middle, steps=4)
    tab.page.mouse.move(strip["x"] - 40, middle, steps=4)
    tab.page.mouse.up()
    tab.wait_for_place("#/timeline?range=1h&from=")
    chosen = tab.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))")
    minutes = (int(chosen["to"]) - int(chosen["from"])) / 60_000
    assert 16 < minutes < 20, minutes
    tab.page.wait_for_selector("text=Nothing ran in this time")
    # The address has the whole view: opening it again shows the same.
    tab.page.reload()
    tab.page.wait_for_selector("text=Nothing ran in this time")
    tab.page.click("text=Show all of 1h")
    eventually(lambda: bars.count() >= whole)
    assert "from=" not in tab.page.evaluate("location.hash")
    tab.check()


def test_a_range_is_chosen_by_keyboard(tab: Tab) -> None:
    """The keys halve the range, move it back, move it on, halve it again and double it. Escape shows all of it."""
    tab.go("#/timeline?range=1h", ".run-bar")
    tab.page.focus(".brush svg")
    seen: list[tuple[int, int]] = []
    for key in ("ArrowUp", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        before = tab.page.evaluate("location.hash")
        tab.page.keyboard.press(key)
        eventually(lambda before=before: tab.page.evaluate("location.hash") != before)
        chosen = tab.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))")
        seen.append((int(chosen["from"]), int(chosen["to"])))
    minutes = [(round((begin - seen[0][0]) / 6e4, 1), round((end - begin) / 6e4, 1)) for begin, end in seen]
    assert minutes == [(0, 30), (-7.5, 30), (0, 30), (7.5, 15), (0, 30)]
    assert " to " in tab.page.get_attribute(".brush svg", "aria-valuetext")
    tab.page.keyboard.press("Escape")
    eventually(lambda: "from=" not in tab.page.evaluate("location.hash"))
    tab.check()


def test_every_bar_can_be_hit_and_says_what_it_is(tab: Tab) -> None:
    """Runs last milliseconds and the range is a day.

    Each bar is 24 pixels wide for a pointer, and reached by keyboard.
    """
    tab.go("#/timeline?range=24h", ".run-bar")
    eventually(lambda: tab.page.locator(".run-bar").count() > 5)
    boxes = [one.bounding_box() for one in tab.page.locator(".run-bar .hit").all()]
    assert all(round(box["width"]) >= 24 and round(box["height"]) >= 24 for box in boxes), boxes
    bar = tab.page.locator(".lane:has-text('ops/nightly-backup') .run-bar").first
    edge = bar.locator(".hit").bounding_box()
    tab.page.mouse.click(edge["x"] + 2, edge["y"] + 2)
    tab.page.wait_for_selector(".detail:has-text('ops/nightly-backup#')")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector(".detail", state="detached")
    bar.focus()
    tab.page.keyboard.press("Space")
    tab.page.wait_for_selector(".detail:has-text('ops/nightly-backup#1')")
    tab.page.click(".detail >> text=Why")
    tab.wait_for_place("#/why?x=ops%2Fnightly-backup%231")
    tab.check()


def test_idle_time_is_folded_until_it_is_asked_for(tab: Tab) -> None:
    """The daemon is minutes old, so nearly all of the day is idle."""
    tab.go("#/timeline?range=24h", ".run-bar")
    tab.page.wait_for_selector(".fold-mark", state="attached")
    assert tab.page.locator(".fold-mark title").first.text_content().startswith("idle for 2")
    lane = tab.page.locator(".lane:has-text('hr/payroll')").first
    folded = lane.locator(".run-bar").first.bounding_box()["x"]
    tab.page.uncheck("text=Fold idle time")
    tab.wait_for_place("#/timeline?range=24h&fold=0")
    tab.page.wait_for_selector(".fold-mark", state="detached")
    assert lane.locator(".run-bar").first.bounding_box()["x"] > folded + 200
    tab.check()


def test_the_axis_stays_in_sight_while_one_scrolls(browser: Any, lived_in: tuple[House, Door]) -> None:
    with opened(browser, lived_in[1]) as tab:
        tab.page.set_viewport_size({"width": 1000, "height": 420})
        tab.go("#/timeline?range=24h", ".run-bar")
        area = tab.page.locator(".timeline")
        area.evaluate("one => { one.scrollTop = 1e6 }")
        eventually(lambda: area.evaluate("one => one.scrollTop") > 50)
        assert abs(tab.page.locator(".axis").bounding_box()["y"] - area.bounding_box()["y"]) <= 1
        tab.page.wait_for_selector(".lane:has-text('ticket@21')")
        tab.check()


def test_both_can_be_copied_as_commands_that_work(browser: Any, lived_in: tuple[House, Door]) -> None:
    with opened(browser, lived_in[1], permissions=["clipboard-read", "clipboard-write"]) as tab:
        for place, drawn, label, wanted in (
            ("#/timeline?range=6h&name=hr%2Fpayroll", ".run-bar", "Timeline: copy", "timeline hr/payroll --since 6h"),
            ("#/graph/hr%2Fpayroll?depth=3", ".card-session", "Graph: copy", "graph hr/payroll --depth 3"),
        ):
            tab.go(place, drawn)
            tab.page.click(f"[aria-label='{label}']")
            tab.page.click("text=Copy as command")
            eventually(
                lambda wanted=wanted: tab.page.evaluate("navigator.clipboard.readText()") == f"wakeful {wanted}",
                what=wanted,
            )
            assert "hr/payroll" in lived_in[0].box.ask(*wanted.split())
        tab.check()
