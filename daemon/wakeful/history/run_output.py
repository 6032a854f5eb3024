"""The output of a run, as the log and the blobs keep it.

Used by the daemon for `output` and at the end of `--once`, and by the command line if no daemon runs. Blocking; changes
nothing. The bytes are untrusted, so code that prints them must escape them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wakeful.core.record.events import RunFinished
from wakeful.core.record.state import Archived, Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.system.blobs import Blobs, UnknownBlob
from wakeful.text.display import describe_gap

# The most lines and bytes of a failed run's output that are shown without a request.
TAIL_LINES = 40
TAIL_BYTES = 8 * 1024
# The most lines that a search returns. The count includes the rest.
MOST_FOUND = 1000
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


class RunOutput(NamedTuple):
    """The kept beginning and end of an output. The bytes between them were dropped."""

    run: int
    head: bytes
    tail: bytes
    total_bytes: int
    hint: str | None = None


class Tail(NamedTuple):
    """The last lines of an output. `is_whole` is True if they are the whole output."""

    lines: list[str]
    is_whole: bool


class Found(NamedTuple):
    """The lines of an output that contain a text, each as `12:line`. `total` also counts lines beyond MOST_FOUND.

    `gap` is the number of the line that stands for the dropped part, or None if all of the output was kept."""

    lines: list[bytes]
    total: int
    gap: int | None = None


def check_run(session: Session, run: int | None) -> int:
    """Check the number of a run. None means the last run that ended. Raises CallerError if there is no such run."""
    run = run or (session.last_run.run if session.last_run is not None else None)
    if run is None or session.tally.runs == 0:
        raise CallerError(f"{session.name} has not run yet")
    if not 1 <= run <= session.tally.runs:
        raise CallerError(
            f"{session.name} has no run {run}; "
            + (f"its runs are 1 to {session.tally.runs}" if session.tally.runs > 1 else "it has run once")
        )
    return run


def read_output(log: LogReader, blobs: Blobs, session: Session, run: int) -> RunOutput:
    """Read the output of an ended run. Raises CallerError if it no longer exists, or the run has not ended."""
    for record in log.read(session.id, kinds=("run_finished",), run=run):
        if record.payload is None:
            raise CallerError(_say_gone(session, run))
        finished = decode(record.kind, record.payload)
        assert isinstance(finished, RunFinished)
        kept = finished.output
        try:
            head = blobs.get(kept.head) if kept.head else b""
            return RunOutput(run, head, blobs.get(kept.tail) if kept.tail else b"", kept.total_bytes, finished.hint)
        except UnknownBlob:
            raise CallerError(
                f"what run {run} printed is no longer kept: it was erased, or removed because of its age"
            ) from None
    raise CallerError(f"run {run} has no output yet")


def _say_gone(session: Session, run: int) -> str:
    if isinstance(session.closed, Archived):
        return (
            f"{session.name} is archived, and what run {run} printed with it: "
            f"`wakeful load {session.name}` brings it back"
        )
    return f"what run {run} of {session.name} printed was erased"


def find_in_output(output: RunOutput, text: str) -> Found:
    """Search a stored output.

    Line numbers are those of `wakeful output`, in which one line stands for the dropped part.
    """
    left_out = output.total_bytes - len(output.head) - len(output.tail)
    if left_out <= 0:
        return find_lines(output.head + output.tail, text)
    gap = describe_gap(left_out).encode()
    return find_lines(output.head + gap + output.tail, text)._replace(gap=output.head.count(b"\n") + 2)


def find_lines(output: bytes, text: str) -> Found:
    """Find the lines that contain a text. Case and colour codes are ignored."""
    if not text or "\n" in text:
        raise CallerError("find: expected text of one line")
    wanted = text.casefold()
    # Fold the case of the whole output at once, and number only the lines found. An output may have a million lines.
    folded = _COLOURS.sub("", output.decode(errors="replace")).casefold()
    numbers: list[int] = []
    number, counted, place = 1, 0, folded.find(wanted)
    while place >= 0 and len(numbers) < MOST_FOUND:
        number += folded.count("\n", counted, place)
        numbers.append(number)
        counted = folded.find("\n", place)
        place = folded.find(wanted, counted) if counted >= 0 else -1
    more = sum(wanted in line for line in folded[counted:].split("\n")) if place >= 0 else 0
    lines = output.split(b"\n", numbers[-1]) if numbers else []
    return Found([b"%d:%s" % (one, lines[one - 1]) for one in numbers], len(numbers) + more)


def take_tail(output: RunOutput) -> Tail:
    """Return the last lines, limited in number and bytes. Bytes that are not UTF-8 become escapes."""
    kept = output.tail or output.head
    piece = kept[-TAIL_BYTES:]
    is_whole = len(piece) == output.total_bytes
    lines = piece.decode(errors="backslashreplace").rstrip("\n").split("\n") if piece.strip() else []
    if not is_whole and len(lines) > 1:
        # The first line is incomplete.
        lines = lines[1:]
    return Tail(lines[-TAIL_LINES:], is_whole and len(lines) <= TAIL_LINES)
