"""The daemon's own messages: printed as lines, or sent to the journal of systemd, by their own thread.

`LogPrinter` takes lines from any caller and prints them. `Narrator` reads the new records of the log and prints the
lines that `views/narration` makes of them. For the journal, or with JSON, the same messages are sent as fields, with
their priority, session and run.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard

from wakeful.core.deciding.working_state import Core
from wakeful.core.record.events import RunFinished
from wakeful.core.record.state import Session
from wakeful.errors import WakefulError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.history.run_output import read_output, take_tail
from wakeful.service.reactor import Signal
from wakeful.system.blobs import Blobs
from wakeful.system.journal import INFO, NOTICE, WARNING, Journal, Priority
from wakeful.text.display import count, escape
from wakeful.views.narration import grade, narrate, suggest_edit, visible

if TYPE_CHECKING:
    from rich.console import Console


import logging

# The number of times that the same line is printed in a period.
PRINTED = 3
PERIOD_SECONDS = 60.0
# The most different lines that are remembered. Beyond that the oldest is forgotten.
_MOST_KNOWN = 64


class Repeats:
    """Counts repeated lines. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Line -> the start of its period, and how often the line came since.
        self._known: dict[str, tuple[float, int]] = {}

    def take(self, line: str) -> bool:
        """Count the line. Returns whether to print it."""
        began, times = self._known.get(line, (self._clock(), 0))
        self._known[line] = (began, times + 1)
        return times < PRINTED

    def end_periods(self, *, is_over: bool = False) -> list[str]:
        """Summarize the suppressed lines of the periods that are over.

        With `is_over`, summarize those of all periods.
        """
        now, told = self._clock(), []
        for line, (began, times) in list(self._known.items()):
            if is_over or now - began >= PERIOD_SECONDS or len(self._known) > _MOST_KNOWN:
                del self._known[line]
                if times > PRINTED:
                    told.append(f"{line} (the line above {times - PRINTED:,} more times)")
        return told


class RepeatsFilter(logging.Filter):
    """A filter for a log handler: lets only the first few equal messages pass.

    Two messages are equal if their first lines, errors and places in the code are equal.
    """

    def __init__(self, repeats: Repeats, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._repeats = repeats
        self._tell = tell

    def filter(self, record: logging.LogRecord) -> bool:
        for words in self._repeats.end_periods():
            self._tell(words)
        return self._repeats.take(_describe(record))


def _describe(record: logging.LogRecord) -> str:
    first = record.getMessage().partition("\n")[0]
    if not record.exc_info or record.exc_info[0] is None:
        return first
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else ""
    return f"{first}: {record.exc_info[0].__name__}{place}"


NARRATED_AT_ONCE = 500
_NARRATED_BYTES = 1 << 20
# Seconds between prints, so that the start of a run does not wait for a terminal.
_NARRATING_SECONDS = 0.05
# The colour of a line, by the first of these words that it contains.
STYLES = (
    ("wakes", "bold cyan"),
    ("succeeded", "green"),
    ("failed", "bold red"),
    ("lost", "red"),
    ("sleeps", "yellow"),
    ("suspended", "dim"),
)

Style = Literal["text", "json"]
# Only a line about a record of the log has this field.
_RECORDED = "WAKEFUL_SEQ"
LEVELS = {2: "critical", 3: "error", 4: "warning", 5: "notice", 6: "info"}


class Line(NamedTuple):
    """One line: its text for a person, its message and fields for the journal and JSON.

    A passing line is overwritten by the next line.
    """

    text: str
    message: str
    priority: Priority = INFO
    fields: Mapping[str, str] = {}
    is_passing: bool = False


def _open_console() -> Console:
    # Imported here, because only a daemon at a terminal needs it.
    from rich.console import Console

    # Highlighting and markup are off, because a name may contain brackets.
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class LogPrinter:
    """Prints plain lines on standard output, in colour at a terminal, and sends entries to the journal.

    Its own thread prints, because a stopped terminal or a full pipe must not stop the loop. If too many lines wait,
    further lines are counted and dropped. Printing ends when the output is closed (a closed window, a pipe into
    `head`). Nothing is lost, because the log has everything.
    """

    MOST_WAITING = 10_000

    def __init__(
        self,
        *,
        is_terminal: bool,
        journal: Journal | None = None,
        style: Style = "text",
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`redact` removes the values of secrets from every line."""
        self._console = _open_console() if is_terminal else None
        self._journal = journal
        self._style = style
        self._redact = redact
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._dropped = 0
        self._repeats = Repeats(time.monotonic)
        # True if the previous line is a passing line, which the next one overwrites.
        self._is_over_another = False
        self._printing = Thread(target=self._print_lines, name="printer", daemon=True)
        self._printing.start()

    def say(
        self,
        words: str,
        *,
        name: str | None = None,
        at: int | None = None,
        priority: Priority = INFO,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Print one line with the local time of `at`, or of now.

        `fields` are added to the journal entry and to JSON, with the session's name.
        """
        moment = datetime.fromtimestamp(at / 1e6) if at is not None else datetime.now()
        message = (f"{visible(name)}: " if name else "") + visible(words, 500)
        about = {"WAKEFUL_SESSION": name, **(fields or {})} if name else fields or {}
        # A line about a record is printed each time, even if it repeats.
        if _RECORDED not in about:
            self._tell_repeats()
            if not self._repeats.take(message):
                return
        self._put(Line(f"{moment:%H:%M:%S} {message}", message, priority, about))

    def _tell_repeats(self, *, is_over: bool = False) -> None:
        for words in self._repeats.end_periods(is_over=is_over):
            self._put(Line(f"{datetime.now():%H:%M:%S} {words}", words, WARNING))

    def print(self, line: str) -> None:
        # Escaped as well, because the name of a folder may contain any character.
        shown = escape(line)
        self._put(Line(shown, shown, NOTICE))

    def quote(self, lines: list[str], *, name: str, run: int) -> None:
        """Print the lines of a run's output, behind a bar that distinguishes them from the daemon's own lines."""
        for line in lines:
            shown = f"│ {visible(line, 500)}"
            self._put(Line(f"  {shown}", shown, fields={"WAKEFUL_SESSION": name, "WAKEFUL_RUN": str(run)}))

    def show(self, line: str) -> None:
        """Show progress at a terminal. The next line overwrites it."""
        if self._console is not None and self._style == "text" and self._journal is None:
            self._put(Line(line, line, is_passing=True))

    def _put(self, line: Line) -> None:
        if self._lines.qsize() >= self.MOST_WAITING:
            self._dropped += 1
            return
        if self._dropped:
            words = f"({count(self._dropped, 'line')} not printed: the output was not read; wakeful log has all)"
            self._lines.put(Line(words, words, WARNING))
            self._dropped = 0
        self._lines.put(line._replace(text=self._redact(line.text), message=self._redact(line.message)))

    def close(self, seconds: float = 1.0) -> None:
        """Print the lines that are left, if the output is read."""
        self._tell_repeats(is_over=True)
        self._lines.put(None)
        self._printing.join(seconds)

    def _print_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._print(line)
            except OSError:
                return

    def _print(self, line: Line) -> None:
        if self._style == "json":
            print(as_json(line), flush=True)
        elif self._journal is not None and self._journal.send(as_entry(line)):
            return
        elif self._console is None:
            print(line.text, flush=True)
        elif line.is_passing:
            self._console.print(
                line.text[: self._console.width - 1].ljust(self._console.width - 1), style="dim", end="\r"
            )
        else:
            padded = line.text.ljust(self._console.width - 1) if self._is_over_another else line.text
            self._console.print(padded, style=next((style for word, style in STYLES if word in line.text), None))
        self._is_over_another = line.is_passing


def as_entry(line: Line) -> dict[str, str]:
    """Make the fields of a journal entry. The journal adds the time, the unit and the process."""
    return {"MESSAGE": line.message, "PRIORITY": str(line.priority), "SYSLOG_IDENTIFIER": "wakeful", **line.fields}


def as_json(line: Line) -> str:
    """Make one JSON object: the message, and the fields of the journal by shorter names."""
    about = {name.removeprefix("WAKEFUL_").lower(): value for name, value in line.fields.items()}
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"at": at, "level": LEVELS[line.priority], "message": line.message, **about}, ensure_ascii=False)


class Narrator:
    """Prints the records of the log, one by one, in order. Used on the loop."""

    def __init__(
        self, core: Core, log: LogReader, blobs: Blobs, printer: LogPrinter, state_folder: str, *, quotes_failures: bool
    ) -> None:
        """With `quotes_failures`, the end of a failed run's output is printed as well.

        `--once` uses it, because its state folder may disappear with its machine.
        """
        self._core = core
        self._log = log
        self._blobs = blobs
        self._printer = printer
        self._state_folder = state_folder
        self._quotes_failures = quotes_failures
        self._position = log.position()
        self._is_hinted = quotes_failures

    async def keep(self, recorded: Signal, is_at_rest: Callable[[], bool]) -> None:
        """Print after each record, until cancelled.

        When everything is at rest for the first time, suggest a next step.
        """
        with recorded.listening() as heard:
            while True:
                await asyncio.sleep(_NARRATING_SECONDS)
                heard.clear()
                self.narrate()
                if not self._is_hinted and is_at_rest():
                    self._is_hinted = True
                    what_next = suggest_edit(list(self._core.state)) or "wakeful list shows them"
                    self._printer.say(f"all sessions rest; {what_next}")
                await heard.wait()

    def narrate(self) -> None:
        """Print the records since the last call. Called on the loop, up to 500 records or 1 MiB at a time."""
        while True:
            self._position, records = self._log.read_after(self._position, NARRATED_AT_ONCE, most_bytes=_NARRATED_BYTES)
            if not records:
                return
            for record in records:
                session = self._core.state.sessions.get(record.session)
                # Skip an erased record, and a session that this daemon does not have.
                if record.payload is None or session is None:
                    continue
                event = decode(record.kind, record.payload)
                line = narrate(event)
                if line is not None:
                    self._printer.say(
                        line, name=session.name, at=record.at, priority=grade(event), fields=_label(record)
                    )
                if self._quotes_failures and is_last_failure(event):
                    self.quote_output(session, event.run)

    def quote_output(self, session: Session, run: int) -> None:
        """Print the end of a failed run's output. Called on the loop, because with `--once` no caller waits for an
        answer.
        """
        try:
            found = read_output(self._log, self._blobs, session, run)
        except WakefulError as gone:
            self._printer.say(str(gone), name=session.name)
            return
        tail = take_tail(found)
        more = ""
        if not tail.is_whole:
            command = f"wakeful output {session.name} --state {self._state_folder}"
            more = f", the end of {count(found.total_bytes, 'byte')}; `{command}` has more"
        self._printer.say(
            f"run {run} printed{more}:" if tail.lines else f"run {run} printed nothing", name=session.name
        )
        self._printer.quote(tail.lines, name=session.name, run=run)


def is_last_failure(event: object) -> TypeGuard[RunFinished]:
    """Did a run fail, and is it not tried again?"""
    return isinstance(event, RunFinished) and event.outcome == "failed" and event.is_final


def _label(record: Record) -> dict[str, str]:
    """Return the place of a record in the log, as fields by which the journal can be searched."""
    about = {
        "WAKEFUL_SESSION_ID": record.session,
        "WAKEFUL_SEQ": str(record.seq),
        "WAKEFUL_EVENT": record.kind,
        "WAKEFUL_AUTHOR": record.author,
    }
    return about if record.run is None else about | {"WAKEFUL_RUN": str(record.run)}
