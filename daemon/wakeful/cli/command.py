"""The command itself: the table of verbs, the options they share, and how every ending becomes an exit code.

Only the module of the verb that is used gets imported. `--socket` and `--json` may stand before or after the verb.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from wakeful import __version__
from wakeful.cli.exit_codes import DONE, FAILED, USAGE, Failure, conclude
from wakeful.cli.options import Options
from wakeful.cli.text import escape

# Set by the scripts of `wakeful completion` when they ask.
COMPLETE_VARIABLE = "_WAKEFUL_COMPLETE"
# Verb -> the module that has it, and what it does in a few words.
VERBS: dict[str, tuple[str, str]] = {
    "list": ("list", "all sessions, one a line"),
    "top": ("top", "what runs and what is owed, live, with CPU and memory"),
    "show": ("show", "everything about a session, now or as it was"),
    "log": ("log", "a session's records"),
    "history": ("log", "a session's latest records"),
    "follow": ("log", "what happens, as it happens"),
    "output": ("output", "what a run wrote to its terminal"),
    "facts": ("memory", "a session's facts"),
    "recall": ("memory", "one fact, or all"),
    "why": ("why", "why a session ran or did not, or who wrote and reads a file"),
    "context": ("context", "what a session's model would see, with tokens per part"),
    "plan": ("why", "what would wake if these paths changed; what is owed now"),
    "diff": ("diff", "what differs between two positions of a session, or two sessions"),
    "search": ("search", "words over the logs of all sessions"),
    "costs": ("costs", "what runs took, by session, agent, cause and day"),
    "export": ("export", "the log for other tools, one JSON object a line"),
    "replay": ("replay", "run a recorded run again on what it found, and compare"),
    "activate": ("activate", "run now, whatever is owed"),
    "resume": ("lifecycle", "lift a hold; runs only if something is owed"),
    "suspend": ("lifecycle", "start nothing more of this run; its causes are parked"),
    "sleep": ("lifecycle", "hold until a time, or until resumed"),
    "ask": ("ask", "put a message to a session's agent, or to another, and read the answer"),
    "talk": ("talk", "a whole conversation with a session's agent, in the terminal"),
    "answer": ("lifecycle", "answer what a session asks"),
    "interrupt": ("lifecycle", "stop the present step now; its causes are parked"),
    "cancel": ("lifecycle", "abandon the run; its causes count as seen"),
    "terminate": ("lifecycle", "close a session for good"),
    "open": ("lifecycle", "reopen a terminated session, with --again"),
    "rename": ("lifecycle", "another name, the same identity and history"),
    "save": ("bundles", "a session as one file; with --as, a checkpoint to come back to"),
    "load": ("bundles", "bring a bundle or an archived session in"),
    "archive": ("bundles", "move a session's payloads to a compressed bundle"),
    "migrate": ("bundles", "to another agent or model, or to another host"),
    "rewind": ("history", "go back to a seq, time or checkpoint by appending"),
    "fork": ("history", "a new session from any point of another"),
    "merge": ("history", "bring a fork back: facts three-way, conflicts as questions"),
    "resolve": ("history", "settle what both sides of a merge changed"),
    "erase": ("history", "remove what a record says for good; the chain stays whole"),
    "compress": ("history", "old conversation gives way to a summary; facts and log stay"),
    "send": ("memory", "put a message in a session's mailbox"),
    "note": ("memory", "leave a hand-off for the next run"),
    "remember": ("memory", "keep a fact"),
    "forget": ("memory", "let a fact go; the log keeps that it was known"),
    "check": ("specs", "judge specs without a daemon"),
    "schema": ("specs", "the JSON Schema of specs, for editors"),
    "new": ("specs", "write a commented spec that checks"),
    "trace": ("trace", "run once under strace: what was denied, and the lines of a spec that allow it"),
    "secret": ("secret", "names of secrets; set or remove one, never shown"),
    "trust": ("trust", "look at specs that changed where they are pinned, and trust them"),
    "add": ("trust", "attach a project that has a sessions.d of its own"),
    "verify": ("backup", "recompute every hash of the log"),
    "doctor": ("doctor", "is everything as it should be, and if not, what mends it"),
    "backup": ("backup", "a verified copy of the log, beside a running daemon"),
    "restore": ("backup", "put a backup in the place of the log"),
    "token": ("tokens", "hand out a token that opens a part of this; list, revoke"),
    "install": ("install", "run the daemon as a service of systemd, yours or the machine's"),
    "uninstall": ("install", "stop that service and remove what install wrote; specs and state stay"),
    "completion": ("completion", "completion of verbs, options and names for your shell"),
    "daemon": ("daemon", "the service itself"),
}  # fmt: skip


# The verb each section of the help begins with.
SECTIONS = {"list": "Look", "activate": "Act", "check": "Specs", "verify": "Keep"}
# Told last, in this order.
_SHARED = ("--json", "--socket", "--help")


class Verbs(click.Group):
    """Loads a verb when it is used; lists them without loading any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"wakeful.cli.verbs.{VERBS[cmd_name][0]}")
        found: click.Command = getattr(module, f"{cmd_name}_verb")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, (_, words) in VERBS.items():
            sections.setdefault(SECTIONS.get(name) or next(reversed(sections)), []).append((name, words))
        for title, verbs in sections.items():
            with formatter.section(title):
                formatter.write_dl(verbs)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["VERB ..."]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(
            "wakeful VERB --help explains a verb, with examples. To begin: wakeful new NAME, then wakeful daemon."
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs with their words, again without loading any; and the options before them."""
        verbs = [CompletionItem(name, help=words) for name, (_, words) in VERBS.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS:
            # Needed only after a slip of the finger, and slow to import.
            suggestions = importlib.import_module("wakeful.cli.suggestions")
            raise click.UsageError(f"there is no verb {name!r}; {suggestions.suggest_verb(name, VERBS)}", ctx)
        return super().resolve_command(ctx, args)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--json", "is_json", is_flag=True, help="Print JSON, times in RFC 3339 UTC.")(function)
    return click.option("--socket", metavar="PATH", help="The daemon's socket.")(function)


class Verb(click.Command):
    """A command whose help ends with examples, and which tells its own options before those that all verbs share."""

    def __init__(self, *arguments: Any, examples: tuple[str, ...] = (), **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        self.examples = examples

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return sorted(
            super().get_params(ctx), key=lambda one: one.opts[-1] in _SHARED and _SHARED.index(one.opts[-1]) + 1
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{example}\n")


def verb(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A verb: its function gets `Options` first, then its own arguments.

    `examples` are lines as a person types them.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        @click.pass_context
        def run(ctx: click.Context, /, socket: str | None, is_json: bool, **own: Any) -> Any:
            before: Options = ctx.obj or Options()
            return function(Options(socket or before.socket, is_json or before.is_json), **own)

        settings = {"help_option_names": ["-h", "--help"]}
        return click.command(name, cls=Verb, examples=examples, context_settings=settings)(shared_options(run))

    return decorate


@click.group(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@shared_options
@click.version_option(__version__, prog_name="wakeful")
@click.pass_context
def wakeful(ctx: click.Context, socket: str | None, is_json: bool) -> int:
    """Keeps sessions at rest until something they depend on changes.

    `wakeful daemon` is the service, the other verbs are what a person does.
    """
    ctx.obj = Options(socket, is_json)
    if ctx.invoked_subcommand is not None:
        return DONE
    # Who types the name alone wants to know what it can do; a script that forgot its verb must still notice.
    click.echo(ctx.get_help())
    return USAGE


def main() -> int:
    return conclude(_run_click)


def _run_click() -> object:
    """Click's own endings in our words."""
    if COMPLETE_VARIABLE in os.environ:
        # A shell asks what could stand there: our scripts ask in their own way, and nobody else pays for reading it.
        importlib.import_module("wakeful.cli.completion_scripts")
    try:
        return wakeful.main(prog_name="wakeful", standalone_mode=False)
    except click.UsageError as error:
        words = escape(error.format_message())
        raise Failure(words if "--help" in words else f"{words} (see {_help_of(error)})", USAGE) from None
    except click.ClickException as error:
        raise Failure(escape(error.format_message()), FAILED) from None
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def _help_of(error: click.UsageError) -> str:
    return f"{error.ctx.command_path} --help" if error.ctx is not None else "wakeful --help"
