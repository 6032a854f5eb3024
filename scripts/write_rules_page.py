"""Write the table of tests at the end of docs/rules.md.

`make docs` runs it. A test holds a rule if its name begins with `test_rule_<number>_`. The part before the mark is
written by hand. With --check, the script only reports whether the table is stale.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "docs" / "rules.md"
MARK = "<!-- from here on made by `make docs` from the names of the tests -->"


def main() -> int:
    text = PAGE.read_text()
    before, mark, _ = text.partition(MARK)
    assert mark, f"{PAGE} has no mark {MARK}"
    made = before + MARK + "\n" + "\n".join(list_lines()) + "\n"
    if made == text:
        return 0
    if "--check" in sys.argv:
        print("docs/rules.md is stale; `make docs` writes it", file=sys.stderr)
        return 1
    PAGE.write_text(made)
    return 0


def list_lines() -> Iterator[str]:
    yield "| rule | tests |"
    yield "|---|---|"
    for rule, files in sorted(count_tests().items()):
        yield f"| {rule} | {', '.join(f'`{file}` ({number})' for file, number in sorted(files.items()))} |"


def count_tests() -> dict[int, Counter[str]]:
    """Return the number of tests of each rule, by file."""
    found: dict[int, Counter[str]] = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for number in re.findall(r"def test_rule_(\d+)_", path.read_text()):
            found.setdefault(int(number), Counter())[str(path.relative_to(REPOSITORY))] += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
