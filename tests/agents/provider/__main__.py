"""The provider as a process of its own: `python -m agents.provider SCRIPT.json --port 0`.

It prints its URL and serves until it gets SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from agents.provider.script import read_script
from agents.provider.server import Provider


def main() -> None:
    parser = argparse.ArgumentParser(prog="agents.provider", description="Serve a scripted model on loopback.")
    parser.add_argument("script", type=Path, help="a JSON file: a list of turns, {turns, by} or {routes}")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--key", action="append", help="refuse every other key with 401; may be given again")
    given = parser.parse_args()
    script = read_script(given.script.read_bytes())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with Provider(script, keys=set(given.key) if given.key else None, port=given.port) as provider:
        print(provider.url, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


main()
