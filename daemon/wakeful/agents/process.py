"""One run of an agent as a process: fetch the conversation, work, leave a hand-off, and return an exit code.

The daemon's runner starts it like any command, confined before its first instruction. All its data comes from the
daemon over the run's socket. Its standard output is shown live as the run's output.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from wakeful.agents.compaction import Shortened, shorten
from wakeful.agents.contract import Model
from wakeful.agents.live_text import LiveTextStream
from wakeful.agents.loop import Ending, Loop, Record
from wakeful.agents.models.provider_model import make_model
from wakeful.agents.run_setup import (
    Recorder,
    begin_servers,
    hand_off,
    make_box,
    make_models,
    read_secret,
    say,
    say_stopped,
)
from wakeful.agents.summary import list_whole
from wakeful.agents.tools.tool import find_result_bytes
from wakeful.agents.tools.tool_set import ToolBox
from wakeful.client.async_client import DaemonClient
from wakeful.client.refusals import DaemonRefused
from wakeful.core.agents import steps as work
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.errors import OperatorError
from wakeful.system.installation import NotInstalled, advise_agents

# The exit code if the agent is not done. The reason is on record. (75 is EX_TEMPFAIL in sysexits: try again later.)
EXIT_HALTED = 75
FAREWELL_SECONDS = 5.0
OUT_OF_TIME = "it was stopped by its timeout or by a limit of its session"
# The size of the next request, as a share of the size that a provider refused.
REFUSED_SHARE = 0.7


Work = Callable[[work.Beginning, Record, DaemonClient, Mapping[str, str], LiveTextStream], Awaitable[Ending]]


async def think(environ: Mapping[str, str]) -> int:
    """Carry out the whole run. Returns its exit code."""
    async with DaemonClient.from_environment(environ) as link:
        beginning = await _begin(link, environ)
        record = Recorder(link, beginning.run_id)
        live_text = LiveTextStream(link, say)
        try:
            ending = await _find_work(beginning)(beginning, record, link, environ, live_text)
        except OperatorError as error:
            # The operator can fix this error, so its message is recorded.
            await record(work.Halt(words=str(error)))
            ending = Ending(str(error))
        finally:
            live_text.close()
    if ending.words is None:
        return 0
    say(f"\n[{ending.words}]\n")
    return EXIT_HALTED


async def _begin(
    link: DaemonClient, environ: Mapping[str, str], again: int = 0, window: work.FoundWindow | None = None
) -> work.Beginning:
    """Fetch the conversation from the daemon. `window` is the context window of the model, if it was found before.

    If the daemon needs the window, it asks for it before it sends the conversation.
    """
    key, asked = f"{environ['WAKEFUL_RUN']}.begin.{again}", work.Begin(asks_window=window is None, window=window)
    match await link.post("/work/begin", asked, key=key):
        case {"window_of": model, "silence_seconds": silence}:
            found = await _ask_window(msgspec.convert(model, ModelSpec), silence, environ)
            return await _begin(link, environ, again, found)
        case found:
            return msgspec.convert(found, work.Beginning)


async def _ask_window(model: ModelSpec, silence_seconds: float, environ: Mapping[str, str]) -> work.FoundWindow:
    try:
        find_window = importlib.import_module("wakeful.agents.models.context_window").find_window
    except ModuleNotFoundError as missing:
        raise NotInstalled(f"the libraries for models are not installed ({missing}); {advise_agents()}") from None
    found: work.FoundWindow = await find_window(model, read_secret(model.key, environ), silence_seconds)
    if found.tokens is None:
        say(f"[the context window of {model.name} is not known: {found.source}; set context.tokens of its agent]\n")
    return found


def _find_work(beginning: work.Beginning) -> Work:
    """Return the built-in loop, or the one for an external agent.

    The libraries for external agents are imported only if needed, because that takes a second.
    """
    if not beginning.agent.acp:
        return _work
    try:
        outside: Work = importlib.import_module("wakeful.agents.acp.run").work_outside
    except ModuleNotFoundError as missing:
        raise NotInstalled(
            f"the libraries for external agents are not installed ({missing}); {advise_agents()}"
        ) from None
    return outside


async def _work(
    beginning: work.Beginning, record: Record, link: DaemonClient, environ: Mapping[str, str], live_text: LiveTextStream
) -> Ending:
    async with begin_servers(beginning, environ) as servers:
        # Let the servers start while the libraries of the models are imported.
        await asyncio.sleep(0)
        models = make_models(beginning.agent, environ)
        tools = await make_box(beginning, servers, link, environ, record)
        return await LoopRun(beginning, models, tools, record, link, environ, live_text).run()


class LoopRun:
    """One run of the built-in loop, which summarises its conversation as often as needed.

    A run that has to stop leaves a hand-off.
    """

    def __init__(
        self,
        beginning: work.Beginning,
        models: Sequence[Model],
        tools: ToolBox,
        record: Record,
        link: DaemonClient,
        environ: Mapping[str, str],
        live_text: LiveTextStream,
    ) -> None:
        self._beginning = beginning
        self._voice = live_text
        self._models = models
        self._tools = tools
        self._record = record
        self._link = link
        self._environ = environ
        self._most_tokens = beginning.agent.window.compress_at
        self._loop = Loop(beginning, models, tools, record, say, hearing=live_text)
        # Has a model answered in this process?
        self._has_worked = False
        # The summary that was made when the run had to stop during a compression.
        self._last_summary: str | None = None

    async def run(self) -> Ending:
        """Run to the end.

        SIGTERM, which a run's timeout sends, stops the run early. A stopped run still leaves a hand-off.
        """
        thinking = asyncio.create_task(self._think(), name="think")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, thinking.cancel)
        try:
            await asyncio.wait([thinking])
        except asyncio.CancelledError:
            # Interrupted. Let the tools end before the servers and the link that they use are closed.
            thinking.cancel()
            await asyncio.wait([thinking])
            raise
        if not thinking.cancelled():
            return await self._leave(thinking.result())
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                return await self._leave(await self._find_ending())
        except TimeoutError:
            # The daemon does not answer. The next run continues from the records so far.
            return Ending(OUT_OF_TIME)

    async def _leave(self, ending: Ending) -> Ending:
        """Leave a hand-off if this run must leave one and has not yet. Returns the ending."""
        self._has_worked = self._has_worked or self._loop.has_answered
        if self._loop.has_handed_off:
            return ending
        if ending.words is None:
            await hand_off(self._link, self._beginning, self._loop.last_words)
        elif ending.is_limit and self._has_worked:
            left = say_stopped(
                ending.words, self._beginning, self._loop.entries, self._loop.last_words, self._last_summary
            )
            await hand_off(self._link, self._beginning, left)
        return ending

    async def _find_ending(self) -> Ending:
        """Return why the run was stopped from outside: by a person, as the daemon has recorded, or by its timeout."""
        recorded = await self._record()
        return (
            Ending(recorded.end, is_limit=recorded.is_limit)
            if recorded.end is not None
            else Ending(OUT_OF_TIME, is_limit=True)
        )

    async def _think(self) -> Ending:
        """Run the loop, and compress the conversation whenever it is too long.

        Halts if it cannot be made short enough.
        """
        ending = Ending(is_long=True) if self._beginning.is_long else await self._loop.run()
        for again in itertools.count(1):
            if not ending.is_long:
                return ending
            self._most_tokens = find_most_tokens(self._most_tokens, ending)
            self._tools.fit(find_result_bytes(self._most_tokens))
            self._tools.tell_rules_again()
            made = await self._shorten()
            if made.stopped is not None:
                self._last_summary = made.summary
                return Ending(made.stopped, is_limit=made.is_limit)
            ending = await self._go_on(again)
        raise AssertionError("unreachable")

    async def _go_on(self, again: int) -> Ending:
        """Continue with the compressed conversation. Halts if it still does not fit and did not become shorter."""
        before = self._loop.size_tokens
        self._has_worked = self._has_worked or self._loop.has_answered
        self._beginning = await _begin(self._link, self._environ, again, self._beginning.window)
        self._loop = Loop(
            self._beginning,
            self._models,
            self._tools,
            self._record,
            say,
            most_tokens=self._most_tokens,
            hearing=self._voice,
        )
        size = self._loop.size_tokens
        if not self._beginning.is_long and size <= self._most_tokens:
            return await self._loop.run()
        return (
            Ending(is_long=True)
            if size < before
            else await self._halt(_say_no_room(size, self._most_tokens, self._beginning.agent))
        )

    async def _shorten(self) -> Shortened:
        agent, beginning = self._beginning.agent, replace(self._beginning, turns=self._loop.turns)
        cheaper = agent.window.compress_by
        models = (
            [make_model(cheaper, read_secret(cheaper.key, self._environ), agent.limits.silence_seconds), *self._models]
            if cheaper is not None
            else self._models
        )
        try:
            return await shorten(
                beginning,
                list_whole(beginning, self._loop.entries),
                models,
                self._record,
                self._link,
                say,
                self._most_tokens,
            )
        except DaemonRefused as refusal:
            ending = await self._halt(f"its conversation does not fit its model and cannot be made shorter: {refusal}")
            return Shortened(stopped=ending.words, is_limit=True)

    async def _halt(self, words: str) -> Ending:
        await self._record(work.Halt(words=words))
        return Ending(words, is_limit=True)


def find_most_tokens(most_tokens: int, ending: Ending) -> int:
    """Return the limit of tokens for the next requests. After a refusal it is clearly below the refused size."""
    return (
        most_tokens if ending.refused_tokens is None else min(most_tokens, int(ending.refused_tokens * REFUSED_SHARE))
    )


def _say_no_room(size: int, most: int, agent: AgentSpec) -> str:
    return (
        f"the conversation is still too long after a summary: a request takes {size:,} tokens, {most:,} fit; "
        f"shorten rules, prompt or tools of agent {agent.name}, or raise its context.tokens if its model takes more"
    )
