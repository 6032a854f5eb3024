"""The program that the daemon starts for a run whose work is a prompt: `python -I -m wakeful.agents`."""

import asyncio
import os
import sys

from wakeful.agents.process import think

if __name__ == "__main__":
    sys.exit(asyncio.run(think(os.environ)))
