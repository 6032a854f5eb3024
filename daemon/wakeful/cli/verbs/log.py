"""`log`, `follow`, `history`: records as lines, past and live.

With `--json` the daemon's lines pass through as they are; for people each becomes one line of words.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from wakeful.cli.agent_words import TEXT_LEAD, THOUGHT_LEAD, Flow, Speech
from wakeful.cli.client import Client, quote_name
from wakeful.cli.command import verb
from wakeful.cli.completion_values import RUN, SESSION
from wakeful.cli.exit_codes import Failure
from wakeful.cli.options import Options
from wakeful.cli.text import columns, escape, fit, paint, parse_time

HISTORY = 20
OUTCOMES = ("succeeded", "failed", "cancelled", "interrupted", "lost")
# Of a hash, what a person compares at a glance; --json has all of it.
_HASH_DIGITS = 12
_DAEMON = "wakeful"
_KIND_COLOURS = {
    "run_started": "running",
    "wake_requested": "bold",
    "session_slept": "sleeping",
    "session_suspended": "dim",
    "session_terminated": "dim",
}


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which `log` and `history` choose records; each narrows what the others leave."""
    for option in reversed(
        (
            click.option("--from", "first", type=click.IntRange(1), metavar="SEQ", help="The first seq shown."),
            click.option("--to", type=click.IntRange(1), metavar="SEQ", help="The last seq shown."),
            click.option(
                "--since", metavar="TIME", help="RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 2h."
            ),
            click.option("--until", metavar="TIME", help="The same."),
            click.option("--kind", multiple=True, help="Only this kind, such as run_finished; may be repeated."),
            click.option("--run", type=RUN, metavar="N", help="Only records of this run."),
            click.option("--author", help="Only records by this author, such as person:root."),
            click.option("--outcome", type=click.Choice(OUTCOMES), help="Only the ends of runs that ended so."),
            click.option(
                "--text", metavar="TEXT", help="Only records that say this somewhere; case and accents do not matter."
            ),
            click.option(
                "--state-hash",
                "states",
                is_flag=True,
                flag_value="true",
                default=None,
                help="The hash of the session's state after each record, too.",
            ),
        )
    ):
        function = option(function)
    return function


@verb(
    "log",
    "wakeful log payroll --last 20",
    "wakeful log payroll --outcome failed --since 1d",
    "wakeful log payroll --text 'tax office'",
    "wakeful log payroll --follow",
)
@click.argument("name", type=SESSION)
@filter_options
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N, at most 10000.")
@click.option(
    "--past",
    is_flag=True,
    help="Before them the records it came with, when it was forked or loaded; --at ~SEQ means one of those.",
)
@click.option("--follow", "is_following", is_flag=True, help="Go on with what will be recorded.")
def log_verb(options: Options, name: str, first: int | None, is_following: bool, past: bool, **bounds: Any) -> None:
    """A session's records, oldest first."""
    if past and (first is not None or bounds["last"] is not None or is_following):
        raise click.UsageError(
            "--past shows all from the beginning; narrow it by --since, --until, --kind, --run, --author, "
            "--outcome or --text"
        )
    client = options.client()
    words = None if options.is_json else "true"
    route = f"/sessions/{quote_name(name)}/log"
    if not is_following:
        print_records(
            options, client.stream_lines(route, **{"from": first}, words=words, past="true" if past else None, **bounds)
        )
        return
    if any(bounds.values()):
        raise click.UsageError("--follow goes with --from alone; pipe it through a filter instead")
    print_records(options, _read_on(client, name, first or 1, words), is_live=True)


def _read_on(client: Client, name: str, first: int, words: str | None) -> Iterator[bytes]:
    """Following begins before the log is read, so nothing falls between."""
    following = client.stream_lines("/follow", name=name, words=words)
    last = first - 1
    for line in client.stream_lines(f"/sessions/{quote_name(name)}/log", **{"from": first}, words=words):
        last = json.loads(line)["seq"]
        yield line
    for line in following:
        record = json.loads(line)
        if record["seq"] > last:
            del record["session"]
            yield line if words else json.dumps(record).encode()


@verb(
    "history",
    "wakeful history payroll --last 5",
    "wakeful history payroll --outcome failed",
    "wakeful history --text rates   # inside a run",
)
@click.argument("name", type=SESSION, required=False)
@filter_options
@click.option(
    "--last",
    type=click.IntRange(1),
    default=HISTORY,
    metavar="N",
    help=f"How many, {HISTORY} unless told, at most 10000.",
)
def history_verb(options: Options, name: str | None, first: int | None, **bounds: Any) -> None:
    """A session's latest records. Inside a run NAME is its own session and may be left out."""
    own = os.environ.get("WAKEFUL_SESSION")
    name = name or own
    if name is None:
        raise click.UsageError("NAME is needed outside a run: wakeful history NAME")
    client = options.client()
    words = None if options.is_json else "true"
    print_records(
        options, client.stream_lines(f"/sessions/{quote_name(name)}/log", **{"from": first}, words=words, **bounds)
    )


@verb("follow", "wakeful follow                  # all sessions", "wakeful follow payroll filing")
@click.argument("names", type=SESSION, nargs=-1, metavar="[NAME]...")
@click.option("--thinking/--no-thinking", "with_thoughts", default=True, help="Show the thoughts of agents, dimmed.")
@click.option(
    "--words", "with_words", is_flag=True, help="With --json: also the words of agents as they come, lines with `live`."
)
def follow_verb(options: Options, names: tuple[str, ...], with_thoughts: bool, with_words: bool) -> None:
    """What happens, as it happens, and who does it: wakes with their causes, runs, their ends, calls. Ends with Ctrl-C.

    What agents say is shown word by word, with their thoughts and the tools they call. Words that come too fast to be
    read are left out; the record of the turn, which follows, has all of them.
    """
    is_live = "true" if with_words or not options.is_json else None
    lines = options.client().stream_lines(
        "/follow", name=names or None, words=None if options.is_json else "true", live=is_live
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
    """Records, a line each, and between them the words of agents.

    Those of one session at a time: another one begins a new line.
    """

    def __init__(self, *, with_thoughts: bool) -> None:
        self._with_thoughts = with_thoughts
        self._speeches: dict[tuple[str, int], Speech] = {}
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

    def _turn_to(self, key: tuple[str, int]) -> Speech:
        if self._speaking != key:
            self._pause()
        self._speaking = key
        if key not in self._speeches:
            lead, width = f"{' ' * 8}  {escape(key[0])}  ", columns() - 1
            thoughts = (
                Flow(_write, lead=lead + THOUGHT_LEAD, width=width, colour="dim") if self._with_thoughts else None
            )
            self._speeches[key] = Speech(
                Flow(_write, lead=lead + TEXT_LEAD, width=width),
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
            # Who follows through a pipe sees each as it comes.
            print(format_record(json.loads(line)), flush=is_live)
    if is_empty and not options.is_json:
        # Beside the records, which may go into a file.
        print(paint("no such records", "dim"), file=sys.stderr)


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def format_line(record: dict[str, Any], session: str) -> str:
    """A line of `follow`: when, who, what. Never cut: the paths at its end are what one looks for."""
    at = parse_time(record["at"]).astimezone().strftime("%H:%M:%S")
    line = f"{paint(at, 'dim')}  {paint(escape(session), 'bold')}  {paint(escape(record['words']), _colour(record))}"
    return line + paint(escape(_say_author(record)), "dim")


def format_record(record: dict[str, Any]) -> str:
    """A line of `log`: seq, when, kind, and its words."""
    at = parse_time(record["at"]).astimezone()
    is_today = at.date() == datetime.now(UTC).astimezone().date()
    when = at.strftime("%H:%M:%S") if is_today else at.strftime("%Y-%m-%d %H:%M:%S")
    # A record from before the session was forked or loaded is shown as `~SEQ`, which `--at` takes.
    number = f"~{record['seq']}" if "session" in record else str(record["seq"])
    hashed = f"{(record['state_hash'] or 'gone')[:_HASH_DIGITS]:<{_HASH_DIGITS}}  " if "state_hash" in record else ""
    head = f"{number:>5}  {when}  {hashed}{record['kind']:<20}  "
    words = escape(record["words"] + _say_author(record))
    # On a screen a record takes one line. Through a pipe its line stays whole, because a search may look for its end.
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        words = fit(words, max(columns() - len(head), 30))
    return f"{paint(head, 'dim')}{paint(words, _colour(record))}"


def _say_author(record: dict[str, Any]) -> str:
    """Who did it, where that was not the daemon."""
    return "" if record["author"] == _DAEMON else f"  ({record['author']})"


def _colour(record: dict[str, Any]) -> str:
    if record["kind"] == "run_finished" and record["payload"]:
        return str(record["payload"]["outcome"])
    return _KIND_COLOURS.get(record["kind"], "")
