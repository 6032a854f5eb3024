"""Words of others, put before a model as data: between marks that they cannot close,
labelled with where they come from.

A mark is made of the content itself, so the same content is quoted the same way for ever and no content can hold its
own. What cannot be seen, reorders text or moves a terminal is shown as an escape:
a model reads what a person would read. Pure.
"""

from __future__ import annotations

import hashlib
import json

from wakeful.core.agents.token_count import cut_to_tokens
from wakeful.text.display import escape, escape_lines

_MARK_BYTES = 6


def quote_block(text: str, label: str, tokens: int | None = None, how: str = "", *, tag: str = "data") -> str:
    """Quote a text as data. `label` describes the text in one line.

    A text of more than `tokens` is cut. A note after the block then says `how` to get the rest.
    """
    shown = escape_lines(text)
    kept = shown if tokens is None else cut_to_tokens(shown, tokens)
    mark = make_mark(kept)
    block = f"<{tag} {mark} {escape(label)}>\n{kept.rstrip(chr(10))}\n</{tag} {mark}>"
    # The note stands outside of the marks. Inside, the content could fake it.
    return (
        block if len(kept) == len(shown) else f"{block}\n(cut here: {len(shown) - len(kept):,} more characters; {how})"
    )


def make_mark(text: str) -> str:
    """A mark that does not occur in this text."""
    number = 0
    while True:
        mark = hashlib.blake2b(f"{number}\0{text}".encode(errors="surrogatepass"), digest_size=_MARK_BYTES).hexdigest()
        if mark not in text:
            return mark
        number += 1


def quote_line(text: str) -> str:
    """One line in quotation marks: a line break, a quotation mark and what cannot be seen stand as escapes inside of
    them."""
    return escape(json.dumps(text, ensure_ascii=False))
