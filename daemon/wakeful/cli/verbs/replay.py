"""`wakeful replay`: repeats a recorded run in a copy, on the contents it had, and prints whether the result differs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, USAGE, Failure
from wakeful.cli.progress import Waiting
from wakeful.cli.text import count, escape, paint
from wakeful.cli.verbs.diff import format_diff
from wakeful.specs.command_words import has_shell_sign


def replay_verb(options: Options, name: str, run: int, command: str | None, is_partial: bool, keep: str | None) -> None:
    words = _split(command)
    lines = options.client().post_lines(
        "/replay", name=name, run=run, command=words, keep=os.path.abspath(keep) if keep is not None else None
    )
    prepared = json.loads(next(lines))
    if not options.is_json:
        print("".join(f"{line}\n" for line in _say_prepared(prepared)), end="", flush=True)
    with Waiting("it runs again", is_shown=not options.is_json):
        report = prepared | json.loads(next(lines))
    if options.is_json:
        print(json.dumps(report))
    else:
        print("\n".join(_say_report(report)))
    if not report["same"] or (report["missing"] and not is_partial):
        raise Failure(code=FAILED)


def _split(command: str | None) -> list[str] | None:
    if command is None:
        return None
    if has_shell_sign(command):
        # A command with shell signs runs as a spec's `script` does.
        return ["/bin/sh", "-eu", "-c", command]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Failure(f"--command: {error}: {escape(command)}", USAGE) from None
    if not words:
        raise Failure("--command has no words", USAGE)
    return words


def _say_prepared(prepared: dict[str, Any]) -> Iterator[str]:
    for one in prepared["missing"]:
        yield paint(f"missing  {escape(one['what'])}: {escape(one['reason'])}", "warn")
    for path in prepared["brought"]:
        yield paint(f"today's  {escape(path)}", "dim")


def _say_report(report: dict[str, Any]) -> Iterator[str]:
    if report["problem"] is not None:
        yield paint(escape(report["problem"]), "bad")
    codes = {side: _say_end(report, side) for side in ("recorded", "now")}
    if codes["recorded"] != codes["now"]:
        yield paint(f"ended with {codes['now']}; recorded was {codes['recorded']}", "bad")
    for file in report["files"]:
        if file["verdict"] != "same":
            yield paint(f"{file['verdict']}  {escape(file['path'])}{_say_sizes(file)}", "bad")
            yield from format_diff(file["diff"], "  ")
    if report["output"]["verdict"] != "same":
        yield paint("output differs", "bad" if not report["files"] else "dim")
        yield from format_diff(report["output"]["diff"] if not report["files"] else None, "  ")
    if report["kept"] is not None:
        yield f"the copy it ran in: {escape(report['kept'])}"
    same = sum(file["verdict"] == "same" for file in report["files"])
    partial = "; something it found is missing" if report["missing"] else ""
    verdict = paint("same", "good") if report["same"] else paint("different", "bad")
    yield (
        f"{verdict}  run {report['run']} of {escape(report['name'])}, {same} of "
        f"{count(len(report['files']), 'file')} alike, {report['seconds']:.1f} s{partial}"
    )


def _say_end(report: dict[str, Any], side: str) -> str:
    signal, code = report["signal"][side], report["exit_code"][side]
    return f"signal {signal}" if signal is not None else "no exit code" if code is None else f"exit code {code}"


def _say_sizes(file: dict[str, Any]) -> str:
    if file["diff"] is not None or file["recorded"] is None or file["now"] is None:
        return ""
    return f"  {_say_side(file['recorded'])} -> {_say_side(file['now'])}"


def _say_side(side: dict[str, Any]) -> str:
    return f"{side['digest'][:12] or side['kind']} ({count(side['size'], 'byte')})"
