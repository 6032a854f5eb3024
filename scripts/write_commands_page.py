"""Write the reference at the end of docs/commands.md from the table of verbs.

`make docs` runs it. The part before the mark is written by hand. With --check, the script only reports whether the
reference is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from wakeful.verbs.table import VERBS
from wakeful.verbs.verb import SECTIONS, Argument, Verb

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
MARK = "<!-- from here on made by `make docs` from the table of verbs, daemon/wakeful/verbs/ -->"


def main() -> int:
    text = PAGE.read_text()
    before, mark, _ = text.partition(MARK)
    assert mark, f"{PAGE} has no mark {MARK}"
    made = before + MARK + "\n" + "\n".join(list_lines()) + "\n"
    if made == text:
        return 0
    if "--check" in sys.argv:
        print("docs/commands.md is stale; `make docs` writes it anew", file=sys.stderr)
        return 1
    PAGE.write_text(made)
    return 0


def list_lines() -> Iterator[str]:
    yield "## Every verb"
    yield ""
    yield (
        "Every verb also has `--json` and `--socket PATH`. A token reaches a route if it has the route's scope; "
        "`admin` reaches all but those of the owner."
    )
    for section in SECTIONS:
        for verb in VERBS.values():
            if verb.section == section:
                yield from describe_verb(verb)
    yield ""
    yield "Calls that have no command of their own:"
    yield ""
    yield "| call | does | fields |"
    yield "|---|---|---|"
    for verb in VERBS.values():
        if verb.section is None:
            fields = ", ".join(f"`{one.name}`" for one in verb.sent)
            yield f"| `{verb.routes[0].key}` | {escape(verb.words)} | {fields} |"


def describe_verb(verb: Verb) -> Iterator[str]:
    yield ""
    yield f"**`{say_usage(verb)}`**: {verb.words}."
    facts = list(list_facts(verb))
    if facts:
        yield f"  {' '.join(facts)}"
    options = [one for one in verb.typed if one.option]
    if options:
        yield ""
        yield "| option | |"
        yield "|---|---|"
        for one in options:
            yield f"| `{say_option(one)}` | {escape(one.help)} |"


def list_facts(verb: Verb) -> Iterator[str]:
    if verb.routes:
        yield "HTTP: " + ", ".join(f"`{one.key}` ({one.scope or 'any token'})" for one in verb.routes) + "."
    if any(one.is_for_runs for one in verb.routes):
        yield "A run reaches it for its own session."
    if verb.role == "maintainer":
        yield "For maintainers only, where the spec names people."
    if verb.is_repeatable:
        yield "Safe to repeat with its key."
    if verb.undo is not None:
        yield f"Undone by `{verb.undo}`."


def say_usage(verb: Verb) -> str:
    words = [say_positional(one) for one in verb.typed if not one.option]
    options = ["[OPTION]…"] if any(one.option for one in verb.typed) else []
    return " ".join(["wakeful", verb.name, *filter(None, words), *options])


def say_positional(argument: Argument) -> str:
    name = argument.metavar if argument.metavar is not None else "|".join(argument.choices) or argument.name.upper()
    is_optional = argument.on_terminal == "optional" or not (argument.is_needed or argument.is_repeated)
    return f"[{name}]" if is_optional and not name.startswith("[") and name else name


def say_option(argument: Argument) -> str:
    names = argument.option.replace(" ", ", ").replace("/", ", ")
    if argument.kind == "flag":
        return names
    value = argument.metavar or "|".join(argument.choices) or argument.name.upper()
    return f"{names} {value}".replace("|", "\\|")


def escape(text: str) -> str:
    """Escape the bar, which would end a cell of the table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
