"""The limits of sizes and counts. Each limit has a warning level and a hard level, which only this module defines.

`limits` in wakeful.yaml overrides the defaults, `doctor` shows them and the sessions near a limit, docs/limits.md
explains them. A warning changes nothing. Beyond a hard level a call is refused, or output is cut; earlier records stay.
Pure values.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

KIB, MIB = 2**10, 2**20

LimitName = Literal[
    "payload",
    "message",
    "note",
    "fact",
    "facts",
    "conversation",
    "output",
    "records",
    "mailbox",
    "deliveries",
    "tokens",
    "kept_file",
    "kept_run",
    "kept_files",
    "processes",
]


class Levels(Struct, frozen=True):
    """The two levels of a limit. `warn` is never above `hard`; the code that builds the value has checked that."""

    warn: int
    hard: int


class Limits(Struct, frozen=True, kw_only=True):
    """All limits with their defaults: numbers for those in COUNTED, bytes for the others."""

    payload: Levels = Levels(256 * KIB, MIB)
    message: Levels = Levels(64 * KIB, 256 * KIB)
    note: Levels = Levels(16 * KIB, 256 * KIB)
    fact: Levels = Levels(16 * KIB, 256 * KIB)
    facts: Levels = Levels(1_000, 10_000)
    conversation: Levels = Levels(4 * MIB, 64 * MIB)
    output: Levels = Levels(MIB, 2 * MIB)
    records: Levels = Levels(1_000_000, 10_000_000)
    mailbox: Levels = Levels(1_000, 10_000)
    # Unseen deliveries to one webhook.
    deliveries: Levels = Levels(1_000, 10_000)
    # The tokens that an agent's model reads to continue. The hard level is far above any model's window:
    # the conversation is compressed to the window first.
    tokens: Levels = Levels(100_000, 10_000_000)
    # Saved contents of files that runs read and wrote. They have only one level, and 0 saves nothing.
    kept_file: Levels = Levels(8 * MIB, 8 * MIB)
    kept_run: Levels = Levels(64 * MIB, 64 * MIB)
    kept_files: Levels = Levels(2_000, 2_000)
    # A run that forks without end must not take the machine's processes from the daemon and from people.
    processes: Levels = Levels(1_000, 1_000)

    def of(self, name: LimitName) -> Levels:
        levels: Levels = getattr(self, name)
        return levels

    def refuse_beyond(self, name: LimitName, amount: int) -> str | None:
        """Say why this amount is too much, for the caller. None if it is within the limit."""
        hard = self.of(name).hard
        return (
            f"{MEANINGS[name]}: at most {say_amount(name, hard)}, this would be {say_amount(name, amount)}"
            if amount > hard
            else None
        )


COUNTED: frozenset[LimitName] = frozenset(
    {"facts", "records", "mailbox", "deliveries", "tokens", "kept_files", "processes"}
)
# Limits that have only a hard level.
UNWARNED: frozenset[LimitName] = frozenset({"kept_file", "kept_run", "kept_files", "processes"})
# The meaning of each limit, in the order people read them.
MEANINGS: dict[LimitName, str] = {
    "payload": "payload of one record",
    "message": "one message",
    "note": "one hand-off",
    "fact": "one fact's value",
    "facts": "facts of a session",
    "conversation": "messages a session's conversation holds",
    "output": "output kept of one run",
    "records": "records of a session",
    "mailbox": "messages a session has not seen",
    "deliveries": "deliveries to a webhook that its session has not seen",
    "tokens": "tokens that its agent's model reads to continue",
    "kept_file": "one file whose content is kept",
    "kept_run": "new contents of files kept of one run",
    "kept_files": "files of one run whose contents are new and kept",
    "processes": "processes of one run at a time, unless its spec says otherwise",
}
# The advice that brings a session below a level again.
ADVICE: dict[LimitName, str] = {
    "note": "wakeful note NAME TEXT, with the rest in a file",
    "fact": "put long values in a file and remember its path",
    "facts": "forget facts that are not needed: wakeful forget NAME KEY",
    "conversation": "wakeful compress NAME",
    "records": "wakeful archive NAME",
    "mailbox": "see why it does not run: wakeful why NAME",
    "deliveries": "see why it does not run: wakeful why NAME",
    "tokens": "begin a new conversation: wakeful activate NAME --fresh",
}


def say_amount(name: LimitName, amount: int) -> str:
    """Format an amount: `1,000` for a count, `256 KiB` for bytes."""
    if name in COUNTED or amount < KIB:
        return f"{amount:,}" if name in COUNTED else f"{amount:,} bytes"
    size, unit = (amount / MIB, "MiB") if amount >= MIB else (amount / KIB, "KiB")
    return f"{size:.4g} {unit}" if round(size, 1) == round(size, 4) else f"{amount:,} bytes"


# Free bytes below which new runs wait. The write-ahead log keeps up to 64 MB between checkpoints, and a snapshot or a
# blob comes on top.
HOLD_BELOW_BYTES = 100_000_000
# On a small disk the mark is at most 1/20 of the disk, as large as the part that file systems reserve for the system.
LARGEST_SHARE = 20
# Waiting runs are released only well above the mark, so that the space that one run frees does not start the next run
# on a full disk.
RELEASE_FACTOR = 1.5


# Free bytes below which the operator is warned, unless the disk is small and mostly free.
FEW_BYTES = 1_000_000_000


def find_mark(total_bytes: int) -> int:
    """Return the number of free bytes below which new runs wait."""
    return min(HOLD_BELOW_BYTES, total_bytes // LARGEST_SHARE)


def judge_disk_space(free_bytes: int, total_bytes: int, *, is_short: bool) -> str | None:
    """Say why new runs wait for disk space. None if there is enough. `is_short`: they wait already."""
    mark = find_mark(total_bytes)
    wanted = int(mark * RELEASE_FACTOR) if is_short else mark
    if free_bytes >= wanted:
        return None
    return f"disk space: {_say(free_bytes)} free on the disk of the log, {_say(wanted)} needed"


def _say(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"
