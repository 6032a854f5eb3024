"""The words of a model on their way to followers: written to the run's output,
and posted to the daemon as words in flight.

Nobody waits for it. One post is under way at a time; what comes meanwhile is put together for the next. While the
daemon is slow or away no more than a bound is held: words beyond it are dropped, and followers are told. The log has
every finished turn in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from wakeful.agents.contract import Say, WordKind
from wakeful.client.async_client import DaemonClient
from wakeful.errors import WakefulError

# Words leave this long after they came, together with those that came meanwhile: a reader sees no difference, and the
# daemon does. An answer that is complete by then is on record, and its words never leave.
PAUSE_SECONDS = 0.03
# A daemon that is slower than this has other things to do than to show thoughts.
SETTLE_SECONDS = 0.1
MOST_HELD = 64 * 1024


class Voice:
    """One for a run. `write` gets the text that belongs to the run's output."""

    def __init__(self, link: DaemonClient, write: Callable[[str], None]) -> None:
        self._link = link
        self._write = write
        self._attempt = 0
        self._held: list[dict[str, Any]] = []
        self._held_size = 0
        self._posting: asyncio.Task[None] | None = None
        self._line = asyncio.Lock()

    def begin(self, turn: int) -> Say:
        """For the answer to one request of a turn: whatever was said to an earlier one of it is void."""
        self._attempt += 1
        attempt = self._attempt

        def say(text: str, kind: WordKind = "text") -> None:
            if not text:
                return
            if kind == "text":
                self._write(text)
            self._hold({"turn": turn, "attempt": attempt, "kind": kind, "text": text})

        return say

    def _hold(self, said: dict[str, Any]) -> None:
        if self._held_size + len(said["text"]) > MOST_HELD:
            said |= {"kind": "lost", "text": ""}
        last = self._held[-1] if self._held else None
        if last is not None and all(last[name] == said[name] for name in ("turn", "attempt", "kind")):
            last["text"] += said["text"]
        else:
            self._held.append(said)
        self._held_size += len(said["text"])
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post(), name="post words in flight")

    async def _post(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            if not self._held:
                return
            await self._post_held()

    async def _post_held(self) -> None:
        # One after the other, or words would overtake each other.
        async with self._line:
            words, self._held, self._held_size = self._held, [], 0
            try:
                await self._link.post("/work/words", {"words": words})
            except WakefulError:
                # They are gone for those who follow, and will be on record: the next words say that some are missing.
                if self._held:
                    self._held.insert(0, words[-1] | {"kind": "lost", "text": ""})

    async def settle(self) -> None:
        """The answer is complete and its record follows: let its thoughts out, which are shown nowhere else.

        The record has the text, so words that have not left yet are dropped."""
        if any(one["kind"] == "thinking" for one in self._held):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._post_held()
        self._held, self._held_size = [], 0
        # Without words to wait for. A post that is under way goes on.
        if self._posting is not None and not self._line.locked():
            self._posting.cancel()
            self._posting = None

    def close(self) -> None:
        """The run is over, and all of its turns are on record."""
        if self._posting is not None:
            self._posting.cancel()
