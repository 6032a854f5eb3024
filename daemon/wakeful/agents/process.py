"""One run of an agent as a process: fetch where its conversation stands, think, leave a hand-off, and say by the exit code how it went.

Started by the daemon's runner as any command is, or by the warm server that has everything imported; confined before its first
instruction. All it knows comes from the daemon over its run's socket; all it prints is shown live as the run's output.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec.structs import replace

from wakeful.agents.contract import Model
from wakeful.agents.daemon import DaemonLink, DaemonRefused, LinePost
from wakeful.agents.loop import HAND_OFF, Ending, Loop, Record
from wakeful.agents.models import make_model
from wakeful.agents.summarising import summarise
from wakeful.agents.tools.box import ToolBox, make_tools
from wakeful.agents.tools.mcp import open_servers
from wakeful.agents.tools.narrowing import Narrowing, narrow
from wakeful.agents.tools.offering import ResultLimit, find_result_bytes
from wakeful.agents.tools.place import Bounds
from wakeful.agents.tools.shell import ShellTool
from wakeful.core import work
from wakeful.core.agent import AgentSpec
from wakeful.errors import OperatorError
from wakeful.installation import NotInstalled, advise_agents
from wakeful.runners.isolation.programs import ProgramWords, derive_places
from wakeful.runners.isolation.reach import is_wide
from wakeful.secrets.store import name_variable

# The agent is not done, and why is on record (sysexits: try again later).
EXIT_HALTED = 75
LONGEST_HAND_OFF = 16_000
# Of a size that a provider refused: what is sent next.
REFUSED_SHARE = 0.7


Work = Callable[[work.Beginning, Record, DaemonLink, Mapping[str, str]], Awaitable[Ending]]


async def think(environ: Mapping[str, str]) -> int:
    """The whole run. Returns its exit code."""
    async with DaemonLink.from_environment(environ) as link:
        beginning = await _begin(link, environ)
        record = Recorder(link, beginning.run_id)
        try:
            ending = await _find_work(beginning)(beginning, record, link, environ)
        except OperatorError as error:
            # Whoever set this up can mend it: in words, and on record.
            await record(work.Halt(words=str(error)))
            ending = Ending(str(error))
    if ending.words is None:
        return 0
    say(f"\n[{ending.words}]\n")
    return EXIT_HALTED


async def _begin(link: DaemonLink, environ: Mapping[str, str], again: int = 0) -> work.Beginning:
    return msgspec.convert(await link.post("/work/begin", {}, key=f"{environ['WAKEFUL_RUN']}.begin.{again}"), work.Beginning)


def _find_work(beginning: work.Beginning) -> Work:
    """Its own loop, or an external program. That one's libraries are read when one is there: they take a second."""
    if not beginning.agent.acp:
        return _work
    try:
        return importlib.import_module("wakeful.agents.outside").work_outside
    except ModuleNotFoundError as missing:
        raise NotInstalled(f"the libraries that speak with external agents are not installed ({missing}); {advise_agents()}") from None


async def _work(beginning: work.Beginning, record: Record, link: DaemonLink, environ: Mapping[str, str]) -> Ending:
    models = make_models(beginning.agent, environ)
    async with open_tools(beginning, link, environ) as tools:
        return await _think_on(beginning, models, tools, record, link, environ)


async def _think_on(
    beginning: work.Beginning, models: Sequence[Model], tools: ToolBox, record: Record, link: DaemonLink, environ: Mapping[str, str]
) -> Ending:
    """To its end, with as many summaries on the way as it takes. It stops where a summary makes no room."""
    most_tokens = beginning.agent.window.compress_at
    loop = Loop(beginning, models, tools, record, say)
    ending = Ending(is_long=True) if beginning.is_long else await loop.run()
    for again in itertools.count(1):
        if not ending.is_long:
            break
        most_tokens = find_most_tokens(most_tokens, ending)
        tools.fit(find_result_bytes(most_tokens))
        problem = await _shorten(beginning, loop, models, record, link, environ, most_tokens)
        if problem is None:
            before, beginning = loop.size_tokens, await _begin(link, environ, again)
            loop = Loop(beginning, models, tools, record, say, most_tokens=most_tokens)
            is_long = beginning.is_long or loop.size_tokens > most_tokens
            problem = _say_no_room(loop.size_tokens, most_tokens, beginning.agent) if is_long and loop.size_tokens >= before else None
        if problem is not None:
            await record(work.Halt(words=problem))
            ending = Ending(problem, is_limit=True)
        else:
            ending = Ending(is_long=True) if is_long else await loop.run()
    if loop.has_handed_off:
        return ending
    if ending.words is None:
        await hand_off(link, beginning, loop.last_words)
    elif ending.is_limit and (loop.last_words or beginning.summary):
        await hand_off(link, beginning, say_stopped(ending.words, beginning, loop))
    return ending


def find_most_tokens(most_tokens: int, ending: Ending) -> int:
    """The largest size of the next requests. After a refusal it is clearly smaller than the refused size."""
    return most_tokens if ending.refused_tokens is None else min(most_tokens, int(ending.refused_tokens * REFUSED_SHARE))


def _say_no_room(size: int, most: int, agent: AgentSpec) -> str:
    return (
        f"a summary made no room: what it is told takes {size:,} tokens, and {most:,} fit; "
        f"shorten rules, prompt or tools of agent {agent.name}, or raise its context.tokens where its model takes more"
    )


def say_stopped(words: str, beginning: work.Beginning, loop: Loop) -> str:
    """The hand-off of a run that a limit stopped: the next run goes on from there."""
    parts = [f"Run {beginning.run} was stopped before it was done: {words}"]
    parts += [f"Its last words: {loop.last_words}"] if loop.last_words else []
    parts += [f"Its work until then, as summarised:\n{beginning.summary}"] if beginning.summary else []
    return "\n\n".join(parts)


async def _shorten(
    beginning: work.Beginning, loop: Loop, models: Sequence[Model], record: Record, link: DaemonLink, environ: Mapping[str, str], most_tokens: int
) -> str | None:
    """Why its conversation cannot be made shorter; None where it was."""
    cheaper = beginning.agent.window.compress_by
    chosen = [make_model(cheaper, read_secret(cheaper.key, environ)), *models] if cheaper is not None else models
    try:
        return await summarise(replace(beginning, turns=loop.turns), loop.entries, chosen, record, link, say, most_tokens)
    except DaemonRefused as refusal:
        return f"its conversation does not fit its model and cannot be made shorter: {refusal}"


@asynccontextmanager
async def open_tools(beginning: work.Beginning, link: DaemonLink, environ: Mapping[str, str]) -> AsyncIterator[ToolBox]:
    """Those every agent has, a shell where it is declared, and those of its servers, which live as long as the run."""
    bounds, servers = find_bounds(beginning, environ), beginning.agent.mcp
    shell = ShellTool(beginning.root, find_narrowing(beginning, bounds, environ), environ)
    narrowing = find_narrowing(beginning, bounds, environ, [word for server in servers for word in server.argv])
    async with open_servers(servers, environ, beginning.root, narrowing, lambda name: read_secret(name, environ)) as opened:
        for problem in opened.problems:
            say(f"[{problem}]\n")
        policies = {**beginning.tools, **opened.find_policies(beginning.tools)}
        if beginning.hand_off == "withheld":
            policies[HAND_OFF] = "deny"
        yield make_tools(bounds, policies, link, session=beginning.session, run_id=beginning.run_id, kept=find_kept(beginning), limit=ResultLimit(find_result_bytes(beginning.agent.window.compress_at)), more=(shell, opened))


def find_kept(beginning: work.Beginning) -> str | None:
    """The hand-off whose parts stay unless the agent sets them."""
    return beginning.standing_hand_off if beginning.hand_off == "kept" else None


def find_bounds(beginning: work.Beginning, environ: Mapping[str, str]) -> Bounds:
    return Bounds.build(beginning.root, beginning.reads, beginning.writes, environ["WAKEFUL_SCRATCH"])


def find_narrowing(beginning: work.Beginning, bounds: Bounds, environ: Mapping[str, str], programs: Sequence[str] = ()) -> Narrowing | None:
    """Find the places that other programs (not ours) may touch. None: this session asked for no isolation."""
    if beginning.is_unisolated:
        return None
    words = ProgramWords(texts=tuple(programs), program=None, root=beginning.root, cwd=beginning.root, search_path=environ.get("PATH", ""), declared=beginning.allow_read)
    # Places derived here widen nothing: the run itself still reaches only the places it was given at its start.
    derived, _ = derive_places(words, None, is_wide)
    reads = (*beginning.allow_read, *(place.path for place in derived.places), *derived.spelled)
    return narrow(bounds, environ, network=beginning.network, listens=beginning.listens, looks_up_names=beginning.looks_up_names, reads=reads, writes=beginning.allow_write)


async def hand_off(link: DaemonLink, beginning: work.Beginning, words: str) -> None:
    """The agent's last words become the hand-off that the next run starts from, where this run is to replace it."""
    if beginning.hand_off != "replaced":
        return
    await link.call("note", {"text": words[:LONGEST_HAND_OFF] or "done; it left no words"}, key=f"{beginning.run_id}.hand_off")


def make_models(agent: AgentSpec, environ: Mapping[str, str]) -> list[Model]:
    return [make_model(spec, read_secret(spec.key, environ)) for spec in agent.models]


def read_secret(name: str | None, environ: Mapping[str, str]) -> str | None:
    """The value of a secret the run was given as a file."""
    if name is None:
        return None
    place = environ.get(name_variable(name))
    if place is None:
        raise OperatorError(f"needs a key: {name} was not given to this run (wakeful secret set {name})")
    with open(place, encoding="utf-8") as file:
        return file.read().strip()


class Recorder:
    """Has steps of one run recorded (loop.Record): those that are told, together with the next that is waited for."""

    def __init__(self, link: DaemonLink, run_id: str) -> None:
        self._link = link
        self._run_id = run_id
        self._numbers = itertools.count(1)
        self._post: LinePost | None = None

    async def tell(self, *steps: work.PostedStep) -> None:
        self._post = self._post or self._link.post_lines("/work/steps")
        await self._post.send(self._write(steps))

    async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
        try:
            return await self._end(steps)
        except DaemonRefused as refusal:
            # Nothing of it is on record, so nothing of it may have an effect. Why is, unless the run itself is over.
            with suppress(DaemonRefused):
                await self._end((work.Halt(words=f"a step was refused: {refusal}"),))
            return work.Recorded(end=str(refusal))

    async def _end(self, steps: Sequence[work.PostedStep]) -> work.Recorded:
        post, self._post = self._post or self._link.post_lines("/work/steps"), None
        return msgspec.convert(await post.end(self._write(steps)), work.Recorded)

    def _write(self, steps: Sequence[work.PostedStep]) -> dict[str, object]:
        return {"key": f"{self._run_id}.{next(self._numbers)}", "steps": steps}


def say(text: str) -> None:
    """To whoever follows the run: not kept one by one, the run's output is."""
    sys.stdout.write(text)
    sys.stdout.flush()
