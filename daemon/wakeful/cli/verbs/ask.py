"""`wakeful ask`: sends a message to a session's agent, and prints the answer as it comes.

`RunFollower` finds the run that takes the message and follows it to its end. `wakeful talk` uses it too.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Any

import click

from wakeful.cli.agent_text import THOUGHT_LEAD, AgentWordsPrinter, LineWrapper
from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import columns, escape, fit, paint
from wakeful.cli.verbs.calls import say
from wakeful.cli.verbs.lifecycle import records_after
from wakeful.client.refusals import DaemonRefused, DaemonUnreachable
from wakeful.views.records import say_spent

# The kinds of holds that make a question wait until a person lifts the hold, or until a budget's period ends.
LASTING_HOLDS = ("asking", "budget", "crashing")
# Seconds without input from a pipe, after which a message says that the command waits for it.
PATIENCE_SECONDS = 2.0


def ask_verb(
    options: Options, idempotency_key: str | None, name: str, text: str | None, agent: str | None, fresh: bool,
    with_thoughts: bool, with_words: bool, is_quick: bool,
) -> None:  # fmt: skip
    client = options.client()
    answer = client.call("ask", idempotency_key, name=name, text=read_question(text), agent=agent, fresh=fresh)
    if is_quick:
        say(options, answer)
        return
    if answer.get("held") is not None:
        # Do not wait: no answer comes before a person lifts the hold or a budget's period ends.
        raise Failure(
            f"{escape(name)} sleeps: {escape(answer['held'])}; your message waits in its mailbox", code=FAILED
        )
    printer = None if options.is_json else make_words_printer(with_thoughts=with_thoughts)
    found = RunFollower(
        client, name, answer["record"], printer, _print_live if options.is_json and with_words else None
    ).follow()
    if options.is_json:
        print(json.dumps({"name": name, **found}))
    elif found["usage"]["tokens"] and sys.stderr.isatty():
        # On standard error, because standard output may go into a file.
        print(paint(f"[{found['agent']}: {say_spent(found['usage'])}]", "dim"), file=sys.stderr)
    if found["outcome"] != "succeeded":
        raise Failure(
            "" if options.is_json else f"{escape(name)}: {escape(found['reason'] or found['outcome'])}", code=FAILED
        )


def _print_live(live: dict[str, Any]) -> None:
    print(json.dumps({"live": live}), flush=True)


def read_question(text: str | None) -> str:
    """Read the text of a question: the command's argument, and standard input if it is a pipe or a file."""
    is_wanted = text is None or text == "-"
    given = _read_input(is_wanted=is_wanted).strip("\n")
    question = "" if text is None or is_wanted else text
    if not question.strip() and not given.strip():
        raise click.UsageError("nothing is asked: give the question as one argument, or on standard input")
    return "\n\n".join(part for part in (question, given) if part)


def _read_input(*, is_wanted: bool) -> str:
    """Read standard input to its end. Unless `is_wanted`, only a pipe or a file is read, and never a terminal."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        # Standard input is closed, or is not a file.
        return ""
    if not is_wanted and not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return ""
    if is_wanted and sys.stdin.isatty():
        print("wakeful: type your question; Ctrl-D on a line of its own ends it", file=sys.stderr)
    elif not _comes_soon(sys.stdin.fileno()):
        print(
            "wakeful: waiting for the end of standard input, which is part of the question; < /dev/null leaves it out",
            file=sys.stderr,
        )
    return sys.stdin.buffer.read().decode(errors="backslashreplace")


def _comes_soon(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(PATIENCE_SECONDS * 1000))


class RunFollower:
    """Follows the run that takes a question, to its end.

    `printer` shows the agent's words as they come; None shows nothing. `show_live` gets each line of streamed words
    unchanged. `answer_question` gets a question that the agent asks a person. It returns None if the person does not
    answer, and then following ends.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        record: int,
        printer: AgentWordsPrinter | None,
        show_live: Callable[[dict[str, Any]], None] | None = None,
        answer_question: Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        """`record` is the seq of the message that was sent.

        With it the right run is found even if other people ask at the same time.
        """
        self._client = client
        self._name = name
        self._record = record
        self._printer = printer
        self._show_live = show_live
        self._answer_question = answer_question
        self._question: dict[str, Any] | None = None
        self._said: list[str] = []
        self._agent: str | None = None
        self.run: int | None = None
        self.usage = AnswerCost()

    def follow(self) -> dict[str, Any]:
        position: int | None = None
        ended: dict[str, Any] = {}
        is_live = self._printer is not None or self._show_live is not None
        for line in records_after(self._client, self._name, self._record - 1, is_live=is_live):
            if "live" in line:
                self._take_live(line["live"])
                continue
            payload = line["payload"] or {}
            match line["kind"]:
                case "message_added" if line["seq"] == self._record:
                    position = payload["position"]
                case "run_started" if (
                    self.run is None and position is not None and int(payload["versions"].get("message", 0)) >= position
                ):
                    self.run, self._agent = payload["run"], (payload.get("agent") or {}).get("name")
                    if self._printer is not None:
                        self._printer.begin_run()
                case "turn_answered" if payload["run"] == self.run:
                    self.usage.add(payload)
                    if payload.get("sub") is None:
                        self._take_turn(payload)
                case "question_asked" if payload["run"] == self.run and self._answer_question is not None:
                    self._question = payload
                case "run_finished" if (
                    payload["run"] == self.run and self._question is not None and not payload["is_final"]
                ):
                    # The next run continues with the person's answer.
                    self.run, ended = None, payload
                case "run_finished" if payload["run"] == self.run:
                    return self._conclude(payload)
                case "session_slept" if self._question is not None and payload["hold"]["kind"] == "asking":
                    if not self._answer():
                        return self._conclude(ended)
                case "session_slept" if self.run is None and payload["hold"]["kind"] in LASTING_HOLDS:
                    return self._conclude({"outcome": "held", "reason": payload["hold"]["words"]})
                case "session_terminated" | "spec_removed":
                    return self._conclude({"outcome": "cancelled", "reason": line["words"]})
        raise Failure(f"{escape(self._name)}: the daemon stopped before the answer came")

    def _answer(self) -> bool:
        """Ask the person the agent's question until the daemon accepts an answer. False if the person gives none."""
        question, self._question = self._question, None
        assert question is not None and self._answer_question is not None
        if self._printer is not None:
            self._printer.pause()
        while (text := self._answer_question(question)) is not None:
            try:
                self._client.call("answer", None, name=self._name, text=text)
            except (DaemonUnreachable, DaemonRefused) as refusal:
                print(f"wakeful: {refusal}", file=sys.stderr, flush=True)
                continue
            return True
        return False

    def _take_live(self, live: dict[str, Any]) -> None:
        if live["kind"] == "waits":
            if self._printer is not None and self.run is None:
                print(f"wakeful: {escape(self._name)} waits for {escape(live['text'])}", file=sys.stderr, flush=True)
        elif self._printer is not None and (live["run"] is None or live["run"] == self.run):
            self._printer.take(live)
        if self._show_live is not None:
            self._show_live(live)

    def _take_turn(self, payload: dict[str, Any]) -> None:
        answer = payload["answer"]
        if answer.get("text") and payload.get("purpose", "work") == "work":
            self._said.append(answer["text"])
            if self._printer is not None:
                self._printer.conclude(payload["turn"], answer["text"])
        if self._printer is None or not sys.stderr.isatty():
            return
        for call in answer.get("calls", ()):
            self._printer.pause()
            print(
                paint(fit(f"· {escape(call['name'])} {escape(call['arguments'])}", columns() - 1), "dim"),
                file=sys.stderr,
                flush=True,
            )

    def _conclude(self, payload: dict[str, Any]) -> dict[str, Any]:
        if self._printer is not None:
            self._printer.pause()
        found = {"run": self.run, "agent": self._agent, "outcome": payload["outcome"], "reason": payload.get("reason")}
        usage = {name: (payload.get("usage") or {}).get(name, 0) for name in ("tokens", "estimated_tokens", "usd")}
        return found | {"answer": self._said[-1] if self._said else None, "usage": usage}


class AnswerCost:
    """The cost of answers in tokens and money. `usd` is None if no price is known."""

    def __init__(self) -> None:
        self.tokens = 0
        self.usd: float | None = 0.0

    def add(self, payload: dict[str, Any]) -> None:
        """Add the usage of one answered turn."""
        usage = payload.get("usage") or {}
        self.tokens += usage.get("input", 0) + usage.get("output", 0)
        usd = payload.get("usd")
        self.usd = None if usd is None or self.usd is None else self.usd + usd

    def join(self, other: AnswerCost) -> None:
        self.tokens += other.tokens
        self.usd = None if other.usd is None or self.usd is None else self.usd + other.usd


def make_words_printer(*, with_thoughts: bool) -> AgentWordsPrinter:
    """Make a printer: the answer goes to standard output, and thoughts to standard error if that is a terminal."""

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def write_aside(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    thoughts = (
        LineWrapper(write_aside, lead=THOUGHT_LEAD, width=columns() - 1, colour="dim")
        if with_thoughts and sys.stderr.isatty()
        else None
    )
    return AgentWordsPrinter(
        LineWrapper(write), thoughts, lambda words: print(f"wakeful: {words}", file=sys.stderr, flush=True)
    )
