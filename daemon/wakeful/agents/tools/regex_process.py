"""A program that finds a regular expression in texts. It is a process of its own, because Python cannot stop a match.

`search` starts it by its path, with an interpreter that loads nothing else, and sends texts to its standard input. It
opens no file. Input: a line of JSON, then for each text a line with its length, and the text. Output: a line of JSON
for each text.
"""

import json
import re
import sys

# The most characters shown of one line.
LONGEST_LINE = 400


def find_lines(expression: re.Pattern[str], text: str, most: int) -> list[tuple[int, str]]:
    """Return the number and text of each line with a match, up to `most` lines."""
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
    """Return the line. For a long line, return the part with the match."""
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
