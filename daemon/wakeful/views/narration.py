"""Events in one readable line each: what the daemon prints while it runs and `follow` shows.

Names and paths come from outside, so control characters are shown, never sent to the terminal. Where the journal of
systemd listens, or JSON was asked for, the same words go out as fields, with their priority, session and run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Thread
from typing import Literal, NamedTuple

from rich.console import Console

from wakeful.core.agents.turns import name_actor
from wakeful.core.record import events as ev
from wakeful.core.record.observations import Traced
from wakeful.core.record.state import Session
from wakeful.core.record.todo import count_items
from wakeful.core.spec.session import FileBinding
from wakeful.system.journal import INFO, NOTICE, WARNING, Journal, Priority
from wakeful.text.display import count, escape
from wakeful.text.repeated_lines import Repeats

PATHS_SHOWN = 3
# A hint ends with the line of YAML that allows what was denied: it is of no use if that is cut.
HINT_SHOWN = 380
# The first word that a line holds gives it its colour.
STYLES = (
    ("wakes", "bold cyan"),
    ("succeeded", "green"),
    ("failed", "bold red"),
    ("lost", "red"),
    ("sleeps", "yellow"),
    ("suspended", "dim"),
)


def narrate(event: ev.Event) -> str | None:
    """The line for an event, or None for those that say nothing a person waits for."""
    return _tell_run(event) or _tell_session(event) or _tell_history(event)


def _tell_run(event: ev.Event) -> str | None:
    """Why it works, and what came of it."""
    match event:
        case ev.WakeRequested(causes=causes) | ev.WakeExtended(causes=causes):
            return "wakes: " + "; ".join(_cause(cause) for cause in causes)
        case ev.WakeWithdrawn(reason=reason):
            return f"wake withdrawn: {reason}"
        case ev.RunStarted(run=run, attempt=attempt, trace=trace):
            traced = {None: "", "declared": ", traced", "observed": ", traced, with nothing denied"}[trace]
            return f"run {run} started" + (f", attempt {attempt + 1}" if attempt else "") + traced
        case ev.RunStopRequested(run=run, why=why):
            return f"run {run}: {why} requested"
        case ev.RunReadopted(run=run):
            return f"run {run} goes on: it outlived the daemon that started it"
        case ev.OutputsLanded(run=run, kept=(first, *more)):
            rest = f" and {len(more)} more" if more else ""
            return (
                f"run {run}: {visible(first.path)}{rest} not put in place: {visible(first.words)}; kept in "
                f"{visible(first.kept or 'no place')}"
            )
        case ev.RunFinished():
            return _finished(event)
        case ev.TurnAnswered(answer=answer, purpose="work") if answer.text:
            return f"{visible(name_actor(event.run, event.sub))} says: {visible(answer.text)}"
        case ev.TurnFailed(words=words):
            return f"{visible(name_actor(event.run, event.sub))}: no answer from its model: {visible(words)}"
        case ev.SubagentHalted(words=words):
            return f"{visible(name_actor(event.run, event.sub))} cannot go on: {visible(words)}"
        case ev.ToolCalled(call=call):
            return (
                f"{visible(name_actor(event.run, event.sub))} calls {visible(call.name)} "
                f"{visible(_say_arguments(call.arguments))}"
            ).rstrip()
        case ev.QuestionAsked(run=run, text=text):
            return f"run {run} asks: {visible(text)}"
        case ev.SlotSkipped(binding=binding, slot=slot, reason=reason):
            return f"slot {slot} of {visible(binding)} skipped: {reason}"
        case _:
            return None


def _tell_session(event: ev.Event) -> str | None:
    """What became of it as a whole, and what it was told."""
    match event:
        case ev.SessionSuspended():
            return "suspended"
        case ev.SessionSlept(hold=hold):
            return f"sleeps: {visible(hold.words)}"
        case ev.SessionResumed(reason=reason):
            return f"resumed: {visible(reason)}"
        case ev.SessionBraked(words=words):
            return f"sleeps: {visible(words)}"
        case ev.SessionReleased():
            return "may go on: the brake is released"
        case ev.QuestionAnswered(is_unanswered=True):
            return "denied: nobody answered in time"
        case ev.QuestionAnswered(text=text):
            return f"answered: {visible(text, 60)}"
        case ev.SessionTerminated():
            return "terminated"
        case ev.SpecDeclared():
            return "declared"
        case ev.SpecRemoved():
            return "undeclared: its file is gone"
        case ev.MessageAdded(sender=sender, text=text):
            return f"message from {visible(sender)}: {visible(text, 60)}"
        case ev.NoteAdded(text=text):
            return f"hand-off: {visible(text, 60)}"
        case ev.FactSet(key=key, value=value):
            return f"remembers {visible(key)} = {visible(value, 60)}"
        case ev.TodoSet(items=items):
            doing = [item.text for item in items if item.status == "doing"]
            return f"to-do list: {count_items(items)}" + (f"; doing: {visible('; '.join(doing), 60)}" if doing else "")
        case _:
            return None


def _tell_history(event: ev.Event) -> str | None:
    """The calls on its history, and where it lives."""
    match event:
        case ev.SessionRewound(to=to):
            return f"goes on from record {to}"
        case ev.SessionForked(name=name, position=position):
            return f"forked at record {position} as {visible(name)}"
        case ev.SessionMerged(name=name, taken=taken, retracted=retracted, conflicts=conflicts):
            left = f", {len(conflicts)} to resolve" if conflicts else ""
            return f"took {count(len(taken) + len(retracted), 'fact')} of {visible(name)}{left}"
        case ev.OutputsAdopted(by=by):
            return f"has the files of {visible(by)}"
        case ev.SessionFrozen(to=to):
            return f"frozen: it moves to {visible(to)}"
        case ev.SessionThawed():
            return "stays: its move was given up"
        case ev.SessionDeparted():
            return "lives on another host now"
        case ev.SessionArrived(origin=origin):
            return f"came from {visible(origin)}"
        case ev.SessionArchived(bundle=bundle):
            return f"archived in {visible(bundle)}"
        case ev.SessionRestored():
            return "back from its archive"
        case _:
            return None


def grade(event: ev.Event) -> Priority:
    """How much an event is a person's business, in syslog's levels."""
    match event:
        case ev.RunFinished(outcome="failed" | "lost"):
            return WARNING
        case ev.SessionSlept() | ev.SessionTerminated() | ev.SpecRemoved() | ev.SlotSkipped():
            return NOTICE
        case _:
            return INFO


def _cause(cause: ev.Cause) -> str:
    if cause.kind == "first":
        return "first sight"
    if cause.kind == "activation":
        return "activated" + (f" ({visible(cause.reason, 40)})" if cause.reason else "")
    words = visible(cause.binding)
    if cause.reason:
        words += f" {visible(cause.reason, 40)}"
    if cause.paths:
        shown = ", ".join(f"{path.change} {visible(path.path)}" for path in cause.paths[:PATHS_SHOWN])
        rest = len(cause.paths) - PATHS_SHOWN
        words += f" ({shown}{f' and {rest} more' if rest > 0 else ''})"
    elif cause.kind in ("cron", "every", "message", "session") and cause.new:
        words += f" ({cause.new})"
    return words


def _finished(event: ev.RunFinished) -> str:
    words = f"run {event.run} {event.outcome}"
    if event.usage.wall_seconds:
        words += f" in {event.usage.wall_seconds:.2f} s"
    if event.reason:
        words += f": {visible(event.reason, 100)}"
    if event.retry_at is not None and event.backoff_seconds is not None:
        words += f"; again in {event.backoff_seconds:.0f} s"
    if event.hint:
        words += f"; {visible(event.hint, HINT_SHOWN)}"
    if event.trace is not None:
        words += _traced(event.trace)
    if event.undeclared:
        words += f"; undeclared changes: {visible(', '.join(event.undeclared), 100)}"
    return words


def _traced(trace: Traced) -> str:
    found = len(trace.denied) + trace.more
    things = count(found, "thing")
    words = f"; {things} outside its reach" if found and trace.is_observed else f"; {things} denied" if found else ""
    return words + (f"; {visible(trace.words)}" if trace.words else "")


def _say_arguments(text: str) -> str:
    """What a model gave a tool, in words; as it stands where it is no JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return ", ".join(f"{key}: {value}" for key, value in found.items()) if isinstance(found, dict) else text


def visible(text: str, most: int = 200) -> str:
    """Text from outside as one printable line."""
    shown = escape(text[: most + 1])
    return shown[: most - 1] + "…" if len(shown) > most else shown


def suggest_edit(sessions: list[Session]) -> str | None:
    """A file worth editing next: a literal input of the most important session that is at rest."""
    resting = (s for s in sessions if s.is_armed and s.run is None and s.spec is not None)
    for session in sorted(resting, key=lambda s: -s.spec.priority if s.spec else 0):
        assert session.spec is not None
        for binding in session.spec.bindings:
            if (
                isinstance(binding, FileBinding)
                and binding.wake
                and binding.access == "read"
                and not set(binding.pattern) & set("*?[")
            ):
                return f"edit {binding.pattern} to see {session.name} wake"
    return None


Style = Literal["text", "json"]
# The field of a line that stands for a record of the log.
_RECORDED = "WAKEFUL_SEQ"
LEVELS = {2: "critical", 3: "error", 4: "warning", 5: "notice", 6: "info"}


class Line(NamedTuple):
    """One thing said: as a person reads it, and what the journal and JSON know of it.

    A passing one gives way to the next.
    """

    text: str
    message: str
    priority: Priority = INFO
    fields: Mapping[str, str] = {}
    is_passing: bool = False


class Voice:
    """The daemon's own words: plain lines on standard output, in colour where a person looks at a terminal;
    entries where the journal listens.

    Printed by a thread of its own: a stopped terminal or a full pipe must not stop the loop, so lines beyond the
    bound are counted and dropped. It falls silent when nobody can hear it any more (a closed window, a pipe into
    `head`): everything it says stands in the log.
    """

    MOST_WAITING = 10_000

    def __init__(self, *, is_terminal: bool, journal: Journal | None = None, style: Style = "text") -> None:
        # Highlighting and markup are off: a name in brackets is a name.
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True) if is_terminal else None
        self._journal = journal
        self._style = style
        # Takes the values of secrets out of every line.
        self.redact: Callable[[str], str] = lambda text: text
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._dropped = 0
        self._repeats = Repeats(time.monotonic)
        # Whether a passing line stands where the next one goes.
        self._is_over_another = False
        self._printing = Thread(target=self._print_lines, name="voice", daemon=True)
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
        """One line, with the local time it happened at: now, unless told.

        `fields` are what is known of it besides its session's name.
        """
        moment = datetime.fromtimestamp(at / 1e6) if at is not None else datetime.now()
        message = (f"{visible(name)}: " if name else "") + visible(words, 500)
        about = {"WAKEFUL_SESSION": name, **(fields or {})} if name else fields or {}
        # A record is told as often as it is recorded.
        if _RECORDED not in about:
            self._tell_repeats()
            if not self._repeats.take(message):
                return
        self._put(Line(f"{moment:%H:%M:%S} {message}", message, priority, about))

    def _tell_repeats(self, *, is_over: bool = False) -> None:
        for words in self._repeats.end_periods(is_over=is_over):
            self._put(Line(f"{datetime.now():%H:%M:%S} {words}", words, WARNING))

    def print(self, line: str) -> None:
        # A folder may be called anything, too.
        shown = escape(line)
        self._put(Line(shown, shown, NOTICE))

    def quote(self, lines: list[str], *, name: str, run: int) -> None:
        """Lines that a run printed, behind a bar: nobody takes them for ours."""
        for line in lines:
            shown = f"│ {visible(line, 500)}"
            self._put(Line(f"  {shown}", shown, fields={"WAKEFUL_SESSION": name, "WAKEFUL_RUN": str(run)}))

    def show(self, line: str) -> None:
        """How far something is, to who looks at a terminal; the next line takes its place."""
        if self._console is not None and self._style == "text" and self._journal is None:
            self._put(Line(line, line, is_passing=True))

    def _put(self, line: Line) -> None:
        if self._lines.qsize() >= self.MOST_WAITING:
            self._dropped += 1
            return
        if self._dropped:
            words = f"({count(self._dropped, 'line')} not printed: nobody read; wakeful log has all)"
            self._lines.put(Line(words, words, WARNING))
            self._dropped = 0
        self._lines.put(line._replace(text=self.redact(line.text), message=self.redact(line.message)))

    def close(self, seconds: float = 1.0) -> None:
        """Say what is left to be said, if somebody listens."""
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
    """The fields of a journal entry; the journal adds the time, the unit and the process."""
    return {"MESSAGE": line.message, "PRIORITY": str(line.priority), "SYSLOG_IDENTIFIER": "wakeful", **line.fields}


def as_json(line: Line) -> str:
    """One object: the words, and the same fields as in the journal by shorter names."""
    about = {name.removeprefix("WAKEFUL_").lower(): value for name, value in line.fields.items()}
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"at": at, "level": LEVELS[line.priority], "message": line.message, **about}, ensure_ascii=False)
