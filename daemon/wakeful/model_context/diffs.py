"""Reads both contents of each changed path, at the last success of its session and now, and makes the diff of the two.

The old content comes from the record of a run that had exactly that version of the binding. The new content is read
from disk, without following links, up to a limit. If a content cannot be shown, the reason is given instead: binary,
too large, not kept. Blocking.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from wakeful.core.agents.model_text import quote_line
from wakeful.core.deciding.owed import list_new_deliveries
from wakeful.core.looking.path_reports import Changed, Compared, Delivered, Side
from wakeful.core.record.events import Cause, RunFinished
from wakeful.core.record.knowledge import close_lineage
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.record.webhook_deliveries import Delivery
from wakeful.errors import OperatorError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader
from wakeful.run_files.file_record import Entry, Found, read_record
from wakeful.run_files.files_at_positions import diff_lines, read_kept, split_text
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import PathBlocked, open_folder
from wakeful.run_files.replay_comparison import LARGEST_TEXT_BYTES
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob

# The most paths compared per cause. Further paths are only listed.
MOST_COMPARED = 40
# The most runs whose records are searched for an old version. The last success is nearly always the last run.
MOST_RUNS = 30

# A function that reads the old and new contents of a cause's paths, for as many paths as are worth comparing.
ReadChanged = Callable[[Cause], Compared]


class FileSides:
    """Reads the old and the new contents of the files that a cause names."""

    def __init__(self, session: Session, root: str, *, log: LogReader, blobs: Blobs) -> None:
        self._session = session
        self._root = root
        self._log = log
        self._blobs = blobs

    def read(self, cause: Cause) -> Compared:
        """Read both contents of each path. Empty if no record has the old version: at a first run, or after erasure."""
        if cause.kind != "file" or cause.old is None or not cause.paths:
            return Compared()
        known = self._find_old(cause.old)
        if known is None:
            return Compared()
        compared = (one.path for one in cause.paths[:MOST_COMPARED])
        return Compared(
            sides=tuple(Changed(path, self._read_old(known.get(path)), read_now(self._root, path)) for path in compared)
        )

    def _find_old(self, version: str) -> dict[str, Entry] | None:
        for address in self._list_records():
            try:
                sides = (side for one in read_record(self._blobs, address).bindings for side in (one.after, one.before))
                found = next((side for side in sides if isinstance(side, Found) and side.version == version), None)
                if found is not None:
                    return {entry.path: entry for entry in read_entries(self._blobs, found)}
            except (UnknownBlob, DamagedBlob, OperatorError):
                # The record was erased, or lost in a power failure. An older record may have the version too.
                continue
        return None

    def _list_records(self) -> Iterator[str]:
        """Yield the addresses of file records, newest first. Branches that a rewind abandoned are not searched."""
        left = MOST_RUNS
        for stretch in reversed(close_lineage(self._session.lineage.line, self._session.id, self._session.seq)):
            for record in self._log.read(
                stretch.session,
                from_seq=stretch.first,
                to_seq=stretch.last,
                kinds=("run_finished",),
                limit=left,
                newest_first=True,
            ):
                left -= 1
                match decode(record.kind, record.payload) if record.payload is not None else None:
                    case RunFinished(files=str() as files):
                        yield files
            if left <= 0:
                return

    def _read_old(self, entry: Entry | None) -> Side:
        if entry is not None and entry.kind == "l":
            # Anyone may have chosen the target of the link, so it is quoted.
            return f"a link to {quote_line(entry.link or '')}"
        return None if entry is None else read_kept(self._blobs, entry)


def read_now(root: str, path: str) -> Side:
    """Read the file at the path without following links."""
    try:
        with open_folder(root, path) as (folder, last):
            descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "not a file"
            content = file.read(LARGEST_TEXT_BYTES + 1)
    except FileNotFoundError:
        return None
    except PathBlocked:
        return "below a symbolic link"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return content if len(content) <= LARGEST_TEXT_BYTES else f"larger than {LARGEST_TEXT_BYTES >> 10} KiB"


def read_deliveries(session: Session, run: OpenRun, cause: Cause, blobs: Blobs) -> Compared:
    """Read the webhook deliveries that no earlier run has handled, oldest first."""
    found = []
    for one in list_new_deliveries(session, run, cause.key):
        label = f"delivery {one.position} of {cause.binding}: {one.event or 'unnamed'}, {one.delivery}"
        where = f"the file {one.file_name} in the folder of {cause.binding} has all of it"
        found.append(Delivered(label, _read_payload(one, blobs), where))
    return Compared(deliveries=tuple(found))


def _read_payload(delivery: Delivery, blobs: Blobs) -> bytes | str:
    if delivery.payload is None:
        return "it was erased"
    try:
        return blobs.get(delivery.payload)
    except (UnknownBlob, DamagedBlob) as error:
        return str(error)


def diff_sides(changed: Changed, redact: Callable[[str], str]) -> tuple[str | None, str | None]:
    """Return a unified diff and None, or None and the reason why there is no diff.

    Each content is redacted before the diff is made, because the diff's line marks would split a multi-line secret.
    """
    sides = [b"" if side is None else side for side in (changed.before, changed.after)]
    note = next((side for side in sides if isinstance(side, str)), None)
    if note is not None:
        return None, note
    redacted = [_redact_side(side, redact) for side in sides if isinstance(side, bytes)]
    if redacted[0] == redacted[1] and sides[0] != sides[1]:
        return None, "only the value of a secret changed"
    texts = [split_text(side) for side in redacted]
    note = next((text for text in texts if isinstance(text, str)), None)
    if note is not None:
        return None, note
    old, new = (text for text in texts if isinstance(text, list))
    diff = "".join(diff_lines(old, new, changed.path))
    if diff:
        return redact(diff), None
    return None, "empty" if None in (changed.before, changed.after) else "the same text as before"


def _redact_side(content: bytes, redact: Callable[[str], str]) -> bytes:
    """Redact a content. Binary content is returned unchanged, because it is never shown."""
    try:
        return redact(content.decode()).encode()
    except UnicodeDecodeError:
        return content
