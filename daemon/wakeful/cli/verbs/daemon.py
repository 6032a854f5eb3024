"""`wakeful daemon`: starts the daemon.

It is a module of its own because it imports the daemon's own modules, which no other command needs.
"""

from __future__ import annotations

import click

from wakeful.cli.client import Options
from wakeful.core.spec.http_settings import parse_address
from wakeful.service.log_printer import Style
from wakeful.service.startup import run_daemon


def daemon_verb(
    options: Options, specs: str | None, state: str | None, http: str | None, is_once: bool, log: Style | None
) -> int:
    if http and http.lower() != "off":
        try:
            parse_address(http)
        except ValueError as error:
            raise click.UsageError(f"--http: {error}") from None
    return run_daemon(specs=specs, state=state, socket=options.socket, once=is_once, log=log, http=http)
