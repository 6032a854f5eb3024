"""`activate`: run a session now, and on demand wait for the end of its run.

A template or a pattern activates every session it means before the first is waited for,
so that they run beside each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from wakeful.cli.client import Client, quote_name
from wakeful.cli.command import verb
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.selection import find_sessions, is_several
from wakeful.cli.text import escape, show_local_times
from wakeful.cli.verbs.lifecycle import carry_out_each, named_several, say_refusal, try_call


class Ending(NamedTuple):
    """How an activation ended: its JSON document, and whether a run of it succeeded.

    `words` are empty where all was said before.
    """

    document: dict[str, Any]
    words: str
    is_success: bool


@verb(
    "activate",
    "wakeful activate payroll",
    "wakeful activate payroll --note 'month end' --wait",
    "wakeful activate ticket@        # every session of a template",
    "wakeful activate 'hr/*'         # those that a pattern matches",
)
@named_several
@click.option("--note", metavar="TEXT", help="Why, for the record and for the run.")
@click.option("--fresh", is_flag=True, help="Start without the present conversation.")
@click.option("--wait", "is_waiting", is_flag=True, help="Follow the run to its end; exit 1 if it did not succeed.")
def activate_verb(
    options: Options, name: str, key: str | None, note: str | None, fresh: bool, is_waiting: bool
) -> None:
    """Run a session now, whatever is owed: past settle, pace and holds, not past slots."""
    body = {"note": note, "fresh": fresh}
    if not is_waiting:
        carry_out_each(options, "activate", key, name, **body)
        return
    client = options.client()
    if is_several(name):
        activated = [try_call(client, "activate", key, name=one, **body) for one in find_sessions(client, name)]
    else:
        activated = [client.call("activate", key, name=name, **body)]
    endings = []
    for answer in activated:
        endings.append(_wait_for_end(client, answer))
        if not options.is_json and endings[-1].words:
            print(endings[-1].words)
    if options.is_json:
        print(json.dumps([one.document for one in endings] if is_several(name) else endings[0].document))
    if not all(one.is_success for one in endings):
        raise Failure(code=FAILED)


def _wait_for_end(client: Client, answer: dict[str, Any]) -> Ending:
    if "error" in answer:
        say_refusal(answer)
        return Ending(answer, "", is_success=False)
    name = answer["name"]
    # A person who waits should know for what, where that is not this run alone.
    if answer["words"] != "activated":
        print(f"wakeful: {escape(name)}: {show_local_times(escape(answer['words']))}", file=sys.stderr)
    if answer.get("held") is not None:
        # It would wait for a person, or for the turn of a period: without end, as far as anybody knows.
        return Ending(answer, "", is_success=False)
    ended = wait_for_run(client, name, answer["record"])
    document = {"name": name, "run": ended["run"], **ended["payload"]}
    return Ending(document, f"{escape(name)}: {escape(ended['words'])}", ended["payload"].get("outcome") == "succeeded")


def wait_for_run(client: Client, name: str, record: int) -> dict[str, Any]:
    """The end, for good, of the run that takes the activation of this record in;
    or what keeps it from coming to that."""
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
    """The records so far, then those to come: following begins before the log is read, so nothing falls between.

    `is_live`: between the records, words in flight: lines that have `live` and no `seq`."""
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
