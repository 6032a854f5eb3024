"""Text for a model: an estimate of its tokens, a cut to so many tokens, and quotes of others' text as data.

The estimate uses no tokenizer, because each model has another. Letters, digits, marks and other scripts each have a
number of bytes per token, the average of the common tokenizers. The error is within a tenth for prose, and within a
fifth for code and JSON. Each word counts as at least one token. The count of the provider is recorded later, and
budgets are charged by it.
A quote is enclosed in marks that the text cannot close, and a label names its origin. A mark is computed from the
content, so equal content is always quoted in the same way, and no content can contain its own mark. Invisible
characters, and those that reorder text or control a terminal, are shown as escapes, so a model reads what a person
would read. Pure.
"""

from __future__ import annotations

import hashlib
import json
import math

from msgspec.structs import replace

from wakeful.core.agents.turns import Answered, Asked, Entry, Returned, TokenUsage, ToolDefinition
from wakeful.text.display import escape, escape_lines

_DIGITS = b"0123456789"
_MARKS = bytes(set(range(33, 127)) - set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(_DIGITS))
_ASCII = bytes(range(128))
# Roughly the tokens of the largest image. Providers count an image by its size, and shrink large images.
_TOKENS_OF_AN_IMAGE = 1_600
# The number of bytes of each kind that make one token.
_BYTES_OF_LETTERS, _BYTES_OF_DIGITS, _BYTES_OF_MARKS, _BYTES_OF_OTHERS = 4.4, 2.5, 1.8, 3.0
_MARK_BYTES = 6


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: 0 for no text, else at least one for each word."""
    data = text.encode(errors="surrogatepass")
    digits, marks, others = (len(data) - len(data.translate(None, kind)) for kind in (_DIGITS, _MARKS, _ASCII))
    # So far `others` counts the ASCII bytes. The bytes of other scripts are all the rest.
    others = len(data) - others
    letters = len(data) - digits - marks - others
    estimate = (
        letters / _BYTES_OF_LETTERS + digits / _BYTES_OF_DIGITS + marks / _BYTES_OF_MARKS + others / _BYTES_OF_OTHERS
    )
    return max(math.ceil(estimate), len(text.split()))


def estimate_entry(entry: Entry) -> int:
    """Estimate the tokens of one entry of a conversation."""
    match entry:
        case Asked(text=text):
            return estimate_tokens(text)
        case Returned(text=text, images=images):
            return estimate_tokens(text) + len(images) * _TOKENS_OF_AN_IMAGE
        case Answered(text=text, calls=calls):
            return estimate_tokens(text) + sum(
                estimate_tokens(call.name) + estimate_tokens(call.arguments) for call in calls
            )


def estimate_definition(tool: ToolDefinition) -> int:
    """Estimate the tokens that the definition of one tool takes in every request."""
    return estimate_tokens(json.dumps(tool.parameters) + tool.description)


def complete_usage(usage: TokenUsage, input_tokens: int, answered: Answered) -> TokenUsage:
    """Return the usage of a request: the provider's count, or our estimate for numbers that it did not report.

    An input of 0 counts as not reported, because every request has input.
    """
    if usage.input and usage.output:
        return usage
    said = estimate_entry(answered)
    if usage.input and not said:
        return usage
    return replace(usage, input=usage.input or input_tokens, output=usage.output or said, is_estimated=True)


def cut_to_tokens(text: str, tokens: int) -> str:
    """Return the longest beginning with at most this many tokens. It is found by halving, within 1 % of the longest."""
    if estimate_tokens(text) <= tokens:
        return text
    low, high = 0, len(text)
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle)
    return text[:low]


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
