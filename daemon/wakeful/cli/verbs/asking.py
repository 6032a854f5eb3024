"""`wakeful ask`: put a message to a session's agent, and read the answer as it comes."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from wakeful.cli.client import Client
from wakeful.cli.command import verb
from wakeful.cli.failure import FAILED, Failure
from wakeful.cli.options import Options
from wakeful.cli.text import escape, escape_lines, paint
from wakeful.cli.verbs.activation import records_after
from wakeful.cli.verbs.calls import named, say
from wakeful.views.records import say_spent


@verb("ask", "wakeful ask api-docs 'Which routes have no docs yet?'", "wakeful ask payroll 'Is this safe?' --agent security --fresh")
@named
@click.argument("text")
@click.option("--agent", metavar="NAME", help="Who is to answer this one message; the session's own agent unless told.")
@click.option("--fresh", is_flag=True, help="In a new conversation: facts and hand-off only.")
@click.option("--no-wait", "is_quick", is_flag=True, help="Do not wait for the answer.")
def ask_verb(options: Options, name: str, key: str | None, text: str, agent: str | None, fresh: bool, is_quick: bool) -> None:
    """Ask a session's agent something, now, and wait for the answer. Exit 1 if none came.

    Another agent answers in the same session, with its own prompt, model and tools; the next message goes back to the owner.
    A terminal shows what the answer took, and --json has it as `usage`: it is billed to the agent that answered.
    """
    client = options.client()
    answer = client.call("ask", key, name=name, text=text, agent=agent, fresh=fresh)
    if is_quick:
        say(options, answer)
        return
    if answer.get("held") is not None:
        # Nobody would answer while they wait: what is missing is for them to give.
        raise Failure(f"{escape(name)} sleeps: {escape(answer['held'])}; what you asked waits in its mailbox", code=FAILED)
    found = _Following(client, name, answer["record"], is_live=not options.is_json).follow()
    if options.is_json:
        print(json.dumps({"name": name, **found}))
    elif found["usage"]["tokens"] and sys.stderr.isatty():
        # Beside the answer, which may go into a file.
        print(paint(f"[{found['agent']}: {say_spent(found['usage'])}]", "dim"), file=sys.stderr)
    if found["outcome"] != "succeeded":
        raise Failure("" if options.is_json else f"{escape(name)}: {escape(found['reason'] or found['outcome'])}", code=FAILED)


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
                case "turn_answered" if payload["run"] == run and payload.get("sub") is None:
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
        usage = {name: (payload.get("usage") or {}).get(name, 0) for name in ("tokens", "estimated_tokens", "usd")}
        return found | {"answer": self._said[-1] if self._said else None, "usage": usage}
