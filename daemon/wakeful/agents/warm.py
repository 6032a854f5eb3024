"""`python -I -m wakeful.agents.warm FD`: reads all that a run of an agent needs, and forks runs for the daemon (runners/warm.py).

Started by a daemon that has a session whose work is a prompt; ends with it. Reading takes a second or two, a fork a hundredth.
"""

import asyncio
import os
import sys

from wakeful.agents.process import think
from wakeful.runners.warm import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]), lambda: asyncio.run(think(os.environ)))
