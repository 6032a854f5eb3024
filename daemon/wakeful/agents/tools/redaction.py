"""Takes the values of secrets out of a text before a tool cuts it: half of a value is a value that nobody would find any more.

The daemon knows the values, this process does not: it is asked, over the run's own socket. Results that no tool cuts are redacted when they are
recorded. Long texts go in windows, each with what stands around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from wakeful.agents.daemon import DaemonLink

# A text as it may be cut. Line ends stay where they are.
Redact = Callable[[str], Awaitable[str]]
# Letters of one request: also with each of them escaped it is no larger than a call may be.
_WINDOW = 128 * 1024
# No secret is longer, in any shape that is looked for.
_MARGIN = 16 * 1024


async def redact_nothing(text: str) -> str:
    """For tools outside of a run."""
    return text


class Redaction:
    """`redact` is what tools call."""

    def __init__(self, link: DaemonLink) -> None:
        self._link = link

    async def redact(self, text: str) -> str:
        pieces = []
        for start in range(0, len(text), _WINDOW):
            end = start + _WINDOW
            # A lone surrogate is no text that could be sent.
            window = (text[max(0, start - _MARGIN) : start], text[start:end], text[end : end + _MARGIN])
            before, part, after = (piece.encode(errors="replace").decode() for piece in window)
            # With a key the call can be repeated if the daemon restarts meanwhile.
            answered = await self._link.post("/work/redact", {"before": before, "text": part, "after": after}, key="redact")
            pieces.append(answered["text"])
        return "".join(pieces)
