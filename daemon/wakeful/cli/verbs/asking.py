"""`wakeful ask`: put a message to a session's agent, and read the answer as it comes."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from typing import Any

import click

from wakeful.cli.client import Client
from wakeful.cli.command import verb
from wakeful.cli.failure import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.text import escape, escape_lines
from wakeful.cli.verbs.activation import records_after
from wakeful.cli.verbs.calls import named, say

# A pipe that brings nothing for so long is worth a word.
PATIENCE_SECONDS = 2.0


@verb(
    "ask",
    "wakeful ask api-docs 'Which routes have no docs yet?'",
    "wakeful ask payroll 'Is this safe?' --agent security --fresh",
    "git diff | wakeful ask api-docs 'Is this told in the docs?'",
    "cat question.txt | wakeful ask api-docs",
)
@named
@click.argument("text", required=False)
@click.option("--agent", metavar="NAME", help="Who is to answer this one message; the session's own agent unless told.")
@click.option("--fresh", is_flag=True, help="In a new conversation: facts and hand-off only. Else your last question goes on.")
@click.option("--no-wait", "is_quick", is_flag=True, help="Do not wait for the answer.")
def ask_verb(options: Options, name: str, key: str | None, text: str | None, agent: str | None, fresh: bool, is_quick: bool) -> None:
    """Ask a session's agent something, now, and wait for the answer. Exit 1 if none came.

    Your questions to a session are one conversation: the next one knows the last, until --fresh. TEXT may be `-`, or left out: then
    standard input is the question. Text that is piped in beside a question stands below it.
    Another agent answers in the same session, with its own prompt, model and tools; the next message goes back to the owner.
    """
    client = options.client()
    answer = client.call("ask", key, name=name, text=read_question(text), agent=agent, fresh=fresh)
    if is_quick:
        say(options, answer)
        return
    if answer.get("held") is not None:
        # Nobody would answer while they wait: what is missing is for them to give.
        raise Failure(f"{escape(name)} sleeps: {escape(answer['held'])}; what you asked waits in its mailbox", code=FAILED)
    found = _Following(client, name, answer["record"], is_live=not options.is_json).follow()
    if options.is_json:
        print(json.dumps({"name": name, **found}))
    if found["outcome"] != "succeeded":
        raise Failure("" if options.is_json else f"{escape(name)}: {escape(found['reason'] or found['outcome'])}", code=FAILED)


def read_question(text: str | None) -> str:
    """The words of a question: those of the command, and those that come in by a pipe or from a file."""
    is_wanted = text is None or text == "-"
    given = _read_input(is_wanted=is_wanted).strip("\n")
    question = "" if text is None or is_wanted else text
    if not question.strip() and not given.strip():
        raise click.UsageError("nothing is asked: give the question as one argument, or on standard input")
    return "\n\n".join(part for part in (question, given) if part)


def _read_input(*, is_wanted: bool) -> str:
    """Standard input to its end; where nobody asked for it, only that of a pipe or a file, and never of a terminal."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        # Closed, or no file.
        return ""
    if not is_wanted and not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return ""
    if is_wanted and sys.stdin.isatty():
        print("wakeful: type your question; Ctrl-D on a line of its own ends it", file=sys.stderr)
    elif not _comes_soon(sys.stdin.fileno()):
        print("wakeful: waiting for the end of standard input, which is part of the question; < /dev/null leaves it out", file=sys.stderr)
    return sys.stdin.buffer.read().decode(errors="backslashreplace")


def _comes_soon(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(PATIENCE_SECONDS * 1000))


class _Following:
    """The run that takes the message in, to its end: what its agent says, as each turn is on record."""

    def __init__(self, client: Client, name: str, record: int, *, is_live: bool) -> None:
        """`record` is the message that was asked: others may ask at the same time."""
        self._client = client
        self._name = name
        self._record = record
        self._is_live = is_live
        self._said: list[str] = []
        self._agent: str | None = None

    def follow(self) -> dict[str, Any]:
        position: int | None = None
        run: int | None = None
        for line in records_after(self._client, self._name, self._record - 1):
            payload = line["payload"] or {}
            match line["kind"]:
                case "message_added" if line["seq"] == self._record:
                    position = payload["position"]
                case "run_started" if run is None and position is not None and int(payload["versions"].get("message", 0)) >= position:
                    run, self._agent = payload["run"], (payload.get("agent") or {}).get("name")
                case "turn_answered" if payload["run"] == run:
                    self._take_turn(payload["answer"])
                case "run_finished" if payload["run"] == run:
                    return self._conclude(run, payload)
                case "session_terminated" | "spec_removed":
                    return self._conclude(run, {"outcome": "cancelled", "reason": line["words"]})
        raise Failure(f"{escape(self._name)}: the daemon stopped before the answer came")

    def _take_turn(self, answer: dict[str, Any]) -> None:
        if answer.get("text"):
            self._said.append(answer["text"])
            if self._is_live:
                print(escape_lines(answer["text"]).rstrip("\n"))
        for call in answer.get("calls", ()) if self._is_live and sys.stderr.isatty() else ():
            print(f"· {escape(call['name'])} {escape(call['arguments'])}", file=sys.stderr)

    def _conclude(self, run: int | None, payload: dict[str, Any]) -> dict[str, Any]:
        found = {"run": run, "agent": self._agent, "outcome": payload["outcome"], "reason": payload.get("reason")}
        return found | {"answer": self._said[-1] if self._said else None}
