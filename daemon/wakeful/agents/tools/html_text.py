"""Converts a page of HTML to text: the content that a person would read, with headings, lists, tables and links.

Scripts, styles and graphics are left out, and so is content that the page's markup hides. The standard library's parser
is used, because it accepts any input. This module runs as a program of its own, `python -I -S html_text.py`. A page can
be written so that parsing takes hours (measured), and a process can be killed.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_SILENT = ("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head", "select")
# The tags without an end tag.
_SINGLE = ("br", "hr", "img", "input", "meta", "link", "col", "area", "base", "embed", "source", "track", "wbr")
_BLOCKS = (
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "aside",
    "nav",
    "ul",
    "ol",
    "dl",
    "table",
    "tr",
    "blockquote",
    "form",
    "figure",
    "dt",
    "dd",
    "address",
    "fieldset",
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACES = re.compile(r"[ \t\r\f\v\xa0]+")
_LINES = re.compile(r"\n{3,}")


def read_html(text: str, url: str) -> tuple[str, str]:
    """Return the title and the text. A link to another page is followed by its address."""
    reader = _Reader(url)
    reader.feed(text)
    reader.close()
    lines = (_SPACES.sub(" ", line).strip() for line in "".join(reader.parts).split("\n"))
    return " ".join("".join(reader.title).split()), _LINES.sub("\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self._url = url
        self._is_title = False
        # The open tags, from the first one that hides its content on.
        self._hidden: list[str] = []
        self._links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._is_title = tag == "title"
        if tag in _SINGLE:
            self._single(tag, given)
            return
        if self._hidden or tag in _SILENT or "hidden" in given or given.get("aria-hidden") == "true":
            self._hidden.append(tag)
            return
        if tag in _HEADINGS:
            self.parts.append(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag == "pre":
            self.parts.append("\n\n")
        elif tag in _BLOCKS:
            self.parts.append("\n")
        elif tag == "a":
            self._links.append(self._find_link(given.get("href")))

    def _single(self, tag: str, given: dict[str, str | None]) -> None:
        if self._hidden:
            return
        if tag in ("br", "hr"):
            self.parts.append("\n")
        elif tag == "img" and given.get("alt"):
            self.parts.append(f"[image: {given['alt']}]")

    def _find_link(self, target: str | None) -> str | None:
        if not target or target.startswith(("#", "javascript:", "data:")):
            return None
        try:
            return urljoin(self._url, target)
        except ValueError:
            return None

    def handle_endtag(self, tag: str) -> None:
        self._is_title = False
        if self._hidden:
            # An element that was never closed ends with the element around it.
            if tag in self._hidden:
                del self._hidden[self._hidden.index(tag) :]
            return
        if tag == "a" and self._links:
            link = self._links.pop()
            self.parts.append(f" ({link})" if link is not None else "")
        elif tag in _HEADINGS or tag in _BLOCKS or tag == "pre":
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._is_title:
            self.title.append(data)
        elif not self._hidden:
            self.parts.append(data)


def main() -> None:
    """Read the address as a line, then the page, and write the title and the text as JSON."""
    url = sys.stdin.buffer.readline().decode(errors="replace").strip()
    title, text = read_html(sys.stdin.buffer.read().decode(errors="replace"), url)
    sys.stdout.write(json.dumps({"title": title, "text": text}))


if __name__ == "__main__":
    main()
