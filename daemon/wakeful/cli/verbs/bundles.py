"""Sessions as files: `save`, `load`, `archive`, `migrate`.

The daemon reads and writes the bundles; this module shows the progress. A bundle moves to another host as a file, or by
ssh to `wakeful load --move -` there, whose receipt is returned here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import Failure
from wakeful.cli.progress import Bar
from wakeful.cli.text import escape, paint
from wakeful.cli.verbs.calls import carry_out
from wakeful.cli.verbs.trust import accept, print_session, trust_one

SUFFIX = ".bundle"


def save_verb(
    options: Options, idempotency_key: str | None, name: str, mark: str | None, at: str | None, note: str | None,
    output: str | None,
) -> None:  # fmt: skip
    if mark is not None:
        if output is not None:
            raise click.UsageError("give --as for a checkpoint or -o for a bundle, not both")
        carry_out(options, "save", idempotency_key, name=name, mark=mark, at=at, note=note)
        return
    if at is not None or note is not None:
        raise click.UsageError("--at and --note belong to a checkpoint: --as MARK")
    path = Path(output or f"{name.replace('/', '-')}{SUFFIX}").absolute()
    say(options, carry(options, "save", name=name, path=str(path)))


def load_verb(
    options: Options, source: str, new: str | None, root: str | None, is_move: bool, is_trusted: bool, is_sure: bool
) -> None:
    if is_sure and not is_trusted:
        raise click.UsageError("--yes goes with --trust")
    if is_move and (new is not None or root is not None):
        raise click.UsageError("a session that moves keeps its name and its spec: leave --as and --root out")
    if source == "-":
        answer = load_from_input(options, new, root, is_move)
    elif os.sep in source or os.path.exists(source):
        answer = carry(
            options, "load", path=os.path.abspath(source), new=new, root=root and os.path.abspath(root), move=is_move
        )
    else:
        answer = carry(options, "load", name=source)
    if not is_trusted or answer.get("needs_trust") is None:
        say(options, answer)
        print_asked(options, answer)
        return
    if not options.is_json:
        say(options, answer)
        trust_one(options, options.client(), answer["name"], is_sure=is_sure)
    elif is_sure:
        accept(options.client(), answer["name"])
        say(options, answer | {"needs_trust": None})
    else:
        say(options, answer)


def print_asked(options: Options, answer: dict[str, Any]) -> None:
    """Print which programs a spec of another author would run and which places it would reach, before it may run."""
    if options.is_json or answer.get("needs_trust") is None:
        return
    print_session(answer["name"], answer["spec"], answer["reach"])
    print(paint(f"it {escape(answer['needs_trust'])}", "warn"))


def load_from_input(options: Options, new: str | None, root: str | None, is_move: bool) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=SUFFIX) as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        return carry(options, "load", path=file.name, new=new, root=root and os.path.abspath(root), move=is_move)


def archive_verb(options: Options, name: str | None, is_due: bool, dry_run: bool) -> None:
    if (name is None) != is_due or (dry_run and not is_due):
        raise click.UsageError("give a NAME, or --due, with or without --dry-run")
    answer = carry(options, "archive", name=name) if name is not None else carry(options, "due", dry_run=dry_run)
    say(options, answer)
    for one in (*answer.get("sessions", ()), *answer.get("outputs", ())) if not options.is_json else ():
        print(
            f"  {escape(one['name'])}: {escape(one['why'])}" + (f"; {escape(one['words'])}" if "words" in one else "")
        )


def migrate_verb(
    options: Options, idempotency_key: str | None, name: str, agent: str | None, model: str | None, to: str | None,
    is_trusted: bool, receipt_file: str | None, give_up: bool,
) -> None:  # fmt: skip
    if sum((to is not None, receipt_file is not None, give_up, bool(agent or model))) > 1:
        raise click.UsageError("give an agent or model, or --to, or --receipt, or --give-up: these are different calls")
    if is_trusted and not (to or "").startswith("ssh://"):
        raise click.UsageError(
            "--trust goes with --to ssh://HOST; to trust a bundle that you carry there, use there: "
            "wakeful load --move FILE --trust"
        )
    if to is None:
        given = read_receipt(receipt_file) if receipt_file is not None else None
        carry_out(
            options,
            "migrate",
            idempotency_key,
            name=name,
            agent=agent,
            model=model,
            receipt=given,
            give_up=give_up or None,
        )
    elif to.startswith("ssh://"):
        move_by_ssh(options, name, to, is_trusted=is_trusted)
    else:
        answer = carry(options, "move", name=name, path=os.path.abspath(to), to=to)
        say(options, answer)
        if not options.is_json:
            print(f"  there:  wakeful load --move {escape(os.path.basename(to))} --json > receipt.json")
            print(f"  here:   wakeful migrate {escape(name)} --receipt receipt.json")


def read_receipt(path: str) -> dict[str, Any]:
    """Read a receipt: the receipt itself, or the whole answer of `load --move --json`."""
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise Failure(
            f"{escape(path)}: no receipt can be read there ({error}); "
            "expected the output of `wakeful load --move FILE --json`"
        ) from None
    found = found.get("receipt", found) if isinstance(found, dict) else None
    if not isinstance(found, dict) or "move" not in found:
        raise Failure(f"{escape(path)} holds no receipt; expected the output of `wakeful load --move FILE --json`")
    return found


def move_by_ssh(options: Options, name: str, to: str, *, is_trusted: bool) -> None:
    """Freeze the session here, load it on the other host, and bring the receipt back.

    A failure in between leaves the session frozen, and its message says so.
    """
    target = urlsplit(to)
    host = target.hostname
    if not host or target.path not in ("", "/") or host.startswith("-"):
        raise Failure(f"{escape(to)} names no host; expected for example ssh://laptop or ssh://user@laptop:2222")
    words = ["ssh", "-T", "-o", "BatchMode=yes", *(["-p", str(target.port)] if target.port else [])]
    words += [
        "--",
        f"{target.username}@{host}" if target.username else host,
        "wakeful",
        "load",
        "--move",
        "-",
        "--json",
    ]
    words += ["--trust", "--yes"] if is_trusted else []
    with tempfile.TemporaryDirectory(prefix="wakeful-move-") as folder:
        path = Path(folder) / f"move{SUFFIX}"
        carry(options, "move", name=name, path=str(path), to=to)
        with path.open("rb") as bundle:
            try:
                done = subprocess.run(words, stdin=bundle, capture_output=True, text=True, check=False)
            except OSError as error:
                raise Failure(
                    f"{escape(name)} is frozen, and ssh cannot be started: {error.strerror}; {_what_now(name)}"
                ) from None
    if done.returncode != 0:
        said = escape(" ".join((done.stderr or done.stdout).split())[-300:])
        raise Failure(
            f"{escape(name)} is frozen, and {escape(to)} did not take it (exit {done.returncode}): {said}; "
            f"{_what_now(name)}"
        )
    try:
        answer = json.loads(done.stdout)
        receipt, doubt = answer["receipt"], answer.get("needs_trust")
    except (ValueError, KeyError, TypeError):
        raise Failure(f"{escape(name)} is frozen, and {escape(to)} gave no receipt; {_what_now(name)}") from None
    carry_out(options, "migrate", None, name=name, receipt=receipt)
    if doubt is not None and not options.is_json:
        print(f"  there it {escape(doubt)}")


def _what_now(name: str) -> str:
    shown = escape(name)
    return (
        f"check there whether it arrived, then: wakeful migrate {shown} --receipt FILE, or: "
        f"wakeful migrate {shown} --give-up"
    )


def carry(options: Options, what: str, **body: Any) -> dict[str, Any]:
    """Start the work, show its progress on a terminal, and return its answer."""
    with Bar(is_shown=not options.is_json) as tell:
        for line in options.client().post_lines(f"/bundle/{what}", **body):
            found: dict[str, Any] = json.loads(line)
            if "detail" in found:
                raise Failure(escape(found["detail"]))
            if "words" in found:
                return found
            tell(found["done"], found["total"])
    raise Failure("the daemon stopped before this was finished; repeat the command")


def say(options: Options, answer: dict[str, Any]) -> None:
    print(json.dumps(answer) if options.is_json else f"{escape(answer['name'])}: {escape(answer['words'])}")
