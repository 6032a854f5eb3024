"""Sets up a run of an agent: its servers, tools, models, keys, its record, and the hand-off that it leaves.

Called by process.py for the built-in loop, and by acp/run.py for an external agent. Every process started here has only
the rights that the session's bindings give.
"""

from __future__ import annotations

import base64
import itertools
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from wakeful.agents.contract import Model
from wakeful.agents.loop import HAND_OFF, TODO, Record
from wakeful.agents.models.provider_model import make_model
from wakeful.agents.subagents import Delegation
from wakeful.agents.summary_pieces import digest_piece, list_whole, tell_entries
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.box import ToolBox, ToolSet, make_tools
from wakeful.agents.tools.fetch import FetchTool
from wakeful.agents.tools.files import NestedRules
from wakeful.agents.tools.knowledge import SkillTools
from wakeful.agents.tools.mcp import McpTools, ServerPlace, open_servers
from wakeful.agents.tools.pages import Redact, Redaction
from wakeful.agents.tools.shell import ShellTool
from wakeful.agents.tools.shell_confinement import Narrowing, narrow, select_environment
from wakeful.agents.tools.tool import ResultLimit, find_result_bytes
from wakeful.client.async_client import DaemonClient, LinePost
from wakeful.client.refusals import DaemonRefused
from wakeful.core.agents import steps as work
from wakeful.core.agents.steps import STOPPED
from wakeful.core.agents.turns import Entry
from wakeful.core.spec.agent import AgentSpec, McpServer, ToolPolicy
from wakeful.errors import OperatorError
from wakeful.runners.isolation.programs import ProgramWords, derive_places
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.server_programs import find_script_folder, resolve_server
from wakeful.secrets.store import name_variable

LONGEST_HAND_OFF = 16_000
# The home folder of programs of others, in the session's scratch folder, which stays from run to run.
HOME = "home"


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
    link: DaemonClient,
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
    link: DaemonClient,
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


async def hand_off(link: DaemonClient, beginning: work.Beginning, words: str) -> None:
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

    def __init__(self, link: DaemonClient, run_id: str) -> None:
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
