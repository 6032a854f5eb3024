"""Finds the blobs of old runs that may move to the archive.

These are outputs, the contents of files that the runs read and wrote, and payloads of deliveries that came before the
runs ended. Retention calls this once a day, off the loop. bundles/retention_rules.py decides which runs exceed a limit.
A blob stays if a run that stays, a workspace's base or a merge names it, in any session, including loaded ones. This
module only reads, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wakeful.bundles.inspection import NAMING
from wakeful.bundles.references import References
from wakeful.bundles.retention_rules import USUAL_OUTPUTS, RunOutput, choose_outputs
from wakeful.core.record.events import Outcome
from wakeful.core.spec.session import Retention
from wakeful.eventlog.contract import LogReader, Record
from wakeful.system.blobs import Blobs

# The most bytes moved in one round. The rest is moved in the next rounds.
MOST_BYTES = 1_000_000_000
_PAGE = 1_000


class DueOutputs(msgspec.Struct, frozen=True):
    """The blobs that may move, oldest first, and the number of runs and bytes for each session."""

    addresses: tuple[str, ...]
    sessions: dict[str, tuple[int, int]]


class _Ended(msgspec.Struct):
    outcome: Outcome


class _Naming(References):
    """References that also return, for each record, the blobs that no record before it named."""

    def __init__(self, blobs: Blobs) -> None:
        super().__init__(blobs)
        self._fresh: list[str] = []

    def take(self, record: Record) -> list[str]:
        self._fresh = []
        self.add(record)
        return self._fresh

    def _name(self, address: str) -> bool:
        is_new = super()._name(address)
        if is_new:
            self._fresh.append(address)
        return is_new


def find_due_outputs(
    log: LogReader,
    blobs: Blobs,
    bounds: Mapping[str, Retention],
    now: int,
    *,
    usual: Retention = USUAL_OUTPUTS,
    most_bytes: int = MOST_BYTES,
) -> DueOutputs:
    """Find the blobs that may move now. Blocking.

    `blobs` must not include the archive, so that blobs which were moved before are not read again. `bounds` has the
    limits by session. `usual` applies to the other sessions.
    """
    going = {session: _choose(log, blobs, session, bounds.get(session, usual), now) for session in log.heads()}
    if not any(output.addresses for outputs in going.values() for output in outputs):
        return DueOutputs((), {})
    needed = _find_needed(
        log,
        blobs,
        {
            session: {seq for output in outputs for seq in (output.run, *output.deliveries)}
            for session, outputs in going.items()
        },
    )
    taken: dict[str, None] = {}
    sessions: dict[str, tuple[int, int]] = {}
    left = most_bytes
    for session, output in sorted(
        ((session, output) for session, outputs in going.items() for output in outputs),
        key=lambda one: one[1].finished_at,
    ):
        free = [address for address in output.addresses if address not in needed and address not in taken]
        size = sum(blobs.size(address) or 0 for address in free)
        if size > left and taken:
            break
        if free:
            left -= size
            taken.update(dict.fromkeys(free))
            runs, total = sessions.get(session, (0, 0))
            sessions[session] = (runs + 1, total + size)
    return DueOutputs(tuple(taken), sessions)


def _choose(log: LogReader, blobs: Blobs, session: str, retention: Retention, now: int) -> list[RunOutput]:
    """Choose one session's runs that exceed a limit. A blob that several runs share counts for the newest."""
    naming = _Naming(blobs)
    outputs: list[RunOutput] = []
    for record in log.read(session, kinds=("run_finished", "delivery_received"), newest_first=True):
        if record.kind == "delivery_received":
            _add_delivered(outputs, record, naming, blobs)
            continue
        outcome = _read_outcome(record)
        if outcome is None:
            continue
        sizes = {address: size for address in naming.take(record) if (size := blobs.size(address)) is not None}
        outputs.append(
            # `run` is the seq and not the run's number, because a run with retries has several ends and outputs.
            RunOutput(
                run=record.seq,
                finished_at=record.at,
                outcome=outcome,
                addresses=tuple(sizes),
                size_bytes=sum(sizes.values()),
            )
        )
    return choose_outputs(outputs, retention, now)


def _add_delivered(outputs: list[RunOutput], record: Record, naming: _Naming, blobs: Blobs) -> None:
    """Count the payload of a delivery with the run that ended next. It stays if no run has ended since."""
    sizes = {address: size for address in naming.take(record) if (size := blobs.size(address)) is not None}
    if outputs and sizes:
        last = outputs[-1]
        outputs[-1] = msgspec.structs.replace(
            last,
            addresses=(*last.addresses, *sizes),
            size_bytes=last.size_bytes + sum(sizes.values()),
            deliveries=(*last.deliveries, record.seq),
        )


def _read_outcome(record: Record) -> Outcome | None:
    """Read the outcome of a run. None if the payload was erased or archived, or this release does not know it.

    Such a record names no blobs that could be moved.
    """
    if record.payload is None:
        return None
    try:
        return msgspec.json.decode(record.payload, type=_Ended).outcome
    except msgspec.DecodeError:
        return None


def _find_needed(log: LogReader, blobs: Blobs, going: Mapping[str, set[int]]) -> frozenset[str]:
    """Return the blobs that are named by records which stay, in all sessions."""
    references = References(blobs)
    position, records = log.read_after(0, _PAGE, NAMING, imported=True)
    while records:
        for record in records:
            if record.seq not in going.get(record.session, ()):
                references.add(record)
        position, records = log.read_after(position, _PAGE, NAMING, imported=True)
    return frozenset(references)
