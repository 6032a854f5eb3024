"""What a shell is offered when somebody presses Tab: names of sessions, checkpoints, runs, facts,
asked of the daemon as it is now.

The kinds of arguments that verbs declare, so that one list of them serves parsing and completion. Asking never takes
longer than a moment and never says a word: without a daemon nothing is offered.
Only what needs no quoting in a shell is offered.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from wakeful.cli.client import Client, quote_name, read_token
from wakeful.cli.exit_codes import Failure
from wakeful.cli.places import find_socket

# Somebody waits with a finger on Tab; a daemon that is busy for longer is not worth it.
PATIENCE_SECONDS = 1.0
# Letters, digits and what names of sessions are made of besides: no shell reads anything else into them.
_PLAIN = re.compile(r"[\w.@/+:=-]+")

Offer = Callable[[click.Context], Iterable[str]]
# A checker wants to know what it converts to, and older releases of click cannot be told.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType


class Completed(TextType):
    """Text that a shell can complete; taken as it is."""

    def __init__(self, name: str, offer: Offer, *, is_path: bool = False) -> None:
        self.name = name
        self._offer = offer
        self._is_path = is_path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        found = complete(self._offer, ctx, incomplete)
        # Where either is meant, files are the shell's own to list; it does so where we have nothing better.
        return found or ([CompletionItem(incomplete, type="file")] if self._is_path else [])


class CompletedNumber(click.IntRange):
    """A number of which the likely ones can be offered."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(1)
        self._offer = offer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        return complete(self._offer, ctx, incomplete)


class Side(TextType):
    """NAME, or NAME@POSITION: behind the mark the checkpoints of that session.

    A session's own name may hold one, too.
    """

    name = "side"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        name, mark, _ = incomplete.rpartition("@")
        found = complete(list_sessions, ctx, incomplete)
        return found + (
            complete(lambda ctx: (f"{name}@{one}" for one in _list_checkpoints(ctx, name)), ctx, incomplete)
            if mark
            else []
        )


class NamedKey(TextType):
    """[NAME] KEY: inside a run the name is its own session's and left out."""

    name = "key"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        before = ctx.params.get(param.name or "") or ()
        own = os.environ.get("WAKEFUL_SESSION")
        session = own or (before[0] if before else None)
        if session is None:
            return complete(list_sessions, ctx, incomplete)
        is_at_key = len(before) == (0 if own else 1)
        return (
            complete(
                lambda ctx: (fact["key"] for fact in _ask(ctx, f"/sessions/{quote_name(session)}/facts")),
                ctx,
                incomplete,
            )
            if is_at_key
            else []
        )


def complete(offer: Offer, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """What of the offer begins so.

    Silent, whatever goes wrong: a word on the terminal would stand in the line being typed.
    """
    try:
        with contextlib.redirect_stderr(io.StringIO()), _bounded():
            return [CompletionItem(one) for one in offer(ctx) if one.startswith(incomplete) and _PLAIN.fullmatch(one)]
    except (Failure, OSError, ValueError, LookupError):
        return []


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """By the clock, whatever it waits for: a command of its own waits patiently for a daemon that starts,
    a shell does not."""

    def give_up(number: int, frame: object) -> None:
        raise Failure("no answer in time")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="file")]


def complete_folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="dir")]


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
    """The latest: older ones are typed."""
    return [str(run["run"]) for run in _show(ctx)["last_runs"]]


def _list_conflicts(ctx: click.Context) -> list[str]:
    return [name for conflict in _show(ctx)["conflicts"] for name in (conflict["key"], str(conflict["number"]))]


def _list_facts(ctx: click.Context) -> list[str]:
    return [fact["key"] for fact in _show(ctx)["facts"]]


def _show(ctx: click.Context, name: str | None = None) -> dict[str, Any]:
    """The session that the line names already.

    Behind an option that still lacks its value, click has not told the arguments apart.
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


SESSION = Completed("session", list_sessions)
SESSIONS = Completed("session", list_sessions_and_templates)
FORK = Completed("fork", _list_forks)
POSITION = Completed("position", _list_checkpoints)
CONFLICT = Completed("conflict", _list_conflicts)
FACT = Completed("fact", _list_facts)
SESSION_OR_PATH = Completed("session or path", list_sessions, is_path=True)
RUN = CompletedNumber(_list_runs)
SIDE = Side()
NAMED_KEY = NamedKey()
