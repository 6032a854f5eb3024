"""What changed since a session's last success, as its model is told: which binding, which paths, which commits, slots and wishes.

Paths and commits were named by others and stand in quotation marks.
"""

from __future__ import annotations

from wakeful.assembling.part import Room
from wakeful.assembling.quoting import quote_line
from wakeful.core.events import Cause
from wakeful.core.spec import SessionSpec
from wakeful.core.tokens import estimate_tokens
from wakeful.counting import count

_MOST_COMMITS = 20
_SHORT_COMMIT = 12


def describe_changes(spec: SessionSpec, causes: tuple[Cause, ...], room: Room) -> str | None:
    if not causes:
        return None
    lines: list[str] = []
    tokens = room.paths
    for cause in causes:
        lines.append(f"- {_say_cause(spec, cause)}")
        paths = [f"  - {quote_line(path.path)} {path.change}" for path in cause.paths]
        for place, line in enumerate(paths):
            tokens -= estimate_tokens(line)
            if tokens < 0:
                lines.append(f"  - (… and {count(len(paths) - place, 'more path')}; list shows what is there)")
                break
            lines.append(line)
    return "\n".join(("# What changed", "", *lines))


def _say_cause(spec: SessionSpec, cause: Cause) -> str:
    binding = spec.binding(cause.binding)
    strange = " (untrusted: strangers write there)" if binding is not None and binding.is_untrusted else ""
    why = f" ({cause.reason})" if cause.reason and cause.kind not in ("activation", "first") else ""
    name = f"{quote_line(cause.binding)}{strange}{why}"
    match cause.kind:
        case "activation":
            return "a person asked for this run" + (f", with the note {quote_line(cause.reason)}" if cause.reason else "")
        case "first":
            return "this is the first run: everything bound to it is new"
        case "cron" | "every":
            return f"{name}: its time came, {cause.new}"
        case "message":
            return f"{name}: messages came"
        case "session":
            return f"{name}: that session has succeeded again"
        case "commits":
            return f"{name}: commits{_say_commits(cause.commits)}"
        case "spec":
            return "the spec of this session was edited"
        case "program":
            return "the program of this session was edited"
        case "probe":
            return f"{name}: what it looks at answers differently now"
        case _:
            known = "" if cause.delta == "known" else "; which paths is not known"
            return f"{name}: files changed{known}"


def _say_commits(commits: tuple[str, ...]) -> str:
    if not commits:
        return ""
    more = f" and {len(commits) - _MOST_COMMITS} more" if len(commits) > _MOST_COMMITS else ""
    return " " + ", ".join(one[:_SHORT_COMMIT] for one in commits[:_MOST_COMMITS]) + more
