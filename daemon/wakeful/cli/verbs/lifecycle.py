"""The lifecycle verbs that do more than print an answer.

They are `open`, `activate --wait`, `resume --all`, `sleep --all`, `terminate` of several sessions, and `answer`.
`answer` without a text prints a session's question with the diff that it is about.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.selection import find_sessions, is_several
from wakeful.cli.text import count, escape, format_exact, show_local_times, wrap
from wakeful.cli.verbs.calls import (
    call_each,
    carry_out,
    carry_out_each,
    carry_out_for_all,
    make_body,
    say,
    say_refusal,
    try_call,
)  # fmt: skip
from wakeful.cli.verbs.diff import format_diff
from wakeful.client.wire import quote_name
from wakeful.verbs.table import COMMANDS

# The most names printed in a confirmation: enough to notice a session that was not meant.
_NAMES_SHOWN = 10


class Ending(NamedTuple):
    """The end of an activation: its JSON document, and whether its run succeeded.

    `words` are empty if everything was printed before.
    """

    document: dict[str, Any]
    words: str
    is_success: bool


def open_verb(options: Options, idempotency_key: str | None, **given: Any) -> None:
    """Open a session. Its root is the present folder, unless another one is given."""
    if given["root"] is None and not given["again"]:
        given["root"] = os.getcwd()
    carry_out(options, "open", idempotency_key, **make_body(COMMANDS["open"], given))


def activate_verb(options: Options, idempotency_key: str | None, is_waiting: bool, **body: Any) -> None:
    """Activate every session first, and wait for the runs afterwards, so that the runs overlap."""
    name: str = body["name"]
    if not is_waiting:
        carry_out_each(options, "activate", idempotency_key, **body)
        return
    client = options.client()
    if is_several(name):
        names = find_sessions(client, name)
        activated = [try_call(client, "activate", idempotency_key, **body | {"name": one}) for one in names]
    else:
        activated = [client.call("activate", idempotency_key, **body)]
    endings = []
    for answer in activated:
        endings.append(_wait_for_end(client, answer))
        if not options.is_json and endings[-1].words:
            print(endings[-1].words)
    if options.is_json:
        print(json.dumps([one.document for one in endings] if is_several(name) else endings[0].document))
    if not all(one.is_success for one in endings):
        raise Failure(code=FAILED)


def refuse_unclear(name: str | None, is_all: bool) -> None:
    """Raise a usage error unless exactly one is given: a name (or template, or pattern), or --all."""
    if (name is None) != is_all:
        raise click.UsageError("give a NAME, or --all for every session")


def resume_verb(options: Options, name: str | None, idempotency_key: str | None, is_all: bool) -> None:
    refuse_unclear(name, is_all)
    if name is None:
        carry_out_for_all(options, "resume_all", idempotency_key)
    else:
        carry_out_each(options, "resume", idempotency_key, name)


def sleep_verb(options: Options, idempotency_key: str | None, is_all: bool, **given: Any) -> None:
    refuse_unclear(given["name"], is_all)
    is_bounded = given["seconds"] is not None or given["until"] is not None
    if given["seconds"] is not None and given["until"] is not None:
        raise click.UsageError("give --for or --until, not both")
    if is_all and is_bounded:
        raise click.UsageError("--all lasts until `wakeful resume --all`; leave --for and --until out")
    if is_all:
        carry_out_for_all(options, "sleep_all", idempotency_key, words=given["words"])
    else:
        carry_out_each(options, "sleep", idempotency_key, **make_body(COMMANDS["sleep"], given))


def terminate_verb(options: Options, name: str, idempotency_key: str | None, reason: str | None, is_sure: bool) -> None:
    client = options.client()
    if not is_several(name):
        say(options, client.call("terminate", idempotency_key, name=name, reason=reason))
        return
    names = find_sessions(client, name, with_undeclared=True)
    if len(names) > 1 and not is_sure:
        _ask_to_terminate(name, names)
    call_each(options, client, "terminate", idempotency_key, names, reason=reason)


def _ask_to_terminate(wanted: str, names: list[str]) -> None:
    shown = ", ".join(map(escape, names[:_NAMES_SHOWN])) + (
        f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    )
    told = f"{escape(wanted)} matches {count(len(names), 'session')}: {shown}"
    if not sys.stdin.isatty():
        raise Failure(f"{told}; none was terminated: repeat with --yes to close them all", FAILED)
    print("\n".join(wrap(told)), file=sys.stderr)
    if not click.confirm("terminate them all?", default=False, err=True):
        raise Failure("none was terminated", FAILED)


def _wait_for_end(client: Client, answer: dict[str, Any]) -> Ending:
    if "error" in answer:
        say_refusal(answer)
        return Ending(answer, "", is_success=False)
    name = answer["name"]
    # Print what the person waits for, if it is more than the run that was activated.
    if answer["words"] != "activated":
        print(f"wakeful: {escape(name)}: {show_local_times(escape(answer['words']))}", file=sys.stderr)
    if answer.get("held") is not None:
        # Do not wait: only a person or the end of a budget's period ends the hold, which may take very long.
        return Ending(answer, "", is_success=False)
    ended = wait_for_run(client, name, answer["record"])
    document = {"name": name, "run": ended["run"], **ended["payload"]}
    return Ending(document, f"{escape(name)}: {escape(ended['words'])}", ended["payload"].get("outcome") == "succeeded")


def wait_for_run(client: Client, name: str, record: int) -> dict[str, Any]:
    """Wait for the final end of the run that takes this activation.

    Returns the record of that end, or the record of the event that prevents the run.
    """
    position: int | None = None
    taken: set[int] = set()
    for line in records_after(client, name, record - 1):
        payload = line["payload"] or {}
        match line["kind"]:
            case "activation_requested" if line["seq"] == record:
                position = payload["position"]
            case "run_started" if position is not None and int(payload["versions"].get("activation", 0)) >= position:
                taken.add(payload["run"])
            case "run_finished" if payload["run"] in taken and payload["is_final"]:
                return line
            case "session_slept" if payload["hold"]["kind"] != "snoozed":
                return line
            case "wake_withdrawn" | "session_terminated" | "spec_removed":
                return line
    raise Failure(f"{escape(name)}: the daemon stopped before the run ended")


def records_after(client: Client, name: str, head: int, *, is_live: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the records after `head`, then new ones.

    Following starts before the log is read, so that no record is missed. `is_live` also yields streamed words between
    the records: lines that have `live` and no `seq`.
    """
    following = client.stream_lines("/follow", name=name, words="true", live="true" if is_live else None)
    last = head
    for line in client.stream_lines(f"/sessions/{quote_name(name)}/log", **{"from": head + 1, "words": "true"}):
        record = json.loads(line)
        last = record["seq"]
        yield record
    for line in following:
        record = json.loads(line)
        if "live" in record or record["seq"] > last:
            yield record


def answer_verb(
    options: Options, name: str, text: str | None, rationale: str | None, idempotency_key: str | None
) -> None:
    if text is not None:
        carry_out(options, "answer", idempotency_key, name=name, text=text, rationale=rationale)
        return
    if rationale is not None:
        raise click.UsageError("--because goes with an answer: wakeful answer NAME yes --because TEXT")
    found = options.client().get(f"/sessions/{quote_name(name)}/question")
    print(json.dumps(found) if options.is_json else "\n".join(_format_question(found)))


def _format_question(found: dict[str, Any]) -> Iterator[str]:
    name = escape(found["session"])
    if found["asks"] is None:
        yield f"{name} asks no question"
        if (last := found["last_answer"]) is not None:
            who = escape(last["author"].removeprefix("person:"))
            because = f": {escape(last['rationale'])}" if last["rationale"] else ""
            yield f"{who} said {escape(last['text'])} at {format_exact(last['at'])}{because}"
        return
    yield f"{name}: {escape(found['words'])}"
    for change in found["changes"]:
        yield ""
        problem = f" (no diffs: {escape(change['problem'])})" if change["problem"] else ""
        yield f"{escape(change['words'])}{problem}"
        shown = {one["path"] for one in change["diffs"] if one["diff"]}
        yield from (f"  {escape(one['path'])} {one['change']}" for one in change["paths"] if one["path"] not in shown)
        for one in change["diffs"]:
            yield from _format_diff(one)
    if (call := found["call"]) is not None:
        yield ""
        yield f"it would call {escape(call['name'])}"
        yield from _format_diff(call["diff"]) if call["diff"] is not None else (f"  {escape(call['arguments'])}",)
    yield ""
    how = "TEXT" if found["asks"] == "question" else "yes, or no --because TEXT"
    yield f"answer with: wakeful answer {name} {how}"


def _format_diff(one: dict[str, Any]) -> Iterator[str]:
    if one["note"]:
        yield f"  {escape(one['path'])}: no diff: {escape(one['note'])}"
    yield from format_diff(one["diff"], "")
