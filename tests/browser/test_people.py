"""Three people in one session at once, each in their own browser: the owner, an observer and a contributor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from browser.conftest import Door, Tab, opened
from e2e.box import Box
from wait_conditions import eventually

pytestmark = pytest.mark.browser

ROLES = {"ana": "observer", "ben": "contributor"}
SPEC = """
    objective: Pay what the rates say.
    approve: before_run
    bindings: {rates: {file: rates.txt, settle: 10ms}}
    run: {script: "cat rates.txt >> ledger"}
"""
# Returns the author and the text of each message in the page.
SAID = "() => [...document.querySelectorAll('.conversation .bubble')].map(one => [one.querySelector('strong').innerText, one.querySelector('.prose').innerText])"
# Delays the request of an answer until `letGo` is called, so that another person answers first.
DELAY_ANSWER = """() => {
  const real = window.fetch;
  window.fetch = async (path, options) => {
    if (String(path).includes('/call/answer')) await new Promise(done => { window.letGo = done; });
    return real(path, options);
  };
}"""


@pytest.fixture
def three(browser: Any, box: Box) -> Iterator[dict[str, Tab]]:
    """Return the pages of all three at the same session, by the people's names."""
    box.write("rates.txt", "one\n")
    box.spec("payroll", SPEC)
    door = Door(box)
    door.start()
    box.wait_for("payroll", state="sleeping")
    tokens = {"owner": None}
    for name, role in ROLES.items():
        box.ask("people", "add", name, "--role", role)
        tokens[name] = box.ask("token", "new", "--person", name).split()[-1]
    with ExitStack() as open_tabs:
        tabs = {name: open_tabs.enter_context(opened(browser, door, token)) for name, token in tokens.items()}
        for tab in tabs.values():
            tab.go("#/session/payroll", ".compose")
        yield tabs


def write(tab: Tab, text: str) -> None:
    tab.page.fill("[data-compose]", text)
    tab.page.press("[data-compose]", "Enter")


def test_three_people_see_each_other_and_one_conversation(three: dict[str, Tab], box: Box) -> None:
    """Each page shows who looks and who writes.

    All pages have the messages in the same order, with their authors. The observer cannot write.
    """
    owner = three["owner"].page.evaluate("sessionStorage.getItem('wakeful.person')")
    names = {"owner": owner, "ana": "ana", "ben": "ben"}
    for me, tab in three.items():
        for other, name in names.items():
            if other != me:
                tab.page.wait_for_selector(f".session-head .face[title^='{name} ']")
    three["ben"].page.type("[data-compose]", "I am typing")
    for me in ("owner", "ana"):
        three[me].page.wait_for_selector(".session-head .face[title^='ben writes']")
        three[me].page.wait_for_selector(".session-head .face[title^='ana looks']")
    wanted = []
    for number in range(6):
        me = ("ben", "owner")[number % 2]
        write(three[me], f"{me} says {number}")
        wanted.append([names[me], f"{me} says {number}"])
        # The other person has read this message before they write theirs.
        three[("owner", "ben")[number % 2]].page.wait_for_selector(f".bubble:has-text('says {number}')")
    for me, tab in three.items():
        eventually(lambda tab=tab: tab.page.evaluate(SAID) == wanted, what=f"the same order for {me}")
    assert [one["author"] for one in box.log("payroll", "--kind", "message_added")] == [
        f"person:{who}" for who, _ in wanted
    ]
    assert three["ana"].page.inner_text(".compose") == "You may read this session, but not write to it."
    for tab in three.values():
        tab.check()


OFFERED = "() => [...document.querySelectorAll('.session-head button, .session-side button, .need button')].map(one => one.textContent.trim() || one.title)"


def test_a_page_offers_what_its_person_may_do(three: dict[str, Tab], box: Box) -> None:
    """Buttons and menus depend on the role.

    They are drawn again if a role is taken away while the page is open.
    """
    three["ana"].page.wait_for_selector(".ask-here:has-text('Only a contributor')")
    assert three["ana"].page.evaluate(OFFERED) == ["More actions"]
    for me, last in (("owner", "Terminate…"), ("ben", "Fork…"), ("ana", "Copy as command")):
        page = three[me].page
        page.click("[aria-label='More actions']")
        items = page.locator(".menu-list button").all_inner_texts()
        assert ("Terminate…" in items, "Fork…" in items) == (me == "owner", me != "ana") and last in items
        page.keyboard.press("Escape")
        # Escape closes the menu and does not leave the page.
        assert page.locator(".menu-list").count() == 0 and "#/session/payroll" in page.url
    assert {"Yes, run", "No", "Remember"} <= set(three["ben"].page.evaluate(OFFERED))
    box.ask("people", "role", "ben", "--role", "observer")
    write(three["ben"], "May I still?")
    three["ben"].page.wait_for_selector(".toast.bad:has-text('ben is an observer of payroll')")
    three["ben"].page.wait_for_selector("p.compose:has-text('You may read this session')")
    three["ben"].page.wait_for_selector(".ask-here button", state="detached")
    three["ana"].go("#/now", ".needs")
    assert three["ana"].page.locator(".need button").count() == 0


@pytest.mark.parametrize("word", ["yes", "no"])
def test_the_first_answer_counts_and_all_see_whose_it_was(three: dict[str, Tab], box: Box, word: str) -> None:
    label = {"yes": "Yes, run", "no": "No"}[word]
    for tab in three.values():
        tab.page.wait_for_selector(".ask-here")
    three["owner"].page.evaluate(DELAY_ANSWER)
    three["owner"].page.click(".ask-here button:text-is('No')")
    three["ben"].page.fill("[aria-label='reason, for the log']", "the rates are of May")
    three["ben"].page.click(f".ask-here button:text-is('{label}')")
    for tab in three.values():
        tab.page.wait_for_selector(f".bubble:has-text('{word}, because the rates are of May')")
        assert ["ben", f"{word}, because the rates are of May"] in tab.page.evaluate(SAID)
        tab.page.wait_for_selector(".ask-here", state="detached")
    three["owner"].page.evaluate("letGo()")
    refused = three["owner"].page.wait_for_selector(".toast.bad").inner_text()
    assert f"ben said {word}" in refused and "the rates are of May" in refused, refused
    if word == "yes":
        box.wait_at_rest("payroll", runs=1)
        assert box.read("ledger") == "one\n"
    else:
        assert box.row("payroll")["runs"] == 0
