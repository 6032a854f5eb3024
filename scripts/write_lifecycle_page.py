"""Write the diagram and the table of docs/lifecycle.md from the transitions of the core.

`make docs` runs it. The part before the mark is written by hand. With --check, the script only reports whether they are
stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from wakeful.core.record.lifecycle_stages import TRANSITIONS
from wakeful.eventlog.codec import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "lifecycle.md"
MARK = (
    "<!-- from here on made by `make docs` from the transitions in daemon/wakeful/core/record/lifecycle_stages.py -->"
)


def main() -> int:
    text = PAGE.read_text()
    before, mark, _ = text.partition(MARK)
    assert mark, f"{PAGE} has no mark {MARK}"
    made = before + MARK + "\n" + "\n".join(list_lines()) + "\n"
    if made == text:
        return 0
    if "--check" in sys.argv:
        print("docs/lifecycle.md is stale; `make docs` writes it anew", file=sys.stderr)
        return 1
    PAGE.write_text(made)
    return 0


def list_lines() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> sleeping: session_opened"
    for (source, target), kinds in gather_arrows().items():
        yield f"    {source} --> {target}: {', '.join(kinds)}"
    yield "```"
    yield ""
    yield "| from | to | by |"
    yield "|---|---|---|"
    for (source, target), kinds in gather_arrows().items():
        yield f"| {source} | {target} | {', '.join(f'`{kind}`' for kind in kinds)} |"


def gather_arrows() -> dict[tuple[str, str], list[str]]:
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        for source in row.sources:
            for target in row.targets:
                arrows.setdefault((source, target), []).append(KINDS[row.event])
    return arrows


if __name__ == "__main__":
    sys.exit(main())
