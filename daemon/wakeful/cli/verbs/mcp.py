"""`wakeful mcp`: an MCP server on standard input and output, which coding agents start.

It is a module of its own because it imports the asynchronous client, which no other command needs.
"""

from __future__ import annotations

import difflib
import importlib
import os

import click

from wakeful.cli.client import Options, read_token
from wakeful.cli.exit_codes import Failure
from wakeful.client.async_client import Address, DaemonClient, read_address
from wakeful.client.refusals import OWNER_VARIABLE
from wakeful.mcp_server.contract import Reach
from wakeful.mcp_server.tools import PREFIX, list_tools

MISSING = "wakeful mcp needs the package `mcp`, which comes with: pip install 'wakeful[agents]'"


def mcp_verb(options: Options, http: str | None, only: tuple[str, ...], allows_dangerous: bool) -> None:
    refuse_unknown(only)
    token = read_token()
    if http is not None and token is None:
        raise Failure(
            "over HTTP a token is needed: make one with `wakeful token new`, put it in a file, and name that in "
            "WAKEFUL_TOKEN_FILE"
        )
    if http is not None:
        address = read_address(http)
    else:
        address = Address(options.client().path, owner=os.environ.get(OWNER_VARIABLE, ""))
    # If no daemon runs, the client fails at once, so that the coding agent learns of it without delay.
    client = DaemonClient(address, token, is_patient=False)
    reach = Reach(client, find_own_session(), allows_dangerous, frozenset(only) or None)
    try:
        # Imported here, because the import is slow and needs the optional extra.
        transports = importlib.import_module("wakeful.mcp_server.transports")
    except ModuleNotFoundError as missing:
        if missing.name not in ("mcp", "mcp_types"):
            raise
        raise Failure(MISSING) from None
    transports.serve_stdio(client, reach)


def refuse_unknown(only: tuple[str, ...]) -> None:
    offered = [*(name.removeprefix(PREFIX) for name in list_tools()), "run"]
    for verb in only:
        if verb not in offered:
            near = difflib.get_close_matches(verb, offered, 1)
            words = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(offered))}"
            raise click.UsageError(f"--only {verb}: there is no such tool; {words}")


def find_own_session() -> str | None:
    """Return the name of the session whose run started this process. None outside a run."""
    return os.environ.get("WAKEFUL_SESSION") if "WAKEFUL_RUN" in os.environ else None
