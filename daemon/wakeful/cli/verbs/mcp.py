"""`wakeful mcp`: a server of MCP on standard input and output, which coding agents start."""

from __future__ import annotations

import importlib
import os

from wakeful.cli.client import Options, read_token
from wakeful.cli.exit_codes import Failure
from wakeful.mcp_server.contract import Reach
from wakeful.mcp_server.daemon_client import Address, DaemonClient, read_address

MISSING = "wakeful mcp needs the package `mcp`, which comes with: pip install 'wakeful[agents]'"


def mcp_verb(options: Options, http: str | None, allows_dangerous: bool) -> None:
    token = read_token()
    if http is not None and token is None:
        raise Failure(
            "over HTTP a token is needed: make one with `wakeful token new`, put it in a file, and name that in "
            "WAKEFUL_TOKEN_FILE"
        )
    address = read_address(http) if http is not None else Address(options.client().path)
    reach = Reach(DaemonClient(address, token), find_own_session(), allows_dangerous)
    try:
        # Slow to import, and there only with the extra.
        stdio = importlib.import_module("wakeful.mcp_server.stdio")
    except ModuleNotFoundError as missing:
        if missing.name not in ("mcp", "mcp_types"):
            raise
        raise Failure(MISSING) from None
    stdio.serve(reach)


def find_own_session() -> str | None:
    """The session of the run we are inside of."""
    return os.environ.get("WAKEFUL_SESSION") if "WAKEFUL_RUN" in os.environ else None
