"""A session whose records the test writes, in an in-memory log, with real blobs and files.

It is folded as the daemon does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wakeful.core.agents.turns import Answered, TokenUsage, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.fold import fold
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import PromptRun, SessionSpec
from wakeful.eventlog.codec import encode
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.history.positions import fold_at
from wakeful.model_context.assemble import Assembled, assemble
from wakeful.model_context.recorded_turns import Turns, read_turns
from wakeful.system.blobs import Blobs

ADA = "person:ada"
AGENT = AgentSpec(name="docs", prompt="You keep pages true.", models=(ModelSpec(provider="anthropic", model="m"),))
SECOND = 1_000_000


class World:
    """A log, blobs and a folder with files, for one test."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.log = MemoryLog()
        self.blobs = Blobs(str(folder / "blobs"))
        self.clock = 1_700_000_000 * SECOND

    def write(self, name: str, content: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def open(self, name: str = "pages", **keys: Any) -> Talk:
        talk = Talk(self, name)
        talk.add(ev.SessionOpened(id=f"01{name}", name=name))
        keys.setdefault("bindings", (FileBinding(name="code", pattern="src/**"),))
        keys.setdefault("run", PromptRun(prompt="Bring the page in line."))
        spec = SessionSpec(name=name, root=str(self.root), objective="Keep docs/api.md true to src/.", **keys)
        talk.add(ev.SpecDeclared(spec=spec, version="s1", text_digest="t1"))
        return talk

    def fork(self, talk: Talk, name: str = "trial") -> Talk:
        """Make a fork, with the recollection of its parent's current seq."""
        fork = Talk(self, name)
        session = talk.session
        origin = ev.Origin(session=session.id, name=session.name, seq=session.seq)
        fork.add(
            ev.SessionOpened(
                id=f"01{name}", name=name, origin=origin, recollection=session.recollect(), is_first_taken=True
            )
        )
        assert session.spec is not None
        fork.add(ev.SpecDeclared(spec=session.spec, version="s1", text_digest="t1", is_filed=False))
        return fork


class Talk:
    """One session. Each method records an event."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.id = f"01{name}"
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    def add(self, event: ev.Event, author: str = "daemon") -> int:
        world, before = self.world, self._session
        world.clock += SECOND
        seq = (before.seq if before is not None else 0) + 1
        run = before.run.run if before is not None and before.run is not None else None
        kind, payload = encode(event)
        world.log.append_blocking([Append(self.id, seq - 1, (Draft(kind, payload, author, run),))], world.clock)
        self._session = fold(before, event, seq=seq, at=world.clock, author=author)
        return seq

    # -- runs ---------------------------------------------------------------------------------

    def start(self, *causes: ev.Cause, **fields: Any) -> int:
        """Record a wake and its run, and return the run's number. The run is fresh by default, as in the daemon."""
        session = self.session
        run, wake = session.tally.runs + 1, session.wake.wake if session.wake is not None else session.tally.wakes + 1
        causes = causes or (make_cause(new=f"v{run}"),)
        if session.wake is None:
            self.add(ev.WakeRequested(wake=wake, causes=causes))
        fields = {"attempt": 0, "is_fresh": True, "versions": {"message": str(session.mailbox.position)}, **fields}
        self.add(ev.RunStarted(run=run, run_id=f"{self.id}.{run}", wake=wake, incarnation="d", causes=causes, **fields))
        return run

    def go_on(self, *causes: ev.Cause, **fields: Any) -> int:
        """Record a run that resumes the last one."""
        last = self.session.last_run
        assert last is not None
        known = self.session.wake.causes if self.session.wake is not None else ()
        return self.start(*(causes or known), is_fresh=False, resumed_from=last.run, **fields)

    def begin(self, agent: AgentSpec = AGENT) -> Assembled:
        """Assemble, and record the result, as the daemon does."""
        found = self.assemble(agent)
        opening = found.opening_text
        self.add(
            ev.PromptAssembled(
                run=self.session.tally.runs, agent=agent.name, model="anthropic:m", instructions=self.world.blobs.put(found.instructions_text.encode()),
                opening=self.world.blobs.put(opening.encode()) if opening is not None else None, tokens=found.tokens,
            )
        )  # fmt: skip
        return found

    def answer(self, text: str, *calls: ToolCall) -> None:
        answered = Answered(model="anthropic:m", text=text, calls=calls, stop="calls" if calls else "done")
        self.add(
            ev.TurnAnswered(run=self.session.tally.runs, turn=1, answer=answered, usage=TokenUsage(input=10, output=5))
        )

    def call(self, call: ToolCall) -> None:
        self.add(ev.ToolCalled(run=self.session.tally.runs, call=call))

    def bring(self, call: ToolCall, text: str) -> None:
        self.add(ev.ToolReturned(run=self.session.tally.runs, call=call.id, name=call.name, text=text))

    def ask(self, call: ToolCall, text: str, *, is_permission: bool = False) -> None:
        """Ask a person. This ends the run."""
        self.add(
            ev.QuestionAsked(
                run=self.session.tally.runs, call=call.id, name=call.name, text=text, is_permission=is_permission
            )
        )
        self.add(ev.WorkHalted(run=self.session.tally.runs, hold=ev.Hold(kind="asking", words=text)))
        self.end("interrupted", is_final=False)

    def reply(self, call: ToolCall, text: str) -> None:
        self.add(ev.QuestionAnswered(wake=self.session.tally.wakes, text=text, call=call.id), ADA)

    def end(self, outcome: ev.Outcome = "succeeded", *, is_final: bool = True, **fields: Any) -> int:
        return self.add(ev.RunFinished(run=self.session.tally.runs, outcome=outcome, is_final=is_final, **fields))

    def say(self, text: str, author: str = ADA, **fields: Any) -> int:
        position = self.session.mailbox.position + 1
        return self.add(ev.MessageAdded(position=position, sender=author, text=text, **fields), author)

    def rewind(self, to: int) -> None:
        past = fold_until(self, to)
        self.add(ev.SessionRewound(to=to, recollection=past.recollect()), ADA)

    # -- what comes of it ---------------------------------------------------------------------

    def turns(self) -> Turns:
        return read_turns(self.world.log, self.world.blobs, self.session)

    def assemble(self, agent: AgentSpec = AGENT) -> Assembled:
        return assemble(self.session, agent, log=self.world.log, blobs=self.world.blobs)


def fold_until(talk: Talk, seq: int) -> Session:
    return fold_at(talk.world.log, talk.id, seq)


def make_call(number: int, name: str = "read", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=f"c{number}", name=name, arguments=arguments)


def make_cause(binding: str = "code", kind: str = "file", new: str = "v1", *paths: str, **fields: Any) -> ev.Cause:
    changed = tuple(ev.ChangedPath(path, "modified") for path in paths)
    return ev.Cause(
        binding=binding, kind=kind, key=f"{kind} {binding}", new=new, paths=changed, **{"delta": "known", **fields}
    )
