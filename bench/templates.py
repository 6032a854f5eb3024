"""Declaring 1,000 sessions by one template, compared with 1,000 specs: the first reading, and one without changes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from table import Bar, Row, print_table
from wakeful.settings import ProjectReader

SECTION = "declaring 1,000 sessions"
SESSIONS = 1000
ROUNDS = 5
SPEC = """\
objective: Answer {stem}.
bindings:
  ticket: {{file: "{path}"}}
  answer: {{file: "answers/{stem}.txt", access: write}}
run: {{command: [cp, "{path}", "answers/{stem}.txt"]}}
"""


def build(folder: Path, *, is_template: bool) -> Path:
    specs = folder / "sessions.d"
    specs.mkdir(parents=True)
    (folder / "tickets").mkdir()
    for number in range(SESSIONS):
        (folder / f"tickets/{number}.md").touch()
        if not is_template:
            (specs / f"ticket-{number}.yaml").write_text(SPEC.format(stem=number, path=f"tickets/{number}.md"))
    if is_template:
        (specs / "ticket@.yaml").write_text("for_each: tickets/*.md\n" + SPEC.format(stem="{stem}", path="{path}"))
    return specs


def read_twice(specs: Path) -> tuple[float, float]:
    """Return the milliseconds of a first reading, and of one that finds nothing new."""
    reader = ProjectReader(specs, {})
    began = time.perf_counter()
    assert len(reader.read().declared) == SESSIONS
    between = time.perf_counter()
    reader.read()
    return (between - began) * 1e3, (time.perf_counter() - between) * 1e3


def measure() -> list[Row]:
    """Return the best of several rounds. Both ways alternate, so that other load on the machine affects both."""
    with tempfile.TemporaryDirectory() as folder:
        one, many = build(Path(folder, "a"), is_template=True), build(Path(folder, "b"), is_template=False)
        rounds = [(read_twice(one), read_twice(many)) for _ in range(ROUNDS)]
    (first, again), (first_specs, again_specs) = (
        tuple(map(min, zip(*side, strict=True))) for side in zip(*rounds, strict=True)
    )
    return [
        Row(SECTION, "a template, read first", first, "ms", Bar("<=", first_specs, "(1,000 specs)")),
        Row(SECTION, "a template, nothing new", again, "ms", Bar("<=", again_specs, "(1,000 specs)")),
    ]


if __name__ == "__main__":
    print_table(measure())
