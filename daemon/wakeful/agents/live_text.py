"""Streams the text of a model to followers: writes it to the run's output, and posts it to the daemon.

The run does not wait for posts. One post is under way at a time, and text that comes meanwhile goes into the next one.
If the daemon is slow or away, text beyond a limit is dropped, and followers see that some is missing. The log has every
finished turn in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from wakeful.agents.contract import Say, WordKind
from wakeful.client.async_client import DaemonClient
from wakeful.errors import WakefulError

# Seconds for which text is collected before it is posted. Readers do not notice, and the daemon gets fewer posts. If
# the answer is complete by then, its record replaces the post.
PAUSE_SECONDS = 0.03
# The most seconds that the record of an answer waits for the post of its thoughts.
SETTLE_SECONDS = 0.1
MOST_HELD = 64 * 1024


class LiveTextStream:
    """Streams the text of one run. `write` receives the text that belongs to the run's output."""

    def __init__(self, link: DaemonClient, write: Callable[[str], None]) -> None:
        self._link = link
        self._write = write
        self._attempt = 0
        self._held: list[dict[str, Any]] = []
        self._held_size = 0
        self._posting: asyncio.Task[None] | None = None
        self._line = asyncio.Lock()

    def begin(self, turn: int) -> Say:
        """Return the receiver for the answer to one request. It voids the text of earlier attempts in this turn."""
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
        # One post at a time, so that texts cannot overtake each other.
        async with self._line:
            words, self._held, self._held_size = self._held, [], 0
            try:
                await self._link.post("/work/words", {"words": words})
            except WakefulError:
                # Followers do not get this text, but it will be on record. Insert a mark before the next text that some
                # is missing.
                if self._held:
                    self._held.insert(0, words[-1] | {"kind": "lost", "text": ""})

    async def settle(self) -> None:
        """Post the held thoughts of a complete answer, before its record follows. They are shown nowhere else.

        Other held text is dropped, because the record has it.
        """
        if any(one["kind"] == "thinking" for one in self._held):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._post_held()
        self._held, self._held_size = [], 0
        # Nothing is held any more, so stop the posting task, unless a post is under way.
        if self._posting is not None and not self._line.locked():
            self._posting.cancel()
            self._posting = None

    def close(self) -> None:
        """Stop posting. Called when the run is over and all of its turns are on record."""
        if self._posting is not None:
            self._posting.cancel()
