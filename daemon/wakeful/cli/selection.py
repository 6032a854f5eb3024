"""Finds the sessions that a NAME on the command line selects.

A NAME selects one session, all sessions of a template (`ticket@`), or all that match a pattern (`'ticket@*'`). Used by
`list` and by the calls. Patterns are shell patterns: `*`, `?` and `[a-z]`; `*` also matches a slash. The name of a
session contains none of these characters. Modules that are slow to import are loaded only for patterns and suggestions.
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
    """Is this a template or a pattern, which can select any number of sessions?"""
    return name.endswith(TEMPLATE_MARK) or is_pattern(name)


def is_pattern(name: str) -> bool:
    return any(one in name for one in _WILDCARDS)


def is_meant(name: str, wanted: Iterable[str]) -> bool:
    """Do any of these names, templates and patterns select this session?"""
    return any(name == one or _is_of(name, one) for one in wanted)


def _is_of(name: str, wanted: str) -> bool:
    if wanted.endswith(TEMPLATE_MARK):
        return TEMPLATE_MARK in name and find_template(name) == wanted
    if not is_pattern(wanted):
        return False
    from fnmatch import fnmatchcase

    return fnmatchcase(name, wanted)


def find_template(name: str) -> str | None:
    """Return the template of a session.

    This is a copy of the function in core/spec/session.py, whose import takes longer than a whole `list`.
    """
    folder, slash, last = name.rpartition("/")
    head, mark, _ = last.partition(TEMPLATE_MARK)
    return f"{folder}{slash}{head}{mark}" if mark else None


def find_sessions(client: Client, wanted: str, *, with_undeclared: bool = False) -> list[str]:
    """List the names of the sessions that a template or pattern selects, without terminated ones.

    Undeclared sessions are included with `with_undeclared`. Raises Failure if there is none.
    """
    rows = client.get("/sessions", brief="true")["sessions"]
    meant = [row for row in rows if is_meant(row[0], (wanted,))]
    found = [row[0] for row in meant if row[8] is None or (with_undeclared and row[8] == "undeclared")]
    if not found:
        raise refuse_empty((wanted,), [row[0] for row in rows], len(meant))
    return found


def refuse_empty(wanted: Sequence[str], names: Sequence[str], gone: int = 0) -> Failure:
    """Make the refusal of a `wanted` that selects no session. It suggests similar `names`.

    `gone` is the number of sessions that match but are terminated or undeclared.
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
    """List sessions and templates with a similar spelling, the most similar first.

    For a pattern, the wildcards at its ends are dropped. The rest is compared with the beginnings of names.
    """
    import difflib

    # Compare with a template instead of its sessions.
    known = dict.fromkeys(find_template(name) or name for name in names) if is_several(wanted) else dict.fromkeys(names)
    bare = wanted.strip(_WILDCARDS)
    length = len(bare) if is_pattern(wanted) else None
    beginnings: dict[str, list[str]] = {}
    for name in known:
        beginnings.setdefault(name[:length], []).append(name)
    near = difflib.get_close_matches(bare, beginnings, _SUGGESTIONS)
    return [name for beginning in near for name in beginnings[beginning]][:_SUGGESTIONS]
