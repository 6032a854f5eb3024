"""`wakeful trace`: runs a session once with tracing, and prints the accesses that were denied.

It also prints the lines that would allow them in the session's spec. The daemon runs the session and makes the lines;
this module waits and prints. All paths come from the traced program, so they are escaped here. In the lines the daemon
has also quoted them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click

from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape, paint
from wakeful.cli.verbs.lifecycle import wait_for_run
from wakeful.client.wire import quote_name

# The most paths of one folder that are listed. With more, only the folder is printed.
_TOLD_OF_A_FOLDER = 4


def trace_verb(options: Options, name: str, observe: bool, run: int | None) -> None:
    if observe and run is not None:
        raise click.UsageError("--run shows what was recorded, and --observe is about a new run; give one of them")
    client = options.client()
    if run is None:
        run = _run_traced(client, name, observe)
    report = client.get(f"/sessions/{quote_name(name)}/trace", run=run)
    print(json.dumps(report) if options.is_json else "\n".join(_say(report)))
    if report["outcome"] != "succeeded":
        raise Failure(code=FAILED)


def _run_traced(client: Client, name: str, is_observed: bool) -> int:
    answer = client.call("trace", None, name=name, observe=is_observed)
    ended = wait_for_run(client, name, answer["record"])
    if ended["kind"] != "run_finished":
        raise Failure(f"{escape(name)}: {escape(ended['words'])}")
    return int(ended["run"])


def _say(report: dict[str, Any]) -> Iterator[str]:
    reason = f": {escape(report['reason'])}" if report["reason"] else ""
    yield (
        f"{escape(report['name'])}: run {report['run']} "
        f"{paint(report['outcome'], 'good' if report['outcome'] == 'succeeded' else 'bad')}{reason}"
    )
    if report["words"]:
        yield paint(escape(report["words"]), "warn")
    if report["denied"]:
        yield from _say_denied(report)
    elif not report["words"]:
        yield "it asked for nothing outside its reach" if report["observed"] else "nothing was denied"
    if report["lines"]:
        yield from ("", "to allow this, add to its spec (but first check that the run needs it):", "")
        yield from (escape(line) for line in report["lines"])
        if report["paste"]["allow"] is not None or report["paste"]["network"] is not None:
            yield from ("", paint("the lines of allow and network replace the whole present value", "dim"))
    if report["absent"]:
        yield from (
            "",
            "first create these paths, because missing paths are not opened:",
            "",
            f"mkdir -p {escape(shlex.join(report['absent']))}",
        )
    if not report["observed"] and report["outcome"] != "succeeded" and report["denied"]:
        yield from (
            "",
            paint("the run ended there: trace it again with this allowed, or once with --observe", "dim"),
        )


def _say_denied(report: dict[str, Any]) -> Iterator[str]:
    yield "its isolation would deny:" if report["observed"] else "denied:"
    told = sorted(report["denied"], key=_group_of)
    for (access, folder, words), group in groupby(told, key=_group_of):
        names = [one["what"] for one in group]
        if len(names) > _TOLD_OF_A_FOLDER:
            names = [f"{folder}/ ({count(len(names), 'time')}, such as {names[0].rpartition('/')[2]})"]
        for name in names:
            yield f"  {access:<8}{escape(name)}" + (paint(f"  {escape(words)}", "dim") if words else "")
    if report["more"]:
        yield f"  and {report['more']} more, which were not kept"


def _group_of(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["access"], one["what"].rpartition("/")[0], one["words"] or ""
