"""The verbs that change a session's history and print more than the daemon's sentence: `rewind`, `merge`, `resolve`,
`compress`, `erase`.

A position is a seq, a time (RFC 3339, or `2h` for two hours ago) or a checkpoint's name. `--dry-run` prints what would
be done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import escape
from wakeful.cli.verbs.calls import carry_out
from wakeful.cli.verbs.previews import show_compress, show_erase, show_merge, show_rewind

_FAILED = ("refused", "failed")


def rewind_verb(options: Options, idempotency_key: str | None, **body: Any) -> None:
    if body["force"] and not body["files"]:
        raise click.UsageError("--force is about files; give --files with it")
    _fail_by_files(answer(options, "rewind", idempotency_key, show=show_rewind, **body))


def merge_verb(options: Options, idempotency_key: str | None, **body: Any) -> None:
    _fail_by_files(answer(options, "merge", idempotency_key, show=show_merge, **body))


def _fail_by_files(found: dict[str, Any]) -> None:
    """Exit 1 if a file was not written."""
    if any(file["ending"] in _FAILED for file in found.get("files", ())):
        raise Failure(code=FAILED)


def resolve_verb(
    options: Options, idempotency_key: str | None, choice: str | None, value: str | None, **body: Any
) -> None:
    if (choice is None) == (value is None):
        raise click.UsageError("give one of --ours, --theirs and --value TEXT")
    carry_out(options, "resolve", idempotency_key, choice=choice or "value", value=value, **body)


def compress_verb(options: Options, idempotency_key: str | None, **body: Any) -> None:
    answer(options, "compress", idempotency_key, show=show_compress, **body)


def erase_verb(options: Options, idempotency_key: str | None, **body: Any) -> None:
    answer(options, "erase", idempotency_key, show=show_erase, **body)


def answer(
    options: Options, verb_name: str, key: str | None, *, show: Callable[[dict[str, Any]], Iterator[str]], **body: Any
) -> dict[str, Any]:
    """Carry the verb out. With --dry-run, print what would be done, and the preview below it."""
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
