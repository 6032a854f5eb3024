"""The blobs of old runs that may move to the archive: their output, the contents of files they read and wrote, and
the payloads of deliveries that came before they ended.

Retention asks, once a day and off the loop; bundles/retention_rules.py says which runs are beyond a bound. A blob goes
only where no run that stays, no workspace's base and no merge names it, in any session, those loaded from elsewhere
included. It reads, and moves nothing.
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

# At most so much is moved in one round: the rest is as old tomorrow.
MOST_BYTES = 1_000_000_000
_PAGE = 1_000


class DueOutputs(msgspec.Struct, frozen=True):
    """Blobs that may move, oldest first, and for each session the number of runs and bytes."""

    addresses: tuple[str, ...]
    sessions: dict[str, tuple[int, int]]


class _Ended(msgspec.Struct):
    outcome: Outcome


class _Naming(References):
    """References that tell, for each record, what it named first."""

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
    """`blobs` as they are at hand: what was moved before is not read again.

    `bounds` by session, `usual` for the others.
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
    """Choose one session's runs that are beyond a bound. A blob that several runs share counts for the newest."""
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
            # Its place in the log instead of its number: several ends of one run, after retries, are several outputs.
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
    """Count the payload of a delivery with the run that ended next. One that no run came after stays."""
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
    """None for what was erased or archived, or is no end of a run that this release knows:
    it names nothing we could move."""
    if record.payload is None:
        return None
    try:
        return msgspec.json.decode(record.payload, type=_Ended).outcome
    except msgspec.DecodeError:
        return None


def _find_needed(log: LogReader, blobs: Blobs, going: Mapping[str, set[int]]) -> frozenset[str]:
    """All that the records name which stay, of every session here."""
    references = References(blobs)
    position, records = log.read_after(0, _PAGE, NAMING, imported=True)
    while records:
        for record in records:
            if record.seq not in going.get(record.session, ()):
                references.add(record)
        position, records = log.read_after(position, _PAGE, NAMING, imported=True)
    return frozenset(references)
