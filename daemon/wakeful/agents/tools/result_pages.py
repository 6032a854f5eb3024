"""Pages large results of tools: the model gets the first page, and a file in the scratch folder has the whole result.

Called by the tool box for every result. The pages of `read` always fit. For the other tools a page says how to read on.
Secrets are redacted in the whole result before it is stored and cut. The file has short lines, so that `read` can page
through it whatever the result looks like.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from wakeful.agents.contract import ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.tool import KEPT_BYTES, ResultLimit, bound_text
from wakeful.client.async_client import DaemonClient

# A function that redacts a text, after which it may be cut. Line ends stay where they are.
Redact = Callable[[str], Awaitable[str]]
# The most characters of one request. Even if each is escaped, the request stays below the limit of a call.
_WINDOW = 128 * 1024
# The characters on each side of a part that are searched for secrets too. A longer secret that crosses an edge of the
# part is not found.
MARGIN = 16 * 1024


async def redact_nothing(text: str) -> str:
    """Return the text unchanged. For tools outside of a run."""
    return text


class Redaction:
    """Redacts texts of any length by calls to the daemon, which knows the secrets."""

    def __init__(self, link: DaemonClient) -> None:
        self._link = link

    async def redact(self, text: str) -> str:
        pieces = []
        for start in range(0, len(text), _WINDOW):
            end = start + _WINDOW
            # Replace lone surrogates, which cannot be sent.
            window = (text[max(0, start - MARGIN) : start], text[start:end], text[end : end + MARGIN])
            before, part, after = (piece.encode(errors="replace").decode() for piece in window)
            # With a key the call can be repeated if the daemon restarts meanwhile.
            answered = await self._link.post(
                "/work/redact", {"before": before, "text": part, "after": after}, key="redact"
            )
            pieces.append(answered["text"])
        return "".join(pieces)


FOLDER = "results"
# The most characters of a line in the file of a result. It is less than `read` shows of one line.
_LINE = 100
_MOST_KEPT = 50


class ResultPages:
    """Pages results. `limit` is the largest result."""

    def __init__(self, bounds: Bounds, limit: ResultLimit, redact: Redact = redact_nothing) -> None:
        self._folder = Path(bounds.scratch) / FOLDER if bounds.scratch is not None else None
        self.limit = limit
        self._redact = redact

    async def show(self, result: ToolResult) -> ToolResult:
        """Return the result, or its first page with a note on how to read on."""
        if len(result.text.encode(errors="replace")) <= self.limit.most_bytes:
            return result
        text = bound_text(await self._redact(result.text), KEPT_BYTES)
        if self._folder is None:
            return ToolResult(bound_text(text, self.limit.most_bytes), result.is_error, result.images)
        lines, path = await asyncio.to_thread(self._keep, self._folder, text)
        shown = _take_page(lines, self.limit.most_bytes - 512)
        more = (
            f"[cut: this result has {len(lines)} lines, and {len(shown)} are shown; "
            f"read {path} with offset {len(shown) + 1}]"
        )
        return ToolResult("\n".join((*shown, more)), result.is_error, result.images)

    def _keep(self, folder: Path, text: str) -> tuple[list[str], str]:
        """Store a text, and return its lines and path. Blocking.

        The file is named by its content, so that a conversation that continues still finds it. The oldest files are
        removed.
        """
        lines = [piece for line in text.split("\n") for piece in _split_line(line)]
        folder.mkdir(mode=0o700, exist_ok=True)
        content = ("\n".join(lines) + "\n").encode(errors="replace")
        path = folder / f"{hashlib.blake2b(content, digest_size=8).hexdigest()}.txt"
        path.write_bytes(content)
        for old in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime_ns)[:-_MOST_KEPT]:
            old.unlink()
        return lines, str(path)


def _split_line(line: str) -> Iterator[str]:
    """Split a long line into pieces, after a word if possible."""
    start = 0
    while len(line) - start > _LINE:
        end = line.rfind(" ", start + _LINE // 2, start + _LINE) + 1 or start + _LINE
        yield line[start:end]
        start = end
    yield line[start:]


def _take_page(lines: list[str], room: int) -> list[str]:
    shown: list[str] = []
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        shown.append(line)
    return shown
