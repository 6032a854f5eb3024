"""The dashboard shows hostile text of the log as text: no script runs, and no element appears.

I62 of the threat model. A hundred payloads are in every field that others fill, on a real daemon. Every view is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from browser.conftest import Door, Tab, opened
from e2e.box import Box
from git_repository import git
from wait_conditions import eventually

pytestmark = pytest.mark.browser

TAKEN = "window.isTaken=1"
_TAGS = (
    "<script>{0}</script>", "<img src=x onerror={0}>", "<svg onload={0}>", "<iframe srcdoc='<script>parent.{0}</script>'></iframe>",
    "<body onload={0}>", "<input autofocus onfocus={0}>", "<details open ontoggle={0}>", "<video><source onerror={0}></video>",
    "<a href=javascript:{0}>x</a>", "<form action=javascript:{0}><button>x</button></form>", "<object data=javascript:{0}></object>",
    "<math><mtext></mtext><script>{0}</script></math>", "<style>@import 'http://127.0.0.1:9/x'</style>", "<base href=//127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;javascript:{0}'>", "<link rel=stylesheet href=//127.0.0.1:9/x>", "<template><script>{0}</script></template>",
    "<b>bold</b>", "<marquee onstart={0}>x</marquee>", "<audio src=x onerror={0}>",
)  # fmt: skip
# Ways out of an attribute, a text, a script, a comment, an htm template, a style, an address and a terminal.
_WAYS_OUT = ("{0}", '">{0}', "'>{0}", "</title></textarea></script>{0}", "x -->{0}${{{1}}}\x1b[31m{0}")
PAYLOADS = [way.format(tag.format(TAKEN), TAKEN) for tag in _TAGS for way in _WAYS_OUT]
# No view of ours has these elements. One of them in the page comes from a payload.
STRANGE = "script:not([src]), iframe, object, embed, marquee, base, video, audio, form[action], math, img:not([src='assets/icon.svg']), b, [onerror], [onload], [href^='javascript:']"


def escape_yaml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(one):08x}" for one in text) + '"'


def name_file(payload: str) -> str:
    return payload.replace("/", "_").replace("\x1b", "")[:200]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        box = Box(tmp_path_factory.mktemp("hostile"))
        door = Door(box)
        try:
            plant(box, door)
            yield door
        finally:
            box.close()


def plant(box: Box, door: Door) -> None:
    everything = "\n".join(PAYLOADS)
    box.write("payloads.txt", everything)
    for number, payload in enumerate(PAYLOADS):
        box.write(f"in/{number}{name_file(payload)}", payload)
    box.write("site/a.txt", "1\n")
    git(box.folder / "site", "init", "-q")
    git(box.folder / "site", "add", "-A")
    git(box.folder / "site", "-c", f"user.name={PAYLOADS[0]}", "-c", "user.email=a@b", "commit", "-qm", everything)
    box.spec(
        "evil",
        f"""
        objective: {escape_yaml(everything)}
        bindings:
          in: {{file: "in/*"}}
          code: {{commits: a.txt, repo: site}}
          out: {{file: "out/**", access: write}}
        run: {{script: "cat payloads.txt; mkdir -p out; cp in/* out/", retries: 0}}
        """,
    )
    box.spec("fails", "bindings: {i: {file: payloads.txt}}\nrun: {script: 'cat payloads.txt; exit 3', retries: 0}\n")
    box.spec(
        "asks",
        f"objective: {escape_yaml(everything)}\napprove: before_run\nbindings: {{i: {{file: payloads.txt}}}}\nrun: {{command: ['true']}}\n",
    )
    box.spec("broken", f"{escape_yaml(PAYLOADS[2])}: 1\n")
    door.start()
    box.wait_at_rest("evil", runs=1)
    box.wait_for("fails", state="sleeping")
    box.wait_for("asks", state="sleeping")
    for payload in PAYLOADS:
        box.ask("remember", "evil", payload, payload, "--because", payload)
    box.ask("send", "evil", everything, "--no-wake")
    box.ask("note", "evil", everything)
    box.ask("save", "evil", "--as", "mark", "--note", everything)
    box.ask("fork", "evil", "--as", "trial")
    box.ask("sleep", "trial", "--reason", PAYLOADS[5])
    box.write("in/more.txt", "2\n")
    box.wait_at_rest("evil", runs=2)


VIEWS = {
    "#/now": ".line-name",
    "#/now?filter=needs": ".line-name",
    "#/graph/evil": ".card-session",
    "#/graph?all=1": ".card-session",
    "#/timeline?range=1h": ".run-bar",
    "#/session/evil": ".bubble",
    "#/session/evil?tab=output": ".terminal-line",
    "#/session/evil?tab=log": ".record",
    "#/session/evil?at=5&tab=compare": ".diff",
    "#/session/fails": ".session-head",
    "#/session/asks": ".ask-here",
    "#/session/trial": ".session-head",
    "#/why?x=evil": ".card-run",
    f"#/why?x={quote(PAYLOADS[1])}": ".problem, .why-words",
    "#/health": ".health-card",
}


@pytest.mark.parametrize("place", VIEWS)
def test_a_view_shows_hostile_text_as_text(browser: Any, planted: Door, place: str) -> None:
    with opened(browser, planted) as tab:
        asked: list[str] = []
        tab.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
        tab.page.on("request", lambda request: "127.0.0.1:9" in request.url and asked.append(request.url))
        tab.go(place, VIEWS[place])
        tab.page.wait_for_timeout(500)
        for closed in tab.page.query_selector_all("details:not([open]) > summary"):
            closed.click()
        assert tab.page.evaluate("window.isTaken") is None
        assert tab.page.locator(STRANGE).count() == 0
        assert asked == [] and tab.page.evaluate("reports") == []


def test_every_payload_stands_in_the_page_to_the_letter(browser: Any, planted: Door) -> None:
    """The other tests prove something only if the payloads reached the page."""
    with opened(browser, planted) as tab:
        tab.go("#/session/evil", ".facts")
        eventually(lambda: not list_missing(tab), what="every payload among the facts")


def list_missing(tab: Tab) -> list[str]:
    text = tab.page.evaluate("document.querySelector('.facts').textContent")
    return [payload for payload in PAYLOADS if payload.replace("\x1b", "") not in text.replace("\x1b", "")]
