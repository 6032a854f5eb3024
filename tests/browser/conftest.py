"""Fixtures with a real daemon, real sessions and a real browser.

A test fails if the page logs a single error on its console.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.provider import Provider
from browser.sample_project import KEY, House
from e2e.box import Box
from reserved_port import held_port
from wait_conditions import PATIENCE_SECONDS, eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
AXE = (Path(__file__).parent / "axe" / "axe.js").read_text()
# Runs in the page before its own scripts. It keeps every report of the content security policy.
WATCH_POLICY = "window.reports = []; addEventListener('securitypolicyviolation', e => reports.push(`${e.violatedDirective} ${e.blockedURI}`))"


def find_port() -> int:
    """Find a port that stays the same when the daemon starts again."""
    with held_port() as held:
        return int(held.getsockname()[1])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="NO PLAYWRIGHT HERE: the dashboard is not tested in a browser (make test-browser)"
    )
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM HERE: the dashboard is not tested in a browser (apt install chromium)")
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


class Door:
    """A daemon with an open TCP port, and the links that log a browser in."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.port = find_port()
        self.environment = {**KEY, "WAKEFUL_HTTP": f"127.0.0.1:{self.port}"}

    def start(self) -> None:
        self.box.start(env=self.environment)

    def link(self) -> str:
        return str(json.loads(self.box.ask("dashboard", "--no-open", "--json"))["link"])


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, Door]]:
    """Start the dashboard's sessions and give them a history.

    The tests of a module share it, and do not touch each other's sessions.
    """
    with pytest.MonkeyPatch.context() as patch, Provider() as provider:
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        house = House(tmp_path_factory.mktemp("house"), provider)
        door = Door(house.build())
        door.start()
        try:
            house.live()
            yield house, door
        finally:
            house.box.close()


class Tab:
    """A page that is logged in, by the owner's link or with a token.

    `check` fails if the console has an error or the policy sent a report.
    """

    def __init__(self, page: Any, door: Door, token: str | None = None) -> None:
        self.page = page
        self.door = door
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.add_init_script(WATCH_POLICY)
        if token is None:
            page.goto(door.link())
        else:
            page.goto(f"http://127.0.0.1:{door.port}/")
            page.fill("input[type=password]", token)
            page.click("text=Log in >> nth=-1")
        page.wait_for_selector(".dot.on")

    def go(self, place: str, wait_for: str) -> None:
        self.page.evaluate("place => { location.hash = place }", place)
        self.page.wait_for_selector(wait_for)

    def wait_for_place(self, place: str) -> None:
        eventually(lambda: self.page.evaluate("location.hash").startswith(place), what=place)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def check(self) -> None:
        assert self.errors == [] and self.page.evaluate("reports") == []

    def check_access(self) -> None:
        """Assert that axe-core finds no serious or critical problem."""
        # The debugger evaluates the script, so the page's policy does not apply.
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]
        assert serious == []


@contextmanager
def opened(browser: Any, door: Door, token: str | None = None, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
    try:
        yield Tab(context.new_page(), door, token)
    finally:
        context.close()


@pytest.fixture
def tab(browser: Any, lived_in: tuple[House, Door]) -> Iterator[Tab]:
    with opened(browser, lived_in[1]) as made:
        yield made
