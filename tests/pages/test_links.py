"""Every link between pages leads to an existing file and an existing heading."""

from __future__ import annotations

import re

import pytest

from pages.fenced_blocks import PAGES, REPOSITORY

ALL = {**PAGES, "CHANGELOG.md": REPOSITORY / "CHANGELOG.md"}
# CONTRIBUTING.md links to the map of the code, so it is checked only where that page exists.
if (REPOSITORY / "docs" / "architecture.md").is_file():
    ALL["CONTRIBUTING.md"] = REPOSITORY / "CONTRIBUTING.md"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"#+ +(.*)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def list_anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to headings."""
    headings = (found[1] for line in _FENCED.sub("", text).splitlines() if (found := _HEADING.fullmatch(line)))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    text = ALL[page].read_text()
    for link in _LINK.findall(_FENCED.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ALL[page].parent / path).resolve() if path else ALL[page]
        assert target.exists(), f"{page}: {link}: there is no such file"
        if anchor:
            assert anchor in list_anchors(target.read_text()), f"{page}: {link}: there is no such heading"
