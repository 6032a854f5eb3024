"""A program of its own that finds an expression in texts, so that whoever waits can end it:
Python cannot be stopped inside of a match.

`search` starts it by its path, with an interpreter that loads nothing else, and hands it texts over its standard input;
it opens no file. In: a line of JSON, then for each text a line of JSON with its length and the text. Out: a line of
JSON for each text that was gone through.
"""

import json
import re
import sys

# Enough to show what was found; a line of a megabyte is nobody's.
LONGEST_LINE = 400


def find_lines(expression: re.Pattern[str], text: str, most: int) -> list[tuple[int, str]]:
    """Pairs of line number and line, of at most so many lines that hold a match."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        match = expression.search(line)
        if match is None:
            continue
        found.append((number, show_line(line.rstrip("\r"), match.start())))
        if len(found) >= most:
            break
    return found


def show_line(line: str, at: int) -> str:
    """The part of a long line where the match is."""
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(at - LONGEST_LINE // 4, len(line) - LONGEST_LINE))
    return (
        ("…" if start else "") + line[start : start + LONGEST_LINE] + ("…" if start + LONGEST_LINE < len(line) else "")
    )


def main() -> None:
    source = sys.stdin.buffer
    asked = json.loads(source.readline())
    expression = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    while line := source.readline():
        text = source.read(json.loads(line)).decode(errors="replace")
        print(json.dumps(find_lines(expression, text, asked["most"])), flush=True)


if __name__ == "__main__":
    main()
