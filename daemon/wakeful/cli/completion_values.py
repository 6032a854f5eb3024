"""The values that a shell offers for arguments: the daemon's present sessions, checkpoints, runs and facts.

An argument in the table of verbs names one of these completions. A completion takes at most a second and never prints a
message. Without a daemon, only files and secrets are offered. Values that a shell would have to quote are not offered.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from wakeful.cli.client import Client, read_token
from wakeful.cli.daemon_location import find_secrets, find_socket
from wakeful.cli.exit_codes import Failure
from wakeful.client.wire import quote_name
from wakeful.errors import WakefulError
from wakeful.secrets.store import SecretPlaces, list_names
from wakeful.verbs.verb import Completion

# Seconds until a completion gives up. A person waits for it at the prompt.
PATIENCE_SECONDS = 1.0
# Values that consist of these characters need no quoting in a shell.
_PLAIN = re.compile(r"[\w.@/+:=-]+")

Offer = Callable[[click.Context], Iterable[str]]


def complete(
    completion: Completion, ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """List the values that a shell offers for an argument with this completion."""
    match completion:
        case "file" | "folder":
            # The shell lists files itself.
            return [CompletionItem(incomplete, type="file" if completion == "file" else "dir")]
        case "session or path":
            return offer(list_sessions, ctx, incomplete) or [CompletionItem(incomplete, type="file")]
        case "side":
            return _complete_side(ctx, incomplete)
        case "named key":
            return _complete_named_key(ctx, param, incomplete)
        case _:
            return offer(_OFFERS[completion], ctx, incomplete)


def _complete_side(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Complete NAME or NAME@POSITION. After the `@`, offer the checkpoints of that session.

    A session's own name may contain an `@` as well.
    """
    name, mark, _ = incomplete.rpartition("@")
    found = offer(list_sessions, ctx, incomplete)
    if not mark:
        return found
    return found + offer(lambda ctx: (f"{name}@{one}" for one in _list_checkpoints(ctx, name)), ctx, incomplete)


def _complete_named_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete [NAME] KEY. Inside a run, the name is omitted because it is the run's own session."""
    before = ctx.params.get(param.name or "") or ()
    own = os.environ.get("WAKEFUL_SESSION")
    session = own or (before[0] if before else None)
    if session is None:
        return offer(list_sessions, ctx, incomplete)
    if len(before) != (0 if own else 1):
        return []
    facts = f"/sessions/{quote_name(session)}/facts"
    return offer(lambda ctx: (fact["key"] for fact in _ask(ctx, facts)), ctx, incomplete)


def offer(find: Offer, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """List the found values that begin with `incomplete`.

    Errors are silent, because a message would appear in the line that the person is typing.
    """
    try:
        with contextlib.redirect_stderr(io.StringIO()), _bounded():
            return [CompletionItem(one) for one in find(ctx) if one.startswith(incomplete) and _PLAIN.fullmatch(one)]
    except (Failure, WakefulError, OSError, ValueError, LookupError):
        return []


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Raise Failure after PATIENCE_SECONDS. `Client` itself would wait a minute for a daemon that starts."""

    def give_up(number: int, frame: object) -> None:
        raise Failure("no answer in time")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what is offered ------------------------------------------------------------------------------


def list_sessions(ctx: click.Context) -> list[str]:
    return [row[0] for row in _ask(ctx, "/sessions", brief="true")["sessions"]]


def list_sessions_and_templates(ctx: click.Context) -> list[str]:
    names = list_sessions(ctx)
    return [*names, *dict.fromkeys(f"{name.partition('@')[0]}@" for name in names if "@" in name)]


def _list_forks(ctx: click.Context) -> Iterator[str]:
    return _walk_forks(_show(ctx)["forks"])


def _walk_forks(forks: list[dict[str, Any]]) -> Iterator[str]:
    for fork in forks:
        yield fork["name"]
        yield from _walk_forks(fork["forks"])


def _list_checkpoints(ctx: click.Context, name: str | None = None) -> list[str]:
    return [mark["name"] for mark in _show(ctx, name)["checkpoints"]]


def _list_runs(ctx: click.Context) -> list[str]:
    """List the numbers of the latest runs."""
    return [str(run["run"]) for run in _show(ctx)["last_runs"]]


def _list_conflicts(ctx: click.Context) -> list[str]:
    return [name for conflict in _show(ctx)["conflicts"] for name in (conflict["key"], str(conflict["number"]))]


def _list_facts(ctx: click.Context) -> list[str]:
    return [fact["key"] for fact in _show(ctx)["facts"]]


def _show(ctx: click.Context, name: str | None = None) -> dict[str, Any]:
    """Get the session that the command line names.

    After an option that has no value yet, click has not assigned the arguments. So `ctx.args` is read too.
    """
    name = name or ctx.params.get("name") or next(iter(ctx.args), None)
    if name is None:
        raise Failure("the line names no session yet")
    found: dict[str, Any] = _ask(ctx, f"/sessions/{quote_name(name)}")
    return found


def _ask(ctx: click.Context, route: str, **query: Any) -> Any:
    given = (one.params.get("socket") for one in (ctx, ctx.parent) if one is not None)
    place = find_socket(next((path for path in given if path), None), is_quiet=True)
    return Client(place.path, read_token(), pid=place.pid, project=place.project).get(route, **query)


def _list_secrets(ctx: click.Context) -> Iterable[str]:
    """List the secrets in the caller's own folder, without asking a daemon."""
    return list_names(SecretPlaces(find_secrets())) if ctx.params.get("what") != "list" else ()


def _list_notifiers(ctx: click.Context) -> Iterable[str]:
    return [one["name"] for one in _ask(ctx, "/notify")] if ctx.params.get("what") != "list" else ()


_OFFERS: dict[Completion, Offer] = {
    "session": list_sessions,
    "sessions": list_sessions_and_templates,
    "fork": _list_forks,
    "position": _list_checkpoints,
    "conflict": _list_conflicts,
    "fact": _list_facts,
    "run": _list_runs,
    "secret": _list_secrets,
    "notifier": _list_notifiers,
}
