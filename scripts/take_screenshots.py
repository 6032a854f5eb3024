"""Take the pictures of docs/img: each view of the dashboard, wide and on a phone, light and dark, and its other states.

It uses a real daemon with the sessions of tests/browser/sample_project.py, and a real Chromium. `make screenshots` runs it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from playwright.sync_api import sync_playwright  # noqa: E402

from agents.provider import Provider  # noqa: E402
from browser.conftest import CHROMIUM, FLAGS, Door  # noqa: E402
from browser.sample_project import House  # noqa: E402
from e2e.box import Box  # noqa: E402

IMAGES = REPOSITORY / "docs" / "img"
SIZES = {"1440": {"width": 1440, "height": 900}, "390": {"width": 390, "height": 844}}
VIEWS = {
    "now": ("#/now", ".spark .bar"),
    "session": ("#/session/docs%2Fguide", ".bubble"),
    "session-past": ("#/session/hr%2Fpayroll?at=12&tab=compare", ".diff"),
    "session-output": ("#/session/reports%2Fquarter?tab=output", ".terminal-line"),
    "why": ("#/why?x=hr%2Fsocial-insurance-filing", ".card-run"),
    "timeline": ("#/timeline?range=15m", ".run-bar"),
    "graph": ("#/graph/hr%2Fpayroll", ".card-session"),
    "health": ("#/health", ".health-card"),
}
# The picture shows the wave that a change of this file would start.
HOVERED = {"graph": ".card-other[title$='/salaries.csv']"}
# Long enough for the fonts, the worker and the first figures.
DRAWN_MS = 900


def main() -> None:
    if CHROMIUM is None:
        sys.exit("no Chromium here: apt install chromium")
    IMAGES.mkdir(exist_ok=True)
    os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
    place = Path(tempfile.mkdtemp(prefix="wakeful-"))
    try:
        with sync_playwright() as engine:
            browser = engine.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            take_views(browser, place / "house")
            take_states(browser, place / "empty")
            browser.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def take_views(browser: Any, folder: Path) -> None:
    folder.mkdir()
    with Provider() as provider:
        house = House(folder, provider)
        door = Door(house.build())
        door.start()
        try:
            house.live()
            for scheme in ("light", "dark"):
                for width in SIZES:
                    page = open_page(browser, door, width, scheme)
                    for name, (address, drawn) in VIEWS.items():
                        page.evaluate("address => { location.hash = address }", address)
                        page.wait_for_selector(drawn, state="attached")
                        if name in HOVERED:
                            page.hover(HOVERED[name])
                        shoot(page, f"{name}-{width}-{scheme}")
                    page.context.close()
        finally:
            house.box.close()


def take_states(browser: Any, folder: Path) -> None:
    """Take the states without sessions, with an unknown session, and with a stopped daemon."""
    folder.mkdir()
    box = Box(folder)
    door = Door(box)
    door.start()
    try:
        page = open_page(browser, door, "1440", "light")
        shoot(page, "empty")
        page.evaluate("location.hash = '#/session/nobody'")
        page.wait_for_selector("text=No session has this name")
        shoot(page, "unknown")
        page.evaluate("location.hash = '#/why?x=nobody'")
        page.wait_for_selector(".problem")
        shoot(page, "error")
        box.spec("hello", "objective: Say hello.\n")
        page.evaluate("location.hash = '#/now'")
        page.wait_for_selector(".line-name")
        box.stop()
        page.wait_for_selector(".banner")
        shoot(page, "disconnected")
        page.context.close()
        page = browser.new_page(viewport=SIZES["1440"])
        door.start()
        page.goto(f"http://127.0.0.1:{door.port}/")
        page.wait_for_selector("form")
        shoot(page, "logged-out")
    finally:
        box.close()


def open_page(browser: Any, door: Door, width: str, scheme: str) -> Any:
    page = browser.new_context(viewport=SIZES[width], color_scheme=scheme, timezone_id="Europe/Berlin").new_page()
    page.goto(door.link())
    page.wait_for_selector(".dot.on", state="attached")
    return page


def shoot(page: Any, name: str) -> None:
    page.wait_for_timeout(DRAWN_MS)
    page.screenshot(path=IMAGES / f"{name}.png")
    print(f"docs/img/{name}.png")


if __name__ == "__main__":
    main()
