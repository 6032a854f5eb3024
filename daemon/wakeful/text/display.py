"""Text for people: numbers with their nouns, progress callbacks, and escapes that make text from outside safe to print.

Names, paths, refs, messages, notes, facts and the output of runs are data. The command line, and the daemon in the
foreground, pass each of them through `escape` (one line) or `escape_lines`. Escaping twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# A progress callback: how many are done, of how many.
TellFar = Callable[[int, int], None]


def tell_nobody(done: int, total: int) -> None:
    """A progress callback that does nothing."""


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000,000 records`. Knows regular nouns only, which are all we use."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe_gap(left_out_bytes: int) -> str:
    """The line that stands for the middle of an output, which was not kept."""
    return f"\n[not kept: {count(left_out_bytes, 'byte')}]\n"


# Controls, separators that break a line, marks that reorder text, what cannot be seen, and halves of characters.
# Joiners stay: scripts need them.
_MARKS = (
    "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
# Compiled when first needed: that takes a millisecond, and `wakeful list` seldom needs them.
_UNSAFE = f"[\x00-\x1f{_MARKS}]"
_UNSAFE_BUT_LINES = f"[\x00-\x08\x0b-\x1f{_MARKS}]"


def escape(text: str) -> str:
    """One line in which no character moves a terminal: ESC is shown as \\x1b, a newline as \\n."""
    # Nearly everything is plain, and a list of 10,000 names should not take long.
    return text if text.isascii() and text.isprintable() else re.sub(_UNSAFE, _show, text)


def escape_lines(text: str) -> str:
    """The same for text of several lines: newlines and tabs stay."""
    return re.sub(_UNSAFE_BUT_LINES, _show, text)


def escape_output(output: bytes) -> str:
    """A run's output. Bytes that are not UTF-8 are shown one by one."""
    return escape_lines(output.decode(errors="backslashreplace"))


def _show(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
