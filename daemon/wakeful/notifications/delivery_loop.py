"""The notification service: reads the log as it grows, keeps a ledger for each notifier, and sends due messages.

It is one coroutine of the daemon, idle until a record is written or a message is due. Without notifiers it does not
listen for records at all. A notice is saved in the ledger before anything is sent. The result of each message is
recorded in the log of the session that the message is about. After a crash in between, the message is sent again with
the same id, so a message is delivered at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from wakeful.core.deciding.holds import find_repair_reason
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.events import RunStarted
from wakeful.core.record.observations import NotificationEnded
from wakeful.core.record.state import Session
from wakeful.core.spec.notifier import Notifier, NotifyEvent
from wakeful.errors import CallerError
from wakeful.eventlog.codec import KINDS, decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.notifications import ledger as rules
from wakeful.notifications.ledger import Ledger, LedgerFiles
from wakeful.notifications.messages import Delivered, Gone, Message, Refused, Sender, Sent, make_message, make_test
from wakeful.notifications.notices import NOTED_KINDS, Ending, News, Notice, find_news, say_readers, shorten

READ_AT_ONCE = 200
_READ_BYTES = 1 << 20
# Seconds to wait for further records, so that they are read together.
_GATHERING_SECONDS = 0.1
# The most records by which the saved position may lag if there is no news. This bounds the records that are read again
# at the next start.
_POSITIONS_UNSAVED = 5000
# Seconds that a notifier pauses if its ledger cannot be written, such as on a full disk.
_UNWRITTEN_SECONDS = 30.0
_STARTED = KINDS[RunStarted]


class Listening(Protocol):
    """The source of the signal that there are new records: every event in `listeners` is set after each record."""

    listeners: set[asyncio.Event]


class ActiveNotifier:
    """One active notifier: its settings, its ledger, and the attempt that is under way."""

    def __init__(self, notifier: Notifier, ledger: Ledger) -> None:
        self.notifier = notifier
        self.ledger = ledger
        self.saved: Ledger | None = None
        self.attempt: asyncio.Task[None] | None = None
        self.writing = asyncio.Lock()


class Notifications:
    """The notification service. `observe` records the results of messages, `say` prints a message for the operator, and
    `redact` removes secrets from a text."""

    def __init__(
        self,
        core: Core,
        log: LogReader,
        files: LedgerFiles,
        sender: Sender,
        *,
        host: str,
        observe: Callable[[NotificationEnded], None],
        say: Callable[[str], None],
        redact: Callable[[Any], Any],
        read_wall: Callable[[], int],
    ) -> None:
        self._core = core
        self._log = log
        self._files = files
        self._sender = sender
        self._host = host
        self._observe = observe
        self._say = say
        self._redact = redact
        # Returns the URL of the dashboard for links, or None while the TCP port is closed. Set when the daemon starts.
        self.find_dashboard_url: Callable[[], str | None] = lambda: None
        self._read_wall = read_wall
        self._posts: dict[str, ActiveNotifier] = {}
        self._wanted: dict[str, Notifier] = {}
        # For each notifier: the end of the log when the notifier was added, and True if it continues from an older
        # ledger.
        self._begins: dict[str, tuple[int, bool]] = {}
        self._has_settings = False
        # True after specs, agents or settings were read. After that, any session may be held, or no longer held.
        self._may_be_held = False
        self._heard = asyncio.Event()

    # -- settings -----------------------------------------------------------------------------

    def take_settings(self, notifiers: Sequence[Notifier]) -> None:
        """Take the notifiers of wakeful.yaml. A new notifier begins with the next record, so that it does not report
        every failure of the past."""
        wanted = {one.name: one for one in notifiers}
        for name in wanted.keys() - self._wanted.keys():
            # The position is taken now, before anything else is decided. The notifiers in the first settings already
            # existed in the previous daemon, so they continue where that daemon ended.
            self._begins[name] = self._log.position(), not self._has_settings
        self._has_settings = True
        self._wanted = wanted
        self._heard.set()

    def note_reading(self) -> None:
        """Note that specs, agents or settings were read."""
        self._may_be_held = True
        self._heard.set()

    async def open_notifiers(self) -> None:
        """Adapt the active notifiers to the settings. A new ledger is on disk when this returns."""
        for name in self._posts.keys() - self._wanted.keys():
            gone = self._posts.pop(name)
            await self._end_attempt(gone)
            gone.ledger = replace(gone.ledger, is_idle=True)
            await self._save(gone)
        for name, notifier in self._wanted.items():
            channel = digest_channel(notifier)
            post = self._posts.get(name)
            if post is None:
                post = self._posts[name] = ActiveNotifier(notifier, await self._open_ledger(name))
            elif post.notifier.channel != notifier.channel:
                await self._end_attempt(post)
            post.notifier = notifier
            post.ledger = rules.adapt(post.ledger, channel)
        if any(post.ledger.held is None for post in self._posts.values()):
            # A new notifier notes the sessions that are already held, so that it does not report them.
            self._may_be_held = True
            self._look_at_holds()
        for post in self._posts.values():
            await self._save_news(post)

    async def _open_ledger(self, name: str) -> Ledger:
        begins, goes_on = self._begins[name]
        found, problem = await asyncio.to_thread(self._files.read, name)
        if problem is not None:
            self._say(problem)
        if found is None:
            return Ledger(position=begins)
        # A position beyond the end of the log means that the log was replaced by an older copy.
        is_kept = goes_on and not found.is_idle and found.position <= begins
        return found if is_kept else replace(found, position=begins, is_idle=False)

    async def _end_attempt(self, post: ActiveNotifier) -> None:
        if post.attempt is not None:
            post.attempt.cancel()
            await asyncio.wait((post.attempt,))
            post.attempt = None

    # -- main loop ----------------------------------------------------------------------------

    async def keep(self, recorded: Listening) -> None:
        """Read new records and send due messages, until cancelled."""
        self._heard.set()
        try:
            while True:
                if self._wanted:
                    recorded.listeners.add(self._heard)
                else:
                    recorded.listeners.discard(self._heard)
                await self._wait()
                await asyncio.sleep(_GATHERING_SECONDS)
                self._heard.clear()
                await self._turn()
        finally:
            recorded.listeners.discard(self._heard)
            for post in self._posts.values():
                await self._end_attempt(post)

    async def _turn(self) -> None:
        """Do one round: settings, records, messages."""
        await self.open_notifiers()
        await self._read_news()
        self._look_at_holds()
        for post in self._posts.values():
            await self._save_news(post)
        for post in self._posts.values():
            self._begin_attempt(post)

    async def _wait(self) -> None:
        delays = [
            delay
            for post in self._posts.values()
            if post.attempt is None and (delay := self._find_delay(post)) is not None
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(delays, default=None)):
                await self._heard.wait()

    def _find_delay(self, post: ActiveNotifier) -> float | None:
        return rules.find_delay(post.ledger, post.notifier.digest_seconds, self._read_wall())

    async def close(self) -> None:
        """Save the positions, so that the next daemon does not read the same records again."""
        for post in self._posts.values():
            await self._end_attempt(post)
            await self._save(post)

    async def flush(self, seconds: float) -> None:
        """Send waiting messages now, for at most `seconds`. Used with `daemon --once`: no later daemon might do it."""
        await self._turn()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while due := [post for post in self._posts.values() if self._is_due_at_last(post)]:
                    for post in due:
                        self._begin_attempt(post, is_last=True)
                    await asyncio.wait([post.attempt for post in due if post.attempt is not None])

    def _is_due_at_last(self, post: ActiveNotifier) -> bool:
        """Is there a message without any attempt so far, or an attempt under way?"""
        ledger = post.ledger
        if ledger.disabled is not None:
            return False
        return post.attempt is not None or bool(
            ledger.waiting if ledger.delivery is None else ledger.delivery.attempts == 0
        )

    # -- reading ------------------------------------------------------------------------------

    async def _read_news(self) -> None:
        """Read the records after the position of each active notifier. Their positions are equal, except after a
        start."""
        for position in sorted({post.ledger.position for post in self._posts.values()}):
            await self._read_on(position, [post for post in self._posts.values() if post.ledger.position == position])

    async def _read_on(self, position: int, posts: list[ActiveNotifier]) -> None:
        while True:
            position, records = await asyncio.to_thread(
                self._log.read_after, position, READ_AT_ONCE, NOTED_KINDS, most_bytes=_READ_BYTES
            )
            told = await self._select(records, posts)
            # No await from here on, so that the notices and the position are saved together.
            for record, session, news in told:
                self._take(record, session, news, posts)
            for post in posts:
                post.ledger = replace(post.ledger, position=position)
            if not records:
                return

    async def _select(
        self, records: list[Record], posts: list[ActiveNotifier]
    ) -> list[tuple[Record, Session, News | Ending]]:
        """Select the records that are news. Runs that only answer a question are left out, because the person who asked
        gets the answer."""
        troubled = {session for post in posts for session in post.ledger.troubles}
        told: list[tuple[Record, Session, News | Ending]] = []
        for record in records:
            session = self._core.state.sessions.get(record.session)
            if record.payload is None or session is None:
                continue
            match find_news(decode(record.kind, record.payload)):
                case None:
                    continue
                case Ending(run=run) as news:
                    if record.session not in troubled or (run is not None and await self._is_aside(record, run)):
                        continue
                case (event, _, run) as news:
                    if event == "failed" and await self._is_aside(record, run):
                        continue
                    troubled.add(record.session)
            told.append((record, session, news))
        return told

    def _take(self, record: Record, session: Session, news: News | Ending, posts: list[ActiveNotifier]) -> None:
        if isinstance(news, Ending):
            self._take_ending(record, session, news, posts)
        else:
            meant = [post for post in posts if _is_meant(session, post.notifier, self._posts)]
            self._take_news(record, session, *news, meant)

    def _take_ending(self, record: Record, session: Session, ending: Ending, posts: Iterable[ActiveNotifier]) -> None:
        for post in posts:
            is_told = ending.is_success and "recovered" in post.notifier.events
            words = f"run {ending.run} succeeded"
            notice = self._make_notice(record, session, "recovered", words, ending.run) if is_told else None
            post.ledger = rules.take_ending(post.ledger, session.id, notice)

    def _take_news(
        self,
        record: Record,
        session: Session,
        event: NotifyEvent,
        words: str,
        run: int | None,
        posts: Iterable[ActiveNotifier],
    ) -> None:
        graph, ids = self._core.graph, self._core.state.ids
        upstreams = sorted(ids[name] for name in graph.all_upstreams(session.name) if name in ids)
        if event == "failed":
            words += say_readers(len(graph.all_readers(session.name)))
        notice = self._make_notice(record, session, event, words, run)
        for post in posts:
            if event in post.notifier.events:
                post.ledger = rules.take_news(post.ledger, notice, upstreams)

    def _make_notice(self, record: Record, session: Session, event: NotifyEvent, words: str, run: int | None) -> Notice:
        return Notice(
            event=event,
            session=session.id,
            name=session.name,
            seq=record.seq,
            at=record.at,
            words=shorten(self._redact(words)),
            run=run,
        )

    def _look_at_holds(self) -> None:
        """Find the sessions that wait for a person for a reason that is not recorded. They are compared with the
        sessions that were held before, so a crash loses nothing. All sessions are checked after specs, agents or
        settings were read. Otherwise only the held sessions are checked."""
        core, is_all, self._may_be_held = self._core, self._may_be_held, False
        known = {session for post in self._posts.values() for session in post.ledger.held or ()}
        looked = list(core.state) if is_all else [core.state.get(one) for one in known if one in core.state.sessions]
        held = {one.id: words for one in looked if (words := find_repair_reason(core, one)) is not None}
        if not is_all and not known:
            return
        for post in self._posts.values():
            told = [
                self._make_hold_notice(core.state.get(session), words)
                for session, words in held.items()
                if session not in (post.ledger.held or ())
                and "sleeping" in post.notifier.events
                and _is_meant(core.state.get(session), post.notifier, self._posts)
            ]
            post.ledger = rules.take_holds(post.ledger, held, None if is_all else known, told)

    def _make_hold_notice(self, session: Session, words: str) -> Notice:
        return Notice(
            event="sleeping",
            session=session.id,
            name=session.name,
            seq=session.seq,
            at=self._read_wall(),
            words=shorten(self._redact(words)),
        )

    async def _is_aside(self, record: Record, run: int | None) -> bool:
        """Did this run only answer a question? If so, its outcome does not concern the session's own work."""
        found = await asyncio.to_thread(
            lambda: next(iter(self._log.read(record.session, kinds=(_STARTED,), run=run, limit=1)), None)
        )
        started = decode(found.kind, found.payload) if found is not None and found.payload is not None else None
        return isinstance(started, RunStarted) and started.is_aside

    # -- sending ------------------------------------------------------------------------------

    def _begin_attempt(self, post: ActiveNotifier, *, is_last: bool = False) -> None:
        if post.attempt is not None or post.ledger.disabled is not None:
            return
        delay = self._find_delay(post)
        if delay is None or (delay > 0 and not is_last):
            return
        post.attempt = asyncio.get_running_loop().create_task(self._attempt(post), name=f"notify {post.notifier.name}")
        post.attempt.add_done_callback(lambda _: self._end_of_attempt(post))

    def _end_of_attempt(self, post: ActiveNotifier) -> None:
        attempt, post.attempt = post.attempt, None
        self._heard.set()
        if attempt is not None and not attempt.cancelled() and (error := attempt.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"notifier {post.notifier.name} failed, and tries again", "exception": error}
            )

    async def _attempt(self, post: ActiveNotifier) -> None:
        try:
            await self._deliver(post)
        except OSError as error:
            # Only this process knows the result. After a restart, the message would be sent again.
            self._say(f"notifier {post.notifier.name}: its ledger cannot be written: {error.strerror or error}")
            await asyncio.sleep(_UNWRITTEN_SECONDS)

    async def _deliver(self, post: ActiveNotifier) -> None:
        now = self._read_wall()
        if post.ledger.delivery is None:
            post.ledger = rules.make_delivery(post.ledger, post.notifier.digest_seconds, now, make_id())
            # The id must be on disk before the message is sent.
            await self._save(post)
        delivery = post.ledger.delivery
        assert delivery is not None
        message = self._redact(make_message(delivery, post.notifier.name, self._host, self.find_dashboard_url()))
        sent = await self._send(post.notifier, message)
        self._settle(post, message, sent)
        await self._save(post)

    async def _send(self, notifier: Notifier, message: Message) -> Sent:
        sent = await self._sender.send(notifier.channel, message)
        return msgspec.structs.replace(sent, words=shorten(self._redact(sent.words)))

    def _settle(self, post: ActiveNotifier, message: Message, sent: Sent) -> None:
        now, name = self._read_wall(), post.notifier.name
        delivery = post.ledger.delivery
        assert delivery is not None
        match sent:
            case Delivered():
                post.ledger = rules.settle_delivered(post.ledger, message.title, now)
            case Gone(words=words):
                post.ledger = rules.settle_gone(post.ledger, message.title, words, now)
                self._say(
                    f"notifier {name} is disabled: {words}; correct wakeful.yaml, or try: wakeful notify test {name}"
                )
            case Refused(words=words, retry_after=retry_after):
                post.ledger = rules.settle_failed(post.ledger, message.title, words, now, retry_after)
                if post.ledger.delivery is None:
                    self._say(f"notifier {name} gave up '{message.title}': {words}")
                elif delivery.attempts == 0:
                    self._say(f"notifier {name}: {words}; it is tried again")
        if post.ledger.delivery is None:
            problem = None if isinstance(sent, Delivered) else sent.words
            for notice in delivery.notices:
                self._observe(
                    NotificationEnded(
                        session=notice.session,
                        notifier=name,
                        event=notice.event,
                        about=notice.seq,
                        delivery=delivery.id,
                        attempts=delivery.attempts + 1,
                        problem=problem,
                    )
                )

    async def test(self, name: str) -> Sent:
        """Send a test message, independent of all other messages. A success enables a notifier that was disabled."""
        notifier = self._wanted.get(name)
        if notifier is None:
            known = ", ".join(sorted(self._wanted)) or "none"
            raise CallerError(f"wakeful.yaml has no notifier {name!r}; there is {known}")
        message = self._redact(make_test(make_id(), name, self._host, self.find_dashboard_url(), self._read_wall()))
        sent = await self._send(notifier, message)
        post = self._posts.get(name)
        if isinstance(sent, Delivered) and post is not None and post.ledger.disabled is not None:
            post.ledger = replace(post.ledger, disabled=None)
            await self._save(post)
            self._heard.set()
        return sent

    async def _save_news(self, post: ActiveNotifier) -> None:
        """Save a ledger if more than its position changed. An older position only means that records are read again."""
        if post.saved is None or _has_news(post.saved, post.ledger):
            await self._save(post)

    async def _save(self, post: ActiveNotifier) -> None:
        async with post.writing:
            ledger = post.ledger
            if ledger != post.saved:
                writing = asyncio.ensure_future(asyncio.to_thread(self._files.write, post.notifier.name, ledger))
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # The thread goes on writing. Wait for it, so that the next write comes after it.
                    await writing
                    raise
                post.saved = ledger

    def list_ledgers(self) -> list[tuple[Notifier, Ledger | None]]:
        """List every notifier with its ledger. The ledger is None until it has been opened."""
        opened = self._posts
        return [(one, opened[name].ledger if name in opened else None) for name, one in self._wanted.items()]


def digest_channel(notifier: Notifier) -> str:
    return hashlib.blake2b(msgspec.json.encode(notifier.channel), digest_size=8).hexdigest()


def make_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


def _is_meant(session: Session, notifier: Notifier, known: Iterable[str]) -> bool:
    """Does the session use this notifier? Names that wakeful.yaml does not have are ignored. If no known name is left,
    every notifier is used, because an unreported failure would be worse."""
    names = session.spec.notify if session.spec is not None else None
    if names is None:
        return True
    if not names:
        return False
    there = set(names) & set(known)
    return notifier.name in there if there else True


def _has_news(saved: Ledger, ledger: Ledger) -> bool:
    if ledger.position - saved.position >= _POSITIONS_UNSAVED:
        return True
    return replace(ledger, position=0) != replace(saved, position=0)
