"""The costs of runs: one row per run, stored as columns, and their sums by session, agent, cause and day.

`Ledger` takes the records of all sessions in the order of recording and keeps only figures. 250,000 runs take 17 MB of
memory, and their sums take a quarter of a second. Reading a million records again would take five seconds. The ledger
is only a cache of the log. Days are in UTC, like every time that leaves the daemon. A run whose payload was erased
counts without figures. The payload of an archived run comes from its archive. The cost belongs to the agent that did
the work. A question to another agent is a cost of that agent, and the work of a sub-agent is a cost of the sub-agent.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from wakeful.core.agents.turns import SubSpent
from wakeful.core.record.observations import Output, Usage
from wakeful.errors import CallerError
from wakeful.views.records import Exported
from wakeful.views.times import show_time

Key = Literal["session", "agent", "cause", "day"]
KEYS: tuple[Key, ...] = ("session", "agent", "cause", "day")
FIGURES = (
    "runs",
    "failed",
    "cpu_seconds",
    "wall_seconds",
    "tokens",
    "usd",
    "read_bytes",
    "written_bytes",
    "output_bytes",
    "estimated_tokens",
)
CAUSES_NAMED = 3
# The kinds of records that the ledger counts.
COUNTED = ("run_finished", "run_started", "session_migrated", "spec_declared")
_DAY = 86_400_000_000


class _Finished(Struct):
    outcome: str
    usage: Usage = Usage()
    output: Output = Output()
    subagents: dict[str, SubSpent] = {}


class _Cause(Struct):
    binding: str
    kind: str


class _Agent(Struct):
    name: str


class _Started(Struct):
    causes: tuple[_Cause, ...]
    agent: _Agent | None = None


class _Spec(Struct):
    agent: str | None = None


class _Declared(Struct):
    spec: _Spec


class _Migrated(Struct):
    agent: str | None = None


# Only the counted fields are decoded, which takes a third of the time of whole events.
_DECODE_STARTED = msgspec.json.Decoder(_Started).decode
_DECODE_FINISHED = msgspec.json.Decoder(_Finished).decode
_DECODE_DECLARED = msgspec.json.Decoder(_Declared).decode
_DECODE_MIGRATED = msgspec.json.Decoder(_Migrated).decode
_UNKNOWN = _Finished("unknown")


class Ledger:
    """Every run that ended, as columns. `position` is the position in the log up to which records were taken."""

    def __init__(self) -> None:
        self.position = 0
        self._words: list[str | None] = [None]
        self._numbers: dict[str | None, int] = {None: 0}
        # The agents of each session at this position of the log: the declared one, and the one it was migrated to.
        self._agents: dict[str, tuple[str | None, str | None]] = {}
        # For each open run: the cause that woke it, and the agent that works in it.
        self._open: dict[tuple[str, int | None], tuple[int, str | None]] = {}
        self._at, self._session, self._agent, self._cause = array("q"), array("l"), array("l"), array("l")
        # The number of runs of a row. It is 0 in the row of a sub-agent's share, because the run already counts for the
        # agent that gave the sub-agent its work.
        self._runs, self._failed = array("b"), array("b")
        self._cpu, self._wall, self._usd = array("d"), array("d"), array("d")
        self._tokens, self._estimated = array("q"), array("q")
        self._read, self._written, self._output = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._at)

    def take(self, record: Exported, archived: bytes | None = None) -> None:
        """Count a record. `archived` is the payload from the archive, if the log no longer has the payload."""
        payload = record.payload if record.payload is not None else archived
        match record.kind:
            case "run_finished":
                self._add(record, _DECODE_FINISHED(payload) if payload is not None else _UNKNOWN)
            case "run_started" if payload is not None:
                started = _DECODE_STARTED(payload)
                agent = started.agent.name if started.agent is not None else None
                self._open[(record.session, record.run)] = (self._number(name_causes(started.causes)), agent)
            case "spec_declared" if payload is not None:
                self._agents[record.session] = (
                    _DECODE_DECLARED(payload).spec.agent,
                    self._agents.get(record.session, (None, None))[1],
                )
            case "session_migrated" if payload is not None:
                self._agents[record.session] = (
                    self._agents.get(record.session, (None, None))[0],
                    _DECODE_MIGRATED(payload).agent,
                )

    def _add(self, record: Exported, finished: _Finished) -> None:
        declared, migrated = self._agents.get(record.session, (None, None))
        usage = finished.usage
        self._at.append(record.at)
        self._session.append(self._number(record.session))
        cause, worked = self._open.pop((record.session, record.run), (0, None))
        self._agent.append(self._number(worked or migrated or declared))
        self._cause.append(cause)
        subs = finished.subagents
        own = Usage(
            cpu_seconds=usage.cpu_seconds, wall_seconds=usage.wall_seconds, read_bytes=usage.read_bytes,
            written_bytes=usage.written_bytes,
            tokens=usage.tokens - sum(one.tokens for one in subs.values()),
            estimated_tokens=usage.estimated_tokens - sum(one.estimated_tokens for one in subs.values()),
            usd=usage.usd - sum(one.usd for one in subs.values()),
        ) if subs else usage  # fmt: skip
        self._add_figures(1, finished.outcome in ("failed", "lost"), own, finished.output.total_bytes)
        for name, spent in subs.items():
            self._at.append(record.at)
            self._session.append(self._number(record.session))
            self._agent.append(self._number(name))
            self._cause.append(cause)
            self._add_figures(
                0, False, Usage(tokens=spent.tokens, estimated_tokens=spent.estimated_tokens, usd=spent.usd), 0
            )

    def _add_figures(self, runs: int, is_failed: bool, usage: Usage, output_bytes: int) -> None:
        self._runs.append(runs)
        self._failed.append(is_failed)
        self._cpu.append(usage.cpu_seconds)
        self._wall.append(usage.wall_seconds)
        self._tokens.append(usage.tokens)
        self._estimated.append(usage.estimated_tokens)
        self._usd.append(usage.usd)
        self._read.append(usage.read_bytes)
        self._written.append(usage.written_bytes)
        self._output.append(output_bytes)

    def _number(self, word: str | None) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self._words)
            self._words.append(word)
        return number

    def sum_by(
        self, keys: Sequence[Key], since: int | None = None, ids: frozenset[str] | None = None
    ) -> dict[tuple[Any, ...], list[float]]:
        """Sum up `FIGURES` by these keys. Sessions are given by their ids, days as numbers since 1970.

        `ids` are the sessions to count, None for all.
        """
        counted = None if ids is None else {number for number, one in enumerate(self._words) if one in ids}
        columns: dict[Key, Sequence[int]] = {"session": self._session, "agent": self._agent, "cause": self._cause}
        if "day" in keys:
            columns["day"] = array("l", (at // _DAY for at in self._at))
        sums: dict[tuple[Any, ...], list[float]] = {}
        groups = zip(*(columns[key] for key in keys), strict=True)
        figures = (
            self._runs,
            self._failed,
            self._cpu,
            self._wall,
            self._tokens,
            self._usd,
            self._read,
            self._written,
            self._output,
            self._estimated,
        )
        rows = zip(groups, self._at, self._session, *figures, strict=True)
        for group, at, session, runs, failed, cpu, wall, tokens, usd, read, written, output, estimated in rows:
            if (since is not None and at < since) or (counted is not None and session not in counted):
                continue
            row = sums.get(group)
            if row is None:
                sums[group] = [runs, failed, cpu, wall, tokens, usd, read, written, output, estimated]
                continue
            row[0] += runs
            row[1] += failed
            row[2] += cpu
            row[3] += wall
            row[4] += tokens
            row[5] += usd
            row[6] += read
            row[7] += written
            row[8] += output
            row[9] += estimated
        return {
            tuple(one if key == "day" else self._words[one] for key, one in zip(keys, group, strict=True)): row
            for group, row in sums.items()
        }


def name_causes(causes: tuple[_Cause, ...]) -> str:
    """Return the name of the group that a run counts for. It has all causes of the run, so each run counts once."""
    if len(causes) == 1:
        return _name_cause(causes[0])
    names = sorted({_name_cause(cause) for cause in causes})
    more = len(names) - CAUSES_NAMED
    return " + ".join(names[:CAUSES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _name_cause(cause: _Cause) -> str:
    return cause.binding if cause.binding == cause.kind else f"{cause.binding} ({cause.kind})"


def read_keys(text: str) -> tuple[Key, ...]:
    """Parse keys such as `session,day`, in their order."""
    words = text.split(",")
    for word in words:
        if word not in KEYS:
            raise CallerError(
                f"costs cannot be grouped by {word!r}; expected one or more of {', '.join(KEYS)}, separated by commas"
            )
    if len(set(words)) < len(words):
        raise CallerError(f"{text!r} names a key twice; expected each of {', '.join(KEYS)} at most once")
    return tuple(key for word in words for key in KEYS if key == word)


def view_costs(sums: dict[tuple[Any, ...], list[float]], keys: Sequence[Key], names: dict[str, str]) -> dict[str, Any]:
    """View the sums. `names` are the present names of sessions. Rows are sorted by day, then by wall time, the longest
    first.
    """
    rows = [(_view_group(group, keys, names), figures) for group, figures in sums.items()]
    days = keys.index("day") if "day" in keys else None
    rows.sort(key=lambda row: ("" if days is None else row[0]["day"], -row[1][3], *map(str, row[0].values())))
    total = [sum(column) for column in zip(*sums.values(), strict=True)] or [0] * len(FIGURES)
    return {
        "by": list(keys),
        "rows": [group | _view_figures(figures) for group, figures in rows],
        "total": _view_figures(total),
    }


def _view_group(group: tuple[Any, ...], keys: Sequence[Key], names: dict[str, str]) -> dict[str, Any]:
    view = dict(zip(keys, group, strict=True))
    if "session" in view:
        view["session"] = names.get(view["session"], view["session"])
    if "day" in view:
        view["day"] = show_day(view["day"])
    return view


def show_day(day: int) -> str:
    return show_time(day * _DAY)[:10]


def _view_figures(figures: Sequence[float]) -> dict[str, float]:
    return {
        name: round(figure, 6) if name.endswith("_seconds") or name == "usd" else int(figure)
        for name, figure in zip(FIGURES, figures, strict=True)
    }
