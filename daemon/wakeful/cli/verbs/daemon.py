"""`wakeful daemon`: the service itself. Everything it needs is imported here and nowhere else on the command line."""

from __future__ import annotations

import click

from wakeful.cli.command import verb
from wakeful.cli.completion_values import complete_folders
from wakeful.cli.options import Options
from wakeful.service.voice import Style
from wakeful.service.wiring import run_daemon


@verb(
    "daemon",
    "wakeful daemon",
    "wakeful daemon --once           # what is owed, then exit",
    "wakeful daemon --specs ./sessions.d --state ./.wakeful",
)
@click.option(
    "--specs",
    shell_complete=complete_folders,
    metavar="DIR",
    help="Where the specs are. Default: ./sessions.d, else the one in your configuration.",
)
@click.option(
    "--state", shell_complete=complete_folders, metavar="DIR", help="Where the log and everything else is kept."
)
@click.option(
    "--http",
    metavar="HOST:PORT|off",
    default=None,
    envvar="WAKEFUL_HTTP",
    help="Listen on TCP, too: not yet, only `off`.",
)
@click.option(
    "--once",
    "is_once",
    is_flag=True,
    help="Run all that is owed to the end of the wave, then exit: 1 if a run failed, now or before, "
    "or a spec was refused.",
)
@click.option(
    "--log",
    type=click.Choice(["text", "json"]),
    help="How it says what happens. Default: entries where the journal of systemd listens, else text.",
)
def daemon_verb(
    options: Options, specs: str | None, state: str | None, http: str | None, is_once: bool, log: Style | None
) -> int:
    """Watch, wake, run and record, until SIGTERM. Prints a line that begins with `ready` when it is armed."""
    if http not in (None, "", "off"):
        raise click.UsageError(f"--http {http}: listening on TCP comes later; leave it out or say --http off")
    return run_daemon(specs=specs, state=state, socket=options.socket, once=is_once, log=log)
