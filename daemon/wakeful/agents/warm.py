"""`python -I -m wakeful.agents.warm FD PROVIDER…`: reads all that a run of an agent needs, and forks runs for the
daemon (runners/prepare/warm_server.py).

Started by a daemon that has a session whose work is a prompt; ends with it. Reading takes seconds, a fork a hundredth
of one. Nothing is sent and no connection is open when it forks: a model is made once for each provider, so that its
library is in memory, and thrown away.
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Sequence

from wakeful.agents.models.provider_model import make_model
from wakeful.agents.process import think
from wakeful.core.spec.agent import EXTERNAL, MCP, PROVIDER_URLS, PROVIDERS, ModelSpec
from wakeful.runners.prepare.warm_server import serve
from wakeful.system.installation import has_agents


def read_libraries(names: Sequence[str]) -> None:
    """Of these providers. Others are read by whoever needs them."""
    for provider in (one for one in PROVIDERS if one in names):
        make_model(ModelSpec(provider=provider, model="none", base_url=PROVIDER_URLS[provider]), "none")
    if EXTERNAL in names:
        importlib.import_module("wakeful.agents.acp.run")
    if MCP in names:
        importlib.import_module("wakeful.agents.tools.mcp_program")
        importlib.import_module("mcp.client")


if __name__ == "__main__":
    if not has_agents():
        # A library that is missing now would be missing in every fork, also when it is installed later. A run of its
        # own looks anew, and says so.
        sys.exit()
    read_libraries(sys.argv[2:])
    serve(int(sys.argv[1]), lambda: asyncio.run(think(os.environ)))
