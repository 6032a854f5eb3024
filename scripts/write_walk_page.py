"""Write the table of docs/walk.md from one real save, traced through a real daemon (walk.py).

`make docs` runs it. The part before the mark is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

from walk import show_counts, show_table, trace_save

PAGE = Path(__file__).parent.parent / "docs" / "walk.md"
MARK = "<!-- from here on made by `make docs` from a real save -->"


def main() -> int:
    before, mark, _ = PAGE.read_text().partition(MARK)
    assert mark, f"{PAGE} has no mark {MARK}"
    walk = trace_save()
    PAGE.write_text("\n".join([before + MARK, "", *show_table(walk), "", *show_counts(walk)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
