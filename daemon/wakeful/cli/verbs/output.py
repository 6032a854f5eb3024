"""`wakeful output`: prints the output of a run, with control characters made visible, or raw on request."""

from __future__ import annotations

import codecs
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from wakeful.cli.client import Options
from wakeful.cli.daemon_location import find_state
from wakeful.cli.text import count, escape, escape_lines, escape_output, paint, wrap
from wakeful.client.refusals import DaemonAway
from wakeful.client.wire import quote_name


class Printed(NamedTuple):
    """The output of a run. `head` and `tail` were kept; the part between them exceeded the limits and was dropped."""

    run: int
    head: bytes
    tail: bytes
    total_bytes: int
    hint: str | None


class Lines(NamedTuple):
    """The lines that contain a text, each as `12:line`, and the total number of such lines.

    `gap` is the number of the line that stands for the dropped middle.
    """

    run: int
    lines: list[bytes]
    total: int
    gap: int | None


def output_verb(
    options: Options,
    name: str,
    run: int | None,
    follow: bool,
    find: str | None,
    is_raw: bool,
    state: str | None,
) -> None:
    if follow and state is not None:
        raise click.UsageError("--follow waits for a daemon's run; leave --state out")
    if follow and find is not None:
        raise click.UsageError("--find searches the output so far; leave --follow out, or pipe it through grep")
    if find is not None:
        _print_found(options, name, find, _find_lines(options, name, run, find, state), is_raw)
        return
    if follow and run is None:
        _print_pieces(
            options.client().stream(f"/sessions/{quote_name(name)}/output", follow="true"), is_raw, options.is_json
        )
        return
    found = _ask_daemon(options, name, run) if state is None else _read_folder(Path(find_state(state)), name, run)
    left_out = found.total_bytes - len(found.head) - len(found.tail)
    if options.is_json:
        text = {
            "head": found.head.decode(errors="backslashreplace"),
            "tail": found.tail.decode(errors="backslashreplace"),
        }
        print(
            json.dumps(
                {
                    "name": name,
                    "run": found.run,
                    "total_bytes": found.total_bytes,
                    "left_out_bytes": left_out,
                    "hint": found.hint,
                    **text,
                }
            )
        )
        return
    _write(found.head, is_raw)
    if left_out > 0:
        sys.stdout.write(paint(f"\n… not kept: {count(left_out, 'byte')} …\n", "dim"))
        sys.stdout.flush()
    _write(found.tail, is_raw)
    if found.hint is not None:
        # On standard error, because standard output may go into a file.
        print(paint("\n".join(wrap(escape(f"wakeful: run {found.run}: {found.hint}"))), "warn"), file=sys.stderr)


def _ask_daemon(options: Options, name: str, run: int | None) -> Printed:
    """Get the output from the daemon or, if no daemon runs, from its state folder."""
    try:
        answer = options.client().get_answer(f"/sessions/{quote_name(name)}/output", run=run)
    except DaemonAway as error:
        return _read_folder(_find_folder(options, error), name, run)
    body, head = answer.read(), int(answer.headers["wakeful-head"])
    hint = json.loads(answer.headers["wakeful-hint"]) if answer.headers.get("wakeful-hint") else None
    return Printed(
        int(answer.headers["wakeful-run"]), body[:head], body[head:], int(answer.headers["wakeful-total"]), hint
    )


def _read_folder(folder: Path, name: str, run: int | None) -> Printed:
    # Imported here, because the log's engine takes longer to import than a daemon takes to answer.
    return Printed(*importlib.import_module("wakeful.service.offline_store").read_stored_output(folder, name, run))


def _find_folder(options: Options, error: DaemonAway) -> Path:
    """Find the state folder of a daemon that does not run."""
    folder = Path(find_state())
    # A named socket does not identify a folder, and the default folder may have another session of the same name.
    is_named = options.socket or (os.environ.get("WAKEFUL_SOCKET") and not os.environ.get("WAKEFUL_STATE"))
    if is_named or not (folder / "log" / "events.db").exists():
        raise error
    print(paint(f"wakeful: no daemon answers; read from {escape(str(folder))}", "dim"), file=sys.stderr)
    return folder


def _find_lines(options: Options, name: str, run: int | None, find: str, state: str | None) -> Lines:
    if not find or "\n" in find:
        raise click.UsageError("--find: expected text of one line")
    if state is not None:
        return _find_in_folder(Path(find_state(state)), name, run, find)
    try:
        answer = options.client().get_answer(f"/sessions/{quote_name(name)}/output", run=run, find=find)
    except DaemonAway as error:
        return _find_in_folder(_find_folder(options, error), name, run, find)
    gap = answer.headers.get("wakeful-gap")
    return Lines(
        int(answer.headers["wakeful-run"]),
        answer.read().split(b"\n")[:-1],
        int(answer.headers["wakeful-found"]),
        int(gap) if gap is not None else None,
    )


def _find_in_folder(folder: Path, name: str, run: int | None, find: str) -> Lines:
    store = importlib.import_module("wakeful.service.offline_store")
    found_run, found = store.find_in_stored_output(folder, name, run, find)
    return Lines(found_run, found.lines, found.total, found.gap)


def _print_found(options: Options, name: str, find: str, found: Lines, is_raw: bool) -> None:
    if options.is_json:
        lines = [line.partition(b":") for line in found.lines]
        shown = [{"number": int(number), "text": text.decode(errors="backslashreplace")} for number, _, text in lines]
        told = {"name": name, "run": found.run, "find": find, "found_lines": found.total, "gap_line": found.gap}
        print(json.dumps({**told, "lines": shown}))
        return
    for line in found.lines:
        _write(line + b"\n", is_raw)
    # On standard error, because standard output may go into a pipe.
    if found.total > len(found.lines):
        more = f"the first {len(found.lines):,} of {count(found.total, 'line')}; search for more words"
        print(paint(f"wakeful: run {found.run}: {more}", "warn"), file=sys.stderr)
    elif not found.total:
        print(paint(f"wakeful: run {found.run}: no line contains that", "dim"), file=sys.stderr)
    if found.gap is not None:
        print(
            paint(f"wakeful: run {found.run}: line {found.gap} replaces output that was not kept", "dim"),
            file=sys.stderr,
        )


def _print_pieces(pieces: Iterator[bytes], is_raw: bool, is_json: bool) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        if is_raw:
            sys.stdout.buffer.write(piece)
        elif is_json:
            print(json.dumps({"output": decoder.decode(piece)}))
        else:
            sys.stdout.write(escape_lines(decoder.decode(piece)))
        sys.stdout.flush()


def _write(output: bytes, is_raw: bool) -> None:
    if is_raw:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(escape_output(output))
        sys.stdout.flush()
