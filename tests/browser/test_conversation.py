"""The conversation of a session with thousands of messages.

Only the visible messages are in the page, and nothing jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser.conftest import Door, Tab, opened
from browser.sample_project import House
from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client

pytestmark = pytest.mark.browser

MESSAGES = 2000
MOST_DRAWN = 80
# Returns the number of each message in the page, and the position of its top on the screen.
SEEN = """() => [...document.querySelectorAll('.conversation .bubble')].map(one => [one.innerText.match(/message (\\d+)/)?.[1], one.getBoundingClientRect().top])"""
SCROLL = "by => { const s = document.querySelector('.conversation'); s.scrollTop += by; return s.scrollTop }"


def say_message(number: int) -> str:
    """Return a message. Lengths differ, so that no estimate of a height is right."""
    return f"message {number} " + "and so on, " * (number * 7 % 90)


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    box = Box(tmp_path_factory.mktemp("talk"))
    try:
        box.spec("talk", "objective: Listen.\n")
        door = Door(box)
        door.start()
        box.wait_for("talk", state="suspended")
        client = Client(str(box.socket))
        for number in range(MESSAGES):
            client.call("send", name="talk", text=say_message(number), wake=False)
        yield door
    finally:
        box.close()


def places(tab: Any) -> dict[int, float]:
    return {int(number): top for number, top in tab.page.evaluate(SEEN) if number is not None}


def test_only_what_is_in_sight_is_in_the_page_and_earlier_pages_come_above(browser: Any, talkative: Door) -> None:
    with opened(browser, talkative) as tab:
        tab.go("#/session/talk", f".bubble:has-text('message {MESSAGES - 1} ')")
        # The conversation opens at its end.
        assert (
            tab.page.evaluate(
                "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.querySelector('.conversation'))"
            )
            < 2
        )
        most = 0
        oldest = MESSAGES
        loads: list[str] = []
        tab.page.on(
            "request", lambda request: "/log?" in request.url and "last=" in request.url and loads.append(request.url)
        )
        while oldest > 0:
            before = places(tab)
            tab.page.evaluate(SCROLL, -900)
            # Wait for two frames: one for the scrolling, and one for drawing and measuring.
            tab.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            after = places(tab)
            most = max(most, tab.page.locator(".measured-item").count())
            shared = before.keys() & after.keys()
            assert shared or min(after, default=oldest) < oldest, (before, after)
            moved = {round(after[one] - before[one]) for one in shared}
            # All messages move together, and at most by the distance scrolled.
            assert len(moved) <= 1 or max(moved) - min(moved) <= 2, moved
            assert all(0 <= one <= 902 for one in moved), moved
            oldest = min(oldest, *after)
        assert most < MOST_DRAWN, most
        assert len(loads) >= MESSAGES // 200 - 1
        tab.page.wait_for_selector(".earlier", state="detached")
        tab.check_access()
        tab.check()


def test_a_page_that_comes_above_leaves_what_one_reads_in_its_place(browser: Any, talkative: Door) -> None:
    with opened(browser, talkative) as tab:
        tab.go("#/session/talk", f".bubble:has-text('message {MESSAGES - 1} ')")
        tab.page.evaluate(SCROLL, -1_000_000)
        eventually(lambda: min(places(tab)) < MESSAGES - 200, what="an earlier page")
        tab.page.evaluate("new Promise(done => setTimeout(done, 300))")
        # The message that was the first in the page is still visible.
        tops = places(tab)
        height = tab.page.viewport_size["height"]
        assert any(0 <= top <= height for number, top in tops.items() if number >= MESSAGES - 200), tops
        tab.check()


def test_who_is_at_the_end_stays_there_and_who_is_not_does_not_move(browser: Any, talkative: Door) -> None:
    box = talkative.box
    with opened(browser, talkative) as tab:
        tab.go("#/session/talk", f".bubble:has-text('message {MESSAGES - 1} ')")
        Client(str(box.socket)).call("send", name="talk", text="a new word " * 120, wake=False)
        tab.page.wait_for_selector(".bubble:has-text('a new word')")
        gap = "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.querySelector('.conversation'))"
        eventually(lambda: tab.page.evaluate(gap) < 2, what="the end in sight")
        tab.page.evaluate(SCROLL, -5000)
        tab.page.evaluate("new Promise(done => setTimeout(done, 300))")
        before = places(tab)
        records = box.row("talk")["seq"]
        Client(str(box.socket)).call("send", name="talk", text="one more, far below", wake=False)
        eventually(lambda: box.row("talk")["seq"] > records)
        tab.page.wait_for_selector(f".scrubber-words:has-text('{records + 1}')")
        tab.page.evaluate("new Promise(done => setTimeout(done, 500))")
        assert places(tab) == before
        tab.page.evaluate(SCROLL, 1_000_000)
        tab.page.wait_for_selector(".bubble:has-text('one more, far below')")
        tab.check()


@pytest.fixture
def tab(browser: Any, lived_in: tuple[House, Door]) -> Iterator[Tab]:
    with opened(browser, lived_in[1]) as tab:
        yield tab


def test_an_unfolded_call_is_unfolded_when_one_comes_back_to_it(tab: Tab, lived_in: tuple[House, Door]) -> None:
    client = Client(str(lived_in[0].box.socket))
    for number in range(MOST_DRAWN):
        client.call("send", name="docs/guide", text=say_message(number), wake=False)
    tab.go("#/session/docs%2Fguide", f".bubble:has-text('message {MOST_DRAWN - 1} ')")

    def scroll_to_calls() -> None:
        eventually(lambda: tab.page.evaluate(SCROLL, -1_500) == 0 or tab.page.locator("details.tool").count() > 1)

    scroll_to_calls()
    tab.page.locator("details.tool summary").first.click()
    tab.page.wait_for_selector("details.tool[open] pre")
    eventually(lambda: tab.page.evaluate(SCROLL, 100_000) and not tab.page.locator("details.tool").count())
    scroll_to_calls()
    # The page draws the calls a frame after the scroll.
    eventually(lambda: tab.page.locator("details.tool").count() > 1)
    assert tab.page.locator("details.tool[open]").count() == 1
    tab.page.locator("details.tool[open] summary").click()
    eventually(lambda: tab.page.evaluate(SCROLL, 100_000) and not tab.page.locator("details.tool").count())
    scroll_to_calls()
    assert tab.page.locator("details.tool[open]").count() == 0
    tab.check()
