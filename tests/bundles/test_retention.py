"""Sessions and outputs that are due for the archive: by age, by count and by size, and never if still needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.bundles.retention_rules import RetainedSession, RunOutput, choose_outputs, choose_sessions, judge_session
from wakeful.core.record import events as ev
from wakeful.core.record.state import Archived, Declaration, LastRun, Moving, OpenRun, OpenWake, Session, Terminated
from wakeful.core.spec.session import Retention, SessionSpec

DAY = 86_400
NOW = 1_000 * DAY * 1_000_000


def standing(
    name: str, *, days: float = 0, runs: int = 0, size: int = 0, held: str | None = None, own: Retention | None = None
) -> RetainedSession:
    at = NOW - round(days * DAY * 1_000_000)
    return RetainedSession(
        session=name, name=name, last_active_at=at, runs=runs, size_bytes=size, held=held, retention=own
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retention(), []),
        (Retention(keep_seconds=90 * DAY), ["old"]),
        (Retention(keep_seconds=100 * DAY), []),
        (Retention(keep_seconds=DAY), ["old", "large"]),
        (Retention(runs=10), ["busy"]),
        (Retention(runs=11), []),
        (Retention(size_bytes=10_000), []),
        (Retention(size_bytes=1_500), []),
        (Retention(size_bytes=1_350), ["old", "large"]),
        (Retention(size_bytes=300), ["large"]),
        (Retention(size_bytes=100), ["large", "busy"]),
        (Retention(size_bytes=0), ["old", "large", "busy"]),
    ],
)
def test_sessions_are_due_by_age_count_and_size_the_longest_inactive_first(
    policy: Retention, expected: list[str]
) -> None:
    sessions = [
        standing("busy", days=0, runs=11, size=200),
        standing("large", days=5, runs=3, size=1_200),
        standing("held", days=900, runs=99, size=0, held="it is running"),
        standing("old", days=99, runs=1, size=100),
    ]
    assert [due.session for due in choose_sessions(sessions, policy, NOW)] == expected


def test_the_size_of_all_together_is_relieved_no_further_than_needed() -> None:
    sessions = [standing(name, days=days, size=100) for name, days in (("a", 3), ("b", 2), ("c", 1))]
    (due,) = choose_sessions(sessions, Retention(size_bytes=200), NOW)
    assert (due.session, due.why) == ("a", "all sessions together have 300 bytes, 200 are kept")


def test_a_session_with_bounds_of_its_own_goes_by_those() -> None:
    sessions = [
        standing("short", days=2, own=Retention(keep_seconds=DAY)),
        standing("long", days=99, own=Retention(keep_seconds=1_000 * DAY)),
    ]
    found = choose_sessions(sessions, Retention(keep_seconds=30 * DAY), NOW)
    assert [(due.session, due.why) for due in found] == [("short", "not active for 2 days, kept for 24.0 hours")]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50), st.integers(0, 1_000), st.booleans()), max_size=12),
    st.none() | st.integers(0, 3_000),
    st.none() | st.integers(1, 300),
)
def test_what_is_held_is_never_due_and_what_may_go_goes_until_the_size_fits(
    some: list[tuple[int, int, int, bool]], size: int | None, days: int | None
) -> None:
    sessions = [
        standing(str(number), days=age, runs=runs, size=bytes_, held="held" if is_held else None)
        for number, (age, runs, bytes_, is_held) in enumerate(some)
    ]
    policy = Retention(size_bytes=size, keep_seconds=days * DAY if days is not None else None)
    due = {one.session for one in choose_sessions(sessions, policy, NOW)}
    assert not due & {one.session for one in sessions if one.held}
    staying = [one for one in sessions if one.session not in due]
    if size is not None:
        assert sum(one.size_bytes for one in staying) <= size or all(one.held for one in staying)
    if days is not None:
        assert all(one.held or one.last_active_at >= NOW - days * DAY * 1_000_000 for one in staying)


def session(**fields: object) -> Session:
    return Session(id="1", name="a", opened_at=1, **fields)  # type: ignore[arg-type]


def last_run(outcome: ev.Outcome) -> LastRun:
    return LastRun(run=3, outcome=outcome, reason=None, started_at=1, finished_at=2, causes=(), chain=())


def open_run() -> OpenRun:
    return OpenRun(
        run=1, run_id="r", wake=1, attempt=0, incarnation="i", started_at=1, versions={}, causes=(),
        spec=SessionSpec(name="a", root="/"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, None),
        ({"declaration": Declaration(is_declared=True)}, "declared"),
        ({"declaration": Declaration(is_declared=True), "closed": Terminated()}, None),
        ({"wake": OpenWake(wake=1, requested_at=1, causes=())}, "owed"),
        ({"last_run": last_run("failed")}, "run 3 failed"),
        ({"last_run": last_run("failed"), "closed": Terminated()}, None),
        ({"last_run": last_run("succeeded")}, None),
        ({"closed": Archived("bundle")}, "archived already"),
        ({"closed": Moving("elsewhere")}, "moving"),
    ],
)
def test_a_session_that_is_needed_may_not_be_archived(fields: dict[str, object], words: str | None) -> None:
    found = judge_session(session(**fields))
    assert found is None if words is None else words in (found or "")


def test_what_runs_is_owed_or_waits_for_an_answer_may_not_be_archived() -> None:
    assert judge_session(session(run=open_run())) == "it is running"
    assert judge_session(session(), is_owed=True) == "it is owed a run"
    assert judge_session(session(), has_open_question=True) == "it waits for an answer"


# Outputs


def output(
    run: int,
    *,
    days: float = 0,
    size: int = 100,
    outcome: ev.Outcome = "succeeded",
    addresses: tuple[str, ...] | None = None,
) -> RunOutput:
    at = NOW - round(days * DAY * 1_000_000)
    return RunOutput(
        run=run,
        finished_at=at,
        outcome=outcome,
        size_bytes=size,
        addresses=(f"b{run}",) if addresses is None else addresses,
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retention(), []),
        (Retention(keep_seconds=3.5 * DAY), [1]),
        (Retention(keep_seconds=0), [1, 3]),
        (Retention(runs=1), [1, 3]),
        (Retention(runs=3), [1]),
        (Retention(runs=4), []),
        (Retention(size_bytes=400), []),
        (Retention(size_bytes=399), [1]),
        (Retention(size_bytes=1), [1, 3]),
    ],
)
def test_outputs_are_due_by_age_count_and_size_but_not_the_newest_and_not_of_a_fresh_failure(
    policy: Retention, expected: list[int]
) -> None:
    outputs = [output(1, days=4), output(2, days=3, outcome="failed"), output(3, days=2), output(4, days=1)]
    assert [one.run for one in choose_outputs(outputs, policy, NOW)] == expected


def test_the_output_of_a_failure_goes_when_its_own_time_is_over() -> None:
    outputs = [output(1, days=91, outcome="failed"), output(2, days=89, outcome="failed"), output(3)]
    assert [one.run for one in choose_outputs(outputs, Retention(keep_seconds=DAY), NOW)] == [1]
