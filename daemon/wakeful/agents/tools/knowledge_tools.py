"""The tools that read and write a session's knowledge: remember, recall, history, send, hand_off, todo, skill.

Each is a call to the daemon, which decides what is allowed. The model gets a refusal as a result. The run's token gives
access to its own session and to the mailboxes of other sessions. Each call has an idempotency key made of the run and
the tool call's id, so it is carried out once even if the daemon restarts. A skill need not be bound to the session: the
daemon returns the text that was read with the agent, and refuses it if the file was changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import UNSET, Meta, UnsetType

from wakeful.agents.contract import Tool
from wakeful.agents.tools.bound_files import Refused
from wakeful.agents.tools.tool import RESULT_BYTES, Arguments, CheckedTool
from wakeful.client.async_client import DaemonClient
from wakeful.core.spec.agent import Skill

_MOST_RECORDS = 200
_ROOM_BYTES = RESULT_BYTES - 1_024
TODO_WORDS = (
    "Keep the to-do list of this session: set its items, mark them. It is kept, and every later run sees it. "
    "Without arguments: read it."
)
_HAND_OFF_PART = re.compile(r"^(done|next|blocked): ", re.MULTILINE)


class RememberArguments(Arguments, frozen=True):
    key: Annotated[str, Meta(min_length=1, description="a short name, such as currency")]
    value: str
    because: Annotated[str, Meta(description="the reason, kept with the fact")] = ""
    for_now: Annotated[bool, Meta(description="only for this conversation: a fresh start clears it")] = False


class RecallArguments(Arguments, frozen=True):
    key: Annotated[str, Meta(description="empty: all facts")] = ""


class HistoryArguments(Arguments, frozen=True):
    most: Annotated[int, Meta(ge=1, le=_MOST_RECORDS, description="the most records to show; the newest are shown")] = (
        30
    )
    before: Annotated[int, Meta(ge=0, description="only records before this number; 0: all")] = 0
    kind: Annotated[str, Meta(description="only of this kind, such as run_finished")] = ""
    record: Annotated[int, Meta(ge=0, description="instead: the number of one record, to show all of it")] = 0


class SendArguments(Arguments, frozen=True):
    session: Annotated[str, Meta(min_length=1, description="the name of another session")]
    text: Annotated[str, Meta(min_length=1)]
    wake: Annotated[bool, Meta(description="false: the message waits until something else wakes that session")] = True


class HandOffArguments(Arguments, frozen=True):
    done: Annotated[str, Meta(description="what this run has done")] | UnsetType = UNSET
    next: Annotated[str, Meta(description="what the next run should do")] | UnsetType = UNSET
    blocked: Annotated[str, Meta(description="what blocks the work, and who can change that")] | UnsetType = UNSET


class TodoArguments(Arguments, frozen=True):
    items: (
        Annotated[
            list[str],
            Meta(
                description="the new list, in order; an item with the same text keeps its status; "
                "without items the list stays"
            ),
        ]
        | UnsetType
    ) = UNSET
    doing: Annotated[list[int], Meta(description="the numbers, from 1, of items in progress")] = []
    done: Annotated[list[int], Meta(description="the numbers of items that are done")] = []
    open: Annotated[list[int], Meta(description="the numbers of items to open again")] = []


class KnowledgeTools:
    """The tools for a run's own session.

    `kept` is the hand-off of the session's work, if this run only answers a question. `hand_off` then changes only the
    parts that the agent gives.
    """

    def __init__(self, link: DaemonClient, session: str, run_id: str, kept: str | None = None) -> None:
        self._link = link
        self._session = session
        self._route = f"/sessions/{quote(os.fsencode(session), safe='')}"
        self._run_id = run_id
        self._kept = read_hand_off(kept) if kept is not None else None

    def list_tools(self) -> Iterable[Tool]:
        yield CheckedTool(
            "remember",
            "Keep a fact of this session. Facts are kept, and every later run sees them.",
            RememberArguments,
            self._remember,
        )
        yield CheckedTool(
            "recall", "Read this session's facts, with their authors and reasons.", RecallArguments, self._recall
        )
        yield CheckedTool(
            "history",
            "Read this session's own log: what woke it, what runs did, what was said.",
            HistoryArguments,
            self._history,
        )
        yield CheckedTool("send", "Put a message into another session's mailbox.", SendArguments, self._send)
        yield CheckedTool(
            "hand_off",
            "Leave the hand-off that the next run of this session starts from.",
            HandOffArguments,
            self._hand_off,
        )
        yield CheckedTool("todo", TODO_WORDS, TodoArguments, self._todo)

    async def _remember(self, given: RememberArguments, call_id: str) -> str:
        fields = {"key": given.key, "value": given.value, "rationale": given.because or None, "for_now": given.for_now}
        return await self._call("remember", fields, call_id)

    async def _recall(self, given: RecallArguments, _: str) -> str:
        facts: list[dict[str, Any]] = await self._link.look(f"{self._route}/facts")
        if not given.key:
            return (
                _fit([_say_fact(fact) for fact in facts], "recall one by its key") if facts else "no facts are kept yet"
            )
        found = next((fact for fact in facts if fact["key"] == given.key), None)
        if found is None:
            known = ", ".join(fact["key"] for fact in facts[:50])
            raise Refused(
                f"there is no fact {given.key!r}; " + (f"the facts are {known}" if known else "none is kept yet")
            )
        return _say_fact(found)

    async def _history(self, given: HistoryArguments, _: str) -> str:
        if given.record:
            found = await self._link.look(f"{self._route}/log", {"from": given.record, "to": given.record})
            if not found:
                raise Refused(f"there is no record {given.record}")
            return json.dumps(found[0], ensure_ascii=False, indent=1)
        bounds = {"to": given.before - 1 if given.before > 1 else None, "kind": given.kind or None}
        records = await self._link.look(f"{self._route}/log", {**bounds, "last": given.most, "words": "true"})
        return _show_records(records) if records else "no such records"

    async def _send(self, given: SendArguments, call_id: str) -> str:
        return await self._call("send", {"name": given.session, "text": given.text, "wake": given.wake}, call_id)

    async def _hand_off(self, given: HandOffArguments, call_id: str) -> str:
        told = {"done": given.done, "next": given.next, "blocked": given.blocked}
        parts = {**(self._kept or {}), **{word: text for word, text in told.items() if text is not UNSET}}
        text = "\n".join(f"{word}: {parts[word]}" for word in told if parts.get(word))
        if not text:
            raise Refused("a hand-off needs a text: give done, and next and blocked if there is something to say")
        answered = await self._call("note", {"text": text}, call_id)
        self._kept = parts if self._kept is not None else None
        return answered

    async def _todo(self, given: TodoArguments, call_id: str) -> str:
        fields = {"doing": given.doing, "done": given.done, "open": given.open}
        return await self._call("todo", fields if given.items is UNSET else {**fields, "items": given.items}, call_id)

    async def _call(self, verb: str, fields: dict[str, Any], call_id: str) -> str:
        # The ids of providers have any length, so they are hashed. Some providers reuse ids, so the key includes the
        # run's id.
        mark = hashlib.blake2b(call_id.encode(errors="replace"), digest_size=16).hexdigest()
        answer = await self._link.call(verb, fields, f"tool {self._run_id} {mark}")
        return str(answer["words"])


def read_hand_off(text: str) -> dict[str, str]:
    """Parse the parts of a hand-off as `hand_off` writes it. Any other text is taken as `done`."""
    before, *rest = _HAND_OFF_PART.split(text)
    parts = dict(zip(rest[::2], (part.strip("\n") for part in rest[1::2]), strict=True))
    return {"done": before.strip(), **parts} if before.strip() and "done" not in parts else parts


def _say_fact(fact: dict[str, Any]) -> str:
    because = f": {fact['rationale']}" if fact["rationale"] else ""
    return f"{fact['key']} = {fact['value']}  ({fact['author']}, record {fact['seq']}{because})"


def _show_records(records: list[dict[str, Any]]) -> str:
    """Show the newest records that fit, in their order."""
    lines: list[str] = []
    room = _ROOM_BYTES
    for record in reversed(records):
        # One line for each record. The argument `record` shows a long one in full.
        words = " ".join(str(record["words"]).split())
        line = (
            f"{record['seq']}  {record['at']}  {record['author']}  {record['kind']}: "
            f"{words[:600]}{'…' if len(words) > 600 else ''}"
        )
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        lines.insert(0, line)
    first = records[-len(lines)]["seq"] if lines else records[-1]["seq"]
    older = [f"[for older records: before {first}]"] if first > 1 else []
    return "\n".join([*older, *lines])


def _fit(lines: list[str], how: str) -> str:
    shown: list[str] = []
    room = _ROOM_BYTES
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            return "\n".join([*shown, f"[{len(lines) - len(shown)} more; {how}]"])
        shown.append(line)
    return "\n".join(shown)


class SkillArguments(Arguments, frozen=True):
    name: Annotated[str, Meta(min_length=1, description="the name of a skill")]
    file: Annotated[str, Meta(description="the path of another file in the skill; empty: its instructions")] = ""


class SkillTools:
    def __init__(self, link: DaemonClient, skills: Sequence[Skill]) -> None:
        self._link = link
        self._skills = skills

    def list_tools(self) -> Iterable[Tool]:
        if self._skills:
            yield CheckedTool(
                "skill", "Read the instructions of a skill, or another file of it.", SkillArguments, self._read
            )

    async def _read(self, given: SkillArguments, _: str) -> str:
        found = await self._link.look("/work/skill", {"name": given.name, "file": given.file or None})
        return str(found["text"])
