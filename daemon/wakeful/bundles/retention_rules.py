"""Decides which sessions and outputs are due for the archive, and why. Pure: callers pass sizes, ages and counts.

The daemon asks regularly and carries out what the settings and specs allow. Nothing is deleted: a session that is due
moves to a bundle and can be loaded back, and an output moves to the blob archive. A session that could still wake, is
owed a run, was left failed or waits for an answer is never due. `judge_session` gives that reason, which doctor shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from wakeful.core.record.events import Outcome
from wakeful.core.record.state import Archived, DamagedSession, Moving, Session
from wakeful.core.spec.session import Retention
from wakeful.text.display import count

_MICROSECONDS = 1_000_000
_DAY_SECONDS = 86_400
# Seconds for which the output of a run that did not succeed stays. People look at such outputs later.
FAILED_KEEP_SECONDS = 90.0 * _DAY_SECONDS
# The limits for the outputs of a session whose spec sets none.
USUAL_OUTPUTS = Retention(keep_seconds=30.0 * _DAY_SECONDS, size_bytes=1_000_000_000)


class RetainedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session as retention sees it.

    `held` is the reason why it must stay, or None if it may be archived. `retention` has the limits of its own spec.
    """

    session: str
    name: str
    last_active_at: int
    runs: int
    size_bytes: int
    held: str | None = None
    retention: Retention | None = None


class Due(msgspec.Struct, frozen=True):
    """A session that is due for the archive, and the reason as a text."""

    session: str
    name: str
    why: str


class RunOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The blobs of one run's output: their addresses and their total size.

    `run` is the run's number, or any number that grows with it.
    """

    run: int
    finished_at: int
    outcome: Outcome
    addresses: tuple[str, ...]
    size_bytes: int
    # The seqs of the deliveries whose payloads are counted with this run.
    deliveries: tuple[int, ...] = ()


def judge_session(session: Session, *, is_owed: bool = False, has_open_question: bool = False) -> str | None:
    """Return the reason why a session may not be archived, or None if it may.

    A declared session may still wake, and an archived session does not. So a session is archived only if its file is
    gone or it was terminated.
    """
    if isinstance(session, DamagedSession):
        return "a record of it is damaged"
    if session.run is not None:
        return "it is running"
    if session.wake is not None or is_owed:
        return "it is owed a run"
    if has_open_question:
        return "it waits for an answer"
    if session.lineage.conflicts:
        return "it has open conflicts"
    if session.last_run is not None and session.last_run.outcome == "failed" and not session.is_terminated:
        return f"run {session.last_run.run} failed, and the failure was not handled"
    if isinstance(session.closed, Moving):
        return "it is moving to another host"
    if isinstance(session.closed, Archived):
        return "it is archived already"
    if session.declaration.is_declared and not session.is_terminated:
        return "it is declared and may still wake"
    return None


def choose_sessions(standings: Iterable[RetainedSession], general: Retention, now: int) -> tuple[Due, ...]:
    """Choose the sessions to archive, the longest inactive first. `now` is in microseconds.

    Each session is judged by its own limits, or else the daemon's. Then more are chosen until all sessions together fit
    the daemon's size limit. A limit that is None does not apply.
    """
    standings = sorted(standings, key=lambda one: (one.last_active_at, one.session))
    due = {
        one.session: why
        for one in standings
        if one.held is None and (why := _judge_alone(one, one.retention or general, now)) is not None
    }
    due |= _choose_by_total_size(standings, due, general)
    return tuple(Due(one.session, one.name, due[one.session]) for one in standings if one.session in due)


def choose_outputs(outputs: Iterable[RunOutput], retention: Retention, now: int) -> list[RunOutput]:
    """Choose the outputs of one session that may move to the archive, oldest first.

    The newest output always stays. The output of a run that did not succeed stays for FAILED_KEEP_SECONDS, whatever the
    other limits are.
    """
    newest_first = sorted(outputs, key=lambda one: one.run, reverse=True)
    going: list[RunOutput] = []
    kept_bytes = 0
    for place, output in enumerate(newest_first):
        kept_bytes += output.size_bytes
        if place > 0 and _is_beyond(output, place, kept_bytes, retention, now):
            going.append(output)
            kept_bytes -= output.size_bytes
    return going[::-1]


def _judge_alone(one: RetainedSession, retention: Retention, now: int) -> str | None:
    age = (now - one.last_active_at) / _MICROSECONDS
    if retention.keep_seconds is not None and age > retention.keep_seconds:
        return f"not active for {_say_days(age)}, kept for {_say_days(retention.keep_seconds)}"
    if retention.runs is not None and one.runs > retention.runs:
        return f"{count(one.runs, 'run')}, {retention.runs:,} are kept"
    if retention.size_bytes is not None and one.size_bytes > retention.size_bytes:
        return f"{count(one.size_bytes, 'byte')}, {retention.size_bytes:,} are kept"
    return None


def _choose_by_total_size(
    standings: Sequence[RetainedSession], due: dict[str, str], general: Retention
) -> dict[str, str]:
    """Choose further sessions to archive until the others fit the daemon's size limit. Held sessions always stay."""
    more: dict[str, str] = {}
    if general.size_bytes is None:
        return more
    total = sum(one.size_bytes for one in standings if one.session not in due)
    for one in standings:
        if total <= general.size_bytes:
            break
        if one.held is None and one.session not in due:
            more[one.session] = f"all sessions together have {total:,} bytes, {general.size_bytes:,} are kept"
            total -= one.size_bytes
    return more


def _is_beyond(output: RunOutput, place: int, kept_bytes: int, retention: Retention, now: int) -> bool:
    """Does the output exceed a limit? `place` is the number of newer outputs. `kept_bytes` includes this output."""
    age = (now - output.finished_at) / _MICROSECONDS
    if output.outcome != "succeeded" and age <= FAILED_KEEP_SECONDS:
        return False
    is_old = retention.keep_seconds is not None and age > retention.keep_seconds
    is_surplus = retention.runs is not None and place >= retention.runs
    is_large = retention.size_bytes is not None and kept_bytes > retention.size_bytes
    return is_old or is_surplus or is_large


def _say_days(seconds: float) -> str:
    days = seconds / _DAY_SECONDS
    return f"{days:.0f} days" if days >= 2 else f"{seconds / 3600:.1f} hours"
