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
from wakeful.agents.summary import digest_piece, list_whole, tell_entries
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.fetch import FetchTool
from wakeful.agents.tools.files import NestedRules
from wakeful.agents.tools.knowledge_tools import SkillTools
from wakeful.agents.tools.mcp import McpTools, ServerPlace, open_servers
from wakeful.agents.tools.result_pages import Redact, Redaction
from wakeful.agents.tools.shell import ShellTool
from wakeful.agents.tools.shell_confinement import Narrowing, narrow, select_environment
from wakeful.agents.tools.tool import ResultLimit, find_result_bytes
from wakeful.agents.tools.tool_set import ToolBox, ToolSet, make_tools
from wakeful.client.async_client import DaemonClient, LinePost
from wakeful.client.refusals import DaemonRefused
from wakeful.core.agents import steps as work
from wakeful.core.agents.steps import STOPPED
from wakeful.core.agents.turns import Entry
from wakeful.core.spec.agent import AgentSpec, McpServer, ToolPolicy
from wakeful.errors import OperatorError
from wakeful.runners.isolation.program_places import ProgramWords, derive_places
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.server_programs import find_script_folder, resolve_server
from wakeful.secrets.store import name_variable

LONGEST_HAND_OFF = 16_000
# The home folder of external programs, within the session's scratch folder, which is kept between runs.
HOME = "home"


def say_stopped(
    words: str, beginning: work.Beginning, entries: Sequence[Entry], last_words: str, summary: str | None = None
) -> str:
    """Write the hand-off of a run that had to stop, for the next run to continue from.

    If there is no summary of its conversation, one is made without a model.
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
    """Begin to start the agent's MCP servers, which live as long as the run."""
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
    """Return the variables of a server: the common ones, those of its settings, and its secrets under their names."""
    inherited = select_environment(environ)
    if not beginning.is_unisolated:
        inherited["HOME"] = make_home(environ)
    secrets = {name: read_secret(name, environ) or "" for name in server.secrets}
    return inherited | server.env | secrets


def make_home(environ: Mapping[str, str]) -> str:
    """Make the home folder of external programs, kept between runs. They cannot reach the user's own home. Blocking."""
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
    """Make the tools: those of every agent, the shell, those of its servers, and `delegate`.

    Waits for the servers, up to a limit. `record` records the steps of sub-agents. With None there are no sub-agents.
    """
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
    """Return the hand-off whose parts are kept unless the agent sets them. None if no parts are kept."""
    return beginning.standing_hand_off if beginning.hand_off == "kept" else None


def find_bounds(beginning: work.Beginning, environ: Mapping[str, str]) -> Bounds:
    return Bounds.build(beginning.root, beginning.reads, beginning.writes, environ["WAKEFUL_SCRATCH"])


def find_narrowing(
    beginning: work.Beginning, bounds: Bounds, environ: Mapping[str, str], programs: Sequence[str] = ()
) -> Narrowing | None:
    """Find the paths that external programs may reach. None if the session is not isolated."""
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
    # Paths derived here grant nothing new, because the process itself is confined to the paths of the run.
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
    """Leave the agent's last text as the hand-off for the next run, unless this run must not replace the hand-off."""
    if beginning.hand_off != "replaced":
        return
    text = (
        words if len(words) <= LONGEST_HAND_OFF else f"{words[:LONGEST_HAND_OFF]}… (cut here; history shows all of it)"
    )
    await link.call("note", {"text": text or "done, without a closing text"}, key=f"{beginning.run_id}.hand_off")


def make_models(agent: AgentSpec, environ: Mapping[str, str]) -> list[Model]:
    return [make_model(spec, read_secret(spec.key, environ), agent.limits.silence_seconds) for spec in agent.models]


def read_secret(name: str | None, environ: Mapping[str, str]) -> str | None:
    """Read the value of a secret, which the run gets as a file. Raises OperatorError if it was not given. Blocking."""
    if name is None:
        return None
    place = environ.get(name_variable(name))
    if place is None:
        raise OperatorError(f"needs a key: {name} was not given to this run (wakeful secret set {name})")
    with open(place, encoding="utf-8") as file:
        return file.read().strip()


class Recorder:
    """Records the steps of one run (loop.Record).

    `tell` sends lines of a request, and the next `__call__` ends the request.
    """

    def __init__(self, link: DaemonClient, run_id: str) -> None:
        self._link = link
        self._run_id = run_id
        self._numbers = itertools.count(1)
        self._post: LinePost | None = None

    async def keep(self, content: bytes) -> str | None:
        try:
            # With a key the client may repeat the request. A repetition is harmless, because the content determines the
            # address.
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
            # The steps are not on record, so they must have no effect. Record the reason, unless the run is over.
            with suppress(DaemonRefused):
                await self._end((work.Halt(words=f"a step was refused: {refusal}"),))
            return work.Recorded(end=str(refusal))

    async def _end(self, steps: Sequence[work.PostedStep]) -> work.Recorded:
        post, self._post = self._post or self._link.post_lines("/work/steps"), None
        return msgspec.convert(await post.end(self._write(steps)), work.Recorded)

    def _write(self, steps: Sequence[work.PostedStep]) -> dict[str, object]:
        return {"key": f"{self._run_id}.{next(self._numbers)}", "steps": steps}


def say(text: str) -> None:
    """Write a text to the run's output."""
    sys.stdout.write(text)
    sys.stdout.flush()
