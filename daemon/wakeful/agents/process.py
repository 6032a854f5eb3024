"""One run of an agent as a process: fetch where its conversation stands, think, leave a hand-off,
and say by the exit code how it went.

Started by the daemon's runner as any command is, or by the warm server that has everything imported; confined before
its first instruction. All it knows comes from the daemon over its run's socket;
all it prints is shown live as the run's output.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import itertools
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from wakeful.agents.compaction import Shortened, shorten
from wakeful.agents.contract import Model
from wakeful.agents.daemon_client import DaemonLink, DaemonRefused, LinePost
from wakeful.agents.live_text import Voice
from wakeful.agents.loop import HAND_OFF, TODO, Ending, Loop, Record
from wakeful.agents.models import make_model
from wakeful.agents.subagents import Delegation
from wakeful.agents.summary_pieces import digest_piece, list_whole, tell_entries
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.box import ToolBox, ToolSet, make_tools
from wakeful.agents.tools.fetch import FetchTool
from wakeful.agents.tools.folder_rules import NestedRules
from wakeful.agents.tools.mcp import McpTools, ServerPlace, open_servers
from wakeful.agents.tools.pages import Redact, Redaction
from wakeful.agents.tools.shell import ShellTool
from wakeful.agents.tools.shell_confinement import Narrowing, narrow, select_environment
from wakeful.agents.tools.skills import SkillTools
from wakeful.agents.tools.tool import ResultLimit, find_result_bytes
from wakeful.core.agents import steps as work
from wakeful.core.agents.steps import STOPPED
from wakeful.core.agents.turns import Entry
from wakeful.core.spec.agent import AgentSpec, McpServer, ModelSpec, ToolPolicy
from wakeful.errors import OperatorError
from wakeful.runners.isolation.programs import ProgramWords, derive_places
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.server_programs import find_script_folder, resolve_server
from wakeful.secrets.store import name_variable
from wakeful.system.installation import NotInstalled, advise_agents

# The agent is not done, and why is on record (sysexits: try again later).
EXIT_HALTED = 75
LONGEST_HAND_OFF = 16_000
FAREWELL_SECONDS = 5.0
OUT_OF_TIME = "it was ended from outside: its timeout, or a limit of its session"
# The home folder of programs of others, in the session's scratch folder, which stays from run to run.
HOME = "home"
# The part of a refused size that is sent next.
REFUSED_SHARE = 0.7


Work = Callable[[work.Beginning, Record, DaemonLink, Mapping[str, str], Voice], Awaitable[Ending]]


async def think(environ: Mapping[str, str]) -> int:
    """The whole run. Returns its exit code."""
    async with DaemonLink.from_environment(environ) as link:
        beginning = await _begin(link, environ)
        record = Recorder(link, beginning.run_id)
        voice = Voice(link, say)
        try:
            ending = await _find_work(beginning)(beginning, record, link, environ, voice)
        except OperatorError as error:
            # Whoever set this up can mend it: in words, and on record.
            await record(work.Halt(words=str(error)))
            ending = Ending(str(error))
        finally:
            voice.close()
    if ending.words is None:
        return 0
    say(f"\n[{ending.words}]\n")
    return EXIT_HALTED


async def _begin(
    link: DaemonLink, environ: Mapping[str, str], again: int = 0, window: work.FoundWindow | None = None
) -> work.Beginning:
    """Fetch where the conversation stands, with the window that was found before.

    A daemon that needs one asks for it first.
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
        find_window = importlib.import_module("wakeful.agents.model_window").find_window
    except ModuleNotFoundError as missing:
        raise NotInstalled(
            f"the libraries that speak with models are not installed ({missing}); {advise_agents()}"
        ) from None
    found = await find_window(model, read_secret(model.key, environ), silence_seconds)
    if found.tokens is None:
        say(f"[how much {model.name} takes in is not known: {found.source}; set context.tokens in its agent's file]\n")
    return found


def _find_work(beginning: work.Beginning) -> Work:
    """Its own loop, or an external program. That one's libraries are read when one is there: they take a second."""
    if not beginning.agent.acp:
        return _work
    try:
        return importlib.import_module("wakeful.agents.acp.run").work_outside
    except ModuleNotFoundError as missing:
        raise NotInstalled(
            f"the libraries that speak with external agents are not installed ({missing}); {advise_agents()}"
        ) from None


async def _work(
    beginning: work.Beginning, record: Record, link: DaemonLink, environ: Mapping[str, str], voice: Voice
) -> Ending:
    async with begin_servers(beginning, environ) as servers:
        # Its servers start while our own libraries are read.
        await asyncio.sleep(0)
        models = make_models(beginning.agent, environ)
        tools = await make_box(beginning, servers, link, environ, record)
        return await Thinking(beginning, models, tools, record, link, environ, voice).run()


class Thinking:
    """One run of the built-in loop, with as many summaries on the way as it takes.

    A run that has to stop leaves a hand-off.
    """

    def __init__(
        self,
        beginning: work.Beginning,
        models: Sequence[Model],
        tools: ToolBox,
        record: Record,
        link: DaemonLink,
        environ: Mapping[str, str],
        voice: Voice,
    ) -> None:
        self._beginning = beginning
        self._voice = voice
        self._models = models
        self._tools = tools
        self._record = record
        self._link = link
        self._environ = environ
        self._most_tokens = beginning.agent.window.compress_at
        self._loop = Loop(beginning, models, tools, record, say, hearing=voice)
        # Did this process bring the session any further?
        self._has_worked = False
        # The summary of a run that had to stop while its conversation was made shorter.
        self._last_summary: str | None = None

    async def run(self) -> Ending:
        """To its end. SIGTERM, the word of a run's timeout, ends it in the middle, with its hand-off."""
        thinking = asyncio.create_task(self._think(), name="think")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, thinking.cancel)
        try:
            await asyncio.wait([thinking])
        except asyncio.CancelledError:
            # Interrupted: its tools end before what they need is closed.
            thinking.cancel()
            await asyncio.wait([thinking])
            raise
        if not thinking.cancelled():
            return await self._leave(thinking.result())
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                return await self._leave(await self._find_ending())
        except TimeoutError:
            # No daemon is there to be told: the next run goes on from what is on record.
            return Ending(OUT_OF_TIME)

    async def _leave(self, ending: Ending) -> Ending:
        """With its hand-off, where this run is to leave one."""
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
        """Ended from outside: by a person, who is on record, or because its time is over."""
        recorded = await self._record()
        return (
            Ending(recorded.end, is_limit=recorded.is_limit)
            if recorded.end is not None
            else Ending(OUT_OF_TIME, is_limit=True)
        )

    async def _think(self) -> Ending:
        """It stops where a summary makes no room."""
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
        """With the conversation as it is since it was made shorter."""
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


def say_stopped(
    words: str, beginning: work.Beginning, entries: Sequence[Entry], last_words: str, summary: str | None = None
) -> str:
    """The hand-off of a run that had to stop: the next run goes on from there.

    Without a summary of its conversation one is made by rule.
    """
    parts = [f"Run {beginning.run} {STOPPED}: {words}"]
    parts += [f"Its last words: {last_words}"] if last_words else []
    parts.append(
        "Its work until then, in short:\n"
        f"{summary or digest_piece(tell_entries(list_whole(beginning, entries)), beginning.summary)}"
    )
    if beginning.standing_hand_off and STOPPED not in beginning.standing_hand_off:
        parts.append(f"The hand-off that it began with:\n{beginning.standing_hand_off}")
    return "\n\n".join(parts)


def find_most_tokens(most_tokens: int, ending: Ending) -> int:
    """The largest size of the next requests. After a refusal it is clearly smaller than the refused size."""
    return (
        most_tokens if ending.refused_tokens is None else min(most_tokens, int(ending.refused_tokens * REFUSED_SHARE))
    )


def _say_no_room(size: int, most: int, agent: AgentSpec) -> str:
    return (
        f"a summary made no room: what it is told takes {size:,} tokens, and {most:,} fit; "
        f"shorten rules, prompt or tools of agent {agent.name}, or raise its context.tokens where its model takes more"
    )


@asynccontextmanager
async def begin_servers(beginning: work.Beginning, environ: Mapping[str, str]) -> AsyncIterator[McpTools]:
    """Begin to start the agent's servers, which live as long as the run."""
    programs = [server for server in beginning.agent.mcp if server.argv]
    home = environ.get("HOME", "")
    words = {server.name: resolve_server(server.argv, beginning.root, home) for server in programs}
    narrowing = (
        find_narrowing(
            beginning, find_bounds(beginning, environ), environ, [word for argv in words.values() for word in argv]
        )
        if programs
        else None
    )
    if narrowing is not None:
        folders = (find_script_folder(argv, beginning.root) for argv in words.values())
        narrowing = replace(narrowing, reads=(*narrowing.reads, *(folder for folder in folders if folder is not None)))
    environments = {server.name: make_server_environment(server, beginning, environ) for server in programs}
    place = ServerPlace(
        root=beginning.root,
        narrowing=narrowing,
        words=words,
        environments=environments,
        read_key=lambda name: read_secret(name, environ),
    )
    async with open_servers(beginning.agent.mcp, place) as servers:
        yield servers


def make_server_environment(server: McpServer, beginning: work.Beginning, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that every program gets here, the server's own, and its secrets as variables of their names."""
    inherited = select_environment(environ)
    if not beginning.is_unisolated:
        inherited["HOME"] = make_home(environ)
    secrets = {name: read_secret(name, environ) or "" for name in server.secrets}
    return inherited | server.env | secrets


def make_home(environ: Mapping[str, str]) -> str:
    """The person's own is out of a program's reach. This one is kept from run to run. Blocks."""
    home = Path(environ["WAKEFUL_SCRATCH"]) / HOME
    home.mkdir(mode=0o700, exist_ok=True)
    return str(home)


async def make_box(
    beginning: work.Beginning,
    servers: McpTools,
    link: DaemonLink,
    environ: Mapping[str, str],
    record: Record | None = None,
) -> ToolBox:
    """The tools every agent has, a shell where it is declared, and those of its servers,
    which are waited for in bounds.

    `record`: where its sub-agents record their steps. None: it can give no work to others."""
    await servers.wait(beginning.failing)
    for one in servers.down:
        say(f"[{one.words}]\n")
    bounds = find_bounds(beginning, environ)
    redact = Redaction(link).redact
    shell = ShellTool(beginning.root, find_narrowing(beginning, bounds, environ), environ, redact)
    policies = dict(beginning.tools)
    if beginning.hand_off == "withheld":
        policies |= {HAND_OFF: "deny", TODO: "deny"}
    more: tuple[ToolSet, ...] = (shell, SkillTools(link, beginning.agent.skills))
    if record is not None and beginning.agent.team:
        more = (
            *more,
            Delegation(
                beginning,
                link,
                record,
                lambda agent: make_models(agent, environ),
                lambda sub: _fill_box(sub, bounds, sub.tools, link, redact, (shell,)),
                say,
            ),
        )
    return _fill_box(beginning, bounds, policies, link, redact, more, servers)


def _fill_box(
    beginning: work.Beginning,
    bounds: Bounds,
    policies: Mapping[str, ToolPolicy],
    link: DaemonLink,
    redact: Redact,
    more: Sequence[ToolSet],
    servers: McpTools | None = None,
) -> ToolBox:
    limit = ResultLimit(find_result_bytes(beginning.agent.window.compress_at))
    return make_tools(
        bounds,
        policies,
        link,
        session=beginning.session,
        run_id=beginning.run_id,
        kept=find_kept(beginning),
        limit=limit,
        redact=redact,
        rules=NestedRules(link),
        more=(*more, FetchTool(beginning.fetch, limit)),
        servers=servers,
    )


def find_kept(beginning: work.Beginning) -> str | None:
    """The hand-off whose parts stay unless the agent sets them."""
    return beginning.standing_hand_off if beginning.hand_off == "kept" else None


def find_bounds(beginning: work.Beginning, environ: Mapping[str, str]) -> Bounds:
    return Bounds.build(beginning.root, beginning.reads, beginning.writes, environ["WAKEFUL_SCRATCH"])


def find_narrowing(
    beginning: work.Beginning, bounds: Bounds, environ: Mapping[str, str], programs: Sequence[str] = ()
) -> Narrowing | None:
    """Find the places that other programs (not ours) may touch. None: this session asked for no isolation."""
    if beginning.is_unisolated:
        return None
    words = ProgramWords(
        texts=tuple(programs),
        program=None,
        root=beginning.root,
        cwd=beginning.root,
        search_path=environ.get("PATH", ""),
        declared=beginning.allow_read,
    )
    # Places derived here widen nothing: the run itself still reaches only the places it was given at its start.
    derived, _ = derive_places(words, None, is_wide)
    reads = (*beginning.allow_read, *(place.path for place in derived.places), *derived.spelled)
    return narrow(
        bounds,
        environ,
        network=beginning.network,
        listens=beginning.listens,
        looks_up_names=beginning.looks_up_names,
        reads=reads,
        writes=beginning.allow_write,
    )


async def hand_off(link: DaemonLink, beginning: work.Beginning, words: str) -> None:
    """The agent's last words become the hand-off that the next run starts from, where this run is to replace it."""
    if beginning.hand_off != "replaced":
        return
    text = (
        words if len(words) <= LONGEST_HAND_OFF else f"{words[:LONGEST_HAND_OFF]}… (cut here; history shows all of it)"
    )
    await link.call("note", {"text": text or "done; it left no words"}, key=f"{beginning.run_id}.hand_off")


def make_models(agent: AgentSpec, environ: Mapping[str, str]) -> list[Model]:
    return [make_model(spec, read_secret(spec.key, environ), agent.limits.silence_seconds) for spec in agent.models]


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

    async def keep(self, content: bytes) -> str | None:
        try:
            # Named by its content, so that it may be asked for twice.
            return str(
                (await self._link.post("/work/images", {"content": content}, key=f"{self._run_id}.image"))["address"]
            )
        except DaemonRefused as refusal:
            say(f"\n[an image is not kept: {refusal}]\n")
            return None

    async def find(self, address: str) -> bytes | None:
        try:
            return base64.b64decode((await self._link.look(f"/work/images/{address}"))["content"])
        except DaemonRefused:
            return None

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
