"""Views of the records of the log: as lines `{seq, at, kind, author, run, payload, hash}`, as runs, and as the results
of a search, with an excerpt around the first word that was found.

Views import only the core, so `Recorded` describes a record of the log by the fields that are read here. The log
decides which records match a search. Nothing is escaped here: the printer does that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from wakeful.core.record.erased_payloads import list_values
from wakeful.views.times import show_time, show_time_or_none

_ENCODER = msgspec.json.Encoder()
_NOTHING = msgspec.Raw(b"null")
AROUND = 40
_WORD = re.compile(r"[^\W_]+")


class Recorded(Protocol):
    """One record of the log. `payload` is JSON text, None if it was erased."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def author(self) -> str: ...
    @property
    def run(self) -> int | None: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def hash(self) -> bytes: ...


class Exported(Recorded, Protocol):
    """A record with all fields of its envelope."""

    @property
    def session(self) -> str: ...
    @property
    def parent(self) -> str | None: ...
    @property
    def rationale(self) -> str | None: ...
    @property
    def payload_hash(self) -> bytes: ...


def view_record(record: Recorded) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "at": show_time(record.at),
        "kind": record.kind,
        "author": record.author,
        "run": record.run,
        "payload": _view_payload(record),
        "hash": record.hash.hex(),
    }


def _view_payload(record: Recorded) -> Any:
    """View a payload exactly as recorded. In kinds with moments, these become text, like every time that leaves the
    daemon.
    """
    if record.payload is None:
        return _NOTHING
    show_times = TIMED.get(record.kind)
    return msgspec.Raw(record.payload) if show_times is None else show_times(msgspec.json.decode(record.payload))


def _show_causes(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "causes": [_show_at(cause) for cause in payload["causes"]]}


def _show_hold(payload: dict[str, Any]) -> dict[str, Any]:
    hold = payload["hold"]
    return {**payload, "hold": {**hold, "until": show_time_or_none(hold.get("until"))}}


def _show_retry(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "retry_at": show_time_or_none(payload.get("retry_at"))}


def _show_at(cause: dict[str, Any]) -> dict[str, Any]:
    return {**cause, "at": show_time_or_none(cause.get("at"))}


def _show_periods(payload: dict[str, Any]) -> dict[str, Any]:
    periods = payload.get("periods")
    if not periods:
        return payload
    return {
        **payload,
        "periods": {zone: {name: show_time(at) for name, at in begins.items()} for zone, begins in periods.items()},
    }


# Every kind whose payload contains a moment: microseconds in the log, RFC 3339 outside of it.
TIMED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "wake_requested": _show_causes,
    "wake_extended": _show_causes,
    "run_started": lambda payload: _show_periods(_show_causes(payload)),
    "session_slept": _show_hold,
    "work_halted": _show_hold,
    "run_finished": lambda payload: _show_periods(_show_retry(payload)),
    "turn_answered": lambda payload: _show_periods(payload),
    "turn_failed": lambda payload: _show_periods(payload),
}


def encode_line(record: Recorded, session: str | None = None) -> bytes:
    """Encode one line of `log`, or of `follow` if the session's name is given."""
    view = view_record(record)
    if session is not None:
        view = {"session": session, **view}
    return _ENCODER.encode(view) + b"\n"


def encode_export(record: Exported, name: str | None) -> bytes:
    """Encode one line of `export`: the whole envelope, with the session's present name and its id, which never
    changes.
    """
    line = {
        "session": name,
        "id": record.session,
        **view_record(record),
        "parent": record.parent,
        "rationale": record.rationale,
        "payload_hash": record.payload_hash.hex(),
    }
    return _ENCODER.encode(line) + b"\n"


def _view_trace(trace: dict[str, Any] | None) -> dict[str, Any] | None:
    """View how much a trace found. The findings themselves have their own query."""
    if trace is None:
        return None
    return {"denied": len(trace["denied"]) + trace["more"], "observed": trace["is_observed"], "words": trace["words"]}


def view_runs(records_newest_first: Iterable[Recorded], most: int) -> list[dict[str, Any]]:
    """View the last runs, newest first. The records are of the kinds `run_started`, `run_readopted`, `run_finished`."""
    runs: dict[int, dict[str, Any]] = {}
    for record in records_newest_first:
        if record.run is None or record.payload is None:
            continue
        payload = msgspec.json.decode(record.payload)
        if record.kind == "run_finished":
            runs[record.run] = {
                "run": record.run,
                "outcome": payload["outcome"],
                "reason": payload.get("reason"),
                "exit_code": payload.get("exit_code"),
                "finished_at": show_time(record.at),
                "seconds": payload.get("usage", {}).get("wall_seconds"),
                "written": payload.get("written", {}),
                "usage": payload.get("usage", {}),
                "subagents": payload.get("subagents", {}),
                "output_bytes": payload.get("output", {}).get("total_bytes", 0),
                "isolation": payload.get("isolation"),
                "undeclared": payload.get("undeclared", []),
                "workspace": payload.get("workspace"),
                "hint": payload.get("hint"),
                "trace": _view_trace(payload.get("trace")),
            }
        elif record.kind == "run_readopted":
            run = runs.setdefault(record.run, {"run": record.run, "outcome": None, "finished_at": None})
            run["daemons"] = run.get("daemons", 1) + 1
        elif record.kind == "run_started":
            run = runs.setdefault(record.run, {"run": record.run, "outcome": None, "finished_at": None})
            run["started_at"] = show_time(record.at)
            run["attempt"] = payload["attempt"]
            run["traced"] = payload.get("trace")
            run["agent"] = (payload.get("agent") or {}).get("name")
            run["versions"] = payload["versions"]
            run["chain"] = payload.get("chain", [])
            run["causes"] = [_show_at(cause) for cause in payload["causes"]]
    # A run is left out if its start is before the given records.
    whole = [run for run in runs.values() if "started_at" in run]
    return sorted(whole, key=lambda run: -run["run"])[:most]


def say_cost(usage: dict[str, Any], subagents: dict[str, dict[str, Any]] | None = None) -> str:
    """Describe the cost of a run: its time, the tokens and money if an agent worked, and the share of its
    sub-agents.
    """
    words = f"{usage.get('wall_seconds', 0):.2f} s, {usage.get('cpu_seconds', 0):.2f} s of CPU"
    if not usage.get("tokens"):
        return words
    parts = "; ".join(f"sub-agent {name} {say_spent(one)}" for name, one in sorted((subagents or {}).items()))
    return f"{words}, {say_spent(usage)}" + (f" (of it {parts})" if parts else "")


def say_spent(usage: dict[str, Any]) -> str:
    """Describe the tokens and the money of an agent's run."""
    guessed = f" ({usage['estimated_tokens']:,} of the tokens by estimate)" if usage.get("estimated_tokens") else ""
    # A model without a price is not free, so its cost is left out.
    cost = f", {usage['usd']:.4f} USD" if usage.get("usd") else ""
    return f"{usage.get('tokens', 0):,} tokens{cost}{guessed}"


def encode_find(record: Exported, name: str, words: list[str]) -> bytes:
    """Encode one line of `search`."""
    line = {"session": name, "id": record.session, **view_record(record), "excerpt": find_excerpt(record, words)}
    return msgspec.json.encode(line) + b"\n"


def split_words(text: str) -> list[str]:
    """Split a search into words, in the form in which they are compared: without case and accents."""
    return _WORD.findall(_plain(text))


def find_excerpt(record: Exported, words: list[str]) -> str | None:
    """Find the value that contains the most of these words, and cut it around the first of them. None if no value of
    the payload, and not the rationale, contains any of them.
    """
    texts = [record.rationale] if record.rationale else []
    if record.payload is not None:
        texts += list_values(msgspec.json.decode(record.payload))
    best, most = None, 0
    for text in texts:
        found = {_plain(one) for one in _WORD.findall(text)}
        matched = sum(any(one.startswith(word) for one in found) for word in words)
        if matched > most:
            best, most = text, matched
    place = _find(best, words) if best is not None else None
    return _cut(best, *place) if best is not None and place is not None else None


def matches(record: Exported, shown: str, text: str) -> bool:
    """Does a record contain this text, in its shown line or in one of its values? Case and accents are ignored."""
    wanted = _plain(text)
    texts = [shown, record.rationale or ""]
    if record.payload is not None:
        texts += list_values(msgspec.json.decode(record.payload))
    return any(wanted in _plain(one) for one in texts)


def _find(text: str, words: list[str]) -> tuple[int, int] | None:
    """Find where the first of these words is in the text: as a whole word, else as the beginning of a word."""
    beginning = None
    for found in _WORD.finditer(text):
        word = _plain(found[0])
        if word in words:
            return found.span()
        if beginning is None and word.startswith(tuple(words)):
            beginning = found.span()
    return beginning


def _cut(text: str, start: int, end: int) -> str:
    first, last = max(0, start - AROUND), min(len(text), end + AROUND)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def _plain(text: str) -> str:
    parted = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parted if not unicodedata.combining(one)).casefold()
