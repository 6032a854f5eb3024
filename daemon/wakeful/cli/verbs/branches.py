"""The calls on a session's history: `save --as`, `rewind`, `fork`, `merge`, `resolve`, `compress`.

A position is a seq, a time (RFC 3339, or `2h` for two hours ago) or a checkpoint's name. `--dry-run` says what would be done.
"""

from __future__ import annotations

import json
from typing import Any

import click

from wakeful.cli.command import verb
from wakeful.cli.options import Options
from wakeful.cli.text import escape, escape_lines, paint
from wakeful.cli.verbs.calls import carry_out, named

DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@verb("save")
@named
@click.option("--as", "mark", metavar="MARK", required=True, help="The checkpoint's name.")
@click.option("--at", metavar="POSITION", help="Mark this position instead of the present one.")
@click.option("--note", metavar="TEXT", help="Why, kept with it.")
def save_verb(options: Options, name: str, key: str | None, mark: str, at: str | None, note: str | None) -> None:
    """Mark a checkpoint: a named position to come back to."""
    carry_out(options, "save", key, name=name, mark=mark, at=at, note=note)


@verb("rewind")
@named
@click.argument("to", metavar="POSITION")
@DRY_RUN
def rewind_verb(options: Options, name: str, key: str | None, to: str, dry_run: bool) -> None:
    """Go back to a seq, time or checkpoint. Nothing is deleted: what came after stays, and can be forked."""
    answer(options, "rewind", key, name=name, to=to, dry_run=dry_run)


@verb("fork")
@named
@click.option("--as", "new", metavar="NAME", help="The fork's name.")
@click.option("--at", metavar="POSITION", help="From here, instead of where the session stands.")
@click.option("--fresh", is_flag=True, help="Take facts and hand-off only.")
def fork_verb(options: Options, name: str, key: str | None, new: str | None, at: str | None, fresh: bool) -> None:
    """A new session from any point of another, asleep until it is activated. What it writes is detached until it has its own."""
    carry_out(options, "fork", key, name=name, new=new, at=at, fresh=fresh)


@verb("merge")
@named
@click.argument("fork")
@DRY_RUN
def merge_verb(options: Options, name: str, key: str | None, fork: str, dry_run: bool) -> None:
    """Bring FORK back into NAME: facts three-way, its conversation as a hand-off, what both changed as open conflicts."""
    answer(options, "merge", key, name=name, fork=fork, dry_run=dry_run)


@verb("resolve")
@named
@click.argument("conflict", metavar="NUMBER|KEY")
@click.option("--ours", "choice", flag_value="ours", help="Keep what stands here.")
@click.option("--theirs", "choice", flag_value="theirs", help="Take what the fork says.")
@click.option("--value", metavar="TEXT", help="Neither: this.")
@click.option("--because", metavar="TEXT", required=True, help="Why, kept with the fact.")
def resolve_verb(options: Options, name: str, key: str | None, conflict: str, choice: str | None, value: str | None, because: str) -> None:
    """Settle an open conflict of a merge, with a reason. `show` lists them."""
    if (choice is None) == (value is None):
        raise click.UsageError("give one of --ours, --theirs and --value TEXT")
    carry_out(options, "resolve", key, name=name, conflict=conflict, choice=choice or "value", value=value, rationale=because)


@verb("compress")
@named
@click.option("--keep", type=click.IntRange(0), default=20, metavar="N", help="Leave the newest N messages as they are, 20 unless told.")
@DRY_RUN
def compress_verb(options: Options, name: str, key: str | None, keep: int, dry_run: bool) -> None:
    """Let a summary stand for old conversation. Facts and log stay; undone by rewind."""
    answer(options, "compress", key, name=name, keep=keep, dry_run=dry_run)


def answer(options: Options, verb_name: str, key: str | None, **body: Any) -> None:
    """Carry out, or with --dry-run say what would be done and with what."""
    found = options.client().call(verb_name, key, **body)
    if options.is_json:
        print(json.dumps(found))
        return
    print(f"{escape(found['name'])}: {escape(found['words'])}")
    for title, value in found.get("preview", {}).items():
        if value:
            print(paint(f"  {title}", "dim"))
            print(_indent(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)))


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in escape_lines(text).splitlines())
