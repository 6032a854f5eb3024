"""`wakeful export`: writes the log for other tools, one JSON object per line, to standard output or to a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import Failure
from wakeful.cli.progress import Tally
from wakeful.cli.text import count, escape


def export_verb(options: Options, output: str | None, **asked: Any) -> None:
    file = Path(output) if output is not None else None
    if file is not None and file.exists():
        raise Failure(f"{escape(str(file))} is there already; choose another, or remove it first")
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
            f"{escape(str(part))} is there already: another export writes it, or one was cut off; remove it first"
        ) from None
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Failure(f"cannot write {escape(str(file))}: {error.strerror}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return lines
