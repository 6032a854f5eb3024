"""Formats text for a terminal: tables, colours, times, wrapping.

Colours are used only on a terminal without NO_COLOR. All names, paths, messages and outputs of runs must pass `escape`
(text/display.py) before they are printed, so that they cannot control the terminal. There is no table library, because
its import takes longer than the whole command.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from wakeful.text.display import count as count
from wakeful.text.display import escape as escape
from wakeful.text.display import escape_lines as escape_lines
from wakeful.text.display import escape_output as escape_output

NARROWEST = 40
# A name of a colour. mypy refuses any other name.
Colour = Literal[
    "", "running", "succeeded", "suspended", "sleeping", "failed", "lost", "cancelled", "interrupted", "terminated",
    "dim", "bold", "good", "bad", "warn",
]  # fmt: skip
COLOURS: dict[Colour, str] = {
    "": "", "running": "36", "succeeded": "32", "suspended": "", "sleeping": "33", "failed": "31", "lost": "31",
    "cancelled": "33", "interrupted": "33", "terminated": "2", "dim": "2", "bold": "1", "good": "32", "bad": "31",
    "warn": "33",
}  # fmt: skip
_DIFF_COLOURS: dict[str, Colour] = {"+": "good", "-": "bad", "@": "dim", "\\": "dim"}
# A time in UTC as a separate word, not inside a path or a name such as backup/2026-01-31T06:00:00Z.tar.
_MOMENT = r"(?<![\w./:@+-])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?![\w/@+-]|[:.]\w)"
_SECONDS = ((86400, "d"), (3600, "h"), (60, "min"))


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour) -> str:
    code = COLOURS[colour]
    return f"\x1b[{code}m{text}\x1b[0m" if code and is_coloured() else text


def find_colour(word: str | None) -> Colour:
    """Return the colour of a word that the daemon sent, such as a state or an outcome. Most words have none."""
    return word if word in COLOURS else ""


def paint_diff(line: str, indent: str = "") -> str:
    """Paint an escaped line of a unified diff by its first character."""
    return paint(f"{indent}{line}", _DIFF_COLOURS.get(line[:1], ""))


def columns() -> int:
    """Return COLUMNS, else the width of the terminal, else 80. Importing shutil would take as long as json."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said) > 0:
        return max(int(said), NARROWEST)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns or 80, NARROWEST)
    except (OSError, ValueError):
        return 80


def measure(text: str) -> int:
    """Count the columns on the screen. Wide characters take two columns, combining characters none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def fit(text: str, width: int) -> str:
    """Cut the text to this width, with an ellipsis at the cut."""
    if measure(text) <= width:
        return text
    kept, used = [], 1
    for one in text:
        used += measure(one)
        if used > width:
            break
        kept.append(one)
    return "".join(kept) + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - measure(text))


def format_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[Sequence[Colour]] | None = None
) -> Iterator[str]:
    """Yield the lines of a table that fits the screen.

    Only the last column is cut, because people copy names from the first.
    """
    widths = [max(map(measure, column)) for column in zip(head, *rows, strict=True)]
    room = columns() - sum(widths[:-1]) - 2 * (len(widths) - 1)
    widths[-1] = max(min(widths[-1], room), 10)
    template = "  ".join(f"{{:<{width}}}" for width in widths)
    yield paint(template.format(*head).rstrip(), "dim")
    is_painted = colours is not None and is_coloured()
    for index, row in enumerate(rows):
        cells = [*row[:-1], fit(row[-1], widths[-1])]
        if not is_painted and "".join(cells).isascii():
            yield template.format(*cells).rstrip()
            continue
        padded = map(pad, cells, widths)
        yield "  ".join(map(paint, padded, colours[index]) if colours is not None and is_painted else padded).rstrip()


def format_bytes(size: int) -> str:
    """Format a size as `0`, `812B` or `1.2M`: up to three digits and a decimal unit."""
    if size < 1000:
        return f"{size}B" if size else "0"
    value = float(size)
    for unit in "kMGTP":
        value /= 1000
        if value < 999.5 or unit == "P":
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    raise AssertionError("every size has a unit")


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def format_ago(text: str | None, now: datetime | None = None) -> str:
    """Format a time relative to now, as `3 min ago` or `in 2 h`."""
    return "never" if text is None else format_age(((now or datetime.now(UTC)) - parse_time(text)).total_seconds())


def format_age(seconds: float) -> str:
    if abs(seconds) < 1:
        return "just now"
    span = format_span(abs(seconds))
    return f"{span} ago" if seconds > 0 else f"in {span}"


def format_span(seconds: float) -> str:
    for size, unit in _SECONDS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def format_exact(text: str | None) -> str:
    """Format a time as local time to the second, with its UTC offset."""
    return "never" if text is None else parse_time(text).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")


def show_local_times(text: str) -> str:
    """Convert the UTC times in a sentence of the daemon to local time."""
    # Most lines have no time, and so no Z. Return early for them, because importing `re` is slow.
    if "Z" not in text:
        return text
    import re

    return re.sub(_MOMENT, lambda found: format_exact(found[0]), text)


def format_both(text: str | None) -> str:
    return "never" if text is None else f"{format_ago(text)} ({format_exact(text)})"


def wrap(text: str, indent: str = "") -> list[str]:
    """Wrap text into lines that fit the screen. A longer word stays whole, so that it can be copied."""
    return [indent + line for line in wrap_to(text, columns() - len(indent))]


def wrap_to(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and measure(line) + 1 + measure(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def quote_prose(text: str, indent: str = "  ") -> list[str]:
    """Quote text with its own line breaks behind a bar, so that it cannot be mistaken for our own output."""
    bar = paint("│", "dim")
    return [
        f"{indent}{bar} {part}".rstrip()
        for line in escape_lines(text).strip("\n").split("\n")
        for part in wrap_to(line, columns() - len(indent) - 2)
    ]


def fold(text: str, width: int) -> list[str]:
    """Wrap text into lines of a column. A word wider than the column is split, after a slash if it has one."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and measure(line) + 1 + measure(word) <= width:
            line = f"{line} {word}"
            continue
        if line and (measure(word) > width or len(line) <= 2):
            # The word is split anyway, or a mark such as `>` would be alone on its line.
            word = f"{line} {word}"
        elif line:
            lines.append(line)
        *parts, line = _part(word, width)
        lines += parts
    return [*lines, line]


def _part(word: str, width: int) -> list[str]:
    parts = []
    while measure(word) > width:
        # `fit` leaves room for an ellipsis, so it is given one more column.
        most = max(len(fit(word, width + 1)) - 1, 1)
        cut = word.rfind("/", 1, most) + 1 or most
        parts.append(word[:cut])
        word = word[cut:]
    return [*parts, word]


def format_folded_table(head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table whose last column is wrapped, not cut, with a note below each row that has one."""
    widths = [max(map(measure, column)) for column in zip(head[:-1], *(row[:-1] for row in rows), strict=True)]
    used = sum(widths) + 2 * len(widths)
    # On a very narrow screen a readable column matters more than one that fits.
    room = max(columns() - used, 20)
    yield paint("  ".join([*map(pad, head[:-1], widths), head[-1]]), "dim")
    for row, note in zip(rows, notes, strict=True):
        first, *more = fold(row[-1], room)
        yield "  ".join([*map(pad, row[:-1], widths), first]).rstrip()
        yield from (" " * used + line for line in more)
        yield from (" " * used + paint(line, "dim") for line in fold(note, room) if line)


def say_slots(slots: dict[str, Any]) -> str:
    """Format the slots of commands, and of agents if one is in use."""
    agents = f", {slots['agents']['used']} of {slots['agents']['of']} for agents" if slots["agents"]["used"] else ""
    return f"{slots['used']} of {count(slots['of'], 'slot')}{agents}"


def write_over(text: str) -> None:
    """Replace the current line of the terminal.

    The new text is padded with spaces to the full width, in case the old line was longer. Not every terminal supports
    the control codes that clear a line.
    """
    width = columns() - 1
    print(f"\r{text[:width]:<{width}}", end="", file=sys.stderr, flush=True)


def clear_line() -> None:
    print(f"\r{' ' * columns()}\r", end="", file=sys.stderr, flush=True)
