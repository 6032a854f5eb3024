"""The verbs that change a session's history, and `replay`, which repeats a recorded run.

`rewind`, `merge`, `resolve`, `compress` and `erase` print more than the daemon's sentence. `replay` repeats the run in
a copy and prints whether the result differs. A position is a seq, a time (RFC 3339, or `2h` for two hours ago) or a
checkpoint's name. `--dry-run` prints what would be done. Each `show_` function takes the preview of one call as
`--json` has it, and yields lines that are safe to print, in the words of the real answer.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, USAGE, Failure
from wakeful.cli.progress import Waiting
from wakeful.cli.text import count, escape, paint, quote_prose, wrap
from wakeful.cli.verbs.calls import carry_out
from wakeful.cli.verbs.diff import format_diff, format_differences, say_conflict
from wakeful.specs.command_words import has_shell_sign

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
        kept = f" (the earlier file is kept as {file['kept']})" if file["kept"] else ""
        print(f"  {file['ending']:<8}  {escape(file['path'])}{escape(reason)}{kept}")
    if "preview" in found:
        for line in show(found["preview"]):
            print(line)
    return found


def show_rewind(preview: dict[str, Any]) -> Iterator[str]:
    """List the differences from now; with --files also the change of each path."""
    yield from format_differences(preview | {"files": []})
    files = preview["files"]
    if not isinstance(files, dict):
        return
    steps = [_say_step(step) for step in files["steps"]]
    unknown = [
        f"{'cannot':<8}  the files that {_say_writer(one)} wrote: they were not kept" for one in files["unrecorded"]
    ]
    yield from _block("FILES, how they would change", (*steps, *unknown) or ("none of its runs wrote anything since",))


def _say_step(step: dict[str, Any]) -> str:
    return f"{step['action']:<8}  {step['path']}" + (f": {step['reason']}" if step["reason"] else "")


def _say_writer(run: int | str) -> str:
    return f"run {run}" if isinstance(run, int) else run


def show_merge(preview: dict[str, Any]) -> Iterator[str]:
    yield from _block("FACTS it would take", (_say_fact(fact) for fact in preview["taken"]))
    yield from _block("FACTS it would forget", preview["retracted"])
    yield from _block(
        "CONFLICTS it would open, to be settled with wakeful resolve", map(say_conflict, preview["conflicts"])
    )
    yield from _quote("HAND-OFF it would leave", preview["summary"])
    yield from _block("FILES it would bring", (_say_file(path, words) for path, words in preview["files"].items()))


def _say_fact(fact: dict[str, Any]) -> str:
    because = f"  ({fact['rationale']})" if fact.get("rationale") else ""
    return f"{fact['key']} = {fact['value']}{because}"


def _say_file(path: str, words: str) -> str:
    """Format one file as the real answer does: `merged out.csv: …`."""
    ending, _, reason = words.partition(": ")
    return f"{ending:<8}  {path}" + (f": {reason}" if reason else "")


def show_compress(preview: dict[str, Any]) -> Iterator[str]:
    yield from _quote("SUMMARY that would replace them", preview["summary"])


def show_erase(preview: dict[str, Any]) -> Iterator[str]:
    yield from _block(
        "THE RECORD, as it would be left", (f"{key}: {_say_value(value)}" for key, value in preview["stand_in"].items())
    )
    yield from _block("THE SAME WORDS are in these records, too: wakeful erase NAME SEQ", preview["also_in"])


def _say_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _block(title: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield a heading and the texts under it, or nothing if there is no text."""
    entries = [wrap(escape(text), "    ") for text in texts]
    if not entries:
        return
    yield from ("", paint(title, "dim"))
    for first, *rest in entries:
        # Further lines of a text are indented, so that a reader sees where the next text begins.
        yield from (first[2:].rstrip(), *rest)


def _quote(title: str, prose: str) -> Iterator[str]:
    if prose:
        yield from ("", paint(title, "dim"), *quote_prose(prose))


def replay_verb(options: Options, name: str, run: int, command: str | None, is_partial: bool, keep: str | None) -> None:
    words = _split_command(command)
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


def _split_command(command: str | None) -> list[str] | None:
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
        yield paint(f"ended with {codes['now']}; the recorded run ended with {codes['recorded']}", "bad")
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
    partial = "; some of its inputs are missing" if report["missing"] else ""
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
