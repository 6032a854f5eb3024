"""How many tokens a text takes, by estimate: asked before anything is sent, where no provider has counted yet.

Tokenizers differ and none is needed here: letters, digits, marks and other scripts each take about what the common ones
give them. Prose comes within a tenth of them, code and JSON within a fifth; what a provider then counts is recorded
beside it, and what is spent is charged by that. Short words are never taken for less than one token each.
"""

from __future__ import annotations

import json
import math

from msgspec.structs import replace

from wakeful.core.agents.turns import Answered, Asked, Entry, Returned, TokenUsage, ToolDefinition

_DIGITS = b"0123456789"
_MARKS = bytes(set(range(33, 127)) - set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(_DIGITS))
_ASCII = bytes(range(128))
# Bytes of one kind that make a token.
# Providers count by size, and make a large image smaller: about what the largest one takes.
_TOKENS_OF_AN_IMAGE = 1_600
_BYTES_OF_LETTERS, _BYTES_OF_DIGITS, _BYTES_OF_MARKS, _BYTES_OF_OTHERS = 4.4, 2.5, 1.8, 3.0


def estimate_tokens(text: str) -> int:
    """0 for no text, else at least one for each word."""
    data = text.encode(errors="surrogatepass")
    digits, marks, others = (len(data) - len(data.translate(None, kind)) for kind in (_DIGITS, _MARKS, _ASCII))
    # Of other scripts the bytes that are left, not those that went.
    others = len(data) - others
    letters = len(data) - digits - marks - others
    estimate = (
        letters / _BYTES_OF_LETTERS + digits / _BYTES_OF_DIGITS + marks / _BYTES_OF_MARKS + others / _BYTES_OF_OTHERS
    )
    return max(math.ceil(estimate), len(text.split()))


def estimate_entry(entry: Entry) -> int:
    """The estimated number of tokens of one entry of a conversation."""
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
    """The tokens that the definition of one tool takes in every request."""
    return estimate_tokens(json.dumps(tool.parameters) + tool.description)


def complete_usage(usage: TokenUsage, input_tokens: int, answered: Answered) -> TokenUsage:
    """The usage of a request: by its provider's count, and by estimate where the provider told none.

    Every request has words that go in.
    """
    if usage.input and usage.output:
        return usage
    said = estimate_entry(answered)
    if usage.input and not said:
        return usage
    return replace(usage, input=usage.input or input_tokens, output=usage.output or said, is_estimated=True)


def cut_to_tokens(text: str, tokens: int) -> str:
    """The longest beginning that takes no more than so many, by halves: within 1 % of what would fit."""
    if estimate_tokens(text) <= tokens:
        return text
    low, high = 0, len(text)
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle)
    return text[:low]
