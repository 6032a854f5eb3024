"""Text for people: numbers with their nouns, progress callbacks, and escapes that make text from outside safe to print.

Names, paths, refs, messages, notes, facts and the output of runs are data. The command line, and the daemon in the
foreground, pass each of them through `escape` (one line) or `escape_lines`. Escaping twice changes nothing. Every
command loads this module, so it imports little, and nothing of wakeful.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# A progress callback: the number of finished items, and the total.
ReportProgress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """A progress callback that does nothing."""


def count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 record`, `2 records`, `1,000,000 records`. Only for regular nouns."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe_gap(left_out_bytes: int) -> str:
    """Return the line that replaces the middle of a long output, which was not kept."""
    return f"\n[not kept: {count(left_out_bytes, 'byte')}]\n"


# Control characters, line separators, marks that reorder text, invisible characters, and lone surrogates. Joiners are
# not listed, because some scripts need them.
_MARKS = (
    "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
# Compiled when first needed, because that takes a millisecond, and `wakeful list` seldom needs them.
_UNSAFE = f"[\x00-\x1f{_MARKS}]"
_UNSAFE_BUT_LINES = f"[\x00-\x08\x0b-\x1f{_MARKS}]"


def escape(text: str) -> str:
    """Make text safe to print on one line of a terminal: ESC is shown as \\x1b, a newline as \\n."""
    # A fast path, because nearly every text is plain, and a list may have 10,000 names.
    return text if text.isascii() and text.isprintable() else re.sub(_UNSAFE, _show, text)


def escape_lines(text: str) -> str:
    """Make text of several lines safe to print on a terminal. Newlines and tabs stay."""
    return re.sub(_UNSAFE_BUT_LINES, _show, text)


def escape_output(output: bytes) -> str:
    """Make a run's output safe to print. Each byte that is not UTF-8 is shown as an escape."""
    return escape_lines(output.decode(errors="backslashreplace"))


def _show(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
