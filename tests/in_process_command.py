"""Run the command `wakeful` within the test's process. Starting an interpreter takes ten times as long as most verbs.

The command gets its words, its folder, exactly the given environment and three pipes, and returns its exit code.
tests/cli/test_separate_process.py checks that a separate process behaves the same. `daemon` changes the process it runs in, so
it must not be run this way.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest

from wait_conditions import PATIENCE_SECONDS
from wakeful.cli import main


def run_command(
    *words: str, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. A command that hangs fails its test, not the suite."""
    pipes = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ, environment, clear=True), _given_up(words):
        for name, pipe in zip(("stdin", "stdout", "stderr"), pipes, strict=True):
            patch.setattr(sys, name, pipe)
        patch.setattr(sys, "argv", ["wakeful", *words])
        if folder is not None:
            patch.chdir(folder)
        try:
            code = main()
        except SystemExit as ending:
            # click ends with this exception when a shell asks for completions.
            code = ending.code if isinstance(ending.code, int) else 1
    return subprocess.CompletedProcess(["wakeful", *words], code, *map(_read_back, pipes[1:]))


@contextlib.contextmanager
def _given_up(words: tuple[str, ...]) -> Iterator[None]:
    def give_up(number: int, frame: object) -> None:
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: wakeful {' '.join(words)}")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_back(pipe: io.TextIOWrapper) -> str:
    pipe.flush()
    return pipe.buffer.getvalue().decode()  # type: ignore[attr-defined]
