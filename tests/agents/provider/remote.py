"""A scripted provider in a process of its own, controlled by a test.

It is for clients that must not share the test's interpreter.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agents.provider.endpoint import Endpoint
from agents.provider.model_request import Asked
from agents.provider.script import Routes, Turn, Turns, write_script

_TESTS = Path(__file__).parent.parent.parent


class Remote(Endpoint):
    """The interface of `Provider` over HTTP. A script cannot be a function here."""

    @property
    def requests(self) -> list[Asked]:
        return msgspec.json.decode(self._speak("requests"), type=list[Asked])

    @property
    def surprises(self) -> list[str]:
        return msgspec.json.decode(self._speak("surprises"))

    def play(self, script: Turns | Routes | Sequence[Turn]) -> None:
        self._speak("play", write_script(script))

    def release(self, gate: str) -> None:
        self._speak(f"release/{urllib.parse.quote(gate, safe='')}", b"")

    def forget(self) -> None:
        self._speak("forget", b"")

    def _speak(self, what: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/script/{what}", data=body), timeout=10) as told:
            return told.read()


@contextlib.contextmanager
def spawn(script: Turns | Routes | Sequence[Turn], folder: Path) -> Iterator[Remote]:
    """Start a provider as a process with its script in `folder`, and end it afterwards."""
    path = folder / "script.json"
    path.write_bytes(write_script(script))
    command = [sys.executable, "-m", "agents.provider", str(path), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(_TESTS)}
    ) as process:
        try:
            url = process.stdout.readline().strip()
            assert url, f"the provider did not start: {process.wait()}"
            yield Remote(url)
        finally:
            process.terminate()
