"""`python -I -m wakeful.agents.warm FD`: reads all that a run of an agent needs, and forks runs for the daemon (runners/warm.py).

Started by a daemon that has a session whose work is a prompt; ends with it. Reading takes seconds, a fork a hundredth of one. Nothing is sent and
no connection is open when it forks: a model is made once for each provider, so that its library is in memory, and thrown away.
"""

import asyncio
import os
import sys

from wakeful.agents.models import make_model
from wakeful.agents.process import think
from wakeful.core.agent import PROVIDER_URLS, ModelSpec
from wakeful.errors import OperatorError
from wakeful.runners.warm import serve


def read_libraries() -> None:
    for provider, url in PROVIDER_URLS.items():
        try:
            make_model(ModelSpec(provider=provider, model="none", base_url=url), "none")
        except OperatorError:
            # Not installed: who needs it says so.
            continue


if __name__ == "__main__":
    read_libraries()
    serve(int(sys.argv[1]), lambda: asyncio.run(think(os.environ)))
