"""Describes to a model what changed since the last success of its session: a list of causes and paths, then the diffs.

Other people wrote the paths, commits and contents, so these are always quoted. The diffs have a share of the model's
window and are added in the order of the paths until it is used up. The list of paths has a share of its own, so it
also names paths that have no diff. Called for the opening of a run.
"""

from __future__ import annotations

from collections.abc import Callable

from wakeful.core.agents.model_text import estimate_tokens, quote_block, quote_line
from wakeful.core.looking.path_reports import Delivered
from wakeful.core.record.events import Cause, ChangedPath
from wakeful.core.spec.bindings import SessionBinding
from wakeful.core.spec.session import SessionSpec
from wakeful.model_context.diffs import ReadChanged, diff_sides
from wakeful.model_context.prompt_parts import Room
from wakeful.text.display import count

_MOST_COMMITS = 20
_ID_DIGITS = 12
# A diff is shown only if at least this many tokens are left. If necessary it is cut. A smaller piece is useless.
_LEAST_TOKENS = 100


def describe_changes(
    spec: SessionSpec, causes: tuple[Cause, ...], room: Room, read: ReadChanged, redact: Callable[[str], str]
) -> str | None:
    """Describe what changed, with diffs. None if there are no causes. Blocking."""
    if not causes:
        return None
    lines, diffs = [], []
    names, left = _Names(room.paths), room.changes
    for cause in causes:
        compared = read(cause)
        found = {changed.path: diff_sides(changed, redact) for changed in compared.sides}
        problem = f" (no diffs: {quote_line(compared.problem)})" if compared.problem is not None else ""
        notes = {path: note for path, (_, note) in found.items() if note is not None}
        lines += [f"- {say_cause(spec, cause)}{problem}", *names.list(compared.paths or cause.paths, notes)]
        for delivered in compared.deliveries:
            text = delivered.content.decode(errors="replace") if isinstance(delivered.content, bytes) else None
            if text is None or left < _LEAST_TOKENS:
                lines.append(f"  - {quote_line(delivered.label)} (not shown: {_say_absence(delivered)})")
                continue
            label = f"{delivered.label}{_say_trust(spec, cause)}"
            block = quote_block(redact(text), label, left, delivered.where)
            left -= estimate_tokens(block)
            diffs.append(block)
        for path, (diff, _) in found.items():
            if diff is None or left < _LEAST_TOKENS:
                continue
            # A committed file might not be bound for reading, and may have changed since.
            how = f"read {quote_line(path)}" if cause.kind == "file" else "the repository has all of it"
            block = quote_block(diff, f"diff of {quote_line(path)}{_say_trust(spec, cause)}", left, how)
            left -= estimate_tokens(block)
            diffs.append(block)
    return "\n\n".join(("\n".join(("# What changed", "", *lines)), *diffs))


class _Names:
    """Lists paths until its tokens are used up."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def list(self, paths: tuple[ChangedPath, ...], notes: dict[str, str]) -> list[str]:
        lines: list[str] = []
        for place, path in enumerate(paths):
            why = f" (no diff: {notes[path.path]})" if path.path in notes else ""
            line = f"  - {quote_line(path.path)} {path.change}{why}"
            self._tokens -= estimate_tokens(line)
            if self._tokens < 0:
                return [*lines, f"  - (… and {count(len(paths) - place, 'more path')}; list shows what is there)"]
            lines.append(line)
        return lines


def _say_absence(delivered: Delivered) -> str:
    return delivered.content if isinstance(delivered.content, str) else delivered.where


def _say_trust(spec: SessionSpec, cause: Cause) -> str:
    binding = spec.binding(cause.binding)
    return " (untrusted: strangers can write there)" if binding is not None and binding.is_untrusted else ""


def say_cause(spec: SessionSpec, cause: Cause) -> str:
    why = f" ({cause.reason})" if cause.reason and cause.kind not in ("activation", "first") else ""
    name = f"{quote_line(cause.binding)}{_say_trust(spec, cause)}{why}"
    match cause.kind:
        case "activation":
            return "a person asked for this run" + (f", saying {quote_line(cause.reason)}" if cause.reason else "")
        case "first":
            return "this is the first run: everything bound to it is new"
        case "cron" | "every":
            return f"{name}: its time came, {cause.new}"
        case "message":
            return f"{name}: messages came"
        case "webhook":
            return f"{name}: {_say_deliveries(cause)} came"
        case "session":
            return _say_session(spec, cause)
        case "commits":
            return f"{name}: commits{_say_commits(cause.commits)}"
        case "spec":
            return "the spec of this session was edited"
        case "program":
            return "the program of this session was edited"
        case "probe":
            return f"{name}: the result of the probe has changed"
        case "file":
            known = "" if cause.delta == "known" else "; the paths are not known"
            return f"{name}: files changed{known}"
        case _:
            return f"{name}: it has changed"


def _say_deliveries(cause: Cause) -> str:
    number = int(cause.new or "0") - int(cause.old or "0")
    return "1 delivery" if number == 1 else f"{number:,} deliveries"


def _say_session(spec: SessionSpec, cause: Cause) -> str:
    binding = spec.binding(cause.binding)
    name = f"{quote_line(cause.binding)}{_say_trust(spec, cause)}"
    if not isinstance(binding, SessionBinding) or binding.on == "succeeded":
        return f"{name}: that session has succeeded again"
    # The reason may be a text that a model wrote, so it is quoted.
    how = f": {quote_line(cause.reason)}" if cause.reason else ""
    return f"{name}: a run of session {quote_line(binding.session)} has {binding.on}{how}"


def _say_commits(commits: tuple[str, ...]) -> str:
    """List commits. Each is given as `<id> <author>: <subject>`, or as its id alone."""
    if not commits:
        return ""
    more = f" and {len(commits) - _MOST_COMMITS} more" if len(commits) > _MOST_COMMITS else ""
    return " " + ", ".join(map(_say_commit, commits[:_MOST_COMMITS])) + more


def _say_commit(commit: str) -> str:
    number, _, story = commit.partition(" ")
    return f"{number[:_ID_DIGITS]} {quote_line(story)}" if story else number[:_ID_DIGITS]
