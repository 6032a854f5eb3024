"""10,000 sessions over TCP: the list call, and the view *Now* in a real Chromium.

The view is measured from its address to its first row, and at rest. The first visitor makes the daemon encode every
row. For visitors within the next minute, the rows are encoded already. Both are measured. Without Playwright or
Chromium, a row says so.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import listing
from place import Place, daemon, wait_until
from table import Bar, Row, print_table

SECTION = "10,000 sessions: the list call and the dashboard"
SESSIONS = 10_000
CALLS = 20
VISITS = 5
PAGE = 100
CALM_SECONDS = 10.0
REST_SECONDS = 30.0
ANSWER_SECONDS = 60.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
# Runs in the page before its own scripts. It notes the moment when the first session is on the screen.
WATCH_PAINT = """
const seen = new MutationObserver(() => {
  if (!document.querySelector('.line')) return;
  seen.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.paintedAfter = performance.now(); }));
});
seen.observe(document, {childList: true, subtree: true});
"""


def ask(place: Place, token: str, target: str) -> list[Row]:
    """Time a list call on a connection that stays open, to the last byte.

    The row has the median of all calls except the first, which is in its note.
    """
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=ANSWER_SECONDS)
    took: list[float] = []
    spent = 0.0
    for number in range(CALLS + 1):
        before, began = place.cpu_seconds(), time.monotonic()
        connection.request("GET", target, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
        took.append((time.monotonic() - began) * 1e3)
        assert answer.status == 200, body[:500]
        spent += place.cpu_seconds() - before if number else 0.0
    connection.close()
    count = len(json.loads(body))
    note = f"{count:,} rows, {len(body) / 1e6:.1f} MB; daemon {spent / CALLS * 1e3:.0f} ms of CPU; the first call {took[0]:.0f} ms"
    return [Row(SECTION, f"GET {target}", statistics.median(took[1:]), "ms p50", Bar("<=", 100.0), note)]


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


def visit(started: Any, place: Place) -> tuple[Any, float]:
    """Open a new tab that logs in and shows *Now*.

    Return its page, and the milliseconds from its address to its first row.
    """
    link = json.loads(place.read("dashboard", "--no-open", "--json"))["link"]
    page = started.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(ANSWER_SECONDS * 1e3)
    page.add_init_script(WATCH_PAINT)
    page.goto(link)
    # Poll from here, because the page's policy does not allow waiting inside of it.
    wait_until(lambda: page.evaluate("window.paintedAfter !== undefined"), ANSWER_SECONDS, "a first row", every=0.05)
    return page, float(page.evaluate("window.paintedAfter"))


def measure_rest(page: Any, place: Place) -> list[Row]:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def read_task_seconds() -> float:
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    time.sleep(CALM_SECONDS)
    began, tasks, spent = time.monotonic(), read_task_seconds(), place.cpu_seconds()
    time.sleep(REST_SECONDS)
    seconds = time.monotonic() - began
    note = f"over {REST_SECONDS:.0f} s"
    return [
        Row(
            SECTION,
            "the page at rest",
            (read_task_seconds() - tasks) / seconds * 100,
            "% of a core",
            Bar("<=", 1.0),
            note,
        ),
        Row(
            SECTION,
            "the daemon beside it",
            (place.cpu_seconds() - spent) / seconds * 100,
            "% of a core",
            Bar("<=", 1.0),
            note,
        ),
    ]


def measure_page(place: Place) -> list[Row]:
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        note = "needs Playwright and Chromium: make test-browser fetches them"
        return [Row(SECTION, "first row of Now", None, "ms", note=note)]
    with browser() as started:
        first, took = visit(started, place)
        first.context.close()
        visits = []
        for number in range(VISITS):
            page, again = visit(started, place)
            visits.append(again)
            if number < VISITS - 1:
                page.context.close()
        return [
            Row(SECTION, "first row of Now, the first visitor", took, "ms", Bar("<=", 1500.0)),
            Row(SECTION, "first row of Now, later visitors", statistics.median(visits), "ms p50", Bar("<=", 1500.0)),
            *measure_rest(page, place),
        ]


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text, daemon(Path(text), has_http=True) as place:
        listing.declare(place, SESSIONS)
        place.start()
        token = place.make_token("read")
        rows = measure_page(place)
        for target in (f"/sessions?limit={PAGE}", "/sessions"):
            rows += ask(place, token, target)
        return rows


if __name__ == "__main__":
    print_table(measure())
