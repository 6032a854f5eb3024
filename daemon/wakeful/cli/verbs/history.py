"""The calls on a session's history: `rewind`, `fork`, `merge`, `resolve`, `compress`.

A position is a seq, a time (RFC 3339, or `2h` for two hours ago) or a checkpoint's name.
`--dry-run` says what would be done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import CONFLICT, FORK, POSITION, complete_folders
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.text import escape
from wakeful.cli.verbs.lifecycle import carry_out, named
from wakeful.cli.verbs.previews import show_compress, show_erase, show_merge, show_rewind

DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@verb(
    "rewind",
    "wakeful rewind payroll march --files --dry-run",
    "wakeful rewind payroll 12       # to seq 12",
    "wakeful rewind payroll 2h       # to two hours ago",
)
@named
@click.argument("to", type=POSITION, metavar="POSITION")
@click.option("--files", is_flag=True, help="Also take back what its runs wrote since, from what was kept.")
@click.option("--force", is_flag=True, help="With --files: also where others changed a file since; theirs is kept.")
@DRY_RUN
def rewind_verb(options: Options, name: str, key: str | None, to: str, files: bool, force: bool, dry_run: bool) -> None:
    """Go back to a seq, time or checkpoint. Nothing is deleted: what came after stays, and can be forked."""
    if force and not files:
        raise click.UsageError("--force is about files; give --files with it")
    found = answer(
        options, "rewind", key, name=name, to=to, files=files, force=force, dry_run=dry_run, show=show_rewind
    )
    if any(file["ending"] in ("refused", "failed") for file in found.get("files", ())):
        raise Failure(code=FAILED)


@verb("fork", "wakeful fork payroll --as trial --workspace", "wakeful fork payroll --as trial --at march")
@named
@click.option("--as", "new", metavar="NAME", help="The fork's name.")
@click.option("--at", type=POSITION, metavar="POSITION", help="From here, instead of where the session stands.")
@click.option("--fresh", is_flag=True, help="Take facts and hand-off only.")
@click.option(
    "--workspace", shell_complete=complete_folders, is_flag=False, flag_value="", metavar="[DIR]",
    help="A place of its own for its files: a checkout of the repository, or copies; in DIR, which is empty, "
        "or below the state folder.",
)  # fmt: skip
def fork_verb(
    options: Options, name: str, key: str | None, new: str | None, at: str | None, fresh: bool, workspace: str | None
) -> None:
    """A new session from any point of another, asleep until it is activated.

    What it writes is detached until it has its own.
    """
    place = os.path.abspath(workspace) if workspace else workspace
    carry_out(options, "fork", key, name=name, new=new, at=at, fresh=fresh, workspace=place)


@verb("merge", "wakeful merge payroll trial --dry-run", "wakeful merge payroll trial")
@named
@click.argument("fork", type=FORK)
@DRY_RUN
def merge_verb(options: Options, name: str, key: str | None, fork: str, dry_run: bool) -> None:
    """Bring FORK back into NAME: facts and the files of its workspace three-way, its conversation as a hand-off,
    what both changed as conflicts."""
    found = answer(options, "merge", key, name=name, fork=fork, dry_run=dry_run, show=show_merge)
    if any(file["ending"] in ("refused", "failed") for file in found.get("files", ())):
        raise Failure(code=FAILED)


@verb(
    "resolve",
    "wakeful resolve payroll rate --theirs --because 'it was measured'",
    "wakeful resolve payroll 1 --value 9 --because 'both were wrong'",
)
@named
@click.argument("conflict", type=CONFLICT, metavar="NUMBER|KEY")
@click.option("--ours", "choice", flag_value="ours", help="Keep what stands here.")
@click.option("--theirs", "choice", flag_value="theirs", help="Take what the fork says.")
@click.option("--value", metavar="TEXT", help="Neither: this.")
@click.option("--because", metavar="TEXT", required=True, help="Why, kept with the fact.")
def resolve_verb(
    options: Options, name: str, key: str | None, conflict: str, choice: str | None, value: str | None, because: str
) -> None:
    """Settle an open conflict of a merge, with a reason. `show` lists them."""
    if (choice is None) == (value is None):
        raise click.UsageError("give one of --ours, --theirs and --value TEXT")
    carry_out(
        options, "resolve", key, name=name, conflict=conflict, choice=choice or "value", value=value, rationale=because
    )


@verb("compress", "wakeful compress payroll --keep 5 --dry-run")
@named
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=20,
    metavar="N",
    help="Leave the newest N messages as they are, 20 unless told.",
)
@DRY_RUN
def compress_verb(options: Options, name: str, key: str | None, keep: int, dry_run: bool) -> None:
    """Let a summary stand for old conversation. Facts and log stay; undone by rewind."""
    answer(options, "compress", key, name=name, keep=keep, dry_run=dry_run, show=show_compress)


def answer(
    options: Options, verb_name: str, key: str | None, *, show: Callable[[dict[str, Any]], Iterator[str]], **body: Any
) -> dict[str, Any]:
    """Carry out, or with --dry-run say what would be done and with what."""
    found = options.client().call(verb_name, key, **body)
    if options.is_json:
        print(json.dumps(found))
        return found
    print(f"{escape(found['name'])}: {escape(found['words'])}")
    for file in found.get("files", ()):
        reason = f": {file['reason']}" if file["reason"] else ""
        kept = f" (what was there is kept as {file['kept']})" if file["kept"] else ""
        print(f"  {file['ending']:<8}  {escape(file['path'])}{escape(reason)}{kept}")
    if "preview" in found:
        for line in show(found["preview"]):
            print(line)
    return found


@verb("erase", "wakeful erase payroll 12 --because 'a password' --dry-run")
@named
@click.argument("seq", type=click.IntRange(1))
@click.option("--because", metavar="TEXT", help="Why, for the record.")
@DRY_RUN
def erase_verb(options: Options, name: str, key: str | None, seq: int, because: str | None, dry_run: bool) -> None:
    """Remove what record SEQ says, for good: a secret that should not have been said.

    Its hash stays, so the chain still verifies.
    """
    answer(options, "erase", key, name=name, seq=seq, reason=because, dry_run=dry_run, show=show_erase)
