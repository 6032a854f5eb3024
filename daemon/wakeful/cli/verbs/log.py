"""`log`, `follow`, `history`, `search`: print records as lines, past and live. `export` writes them for other tools.

With `--json` the daemon's lines are printed unchanged. Otherwise each record becomes one line of words. An export has
one JSON object per line, on standard output or in a file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from wakeful.cli.agent_text import TEXT_LEAD, THOUGHT_LEAD, AgentWordsPrinter, LineWrapper
from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import Failure
from wakeful.cli.progress import Tally
from wakeful.cli.selection import is_several
from wakeful.cli.text import Colour, columns, count, escape, find_colour, fit, measure, pad, paint, parse_time
from wakeful.client.wire import quote_name

# The number of digits of a hash on the screen. --json prints all digits.
_HASH_DIGITS = 12
_DAEMON = "wakeful"
_KIND_COLOURS: dict[str, Colour] = {
    "run_started": "running",
    "wake_requested": "bold",
    "session_slept": "sleeping",
    "session_suspended": "dim",
    "session_terminated": "dim",
}


def log_verb(options: Options, name: str, is_following: bool, **bounds: Any) -> None:
    if bounds["past"] and (bounds["from"] is not None or bounds["last"] is not None or is_following):
        raise click.UsageError(
            "--past shows all from the beginning; narrow it by --since, --until, --kind, --run, --author, "
            "--outcome or --text"
        )
    client = options.client()
    if not is_following:
        print_records(options, client.stream_lines(_route(name), words=not options.is_json, **bounds))
        return
    first = bounds.pop("from")
    if any(bounds.values()):
        raise click.UsageError("--follow goes with --from alone; pipe it through a filter instead")
    print_records(options, _read_on(client, name, first or 1, with_words=not options.is_json), is_live=True)


def _route(name: str) -> str:
    return f"/sessions/{quote_name(name)}/log"


def _read_on(client: Client, name: str, first: int, *, with_words: bool) -> Iterator[bytes]:
    """Yield the lines of the log, then new ones. Following starts before the log is read, so that no line is missed."""
    following = client.stream_lines("/follow", name=name, words=with_words)
    last = first - 1
    for line in client.stream_lines(_route(name), **{"from": first}, words=with_words):
        last = json.loads(line)["seq"]
        yield line
    for line in following:
        record = json.loads(line)
        if record["seq"] > last:
            del record["session"]
            yield line if with_words else json.dumps(record).encode()


def history_verb(options: Options, name: str | None, **bounds: Any) -> None:
    """Print the history of a session. Inside a run, NAME may be left out and is the run's own session."""
    name = name or os.environ.get("WAKEFUL_SESSION")
    if name is None:
        raise click.UsageError("NAME is needed outside a run: wakeful history NAME")
    print_records(options, options.client().stream_lines(_route(name), words=not options.is_json, **bounds))


def follow_verb(options: Options, name: tuple[str, ...], with_thoughts: bool, with_words: bool, **chosen: Any) -> None:
    is_text = not options.is_json
    # Only true and non-empty options go into the query.
    wanted = {key: value for key, value in chosen.items() if value}
    several = [one for one in name if is_several(one)]
    names = [one for one in name if one not in several]
    lines = options.client().stream_lines(
        "/follow",
        name=names or None,
        match=several or None,
        words=is_text,
        live=with_words or is_text,
        **wanted,
    )
    if options.is_json:
        for line in lines:
            _write_line(line)
    else:
        screen = _Screen(with_thoughts=with_thoughts)
        for line in lines:
            screen.take(json.loads(line))
    raise Failure("the daemon stopped")


class _Screen:
    """Prints each record as a line, and the words of agents between them.

    A line has the words of one session only. Words of another session begin a new line.
    """

    def __init__(self, *, with_thoughts: bool) -> None:
        self._with_thoughts = with_thoughts
        self._speeches: dict[tuple[str, int], AgentWordsPrinter] = {}
        self._speaking: tuple[str, int] | None = None

    def take(self, line: dict[str, Any]) -> None:
        session, live = line["session"], line.get("live")
        if live is None:
            self._take_record(session, line)
        elif live["kind"] == "lost" and live["run"] is None:
            for speech in self._speeches.values():
                speech.take(live)
        elif live["kind"] == "waits":
            self._pause()
            print(
                f"{' ' * 8}  {paint(escape(session), 'bold')}  {paint('waits for ' + escape(live['text']), 'dim')}",
                flush=True,
            )
        else:
            self._turn_to((session, live["run"])).take(live)

    def _take_record(self, session: str, record: dict[str, Any]) -> None:
        payload, key = record["payload"] or {}, (session, record["run"])
        speech = self._speeches.get(key)
        if record["kind"] == "turn_answered" and speech is not None and speech.has_shown(payload["turn"]):
            self._turn_to(key).conclude(payload["turn"], payload["answer"]["text"])
            return
        if record["kind"] == "run_finished":
            self._speeches.pop(key, None)
        if record["words"] is not None:
            self._pause()
            print(format_line(record, session), flush=True)

    def _turn_to(self, key: tuple[str, int]) -> AgentWordsPrinter:
        if self._speaking != key:
            self._pause()
        self._speaking = key
        if key not in self._speeches:
            lead, width = f"{' ' * 8}  {escape(key[0])}  ", columns() - 1
            thoughts = (
                LineWrapper(_write, lead=lead + THOUGHT_LEAD, width=width, colour="dim")
                if self._with_thoughts
                else None
            )
            self._speeches[key] = AgentWordsPrinter(
                LineWrapper(_write, lead=lead + TEXT_LEAD, width=width),
                thoughts,
                lambda words: _write(f"{lead}{paint(words, 'dim')}\n"),
            )
        return self._speeches[key]

    def _pause(self) -> None:
        if self._speaking is not None and self._speaking in self._speeches:
            self._speeches[self._speaking].pause()
        self._speaking = None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def print_records(options: Options, lines: Iterator[bytes], *, is_live: bool = False) -> None:
    is_empty = True
    for line in lines:
        is_empty = False
        if options.is_json:
            _write_line(line)
        else:
            # Flush each line of a live log, so that a program at the other end of a pipe gets it at once.
            print(format_record(json.loads(line)), flush=is_live)
    if is_empty and not options.is_json:
        # On standard error, because standard output may go into a file.
        print(paint("no such records", "dim"), file=sys.stderr)


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def format_line(record: dict[str, Any], session: str) -> str:
    """Format a line of `follow`: time, session, words. It is never cut, because the paths at its end matter most."""
    at = parse_time(record["at"]).astimezone().strftime("%H:%M:%S")
    line = f"{paint(at, 'dim')}  {paint(escape(session), 'bold')}  {paint(escape(record['words']), _colour(record))}"
    return line + paint(escape(_say_author(record)), "dim")


def format_record(record: dict[str, Any]) -> str:
    """Format a line of `log`: seq, time, kind and words."""
    at = parse_time(record["at"]).astimezone()
    is_today = at.date() == datetime.now(UTC).astimezone().date()
    when = at.strftime("%H:%M:%S") if is_today else at.strftime("%Y-%m-%d %H:%M:%S")
    # A record from before the session was forked or loaded is shown as `~SEQ`, which `--at` takes.
    number = f"~{record['seq']}" if "session" in record else str(record["seq"])
    hashed = f"{(record['state_hash'] or 'gone')[:_HASH_DIGITS]:<{_HASH_DIGITS}}  " if "state_hash" in record else ""
    head = f"{number:>5}  {when}  {hashed}{record['kind']:<20}  "
    words = escape(record["words"] + _say_author(record))
    # On a screen a record takes one line. Through a pipe its line stays whole, because a search may look for words at
    # its end.
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        words = fit(words, max(columns() - len(head), 30))
    return f"{paint(head, 'dim')}{paint(words, _colour(record))}"


def _say_author(record: dict[str, Any]) -> str:
    """Return the author of a record in brackets. Empty if it is the daemon."""
    return "" if record["author"] == _DAEMON else f"  ({record['author']})"


def _colour(record: dict[str, Any]) -> Colour:
    if record["kind"] == "run_finished" and record["payload"]:
        return find_colour(record["payload"]["outcome"])
    return _KIND_COLOURS.get(record["kind"], "")


def search_verb(options: Options, text: tuple[str, ...], last: int, **bounds: Any) -> None:
    lines = options.client().stream_lines("/search", text=" ".join(text), last=last, **bounds)
    if options.is_json:
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        return
    found = [json.loads(line) for line in lines]
    if not found:
        print("nothing found")
        return
    heads = [f"{escape(one['session'])} {one['seq']}" for one in found]
    width, kinds = max(map(measure, heads)), max(len(one["kind"]) for one in found)
    for head, one in zip(heads, found, strict=True):
        print(_format_find(pad(head, width), one, kinds))
    if len(found) == last:
        print(paint(f"the newest {last}; --last N shows more", "dim"))


def _format_find(head: str, find: dict[str, Any], kinds: int) -> str:
    when = parse_time(find["at"]).astimezone().strftime("%Y-%m-%d %H:%M")
    middle = f"  {when}  {find['kind']:<{kinds}}  "
    excerpt = fit(escape(find["excerpt"] or ""), max(columns() - measure(head) - len(middle), 20))
    return f"{paint(head, 'bold')}{paint(middle, 'dim')}{excerpt}".rstrip()


def export_verb(options: Options, output: str | None, **asked: Any) -> None:
    file = Path(output) if output is not None else None
    if file is not None and file.exists():
        raise Failure(f"{escape(str(file))} already exists; choose another file, or remove it first")
    pieces = options.client().stream("/export", **asked)
    if file is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    with Tally("record", is_shown=not options.is_json) as tell:
        records = write_whole(file, pieces, tell)
    if options.is_json:
        print(json.dumps({"file": str(file.absolute()), "records": records}))
        return
    print(f"{escape(str(file))}: {count(records, 'record')}")


def write_whole(file: Path, pieces: Iterator[bytes], tell: Callable[[int], None] = lambda lines: None) -> int:
    """Write all pieces to the file, or leave no file, because a partial file would be mistaken for the log.

    Returns the number of lines; `tell` gets it as it grows.
    """
    part = file.with_name(f"{file.name}.part")
    lines = 0
    try:
        with open(part, "xb") as out:
            for piece in pieces:
                out.write(piece)
                lines += piece.count(b"\n")
                tell(lines)
            out.flush()
            os.fsync(out.fileno())
        os.rename(part, file)
    except FileExistsError:
        raise Failure(
            f"{escape(str(part))} already exists: another export writes it, or was interrupted; remove it first"
        ) from None
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Failure(f"cannot write {escape(str(file))}: {error.strerror}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return lines
