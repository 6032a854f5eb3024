"""Add one line to a journal: the free disk space, and how the watched outputs changed since the last beat.

The session `heartbeat` runs it every half hour. The scratch folder keeps the state of the last beat. Run by hand
without a scratch folder, each beat counts as the first. Each beat rewrites the whole journal with its newest lines, so
the journal does not grow without end.
"""

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

WATCHED = Path("examples/hr/out")
JOURNAL = Path("examples/heartbeat/out/journal.md")
HEADING = "# Heartbeat\n"
KEPT_LINES = 200
GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Beat:
    """The state at one beat: the free bytes, and the size and mtime of each output."""

    free_bytes: int
    outputs: dict[str, list[int]]


def main() -> int:
    scratch = os.environ.get("WAKEFUL_SCRATCH")
    memory = Path(scratch) / "beat.json" if scratch else None
    try:
        beat = look()
        line = describe(beat, recall(memory), time.time_ns())
        write_whole(JOURNAL, HEADING + "".join(f"\n{kept}" for kept in [*read_journal(), line][-KEPT_LINES:]) + "\n")
        if memory is not None:
            write_whole(memory, json.dumps(vars(beat), sort_keys=True))
    except OSError as error:
        print(
            f"{error.filename}: {error.strerror}; make it readable and writable; no beat was written", file=sys.stderr
        )
        return 1
    print(line)
    return 0


def look() -> Beat:
    outputs = {}
    for path in sorted(WATCHED.rglob("*")):
        if path.suffix != ".tmp" and path.is_file():
            found = path.stat()
            outputs[str(path.relative_to(WATCHED))] = [found.st_size, found.st_mtime_ns]
    return Beat(shutil.disk_usage(Path.cwd()).free, outputs)


def recall(memory: Path | None) -> Beat | None:
    if memory is None or not memory.exists():
        return None
    try:
        return Beat(**json.loads(memory.read_bytes()))
    except (ValueError, TypeError) as error:
        # Only this one comparison is lost. The next beat can compare again.
        print(f"{memory}: the last beat is unreadable ({error}); beginning again")
        return None


def describe(beat: Beat, last: Beat | None, now_ns: int) -> str:
    moment = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    parts = [f"- {moment:%Y-%m-%dT%H:%M:%SZ}", describe_space(beat, last), describe_outputs(beat, now_ns)]
    return " · ".join([*parts, describe_changes(beat, last)])


def describe_space(beat: Beat, last: Beat | None) -> str:
    space = f"{beat.free_bytes / GIGABYTE:.1f} GB free"
    return space if last is None else f"{space} ({(beat.free_bytes - last.free_bytes) / GIGABYTE:+z.1f})"


def describe_outputs(beat: Beat, now_ns: int) -> str:
    if not beat.outputs:
        return "no outputs yet"
    newest = max(beat.outputs, key=lambda name: beat.outputs[name][1])
    age_seconds = max(0, (now_ns - beat.outputs[newest][1]) // 1_000_000_000)
    return f"{len(beat.outputs)} outputs, newest {newest} ({spell_age(age_seconds)} old)"


def spell_age(seconds: int) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def describe_changes(beat: Beat, last: Beat | None) -> str:
    if last is None:
        return "first beat"
    names = {
        "new": [name for name in beat.outputs if name not in last.outputs],
        "changed": [name for name in beat.outputs if last.outputs.get(name, beat.outputs[name]) != beat.outputs[name]],
        "gone": [name for name in last.outputs if name not in beat.outputs],
    }
    changes = [f"{word}: {', '.join(found)}" for word, found in names.items() if found]
    return "; ".join(changes) or "nothing changed"


def read_journal() -> list[str]:
    if not JOURNAL.exists():
        return []
    return [
        line for line in JOURNAL.read_text(encoding="utf-8", errors="replace").splitlines() if line.startswith("- ")
    ]


def write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
