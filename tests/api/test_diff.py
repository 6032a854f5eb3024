"""`diff` over the wire: facts, memory, hand-off, spec, bindings and files of two sides, without equal entries."""

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads, writes
from wakeful.core.calls.call_types import Forget, Note, Remember

PAYROLL = declare("payroll", reads("salaries", "salaries.csv"), writes("result", "out.csv"), objective="Pay everybody.")


@pytest.fixture
def told(daemon: RunningDaemon) -> RunningDaemon:
    """Let payroll record and forget facts, run twice and get another spec."""

    async def live(small: SmallDaemon) -> None:
        async def call(made: object) -> None:
            await small.call(made, author="person:ada", key=None, run=None)  # type: ignore[arg-type]

        await small.declare(PAYROLL)
        await small.finish("payroll")
        await call(Remember(name="payroll", key="currency", value="EUR"))
        await call(Remember(name="payroll", key="month", value="March"))
        await call(Note(name="payroll", text="next: April"))
        small.versions["out.csv"] = "c" * 32
        await small.change("salaries.csv", "b" * 32)
        await small.finish("payroll")
        await call(Remember(name="payroll", key="currency", value="CHF", rationale="we moved"))
        await call(Forget(name="payroll", key="month"))
        await call(Note(name="payroll", text="next: May\nblocked: nothing"))
        bindings = (reads("salaries", "salaries.csv"), reads("tax", "tax.csv"), writes("result", "out.csv"))
        await small.declare(declare("payroll", *bindings, objective="Pay nearly everybody."))

    daemon.do(live)
    return daemon


def seq_of(speaker: Speaker, kind: str, nth: int = -1) -> int:
    return speaker.get(f"/sessions/payroll/log?kind={kind}").lines[nth]["seq"]


def test_two_positions_differ_in_what_was_recorded_between(told: RunningDaemon, speaker: Speaker) -> None:
    """`diff` lists facts with author and rationale, hand-offs, spec keys, binding versions, and the runs that wrote a
    file."""
    before = seq_of(speaker, "note_added", 0)
    found = speaker.get(f"/diff?a=payroll@{before}&b=payroll").json
    assert found["a"]["seq"] == before and found["b"]["seq"] == told.small.core.state.by_name("payroll").seq
    currency, month = found["facts"]
    assert (currency["a"]["value"], currency["b"]["value"], currency["b"]["rationale"]) == ("EUR", "CHF", "we moved")
    assert month["key"] == "month" and month["b"] is None
    assert found["handoff"] == {"a": "next: April", "b": "next: May\nblocked: nothing"}
    spec = {entry["key"]: (entry["a"], entry["b"]) for entry in found["spec"]}
    assert spec["objective"] == ("Pay everybody.", "Pay nearly everybody.") and spec["bindings.tax.pattern"] == (
        None,
        "tax.csv",
    )
    assert not any(key.startswith("bindings.salaries") for key in spec)
    bindings = {entry["name"]: entry for entry in found["bindings"]}
    assert bindings["salaries"]["seen"] == {"a": "a" * 32, "b": "b" * 32} == bindings["salaries"]["good"]
    assert bindings["tax"]["change"] == "added"
    assert found["files"] == [{"binding": "result", "what": "out.csv", "a": "a" * 32, "b": "c" * 32, "runs": [2]}]


def test_a_side_does_not_differ_from_itself(told: RunningDaemon, speaker: Speaker) -> None:
    """A comparison of a position with itself is empty."""
    found = speaker.get("/diff?a=payroll@9&b=payroll@9").json
    assert not any(found[part] for part in ("session", "facts", "memory", "handoff", "spec", "bindings", "files"))


def test_both_directions_tell_the_same(told: RunningDaemon, speaker: Speaker) -> None:
    """With the sides exchanged, `a` and `b` change places."""
    there, back = speaker.get("/diff?a=payroll@5&b=payroll").json, speaker.get("/diff?a=payroll&b=payroll@5").json
    for part in ("session", "facts", "spec", "files"):
        assert [(one["a"], one["b"]) for one in there[part]] == [(one["b"], one["a"]) for one in back[part]], part


def test_two_sessions_are_compared_by_what_they_bind(told: RunningDaemon, speaker: Speaker) -> None:
    """Different names alone are no difference. A session's name may contain an @."""
    told.do(
        lambda d: d.declare(declare("ticket@7", reads("salaries", "salaries.csv"), objective="Pay nearly everybody."))
    )
    found = speaker.get("/diff?a=payroll&b=ticket@7").json
    assert found["b"]["name"] == "ticket@7" and {entry["key"] for entry in found["facts"]} == {"currency"}
    assert "objective" not in {entry["key"] for entry in found["spec"]} and "name" not in {
        entry["key"] for entry in found["spec"]
    }
    assert speaker.get("/diff?a=ticket@7@1&b=ticket@7").json["a"]["seq"] == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("a=payroll", "b is missing"),
        ("a=payroll@0&b=payroll", "there is no 0"),
        ("a=payroll@march&b=payroll", "no checkpoint 'march'"),
        ("a=payroll@&b=payroll", "no checkpoint ''"),
        ("a=payrol@3&b=payroll", "no session is called 'payrol'"),
        ("a=@3&b=payroll", "no session is called ''"),
    ],
)
def test_a_side_that_is_none_is_refused_in_words(told: RunningDaemon, speaker: Speaker, query: str, words: str) -> None:
    """The error says which side is wrong, what was found and what was expected."""
    reply = speaker.get(f"/diff?{query}")
    assert reply.status in (400, 404) and words in reply.error
