"""A run of an external agent: a program driven over the Agent Client Protocol, with fewer rights than this process.

process.py imports this module only for such a run. The program gets the session's paths, and its secrets as environment
variables under their own names, as such programs expect them. It has neither the run's token nor a connection to the
daemon. It reaches facts, messages and the hand-off through an MCP server that we start for it (session_server.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from wakeful.agents.acp.external_agent import LONGEST_LINE_BYTES, ExternalAgent
from wakeful.agents.acp.session_server import find_handed, hand_over
from wakeful.agents.live_text import LiveTextStream
from wakeful.agents.loop import Ending, Record
from wakeful.agents.run_setup import (
    begin_servers,
    find_bounds,
    find_narrowing,
    hand_off,
    make_box,
    make_home,
    say,
    say_stopped,
)
from wakeful.agents.tools.process_keeper import UNCONFINED
from wakeful.agents.tools.shell import wrap
from wakeful.agents.tools.shell_confinement import make_domain, select_environment
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents import steps as work
from wakeful.secrets.store import VARIABLE_PREFIX, name_variable


async def work_outside(
    beginning: work.Beginning, record: Record, link: DaemonClient, environ: Mapping[str, str], live_text: LiveTextStream
) -> Ending:
    """Carry out a run of an external agent, and leave its hand-off."""
    bounds = find_bounds(beginning, environ)
    narrowing = find_narrowing(beginning, bounds, environ, beginning.agent.acp)
    environment = await asyncio.to_thread(make_environment, beginning, environ)

    async def spawn(argv: Sequence[str]) -> asyncio.subprocess.Process:
        with make_domain(narrowing) if narrowing is not None else nullcontext() as domain:
            words = (
                wrap(argv, str(domain.ruleset_fd), domain.filter) if domain is not None else wrap(argv, UNCONFINED, b"")
            )
            fds = (domain.ruleset_fd,) if domain is not None else ()
            pipe = asyncio.subprocess.PIPE
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=pipe,
                stdout=pipe,
                cwd=beginning.root,
                env=environment,
                pass_fds=fds,
                limit=LONGEST_LINE_BYTES,
            )

    async with begin_servers(beginning, environ) as servers:
        tools = await make_box(beginning, servers, link, environ)
        async with hand_over(find_handed(tools), environ) as handed:
            external = ExternalAgent(beginning, bounds, tools, record, link, spawn, say, live_text, handed)
            ending = await external.run()
    if ending.words is None:
        await hand_off(link, beginning, external.last_words)
    elif external.last_words and (await record()).is_limit:
        await hand_off(link, beginning, say_stopped(ending.words, beginning, beginning.entries, external.last_words))
    return ending


def make_environment(beginning: work.Beginning, environ: Mapping[str, str]) -> dict[str, str]:
    """Make the program's environment: selected inherited variables, the secrets, and the specs' variables.

    Our own WAKEFUL_ variables override all of them. Blocking.
    """
    inherited = select_environment(environ)
    ours = {name: value for name, value in inherited.items() if name.startswith("WAKEFUL_")}
    if not beginning.is_unisolated:
        # The program keeps its sessions and settings in its home folder, and finds them again in the next run.
        inherited["HOME"] = make_home(environ)
    return inherited | read_secrets(beginning.secrets, environ) | beginning.env | ours


def read_secrets(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read secrets as variables under their own names, as external programs expect them. Blocking.

    `names` has the secrets of the session and of the program, and none of MCP servers.
    """
    given = {variable: environ[variable] for variable in map(name_variable, names) if variable in environ}
    return {
        variable.removeprefix(VARIABLE_PREFIX): Path(place).read_text(encoding="utf-8").strip()
        for variable, place in given.items()
    }
