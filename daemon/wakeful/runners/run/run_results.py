"""Saves the results of a run after its last process has ended: output, output files, undeclared changes and trace.

`LiveRun` calls `save` once per run, in a thread, because it is blocking. Nothing is put in place here: collected
outputs stay in their area until they are recorded. A failure to save never keeps a run from ending.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from msgspec import Struct

from wakeful.core.record.observations import Output, StagedOutput, Traced
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.denials import name_addresses, tell_command
from wakeful.runners.outputs.undeclared_changes import Writer, find_undeclared
from wakeful.runners.preparation import Prepared, is_staged
from wakeful.runners.process.output_capture import Capture
from wakeful.system.blobs import Blobs

# The most bytes searched at the end of each kept part of an output. A program usually reports a failure last.
_LOOKED_THROUGH_BYTES = 32 * 1024


class Saved(Struct, frozen=True):
    """The result of saving. `staged` is None if the run wrote directly. `problem` tells why no output can land."""

    output: Output = Output()
    undeclared: tuple[str, ...] = ()
    staged: tuple[StagedOutput, ...] | None = None
    trace: Traced | None = None
    problem: str | None = None
    # Advice for a person, if the run failed and was confined.
    hint: str | None = None


def has_nothing_to_save(prepared: Prepared, capture: Capture) -> bool:
    return not capture.total_bytes and not prepared.surveyed and prepared.area is None and prepared.tracing is None


def save(
    order: RunOrder, prepared: Prepared, blobs: Blobs, capture: Capture, others: tuple[Writer, ...], *, has_begun: bool
) -> Saved:
    """Save a run's results. Blocking. `others` are the other writers that were active during the run."""
    output = _save_output(blobs, capture) if capture.total_bytes else Output()
    trace = prepared.conclude_trace()
    if trace is not None:
        trace = name_addresses(trace, read_ends(capture), tell_command(order))
    if not has_begun or prepared.area is None:
        undeclared = (
            find_undeclared(prepared.surveyed, order.root, order.writes, order.confinement.allow_write, others)
            if has_begun
            else ()
        )
        return Saved(output, undeclared, save_nothing(order).staged, trace)
    try:
        staged, undeclared = prepared.area.collect()
    except (OSError, OperatorError) as error:
        # The disk is full, or the area was removed.
        return Saved(output, staged=(), trace=trace, problem=f"its outputs could not be collected: {error}")
    return Saved(output, undeclared, staged, trace)


def read_ends(capture: Capture) -> str:
    """Return the last output of a failed run, as text to be searched."""
    return capture.ends(_LOOKED_THROUGH_BYTES).decode(errors="replace")


def save_nothing(order: RunOrder) -> Saved:
    """Return a result in which no output lands, because the outputs are missing or not reliable."""
    return Saved(staged=() if is_staged(order) else None)


def is_empty(folder: str) -> bool:
    """Is the folder empty or missing?"""
    return not _list(folder)


def empty_temporary(folder: str) -> None:
    """Empty the session's temporary folder. Blocking.

    Called before the end is reported, because the next run of the session writes there. The folder itself stays: to
    make it again would cost the next run a write to the disk. Files that a run made unreadable for the daemon stay
    until the next start.
    """
    for entry in _list(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _save_output(blobs: Blobs, capture: Capture) -> Output:
    """Save the output as two blobs, with two flushes, so that a long output can be read from either end."""
    kept = capture.kept()
    try:
        return Output(
            head=blobs.put(kept.head) if kept.head else None,
            tail=blobs.put(kept.tail) if kept.tail else None,
            total_bytes=kept.total_bytes,
            kept_bytes=len(kept.head) + len(kept.tail),
        )
    except OSError:
        # The disk is full. The outcome of the run does not change. The counts show that no output was kept.
        return Output(total_bytes=capture.total_bytes)


def _list(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
