"""The calls about a session's life that need steps before or after them: `answer`, `open`, `rename`, `send`, `trace`.

If another person answered first, `answer` reports that answer. `why` also reads it with this module. `rename` also
moves the spec's file. `open` makes a session without a file: the text of its spec is made from the arguments, parsed
like a file, and recorded with the declaration. So `wakeful new NAME --from NAME` can write the file later.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from wakeful.api.contract import Service
from wakeful.api.operations.call_steps import CallSteps, Done, More
from wakeful.core.calls import call_types as calls
from wakeful.core.calls.lifecycle import NothingAsked
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.errors import CallerError, OperatorError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.specs.new_spec import Answers, render_open
from wakeful.specs.value_parsers import find_name_problem
from wakeful.views.times import say_time

# The most records searched for an answer.
MOST_ANSWERS = 20


class LastAnswer(Struct, frozen=True):
    """The answer to the last question of a session: its author, time, text and reason."""

    author: str
    at: int
    text: str
    rationale: str | None

    @property
    def words(self) -> str:
        who = self.author.removeprefix("person:")
        because = f": {self.rationale}" if self.rationale else ""
        return f"{who} said {self.text} at {say_time(self.at)}{because}"


def find_last_answer(log: LogReader, session: Session) -> LastAnswer | None:
    """Find the newest answer of a person, or of the daemon if no person answered in time. Blocking."""
    kinds = ("question_answered", "wake_withdrawn")
    for record in log.read(session.id, kinds=kinds, newest_first=True, limit=MOST_ANSWERS):
        found = read_answer(record)
        if found is not None:
            return found
    return None


def read_answer(record: Record) -> LastAnswer | None:
    """Read the answer in a record. None if the record has none."""
    match decode(record.kind, record.payload) if record.payload is not None else None:
        case ev.QuestionAnswered(text=text, rationale=rationale):
            return LastAnswer(record.author, record.at, text, rationale)
        case ev.WakeWithdrawn(reason=reason, rationale=rationale) if reason.startswith("refused by "):
            return LastAnswer(record.author, record.at, "no", rationale)
    return None


@asynccontextmanager
async def tell_first(service: Service, call: calls.Answer) -> AsyncIterator[None]:
    """Refuse a second answer with a CallerError that names the first answer and its author."""
    try:
        yield
    except NothingAsked as refusal:
        session = service.core.state.by_name(call.name)
        await service.recorded_so_far()
        last = await asyncio.to_thread(find_last_answer, service.log, session)
        if last is None:
            raise
        raise CallerError(f"{call.name} asks no question any more: {last.words}") from refusal


async def prepare_rename(service: Service, body: calls.Rename) -> calls.Rename:
    # The name becomes a path in sessions.d, and must not point outside of that folder.
    problem = find_name_problem(body.new) or service.find_rename_obstacle(body.name, body.new)
    if problem is not None:
        raise CallerError(problem)
    return calls.Rename(name=body.name, new=body.new)


async def finish_rename(service: Service, done: Done) -> More:
    """Rename the file when the session has been renamed. If the file were renamed first, the daemon would see one
    session vanish and another appear."""
    reply = done.reply
    return await _rename_file(service, done.call.name, done.call.new, reply.words, is_repeated=reply.is_repeated)


async def finish_rename_again(service: Service, body: calls.Rename, key: str, author: str) -> More:
    return await _rename_file(service, body.name, body.new, f"renamed to {body.new}", is_repeated=True)


async def _rename_file(service: Service, old: str, new: str, words: str, *, is_repeated: bool) -> More:
    ids = service.core.state.ids
    # Both names may belong to other sessions by now.
    if is_repeated and (old in ids or new not in ids):
        return {"name": new}
    # A fork has no file.
    if not service.core.state.by_name(new).declaration.is_filed:
        return {"name": new}
    try:
        service.rename_spec(old, new)
    except OSError as error:
        # The call repeats the key of an earlier one, which has already moved the file.
        if is_repeated and isinstance(error, FileNotFoundError):
            return {"name": new}
        raise CallerError(
            f"{words}, but its file was not: {error.strerror}; rename sessions.d/{old}.yaml by hand"
        ) from error
    await service.read_specs()
    return {"name": new}


async def prepare_trace(service: Service, body: Any) -> calls.Trace:
    """Raise OperatorError if no run can be traced here, for example without strace. This is checked before a run
    starts."""
    obstacle = await asyncio.to_thread(service.find_tracing_obstacle)
    if obstacle is not None:
        raise OperatorError(obstacle)
    return calls.Trace(name=body.name, observe=body.observe)


def is_new(service: Service, body: Any) -> bool:
    """Does this request open a session that does not exist yet?"""
    return body.name not in service.core.state.ids and not body.again


async def prepare_open(service: Service, body: Any) -> calls.Open:
    given = {field: value for field, value in asdict(body).items() if field not in ("name", "again", "root") and value}
    if not is_new(service, body):
        if given:
            raise CallerError(
                f"{body.name} exists already; {', '.join(sorted(given))} can be given to a new session only: "
                "choose another name, or edit its spec"
            )
        return calls.Open(name=body.name, again=body.again)
    agents = service.core.agents
    if body.agent is not None and body.agent not in agents:
        known = f"there are {', '.join(sorted(agents))}" if agents else "agents are declared in sessions.d/agents/"
        raise CallerError(f"no agent is called {body.agent!r}: {known}")
    if body.prompt and body.agent is None:
        raise CallerError(f"{body.name} was given a prompt, but no agent to answer it; name an agent with --agent")
    root = _find_root(service, body.root)
    text = render_open(body.name, Answers(**given), root)
    spec = await asyncio.to_thread(service.read_spec, body.name, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return calls.Open(name=body.name, spec=spec, text=text, text_digest=digest)


def _find_root(service: Service, root: str | None) -> str | None:
    """Check the root folder of a new session. None if it is the folder of sessions.d, which is the default."""
    if root is None:
        return None
    if not root.startswith("/") or not os.path.isdir(root):
        raise CallerError(f"{root!r} is not a folder of this machine; root is the absolute path of a folder")
    root = os.path.normpath(root)
    return None if root == str(service.places.specs.parent) else root


async def finish_open(service: Service, done: Done) -> More:
    if done.call.spec is not None:
        return {}
    if not done.reply.is_repeated:
        service.report_spec_again(done.call.name)
    await service.read_specs()
    return {}


CALLS: dict[str, CallSteps] = {
    "answer": CallSteps(makes=(calls.Answer,), around=tell_first),
    "open": CallSteps(makes=(calls.Open,), prepare=prepare_open, finish=finish_open, is_owners=is_new),
    "rename": CallSteps(
        makes=(calls.Rename,), prepare=prepare_rename, finish=finish_rename, finish_again=finish_rename_again
    ),
    "send": CallSteps(makes=(calls.Send,), is_to_others=True),
    "trace": CallSteps(makes=(calls.Trace,), prepare=prepare_trace),
}
