"""The click command of each verb in the table, the options that all verbs share, and the exit codes of click's errors.

Only the module of the verb that is carried out is imported. `--socket` and `--json` may stand before or after the verb.
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

# Type checkers need the type parameter, which older releases of click do not accept at run time.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType

# The environment variable that the scripts of `wakeful completion` set to ask for completions.
COMPLETE_VARIABLE = "_WAKEFUL_COMPLETE"
# The module that carries out the commands that only send their call.
_CALLS = "verbs.calls"
# The help lists these options last, in this order.
_SHARED = ("--json", "--socket", "--help")


class Verbs(click.Group):
    """The group of all verbs. It makes the command of a verb only when that verb is used."""

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
        """Complete the names of verbs, with their summaries, and the options before the verb."""
        verbs = [
            CompletionItem(one.name, help=one.words) for one in COMMANDS.values() if one.name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            # Imported here, because it is slow to import and needed only after a typing error.
            suggestions = importlib.import_module("wakeful.cli.suggestions")
            raise click.UsageError(f"there is no verb {name!r}; {suggestions.suggest_verb(name)}", ctx)
        return super().resolve_command(ctx, args)


def make_shared() -> list[click.Parameter]:
    """Make the options that every verb has."""
    return [
        click.Option(["--socket"], metavar="PATH", help="The daemon's socket."),
        click.Option(["--json", "is_json"], is_flag=True, help="Print JSON, with times in RFC 3339 UTC."),
    ]


class Command(click.Command):
    """A command whose help ends with examples, and lists its own options before the shared ones."""

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
    """Import a module without garbage collection.

    A module's objects are never freed. Collections that visited them took a tenth of the daemon's start.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        # Without the freeze, the first collection afterwards would visit all these objects.
        gc.freeze()
        gc.enable()


def make_command(verb: Verb) -> Command:
    """Make the click command of a verb. Its function gets `Options` first, then the verb's arguments by name."""

    @click.pass_context
    def run(ctx: click.Context, /, socket: str | None, is_json: bool, **own: Any) -> Any:
        before: Options = ctx.obj or Options()
        # Import the module only when the verb is carried out. Help and completion do not need it.
        module = _import_uncollected(f"wakeful.cli.{verb.cli_module or _CALLS}")
        options = Options(socket or before.socket, is_json or before.is_json)
        if verb.cli_module is not None:
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
    """Make the click parameter of an argument. An absent flag or option has the argument's default."""
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
    """A text parameter that a shell can complete. The text is not converted."""

    name = "text"

    def __init__(self, completion: Completion | None) -> None:
        self._completion = completion

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(self._completion, ctx, param, incomplete)


class Number(click.IntRange):
    """An integer parameter that a shell can complete."""

    def __init__(self, completion: Completion | None, least: float | None, most: float | None) -> None:
        super().__init__(None if least is None else int(least), None if most is None else int(most))
        self._completion = completion

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(self._completion, ctx, param, incomplete)


def _complete(completion: Completion | None, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    if completion is None:
        return []
    # Imported here, because it is needed only if a shell asks for completions.
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

    `wakeful daemon` runs the service. The other verbs look at sessions and control them.
    """
    ctx.obj = Options(socket, is_json)
    if ctx.invoked_subcommand is not None:
        return DONE
    # Without a verb, print the help but fail. A script that left out its verb must not succeed.
    click.echo(ctx.get_help())
    return USAGE


def main() -> int:
    return conclude(_run_click)


def _run_click() -> object:
    """Run click, and turn its exceptions into ours."""
    if COMPLETE_VARIABLE in os.environ:
        # A shell asks for completions. The import registers our completion classes. No other command needs them.
        importlib.import_module("wakeful.cli.completion_scripts")
    try:
        return wakeful.main(prog_name="wakeful", standalone_mode=False)
    except click.UsageError as error:
        # click puts each choice of an argument on its own line. Join them into one line.
        words = escape(error.format_message().replace("\n\t", " "))
        raise Failure(words if "--help" in words else f"{words} (see {_help_of(error)})", USAGE) from None
    except click.ClickException as error:
        raise Failure(escape(error.format_message()), FAILED) from None
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def _help_of(error: click.UsageError) -> str:
    return f"{error.ctx.command_path} --help" if error.ctx is not None else "wakeful --help"
