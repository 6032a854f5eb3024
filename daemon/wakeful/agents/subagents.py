"""The tool `delegate`: another declared agent does a piece of work for the agent of a run.

The result of the call is the sub-agent's last text. Sub-agents run in the same process, one at a time, so they have the
permissions of the run and end with it. Each has its own model, prompt, opening and limits, and no sub-agents. Its steps
are recorded with the call that they answer, so a run that continues after a crash resumes the work. run_setup.py makes
a `Delegation`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from wakeful.agents.contract import Model, Tool
from wakeful.agents.loop import Ending, Loop, Record, RunEnded
from wakeful.agents.tools.bound_files import Refused
from wakeful.agents.tools.tool import Arguments, CheckedTool
from wakeful.agents.tools.tool_set import ToolBox
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import DELEGATE, SubWork
from wakeful.core.spec.agent import AgentSpec
from wakeful.errors import OperatorError


class DelegateArguments(Arguments, frozen=True):
    agent: Annotated[str, Meta(min_length=1, description="the name of a sub-agent")]
    text: Annotated[
        str,
        Meta(
            min_length=1,
            description="the whole piece of work: the sub-agent knows the session's facts, but not this conversation",
        ),
    ]


class Delegation:
    """Runs sub-agents.

    `make_models` and `make_tools` make a sub-agent's models and tools. `say` shows its text as it comes.
    """

    def __init__(
        self,
        beginning: work.Beginning,
        link: DaemonClient,
        record: Record,
        make_models: Callable[[AgentSpec], Sequence[Model]],
        make_tools: Callable[[work.Beginning], ToolBox],
        say: Callable[[str], None],
    ) -> None:
        self._run_id = beginning.run_id
        self._team: Mapping[str, AgentSpec] = {one.name: one for one in beginning.agent.team}
        self._link = link
        self._record = record
        self._make_models = make_models
        self._make_tools = make_tools
        self._say = say
        self._numbers = itertools.count(1)

    def list_tools(self) -> Iterable[Tool]:
        if self._team:
            known = "; ".join(_describe(one) for one in self._team.values())
            yield CheckedTool(
                DELEGATE,
                f"Give a sub-agent a piece of work, and get its answer. The sub-agents: {known}",
                DelegateArguments,
                self._delegate,
            )

    async def _delegate(self, given: DelegateArguments, call_id: str) -> str:
        if given.agent not in self._team:
            raise Refused(f"there is no sub-agent {given.agent[:100]!r}; the sub-agents are {', '.join(self._team)}")
        number = next(self._numbers)
        wanted = {"call": call_id, "agent": given.agent, "text": given.text}
        answer = await self._link.post("/work/subagent", wanted, key=f"{self._run_id}.sub.{number}")
        # Give the sub-agent a run_id of its own, because its call ids may be the same as those of the caller's calls.
        beginning = replace(msgspec.convert(answer, work.Beginning), run_id=f"{self._run_id}.{number}")
        record = SubRecord(self._record, SubWork(call=call_id, agent=given.agent))
        self._say(f"\n[sub-agent {given.agent}]\n")
        loop = Loop(beginning, self._make_models(beginning.agent), self._make_tools(beginning), record, self._say)
        ending = Ending(is_long=True) if beginning.is_long else await loop.run()
        self._say(f"\n[sub-agent {given.agent} ends]\n")
        if record.run_end is not None:
            # The call gets no return. The next run resumes its work, or closes the call as interrupted.
            raise RunEnded(record.run_end, is_limit=record.is_limit)
        return _say_result(given.agent, ending, loop.last_words)


def _describe(agent: AgentSpec) -> str:
    first = next(iter(agent.prompt.strip().splitlines()), "")
    return f"{agent.name} ({first[:160]})" if first else agent.name


def _say_result(agent: str, ending: Ending, words: str) -> str:
    """Return the answer of the sub-agent. Raises SubagentStopped if it did not finish, with its last text, if any."""
    if ending.words is None and not ending.is_long:
        return words or f"{agent} is done, without a closing text"
    why = (
        "its conversation is too long for its model; give it a smaller piece of work"
        if ending.is_long
        else ending.words
    )
    raise SubagentStopped(f"{agent} did not finish: {why}" + (f"\nIts last words: {words}" if words else ""))


class SubagentStopped(OperatorError):
    """A sub-agent did not finish. The agent of the run reads the message."""


class SubRecord:
    """Records the steps of a sub-agent, marked as such (loop.Record)."""

    def __init__(self, record: Record, sub: SubWork) -> None:
        self._record = record
        self._sub = sub
        # The reason why the whole run is over, and whether that reason is a limit.
        self.run_end: str | None = None
        self.is_limit = False

    async def keep(self, content: bytes) -> str | None:
        return await self._record.keep(content)

    async def find(self, address: str) -> bytes | None:
        return await self._record.find(address)

    async def tell(self, *steps: work.PostedStep) -> None:
        await self._record.tell(*map(self._mark, steps))

    async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
        recorded = await self._record(*map(self._mark, steps))
        self.run_end, self.is_limit = recorded.end, recorded.is_limit
        return recorded if recorded.end is not None else replace(recorded, end=recorded.sub_end)

    def _mark(self, step: work.PostedStep) -> work.PostedStep:
        # A sub-agent cannot ask a person, and is never an external program.
        assert not isinstance(step, work.AskPerson | work.MeterTurn)
        return replace(step, sub=self._sub)
