"""A problem in a file, and its place: the form of every refusal and warning about a spec.

All of specs/ and settings make problems; `check`, `show` and the daemon's refusals show them. The core's judgements of
a folder (a cycle, two writers) use this form, too. It is a separate module because many of its users read no YAML.
"""

from __future__ import annotations

import os

from msgspec import Struct

from wakeful.errors import SpecError


class Problem(Struct, frozen=True):
    """One sentence about one place. Lines and columns count from 1, as editors do."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.text}"


class RefusedSpec(SpecError):
    """A file that cannot be accepted. The message has every problem, one per line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def refuse(file: str, line: int, column: int, text: str) -> RefusedSpec:
    return RefusedSpec((Problem(file, line, column, text),))


def show_name(name: str) -> str:
    """Show a file name as one printable line, whatever bytes it has, because each problem is one line."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    )
