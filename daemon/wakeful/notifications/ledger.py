"""The ledger of one notifier: how far it has read the log, the notices it still has to send, and the results so far.

The values and rules are pure. `delivery_loop.py` acts by them, and `LedgerFiles` keeps ledgers on disk. A record that
is news becomes a waiting notice. The notice is saved in the same file as the position, so that a crash loses nothing.
Each trouble is reported once. If the same failure repeats, or if a session downstream of a failed session fails, that
is only counted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from wakeful.core.spec.notifier import NotifyEvent
from wakeful.notifications.notices import Notice
from wakeful.system.private_files import make_private, replace_private
from wakeful.text.display import count

SECOND = 1_000_000
# Seconds that notices wait for further notices, so that they can be joined to one message.
GATHER_SECONDS = 1.0
# The most messages in a minute that are sent one by one. Further notices are joined to one message.
BURST = 5
BURST_SECONDS = 60.0
# After this many seconds, waiting notices are no longer urgent, and are sent as one message.
LATE_SECONDS = 15.0
# The pauses between attempts, about 16 hours in all.
BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
MOST_ATTEMPTS = len(BACKOFF_SECONDS) + 1
# The shortest time between two messages about a session's budget. A budget of an hour, spent every hour, is reported
# four times a day.
BUDGET_SECONDS = 6 * 3600.0
MOST_WAITING = 1000
MOST_KEPT = 20
FOLDER = "notify"


class Trouble(Struct, frozen=True, kw_only=True):
    """A reported trouble that is not over. `below`: the downstream sessions that failed as well."""

    seq: int
    at: int
    times: int = 1
    below: tuple[str, ...] = ()


class Delivery(Struct, frozen=True, kw_only=True):
    """A message that is being sent. Its id is the same for every attempt. `next_at` is the time of the next attempt."""

    id: str
    notices: tuple[Notice, ...]
    made_at: int
    next_at: int
    attempts: int = 0
    problem: str | None = None
    missed: int = 0


class Ended(Struct, frozen=True, kw_only=True):
    """The result of a message: delivered, or given up because of `problem`."""

    id: str
    title: str
    at: int
    attempts: int
    problem: str | None = None


class Ledger(Struct, frozen=True, kw_only=True):
    """The state of one notifier. Every record up to `position` was sent, is waiting, or is not news."""

    position: int
    # The digest of the notifier's channel. When the channel changes, waiting messages are tried again at once.
    channel: str = ""
    troubles: dict[str, dict[NotifyEvent, Trouble]] = {}
    budgets_told: dict[str, int] = {}
    # The sessions that sleep until a person acts, for a reason that is not recorded, such as a missing secret. The
    # values are the reasons. None before the first check.
    held: dict[str, str] | None = None
    waiting: tuple[Notice, ...] = ()
    waiting_since: int = 0
    # The notices that were dropped because too many waited, or because the notifier was disabled.
    missed: int = 0
    delivery: Delivery | None = None
    # The times of its latest messages, for the limit of `BURST`.
    sent_at: tuple[int, ...] = ()
    ended: tuple[Ended, ...] = field(default=())
    delivered: int = 0
    given_up: int = 0
    # The reason why nothing is sent any more. None while the notifier is enabled.
    disabled: str | None = None
    # True after the notifier was removed from wakeful.yaml. If it is added again, it begins with the records after its
    # return.
    is_idle: bool = False


# -- notices --------------------------------------------------------------------------------------


def take_news(ledger: Ledger, notice: Notice, upstreams: Iterable[str]) -> Ledger:
    """Take a failure, a question, a hold or a spent budget. `upstreams` are the ids of the sessions upstream of the
    notice's session."""
    match notice.event:
        case "asks":
            return _add(ledger, notice)
        case "budget":
            told = ledger.budgets_told.get(notice.session, 0)
            if 0 <= notice.at - told < BUDGET_SECONDS * SECOND:
                return ledger
            return _add(replace(ledger, budgets_told={**ledger.budgets_told, notice.session: notice.at}), notice)
    known = ledger.troubles.get(notice.session, {})
    if (before := known.get(notice.event)) is not None:
        again = replace(before, times=before.times + 1)
        waiting = tuple(
            replace(one, times=one.times + 1, words=notice.words) if _is_same(one, notice) else one
            for one in ledger.waiting
        )
        return replace(_set_trouble(ledger, notice.session, notice.event, again), waiting=waiting)
    if notice.event == "failed" and (root := _find_root(ledger, upstreams)) is not None:
        above = ledger.troubles[root]["failed"]
        below = tuple(sorted({*above.below, notice.name}))
        return _set_trouble(ledger, root, "failed", replace(above, below=below))
    trouble = Trouble(seq=notice.seq, at=notice.at)
    return _add(_set_trouble(ledger, notice.session, notice.event, trouble), notice)


def take_ending(ledger: Ledger, session: str, recovered: Notice | None) -> Ledger:
    """Take the end of a trouble. If the trouble was reported, `recovered` is sent. Nothing is sent if it is None."""
    troubles = ledger.troubles.get(session)
    if troubles is None:
        return ledger
    ledger = replace(ledger, troubles={key: one for key, one in ledger.troubles.items() if key != session})
    if recovered is None:
        return ledger
    failed = troubles.get("failed")
    if failed is not None and failed.times > 1:
        recovered = replace(recovered, words=f"{recovered.words}, after {count(failed.times, 'failed run')}")
    if failed is not None and failed.below:
        recovered = replace(recovered, words=f"{recovered.words}; failed below it: {', '.join(failed.below[:10])}")
    return _add(ledger, recovered)


def take_holds(ledger: Ledger, held: dict[str, str], looked: Container[str] | None, told: Iterable[Notice]) -> Ledger:
    """Take the sessions that are held now. `looked` are the sessions that were checked, None for all. `told` are the
    notices about the held sessions.

    A new notifier does not report the sessions that are already held, because they are old news.
    """
    before = ledger.held
    if before is None:
        return ledger if looked is not None else replace(ledger, held=held)
    kept = {session: words for session, words in before.items() if looked is not None and session not in looked}
    ledger = replace(ledger, held=kept | held)
    for notice in told:
        if notice.session not in before:
            ledger = _add(ledger, notice)
    return ledger


def _is_same(one: Notice, other: Notice) -> bool:
    return (one.session, one.event) == (other.session, other.event)


def _find_root(ledger: Ledger, upstreams: Iterable[str]) -> str | None:
    """Find an upstream whose failure was reported. That failure is the cause of this failure."""
    return next((one for one in upstreams if "failed" in ledger.troubles.get(one, {})), None)


def _set_trouble(ledger: Ledger, session: str, event: NotifyEvent, trouble: Trouble) -> Ledger:
    own = {**ledger.troubles.get(session, {}), event: trouble}
    return replace(ledger, troubles={**ledger.troubles, session: own})


def _add(ledger: Ledger, notice: Notice) -> Ledger:
    if ledger.disabled is not None or len(ledger.waiting) >= MOST_WAITING:
        return replace(ledger, missed=ledger.missed + 1)
    since = ledger.waiting_since if ledger.waiting else notice.at
    return replace(ledger, waiting=(*ledger.waiting, notice), waiting_since=since)


# -- deliveries -----------------------------------------------------------------------------------


def find_delay(ledger: Ledger, digest_seconds: float | None, now: int) -> float | None:
    """Compute the seconds until a message is due: 0 if it is due now, None if nothing waits.

    The result is never longer than the interval itself. Otherwise a clock that was set back would delay messages for
    hours.
    """
    if ledger.disabled is not None:
        return None
    if ledger.delivery is not None:
        left = (ledger.delivery.next_at - now) / SECOND
        return max(0.0, min(left, BACKOFF_SECONDS[-1] * 1.2))
    if not ledger.waiting:
        return None
    interval = digest_seconds or GATHER_SECONDS
    delay = min((ledger.waiting_since - now) / SECOND + interval, interval)
    recent = list_recent(ledger, now)
    if digest_seconds is None and len(recent) >= BURST:
        delay = max(delay, min((recent[-BURST] - now) / SECOND + BURST_SECONDS, BURST_SECONDS))
    return max(0.0, delay)


def list_recent(ledger: Ledger, now: int) -> tuple[int, ...]:
    return tuple(at for at in ledger.sent_at if 0 <= now - at < BURST_SECONDS * SECOND)


def make_delivery(ledger: Ledger, digest_seconds: float | None, now: int, delivery_id: str) -> Ledger:
    """Make a delivery from the waiting notices: from one notice, or from all if they are many, late, or a digest."""
    recent = list_recent(ledger, now)
    is_flood = len(ledger.waiting) > BURST or len(ledger.waiting) + len(recent) > BURST
    # The notices had to wait because of the burst limit, or because a server was down.
    is_late = now - ledger.waiting_since > LATE_SECONDS * SECOND
    together = len(ledger.waiting) if digest_seconds is not None or is_flood or is_late else 1
    taken, left = ledger.waiting[:together], ledger.waiting[together:]
    missed = ledger.missed if not left else 0
    return replace(
        ledger,
        waiting=left,
        waiting_since=left[0].at if left else 0,
        missed=0 if not left else ledger.missed,
        delivery=Delivery(id=delivery_id, notices=taken, made_at=now, next_at=now, missed=missed),
        sent_at=(*recent, now)[-BURST:],
    )


# -- results --------------------------------------------------------------------------------------


def settle_delivered(ledger: Ledger, title: str, now: int) -> Ledger:
    sent = _take_sent(ledger)
    ended = Ended(id=sent.id, title=title, at=now, attempts=sent.attempts + 1)
    return replace(
        ledger, delivery=None, delivered=ledger.delivered + 1, ended=(*ledger.ended, ended)[-MOST_KEPT:], disabled=None
    )


def settle_failed(ledger: Ledger, title: str, problem: str, now: int, retry_after: float | None = None) -> Ledger:
    """Try again later, or give up after the last attempt."""
    sent = _take_sent(ledger)
    attempts = sent.attempts + 1
    if attempts >= MOST_ATTEMPTS:
        return _give_up(ledger, title, problem, now)
    seconds = max(BACKOFF_SECONDS[attempts - 1] * (1 + _find_jitter(sent.id, attempts)), retry_after or 0.0)
    next_at = now + round(min(seconds, BACKOFF_SECONDS[-1] * 1.1) * SECOND)
    return replace(ledger, delivery=replace(sent, attempts=attempts, problem=problem, next_at=next_at))


def settle_gone(ledger: Ledger, title: str, problem: str, now: int) -> Ledger:
    """Disable the notifier, because the receiver wants no more messages. Nothing is sent until a person changes the
    address or tests it."""
    return replace(_give_up(ledger, title, problem, now), disabled=problem, waiting=())


def _give_up(ledger: Ledger, title: str, problem: str, now: int) -> Ledger:
    sent = _take_sent(ledger)
    ended = Ended(id=sent.id, title=title, at=now, attempts=sent.attempts + 1, problem=problem)
    return replace(ledger, delivery=None, given_up=ledger.given_up + 1, ended=(*ledger.ended, ended)[-MOST_KEPT:])


def _take_sent(ledger: Ledger) -> Delivery:
    assert ledger.delivery is not None, "only a message that was sent is settled"
    return ledger.delivery


def _find_jitter(delivery_id: str, attempts: int) -> float:
    """Compute a jitter of up to a tenth, so that many notifiers of one server do not retry at the same moment."""
    digest = hashlib.blake2b(f"{delivery_id} {attempts}".encode(), digest_size=2).digest()
    return int.from_bytes(digest) / 65535 / 10


# -- settings and health --------------------------------------------------------------------------


def adapt(ledger: Ledger, channel: str) -> Ledger:
    """Adapt a ledger to the present settings of its notifier."""
    if ledger.channel == channel:
        return ledger
    # A person changed the address, so a waiting message is tried at once.
    delivery = ledger.delivery
    return replace(
        ledger,
        channel=channel,
        disabled=None,
        delivery=replace(delivery, next_at=0) if delivery is not None else None,
    )


def is_troubled(ledger: Ledger) -> bool:
    """Should a person look at this notifier? True if it is disabled, gave up its last message, or fails repeatedly."""
    last = ledger.ended[-1] if ledger.ended else None
    is_failing = ledger.delivery is not None and ledger.delivery.attempts >= 3
    return ledger.disabled is not None or is_failing or (last is not None and last.problem is not None)


class LedgerFiles:
    """The ledgers on disk: a file for each notifier in the folder `notify`, replaced atomically.

    Blocking: called off the loop.
    """

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    def read(self, name: str) -> tuple[Ledger | None, str | None]:
        """Read a ledger. The first value is None if there is no usable ledger. The second value is a message if the
        file is unusable.

        An unusable file is renamed, so that the next ledger does not overwrite it.
        """
        path = self._place(name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Ledger), None
        except FileNotFoundError:
            return None, None
        except (msgspec.DecodeError, OSError) as error:
            aside = path.with_suffix(".broken")
            words = (
                f"{path} cannot be read ({error}); notifier {name} starts again, and the file is kept as {aside.name}"
            )
            os.replace(path, aside)
            return None, words

    def write(self, name: str, ledger: Ledger) -> None:
        make_private(self.folder)
        replace_private(self._place(name), msgspec.json.encode(ledger) + b"\n")

    def _place(self, name: str) -> Path:
        return self.folder / f"{name}.json"
