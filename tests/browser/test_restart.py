"""The dashboard with a daemon that stops and starts, with no sessions, and with a thousand sessions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from browser.conftest import Door, opened
from e2e.box import Box

pytestmark = pytest.mark.browser

COPY = """
    objective: Copy a to b.
    bindings: {a: {file: a.txt, settle: 0ms}, b: {file: b.txt, access: write}}
    run: {command: [cp, a.txt, b.txt]}
"""
# The messages of a browser about a request without an answer.
UNANSWERED = ("net::ERR_", "Failed to load resource")


def test_the_stream_survives_a_restart_of_the_daemon(browser: Any, box: Box) -> None:
    """The page says that it is disconnected, reconnects by itself, and shows the events of the meantime."""
    box.write("a.txt", "1")
    box.spec("copy", COPY)
    door = Door(box)
    door.start()
    box.wait_at_rest("copy", runs=1)
    with opened(browser, door) as tab:
        tab.go("#/session/copy", ".run-end")
        tab.page.evaluate("window.isSame = true")
        box.stop()
        tab.page.wait_for_selector(".banner:has-text('Disconnected')")
        box.write("a.txt", "2")
        door.start()
        tab.page.wait_for_selector(".run-start:has-text('run 2')")
        tab.page.wait_for_selector(".banner", state="detached")
        assert tab.page.evaluate("window.isSame")
        assert [error for error in tab.errors if not any(words in error for words in UNANSWERED)] == []


def test_an_empty_house_says_how_to_begin(browser: Any, box: Box) -> None:
    door = Door(box)
    door.start()
    with opened(browser, door) as tab:
        tab.page.wait_for_selector("text=No sessions yet")
        tab.check_access()
        box.spec("hello", "objective: Say hello.\n")
        tab.page.wait_for_selector(".line-name:has-text('hello')")
        tab.check()
        # The page of a missing session has a link to all sessions.
        tab.go("#/session/nobody", "text=No session has this name")
        tab.page.click("text=All sessions")
        tab.page.wait_for_selector(".line-name:has-text('hello')")


def test_a_browser_without_a_login_is_told_how_to_get_one(browser: Any, box: Box) -> None:
    door = Door(box)
    door.start()
    page = browser.new_context().new_page()
    page.goto(f"http://127.0.0.1:{door.port}/")
    page.wait_for_selector("text=wakeful dashboard")
    token = box.ask("token", "new", "--scope", "read").strip().splitlines()[-1].split()[-1]
    page.fill("input[type=password]", token)
    page.click("text=Log in >> nth=-1")
    page.wait_for_selector(".dot.on")
    page.context.close()


def test_a_thousand_sessions_are_drawn_at_once_and_scroll(browser: Any, box: Box) -> None:
    """Only the visible lines are in the page."""
    for number in range(1000):
        (box.specs / f"f{number % 20:02}").mkdir(exist_ok=True)
        (box.specs / f"f{number % 20:02}" / f"s{number:04}.yaml").write_text("objective: Rest.\n")
    door = Door(box)
    door.start()
    with opened(browser, door) as tab:
        began = time.monotonic()
        tab.page.reload()
        tab.page.wait_for_selector(".line-name")
        assert time.monotonic() - began < 10
        assert tab.page.locator(".line").count() < 80
        tab.page.evaluate("document.querySelector('.scroll').scrollTop = 1e9")
        tab.page.wait_for_selector(".line-name:has-text('s0999')")
        tab.check()
