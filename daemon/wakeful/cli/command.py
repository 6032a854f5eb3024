"""The command itself: a click command for each verb of the table, the options they share, and how every ending
becomes an exit code.

Only the module of the verb that is carried out gets imported. `--socket` and `--json` may stand before or after the
verb.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from wakeful import __version__
from wakeful.cli.client import Options
from wakeful.cli.exit_codes import DONE, FAILED, USAGE, Failure, conclude
from wakeful.cli.text import escape
from wakeful.verbs.table import COMMANDS
from wakeful.verbs.verb import SECTIONS, Argument, Completion, Verb

# A checker wants to know what it converts to, and older releases of click cannot be told.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType

# Set by the scripts of `wakeful completion` when they ask.
COMPLETE_VARIABLE = "_WAKEFUL_COMPLETE"
# Verb -> the module of cli/ that carries it out, in a function of its name (`list_verb`). Every other verb is a call,
# whose answer's words are printed: see verbs/calls.py.
MODULES = {
    "list": "session_table",
    "top": "verbs.top",
    "show": "verbs.show",
    "log": "verbs.log",
    "history": "verbs.log",
    "follow": "verbs.log",
    "search": "verbs.log",
    "output": "verbs.output",
    "facts": "verbs.memory",
    "recall": "verbs.memory",
    "why": "verbs.why",
    "plan": "verbs.why",
    "context": "verbs.context",
    "diff": "verbs.diff",
    "costs": "verbs.costs",
    "timeline": "verbs.overviews",
    "graph": "verbs.overviews",
    "export": "verbs.export",
    "replay": "verbs.replay",
    "activate": "verbs.lifecycle",
    "resume": "verbs.lifecycle",
    "sleep": "verbs.lifecycle",
    "terminate": "verbs.lifecycle",
    "answer": "verbs.questions",
    "open": "verbs.lifecycle",
    "ask": "verbs.ask",
    "talk": "verbs.talk",
    "save": "verbs.bundles",
    "load": "verbs.bundles",
    "archive": "verbs.bundles",
    "migrate": "verbs.bundles",
    "rewind": "verbs.history",
    "merge": "verbs.history",
    "resolve": "verbs.history",
    "erase": "verbs.history",
    "compress": "verbs.history",
    "note": "verbs.memory",
    "remember": "verbs.memory",
    "check": "verbs.specs",
    "schema": "verbs.specs",
    "new": "verbs.specs",
    "trace": "verbs.trace",
    "secret": "verbs.secret",
    "trust": "verbs.trust",
    "add": "verbs.trust",
    "verify": "verbs.backup",
    "backup": "verbs.backup",
    "restore": "verbs.backup",
    "doctor": "verbs.doctor",
    "health": "verbs.health",
    "token": "verbs.tokens",
    "people": "verbs.people",
    "presence": "verbs.people",
    "dashboard": "verbs.dashboard",
    "notify": "verbs.notify",
    "webhook": "verbs.webhooks",
    "install": "verbs.install",
    "uninstall": "verbs.install",
    "completion": "completion_scripts",
    "mcp": "verbs.mcp",
    "daemon": "verbs.daemon",
}
_CALLS = "verbs.calls"
# The help lists these options last, in this order.
_SHARED = ("--json", "--socket", "--help")


class Verbs(click.Group):
    """Makes the command of a verb when it is used; lists them without making any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return make_command(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in SECTIONS:
            with formatter.section(section):
                formatter.write_dl([(one.name, one.words) for one in COMMANDS.values() if one.section == section])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["VERB ..."]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(
            "wakeful VERB --help explains a verb, with examples. To begin: wakeful new NAME, then wakeful daemon."
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs with their words, again without loading any; and the options before them."""
        verbs = [
            CompletionItem(one.name, help=one.words) for one in COMMANDS.values() if one.name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            # Needed only after a slip of the finger, and slow to import.
            suggestions = importlib.import_module("wakeful.cli.suggestions")
            raise click.UsageError(f"there is no verb {name!r}; {suggestions.suggest_verb(name)}", ctx)
        return super().resolve_command(ctx, args)


def make_shared() -> list[click.Parameter]:
    """The options that every verb has."""
    return [
        click.Option(["--socket"], metavar="PATH", help="The daemon's socket."),
        click.Option(["--json", "is_json"], is_flag=True, help="Print JSON, times in RFC 3339 UTC."),
    ]


class Command(click.Command):
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


def _import_uncollected(name: str) -> ModuleType:
    """Import a module without garbage collection. The objects of a module stay. Collections that visited them took a
    tenth of a daemon's start."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()


def make_command(verb: Verb) -> Command:
    """The click command of a verb. Its function gets `Options` first, then the verb's own arguments by their names."""

    @click.pass_context
    def run(ctx: click.Context, /, socket: str | None, is_json: bool, **own: Any) -> Any:
        before: Options = ctx.obj or Options()
        # The module of the verb is imported when the verb is carried out: help and completion do without it.
        module = _import_uncollected(f"wakeful.cli.{MODULES.get(verb.name, _CALLS)}")
        options = Options(socket or before.socket, is_json or before.is_json)
        if verb.name in MODULES:
            return getattr(module, f"{verb.name}_verb")(options, **own)
        return module.call_verb(options, verb, **own)

    return Command(
        verb.name,
        callback=run,
        params=[*make_shared(), *map(make_parameter, verb.typed)],
        help="\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(verb.help).split("\n\n")),
        examples=verb.examples,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def make_parameter(argument: Argument) -> click.Parameter:
    """The click parameter of an argument. A flag or option that is absent has the argument's default."""
    type_ = _find_type(argument)
    is_required = argument.on_terminal == "required" if argument.on_terminal else argument.is_needed
    default = {} if argument.default is None else {"default": argument.default}
    if not argument.option:
        return click.Argument(
            [argument.name], type=type_, metavar=argument.metavar, required=is_required,
            nargs=-1 if argument.is_repeated else 1, **default,
        )  # fmt: skip
    flag: dict[str, Any] = {"is_flag": True} if argument.kind == "flag" else {"type": type_}
    if argument.flag_value is not None:
        flag |= {"flag_value": argument.flag_value, "is_flag": argument.kind == "flag"}
    return click.Option(
        [*argument.option.split(), argument.name], help=argument.help, metavar=argument.metavar, required=is_required,
        multiple=argument.is_repeated, envvar=argument.variable, **flag, **default,
    )  # fmt: skip


def _find_type(argument: Argument) -> click.ParamType[Any] | None:
    match argument.kind:
        case "number":
            return Number(argument.completion, argument.least, argument.most)
        case "decimal":
            return click.FloatRange(argument.least, argument.most)
        case "choice":
            return click.Choice(argument.choices)
        case _:
            return Text(argument.completion)


class Text(TextType):
    """Text that a shell can complete; taken as it is."""

    name = "text"

    def __init__(self, completion: Completion | None) -> None:
        self._completion = completion

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(self._completion, ctx, param, incomplete)


class Number(click.IntRange):
    """A whole number, of which a shell can offer the likely ones."""

    def __init__(self, completion: Completion | None, least: float | None, most: float | None) -> None:
        super().__init__(None if least is None else int(least), None if most is None else int(most))
        self._completion = completion

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(self._completion, ctx, param, incomplete)


def _complete(completion: Completion | None, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    if completion is None:
        return []
    # Needed only when a shell asks.
    values = importlib.import_module("wakeful.cli.completion_values")
    found: list[Any] = values.complete(completion, ctx, param, incomplete)
    return found


@click.group(
    cls=Verbs,
    params=make_shared(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="wakeful")
@click.pass_context
def wakeful(ctx: click.Context, socket: str | None, is_json: bool) -> int:
    """Keeps sessions at rest until something they depend on changes.

    `wakeful daemon` is the service, the other verbs are what a person does.
    """
    ctx.obj = Options(socket, is_json)
    if ctx.invoked_subcommand is not None:
        return DONE
    # A person who types the name alone gets the help. A script that forgot its verb must still notice.
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
