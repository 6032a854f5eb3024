"""Quotes text of others for a model as data: between marks that the text cannot close, with a label of its origin.

A mark is computed from the content, so equal content is always quoted in the same way, and no content can contain its
own mark. Invisible characters, and those that reorder text or control a terminal, are shown as escapes. So a model
reads what a person would read. Pure.
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
    # The note is outside of the marks, because inside of them the content could fake it.
    return (
        block if len(kept) == len(shown) else f"{block}\n(cut here: {len(shown) - len(kept):,} more characters; {how})"
    )


def make_mark(text: str) -> str:
    """Make a mark that does not occur in this text."""
    number = 0
    while True:
        mark = hashlib.blake2b(f"{number}\0{text}".encode(errors="surrogatepass"), digest_size=_MARK_BYTES).hexdigest()
        if mark not in text:
            return mark
        number += 1


def quote_line(text: str) -> str:
    """Quote a text as one line in quotation marks. Line breaks, quotation marks and invisible characters become
    escapes."""
    return escape(json.dumps(text, ensure_ascii=False))
