"""`wakeful talk`: a conversation with a session's agent in the terminal, line by line, with history.

Each message is an `ask`: the same conversation, the same records. Lines that begin with a slash are commands. All words
of the agent and of other people pass through `LineWrapper` and `escape`, so that they cannot control the terminal.
Ctrl-C stops the answer, Ctrl-D ends the conversation.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from wakeful.cli.agent_text import TEXT_LEAD, THOUGHT_LEAD, AgentWordsPrinter, LineWrapper
from wakeful.cli.client import Client, Options
from wakeful.cli.daemon_location import find_history
from wakeful.cli.exit_codes import Failure
from wakeful.cli.text import Colour, columns, escape, escape_lines, is_coloured, paint, wrap
from wakeful.cli.verbs.ask import AnswerCost, RunFollower
from wakeful.client.refusals import DaemonUnreachable
from wakeful.client.wire import quote_name
from wakeful.errors import WakefulError

HISTORY_LINES = 1_000
HELP = (
    ("/agent NAME TEXT", "send this one message to another agent"),
    ("/fresh", "begin a new conversation with the next message"),
    ("/thinking", "show the agent's thoughts, or fold them away"),
    ("/cost", "the cost of this conversation until now"),
    ("/help", "this list"),
    ("/quit", "end, as Ctrl-D does"),
    ("Ctrl-C", "stop the answer; at the prompt, drop the line"),
    ("\\ at the end", "go on with the message on the next line"),
    ("//", "a message that begins with a slash"),
)


def talk_verb(options: Options, name: str, fresh: bool, with_thoughts: bool) -> None:
    if options.is_json:
        raise click.UsageError("talk is for a terminal; for scripts: wakeful ask NAME TEXT --json")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("talk needs a terminal; in a pipe: wakeful ask NAME -")
    client = options.client()
    shown = client.get(f"/sessions/{quote_name(name)}")
    with _kept_history():
        _Conversation(client, name, is_fresh=fresh, with_thoughts=with_thoughts).hold(shown)


class _Conversation:
    def __init__(self, client: Client, name: str, *, is_fresh: bool, with_thoughts: bool) -> None:
        self._client = client
        self._name = name
        self._is_fresh = is_fresh
        self._with_thoughts = with_thoughts
        self._spent = AnswerCost()

    def hold(self, shown: dict[str, Any]) -> None:
        """Hold the conversation until the person ends it."""
        _print(
            f"{shown['name']}: agent {shown['agent'] or 'none'}, {shown['state']}. /help lists the commands; "
            "Ctrl-D ends."
        )
        hold = shown.get("hold") or {}
        if hold.get("kind") == "asking":
            self._offer_answer(hold["words"])
        while (line := self._read_message()) is not None:
            command, _, rest = line.partition(" ")
            match command:
                case "":
                    continue
                case "/quit":
                    return
                case "/help":
                    for key, words in HELP:
                        print(f"  {key:<18}{words}")
                case "/fresh":
                    self._is_fresh = True
                    _print("the next message begins a new conversation")
                case "/thinking":
                    self._with_thoughts = not self._with_thoughts
                    _print("thoughts are shown" if self._with_thoughts else "thoughts are folded")
                case "/cost":
                    _print(_say_spent(self._spent) or "nothing until now")
                case "/agent":
                    agent, _, text = rest.strip().partition(" ")
                    if text.strip():
                        self._ask(text.strip(), agent)
                    else:
                        _print("give the agent and the message: /agent NAME TEXT")
                case _ if line.startswith("/") and not line.startswith("//"):
                    _print(f"there is no {command}; /help lists the commands, and // begins a message with a slash")
                case _:
                    self._ask(line[1:] if line.startswith("//") else line, None)

    def _read_message(self) -> str | None:
        """Read the next message, of one line or more. None at the end. Ctrl-C drops what was typed."""
        lines: list[str] = []
        prompt = " · ".join(part for part in (escape(self._name), _say_spent(self._spent)) if part)
        while True:
            try:
                line = input(_make_prompt("… " if lines else f"{prompt} > "))
            except EOFError:
                print()
                return None
            except KeyboardInterrupt:
                print()
                return ""
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines).strip()

    def _ask(self, text: str, agent: str | None) -> None:
        try:
            answer = self._client.call("ask", None, name=self._name, text=text, agent=agent, fresh=self._is_fresh)
            self._is_fresh = False
            held = answer.get("held")
            while held is None or self._offer_answer(held):
                held = self._follow(
                    RunFollower(
                        self._client,
                        self._name,
                        answer["record"],
                        self._make_speech(),
                        answer_question=self._answer_question,
                    )
                )
                if held is None:
                    return
        except DaemonUnreachable:
            raise
        except (Failure, WakefulError) as failure:
            # A refusal does not end the conversation. A missing daemon does.
            if isinstance(failure, Failure) and failure.code not in (0, 1):
                raise
            _print(str(failure), "warn")

    def _follow(self, following: RunFollower) -> str | None:
        """Follow the answer to its end. Returns the words of the hold if the session is held."""
        found: dict[str, Any] | None = None
        try:
            found = following.follow()
        except KeyboardInterrupt:
            print()
            if following.run is None:
                _print("no run has taken it yet; it stays in the mailbox, and its answer in the log")
            else:
                self._client.call("interrupt", None, name=self._name)
                _print("stopped")
        self._spent.join(following.usage)
        if found is not None and found["outcome"] == "held":
            return str(found["reason"])
        if found is not None and found["outcome"] != "succeeded":
            _print(found["reason"] or found["outcome"], "warn")
        return None

    def _answer_question(self, question: dict[str, Any]) -> str | None:
        """Ask the person an agent's question, and return the answer. None leaves the question open."""
        for line in wrap(escape_lines(question["text"])):
            print(paint(line, "bold"))
        prompt = "yes or no > " if question.get("is_permission") else "your answer > "
        while True:
            try:
                text = input(_make_prompt(prompt)).strip()
            except (EOFError, KeyboardInterrupt):
                print()
                _print(f"left open; wakeful answer {self._name} TEXT answers it")
                return None
            if text:
                return text

    def _offer_answer(self, words: str) -> bool:
        """Let the person answer here if the hold is a question. False if the session stays held."""
        if not words.startswith(("asks: ", "may it run?")):
            _print(f"{self._name} sleeps: {words}; your message waits in its mailbox", "warn")
            return False
        text = self._answer_question({"text": words})
        if text is None:
            return False
        _print(self._client.call("answer", None, name=self._name, text=text)["words"])
        return True

    def _make_speech(self) -> AgentWordsPrinter:
        width = columns() - 1
        thoughts = LineWrapper(_write, lead=THOUGHT_LEAD, width=width, colour="dim")
        printer = AgentWordsPrinter(LineWrapper(_write, lead=TEXT_LEAD, width=width), thoughts, _print)
        printer.is_folded = not self._with_thoughts
        return printer


@contextlib.contextmanager
def _kept_history() -> Iterator[None]:
    """Load the history of typed lines, and save it at the end. Only its owner can read it."""
    try:
        readline: Any = importlib.import_module("readline")
    except ModuleNotFoundError:
        # This Python has no readline. Lines can be typed, but no history is kept.
        yield
        return
    path = find_history()
    with contextlib.suppress(FileNotFoundError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)
    before = readline.get_current_history_length()
    try:
        yield
    finally:
        _keep_history(readline, path, readline.get_current_history_length() - before)


def _keep_history(readline: Any, path: str, lines: int) -> None:
    """Append the lines of this conversation to the file, because another terminal may have written to it meanwhile."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        readline.append_history_file(lines, path)
    except OSError as error:
        _print(f"your input history is not saved: {path}: {error.strerror}", "warn")


def _say_spent(spent: AnswerCost) -> str:
    if not spent.tokens:
        return ""
    return f"{spent.tokens:,} tokens" if spent.usd is None else f"{spent.usd:.4f} USD"


def _make_prompt(text: str) -> str:
    """Make a bold prompt. The escape codes are marked, so that readline knows the visible length of the line."""
    return f"\001\x1b[1m\002{text}\001\x1b[0m\002" if is_coloured() else text


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _print(words: str, colour: Colour = "dim") -> None:
    for line in wrap(escape(words)):
        print(paint(line, colour), flush=True)
