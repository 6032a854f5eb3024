"""`wakeful export`: the log for other tools, one JSON object a line, to standard output or to a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import SESSION
from wakeful.cli.exit_codes import Failure
from wakeful.cli.options import Options
from wakeful.cli.progress import Tally
from wakeful.cli.text import count, escape


@verb("export", "wakeful export payroll --since 1d | jq .kind", "wakeful export -o all.jsonl")
@click.argument("names", type=SESSION, nargs=-1, metavar="[NAME]...")
@click.option("--format", "form", type=click.Choice(["jsonl"]), default="jsonl", help="jsonl: one JSON object a line.")
@click.option("--since", metavar="TIME", help="RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 2h.")
@click.option("--until", metavar="TIME", help="The same.")
@click.option("--kind", multiple=True, help="Only this kind, such as run_finished; may be repeated.")
@click.option(
    "--with-loaded", "is_loaded", is_flag=True, help="Also the records that `load` brought in from elsewhere."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of its own instead; never overwrites.",
)
def export_verb(
    options: Options, names: tuple[str, ...], form: str, is_loaded: bool, file: Path | None, **bounds: Any
) -> None:
    """The records of all sessions, or of these, in the order they were recorded."""
    if file is not None and file.exists():
        raise Failure(f"{escape(str(file))} is there already; choose another, or remove it first")
    pieces = options.client().stream(
        "/export", name=names or None, format=form, loaded="true" if is_loaded else None, **bounds
    )
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
    """All of it under that name, or nothing: a file that was cut off would be taken for the log.

    Tells the number of lines.
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
            f"{escape(str(part))} is there already: another export writes it, or one was cut off; remove it first"
        ) from None
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Failure(f"cannot write {escape(str(file))}: {error.strerror}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return lines
