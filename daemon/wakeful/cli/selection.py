"""Which sessions a NAME of the command line means: one, all of a template (`ticket@`),
or all that a pattern matches (`'ticket@*'`).

Shared by `list` and by the calls. Patterns are those of a shell: `*`, `?` and `[a-z]`, and `*` also matches a slash. A
name of a session holds none of these characters. Modules that are slow to import are loaded only for patterns and
suggestions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wakeful.cli.client import Client
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape

TEMPLATE_MARK = "@"
_WILDCARDS = "*?["
_SUGGESTIONS = 3


def is_several(name: str) -> bool:
    """Whether this means a set of sessions, however many it has now: a template or a pattern."""
    return name.endswith(TEMPLATE_MARK) or is_pattern(name)


def is_pattern(name: str) -> bool:
    return any(one in name for one in _WILDCARDS)


def is_meant(name: str, wanted: Iterable[str]) -> bool:
    """Whether a person who gave these names, templates and patterns means this session."""
    return any(name == one or _is_of(name, one) for one in wanted)


def _is_of(name: str, wanted: str) -> bool:
    if wanted.endswith(TEMPLATE_MARK):
        return TEMPLATE_MARK in name and find_template(name) == wanted
    if not is_pattern(wanted):
        return False
    from fnmatch import fnmatchcase

    return fnmatchcase(name, wanted)


def find_template(name: str) -> str | None:
    """The same as in core/spec/session.py, which takes longer to import than this whole command takes to run."""
    folder, slash, last = name.rpartition("/")
    head, mark, _ = last.partition(TEMPLATE_MARK)
    return f"{folder}{slash}{head}{mark}" if mark else None


def find_sessions(client: Client, wanted: str, *, with_undeclared: bool = False) -> list[str]:
    """The names of the sessions that a template or a pattern means: those that `list` shows,
    and on demand undeclared ones."""
    rows = client.get("/sessions", brief="true")["sessions"]
    meant = [row for row in rows if is_meant(row[0], (wanted,))]
    found = [row[0] for row in meant if row[8] is None or (with_undeclared and row[8] == "undeclared")]
    if not found:
        raise refuse_empty((wanted,), [row[0] for row in rows], len(meant))
    return found


def refuse_empty(wanted: Sequence[str], names: Sequence[str], gone: int = 0) -> Failure:
    """Nothing is meant by `wanted`: what is near among all `names`.

    `gone` sessions would be, were they not terminated or undeclared.
    """
    told = " or ".join(map(escape, wanted))
    does = "matches" if any(map(is_several, wanted)) else "is called"
    if gone:
        return Failure(
            f"{told}: {count(gone, 'session')} {does} that, terminated or undeclared; `wakeful list --all` shows them",
            FAILED,
        )
    near = [one for each in wanted for one in suggest(each, names)]
    hint = f"did you mean {' or '.join(map(escape, near))}?" if near else "`wakeful list` shows those there are"
    return Failure(f"no session {does} {told}; {hint}", FAILED)


def suggest(wanted: str, names: Iterable[str]) -> list[str]:
    """Sessions and templates that are spelled nearly so, the nearest first.

    Of a pattern it is the beginning that is compared.
    """
    import difflib

    # A template stands for its sessions.
    known = dict.fromkeys(find_template(name) or name for name in names) if is_several(wanted) else dict.fromkeys(names)
    bare = wanted.strip(_WILDCARDS)
    length = len(bare) if is_pattern(wanted) else None
    beginnings: dict[str, list[str]] = {}
    for name in known:
        beginnings.setdefault(name[:length], []).append(name)
    near = difflib.get_close_matches(bare, beginnings, _SUGGESTIONS)
    return [name for beginning in near for name in beginnings[beginning]][:_SUGGESTIONS]
